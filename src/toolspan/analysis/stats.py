"""Statistics for tools and MCP servers, as printed by `toolspan stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from toolspan.analysis.errors import is_unsuccessful
from toolspan.reading.rows import CallRow


class ToolStats(Struct, frozen=True, kw_only=True):
    """Counts, outcomes and durations of calls to one tool."""

    tool: str
    calls: int
    states: dict[str, int]
    errors: int
    timeouts: int
    timeout_share: float
    timed: int
    """Number of calls whose duration is known."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None
    total_ms: int
    pace: str
    """`immediate`, `fast`, `variable` or `slow`; empty if no duration is known."""


def tool_stats(rows: Iterable[CallRow]) -> list[ToolStats]:
    """Return the statistics for each tool, most used first. Orphan results are left out because they have no tool."""
    groups = _group_rows(rows, lambda row: row.tool or None)
    return sorted(
        (_make_tool_stats(tool, members) for tool, members in groups.items()),
        key=lambda stats: (-stats.calls, stats.tool),
    )


def _make_tool_stats(tool: str, rows: Sequence[CallRow]) -> ToolStats:
    durations = _sorted_durations(rows)
    timeouts = sum(row.state == "timed_out" for row in rows)
    p50, p95 = percentile(durations, 50), percentile(durations, 95)
    return ToolStats(
        tool=tool,
        calls=len(rows),
        states=dict(Counter(row.state for row in rows)),
        errors=sum(is_unsuccessful(row) for row in rows),
        timeouts=timeouts,
        timeout_share=timeouts / len(rows),
        timed=len(durations),
        p50_ms=p50,
        p95_ms=p95,
        max_ms=durations[-1] if durations else None,
        total_ms=sum(durations),
        pace=_classify_pace(p50, p95),
    )


class ServerStats(Struct, frozen=True, kw_only=True):
    """Statistics for one MCP server, across all its tools."""

    server: str
    tools: int
    """The number of its tools that were called."""
    calls: int
    errors: int
    error_kinds: dict[str, int]
    timeouts: int
    lost: int
    """Number of calls left unanswered because the connection or process was lost."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None


def server_stats(rows: Iterable[CallRow]) -> list[ServerStats]:
    """Return the statistics for each MCP server, most used first."""
    groups = _group_rows(rows, lambda row: _mcp_server_name(row.tool or ""))
    return sorted(
        (_make_server_stats(server, members) for server, members in groups.items()),
        key=lambda stats: (-stats.calls, stats.server),
    )


def _mcp_server_name(tool: str) -> str | None:
    prefix, _, rest = tool.partition("__")
    server, separator, _ = rest.partition("__")
    return server if prefix == "mcp" and separator else None


def _make_server_stats(server: str, rows: Sequence[CallRow]) -> ServerStats:
    durations = _sorted_durations(rows)
    kinds = Counter(row.error_kind for row in rows if row.error_kind)
    return ServerStats(
        server=server,
        tools=len({row.tool for row in rows}),
        calls=len(rows),
        errors=sum(is_unsuccessful(row) for row in rows),
        error_kinds=dict(kinds.most_common()),
        timeouts=sum(row.state == "timed_out" for row in rows),
        lost=kinds["mcp_no_response"],
        p50_ms=percentile(durations, 50),
        p95_ms=percentile(durations, 95),
        max_ms=durations[-1] if durations else None,
    )


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
    return sorted(row.duration_ms for row in rows if row.duration_ms is not None)


def _classify_pace(p50: int | None, p95: int | None) -> str:
    if p50 is None or p95 is None:
        return ""
    if p95 <= 250:
        return "immediate"
    if p95 <= 1_000:
        return "fast"
    return "variable" if p50 <= 1_000 or p95 >= 10 * p50 else "slow"
