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
from toolspan.disk.match import curled, find
from toolspan.disk.place import lock_name
from toolspan.disk.text import Codec, Span, Text, decode, encode, plain, spliced
from toolspan.disk.words import clean
from toolspan.patch.make import make
from toolspan.profile import FileValues, Profile
from toolspan.run.change import (
    Planned,
    known,
    missing,
    not_a_file,
    path_of,
    put,
    stale,
    unread,
    wrote,
)
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

MOST = 128 << 20
"""Bytes of a file that can be edited: it is compared and recorded whole."""
_SHOWN = 60
"""Characters of a text that the answer quotes."""
_SAME = "No changes to make: old_string and new_string are exactly the same."
_EXISTS = "Cannot create new file - file already exists."
_NOTEBOOK = "File is a Jupyter Notebook. Use the NotebookEdit to edit this file."
_SEVERAL = (
    "Found {count} matches of the string to replace, but replace_all is false. To replace all"
    " occurrences, set replace_all to true. To replace only one occurrence, please provide more"
    " context to uniquely identify the instance.\nString: {old}"
)
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
                "properties": {
                    "old_string": {"type": "string", "description": "The text to replace"},
                    "new_string": {"type": "string", "description": "The text to put there"},
                    "replace_all": {
                        "type": "boolean",
                        "default": False,
                        "description": "Replace it wherever it stands",
                    },
                },
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
class _Edit:
    """One edit."""

    old: str
    new: str
    everywhere: bool

    def record(self) -> dict[str, object]:
        return {"old_string": self.old, "new_string": self.new, "replace_all": self.everywhere}


@dataclass(frozen=True, slots=True)
class _Plan:
    """All edits, made in memory."""

    name: str
    path: Path
    edits: tuple[_Edit, ...]
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
    edits = tuple(_edits(value["edits"]))
    start = _begin(path, edits[0], ctx)
    if isinstance(start, Refusal):
        return start
    after = _applied(start.text, edits, values)
    if isinstance(after, Refusal):
        return after
    return _Plan(clean(name), path, edits, start.text, after, start.stamp, start.digest, start.seen)


def _edits(given: object) -> Sequence[_Edit]:
    items = given if isinstance(given, list) else []
    return [
        _Edit(
            clean(str(item["old_string"])), clean(str(item["new_string"])),
            item.get("replace_all") is True,
        )
        for item in items
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Begin:
    """The file before the first edit."""

    text: Text
    stamp: Stamp | None
    digest: str | None
    seen: bool


def _begin(path: Path, first: _Edit, ctx: ToolContext) -> _Begin | Refusal:
    values = ctx.profile.files
    found = look(path)
    if found is None:
        if not first.old:
            return _Begin(Text("", "", Codec("utf-8")), None, None, seen=True)
        return missing(path, clean(str(path)), ctx)
    if refusal := not_a_file(path, found.st_mode):
        return refusal
    if path.suffix.lower() == ".ipynb":
        return Refusal(_NOTEBOOK, "invalid_input")
    state = known(path, ctx)
    if state is None and values.read_first:
        return unread()
    loaded = load(path, MOST)
    refusal = stale(loaded, state)
    if refusal and not values.recovers_stale:
        return refusal
    seen = state is not None and state.whole and refusal is None
    return _Begin(decode(loaded.data), loaded.stamp, loaded.digest, seen=seen)


def _applied(text: Text, edits: Sequence[_Edit], values: FileValues) -> Text | Refusal:
    for number, edit in enumerate(edits, 1):
        changed = _one(text, edit, values)
        if isinstance(changed, Refusal):
            if len(edits) == 1:
                return changed
            note = f"\nThis is edit {number} of {len(edits)}; none was made."
            return Refusal(changed.text + note, changed.kind)
        text = changed
    return text


def _one(text: Text, edit: _Edit, values: FileValues) -> Text | Refusal:
    if edit.old == edit.new:
        return Refusal(_SAME, "no_change")
    if not edit.old:
        if text.plain:
            return Refusal(_EXISTS, "invalid_input")
        return spliced(text, [Span(0, 0)], edit.new)
    spans = find(text.plain, plain(edit.old))
    if not spans:
        return Refusal(values.no_match.format(old=edit.old), "no_match")
    if len(spans) > 1 and not edit.everywhere:
        return Refusal(_SEVERAL.format(count=len(spans), old=edit.old), "ambiguous_match")
    replaced = text.plain[spans[0].start : spans[0].end]
    new = curled(edit.new, replaced) if values.keeps_curly else edit.new
    return spliced(text, spans, new)


def _write(plan: _Plan, ctx: ToolContext) -> Output:
    data = encode(plan.after.raw, plan.after.codec)
    stamp = put(plan.path, data, plan.stamp, plan.digest, ctx)
    wrote(plan.path, data, stamp, ctx, whole=plan.seen)
    before, after = plan.before.shown, plan.after.shown
    return Output(
        _told(plan),
        {
            "filePath": plan.name,
            "edits": [edit.record() for edit in plan.edits],
            "originalFileContents": before,
            "structuredPatch": to_builtins(make(before, after)),
            "userModified": False,
        },
    )


def _told(plan: _Plan) -> str:
    count = len(plan.edits)
    lines = [f"Applied {count} edit{'' if count == 1 else 's'} to {plan.name}:"]
    for number, edit in enumerate(plan.edits, 1):
        lines.append(f'{number}. Replaced "{_short(edit.old)}" with "{_short(edit.new)}"')
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
