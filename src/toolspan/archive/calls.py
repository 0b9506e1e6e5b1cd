"""Calls, one row each: `Archive.calls` and `toolspan calls`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine, FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import check_session, explain_nothing, read_calls
from toolspan.errors import NotFound
from toolspan.reading.history import match_prefix
from toolspan.reading.rows import CallRow, has_client_id, make_call_row

SORT_COLUMNS = ("requested", "finished", "session", "call", "tool", "state", "error_kind", "took", "about")
SORT_ALIASES = {
    "call": "id", "id": "id", "took": "duration_ms", "duration_ms": "duration_ms", "about": "target",
    "target": "target",
}  # fmt: skip


def list_calls(
    engine: Engine,
    call_filter: Filter,
    *,
    group: str | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[CallRow]:
    """Return the calls in order of time, each once; the calls of named files file by file.

    `group` is the beginning of the id of an error group. A limit keeps the latest calls, or the first ones of a sorted
    list.

    Raises:
        NotFound: a name in the filter does not occur, or no group begins with `group`.
    """
    rows = list(iter_calls(engine, call_filter))
    if group is not None:
        rows = _filter_by_group(rows, group)
    if sort is not None:
        rows = sort.sort(rows)
    visible = rows[: limit or None] if sort is not None else rows[-(limit or 0) :]
    return Rows(visible, len(rows))


def iter_calls(engine: Engine, call_filter: Filter, *, limit: int | None = None) -> Iterator[CallRow]:
    """Yield the calls that a filter accepts. A single file is read lazily, because it may contain very many."""
    if isinstance(engine, FileEngine):
        files, joined = engine.locate()
        if not joined and len(files) == 1:
            rows: Iterable[CallRow] = _iter_file(engine, call_filter, files[0].path)
            yield from deque(rows, limit) if limit else rows
            return
    rows = read_calls(engine).filter_calls(call_filter)
    yield from rows[-(limit or 0) :]


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


def public_row(row: CallRow) -> CallRow:
    """Return the row as other programs get it: its id is empty if the client assigned none."""
    return row if has_client_id(row) else replace(row, id="")


def _filter_by_group(rows: Sequence[CallRow], prefix: str) -> list[CallRow]:
    """Return the rows of the group whose id begins with `prefix`."""
    groups = [row.error_group for row in rows if row.error_group]
    if not groups:
        raise NotFound("none of the selected calls failed, so there are no groups")
    group = match_prefix(prefix, groups, "error group")
    return [row for row in rows if row.error_group == group]
