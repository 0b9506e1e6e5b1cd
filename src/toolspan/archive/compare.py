"""Two sessions, folders, files or periods side by side: `Archive.compare` and `toolspan compare`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from toolspan.analysis.compare import (
    COMPARE_JOB,
    ComparedFile,
    ComparedSide,
    Comparison,
    Parting,
    compare_sides,
    find_parting,
    summarize_side,
)
from toolspan.archive.engine import Engine, FileEngine, read_files
from toolspan.archive.filters import Filter, parse_named_period
from toolspan.archive.selection import explain_nothing, read_filtered_files
from toolspan.archive.sources import find_session_files, path_exists
from toolspan.errors import InvalidFilter, NotFound
from toolspan.formats.source import to_path
from toolspan.prices import load_prices
from toolspan.reading.transcript import read


def compare_periods(engine: Engine, call_filter: Filter, at: datetime, *, prices: Path | None = None) -> Comparison:
    """Compare the time before `at` with the time after it.

    Raises:
        InvalidFilter: the period of the filter does not contain `at`.
    """
    if call_filter.since is not None and call_filter.since >= at:
        raise InvalidFilter("--since must be earlier than --at")
    if call_filter.until is not None and call_filter.until <= at:
        raise InvalidFilter("--until must be later than --at")
    summarize = _make_summarizer(call_filter, prices)
    files = read_filtered_files(engine, COMPARE_JOB, call_filter)
    comparison = compare_sides(
        summarize("before", files, since=call_filter.since, until=at),
        summarize("after", files, since=at, until=call_filter.until),
    )
    return _explain_empty(engine, call_filter, comparison, [files])


def compare_sources(engine: Engine, call_filter: Filter, a: str, b: str, *, prices: Path | None = None) -> Comparison:
    """Compare two sessions, folders, files, or periods such as `2026-02`. A session is looked for in the archive.

    Raises:
        NotFound: the archive has no such session.
    """
    summarize = _make_summarizer(call_filter, prices)
    sides = [_read_side(engine, name, call_filter) for name in (a, b)]
    filters = [_limit_to_period(call_filter, name) for name in (a, b)]
    side_a, side_b = (
        summarize(name, files, since=own.since, until=own.until)
        for name, files, own in zip((a, b), sides, filters, strict=True)
    )
    return _explain_empty(engine, call_filter, compare_sides(side_a, side_b, _find_parting(*sides)), sides)


def _limit_to_period(call_filter: Filter, name: str) -> Filter:
    """Return the filter with the period that a name stands for, or unchanged for the name of a session."""
    period = None if path_exists(to_path(name)) else parse_named_period(name)
    return call_filter if period is None else call_filter.replace(since=period[0], until=period[1])


def _make_summarizer(call_filter: Filter, prices: Path | None) -> partial[ComparedSide]:
    accepts_call = call_filter.without_file_filters().accepts_call
    return partial(summarize_side, prices=load_prices(prices), agent=call_filter.agent, accepts_call=accepts_call)


def _explain_empty(
    engine: Engine, call_filter: Filter, comparison: Comparison, sides: Sequence[Sequence[ComparedFile]]
) -> Comparison:
    if not comparison.a.calls and not comparison.b.calls:
        compared = [file.file for side in sides for file in side]
        explain_nothing(engine, call_filter.replace(since=None, until=None), compared)
    return comparison


def _read_side(engine: Engine, name: str, call_filter: Filter) -> list[ComparedFile]:
    folders = engine.names
    if _limit_to_period(call_filter, name) != call_filter:
        return read_filtered_files(engine, COMPARE_JOB, call_filter)
    file_engine = engine if isinstance(engine, FileEngine) else FileEngine(folders, reporter=engine.reporter)
    if not folders or path_exists(to_path(name)):
        own_engine = FileEngine([name], reporter=engine.reporter, mapper=file_engine.mapper)
        return read_filtered_files(own_engine, COMPARE_JOB, call_filter)
    files: list[ComparedFile] = []
    for n, folder in enumerate(folders, 1):
        try:
            files = read_files(file_engine, find_session_files(name, to_path(folder)), COMPARE_JOB)
        except NotFound:
            if n == len(folders):
                raise
        else:
            break
    return [file for file in files if call_filter.accepts_file(file.file, file.info)]


def _find_parting(a: Sequence[ComparedFile], b: Sequence[ComparedFile]) -> Parting | None:
    """Return the point where two sessions diverge, if each side is a single session."""
    main_a, main_b = ([file.file for file in files if file.info.agent_id is None] for files in (a, b))
    if len(main_a) != 1 or len(main_b) != 1:
        return None
    return find_parting(read(main_a[0]), read(main_b[0]))
