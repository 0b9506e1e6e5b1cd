"""Edit: one text in a file replaced by another.

In: a path, the text to replace and the new one. Out: a file that differs only there, byte for
byte; what the model reads; hunks for the record. Refused when the text is not there, or in several
places, or when the file is not as the conversation has seen it. `_plan` decides, `_edit` does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import to_builtins

from toolspan.disk.load import Loaded, Stamp, load, look
from toolspan.disk.place import lock_name
from toolspan.disk.text import Codec, Span, Text, decode, encode, shown
from toolspan.disk.words import clean, numbered
from toolspan.patch.make import make
from toolspan.profile import FileValues, Profile
from toolspan.run.change import Planned, known, missing, path_of, put, stale, unread, wrote
from toolspan.run.context import ToolContext
from toolspan.run.files import FileState
from toolspan.run.replacement import MOST, PROPERTIES, Replacement, exists, not_editable
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker
from toolspan.schema.issue import Invalid, Valid

_AROUND = 4
"""Lines a snippet shows above and below."""
_CURRENT = " (file state is current in your context — no need to Read it back)"
_RECOVERED = (
    " (the file had changed since it was last read; the edit was made in its present content)"
)
_BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")
_KEEPS_BLANKS = frozenset({".md", ".mdx"})
"""Two blanks at the end of a line are a line break there."""
_DESCRIPTION = """\
Replace a text in a file by another. The old text has to be exactly as in the file and to stand
there once, unless all occurrences are to be replaced; an empty one makes a new file."""
_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "The file to change"},
        **PROPERTIES,
    },
    "required": ["file_path", "old_string", "new_string"],
    "additionalProperties": False,
}


def edit_tool(profile: Profile) -> Tool:
    """Edit as a client version has it."""
    check = checker(_SCHEMA, coerce=profile.offer.coerces)

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        checked = check(given)
        return checked if isinstance(checked, Invalid) else _trimmed(checked)

    steps = Planned(_plan, _edit)
    return Tool(
        name="Edit",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=parse,
        run=steps.run,
        validate=steps.validate,
        announces=True,
        paths=lambda value: frozenset({lock_name(value["file_path"])}),
    )


def _trimmed(valid: Valid) -> Valid:
    """The input as clients take and record it: without blanks at the ends of new lines."""
    value = dict(valid.recorded)
    if Path(str(value["file_path"])).suffix.lower() not in _KEEPS_BLANKS:
        value["new_string"] = _BLANKS.sub("", str(value["new_string"]))
    return Valid(value, value)


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked."""

    name: str
    path: Path
    wish: Replacement
    values: FileValues


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done, found to be possible."""

    request: _Request
    text: Text
    spans: tuple[Span, ...]
    stamp: Stamp | None
    """None: there is no file yet."""
    digest: str | None
    """Of what the file has."""
    stale: bool
    seen: bool
    """The conversation has seen the file as it is, whole."""

    @property
    def replaced(self) -> str:
        return self.text.plain[self.spans[0].start : self.spans[0].end]


def _plan(value: Mapping[str, object], ctx: ToolContext) -> _Plan | Refusal:
    request = _request(value, ctx)
    if refusal := request.wish.unchanging():
        return refusal
    found = look(request.path)
    if found is None:
        return _planned_new(request, ctx)
    if refusal := not_editable(request.path, request.name, found.st_mode):
        return refusal
    if request.wish.creates and found.st_size:
        return exists()
    state = known(request.path, ctx)
    if state is None and request.values.read_first:
        return unread()
    return _planned(request, load(request.path, MOST), state)


def _request(value: Mapping[str, object], ctx: ToolContext) -> _Request:
    name = str(value["file_path"])
    return _Request(clean(name), path_of(name, ctx), Replacement.of(value), ctx.profile.files)


def _planned_new(request: _Request, ctx: ToolContext) -> _Plan | Refusal:
    if not request.wish.creates:
        return missing(request.path, request.name, ctx)
    empty = Text("", "", Codec("utf-8"))
    return _Plan(request, empty, (Span(0, 0),), None, None, stale=False, seen=True)


def _planned(request: _Request, loaded: Loaded, state: FileState | None) -> _Plan | Refusal:
    changed = stale(loaded, state)
    if changed and not request.values.recovers_stale:
        return changed
    text = decode(loaded.data)
    spans = request.wish.places(text, request.values)
    if isinstance(spans, Refusal):
        return spans
    seen = request.wish.creates or (state is not None and state.whole and changed is None)
    found = (loaded.stamp, loaded.digest)
    return _Plan(request, text, tuple(spans), *found, stale=changed is not None, seen=seen)


def _edit(plan: _Plan, ctx: ToolContext) -> Output:
    request = plan.request
    changed = request.wish.made(plan.text, plan.spans, request.values)
    data = encode(changed.raw, changed.codec)
    stamp = put(request.path, data, plan.stamp, plan.digest, ctx)
    wrote(request.path, data, stamp, ctx, whole=plan.seen)
    return Output(_told(plan, changed), _record(plan, changed))


def _told(plan: _Plan, changed: Text) -> str:
    request, values = plan.request, plan.request.values
    wish, note = request.wish, _note(plan)
    if wish.everywhere:
        return values.all_replaced.format(path=request.name, old=wish.old, new=wish.new) + note
    if values.snippet:
        return (
            f"The file {request.name} has been updated. Here's the result of running `cat -n` on a"
            f" snippet of the edited file:\n{_snippet(plan, changed)}"
        )
    return f"The file {request.name} has been updated successfully.{note}"


def _note(plan: _Plan) -> str:
    values = plan.request.values
    if plan.stale:
        return _RECOVERED
    if not values.tells_current or (values.tells_unseen and not plan.seen):
        return ""
    return _CURRENT


def _snippet(plan: _Plan, changed: Text) -> str:
    """The new lines with some around them."""
    line = plan.text.plain.count("\n", 0, plan.spans[0].start)
    first = max(0, line - _AROUND)
    last = line + plan.request.wish.new.count("\n") + 1 + _AROUND
    lines = changed.shown.split("\n")[first:last]
    return numbered(lines, first + 1, plan.request.values.numbering)


def _record(plan: _Plan, changed: Text) -> dict[str, object]:
    request = plan.request
    before = plan.text.shown
    record: dict[str, object] = {
        "filePath": request.name,
        "oldString": shown(plan.replaced, plan.text.codec),
        "newString": request.wish.new,
        "originalFile": before,
        "structuredPatch": to_builtins(make(before, changed.shown)),
        "userModified": False,
        "replaceAll": request.wish.everywhere,
    }
    if plan.stale:
        record["staleRecovered"] = True
    if request.values.tells_unseen and not plan.seen:
        record["contentNotInModelContext"] = True
    return record
