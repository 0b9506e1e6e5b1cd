"""Edit and MultiEdit: replace text in a file without changing the rest of its bytes.

A call is refused if the text is missing or ambiguous, or if the file changed since the conversation read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    CURRENT_NOTE,
    EDIT_PROPERTIES,
    NO_CHANGE,
    STALE_FILE,
    PlannedChange,
    PlannedTool,
    Replacement,
    limit_record,
    load_for_edit,
    lock_by_path,
    null_path_refusal,
    record_patch,
    remembered_name,
    rename_inputs,
    resolve_tool_path,
    spelled_path,
    trim_line_ends,
    with_stripped_path,
)
from toolspan.tools.files.paths import number_lines, replace_surrogates, resolve_path
from toolspan.tools.files.text import encode_text, normalize_newlines, replace_undecodable
from toolspan.tools.schemas import TEXT, object_schema, result_schema, text

_WRITTEN_TEXT = "written text"
"""The key of the new text in a validated input before blanks were trimmed; no input has this name."""
_ALIASES = {"path": "file_path", "old_str": "old_string", "new_str": "new_string"}
_SNIPPET_CONTEXT = 4
_RECOVERED_NOTE = " (the file had changed since you read it; the edit was applied to its current content)"
_DESCRIPTION = """\
Replace a string in a file. Read the file first.

`old_string` must match the file exactly, including its indentation, and must occur only once unless `replace_all` is
true: include enough surrounding lines to make it unique. An empty `old_string` creates a new file."""
_SCHEMA = object_schema(
    {"file_path": text("The path of the file to edit."), **EDIT_PROPERTIES},
    required=["file_path", "old_string", "new_string"],
)


_QUOTED_CHARS = 60
"""The number of characters of replaced text that the result of MultiEdit quotes."""
_MULTI_EDIT_SCHEMA = object_schema(
    {
        "file_path": text("The path of the file to edit."),
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "The replacements, in the order in which they are made.",
            "items": object_schema(EDIT_PROPERTIES, required=["old_string", "new_string"]),
        },
    },
    required=["file_path", "edits"],
)


def edit_tool(profile: Profile) -> Tool:
    """Return the Edit tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        if profile.files.newer_inputs:
            raw_input, _ = rename_inputs(raw_input, _ALIASES)
        checked = check(raw_input)
        if isinstance(checked, Invalid):
            return checked
        written = str(checked.recorded["new_string"])
        trimmed = trim_line_ends(written, str(checked.recorded["file_path"]), profile.files)
        recorded = {**checked.recorded, "new_string": trimmed}
        return with_stripped_path(recorded, "file_path", strips=profile.files.expands_home, **{_WRITTEN_TEXT: written})

    steps = PlannedTool(_plan_edit)
    return Tool(
        name="Edit",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=parse,
        run=steps.run,
        validate=steps.validate,
        records_intent=True,
        paths=lock_by_path("file_path"),
        kind="edit",
        reports_denied_files=True,
        subject=ToolSubject("file", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Edit a file", destructive=True),
        output_schema=result_schema({"filePath": TEXT, "oldString": TEXT, "newString": TEXT}),
        replayable=True,
    )


def _expanded_path(value: Mapping[str, object], ctx: ToolContext) -> str:
    """Return the path with `~` expanded and its trailing slash kept."""
    name = str(value["file_path"]).strip()
    slash = "/" if name.startswith(("/", "~/")) and name.endswith("/") else ""
    return str(resolve_path(name, ctx.cwd, ctx.workspace.environment.get("HOME", ""))) + slash


def _plan_edit(value: Mapping[str, object], ctx: ToolContext) -> PlannedChange | Refusal:
    values = ctx.profile.files
    if refusal := null_path_refusal(value, "file_path", ctx):
        return refusal
    name, creates = spelled_path(value, "file_path"), not value["old_string"]
    path, expanded = resolve_tool_path(str(value["file_path"]), ctx), _expanded_path(value, ctx)
    if creates:  # clients that find a file by its literal name nevertheless create it by the expanded one
        path = Path(expanded)
    # Clients trim blanks in the new text only if they find a file to change.
    is_file = os.path.isfile(expanded)  # noqa: PTH113 - a Path raises for a name that is too long
    new = value["new_string"] if is_file else value[_WRITTEN_TEXT]
    replacement = Replacement.parse({**value, "new_string": new})
    if replacement.old == replacement.new:
        return NO_CHANGE
    file = load_for_edit(path, name, ctx, may_be_missing=creates, must_be_empty=creates)
    if isinstance(file, Refusal):
        return file
    ranges = replacement.find_matches(file.text, ctx.profile.messages)
    if isinstance(ranges, Refusal):
        return STALE_FILE if file.is_stale and file.was_read else ranges
    changed = replacement.apply_to(file.text, ranges, values)
    fully_seen = file.is_fully_seen

    def make_output() -> Output:
        old = file.text
        replaced = old.normalized[ranges[0].start : ranges[0].start + len(replacement.old)]
        record: dict[str, object] = {
            "filePath": name,
            "oldString": replace_undecodable(replaced, old.codec),
            "newString": replacement.new,
            "originalFile": limit_record(old.to_record(), values),
            "structuredPatch": record_patch(old.to_record(), replacement.make_record(old, ranges, values)),
            "userModified": False,
            "replaceAll": replacement.replace_all,
        }
        note = "" if values.snippet else CURRENT_NOTE
        if not (values.snippet or fully_seen):
            note = ""
        if file.is_stale:
            record["staleRecovered"] = True
            note = _RECOVERED_NOTE
        if not (values.snippet or fully_seen):
            record["contentNotInModelContext"] = True
        if replacement.replace_all:
            message = (
                ctx.profile.messages.all_replaced.format(path=name, old=replacement.old, new=replacement.new) + note
            )
        elif values.snippet:
            line = old.normalized.count("\n", 0, ranges[0].start)
            first = max(0, line - _SNIPPET_CONTEXT)
            last = line + replacement.new.count("\n") + 1 + _SNIPPET_CONTEXT
            # If there is no old text, the new text is recorded as inserted before the old content, even if it
            # replaces it.
            updated = changed.to_record() if replacement.old else replacement.new + old.to_record()
            shown = normalize_newlines(updated).split("\n")[first:last]
            snippet = number_lines(shown, first + 1, values.numbering) if any(shown) or len(shown) > 1 else ""
            message = (
                f"The file {name} has been updated. Here's the result of running `cat -n` on a"
                f" snippet of the edited file:\n{snippet}"
            )
        else:
            message = f"The file {name} has been updated successfully.{note}"
        return Output(message, record)

    data = encode_text(changed.raw, changed.codec)
    spelling = remembered_name(path, name)
    return PlannedChange(path, data, file.version, file.digest, fully_seen, make_output, spelling)


def multiedit_tool(profile: Profile) -> Tool:
    """Return the MultiEdit tool for a client version."""
    steps = PlannedTool(_plan_edits)
    return Tool(
        name="MultiEdit",
        description=(
            "Make several replacements in one file. Each one applies to the result of the previous one. If one of them"
            " fails, the file is not changed."
        ),
        input_schema=_MULTI_EDIT_SCHEMA,
        parse=compile_checker(_MULTI_EDIT_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        paths=lock_by_path("file_path"),
        kind="edit",
        subject=ToolSubject("file", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Edit a file in several places", destructive=True),
        replayable=True,
    )


def _plan_edits(value: Mapping[str, object], ctx: ToolContext) -> PlannedChange | Refusal:
    path = resolve_tool_path(str(value["file_path"]), ctx)
    name = replace_surrogates(str(value["file_path"]))
    raw_edits = value["edits"]
    edits = [Replacement.parse(edit) for edit in raw_edits] if isinstance(raw_edits, list) else []
    file = load_for_edit(path, replace_surrogates(str(path)), ctx, may_be_missing=not edits[0].old)
    if isinstance(file, Refusal):
        return file
    changed = file.text
    for number, edit in enumerate(edits, 1):
        ranges = edit.find_matches(changed, ctx.profile.messages)
        if isinstance(ranges, Refusal):
            note = (
                f"\nThe file was not changed, because edit {number} of {len(edits)} failed." if len(edits) > 1 else ""
            )
            return Refusal(ranges.text + note, ranges.kind)
        changed = edit.apply_to(changed, ranges, ctx.profile.files)
    after = changed

    def make_output() -> Output:
        record = {
            "filePath": name,
            "edits": [
                {"old_string": edit.old, "new_string": edit.new, "replace_all": edit.replace_all} for edit in edits
            ],
            "originalFileContents": file.text.to_record(),
            "structuredPatch": record_patch(file.text.to_record(), after.to_record()),
            "userModified": False,
        }
        lines = [f"Applied {len(edits)} edit{'' if len(edits) == 1 else 's'} to {name}:"]
        for number, edit in enumerate(edits, 1):
            lines.append(f'{number}. Replaced "{_shorten_text(edit.old)}" with "{_shorten_text(edit.new)}"')
        return Output("\n".join(lines), record)

    data = encode_text(after.raw, after.codec)
    return PlannedChange(path, data, file.version, file.digest, file.is_fully_seen, make_output)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."
