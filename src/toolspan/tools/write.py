"""Write: replace the whole content of a file, all or nothing.

Depending on the client version, the call is refused if the conversation has not read the existing file or if the file
has changed since.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    CURRENT_NOTE,
    KEPT_ENCODING,
    MAX_EDITABLE_BYTES,
    UNREAD_FILE,
    UNREAD_OUTSIDE,
    PlannedChange,
    PlannedTool,
    check_not_stale,
    find_file_state,
    limit_record,
    lock_by_path,
    must_be_read,
    null_path_refusal,
    permitted_target,
    record_patch,
    rename_inputs,
    resolve_tool_path,
    slash_refusal,
    special_file_refusal,
    spelled_path,
    stat_tool_path,
    trim_line_ends,
    with_stripped_path,
)
from toolspan.tools.files.paths import number_lines, replace_surrogates
from toolspan.tools.files.safe_read import LoadedFile, read_file
from toolspan.tools.files.text import (
    BYTE_ORDER_MARK,
    Codec,
    DecodedText,
    decode_text,
    encode_text,
    find_encoding_problem,
    normalize_newlines,
    prevails_crlf,
)
from toolspan.tools.schemas import TEXT, object_schema, result_schema, text

_DESCRIPTION = """\
Create a file, or replace all of its content. Missing folders are created.

Read an existing file before you replace it. To change a part of a file, use Edit instead."""
_SCHEMA = object_schema(
    {"file_path": text("The path of the file to write."), "content": text("The complete content of the file.")},
    required=["file_path", "content"],
)


_ALIASES = {"path": "file_path", "file_text": "content", "description": ""}
_REPAIRS = "repairs"
"""The key under which a validated input holds the description of its repairs."""


def write_tool(profile: Profile) -> Tool:
    """Return the Write tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        notes: list[str] = []
        if profile.files.newer_inputs:
            raw_input, notes = rename_inputs(raw_input, _ALIASES)
        checked = check(raw_input)
        if isinstance(checked, Invalid):
            return checked
        name, content = str(checked.recorded["file_path"]), str(checked.recorded["content"])
        if not notes:  # clients trim only inputs that they need not repair
            content = trim_line_ends(content, name, profile.files)
        recorded = {**checked.recorded, "content": content}
        return with_stripped_path(recorded, "file_path", strips=True, **{_REPAIRS: notes})

    steps = PlannedTool(_plan_write)
    return Tool(
        name="Write",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=parse,
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        idempotent=True,
        paths=lock_by_path("file_path"),
        kind="write",
        reports_denied_files=True,
        subject=ToolSubject("file", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Write a file", destructive=True, idempotent=True),
        output_schema=result_schema({"type": TEXT, "filePath": TEXT, "content": TEXT}),
        replayable=True,
    )


def _plan_write(value: Mapping[str, object], ctx: ToolContext) -> PlannedChange | Refusal:
    values = ctx.profile.files
    if refusal := null_path_refusal(value, "file_path", ctx):
        return refusal
    path = resolve_tool_path(str(value["file_path"]), ctx)
    name = spelled_path(value, "file_path")
    content = replace_surrogates(str(value["content"]))
    old = _load_old_file(name, path, ctx)
    if isinstance(old, Refusal):
        return old
    old_text = None
    if old is not None:
        try:
            old_text = decode_text(old.data)
        except ToolError:  # invalid UTF-16 is replaced anyway, so an approximate record is enough
            raw = old.data.decode("utf-8", "replace")
            old_text = DecodedText(raw, normalize_newlines(raw), Codec("utf-8"))
    original = "" if old_text is None else old_text.to_record(raw=values.raw_records)
    if content and old_text is not None and old_text.codec.bom and values.detects_encodings:
        content = BYTE_ORDER_MARK + content.removeprefix(BYTE_ORDER_MARK)

    def make_output() -> Output:
        record: dict[str, object] = {
            "type": "update" if original else "create",
            "filePath": name,
            "content": content,
            "structuredPatch": record_patch(original, content) if original else [],
            "originalFile": limit_record(original, values) or None,
        }
        if not values.raw_records:
            record["userModified"] = False
        note = "" if values.snippet else CURRENT_NOTE
        message = f"The file {name} has been updated successfully.{note}"
        if not original:
            message = f"File created successfully at: {name}{note}"
        elif values.snippet:
            lines = number_lines(normalize_newlines(content).split("\n"), 1, values.numbering) if content else ""
            message = (
                f"The file {name} has been updated. Here's the result of running `cat -n` on a"
                f" snippet of the edited file:\n{lines}"
            )
        if repairs := value.get(_REPAIRS):
            notes = " ".join(map(str, repairs)) if isinstance(repairs, list) else ""
            message += f"\n\nNote: Write's parameters are named `file_path` and `content`. {notes}"
        return Output(message, record)

    if old is None or old_text is None:
        return PlannedChange(
            path, encode_text(content, Codec("utf-8")), None, None, fully_seen=True, make_output=make_output
        )
    data = _encode_content(content, old_text, values)
    return PlannedChange(path, data, old.version, old.digest, fully_seen=True, make_output=make_output)


def _encode_content(content: str, old_text: DecodedText, values: FileValues) -> bytes:
    """Encode the new content like the old one and, for some clients, with its line endings."""
    codec = old_text.codec if old_text.codec.encoding != "utf-8" else Codec("utf-8")
    if codec.bom:
        content = content.removeprefix(BYTE_ORDER_MARK)
    if values.writes_old_newlines and prevails_crlf(old_text.raw):
        content = normalize_newlines(content).replace("\n", "\r\n")
    return encode_text(content, codec)


def _load_old_file(name: str, path: Path, ctx: ToolContext) -> LoadedFile | Refusal | None:
    """Return the file to replace, None if it does not exist, or a refusal if it may not be replaced."""
    stat_result = stat_tool_path(name, ctx)
    if stat_result is None:
        return slash_refusal(name, path, ctx)
    values, state = ctx.profile.files, find_file_state(path, ctx)
    is_unread = state is None and must_be_read(path, ctx)
    is_inside = values.read_first or path.is_relative_to(ctx.workspace.project)
    unread = UNREAD_FILE if is_inside else UNREAD_OUTSIDE
    if is_unread and not values.folder_first:
        return unread
    if stat.S_ISDIR(stat_result.st_mode):
        return Refusal(f"{name} is a directory, not a file. Use the path of a file.", "is_directory")
    if not stat.S_ISREG(stat_result.st_mode):
        return special_file_refusal(name, "Write only creates or overwrites regular files.")
    if is_unread:
        return unread
    try:
        old = read_file(path, MAX_EDITABLE_BYTES, permitted_target(path, ctx))
    except ToolError as error:
        return Refusal(error.message, "permission_os", wrapped=False)
    if values.detects_encodings and (problem := find_encoding_problem(old.data)):
        return Refusal(f"File {problem} {KEPT_ENCODING}", "invalid_input", wrapped=False)
    return check_not_stale(old, state) or old
