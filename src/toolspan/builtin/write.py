"""Write: a whole new content for a file, which may not exist yet.

In: a path and a text. Out: a file that has it, all or nothing; what the model reads; hunks for the
record. Refused over a file that the conversation has not seen, or that changed since, as far as
the profile says. `_write` tells the story.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import to_builtins

from toolspan.disk.load import Loaded, fingerprint, load, look
from toolspan.disk.place import lock_name, placed, real
from toolspan.disk.swap import swap
from toolspan.disk.text import Codec, Text, decode, encode, like, plain
from toolspan.disk.words import clean, numbered
from toolspan.errors import ToolError
from toolspan.patch.make import make
from toolspan.profile import FileValues, Profile
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST = 128 << 20
"""Bytes of an old content that can be replaced: it is read, compared and recorded."""
_CURRENT = " (file state is current in your context — no need to Read it back)"
_UNREAD = "File has not been read yet. Read it first before writing to it."
_STALE = (
    "File has been modified since read, either by the user or by a linter. Read it again before"
    " attempting to write it."
)
_DESCRIPTION = """\
Give a file this content, whole; folders on the way are made. A file that exists has to be read
first. To change a part of a file, edit it instead."""
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "The file to write"},
        "content": {"type": "string", "description": "Everything the file is to contain"},
    },
    "required": ["file_path", "content"],
    "additionalProperties": False,
}


def write_tool(profile: Profile) -> Tool:
    """Write as a client version has it."""
    return Tool(
        name="Write",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        validate=_validate,
        idempotent=True,
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be written, over what."""

    name: str
    path: Path
    content: str
    old: Loaded | None
    """None: there is no file yet."""
    values: FileValues


async def _validate(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    plan = await to_thread.run_sync(partial(_plan, value, ctx), abandon_on_cancel=True)
    return plan if isinstance(plan, Refusal) else None


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    # Not abandoned when the call is cancelled: what was begun is told as it ended.
    return await to_thread.run_sync(partial(_write, value, ctx))


def _plan(value: Mapping[str, object], ctx: ToolContext) -> _Plan | Refusal:
    values = ctx.profile.files
    name = str(value["file_path"])
    home = ctx.workspace.environment.get("HOME") if values.expands_home else None
    path = placed(name, ctx.cwd, home)
    found = look(path)
    known = ctx.files.get(real(path)) or ctx.files.get(path)
    folder = found is not None and stat.S_ISDIR(found.st_mode)
    if folder and values.folder_first:
        return _is_folder(clean(name))
    if found is not None and known is None and values.read_first:
        return Refusal(_UNREAD, "read_required")
    if folder:
        return _is_folder(clean(name))
    old = None if found is None else load(path, MOST)
    if old is not None and known is not None and known.digest != old.digest:
        return Refusal(_STALE, "stale_file")
    return _Plan(clean(name), path, clean(str(value["content"])), old, values)


def _is_folder(name: str) -> Refusal:
    return Refusal(
        f"{name} is a directory, not a file. Name a file inside it.", "is_directory"
    )  # fmt: skip


def _write(value: Mapping[str, object], ctx: ToolContext) -> Output:
    plan = _plan(value, ctx)
    if isinstance(plan, Refusal):  # something changed since it was validated
        raise ToolError(plan.text, kind=plan.kind, wrapped=plan.wrapped)
    text = None if plan.old is None else _old_text(plan.old)
    raw = plan.content if text is None else like(text, plan.content)
    data = encode(raw, Codec("utf-8") if text is None else text.codec)
    stamp = swap(plan.path, data, None if plan.old is None else plan.old.stamp)
    state = FileState(
        digest=fingerprint(data),
        mtime_ns=stamp.mtime_ns,
        size=stamp.size,
        whole=True,
        call_id=ctx.call.id,
    )
    for path in {plan.path, real(plan.path)}:
        ctx.files.saw(path, state)
    return Output(_told(plan), _record(plan, text))


def _old_text(old: Loaded) -> Text:
    try:
        return decode(old.data)
    except ToolError:  # broken UTF-16: it is replaced anyway, and shown as well as it can be
        raw = old.data.decode("utf-8", "replace")
        return Text(raw, plain(raw), Codec("utf-8"))


def _told(plan: _Plan) -> str:
    note = _CURRENT if plan.values.tells_current else ""
    if plan.old is None:
        return f"File created successfully at: {plan.name}{note}"
    if plan.values.snippet:
        lines = numbered(plain(plan.content).split("\n"), 1, plan.values.numbering)
        return (
            f"The file {plan.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{lines}"
        )
    return f"The file {plan.name} has been updated successfully.{note}"


def _record(plan: _Plan, text: Text | None) -> dict[str, object]:
    hunks = [] if text is None else make(text.shown, plain(plan.content))
    record: dict[str, object] = {
        "type": "create" if text is None else "update",
        "filePath": plan.name,
        "content": plan.content,
        "structuredPatch": to_builtins(hunks),
        "originalFile": None if text is None else text.shown,
    }
    if plan.values.write_tells_user:
        record["userModified"] = False
    return record
