"""Write: a whole new content for a file, which may not exist yet.

In: a path and a text. Out: a file that has it, all or nothing; what the model reads; hunks for the
record. Refused over a file that the conversation has not seen, or that changed since, as far as
the profile says. `_write` tells the story.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.disk.load import Loaded, load, look
from toolspan.disk.place import lock_name
from toolspan.disk.text import Codec, Text, decode, encode, like, plain
from toolspan.disk.words import clean, numbered
from toolspan.errors import ToolError
from toolspan.patch.make import make
from toolspan.profile import FileValues, Profile
from toolspan.run.change import Planned, known, path_of, put, stale, unread, wrote
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST = 128 << 20
"""Bytes of an old content that can be replaced: it is read, compared and recorded."""
_CURRENT = " (file state is current in your context — no need to Read it back)"
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
    steps = Planned(_plan, _write)
    return Tool(
        name="Write",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=steps.run,
        validate=steps.validate,
        announces=True,
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


def _plan(value: Mapping[str, object], ctx: ToolContext) -> _Plan | Refusal:
    values = ctx.profile.files
    name = str(value["file_path"])
    path = path_of(name, ctx)
    found = look(path)
    state = known(path, ctx)
    folder = found is not None and stat.S_ISDIR(found.st_mode)
    if folder and values.folder_first:
        return _is_folder(clean(name))
    if found is not None and state is None and values.read_first:
        return unread()
    if folder:
        return _is_folder(clean(name))
    old = None if found is None else load(path, MOST)
    if old is not None and (changed := stale(old, state)):
        return changed
    return _Plan(clean(name), path, clean(str(value["content"])), old, values)


def _is_folder(name: str) -> Refusal:
    return Refusal(
        f"{name} is a directory, not a file. Name a file inside it.", "is_directory"
    )  # fmt: skip


def _write(plan: _Plan, ctx: ToolContext) -> Output:
    text = None if plan.old is None else _old_text(plan.old)
    raw = plan.content if text is None else like(text, plan.content)
    data = encode(raw, Codec("utf-8") if text is None else text.codec)
    old, digest = (None, None) if plan.old is None else (plan.old.stamp, plan.old.digest)
    stamp = put(plan.path, data, old, digest, ctx)
    wrote(plan.path, data, stamp, ctx, whole=True)
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
