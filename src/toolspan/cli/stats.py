"""`toolspan stats`: counts, durations and timeouts per tool or MCP server, and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import click
import msgspec

from toolspan.analysis.errors import count_outcomes, is_unsuccessful
from toolspan.analysis.stats import (
    PERIODS,
    UNKNOWN_PERIOD,
    ServerStats,
    ToolStats,
    period_key,
    server_stats,
    tool_stats,
)
from toolspan.analysis.usage import (
    MAIN_AGENT,
    UNKNOWN,
    USAGE_JOB,
    agent_types_by_id,
)
from toolspan.cli import lists, select
from toolspan.cli.filters import CallFilter, NameChoice, filter_options
from toolspan.cli.output import (
    TargetCell,
    format_call_count,
    format_count,
    format_duration,
    make_console,
    make_table,
    print_json,
    shorten_middle,
    time_zone,
)
from toolspan.cli.usage import read_requests
from toolspan.formats.registry import get_format
from toolspan.reading.rows import CallRow
from toolspan.types.session import Tokens

_NARROW_WIDTH = 100
_WIDE_COLUMNS = ("timed out", "pace")
_SLIM_WIDTH = 60
_MCP_WIDE_COLUMNS = ("tools", "timed out", "lost", "p95", "errors")
_OPTIONAL_COLUMNS = (*_WIDE_COLUMNS, "failed", "p95", "total")
_DURATIONS = ("p50", "p50_ms", "p95", "p95_ms", "max", "max_ms", "total", "total_ms")


@click.command("stats")
@select.names_argument
@select.last_option
@select.tables_option
@click.option("--mcp", is_flag=True, help="Show MCP servers instead of tools.")
@click.option(
    "--by",
    type=NameChoice(("tool", "agent", *PERIODS)),
    default="tool",
    help="Group by tool, by subagent type, or by the day or hour in which calls began.",
)
@lists.limit_option(30, "tools or servers")
@lists.sort_option(
    "tool", "calls", "failed", "p50", "p95", "max", "total", "timed_out", "errors",
    **dict.fromkeys(("server", "agent", *PERIODS), "tool"), wrong="failed", timeouts="timed_out",
    **{name: f"{name.removesuffix('_ms')}_ms" for name in _DURATIONS},
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@filter_options
def command(
    names: tuple[str, ...], *, last: bool, mcp: bool, by: str, limit: int, sort: lists.SortOrder | None,
    as_json: bool, call_filter: CallFilter,
) -> None:  # fmt: skip
    """Show counts, durations and timeouts per tool, and tokens counted once per message.

    Tokens belong to messages, not to calls, so they are omitted if a filter selects calls by tool, state or error.
    """
    selection = select.read_selection(names, last=last)
    rows = select.filter_calls(selection, call_filter)
    if mcp:
        _print_servers(rows, names, limit, sort, as_json=as_json)
        return
    tools = tool_stats(rows)
    if by == "agent":
        usage, _ = select.read_selected_files(names, USAGE_JOB, last=last)
        types = agent_types_by_id(usage)
        tools = tool_stats(rows, lambda row: types.get(row.agent, UNKNOWN) if row.agent else MAIN_AGENT)
    elif by in PERIODS:
        periods = tool_stats(rows, period_key(by, time_zone()))
        tools = sorted(periods, key=lambda stats: (stats.tool != UNKNOWN_PERIOD, stats.tool))
        if as_json:  # its rows have a time
            tools = [stats for stats in tools if stats.tool != UNKNOWN_PERIOD]
    if sort is not None:
        tools = sort.sort(tools, _sort_value)
    visible_tools = lists.limit_rows(tools, limit, sort) if by in PERIODS else tools[: limit or None]
    call_table = selection.call_table
    sessions = select.filter_sessions(selection, call_filter, rows)
    everything = call_filter == CallFilter()
    files = call_table.files if everything else [file for session in sessions for file in session.files]
    tokens: Tokens | None = None
    raw_sum: Tokens | None = None
    if not call_filter.selects_calls:
        counted = (call_table.tokens_by_session[session.id] for session in sessions)
        tokens = call_table.tokens if everything else sum(counted, Tokens())
        raw_sum = sum((file.tokens_raw_sum for file in files), Tokens())
    elif not (call_filter.tool or call_filter.state or call_filter.error) and by not in PERIODS:
        tokens = _tokens_in_filter(names, call_filter, last=last)
    if not as_json:
        _print_stats(rows, len(sessions), len(files), visible_tools, len(tools) - len(visible_tools), by)
        if tokens is not None and by not in PERIODS:
            _print_tokens(tokens, raw_sum)
            dialects = {file.info.dialect for file in files if get_format(file.info.dialect).input_includes_cache}
            if dialects and tokens.cache_read_input_tokens:
                clients = " and ".join(sorted(map(str, dialects)))
                make_console().print(f"[dim]input of {clients} includes cache read; toolspan usage separates them.[/]")
        if tools:
            lists.print_hints(
                names, ("calls PATHS --tool TOOL", "lists its calls"), ("errors PATHS", "shows why calls failed")
            )
        return
    print_json({
        "files": len(files),
        "sessions": len(sessions),
        "lines": sum(file.counts.lines for file in files),
        "malformed": sum(file.counts.malformed for file in files),
        "calls": sum(row.state != "orphan_result" for row in rows),
        "orphan_results": sum(row.state == "orphan_result" for row in rows),
        "states": dict(Counter(row.state for row in rows)),
        "errors": sum(is_unsuccessful(row) and row.state != "orphan_result" for row in rows),
        "nothing_found": sum(row.error_kind == "nothing_found" for row in rows),
        "error_kinds": dict(Counter(row.error_kind for row in rows if row.error_kind)),
        "tokens": msgspec.to_builtins(tokens),
        "tokens_raw_sum": msgspec.to_builtins(raw_sum),
        f"{by}s": [_stats_row(stats, by) for stats in visible_tools],
        "servers": [msgspec.to_builtins(stats) for stats in server_stats(rows)],
    })  # fmt: skip


def _sort_value(stats: ToolStats | ServerStats, column: str) -> object:
    """Return the value that the table shows in a column, or the attribute with this name."""
    match column:
        case "tool":
            return stats.tool if isinstance(stats, ToolStats) else stats.server
        case "failed":
            return stats.errors / stats.calls
        case "timed_out":
            return stats.timeout_share if isinstance(stats, ToolStats) else stats.timeouts
        case _:
            return getattr(stats, column, None)


def _tokens_in_filter(names: tuple[str, ...], call_filter: CallFilter, *, last: bool) -> Tokens:
    """Return the tokens of the requests in a period or of a subagent."""
    requests, _ = read_requests(names, call_filter, last=last, as_recorded=True)
    return sum((request.tokens for request in requests), Tokens())


def _print_tokens(tokens: Tokens, raw_sum: Tokens | None) -> None:
    columns = ("counted once", "naive sum") if raw_sum is not None else ("counted once",)
    table = make_table("tokens", *columns, right=columns)
    for name in Tokens.__struct_fields__:
        counts = [getattr(source, name) for source in (tokens, raw_sum) if source is not None]
        table.add_row(name.removesuffix("_tokens").replace("_", " "), *(f"{count:,}" for count in counts))
    make_console().print("\n", table, sep="")


def _stats_row(stats: ToolStats, by: str) -> dict[str, object]:
    row = msgspec.to_builtins(stats)
    return {by: row.pop("tool"), **row}


def _print_servers(
    rows: list[CallRow], names: Sequence[str], limit: int, sort: lists.SortOrder | None, *, as_json: bool
) -> None:
    servers = server_stats(rows)
    if sort is not None:
        servers = sort.sort(servers, _sort_value)
    visible_servers = servers[: limit or None]
    if as_json:
        print_json({"servers": [msgspec.to_builtins(stats) for stats in visible_servers]})
        return
    if not visible_servers:
        make_console().print("No calls to MCP servers.")
        return
    numbers = ("tools", "calls", "failed", "timed out", "lost", "p50", "p95", "max")
    is_narrow = make_console().width < _NARROW_WIDTH
    columns = [name for name in ("server", *numbers, "errors") if not is_narrow or name not in _MCP_WIDE_COLUMNS]
    table = make_table(*columns, right=numbers, cut=("server", "errors"))
    for stats in visible_servers:
        cells: dict[str, str | TargetCell] = {
            "server": TargetCell(stats.server, shorten=shorten_middle),
            "tools": f"{stats.tools:,}",
            "calls": f"{stats.calls:,}",
            "failed": f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
            "timed out": f"{stats.timeouts:,}" if stats.timeouts else "",
            "lost": f"{stats.lost:,}" if stats.lost else "",
            "p50": format_duration(stats.p50_ms),
            "p95": format_duration(stats.p95_ms),
            "max": format_duration(stats.max_ms),
            "errors": ", ".join(f"{n}× {kind}" for kind, n in stats.error_kinds.items()),
        }
        table.add_row(*(cells[column] for column in columns))
    make_console().print(table)
    if hidden := len(servers) - len(visible_servers):
        make_console().print(f"{format_count(hidden, 'more server')} (--limit 0: all)")
    lists.print_hints(names, ("calls PATHS --tool 'mcp__SERVER__*'", "lists the calls of a server"))


def _print_stats(
    rows: list[CallRow], sessions: int, files: int, tools: Sequence[ToolStats], hidden: int, by: str
) -> None:
    out = make_console()
    states = count_outcomes(row for row in rows if row.state != "orphan_result")
    out.print(
        f"[bold]{format_call_count(rows)}[/] in {format_count(sessions, 'session')} ({format_count(files, 'file')})"
        + (": " if states else "")
        + ", ".join(f"{n:,} {state.replace('_', ' ')}" for state, n in states.most_common())
        + "\n"
    )
    omitted = () if out.width >= _NARROW_WIDTH else _WIDE_COLUMNS if out.width >= _SLIM_WIDTH else _OPTIONAL_COLUMNS
    columns = [name for name in _COLUMN_FORMATS if name not in omitted]
    numbers = [name for name in columns if name not in ("tool", "pace")]
    table = make_table(by, *columns[1:], right=numbers, cut=(by,))
    for stats in tools:
        table.add_row(*(_COLUMN_FORMATS[name](stats) for name in columns))
    if tools:
        out.print(table)
    if hidden:
        out.print(f"{format_count(hidden, f'more {by}')} (--limit 0: all)")
    out.print("[dim]Durations run from request to result and include the wait for permission.[/]")


_COLUMN_FORMATS: dict[str, Callable[[ToolStats], str | TargetCell]] = {
    "tool": lambda stats: TargetCell(stats.tool, shorten=shorten_middle),
    "calls": lambda stats: f"{stats.calls:,}",
    "failed": lambda stats: f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
    "p50": lambda stats: format_duration(stats.p50_ms),
    "p95": lambda stats: format_duration(stats.p95_ms),
    "max": lambda stats: format_duration(stats.max_ms),
    "total": lambda stats: format_duration(stats.total_ms),
    "timed out": lambda stats: f"{stats.timeout_share:.1%}" if stats.timeouts else "",
    "pace": lambda stats: stats.pace,
}
