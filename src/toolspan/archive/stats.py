"""Counts, durations and timeouts per tool, subagent type, period or MCP server: `Archive.stats`, `toolspan stats`."""

from __future__ import annotations

from collections import Counter
from datetime import tzinfo
from typing import Any

from msgspec import Struct

from toolspan.analysis.live_sessions import mark_running
from toolspan.analysis.stats import (
    PERIODS,
    UNKNOWN_PERIOD,
    CallGrouping,
    CallStats,
    ServerStats,
    period_key,
    server_stats,
    tool_stats,
)
from toolspan.analysis.usage import MAIN_AGENT, UNKNOWN, USAGE, agent_types_by_id
from toolspan.archive.answers import SortOrder
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter, choose_name
from toolspan.archive.selection import CallSelection
from toolspan.archive.usage import select_requests
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.reading.history import CallTable
from toolspan.types.session import Tokens

GROUPINGS: tuple[CallGrouping, ...] = ("tool", "agent", *PERIODS)
SORT_COLUMNS = ("tool", "calls", "unsuccessful", "p50", "p95", "max", "total", "timed_out")
_DURATIONS = ("p50", "p50_ms", "p95", "p95_ms", "max", "max_ms", "total", "total_ms")
SORT_ALIASES = {
    **dict.fromkeys(("server", "agent", *PERIODS), "tool"),
    **dict.fromkeys(("failed", "wrong"), "unsuccessful"),
    "errors": "errors",
    "timeouts": "timed_out",
    **{name: f"{name.removesuffix('_ms')}_ms" for name in _DURATIONS},
}


class Stats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of all selected calls, and rows by group. Only the list of its grouping is set."""

    files: int
    sessions: int
    lines: int
    malformed: int
    calls: int
    orphan_results: int
    states: dict[str, int]
    unsuccessful: int
    """Number of calls that ended in any way other than success, without searches that found nothing."""
    nothing_found: int
    error_kinds: dict[str, int]
    tokens: Tokens | None
    """Tokens of the requests, as in `usage`; null if the filter selects calls by tool, kind, state or error."""
    tools: tuple[CallStats, ...] | None = None
    agents: tuple[CallStats, ...] | None = None
    days: tuple[CallStats, ...] | None = None
    hours: tuple[CallStats, ...] | None = None
    groups: int
    """Number of groups, including those that a limit left out."""
    servers: tuple[ServerStats, ...]

    @property
    def rows(self) -> tuple[CallStats, ...]:
        """The rows of the grouping."""
        return self.tools or self.agents or self.days or self.hours or ()


def count_calls(
    engine: Engine,
    call_filter: Filter,
    *,
    by: str = "tool",
    sort: SortOrder | None = None,
    limit: int | None = None,
    zone: tzinfo | None = None,
) -> Stats:
    """Return counts and durations of calls. Days and hours are in `zone`, or local.

    A limit keeps the latest periods, or the first rows of another order.
    """
    grouping = choose_name(by, GROUPINGS)
    everything = call_filter == Filter()
    # perf: the calls of a file state its tokens too, but not who used them when
    files_read, joined = engine.read(tuple_job(CALLS) if everything and by != "agent" else tuple_job(CALLS, USAGE))
    call_table = CallTable(mark_running(summary for summary, *_ in files_read))
    selection = CallSelection(call_table, joined, engine.reporter)
    rows = selection.filter_calls(call_filter)
    usages = [usage for _, *usages in files_read for usage in usages]
    if by == "agent":
        types = agent_types_by_id(usages)
        groups = tool_stats(rows, lambda row: types.get(row.agent, UNKNOWN) if row.agent else MAIN_AGENT, "agent")
    elif grouping in PERIODS:
        periods = tool_stats(rows, period_key(grouping, zone), grouping)
        groups = sorted(periods, key=lambda stats: (stats.name != UNKNOWN_PERIOD, stats.name))
    else:
        groups = tool_stats(rows)
    servers = server_stats(rows)
    if sort is not None:
        groups, servers = sort.sort(groups, _sort_value), sort.sort(servers, _sort_value)
    visible = groups[-(limit or 0) :] if by in PERIODS and sort is None else groups[: limit or None]
    sessions = selection.filter_sessions(call_filter, rows)
    files = call_table.files if everything else [file for session in sessions for file in session.files]
    tokens = call_table.tokens if everything else None
    if tokens is None and not (call_filter.tool or call_filter.kind or call_filter.state or call_filter.error):
        requests, _ = select_requests(usages, call_filter)
        tokens = sum((request.tokens for request in requests), Tokens())
    states: Counter[str] = Counter(row.state for row in rows)
    return Stats(
        files=len(files),
        sessions=len(sessions),
        lines=sum(file.counts.lines for file in files),
        malformed=sum(file.counts.malformed for file in files),
        calls=states.total() - states["orphan_result"],
        orphan_results=states["orphan_result"],
        states=dict(states),
        unsuccessful=sum(row.is_unsuccessful for row in rows),
        nothing_found=sum(row.error_kind == "nothing_found" for row in rows),
        error_kinds=dict(Counter(row.error_kind for row in rows if row.error_kind)),
        tokens=tokens,
        **{f"{by}s": tuple(visible)},
        groups=len(groups),
        servers=tuple(servers),
    )


def _sort_value(stats: Any, column: str) -> object:
    """Return the value that the table shows in a column, or the attribute with this name."""
    match column:
        case "tool":
            return stats.name if isinstance(stats, CallStats) else stats.server
        case "unsuccessful":
            return stats.unsuccessful / stats.calls
        case "errors":  # a former name, of the number
            return stats.unsuccessful
        case "timed_out":
            return stats.timeout_share if isinstance(stats, CallStats) else stats.timeouts
        case _:
            return getattr(stats, column, None)
