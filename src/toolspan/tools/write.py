"""Write: replace the whole content of a file, all or nothing.

Depending on the client version, the call is refused if the conversation has not read the existing file or if the file
has changed since.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.errors import ToolError
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    CURRENT_NOTE,
    MAX_EDITABLE_BYTES,
    UNREAD_FILE,
    FileChange,
    PlannedTool,
    check_not_stale,
    find_file_state,
    lock_by_path,
    resolve_tool_path,
)
from toolspan.tools.files.paths import number_lines, replace_surrogates
from toolspan.tools.files.safe_read import read_file, stat_path
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
    steps = PlannedTool(_plan_write)
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


def _plan_write(value: Mapping[str, object], ctx: ToolContext) -> FileChange | Refusal:
    values = ctx.profile.files
    path = resolve_tool_path(str(value["file_path"]), ctx)
    name = replace_surrogates(str(value["file_path"]))
    content = replace_surrogates(str(value["content"]))
    stat_result = stat_path(path)
    state = find_file_state(path, ctx)
    is_folder = stat_result is not None and stat.S_ISDIR(stat_result.st_mode)
    folder_refusal = Refusal(f"{name} is a directory, not a file. Name a file inside it.", "is_directory")
    if is_folder and values.folder_first:
        return folder_refusal
    if stat_result is not None and state is None and values.read_first:
        return UNREAD_FILE
    if is_folder:
        return folder_refusal
    old = None if stat_result is None else read_file(path, MAX_EDITABLE_BYTES)
    if old is not None and (stale := check_not_stale(old, state)):
        return stale
    old_text = None
    if old is not None:
        try:
            old_text = decode_text(old.data)
        except ToolError:  # invalid UTF-16 is replaced anyway, so an approximate record is enough
            raw = old.data.decode("utf-8", "replace")
            old_text = DecodedText(raw, normalize_newlines(raw), Codec("utf-8"))

    def make_output() -> Output:
        new_text = normalize_newlines(content)
        record: dict[str, object] = {
            "type": "create" if old_text is None else "update",
            "filePath": name,
            "content": content,
            "structuredPatch": [] if old_text is None else to_builtins(make_hunks(old_text.printable, new_text)),
            "originalFile": None if old_text is None else old_text.printable,
        }
        if values.records_user_modified:
            record["userModified"] = False
        note = CURRENT_NOTE if values.reports_current else ""
        message = f"The file {name} has been updated successfully.{note}"
        if old_text is None:
            message = f"File created successfully at: {name}{note}"
        elif values.snippet:
            lines = number_lines(new_text.split("\n"), 1, values.numbering)
            message = (
                f"The file {name} has been updated. Here's the result of running `cat -n` on a"
                f" snippet of the edited file:\n{lines}"
            )
        return Output(message, record)

    if old is None or old_text is None:
        return FileChange(
            path, encode_text(content, Codec("utf-8")), None, None, fully_seen=True, make_output=make_output
        )
    data = encode_text(match_newlines(old_text, content), old_text.codec)
    return FileChange(path, data, old.version, old.digest, fully_seen=True, make_output=make_output)
