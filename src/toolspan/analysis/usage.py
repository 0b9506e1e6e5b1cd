"""Tokens and cost of model requests, by day, week, month, five-hour block, model, project, session, agent or client.

`USAGE` are the requests of one file, `join_requests` counts each request once across files, forks and resumes,
and `group_usage` sums them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from operator import itemgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from toolspan.formats.registry import get_format, parse_file_name
from toolspan.prices import PriceTable, Rate, load_prices
from toolspan.reading.facts import FactKind, single_job
from toolspan.reading.lineage import group_sessions, rank_file
from toolspan.types.session import ClientName, RequestUsage, SessionInfo, Tokens
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from toolspan.reading.transcript import Transcript

Grouping = Literal["day", "week", "month", "block", "model", "project", "session", "agent", "client"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
PERIODS: tuple[Grouping, ...] = ("day", "week", "month", "block")
"""The groupings by time. Each row is named after its period."""
UNKNOWN = "unknown"
MAIN_AGENT = "main"
_BLOCK = timedelta(hours=5)
_QUARTER_HOUR = timedelta(minutes=15)
_NO_TOKENS = Tokens()
_LATEST = datetime.max.replace(tzinfo=UTC)


class FileUsage(Struct, frozen=True, kw_only=True):
    """The model requests in one transcript."""

    file: str
    info: SessionInfo
    requests: dict[str, RequestUsage]
    agent: str | None = None
    """The type of the subagent that wrote the file, if recorded beside it; None for a main conversation."""
    starter_call: str | None = None
    """The call that started the subagent, if recorded beside the file."""
    started_types: dict[str, str] = {}
    """Types of the subagents started by calls in this file, by call id and by agent id."""
    inline_types: dict[str, str] = {}
    """Types of the subagents whose requests this file contains, by request."""
    problem: str | None = None

    @property
    def has_content(self) -> bool:
        """True if the file contains requests."""
        return bool(self.requests)


def transcript_usage(transcript: Transcript) -> FileUsage:
    """Return the requests in a transcript."""
    origin = transcript.agent_origin
    types, starters = transcript.agent_types, transcript.agent_starters
    return FileUsage(
        file=transcript.file,
        info=transcript.info,
        requests=transcript.requests,
        agent=transcript.role or origin.role,
        starter_call=origin.starter_call,
        started_types=types | {agent: types[call] for agent, call in starters.items() if call in types},
        inline_types={name: types[call] for name, call in transcript.message_starters.items() if call in types},
    )


USAGE = FactKind(
    name="usage",
    measure=lambda reading: transcript_usage(reading.transcript),
    facts_type=FileUsage,
    unreadable=lambda file, problem: FileUsage(file=file, info=SessionInfo(), requests={}, problem=problem),
    scope="requests",
    finds_causes=False,
    needs_spans=False,
)
USAGE_JOB = single_job(USAGE)


class UsageRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One request to a model, counted once, with the session it belongs to."""

    id: str
    """The id of the message, or `#n` if the client assigned none."""
    file: str
    """The file whose copy of the request is counted."""
    at: datetime | None
    model: str
    tokens: Tokens
    """The tokens. The input excludes cached tokens, unless `join_requests` kept the recorded counts."""
    cache_write_1h: int
    fast: bool
    cost_usd: float | None
    """The cost that the client recorded."""
    session: str
    title: str | None
    """The title of the session, or else its first prompt."""
    project: str
    agent: str
    """The type of the subagent that made the request, or `main`."""
    agent_id: str | None
    client: ClientName


def join_requests(files: Iterable[FileUsage], *, as_recorded: bool = False) -> list[UsageRequest]:
    """Return each request once, with the largest count of each field and the facts of its earliest copy.

    Input excludes cached tokens. With `as_recorded`, the counts of clients that include them are kept.
    """
    joiner, files = RequestJoiner(as_recorded=as_recorded), list(files)
    for file in files:
        joiner.add(file)
    return joiner.join(files)


class RequestJoiner:
    """Joiner for the requests of files. A file can be added while others are still being read."""

    def __init__(self, *, as_recorded: bool = False) -> None:
        """Create a joiner without files. The argument is that of `join_requests`."""
        self._as_recorded = as_recorded
        self._drafts: dict[str, tuple[_Conversation, list[UsageRequest]]] = {}
        """The requests of each file, with the facts that are known without the other files."""

    def add(self, file: FileUsage) -> None:
        """Prepare the requests of a file."""
        conversation = _make_conversation(file, {})
        self._drafts[file.file] = (conversation, self._make_requests(conversation, file.requests))

    def join(self, files: Sequence[FileUsage]) -> list[UsageRequest]:
        """Return each request once. All files must have been added."""
        agent_types = _started_types(files)
        # A request belongs to the original session, whatever session ids its copies in forks and resumes have.
        sessions = sorted(group_sessions(files), key=lambda session: rank_file(session.file.file, session.file.info))
        owners = {
            file.file: (n, session.id, session.file.info.title or session.file.info.first_prompt)
            for n, session in enumerate(sessions)
            for file in session.files
        }
        conversations: dict[str, _Conversation] = {}
        requests: dict[str, UsageRequest] = {}
        copies: dict[str, list[UsageRequest]] = {}
        for file in files:
            conversation = _make_conversation(file, agent_types)
            if file.file in owners:
                _, session_id, title = owners[file.file]
                conversation = conversation._replace(session=session_id, title=title)
            conversations[file.file] = conversation
            draft, prepared = self._drafts[file.file]
            is_same = draft.file is file and draft[1:] == conversation[1:]
            if not is_same:
                prepared = self._make_requests(conversation, file.requests)
            for request in prepared:
                name = request.id
                key = name if name[:1] != "#" else f"{file.file}{name}"
                first = requests.setdefault(key, request)
                if first is not request:
                    copies.setdefault(key, [first]).append(request)
        for key, same in copies.items():
            name = same[0].id
            recorded = [(conversations[copy.file], conversations[copy.file].file.requests[name]) for copy in same]
            conversation, usage = _join_copies(recorded)
            _, session_id, title = min((owners[copy.file] for copy in same), key=itemgetter(0))
            conversation = conversation._replace(session=session_id, title=title)
            (requests[key],) = self._make_requests(conversation, {name: usage})
        return sorted(requests.values(), key=lambda request: request.at or _LATEST)

    def _make_requests(self, conversation: _Conversation, usages: Mapping[str, RequestUsage]) -> list[UsageRequest]:
        file, session, title, project, agent, model, input_includes_cache = conversation
        path, agent_id, client, inline_types = file.file, file.info.agent_id, file.info.client, file.inline_types
        requests = []
        for name, usage in usages.items():
            tokens = usage.tokens
            if input_includes_cache and not self._as_recorded:
                tokens = tokens.without_cached()
            request = UsageRequest(
                id=name,
                file=path,
                at=parse_timestamp(usage.at),
                model=usage.model or model,
                tokens=tokens,
                cache_write_1h=usage.cache_write_1h,
                fast=usage.fast,
                cost_usd=usage.cost_usd,
                session=session,
                title=title,
                project=project,
                agent=agent or inline_types.get(name) or (UNKNOWN if usage.sidechain else MAIN_AGENT),
                agent_id=agent_id,
                client=client,
            )
            requests.append(request)
        return requests


def agent_types_by_id(files: Iterable[FileUsage]) -> dict[str, str]:
    """Return the type of each subagent by its id."""
    files = list(files)
    agent_types = _started_types(files)
    by_id = {name: agent_type for file in files for name, agent_type in file.started_types.items()}
    for file in files:
        if file.info.agent_id:
            by_id[file.info.agent_id] = _make_conversation(file, agent_types).agent or UNKNOWN
    return by_id


def _started_types(files: Sequence[FileUsage]) -> dict[tuple[str | None, str], str]:
    return {(file.info.session_id, name): kind for file in files for name, kind in file.started_types.items()}


class _Conversation(NamedTuple):
    """The facts that all requests in a file share."""

    file: FileUsage
    session: str
    title: str | None
    project: str
    agent: str | None
    model: str
    input_includes_cache: bool


def _make_conversation(file: FileUsage, agent_types: Mapping[tuple[str | None, str], str]) -> _Conversation:
    info, agent = file.info, file.agent
    if info.agent_id is not None and agent is None:
        keys = ((info.session_id, name) for name in (file.starter_call, info.agent_id) if name)
        agent = next((agent_types[key] for key in keys if key in agent_types), None)
        agent = agent or _internal_agent_type(info.agent_id) or UNKNOWN
    return _Conversation(
        file=file,
        session=info.session_id or PurePath(file.file).name.partition(".")[0],
        title=info.title or info.first_prompt,
        project=info.cwd or parse_file_name(PurePath(file.file)).project or UNKNOWN,
        agent=agent,
        model=info.models[-1] if info.models else UNKNOWN,
        input_includes_cache=get_format(info.client).input_includes_cache,
    )


def _internal_agent_type(agent_id: str) -> str | None:
    """Return the type in the id of a subagent that the client started itself, such as `acompact-4f2a91`."""
    match = re.fullmatch(r"a([a-z_]+)-[0-9a-f]+", agent_id)
    return match[1] if match else None


def _join_copies(copies: Sequence[tuple[_Conversation, RequestUsage]]) -> tuple[_Conversation, RequestUsage]:
    """Return the earliest copy, with the largest count of each field. At equal times, prefer the subagent's file."""
    conversation, usage = min(
        copies, key=lambda copy: (copy[1].at or "~", copy[0].file.info.agent_id is None, copy[0].file.file)
    )
    tokens, cache_write_1h = usage.tokens, usage.cache_write_1h
    for _, other in copies:
        tokens, cache_write_1h = tokens.max_with(other.tokens), max(cache_write_1h, other.cache_write_1h)
    return conversation, replace(usage, tokens=tokens, cache_write_1h=cache_write_1h)


def filter_requests(
    requests: Iterable[UsageRequest],
    since: datetime | None = None,
    until: datetime | None = None,
    agent: str | None = None,
) -> list[UsageRequest]:
    """Return the requests in a period, optionally of the subagents whose type or id begins with `agent`."""

    def is_selected(request: UsageRequest) -> bool:
        if agent is not None and not (request.agent.startswith(agent) or (request.agent_id or "").startswith(agent)):
            return False
        if request.at is None:
            return since is None and until is None
        return (since is None or request.at >= since) and (until is None or request.at < until)

    return list(filter(is_selected, requests))


class UsageRow(Struct, frozen=True, kw_only=True):
    """The number, tokens and cost of the requests in one group."""

    name: str
    requests: int
    tokens: Tokens
    cost_usd: float | None
    """The cost of the requests whose model has a price; None if none of them has one."""
    unpriced_requests: int
    unpriced_models: tuple[str, ...]
    models: tuple[str, ...]
    title: str | None = None
    """The title of the session, or else its first prompt; None for other groups."""


def group_usage(
    requests: Sequence[UsageRequest],
    by: Grouping = "day",
    *,
    prices: PriceTable | None = None,
    zone: tzinfo | None = None,
) -> list[UsageRow]:
    """Return the sums of the requests in each group.

    Periods are sorted by time, and other groups by cost and then by tokens, highest first. Days begin at midnight in
    `zone`, by default the local time zone. A block begins at the full hour of its first request and lasts five hours.
    """
    sums = UsageSums(by, prices=prices, zone=zone)
    sums.add(requests)
    return sums.rows()


class UsageSums:
    """The sums of requests in each group. Requests can be added in parts, so that not all are in memory."""

    def __init__(self, by: Grouping, *, prices: PriceTable | None = None, zone: tzinfo | None = None) -> None:
        """Create sums without requests. The arguments are those of `group_usage`."""
        self._by = by
        self._prices = prices or load_prices()
        self._zone = zone
        self._rows: dict[str, UsageRow] = {}
        self._first_uses: dict[str, dict[str, datetime]] = {}
        """The time of the first request to each model, by group."""

    def add(self, requests: Iterable[UsageRequest]) -> None:
        """Add requests in order of time, which may be earlier than requests that were added before."""
        groups: dict[str, list[UsageRequest]] = {}
        # A block begins with its first request, so its hours are joined when all of them are known.
        name_of = _name_hour if self._by == "block" else _group_namer(self._by, self._zone)
        for request in requests:
            groups.setdefault(name_of(request), []).append(request)
        for name, members in groups.items():
            row = sum_usage(name, members, self._prices)
            if self._by == "session":
                row = replace(row, title=members[0].title)
            self._add_row(row, self._rows, name)
            first_uses = self._first_uses.setdefault(name, {})
            for model in self._rows[name].models:
                at = next((request.at for request in members if request.model == model), None) or _LATEST
                first_uses[model] = min(first_uses.get(model, _LATEST), at)

    def rows(self) -> list[UsageRow]:
        """Return the sums as `group_usage` does."""
        rows = [self._sort_models(row) for row in self._rows.values()]
        if self._by == "block":
            rows = self._join_hours(rows)
        if self._by in PERIODS:
            return sorted(rows, key=lambda row: (row.name == UNKNOWN, row.name))
        return sorted(rows, key=lambda row: (-(row.cost_usd or 0), -_token_sum(row.tokens), row.name))

    def _sort_models(self, row: UsageRow) -> UsageRow:
        first_uses = self._first_uses[row.name]

        def sort(models: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(models, key=lambda model: (first_uses[model], model)))

        return replace(row, models=sort(row.models), unpriced_models=sort(row.unpriced_models))

    def _join_hours(self, hours: Iterable[UsageRow]) -> list[UsageRow]:
        blocks: dict[str, UsageRow] = {}
        start: datetime | None = None
        for row in sorted(hours, key=lambda row: (row.name == UNKNOWN, row.name)):
            name = row.name
            if name != UNKNOWN:
                hour = datetime.fromisoformat(name)
                start = hour if start is None or hour >= start + _BLOCK else start
                name = start.astimezone(self._zone).isoformat(timespec="minutes")
            self._add_row(row, blocks, name)
        return list(blocks.values())

    @staticmethod
    def _add_row(row: UsageRow, rows: dict[str, UsageRow], name: str) -> None:
        rows[name] = sum_rows(name, [rows[name], row] if name in rows else [row])


def sum_usage(name: str, requests: Iterable[UsageRequest], prices: PriceTable) -> UsageRow:
    """Return one row with the number, tokens and cost of the requests."""
    count = unpriced = 0
    input_tokens = output_tokens = cache_creation = cache_read = 0
    cost: float | None = None
    rates: dict[str, Rate | None] = {}
    """The models, each with its rate if that has never changed."""
    unpriced_models: dict[str, None] = {}
    for request in requests:
        count += 1
        tokens, model = request.tokens, request.model
        input_tokens += tokens.input_tokens
        output_tokens += tokens.output_tokens
        cache_creation += tokens.cache_creation_input_tokens
        cache_read += tokens.cache_read_input_tokens
        if model not in rates:
            rates[model] = prices.constant_rate(model)
        rate = rates[model]
        if request.cost_usd is not None:
            price: float | None = request.cost_usd
        elif rate is not None and not request.fast:
            price = rate.cost(tokens, request.cache_write_1h)  # perf: without looking up the rate
        else:
            price = prices.cost(model, request.at, tokens, cache_write_1h=request.cache_write_1h, fast=request.fast)
        if price is not None:
            cost = (cost or 0.0) + price
        elif tokens != _NO_TOKENS:
            unpriced += 1
            unpriced_models[model] = None
    return UsageRow(
        name=name,
        requests=count,
        tokens=Tokens(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_creation_input_tokens=cache_creation,
            cache_read_input_tokens=cache_read,
        ),
        cost_usd=cost,
        unpriced_requests=unpriced,
        unpriced_models=tuple(unpriced_models),
        models=tuple(rates),
    )


def sum_rows(name: str, rows: Sequence[UsageRow]) -> UsageRow:
    """Return one row with the sums of the rows."""
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return UsageRow(
        name=name,
        requests=sum(row.requests for row in rows),
        tokens=sum((row.tokens for row in rows), Tokens()),
        cost_usd=sum(costs) if costs else None,
        unpriced_requests=sum(row.unpriced_requests for row in rows),
        unpriced_models=tuple(dict.fromkeys(model for row in rows for model in row.unpriced_models)),
        models=tuple(dict.fromkeys(model for row in rows for model in row.models)),
        title=rows[0].title if rows and rows[0].name == name else None,
    )


def _token_sum(tokens: Tokens) -> int:
    cached = tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
    return tokens.input_tokens + tokens.output_tokens + cached


def _group_namer(by: Grouping, zone: tzinfo | None) -> Callable[[UsageRequest], str]:
    if by not in PERIODS:
        return lambda request: str(getattr(request, by))

    name = ""
    start: datetime | None = None

    def period(request: UsageRequest) -> str:
        nonlocal name, start
        at = request.at
        if at is None:
            return UNKNOWN
        # perf: in order of time, few requests begin another quarter of an hour
        if start is None or at < start or at - start >= _QUARTER_HOUR:
            start = at.astimezone(UTC)
            start = start.replace(minute=start.minute // 15 * 15, second=0, microsecond=0)  # no day begins within it
            day = at.astimezone(zone).date()
            if by == "week":
                day -= timedelta(days=day.weekday())
            name = f"{day:%Y-%m}" if by == "month" else day.isoformat()
        return name

    return period


def _name_hour(request: UsageRequest) -> str:
    """Return the UTC hour of a request."""
    at = request.at
    return UNKNOWN if at is None else at.astimezone(UTC).replace(minute=0, second=0, microsecond=0).isoformat()
