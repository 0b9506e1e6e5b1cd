"""Edit: replace text in a file without changing the rest of its bytes.

`_plan_edit` decides, `_apply_edit` writes. The call is refused if the text is missing or ambiguous,
or if the file changed since the conversation read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
    CURRENT_NOTE,
    EDIT_PROPERTIES,
    ExistingFile,
    PlannedTool,
    Replacement,
    file_exists_refusal,
    load_for_edit,
    lock_by_path,
    resolve_tool_path,
    write_file,
)
from toolspan.tools.files.paths import number_lines, replace_surrogates
from toolspan.tools.files.text import DecodedText, TextRange, encode_text, replace_undecodable
from toolspan.tools.schemas import TEXT, object_schema, result_schema, text

_SNIPPET_CONTEXT = 4
"""The number of lines shown above and below the change."""
_RECOVERED_NOTE = " (the file had changed since it was last read; the edit was made in its present content)"
_TRAILING_BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")
_BLANK_KEEPING_SUFFIXES = frozenset({".md", ".mdx"})
"""Suffixes of files in which two spaces at the end of a line are a line break."""
_DESCRIPTION = """\
Replace a text in a file by another. The old text has to be exactly as in the file and to stand
there once, unless all occurrences are to be replaced; an empty one makes a new file."""
_SCHEMA = object_schema(
    {"file_path": text("The file to change"), **EDIT_PROPERTIES}, required=["file_path", "old_string", "new_string"]
)


def edit_tool(profile: Profile) -> Tool:
    """Return the Edit tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(raw_input)
        return checked if isinstance(checked, Invalid) else _trim_trailing_blanks(checked)

    steps = PlannedTool(_plan_edit, _apply_edit)
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
        subject=ToolSubject("path", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Edit a file", destructive=True),
        output_schema=result_schema({"filePath": TEXT, "oldString": TEXT, "newString": TEXT}),
        replayable=True,
    )


def _trim_trailing_blanks(valid: Valid) -> Valid:
    """Strip trailing whitespace from the lines of the new text, as clients do before recording the input."""
    value = dict(valid.recorded)
    if Path(str(value["file_path"])).suffix.lower() not in _BLANK_KEEPING_SUFFIXES:
        value["new_string"] = _TRAILING_BLANKS.sub("", str(value["new_string"]))
    return Valid(value, value)


@dataclass(frozen=True, slots=True)
class _EditPlan:
    name: str
    path: Path
    replacement: Replacement
    file: ExistingFile
    ranges: tuple[TextRange, ...]
    is_fully_seen: bool
    values: FileValues


def _plan_edit(value: Mapping[str, object], ctx: ToolContext) -> _EditPlan | Refusal:
    values = ctx.profile.files
    name = str(value["file_path"])
    path = resolve_tool_path(name, ctx)
    replacement = Replacement.parse(value)
    if refusal := replacement.check_differs():
        return refusal
    creates = replacement.creates_file
    file = load_for_edit(path, replace_surrogates(name), ctx, may_be_missing=creates, must_be_empty=creates)
    if isinstance(file, Refusal):
        return file
    ranges = replacement.find_matches(file.text, values)
    if isinstance(ranges, Refusal):
        return ranges
    return _EditPlan(
        name=replace_surrogates(name),
        path=path,
        replacement=replacement,
        file=file,
        ranges=tuple(ranges),
        is_fully_seen=file.is_fully_seen or creates,
        values=values,
    )


def _apply_edit(plan: _EditPlan, ctx: ToolContext) -> Output:
    changed = plan.replacement.apply_to(plan.file.text, plan.ranges, plan.values)
    data = encode_text(changed.raw, changed.codec)
    write_file(plan.path, data, plan.file.version, plan.file.digest, ctx, fully_seen=plan.is_fully_seen)
    return Output(_format_result(plan, changed), _build_record(plan, changed))


def _format_result(plan: _EditPlan, changed: DecodedText) -> str:
    replacement, note = plan.replacement, _state_note(plan)
    if replacement.replace_all:
        return plan.values.all_replaced.format(path=plan.name, old=replacement.old, new=replacement.new) + note
    if plan.values.snippet:
        return (
            f"The file {plan.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{_format_snippet(plan, changed)}"
        )
    return f"The file {plan.name} has been updated successfully.{note}"


def _state_note(plan: _EditPlan) -> str:
    if plan.file.is_stale:
        return _RECOVERED_NOTE
    if not plan.values.reports_current or (plan.values.reports_unseen and not plan.is_fully_seen):
        return ""
    return CURRENT_NOTE


def _format_snippet(plan: _EditPlan, changed: DecodedText) -> str:
    line = plan.file.text.normalized.count("\n", 0, plan.ranges[0].start)
    first = max(0, line - _SNIPPET_CONTEXT)
    last = line + plan.replacement.new.count("\n") + 1 + _SNIPPET_CONTEXT
    return number_lines(changed.printable.split("\n")[first:last], first + 1, plan.values.numbering)


def _build_record(plan: _EditPlan, changed: DecodedText) -> dict[str, object]:
    text = plan.file.text
    replaced = text.normalized[plan.ranges[0].start : plan.ranges[0].end]
    record: dict[str, object] = {
        "filePath": plan.name,
        "oldString": replace_undecodable(replaced, text.codec),
        "newString": plan.replacement.new,
        "originalFile": text.printable,
        "structuredPatch": to_builtins(make_hunks(text.printable, changed.printable)),
        "userModified": False,
        "replaceAll": plan.replacement.replace_all,
    }
    if plan.file.is_stale:
        record["staleRecovered"] = True
    if plan.values.reports_unseen and not plan.is_fully_seen:
        record["contentNotInModelContext"] = True
    return record


_QUOTED_CHARS = 60
"""The number of characters of replaced text that the result quotes."""
_MULTI_EDIT_SCHEMA = object_schema(
    {
        "file_path": text("The file to change"),
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "The edits, in the order in which they are made",
            "items": object_schema(EDIT_PROPERTIES, required=["old_string", "new_string"]),
        },
    },
    required=["file_path", "edits"],
)


def multiedit_tool(profile: Profile) -> Tool:
    """Return the MultiEdit tool for a client version."""
    steps = PlannedTool(_plan_edits, _write_edits)
    return Tool(
        name="MultiEdit",
        description=(
            "Make several edits in one file, one after the other, each in what the last one left."
            " Either all of them are made or none."
        ),
        input_schema=_MULTI_EDIT_SCHEMA,
        parse=compile_checker(_MULTI_EDIT_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        paths=lock_by_path("file_path"),
        kind="edit",
        subject=ToolSubject("path", "file_path"),
        slow_after=5.0,
        hints=ToolHints("Edit a file in several places", destructive=True),
        replayable=True,
    )


@dataclass(frozen=True, slots=True)
class _MultiEditPlan:
    name: str
    path: Path
    edits: tuple[Replacement, ...]
    file: ExistingFile
    after: DecodedText


def _plan_edits(value: Mapping[str, object], ctx: ToolContext) -> _MultiEditPlan | Refusal:
    name = str(value["file_path"])
    path = resolve_tool_path(name, ctx)
    raw_edits = value["edits"]
    edits = tuple(map(Replacement.parse, raw_edits)) if isinstance(raw_edits, list) else ()
    file = load_for_edit(path, replace_surrogates(str(path)), ctx, may_be_missing=edits[0].creates_file)
    if isinstance(file, Refusal):
        return file
    after = _apply_edits(file.text, edits, ctx.profile.files)
    if isinstance(after, Refusal):
        return after
    return _MultiEditPlan(replace_surrogates(name), path, edits, file, after)


def _apply_edits(text: DecodedText, edits: Sequence[Replacement], values: FileValues) -> DecodedText | Refusal:
    for number, edit in enumerate(edits, 1):
        changed = _multi_edit_apply_edit(text, edit, values)
        if isinstance(changed, Refusal):
            if len(edits) == 1:
                return changed
            note = f"\nThis is edit {number} of {len(edits)}; none was made."
            return Refusal(changed.text + note, changed.kind)
        text = changed
    return text


def _multi_edit_apply_edit(text: DecodedText, edit: Replacement, values: FileValues) -> DecodedText | Refusal:
    if refusal := edit.check_differs():
        return refusal
    if edit.creates_file and text.normalized:
        return file_exists_refusal()
    ranges = edit.find_matches(text, values)
    return ranges if isinstance(ranges, Refusal) else edit.apply_to(text, ranges, values)


def _write_edits(plan: _MultiEditPlan, ctx: ToolContext) -> Output:
    file, after = plan.file, plan.after
    data = encode_text(after.raw, after.codec)
    write_file(plan.path, data, file.version, file.digest, ctx, fully_seen=file.is_fully_seen)
    edits = [{"old_string": edit.old, "new_string": edit.new, "replace_all": edit.replace_all} for edit in plan.edits]
    record = {
        "filePath": plan.name,
        "edits": edits,
        "originalFileContents": file.text.printable,
        "structuredPatch": to_builtins(make_hunks(file.text.printable, after.printable)),
        "userModified": False,
    }
    return Output(_multi_edit_format_result(plan), record)


def _multi_edit_format_result(plan: _MultiEditPlan) -> str:
    count = len(plan.edits)
    lines = [f"Applied {count} edit{'' if count == 1 else 's'} to {plan.name}:"]
    for number, edit in enumerate(plan.edits, 1):
        lines.append(f'{number}. Replaced "{_shorten_text(edit.old)}" with "{_shorten_text(edit.new)}"')
    return "\n".join(lines)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."
