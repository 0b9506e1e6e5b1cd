"""`--format csv`: one row per call, for spreadsheets.

In: stories. Out: lines of CSV (RFC 4180), the first with the names. No bodies, only their sizes. A
cell that a spreadsheet would take for a formula gets an apostrophe in front; control characters are
shown as signs. Who needs texts as they are takes JSON.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from toolspan.export.record import CallRecord
from toolspan.export.story import Story
from toolspan.export.visible import visible

COLUMNS = (
    "session", "agent", "id", "parent", "batch", "dialect", "tool", "kind", "state", "error_kind",
    "requested", "finished", "duration_ms", "wait_ms", "wait_certainty", "exit_code", "target",
    "message", "input_chars", "result_chars", "files_changed", "branch", "background", "file",
    "line",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_LONGEST = 32_000
"""Spreadsheets refuse cells that are longer."""


def write(stories: Iterable[Story]) -> Iterator[bytes]:
    """The names, then every call of the stories."""
    yield _line(COLUMNS)
    for story in stories:
        for call in story.calls():
            yield _line([cell(value) for value in _values(call)])


def cell(value: object) -> str:
    """A value as a cell that is read and never reckoned."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return "" if value is None else str(value)
    text = str(value)
    shown = visible(text)
    if len(shown) > _LONGEST:
        shown = shown[: _LONGEST - 1] + "…"
    return f"'{shown}" if text.startswith(_FORMULA) or shown.startswith(_FORMULA) else shown


def _values(call: CallRecord) -> Iterator[object]:
    for column in COLUMNS:
        match column:
            case "wait_ms":
                yield _wait(call)
            case "files_changed":
                yield len(call.diffs)
            case _:
                yield getattr(call, column)


def _wait(call: CallRecord) -> int | None:
    """The wait for permission, overlaps with other calls not taken off; None when unknown."""
    if call.wait_certainty == "unknown":
        return None
    return sum(phase.end - phase.start for phase in call.phases if phase.phase == "permission")


def _line(cells: Sequence[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(cells)
    return out.getvalue().encode("utf-8", "replace")
