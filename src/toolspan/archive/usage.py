"""Tokens and cost of model requests: `Archive.usage` and `toolspan usage`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from os.path import realpath
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from toolspan.analysis.prices import PriceTable, load_prices
from toolspan.analysis.usage import (
    GROUPINGS,
    PERIODS,
    USAGE_JOB,
    Grouping,
    RequestJoiner,
    UsageRequest,
    UsageRow,
    filter_requests,
    group_usage,
    join_requests,
    sum_rows,
)
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import MIN_CACHED_BYTES, Engine, FileEngine, read_files
from toolspan.archive.filters import Filter, choose_name
from toolspan.errors import InvalidFilter
from toolspan.reading.lineage import group_sessions, sessions_named
from toolspan.types.session import Tokens

SORT_COLUMNS = ("name", "requests", *Tokens.__struct_fields__, "cost_usd")
SORT_ALIASES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_write": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cost": "cost_usd",
    **dict.fromkeys(("period", *GROUPINGS), "name"),
}
_COST_DIGITS = 9


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requests of one period, model, project, session, agent or client. Only the field of its grouping is set."""

    period: str | None = None
    """A day, a week (its Monday), a month, or the time at which a block of five hours begins."""
    model: str | None = None
    project: str | None = None
    session: str | None = None
    agent: str | None = None
    dialect: str | None = None
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
        names = (self.period, self.model, self.project, self.session, self.agent, self.dialect)
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
    if call_filter.state or call_filter.error or call_filter.tool or call_filter.kind:
        raise InvalidFilter("tools, states and errors select calls, but tokens belong to requests")
    grouping: Grouping = choose_name(by, GROUPINGS)  # type: ignore[assignment]
    table = load_prices(prices)
    if call_filter == Filter() and prices is None and isinstance(engine, FileEngine):
        rows = _sum_everything(engine, grouping, table, zone)
    else:
        requests, paths = read_requests(engine, call_filter)
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
    cost = round(row.cost_usd, _COST_DIGITS) if row.cost_usd is not None else None
    return Usage(
        **{field: row.name},  # type: ignore[arg-type]  # the field of the grouping
        **asdict(row.tokens),
        requests=row.requests,
        cost_usd=cost,
        unpriced_requests=row.unpriced_requests,
        models=row.models,
    )


def read_requests(
    engine: Engine, call_filter: Filter, *, as_recorded: bool = False
) -> tuple[list[UsageRequest], list[str]]:
    """Return the requests that a filter accepts, and the files that were read.

    Other sessions are read, too, because a request that a fork or resume copied belongs to the original session.
    """
    from toolspan.archive.selection import check_session, read_filtered_files  # perf: not needed without a filter

    files = read_filtered_files(engine, USAGE_JOB, call_filter.replace(session=None))
    joined = join_requests(files, as_recorded=as_recorded)
    requests = filter_requests(joined, call_filter.since, call_filter.until, call_filter.agent)
    if call_filter.model is not None:
        requests = [request for request in requests if call_filter.model.casefold() in request.model.casefold()]
    if call_filter.session is not None:
        check_session(call_filter.session, (file.info for file in files))
        session_ids = {session.id for session in sessions_named(group_sessions(files), call_filter.session)}
        requests = [request for request in requests if request.session in session_ids]
    return requests, [file.file for file in files]


def _sum_everything(engine: FileEngine, by: Grouping, prices: PriceTable, zone: tzinfo | None) -> list[UsageRow]:
    """Return the usage of all requests, from the cache if no file has changed since it was last computed."""
    from toolspan.reading.cache import Cache, StampedFiles, cached_answer, default_folder

    files, _ = engine.locate()
    rows: list[UsageRow] = []

    def compute(stamped: StampedFiles | None = None) -> list[UsageRow] | None:
        joiner = RequestJoiner()
        usages = read_files(files, USAGE_JOB, engine.reporter, stamped, joiner.add)
        requests = joiner.join(usages)
        rows[:] = group_usage(requests, by, prices=prices, zone=zone)
        return None if any(usage.problem for usage in usages) else rows

    folder = default_folder()
    if folder is None or sum(file.size for file in files) < MIN_CACHED_BYTES:
        return compute() or rows
    local_zone = f"{os.environ.get('TZ')} {time.tzname} {time.timezone} {realpath('/etc/localtime')}"
    question = f"usage by {by}, prices of {prices.date}, {zone or local_zone}"
    stamped = StampedFiles.from_listing(files)
    answer = cached_answer(stamped, question, list[UsageRow], partial(compute, stamped), Cache(folder))
    return rows if answer is None else answer
