"""MultiEdit: several texts in one file replaced, all or none.

In: a path and edits. Each edit is made in what the one before it left. Out: a file that has all of
them, byte for byte the same elsewhere; hunks for the record. When one cannot be made, the file
stays as it is. `_plan` makes the edits in memory, `_write` puts the outcome on disk at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.disk.load import Stamp, load, look
from toolspan.disk.place import lock_name
from toolspan.disk.text import Codec, Text, decode, encode
from toolspan.disk.words import clean
from toolspan.patch.make import make
from toolspan.profile import FileValues, Profile
from toolspan.run.change import Planned, known, missing, path_of, put, stale, unread, wrote
from toolspan.run.context import ToolContext
from toolspan.run.replacement import MOST, PROPERTIES, Replacement, exists, not_editable
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

_SHOWN = 60
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
                "properties": PROPERTIES,
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
    steps = Planned(_plan, _write)
    return Tool(
        name="MultiEdit",
        description=(
            "Make several edits in one file, one after the other, each in what the last one left."
            " Either all of them are made or none."
        ),
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=steps.run,
        validate=steps.validate,
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """All edits, made in memory."""

    name: str
    path: Path
    edits: tuple[Replacement, ...]
    before: Text
    after: Text
    stamp: Stamp | None
    """None: there is no file yet."""
    digest: str | None
    """Of what the file has."""
    seen: bool
    """The conversation has seen the file whole."""


def _plan(value: Mapping[str, object], ctx: ToolContext) -> _Plan | Refusal:
    name = str(value["file_path"])
    values = ctx.profile.files
    path = path_of(name, ctx)
    given = value["edits"]
    edits = tuple(Replacement.of(one) for one in given) if isinstance(given, list) else ()
    start = _begin(path, edits[0], ctx)
    if isinstance(start, Refusal):
        return start
    after = _applied(start.text, edits, values)
    if isinstance(after, Refusal):
        return after
    return _Plan(clean(name), path, edits, start.text, after, start.stamp, start.digest, start.seen)


@dataclass(frozen=True, slots=True)
class _Begin:
    """The file before the first edit."""

    text: Text
    stamp: Stamp | None
    digest: str | None
    seen: bool


def _begin(path: Path, first: Replacement, ctx: ToolContext) -> _Begin | Refusal:
    values = ctx.profile.files
    found = look(path)
    if found is None:
        if first.creates:
            return _Begin(Text("", "", Codec("utf-8")), None, None, seen=True)
        return missing(path, clean(str(path)), ctx)
    if refusal := not_editable(path, str(path), found.st_mode):
        return refusal
    state = known(path, ctx)
    if state is None and values.read_first:
        return unread()
    loaded = load(path, MOST)
    refusal = stale(loaded, state)
    if refusal and not values.recovers_stale:
        return refusal
    seen = state is not None and state.whole and refusal is None
    return _Begin(decode(loaded.data), loaded.stamp, loaded.digest, seen=seen)


def _applied(text: Text, edits: Sequence[Replacement], values: FileValues) -> Text | Refusal:
    for number, edit in enumerate(edits, 1):
        changed = _one(text, edit, values)
        if isinstance(changed, Refusal):
            if len(edits) == 1:
                return changed
            note = f"\nThis is edit {number} of {len(edits)}; none was made."
            return Refusal(changed.text + note, changed.kind)
        text = changed
    return text


def _one(text: Text, edit: Replacement, values: FileValues) -> Text | Refusal:
    if refusal := edit.unchanging():
        return refusal
    if edit.creates and text.plain:
        return exists()
    spans = edit.places(text, values)
    return spans if isinstance(spans, Refusal) else edit.made(text, spans, values)


def _write(plan: _Plan, ctx: ToolContext) -> Output:
    data = encode(plan.after.raw, plan.after.codec)
    stamp = put(plan.path, data, plan.stamp, plan.digest, ctx)
    wrote(plan.path, data, stamp, ctx, whole=plan.seen)
    before, after = plan.before.shown, plan.after.shown
    return Output(
        _told(plan),
        {
            "filePath": plan.name,
            "edits": [_record(edit) for edit in plan.edits],
            "originalFileContents": before,
            "structuredPatch": to_builtins(make(before, after)),
            "userModified": False,
        },
    )


def _record(edit: Replacement) -> dict[str, object]:
    return {"old_string": edit.old, "new_string": edit.new, "replace_all": edit.everywhere}


def _told(plan: _Plan) -> str:
    count = len(plan.edits)
    lines = [f"Applied {count} edit{'' if count == 1 else 's'} to {plan.name}:"]
    for number, edit in enumerate(plan.edits, 1):
        lines.append(f'{number}. Replaced "{_short(edit.old)}" with "{_short(edit.new)}"')
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
