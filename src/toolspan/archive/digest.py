"""One page about a period, compared with the one before it: `Archive.digest` and `toolspan digest`."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from toolspan.analysis.context_size import ContextTool
from toolspan.analysis.errors import ErrorGroup
from toolspan.analysis.recovery import CHAIN_WORDS
from toolspan.archive.answers import SortOrder
from toolspan.archive.clock import now
from toolspan.archive.context import measure_context
from toolspan.archive.engine import Engine, without_warnings
from toolspan.archive.errors import ErrorGroups, find_errors
from toolspan.archive.filters import Filter
from toolspan.archive.hooks import HookTotals, sum_hooks
from toolspan.archive.stats import count_calls
from toolspan.archive.time import split_time
from toolspan.archive.usage import UsageRows, sum_usage
from toolspan.errors import InvalidFilter
from toolspan.types.error_kinds import KIND_WORDS

_PERIOD = timedelta(days=7)
_CAUSES, _HOOKS, _TOOLS, _CHANGES = 5, 3, 3, 5


class ProjectCost(Struct, frozen=True, kw_only=True):
    """The cost of one project in the period and in the one before."""

    project: str
    cost_usd: float
    """At list prices, without requests to models that have no price."""
    cost_before_usd: float


class DigestCause(Struct, frozen=True, kw_only=True):
    """A cause of unsuccessful calls, and one step to take."""

    group: str
    """The id of the group in `errors`."""
    who: str
    """The program that failed, or else the tool."""
    kind: str
    """The error kind in words."""
    message: str | None
    count: int
    lost_ms: int
    lost_tokens: int
    harm: float
    """See `ErrorGroup.harm`."""
    step: str


class Digest(Struct, frozen=True, kw_only=True):
    """A period at a glance. Each field ending in `before` is about the period of equal length before it."""

    since: datetime
    until: datetime
    sessions: int
    calls: int
    calls_before: int
    unsuccessful: int
    unsuccessful_before: int
    cost_usd: float | None
    cost_before_usd: float | None
    projects: tuple[ProjectCost, ...]
    """The most expensive first, with projects that cost something before only."""
    causes: tuple[DigestCause, ...]
    """The most harmful first."""
    new: tuple[DigestCause, ...]
    """Causes that did not occur in the period before."""
    gone: tuple[DigestCause, ...]
    """Causes of the period before that no longer occur."""
    hooks: tuple[HookTotals, ...]
    """The hooks that took most time."""
    permission_ms: int
    """Known and inferred waits for permission."""
    permission_before_ms: int
    context: tuple[ContextTool, ...]
    """The tools whose results filled the context most."""


def make_digest(engine: Engine, call_filter: Filter, *, zone: tzinfo | None = None) -> Digest:
    """Return the digest of the filter's period, by default of the last seven days.

    Raises:
        InvalidFilter: the filter selects calls, but the digest is about whole sessions.
    """
    if call_filter.replace(since=None, until=None).selects_calls:
        raise InvalidFilter("a digest is about all calls; filter it by project, client, model, topic and time")
    until = call_filter.until or now()
    since = call_filter.since or until - _PERIOD
    if since >= until:
        raise InvalidFilter("--since must be earlier than --until")
    this = call_filter.replace(since=since, until=until)
    before = call_filter.replace(since=since - (until - since), until=since)
    by_harm = SortOrder("harm")
    errors = find_errors(engine, this, sort=by_harm, zone=zone)
    engine = without_warnings(engine)
    errors_before = find_errors(engine, before, sort=by_harm, zone=zone)
    costs, costs_before = (sum_usage(engine, period, by="project", zone=zone) for period in (this, before))
    time, time_before = (split_time(engine, period, limit=1) for period in (this, before))
    ids, ids_before = ({group.id for group in groups} for groups in (errors, errors_before))
    slow_hooks = [hook for hook in sum_hooks(engine, this, sort=SortOrder("total_ms")) if hook.total_ms]
    return Digest(
        since=since,
        until=until,
        sessions=count_calls(engine, this).sessions,
        calls=errors.calls,
        calls_before=errors_before.calls,
        unsuccessful=_count(errors),
        unsuccessful_before=_count(errors_before),
        cost_usd=costs.sum.cost_usd,
        cost_before_usd=costs_before.sum.cost_usd,
        projects=_compare_projects(costs, costs_before),
        causes=_pick(errors, _CAUSES),
        new=_pick([group for group in errors if group.id not in ids_before], _CHANGES),
        gone=_pick([group for group in errors_before if group.id not in ids], _CHANGES),
        hooks=tuple(slow_hooks[:_HOOKS]),
        permission_ms=sum(time.waits.values()),
        permission_before_ms=sum(time_before.waits.values()),
        context=measure_context(engine, this, limit=1).tools[:_TOOLS],
    )


def _count(groups: ErrorGroups) -> int:
    causes = (group for group in groups if group.kind not in ("nothing_found", "orphan_result"))
    return sum(group.count - group.background for group in causes)


def _compare_projects(costs: UsageRows, costs_before: UsageRows) -> tuple[ProjectCost, ...]:
    this, before = ({row.name: row.cost_usd or 0.0 for row in rows} for rows in (costs, costs_before))
    rows = [
        ProjectCost(project=name, cost_usd=this.get(name, 0.0), cost_before_usd=before.get(name, 0.0))
        for name in dict.fromkeys((*this, *before))
    ]
    spent = [row for row in rows if row.cost_usd or row.cost_before_usd]
    return tuple(sorted(spent, key=lambda row: (-row.cost_usd, -row.cost_before_usd, row.project)))


def _pick(groups: ErrorGroups | list[ErrorGroup], limit: int) -> tuple[DigestCause, ...]:
    causes = [group for group in groups if group.kind not in ("nothing_found", "orphan_result")]
    return tuple(
        DigestCause(
            group=group.id,
            who=group.program or group.tool,
            kind=KIND_WORDS.get(group.kind, group.kind.replace("_", " ")),
            message=(group.reasons[0] if group.reasons else None) or group.message or group.example.message,
            count=group.count,
            lost_ms=group.lost_ms,
            lost_tokens=group.lost_tokens,
            harm=group.harm,
            step=_choose_step(group),
        )
        for group in causes[:limit]
    )


def _choose_step(group: ErrorGroup) -> str:
    """Return one step against a cause: the advice for its kind, or else how later calls solved it, or else a look."""
    if group.solution:
        return group.solution
    if group.recovered_by:
        name, count = next(iter(group.recovered_by.items()))
        how = CHAIN_WORDS.get(name, name)
        return f"Ask for what solved it {count} of {group.count} times: {how}"
    return f"See what happened: toolspan show {group.example.id}" if group.example.id else f"See {group.command}"
