"""Tokens and cost of model requests: `Archive.usage` and `toolspan usage`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence, Set
from datetime import tzinfo
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from toolspan.analysis.usage import (
    GROUPINGS,
    PERIODS,
    USAGE_JOB,
    FileUsage,
    Grouping,
    RequestJoiner,
    UsageRequest,
    UsageRow,
    UsageSums,
    filter_requests,
    group_usage,
    join_requests,
    sum_rows,
)
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import MIN_CACHED_BYTES, Engine, FileEngine, read_files, total_size
from toolspan.archive.filters import Filter, choose_name
from toolspan.errors import InvalidFilter
from toolspan.prices import PriceTable, load_prices
from toolspan.reading.lineage import group_sessions, sessions_named
from toolspan.types.session import Tokens

if TYPE_CHECKING:
    from toolspan.archive.parts import Heads
    from toolspan.reading.history import FileHead

SORT_COLUMNS = ("name", "requests", *Tokens.__struct_fields__, "cost_usd")
SORT_ALIASES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_write": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cost": "cost_usd",
    **dict.fromkeys(("period", *GROUPINGS), "name"),
}
COST_DIGITS = 9


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requests of one period, model, project, session, agent or client. Only the field of its grouping is set."""

    period: str | None = None
    """A day, a week (its Monday), a month, or the time at which a block of five hours begins."""
    model: str | None = None
    project: str | None = None
    session: str | None = None
    title: str | None = None
    """The title of the session, or else its first prompt."""
    agent: str | None = None
    client: str | None = None
    requests: int
    input_tokens: int
    """Without cached tokens, for every client."""
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cost_usd: float | None
    """At list prices, without the requests to models that have no price; null if none has one."""
    unpriced_requests: int
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        """The value of the grouping."""
        names = (self.period, self.model, self.project, self.session, self.agent, self.client)
        return next((name for name in names if name is not None), "")


class UsageRows(Rows[Usage]):
    """Usage by group, with the sum of all groups."""

    def __init__(self, rows: Sequence[Usage], sum_row: UsageRow, prices: PriceTable, total: int) -> None:
        super().__init__(rows, total)
        self.sum = _make_row(sum_row, "period")
        """The sum of all groups, including those that a limit left out."""
        self.unpriced_models = sum_row.unpriced_models
        self.prices = prices


def sum_usage(
    engine: Engine,
    call_filter: Filter,
    *,
    by: str = "day",
    prices: Path | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
    zone: tzinfo | None = None,
) -> UsageRows:
    """Return tokens and cost by group. Periods are in order of time, other groups by cost, highest first.

    A limit keeps the latest periods, or the first rows of another order. `prices` is a file with prices that override
    the built-in ones.

    Raises:
        InvalidFilter: the filter selects calls, but tokens belong to requests.
    """
    if call_filter.state or call_filter.error or call_filter.tool or call_filter.kind or call_filter.program:
        raise InvalidFilter("tools, programs, states and errors select calls, but tokens belong to requests")
    grouping = choose_name(by, GROUPINGS)
    table = load_prices(prices)
    if call_filter == Filter() and prices is None and isinstance(engine, FileEngine):
        rows = _sum_everything(engine, grouping, table, zone)
    else:
        requests, paths = select_requests(engine.read(USAGE_JOB)[0], call_filter)
        rows = group_usage(requests, grouping, prices=table, zone=zone)
        if not rows:
            from toolspan.archive.selection import explain_nothing

            explain_nothing(engine, call_filter, paths)
    if sort is not None:
        rows = sort.sort(rows, lambda row, column: getattr(row.tokens if hasattr(row.tokens, column) else row, column))
    latest_last = grouping in PERIODS and sort is None
    visible = rows[-(limit or 0) :] if latest_last else rows[: limit or None]
    field = "period" if grouping in PERIODS else grouping
    return UsageRows([_make_row(row, field) for row in visible], sum_rows("total", rows), table, len(rows))


def _make_row(row: UsageRow, field: str) -> Usage:
    return Usage(
        **{field: row.name},  # type: ignore[arg-type]  # the field of the grouping
        **asdict(row.tokens),
        title=row.title,
        requests=row.requests,
        cost_usd=_round_cost(row.cost_usd),
        unpriced_requests=row.unpriced_requests,
        models=row.models,
    )


def _round_cost(cost: float | None) -> float | None:
    return None if cost is None else round(cost, COST_DIGITS)


def select_requests(usages: Sequence[FileUsage], call_filter: Filter) -> tuple[list[UsageRequest], list[str]]:
    """Return the requests in these files that a filter accepts, and the files that it accepts.

    All files are needed, because a request that a fork or resume copied belongs to the original session.
    """
    from toolspan.archive.selection import check_session, filter_files  # perf: not needed without a filter

    files = filter_files(usages, call_filter.replace(session=None))
    joined = join_requests(files)
    requests = filter_requests(joined, call_filter.since, call_filter.until, call_filter.agent)
    if call_filter.model is not None:
        requests = [request for request in requests if call_filter.model.casefold() in request.model.casefold()]
    if call_filter.session is not None:
        check_session(call_filter.session, (file.info for file in files))
        session_ids = {session.id for session in sessions_named(group_sessions(files), call_filter.session)}
        requests = [request for request in requests if request.session in session_ids]
    return requests, [file.file for file in files]


def sum_session_costs(engine: Engine, sessions: Set[str] | None = None) -> dict[str, float | None]:
    """Return the cost of each session. Of very many files, only those of the named sessions are read."""
    if isinstance(engine, FileEngine):
        usages = _sum_everything(engine, "session", load_prices(), None, sessions)
        return {row.name: _round_cost(row.cost_usd) for row in usages}
    return {row.name: row.cost_usd for row in sum_usage(engine, Filter(), by="session")}


def _sum_everything(
    engine: FileEngine, by: Grouping, prices: PriceTable, zone: tzinfo | None, sessions: Set[str] | None = None
) -> list[UsageRow]:
    """Return the usage of all requests, from the cache if no file has changed since it was last computed.

    Of very many files, only those that may belong to the named sessions are read.
    """
    from toolspan.reading.cache import Cache, StampedFiles, StampedListing, cached_answer, default_folder

    files, _ = engine.locate()
    rows: list[UsageRow] = []

    def compute(stamped: StampedFiles | None = None) -> list[UsageRow] | None:
        joiner = RequestJoiner()
        usages = read_files(engine, files, USAGE_JOB, stamped, joiner.add)
        requests = joiner.join(usages)
        rows[:] = group_usage(requests, by, prices=prices, zone=zone)
        return None if any(usage.problem for usage in usages) else rows

    def compute_in_parts(cache: Cache) -> list[UsageRow] | None:
        from toolspan.archive.parts import PartReader  # perf: rarely needed

        choose = None if sessions is None else partial(_choose_files, sessions)
        reader = PartReader(engine, files, USAGE_JOB, _make_head, cache)
        sums = UsageSums(by, prices=prices, zone=zone)
        is_complete = True
        for usages, _ in reader.iter_parts(choose):
            sums.add(join_requests(usages))
            is_complete = is_complete and not any(usage.problem for usage in usages)
        rows[:] = sums.rows()
        return rows if is_complete and not reader.skipped else None

    folder = default_folder()
    if folder is not None and len(files) > engine.part_files and sessions is not None:
        compute_in_parts(Cache(folder))
        return rows
    if folder is None or total_size(files) < MIN_CACHED_BYTES:
        return compute() or rows
    local_zone = f"{os.environ.get('TZ')} {time.tzname} {time.timezone} {realpath('/etc/localtime')}"
    question = f"usage by {by} with titles, prices of {prices.date}, {zone or local_zone}"
    cache = Cache(folder)
    if len(files) > engine.count_part(files):
        listing = StampedListing(files)
        answer = cached_answer(listing, question, list[UsageRow], partial(compute_in_parts, cache), cache)
    else:
        stamped = StampedFiles.from_listing(files)
        answer = cached_answer(stamped, question, list[UsageRow], partial(compute, stamped), cache)
    return rows if answer is None else answer


def _choose_files(sessions: Set[str], heads: Heads) -> Iterable[int]:
    return (n for n, head in heads if any(session.id in sessions for session in group_sessions([head])))


def _make_head(file: FileUsage) -> FileHead:
    from toolspan.reading.history import FileHead, checksum_keys
    from toolspan.reading.lineage import link_keys

    links = checksum_keys(link_keys(file, (), file.requests))
    return FileHead(links=links, file=file.file, info=file.info, has_content=file.has_content)
