"""Write: replace the whole content of a file, all or nothing.

`_plan_write` decides, `_write_content` writes. Depending on the client version, the call is refused if the
conversation has not read the existing file or if the file has changed since.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    CURRENT_NOTE,
    MAX_EDITABLE_BYTES,
    PlannedTool,
    check_not_stale,
    find_file_state,
    lock_by_path,
    resolve_tool_path,
    unread_file_refusal,
    write_file,
)
from toolspan.tools.files.paths import number_lines, replace_surrogates
from toolspan.tools.files.safe_read import LoadedFile, read_file, stat_path
from toolspan.tools.files.text import Codec, DecodedText, decode_text, encode_text, match_newlines, normalize_newlines
from toolspan.tools.schemas import TEXT, object_schema, result_schema, text

_DESCRIPTION = """\
Give a file this content, whole; folders on the way are made. A file that exists has to be read
first. To change a part of a file, edit it instead."""
_SCHEMA = object_schema(
    {"file_path": text("The file to write"), "content": text("Everything the file is to contain")},
    required=["file_path", "content"],
)


def write_tool(profile: Profile) -> Tool:
    """Return the Write tool for a client version."""
    steps = PlannedTool(_plan_write, _write_content)
    return Tool(
        name="Write",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        idempotent=True,
        paths=lock_by_path("file_path"),
        kind="write",
        subject=ToolSubject("path", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Write a file", destructive=True, idempotent=True),
        output_schema=result_schema({"type": TEXT, "filePath": TEXT, "content": TEXT}),
        replayable=True,
    )


@dataclass(frozen=True, slots=True)
class _WritePlan:
    name: str
    path: Path
    content: str
    old: LoadedFile | None
    """The current file, or None if it does not exist yet."""
    values: FileValues


def _plan_write(value: Mapping[str, object], ctx: ToolContext) -> _WritePlan | Refusal:
    values = ctx.profile.files
    path = resolve_tool_path(str(value["file_path"]), ctx)
    name = replace_surrogates(str(value["file_path"]))
    stat_result = stat_path(path)
    state = find_file_state(path, ctx)
    is_folder = stat_result is not None and stat.S_ISDIR(stat_result.st_mode)
    folder_refusal = Refusal(f"{name} is a directory, not a file. Name a file inside it.", "is_directory")
    if is_folder and values.folder_first:
        return folder_refusal
    if stat_result is not None and state is None and values.read_first:
        return unread_file_refusal()
    if is_folder:
        return folder_refusal
    old = None if stat_result is None else read_file(path, MAX_EDITABLE_BYTES)
    if old is not None and (stale := check_not_stale(old, state)):
        return stale
    return _WritePlan(name, path, replace_surrogates(str(value["content"])), old, values)


def _write_content(plan: _WritePlan, ctx: ToolContext) -> Output:
    if plan.old is None:
        text = None
        data = encode_text(plan.content, Codec("utf-8"))
        write_file(plan.path, data, None, None, ctx, fully_seen=True)
    else:
        text = _old_text(plan.old)
        data = encode_text(match_newlines(text, plan.content), text.codec)
        write_file(plan.path, data, plan.old.version, plan.old.digest, ctx, fully_seen=True)
    return Output(_format_result(plan), _build_record(plan, text))


def _old_text(old: LoadedFile) -> DecodedText:
    try:
        return decode_text(old.data)
    except ToolError:  # invalid UTF-16 is replaced anyway, so an approximate record is enough
        raw = old.data.decode("utf-8", "replace")
        return DecodedText(raw, normalize_newlines(raw), Codec("utf-8"))


def _format_result(plan: _WritePlan) -> str:
    note = CURRENT_NOTE if plan.values.reports_current else ""
    if plan.old is None:
        return f"File created successfully at: {plan.name}{note}"
    if plan.values.snippet:
        lines = number_lines(normalize_newlines(plan.content).split("\n"), 1, plan.values.numbering)
        return (
            f"The file {plan.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{lines}"
        )
    return f"The file {plan.name} has been updated successfully.{note}"


def _build_record(plan: _WritePlan, old_text: DecodedText | None) -> dict[str, object]:
    hunks = [] if old_text is None else make_hunks(old_text.printable, normalize_newlines(plan.content))
    record: dict[str, object] = {
        "type": "create" if old_text is None else "update",
        "filePath": plan.name,
        "content": plan.content,
        "structuredPatch": to_builtins(hunks),
        "originalFile": None if old_text is None else old_text.printable,
    }
    if plan.values.records_user_modified:
        record["userModified"] = False
    return record
