"""MultiEdit: make several edits in one file, all or none.

`_plan_edits` makes the edits in memory, each in the result of the previous one; `_write_edits` writes the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.diffs.make import make_hunks
from toolspan.runtime.context import ToolContext
from toolspan.runtime.profiles import FileValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints, ToolSubject
from toolspan.tools.files.changes import (
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
from toolspan.tools.files.paths import replace_surrogates
from toolspan.tools.files.text import DecodedText, encode_text
from toolspan.tools.schemas import object_schema, text

_QUOTED_CHARS = 60
"""The number of characters of a replaced text that the result quotes."""
_SCHEMA = object_schema(
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
    """Return the MultiEdit tool of a client version."""
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
        changed = _apply_edit(text, edit, values)
        if isinstance(changed, Refusal):
            if len(edits) == 1:
                return changed
            note = f"\nThis is edit {number} of {len(edits)}; none was made."
            return Refusal(changed.text + note, changed.kind)
        text = changed
    return text


def _apply_edit(text: DecodedText, edit: Replacement, values: FileValues) -> DecodedText | Refusal:
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
    return Output(_format_result(plan), record)


def _format_result(plan: _MultiEditPlan) -> str:
    count = len(plan.edits)
    lines = [f"Applied {count} edit{'' if count == 1 else 's'} to {plan.name}:"]
    for number, edit in enumerate(plan.edits, 1):
        lines.append(f'{number}. Replaced "{_shorten_text(edit.old)}" with "{_shorten_text(edit.new)}"')
    return "\n".join(lines)


def _shorten_text(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "..."
