"""Tokens and cost of model requests, by day, week, month, five-hour block, model, project, session, agent or client.

`file_usage` reads the requests of one file, `join_requests` counts each request once across files, forks and resumes,
and `group_usage` sums them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path, PurePath
from typing import Literal, get_args

from msgspec import Struct

from toolspan.analysis.prices import PriceTable, load_prices
from toolspan.errors import SourceError
from toolspan.formats.registry import format_of_path, get_format, parse_file_name
from toolspan.reading.lineage import Lineages, group_sessions
from toolspan.reading.transcript import read_known
from toolspan.types.session import Dialect, RequestUsage, SessionInfo, Tokens
from toolspan.types.span import parse_timestamp

Grouping = Literal["day", "week", "month", "block", "model", "project", "session", "agent", "dialect"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
PERIODS: tuple[Grouping, ...] = ("day", "week", "month", "block")
"""The groupings by time, whose rows are named by a period."""
UNKNOWN = "unknown"
MAIN_AGENT = "main"
_BLOCK = timedelta(hours=5)


class FileUsage(Struct, frozen=True, kw_only=True):
    """The model requests in one transcript."""

    file: str
    info: SessionInfo
    requests: dict[str, RequestUsage]
    agent: str | None = None
    """The type of the subagent that wrote the file; None for a main conversation."""
    problem: str | None = None

    @property
    def has_content(self) -> bool:
        """True if the file contains requests."""
        return bool(self.requests)


def file_usage(path: str) -> FileUsage:
    """Return the requests in one file. If it is unreadable, `problem` is set."""
    try:
        transcript = read_known(Path(path))
    except SourceError as error:
        return FileUsage(file=path, info=SessionInfo(), requests={}, problem=str(error))
    info = transcript.info
    role = format_of_path(path).agent_origin(Path(path)).role if info.agent_id else None
    return FileUsage(
        file=transcript.file,
        info=info,
        requests=transcript.requests,
        agent=(role or UNKNOWN) if info.agent_id else None,
    )


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to a model, counted once, with the session it belongs to."""

    at: datetime | None
    model: str
    tokens: Tokens
    """Input without cached tokens, for every client."""
    cache_write_1h: int
    session: str
    project: str
    agent: str
    dialect: Dialect


def join_requests(files: Iterable[FileUsage]) -> list[ModelRequest]:
    """Return each request once, with the largest count of each field and the facts of its earliest copy."""
    read_files = list(files)
    lineages = Lineages()
    for file in read_files:
        lineages.add(file.file, file.info)
    # A request belongs to the original session, however its copies in forks and resumes are stamped.
    sessions = sorted(group_sessions(read_files), key=lambda session: lineages.rank(session.file.file))
    owners = {file.file: (n, session.id) for n, session in enumerate(sessions) for file in session.files}
    copies: dict[str, list[tuple[str, FileUsage, RequestUsage]]] = {}
    for file in read_files:
        for name, usage in file.requests.items():
            key = f"{file.file}{name}" if name.startswith("#") else name
            copies.setdefault(key, []).append((usage.at or "~", file, usage))
    requests = [
        _join_copies(found, min(owners[file.file] for _, file, _ in found)[1]) for found in copies.values()
    ]
    return sorted(requests, key=lambda request: (request.at or datetime.max.replace(tzinfo=UTC), request.session))


def _join_copies(copies: Sequence[tuple[str, FileUsage, RequestUsage]], session: str) -> ModelRequest:
    _, file, usage = min(copies, key=lambda copy: (copy[0], copy[1].info.agent_id is None, copy[1].file))
    tokens, cache_write_1h = usage.tokens, usage.cache_write_1h
    for _, _, other in copies:
        tokens, cache_write_1h = tokens.max_with(other.tokens), max(cache_write_1h, other.cache_write_1h)
    if get_format(file.info.dialect).input_includes_cache:
        cached = tokens.cache_read_input_tokens + tokens.cache_creation_input_tokens
        tokens = Tokens(
            input_tokens=max(tokens.input_tokens - cached, 0),
            output_tokens=tokens.output_tokens,
            cache_creation_input_tokens=tokens.cache_creation_input_tokens,
            cache_read_input_tokens=tokens.cache_read_input_tokens,
        )
    info = file.info
    return ModelRequest(
        at=parse_timestamp(usage.at) if usage.at else None,
        model=usage.model or (info.models[-1] if info.models else UNKNOWN),
        tokens=tokens,
        cache_write_1h=cache_write_1h,
        session=session,
        project=info.cwd or parse_file_name(PurePath(file.file)).project or UNKNOWN,
        agent=file.agent or (UNKNOWN if usage.sidechain else MAIN_AGENT),
        dialect=info.dialect,
    )


class UsageRow(Struct, frozen=True, kw_only=True):
    """The sum over the requests of one group."""

    name: str
    requests: int
    tokens: Tokens
    cost_usd: float | None
    """The cost of the requests whose model has a price; None if none of them has one."""
    unpriced_requests: int
    unpriced_models: tuple[str, ...]
    models: tuple[str, ...]


def group_usage(
    requests: Sequence[ModelRequest],
    by: Grouping = "day",
    *,
    prices: PriceTable | None = None,
    zone: tzinfo | None = None,
) -> list[UsageRow]:
    """Sum requests by group. Periods come in order of time, other groups by cost and tokens.

    `zone` decides where days begin; None stands for the local time zone. A block begins with the hour of its first
    request and lasts five hours.
    """
    table = prices or load_prices()
    groups: dict[str, list[ModelRequest]] = {}
    name_of = _block_namer(zone) if by == "block" else _group_namer(by, zone)
    for request in requests:
        groups.setdefault(name_of(request), []).append(request)
    rows = [sum_usage(name, members, table) for name, members in groups.items()]
    if by in PERIODS:
        return sorted(rows, key=lambda row: (row.name == UNKNOWN, row.name))
    return sorted(rows, key=lambda row: (-(row.cost_usd or 0), -_token_sum(row.tokens), row.name))


def sum_usage(name: str, requests: Iterable[ModelRequest], prices: PriceTable) -> UsageRow:
    """Return the sum over requests."""
    count = unpriced = 0
    tokens, cost = Tokens(), None
    models: dict[str, None] = {}
    unpriced_models: dict[str, None] = {}
    for request in requests:
        count += 1
        tokens += request.tokens
        models[request.model] = None
        day = request.at.date().isoformat() if request.at else ""
        price = prices.cost(request.model, day, request.tokens, request.cache_write_1h)
        if price is not None:
            cost = (cost or 0.0) + price
        elif request.tokens != Tokens():
            unpriced += 1
            unpriced_models[request.model] = None
    return UsageRow(
        name=name,
        requests=count,
        tokens=tokens,
        cost_usd=cost,
        unpriced_requests=unpriced,
        unpriced_models=tuple(unpriced_models),
        models=tuple(models),
    )


def _token_sum(tokens: Tokens) -> int:
    cached = tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
    return tokens.input_tokens + tokens.output_tokens + cached


def _group_namer(by: Grouping, zone: tzinfo | None) -> Callable[[ModelRequest], str]:
    if by not in PERIODS:
        return lambda request: str(getattr(request, by))

    def period(request: ModelRequest) -> str:
        if request.at is None:
            return UNKNOWN
        day = request.at.astimezone(zone).date()
        if by == "month":
            return f"{day:%Y-%m}"
        return (day - timedelta(days=day.weekday()) if by == "week" else day).isoformat()

    return period


def _block_namer(zone: tzinfo | None) -> Callable[[ModelRequest], str]:
    """Return a function that names the block of requests, which must come in order of time."""
    start: datetime | None = None

    def block(request: ModelRequest) -> str:
        nonlocal start
        if request.at is None:
            return UNKNOWN
        if start is None or request.at >= start + _BLOCK:
            start = request.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        return start.astimezone(zone).isoformat(timespec="minutes")

    return block
