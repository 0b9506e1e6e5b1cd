"""`toolspan stats`: counts, durations and timeouts per tool or MCP server, and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import click
import msgspec

from toolspan.analysis.stats import ToolStats, server_stats, tool_stats
from toolspan.cli import select
from toolspan.cli.output import escape_markup, format_count, format_duration, make_console, make_table, print_json
from toolspan.reading.rows import CallRow
from toolspan.types.session import Tokens

_NARROW_WIDTH = 100
_WIDE_COLUMNS = ("timed out", "pace")
_SLIM_WIDTH = 60
_OPTIONAL_COLUMNS = (*_WIDE_COLUMNS, "wrong", "p95", "total")


@click.command("stats")
@select.names_argument
@select.last_option
@click.option("--mcp", is_flag=True, help="Show MCP servers instead of tools.")
@select.limit_option(30, "tools or servers")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@select.filter_options
def command(
    names: tuple[str, ...], *, last: bool, mcp: bool, limit: int, as_json: bool, call_filter: select.CallFilter
) -> None:
    """Show counts, durations and timeouts per tool, and tokens counted once per message.

    Tokens belong to messages, not to calls, so they are left out if a filter selects calls (tool,
    state, error, agent, time).
    """
    selection = select.read_selection(names, last=last)
    rows = select.filter_calls(selection, call_filter)
    if mcp:
        _print_servers(rows, limit, as_json=as_json)
        return
    call_table = selection.call_table
    sessions = select.filter_sessions(selection, call_filter, rows)
    everything = call_filter == select.CallFilter()
    files = call_table.files if everything else [file for session in sessions for file in session.files]
    counted = (call_table.tokens_by_session[session.id] for session in sessions)
    tokens = call_table.tokens if everything else sum(counted, Tokens())
    raw = sum((file.tokens_raw_sum for file in files), Tokens())
    has_tokens = not call_filter.selects_calls
    if not as_json:
        _print_stats(rows, len(sessions), len(files), limit)
        if has_tokens:
            table = make_table("tokens", "counted once", "naive sum", right=("counted once", "naive sum"))
            for name in Tokens.__struct_fields__:
                label = name.removesuffix("_tokens").replace("_", " ")
                table.add_row(label, f"{getattr(tokens, name):,}", f"{getattr(raw, name):,}")
            make_console().print("\n", table, sep="")
        return
    print_json({
        "files": len(files),
        "sessions": len(sessions),
        "lines": sum(file.counts.lines for file in files),
        "malformed": sum(file.counts.malformed for file in files),
        "calls": sum(row.state != "orphan_result" for row in rows),
        "orphan_results": sum(row.state == "orphan_result" for row in rows),
        "states": dict(Counter(row.state for row in rows)),
        "error_kinds": dict(Counter(row.error_kind for row in rows if row.error_kind)),
        "tokens": msgspec.to_builtins(tokens) if has_tokens else None,
        "tokens_raw_sum": msgspec.to_builtins(raw) if has_tokens else None,
        "tools": [msgspec.to_builtins(stats) for stats in tool_stats(rows)[: limit or None]],
    })  # fmt: skip


def _print_servers(rows: list[CallRow], limit: int, *, as_json: bool) -> None:
    servers = server_stats(rows)
    visible_servers = servers[: limit or None]
    if as_json:
        print_json({"servers": [msgspec.to_builtins(stats) for stats in visible_servers]})
        return
    if not visible_servers:
        make_console().print("No calls to MCP servers.")
        return
    numbers = ("tools", "calls", "wrong", "timed out", "lost", "p50", "p95", "max")
    table = make_table("server", *numbers, "errors", right=numbers, cut=("server", "errors"))
    for stats in visible_servers:
        table.add_row(
            escape_markup(stats.server),
            f"{stats.tools:,}",
            f"{stats.calls:,}",
            f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
            f"{stats.timeouts:,}" if stats.timeouts else "",
            f"{stats.lost:,}" if stats.lost else "",
            format_duration(stats.p50_ms),
            format_duration(stats.p95_ms),
            format_duration(stats.max_ms),
            ", ".join(f"{n}× {kind}" for kind, n in stats.error_kinds.items()),
        )
    make_console().print(table)
    if hidden := len(servers) - len(visible_servers):
        make_console().print(f"{format_count(hidden, 'more server')} (--limit 0: all)")


def _print_stats(rows: list[CallRow], sessions: int, files: int, limit: int) -> None:
    out = make_console()
    states = Counter(row.state for row in rows)
    out.print(
        f"[bold]{format_count(len(rows) - states['orphan_result'], 'call')}[/] in "
        f"{format_count(sessions, 'session')} ({format_count(files, 'file')})"
        + (": " if states else "")
        + ", ".join(f"{n:,} {state}" for state, n in states.most_common())
        + "\n"
    )
    tools = tool_stats(rows)
    omitted = () if out.width >= _NARROW_WIDTH else _WIDE_COLUMNS if out.width >= _SLIM_WIDTH else _OPTIONAL_COLUMNS
    columns = [name for name in _COLUMN_FORMATS if name not in omitted]
    numbers = [name for name in columns if name not in ("tool", "pace")]
    table = make_table(*columns, right=numbers, cut=("tool",))
    for stats in tools[: limit or None]:
        table.add_row(*(_COLUMN_FORMATS[name](stats) for name in columns))
    if tools:
        out.print(table)
    if limit and len(tools) > limit:
        out.print(f"{format_count(len(tools) - limit, 'more tool')} (--limit 0: all)")
    out.print("[dim]Durations run from request to result and include the wait for permission.[/]")


_COLUMN_FORMATS: dict[str, Callable[[ToolStats], str]] = {
    "tool": lambda stats: escape_markup(stats.tool),
    "calls": lambda stats: f"{stats.calls:,}",
    "wrong": lambda stats: f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
    "p50": lambda stats: format_duration(stats.p50_ms),
    "p95": lambda stats: format_duration(stats.p95_ms),
    "max": lambda stats: format_duration(stats.max_ms),
    "total": lambda stats: format_duration(stats.total_ms),
    "timed out": lambda stats: f"{stats.timeout_share:.1%}" if stats.timeouts else "",
    "pace": lambda stats: stats.pace,
}
