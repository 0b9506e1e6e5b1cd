"""Calls added up: errors by what they are, tools by how long they take.

Pure functions on rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from toolspan.reading.rows import CallRow
from toolspan.types.error_kinds import ADVICE, ErrorKind, error_signature
from toolspan.types.state import OPEN_STATES

_UNANSWERED_ADVICE = ("The session ended before the result was recorded", "Check whether it took effect")
_ORPHAN_ADVICE = ("The request is in another file, or lost", "Read the whole session, not one file")


class RecoveryStatus(NamedTuple):
    """What became of a call that went wrong."""

    recovered: bool
    recovered_by: str | None
    """The name of the chain of calls that took it up."""


RecoveryByCall = Mapping[tuple[str, str | None], RecoveryStatus]
"""By id and message of the call."""


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Calls that went wrong in the same way."""

    kind: str
    """The error kind; the state where there is no kind."""
    tool: str
    signature: str
    count: int
    states: dict[str, int]
    sessions: int
    first: str | None
    last: str | None
    cause: str
    solution: str
    retry: str | None
    recovered: int | None
    """How many were made good by later calls; null when nobody looked."""
    recovered_by: dict[str, int]
    """In which ways, the most frequent first."""
    example: CallRow


def is_unsuccessful(row: CallRow) -> bool:
    """Whether a call ended other than well."""
    return row.state != "succeeded" and row.state not in OPEN_STATES


def group_errors(rows: Iterable[CallRow], recoveries: RecoveryByCall | None = None) -> list[ErrorGroup]:
    """The calls that went wrong, by kind, tool and wording; the most frequent first."""
    groups: dict[str, list[CallRow]] = {}
    for row in rows:
        if is_unsuccessful(row):
            groups.setdefault(_error_signature(row), []).append(row)
    results = [_make_error_group(name, members, recoveries) for name, members in groups.items()]
    return sorted(results, key=lambda group: (-group.count, group.signature))


def _error_signature(row: CallRow) -> str:
    if row.error_kind is None or row.state == "orphan_result":
        return f"{row.state} {row.tool or '?'}"
    return error_signature(row.error_kind, row.tool or "?", row.message or "")


def _make_error_group(name: str, rows: Sequence[CallRow], recoveries: RecoveryByCall | None) -> ErrorGroup:
    last = max(rows, key=lambda row: row.requested or row.finished or "")
    kind = None if last.state == "orphan_result" else last.error_kind
    cause, solution = _cause_and_solution(kind, last.state)
    times = sorted(at for row in rows if (at := row.requested or row.finished))
    call_recoveries = [recoveries.get((row.id, row.batch)) for row in rows] if recoveries is not None else []
    recovered = [recovery for recovery in call_recoveries if recovery is not None and recovery.recovered]
    return ErrorGroup(
        kind=kind or last.state,
        tool=last.tool or "?",
        signature=name,
        count=len(rows),
        states=dict(Counter(row.state for row in rows)),
        sessions=len({row.session for row in rows}),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        cause=cause,
        solution=solution,
        retry=last.retry,
        recovered=len(recovered) if recoveries is not None else None,
        recovered_by=dict(
            Counter(recovery.recovered_by for recovery in recovered if recovery.recovered_by).most_common()
        ),
        example=last,
    )


def _cause_and_solution(kind: ErrorKind | None, state: str) -> tuple[str, str]:
    if kind is None:
        return _ORPHAN_ADVICE if state == "orphan_result" else _UNANSWERED_ADVICE
    advice = ADVICE[kind]
    return advice.cause, advice.solution


class ToolStats(Struct, frozen=True, kw_only=True):
    """How one tool fares."""

    tool: str
    calls: int
    states: dict[str, int]
    errors: int
    timeouts: int
    timeout_share: float
    timed: int
    """Calls whose duration is known."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None
    total_ms: int
    pace: str
    """In a word: immediate, fast, variable or slow."""


def tool_stats(rows: Iterable[CallRow]) -> list[ToolStats]:
    """Each tool's numbers, the most used first; orphan results have no tool and are left out."""
    by_tool: dict[str, list[CallRow]] = {}
    for row in rows:
        if row.tool:
            by_tool.setdefault(row.tool, []).append(row)
    all_stats = [_make_tool_stats(tool, members) for tool, members in by_tool.items()]
    return sorted(all_stats, key=lambda stats: (-stats.calls, stats.tool))


def _make_tool_stats(tool: str, rows: Sequence[CallRow]) -> ToolStats:
    times = sorted(row.duration_ms for row in rows if row.duration_ms is not None)
    timeouts = sum(row.state == "timed_out" for row in rows)
    p50, p95 = percentile(times, 50), percentile(times, 95)
    return ToolStats(
        tool=tool,
        calls=len(rows),
        states=dict(Counter(row.state for row in rows)),
        errors=sum(is_unsuccessful(row) for row in rows),
        timeouts=timeouts,
        timeout_share=timeouts / len(rows),
        timed=len(times),
        p50_ms=p50,
        p95_ms=p95,
        max_ms=times[-1] if times else None,
        total_ms=sum(times),
        pace=_classify_pace(p50, p95),
    )


class ServerStats(Struct, frozen=True, kw_only=True):
    """How an MCP server has served, over all its tools."""

    server: str
    tools: int
    """How many of its tools were called."""
    calls: int
    errors: int
    error_kinds: dict[str, int]
    timeouts: int
    lost: int
    """Calls that got no answer because the connection or the process was gone."""
    p50_ms: int | None
    p95_ms: int | None
    max_ms: int | None


def server_stats(rows: Iterable[CallRow]) -> list[ServerStats]:
    """The health of each MCP server, the most used first."""
    by_server: dict[str, list[CallRow]] = {}
    for row in rows:
        server = _mcp_server_name(row.tool or "")
        if server is not None:
            by_server.setdefault(server, []).append(row)
    all_stats = [_make_server_stats(server, members) for server, members in by_server.items()]
    return sorted(all_stats, key=lambda stats: (-stats.calls, stats.server))


def _mcp_server_name(tool: str) -> str | None:
    prefix, _, rest = tool.partition("__")
    server, parted, _ = rest.partition("__")
    return server if prefix == "mcp" and parted else None


def _make_server_stats(server: str, rows: Sequence[CallRow]) -> ServerStats:
    times = sorted(row.duration_ms for row in rows if row.duration_ms is not None)
    kinds = Counter(row.error_kind for row in rows if row.error_kind)
    return ServerStats(
        server=server,
        tools=len({row.tool for row in rows}),
        calls=len(rows),
        errors=sum(is_unsuccessful(row) for row in rows),
        error_kinds=dict(kinds.most_common()),
        timeouts=sum(row.state == "timed_out" for row in rows),
        lost=kinds["mcp_no_response"],
        p50_ms=percentile(times, 50),
        p95_ms=percentile(times, 95),
        max_ms=times[-1] if times else None,
    )


def percentile(times: Sequence[int], share: int) -> int | None:
    """The smallest value that at least `share` percent do not exceed; the values are sorted."""
    if not times:
        return None
    rank = -(-len(times) * share // 100)
    return times[max(rank, 1) - 1]


def _classify_pace(p50: int | None, p95: int | None) -> str:
    if p50 is None or p95 is None:
        return ""
    if p95 <= 250:
        return "immediate"
    if p95 <= 1_000:
        return "fast"
    return "variable" if p50 <= 1_000 or p95 >= 10 * p50 else "slow"
