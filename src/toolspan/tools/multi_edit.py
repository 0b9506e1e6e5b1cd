"""MultiEdit: several texts in one file replaced, all or none.

In: a path and edits. Each edit is made in what the one before it left. Out: a file that has all of
them, byte for byte the same elsewhere; hunks for the record. When one cannot be made, the file
stays as it is. `_plan` makes the edits in memory, `_write` puts the outcome on disk at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.files.paths import lock_name, replace_surrogates
from toolspan.files.safe_read import FileVersion, read_file, stat_path
from toolspan.files.text import Codec, DecodedText, decode_text, encode_text
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
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

_QUOTED_CHARS = 60
"""Characters of a text that the answer quotes."""
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "The file to change"},
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "The edits, in the order in which they are made",
            "items": {
                "type": "object",
                "properties": EDIT_PROPERTIES,
                "required": ["old_string", "new_string"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["file_path", "edits"],
    "additionalProperties": False,
}


def multiedit_tool(profile: Profile) -> Tool:
    """MultiEdit, for the profile that has it."""
    steps = PlannedTool(_plan_edits, _write_edits)
    return Tool(
        name="MultiEdit",
        description=(
            "Make several edits in one file, one after the other, each in what the last one left."
            " Either all of them are made or none."
        ),
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=steps.run,
        validate=steps.validate,
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _MultiEditPlan:
    """All edits, made in memory."""

    name: str
    path: Path
    edits: tuple[Replacement, ...]
    before: DecodedText
    after: DecodedText
    version: FileVersion | None
    """None: there is no file yet."""
    digest: str | None
    """Of what the file has."""
    is_fully_seen: bool
    """The conversation has seen the file whole."""


def _plan_edits(value: Mapping[str, object], ctx: ToolContext) -> _MultiEditPlan | Refusal:
    name = str(value["file_path"])
    values = ctx.profile.files
    path = resolve_tool_path(name, ctx)
    raw_edits = value["edits"]
    edits = tuple(Replacement.from_arguments(edit) for edit in raw_edits) if isinstance(raw_edits, list) else ()
    start = _load_initial(path, edits[0], ctx)
    if isinstance(start, Refusal):
        return start
    after = _apply_edits(start.text, edits, values)
    if isinstance(after, Refusal):
        return after
    return _MultiEditPlan(
        replace_surrogates(name), path, edits, start.text, after, start.version, start.digest, start.is_fully_seen
    )


@dataclass(frozen=True, slots=True)
class _InitialFile:
    """The file before the first edit."""

    text: DecodedText
    version: FileVersion | None
    digest: str | None
    is_fully_seen: bool


def _load_initial(path: Path, first: Replacement, ctx: ToolContext) -> _InitialFile | Refusal:
    values = ctx.profile.files
    stat_result = stat_path(path)
    if stat_result is None:
        if first.creates_file:
            return _InitialFile(DecodedText("", "", Codec("utf-8")), None, None, is_fully_seen=True)
        return missing_file_refusal(path, replace_surrogates(str(path)), ctx)
    if refusal := check_editable(path, str(path), stat_result.st_mode):
        return refusal
    state = find_file_state(path, ctx)
    if state is None and values.read_first:
        return unread_file_refusal()
    loaded = read_file(path, MAX_FILE_BYTES)
    refusal = check_not_stale(loaded, state)
    if refusal and not values.recovers_stale:
        return refusal
    is_fully_seen = state is not None and state.whole and refusal is None
    return _InitialFile(decode_text(loaded.data), loaded.version, loaded.digest, is_fully_seen=is_fully_seen)


def _apply_edits(text: DecodedText, edits: Sequence[Replacement], values: FileValues) -> DecodedText | Refusal:
    for number, edit in enumerate(edits, 1):
        changed = _apply_single_edit(text, edit, values)
        if isinstance(changed, Refusal):
            if len(edits) == 1:
                return changed
            note = f"\nThis is edit {number} of {len(edits)}; none was made."
            return Refusal(changed.text + note, changed.kind)
        text = changed
    return text


def _apply_single_edit(text: DecodedText, edit: Replacement, values: FileValues) -> DecodedText | Refusal:
    if refusal := edit.check_differs():
        return refusal
    if edit.creates_file and text.normalized:
        return file_exists_refusal()
    ranges = edit.find_matches(text, values)
    return ranges if isinstance(ranges, Refusal) else edit.apply_to(text, ranges, values)


def _write_edits(plan: _MultiEditPlan, ctx: ToolContext) -> Output:
    data = encode_text(plan.after.raw, plan.after.codec)
    version = write_file(plan.path, data, plan.version, plan.digest, ctx)
    remember_written(plan.path, data, version, ctx, whole=plan.is_fully_seen)
    before, after = plan.before.printable, plan.after.printable
    return Output(
        _format_result(plan),
        {
            "filePath": plan.name,
            "edits": [_edit_record(edit) for edit in plan.edits],
            "originalFileContents": before,
            "structuredPatch": to_builtins(make_hunks(before, after)),
            "userModified": False,
        },
    )


def _edit_record(edit: Replacement) -> dict[str, object]:
    return {"old_string": edit.old, "new_string": edit.new, "replace_all": edit.replace_all}


def _format_result(plan: _MultiEditPlan) -> str:
    count = len(plan.edits)
    lines = [f"Applied {count} edit{'' if count == 1 else 's'} to {plan.name}:"]
    for number, edit in enumerate(plan.edits, 1):
        lines.append(f'{number}. Replaced "{_shorten_text(edit.old)}" with "{_shorten_text(edit.new)}"')
    return "\n".join(lines)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."
