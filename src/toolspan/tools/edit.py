"""Edit: one text in a file replaced by another.

In: a path, the text to replace and the new one. Out: a file that differs only there, byte for
byte; what the model reads; hunks for the record. Refused when the text is not there, or in several
places, or when the file is not as the conversation has seen it. `_plan` decides, `_edit` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.files.paths import lock_name, number_lines, replace_surrogates
from toolspan.files.safe_read import FileVersion, LoadedFile, read_file, stat_path
from toolspan.files.text import Codec, DecodedText, TextRange, decode_text, encode_text, replace_undecodable
from toolspan.runtime.context import FileState, ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool
from toolspan.tools.files.changes import (
    EDIT_PROPERTIES,
    MAX_FILE_BYTES,
    PlannedTool,
    Replacement,
    check_editable,
    check_not_stale,
    file_exists_refusal,
    find_file_state,
    missing_file_refusal,
    remember_written,
    resolve_tool_path,
    unread_file_refusal,
    write_file,
)

_SNIPPET_CONTEXT = 4
"""Lines a snippet shows above and below."""
_CURRENT_NOTE = " (file state is current in your context — no need to Read it back)"
_RECOVERED_NOTE = " (the file had changed since it was last read; the edit was made in its present content)"
_TRAILING_BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")
_BLANK_KEEPING_SUFFIXES = frozenset({".md", ".mdx"})
"""Two blanks at the end of a line are a line break there."""
_DESCRIPTION = """\
Replace a text in a file by another. The old text has to be exactly as in the file and to stand
there once, unless all occurrences are to be replaced; an empty one makes a new file."""
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"file_path": {"type": "string", "description": "The file to change"}, **EDIT_PROPERTIES},
    "required": ["file_path", "old_string", "new_string"],
    "additionalProperties": False,
}


def edit_tool(profile: Profile) -> Tool:
    """Edit as a client version has it."""
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
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


def _trim_trailing_blanks(valid: Valid) -> Valid:
    """The input as clients take and record it: without blanks at the ends of new lines."""
    value = dict(valid.recorded)
    if Path(str(value["file_path"])).suffix.lower() not in _BLANK_KEEPING_SUFFIXES:
        value["new_string"] = _TRAILING_BLANKS.sub("", str(value["new_string"]))
    return Valid(value, value)


@dataclass(frozen=True, slots=True)
class _EditRequest:
    """What is asked."""

    name: str
    path: Path
    replacement: Replacement
    values: FileValues


@dataclass(frozen=True, slots=True)
class _EditPlan:
    """What is to be done, found to be possible."""

    request: _EditRequest
    text: DecodedText
    ranges: tuple[TextRange, ...]
    version: FileVersion | None
    """None: there is no file yet."""
    digest: str | None
    """Of what the file has."""
    is_stale: bool
    is_fully_seen: bool
    """The conversation has seen the file as it is, whole."""

    @property
    def replaced_text(self) -> str:
        return self.text.normalized[self.ranges[0].start : self.ranges[0].end]


def _plan_edit(value: Mapping[str, object], ctx: ToolContext) -> _EditPlan | Refusal:
    request = _parse_request(value, ctx)
    if refusal := request.replacement.check_differs():
        return refusal
    stat_result = stat_path(request.path)
    if stat_result is None:
        return _plan_new_file(request, ctx)
    if refusal := check_editable(request.path, request.name, stat_result.st_mode):
        return refusal
    if request.replacement.creates_file and stat_result.st_size:
        return file_exists_refusal()
    state = find_file_state(request.path, ctx)
    if state is None and request.values.read_first:
        return unread_file_refusal()
    return _plan_existing_file(request, read_file(request.path, MAX_FILE_BYTES), state)


def _parse_request(value: Mapping[str, object], ctx: ToolContext) -> _EditRequest:
    name = str(value["file_path"])
    return _EditRequest(
        replace_surrogates(name), resolve_tool_path(name, ctx), Replacement.from_arguments(value), ctx.profile.files
    )


def _plan_new_file(request: _EditRequest, ctx: ToolContext) -> _EditPlan | Refusal:
    if not request.replacement.creates_file:
        return missing_file_refusal(request.path, request.name, ctx)
    empty = DecodedText("", "", Codec("utf-8"))
    return _EditPlan(request, empty, (TextRange(0, 0),), None, None, is_stale=False, is_fully_seen=True)


def _plan_existing_file(request: _EditRequest, loaded: LoadedFile, state: FileState | None) -> _EditPlan | Refusal:
    changed = check_not_stale(loaded, state)
    if changed and not request.values.recovers_stale:
        return changed
    text = decode_text(loaded.data)
    ranges = request.replacement.find_matches(text, request.values)
    if isinstance(ranges, Refusal):
        return ranges
    is_fully_seen = request.replacement.creates_file or (state is not None and state.whole and changed is None)
    version_and_digest = (loaded.version, loaded.digest)
    return _EditPlan(
        request, text, tuple(ranges), *version_and_digest, is_stale=changed is not None, is_fully_seen=is_fully_seen
    )


def _apply_edit(plan: _EditPlan, ctx: ToolContext) -> Output:
    request = plan.request
    changed = request.replacement.apply_to(plan.text, plan.ranges, request.values)
    data = encode_text(changed.raw, changed.codec)
    version = write_file(request.path, data, plan.version, plan.digest, ctx)
    remember_written(request.path, data, version, ctx, whole=plan.is_fully_seen)
    return Output(_format_result(plan, changed), _build_record(plan, changed))


def _format_result(plan: _EditPlan, changed: DecodedText) -> str:
    request, values = plan.request, plan.request.values
    replacement, note = request.replacement, _state_note(plan)
    if replacement.replace_all:
        return values.all_replaced.format(path=request.name, old=replacement.old, new=replacement.new) + note
    if values.snippet:
        return (
            f"The file {request.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{_format_snippet(plan, changed)}"
        )
    return f"The file {request.name} has been updated successfully.{note}"


def _state_note(plan: _EditPlan) -> str:
    values = plan.request.values
    if plan.is_stale:
        return _RECOVERED_NOTE
    if not values.reports_current or (values.reports_unseen and not plan.is_fully_seen):
        return ""
    return _CURRENT_NOTE


def _format_snippet(plan: _EditPlan, changed: DecodedText) -> str:
    """The new lines with some around them."""
    line = plan.text.normalized.count("\n", 0, plan.ranges[0].start)
    first = max(0, line - _SNIPPET_CONTEXT)
    last = line + plan.request.replacement.new.count("\n") + 1 + _SNIPPET_CONTEXT
    lines = changed.printable.split("\n")[first:last]
    return number_lines(lines, first + 1, plan.request.values.numbering)


def _build_record(plan: _EditPlan, changed: DecodedText) -> dict[str, object]:
    request = plan.request
    before = plan.text.printable
    record: dict[str, object] = {
        "filePath": request.name,
        "oldString": replace_undecodable(plan.replaced_text, plan.text.codec),
        "newString": request.replacement.new,
        "originalFile": before,
        "structuredPatch": to_builtins(make_hunks(before, changed.printable)),
        "userModified": False,
        "replaceAll": request.replacement.replace_all,
    }
    if plan.is_stale:
        record["staleRecovered"] = True
    if request.values.reports_unseen and not plan.is_fully_seen:
        record["contentNotInModelContext"] = True
    return record
