"""Write: a whole new content for a file, which may not exist yet.

In: a path and a text. Out: a file that has it, all or nothing; what the model reads; hunks for the
record. Refused over a file that the conversation has not seen, or that changed since, as far as
the profile says. `_write` tells the story.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolError
from toolspan.files.paths import lock_name, number_lines, replace_surrogates
from toolspan.files.safe_read import LoadedFile, read_file, stat_path
from toolspan.files.text import Codec, DecodedText, decode_text, encode_text, match_newlines, normalize_newlines
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.files.changes import (
    PlannedTool,
    check_not_stale,
    find_file_state,
    remember_written,
    resolve_tool_path,
    unread_file_refusal,
    write_file,
)

MAX_OLD_BYTES = 128 << 20
"""Bytes of an old content that can be replaced: it is read, compared and recorded."""
_CURRENT_NOTE = " (file state is current in your context — no need to Read it back)"
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
    steps = PlannedTool(_plan_write, _write_file)
    return Tool(
        name="Write",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        idempotent=True,
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _WritePlan:
    """What is to be written, over what."""

    name: str
    path: Path
    content: str
    old: LoadedFile | None
    """None: there is no file yet."""
    values: FileValues


def _plan_write(value: Mapping[str, object], ctx: ToolContext) -> _WritePlan | Refusal:
    values = ctx.profile.files
    name = str(value["file_path"])
    path = resolve_tool_path(name, ctx)
    stat_result = stat_path(path)
    state = find_file_state(path, ctx)
    is_folder = stat_result is not None and stat.S_ISDIR(stat_result.st_mode)
    if is_folder and values.folder_first:
        return _folder_refusal(replace_surrogates(name))
    if stat_result is not None and state is None and values.read_first:
        return unread_file_refusal()
    if is_folder:
        return _folder_refusal(replace_surrogates(name))
    old = None if stat_result is None else read_file(path, MAX_OLD_BYTES)
    if old is not None and (changed := check_not_stale(old, state)):
        return changed
    return _WritePlan(replace_surrogates(name), path, replace_surrogates(str(value["content"])), old, values)


def _folder_refusal(name: str) -> Refusal:
    return Refusal(
        f"{name} is a directory, not a file. Name a file inside it.", "is_directory"
    )  # fmt: skip


def _write_file(plan: _WritePlan, ctx: ToolContext) -> Output:
    text = None if plan.old is None else _old_text(plan.old)
    raw = plan.content if text is None else match_newlines(text, plan.content)
    data = encode_text(raw, Codec("utf-8") if text is None else text.codec)
    old, digest = (None, None) if plan.old is None else (plan.old.version, plan.old.digest)
    version = write_file(plan.path, data, old, digest, ctx)
    remember_written(plan.path, data, version, ctx, whole=True)
    return Output(_format_result(plan), _build_record(plan, text))


def _old_text(old: LoadedFile) -> DecodedText:
    try:
        return decode_text(old.data)
    except ToolError:  # broken UTF-16: it is replaced anyway, and shown as well as it can be
        raw = old.data.decode("utf-8", "replace")
        return DecodedText(raw, normalize_newlines(raw), Codec("utf-8"))


def _format_result(plan: _WritePlan) -> str:
    note = _CURRENT_NOTE if plan.values.reports_current else ""
    if plan.old is None:
        return f"File created successfully at: {plan.name}{note}"
    if plan.values.snippet:
        lines = number_lines(normalize_newlines(plan.content).split("\n"), 1, plan.values.numbering)
        return (
            f"The file {plan.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{lines}"
        )
    return f"The file {plan.name} has been updated successfully.{note}"


def _build_record(plan: _WritePlan, text: DecodedText | None) -> dict[str, object]:
    hunks = [] if text is None else make_hunks(text.printable, normalize_newlines(plan.content))
    record: dict[str, object] = {
        "type": "create" if text is None else "update",
        "filePath": plan.name,
        "content": plan.content,
        "structuredPatch": to_builtins(hunks),
        "originalFile": None if text is None else text.printable,
    }
    if plan.values.records_user_modified:
        record["userModified"] = False
    return record
