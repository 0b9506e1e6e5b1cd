"""Calls, one row each: `Archive.calls` and `toolspan calls`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from msgspec.structs import astuple, replace

from toolspan.analysis.file_time import WAITS
from toolspan.analysis.live_sessions import mark_running
from toolspan.analysis.timing import SLOW_CALL_MS, UNKNOWN_WAIT, CallWait, Certainty
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine, FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection, check_session, explain_nothing
from toolspan.errors import NotFound
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.reading.history import CallTable, match_prefix
from toolspan.reading.rows import CallRow, has_client_id, make_call_row

T = TypeVar("T", bound=CallRow)
SORT_COLUMNS = ("requested", "finished", "session", "call", "tool", "state", "error_kind", "duration", "about")
SORT_ALIASES = {
    "call": "id", "id": "id", "about": "target", "target": "target",
    **dict.fromkeys(("duration", "duration_ms", "took"), "duration_ms"),
}  # fmt: skip
_JOB = tuple_job(CALLS, WAITS)
_MAX_TIMED_BYTES = 64 << 20
"""The size above which a single file is read call by call, without the times that need the whole conversation."""


class TimedCall(CallRow, frozen=True, gc=False):
    """A call with the part of its duration in which no tool ran, as in `time`."""

    wait_ms: int | None = None
    """Time in which the call waited for permission while no other call ran; null if unknown."""
    wait_certainty: Certainty | None = None
    """The certainty of the wait: `known`, `inferred` or `unknown`; null if it was not measured, in very large files."""

    @property
    def may_include_wait(self) -> bool:
        """True for a call that took so long that it may have waited for permission, which is not recorded."""
        is_long = (self.duration_ms or 0) > SLOW_CALL_MS
        return is_long and self.wait_certainty == "unknown" and self.kind != "agent" and not self.background


def add_wait(row: CallRow, wait: CallWait | None = None) -> TimedCall:
    """Return a call with its wait for permission; None if it was not measured. Orphan results have none."""
    wait_ms, certainty = (None, None) if wait is None or row.state == "orphan_result" else wait
    values: tuple[Any, ...] = astuple(row)[: len(CallRow.__struct_fields__)]
    return TimedCall(*values, wait_ms, certainty)  # type: ignore[call-arg]  # mypy counts `values` as all fields


def list_calls(
    engine: Engine,
    call_filter: Filter,
    *,
    group: str | None = None,
    commands: bool = False,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[TimedCall]:
    """Return each call once, ordered by time. If files are named, the calls are ordered by file first.

    `group` is the beginning of the id of an error group. With `commands`, calls that continue a background command
    are left out, because its row has their time. A limit keeps the latest calls, or the first ones of a sorted list.
    The order by duration does not count known and inferred waits for permission, which are not the tool's time.

    Raises:
        NotFound: a name in the filter does not occur, or no group begins with `group`.
    """
    results, joined = engine.read(_JOB)
    waits = {summary.file: file_waits.waits for summary, file_waits in results}
    call_table = CallTable(mark_running(summary for summary, _ in results))
    rows = CallSelection(call_table, joined, engine.reporter).filter_calls(call_filter)
    if group is not None:
        rows = _filter_by_group(rows, group)
    if commands:
        rows = fold_commands(rows)
    visible = arrange(rows, sort, limit, partial(_find_sort_value, waits))
    return Rows([add_wait(row, waits[row.file].get(row.id, UNKNOWN_WAIT)) for row in visible], len(rows))


def iter_calls(engine: Engine, call_filter: Filter, *, limit: int | None = None) -> Iterator[TimedCall]:
    """Yield the calls that a filter accepts. A large file is read lazily, because it may contain very many."""
    if isinstance(engine, FileEngine):
        files, joined = engine.locate()
        if not joined and len(files) == 1 and files[0].size > _MAX_TIMED_BYTES:
            rows: Iterable[CallRow] = _iter_file(engine, call_filter, files[0].path)
            yield from map(add_wait, deque(rows, limit) if limit else rows)
            return
    yield from list_calls(engine, call_filter, limit=limit)


def fold_commands(rows: Sequence[T]) -> list[T]:
    """Return the rows without the calls that continue a background command, if its row is among them."""
    commands = {(row.file, row.id) for row in rows if row.polls}
    return [row for row in rows if row.continues is None or (row.file, row.continues) not in commands]


def _find_sort_value(waits: Mapping[str, Mapping[str, CallWait]], row: CallRow, column: str) -> Any:
    value = getattr(row, column)
    if column != "duration_ms" or value is None:
        return value
    wait_ms, _ = waits[row.file].get(row.id, UNKNOWN_WAIT)
    return value - (wait_ms or 0)


def _iter_file(engine: Engine, call_filter: Filter, path: object) -> Iterator[CallRow]:
    from toolspan.reading.transcript import read

    transcript = read(path)  # type: ignore[arg-type]
    check_session(call_filter.session, [transcript.info])
    all_rows = (make_call_row(span, transcript.file) for span in transcript.iter_spans())
    rows = (row for row in all_rows if call_filter.accepts_call(row, transcript.info))
    first = next(rows, None)
    if first is None:
        explain_nothing(engine, call_filter, [transcript.file])
    return chain([first] if first else [], rows)


def public_row(row: T) -> T:
    """Return the row as other programs get it: its id is empty if the client assigned none."""
    return row if has_client_id(row) else replace(row, id="")


def _filter_by_group(rows: Sequence[CallRow], prefix: str) -> list[CallRow]:
    """Return the rows of the group whose id begins with `prefix`."""
    groups = [row.error_group for row in rows if row.error_group]
    if not groups:
        raise NotFound("all of the selected calls succeeded, so there are no groups")
    group = match_prefix(prefix, groups, "error group")
    return [row for row in rows if row.error_group == group]
