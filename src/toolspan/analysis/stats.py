"""Statistics for tools and MCP servers, as printed by `toolspan stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Literal

from msgspec import Struct

from toolspan.reading.rows import CallRow, command_ms
from toolspan.types.span import parse_timestamp


class CallStats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts and durations of the calls in one group. Only the field of its grouping is set."""

    tool: str | None = None
    agent: str | None = None
    """The type of subagent, or `main`."""
    day: str | None = None
    hour: str | None = None
    calls: int
    states: dict[str, int]
    unsuccessful: int
    """Number of calls that ended in any way other than success, without searches that found nothing."""
    timeouts: int
    timeout_share: float
    timed: int
    """Number of calls whose duration is known, without those that continue a background command."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None
    total_ms: int
    pace: str
    """`immediate`, `fast`, `variable` or `slow`; empty if no duration is known."""

    @property
    def name(self) -> str:
        """The value of the grouping."""
        return next(name for name in (self.tool, self.agent, self.day, self.hour, "") if name is not None)


CallGrouping = Literal["tool", "agent", "day", "hour"]


def tool_stats(
    rows: Iterable[CallRow],
    key: Callable[[CallRow], str | None] = lambda row: row.tool or None,
    by: CallGrouping = "tool",
) -> list[CallStats]:
    """Return the statistics for each tool, or for each value of `key`, most used first.

    The value is in the field `by`. Orphan results are left out because they have no tool.
    """
    stats: list[CallStats] = []
    for name, calls in _group_rows(rows, key).items():
        durations = _sorted_durations(calls)
        timeouts = sum(row.state == "timed_out" for row in calls)
        p50, p95 = percentile(durations, 50), percentile(durations, 95)
        stats.append(
            CallStats(
                **{by: name},
                calls=len(calls),
                states=dict(Counter(row.state for row in calls)),
                unsuccessful=sum(row.is_unsuccessful for row in calls),
                timeouts=timeouts,
                timeout_share=timeouts / len(calls),
                timed=len(durations),
                p50_ms=p50,
                p95_ms=p95,
                max_ms=durations[-1] if durations else None,
                total_ms=sum(durations),
                pace=_classify_pace(p50, p95),
            )
        )
    return sorted(stats, key=lambda row: (-row.calls, row.name))


PERIODS: tuple[CallGrouping, ...] = ("day", "hour")
UNKNOWN_PERIOD = "unknown"


def period_key(period: str, zone: tzinfo | None) -> Callable[[CallRow], str | None]:
    """Return a key function for `tool_stats`, which returns the day or hour in which a call began.

    Days and hours are in `zone`, by default the local time zone. A day is a date, and an hour the time at which it
    begins. The key is `UNKNOWN_PERIOD` for a call without a time, and None for an orphan result.
    """

    def key(row: CallRow) -> str | None:
        if row.state == "orphan_result":
            return None
        timestamp = row.requested or row.finished
        if timestamp is None:
            return UNKNOWN_PERIOD
        minute = timestamp[:16] if timestamp.endswith("Z") else timestamp  # perf: few distinct values
        if minute not in names:
            time = parse_timestamp(timestamp)
            names[minute] = UNKNOWN_PERIOD if time is None else format_period(time.astimezone(zone))
        return names[minute]

    def format_period(time: datetime) -> str:
        if period == "day":
            return time.date().isoformat()
        return time.replace(minute=0, second=0, microsecond=0).isoformat(timespec="minutes")

    names: dict[str, str] = {}
    return key


class ServerStats(Struct, frozen=True, kw_only=True):
    """Statistics for one MCP server, across all its tools."""

    server: str
    tools: int
    calls: int
    unsuccessful: int
    error_kinds: dict[str, int]
    timeouts: int
    lost: int
    """Number of calls left unanswered because the connection or process was lost."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None


def server_stats(rows: Iterable[CallRow]) -> list[ServerStats]:
    """Return the statistics for each MCP server, most used first."""
    stats: list[ServerStats] = []
    for server, calls in _group_rows(rows, mcp_server_name).items():
        durations = _sorted_durations(calls)
        kinds = Counter(row.error_kind for row in calls if row.error_kind)
        stats.append(
            ServerStats(
                server=server,
                tools=len({row.tool for row in calls}),
                calls=len(calls),
                unsuccessful=sum(row.is_unsuccessful for row in calls),
                error_kinds=dict(kinds.most_common()),
                timeouts=sum(row.state == "timed_out" for row in calls),
                lost=kinds["mcp_no_response"],
                p50_ms=percentile(durations, 50),
                p95_ms=percentile(durations, 95),
                max_ms=durations[-1] if durations else None,
            )
        )
    return sorted(stats, key=lambda row: (-row.calls, row.server))


def mcp_server_name(row: CallRow) -> str | None:
    """Return the MCP server of a tool named `mcp__SERVER__TOOL`, or None for other tools."""
    prefix, _, rest = (row.tool or "").partition("__")
    server, separator, _ = rest.partition("__")
    return server if prefix == "mcp" and separator else None


def percentile(values: Sequence[int], percent: int) -> int | None:
    """Return a percentile of the sorted `values` by the nearest-rank method, or None if there are no values."""
    if not values:
        return None
    rank = -(-len(values) * percent // 100)
    return values[max(rank, 1) - 1]


def _group_rows(rows: Iterable[CallRow], key: Callable[[CallRow], str | None]) -> dict[str, list[CallRow]]:
    groups: dict[str, list[CallRow]] = {}
    for row in rows:
        name = key(row)
        if name is not None:
            groups.setdefault(name, []).append(row)
    return groups


def _sorted_durations(rows: Sequence[CallRow]) -> list[int]:
    return sorted(duration for row in rows if (duration := command_ms(row)) is not None)


def _classify_pace(p50: int | None, p95: int | None) -> str:
    if p50 is None or p95 is None:
        return ""
    if p95 <= 250:
        return "immediate"
    if p95 <= 1_000:
        return "fast"
    return "variable" if p50 <= 1_000 or p95 >= 10 * p50 else "slow"
