"""`toolspan stats`: counts, durations and timeouts per tool; tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from toolspan.analysis.stats import ToolStats, server_stats, tool_stats
from toolspan.cli.output import escape_markup, format_count, format_duration, make_console, make_table, print_json
from toolspan.cli.select import (
    CallFilter,
    CallSelection,
    filter_calls,
    filter_options,
    limit_option,
    make_filter,
    names_argument,
    read_selection,
)
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow
from toolspan.reading.scan import FileSummary
from toolspan.types.tokens import Tokens

_NARROW_WIDTH = 100
"""On a narrower screen, the rarer numbers make room for the tool's name."""
_WIDE_COLUMNS = ("timed out", "pace")
_SLIM_WIDTH = 60
"""On one narrower than this, more numbers do."""
_OPTIONAL_COLUMNS = (*_WIDE_COLUMNS, "wrong", "p95", "total")


@click.command("stats")
@names_argument
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--mcp", is_flag=True, help="The health of each MCP server instead.")
@limit_option(30, "Tools or servers")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@filter_options
def command(names: tuple[str, ...], *, last: bool, mcp: bool, limit: int, as_json: bool, **filter_values: Any) -> None:
    """Counts, durations and timeouts per tool; tokens counted once per message.

    Tokens belong to messages, not to calls: with a filter that chooses calls (tool, state, error,
    agent, time) they are left out.
    """
    call_filter = make_filter(filter_values)
    everything = read_selection(names, last=last)
    rows = filter_calls(everything, call_filter)
    if mcp:
        _print_servers(rows, limit, as_json=as_json)
        return
    selection = _filter_files(everything, call_filter)
    if as_json:
        print_json({**_stats_row(selection, rows, call_filter), "tools": _tool_rows(rows, limit)})
    else:
        _print_stats(selection, rows, limit)
        if not _chooses_calls(call_filter):
            _print_tokens(selection)


def _print_servers(rows: list[CallRow], limit: int, *, as_json: bool) -> None:
    """Each MCP server's calls, errors, timeouts, lost connections and times."""
    every = server_stats(rows)
    visible_servers = every[: limit or None]
    if as_json:
        print_json({"servers": [msgspec.to_builtins(stats) for stats in visible_servers]})
        return
    if not visible_servers:
        make_console().print("No calls of MCP servers.")
        return
    listing = make_table(
        "server", "tools", "calls", "wrong", "timed out", "lost", "p50", "p95", "max", "errors",
        right=("tools", "calls", "wrong", "timed out", "lost", "p50", "p95", "max"),
        cut=("server", "errors"),
    )  # fmt: skip
    for stats in visible_servers:
        listing.add_row(
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
    make_console().print(listing)
    if hidden := len(every) - len(visible_servers):
        make_console().print(f"{format_count(hidden, 'more server')} (--limit 0: all)")


def _filter_files(selection: CallSelection, call_filter: CallFilter) -> CallSelection:
    """Only the files that a filter can mean, so that sessions and tokens are theirs."""
    if call_filter == CallFilter():
        return selection
    files = [file for file in selection.call_table.files if _matches_filter(file, call_filter)]
    if _chooses_calls(call_filter):
        files = [replace(file, message_tokens={}, tokens_raw_sum=Tokens()) for file in files]
    return CallSelection(CallTable(files), selection.is_joined)


def _matches_filter(file: FileSummary, call_filter: CallFilter) -> bool:
    if not call_filter.accepts_file(file.file, file.info):
        return False
    if call_filter.session is not None or not _chooses_calls(call_filter):
        return True
    return any(call_filter.accepts_call(row, file.info.cwd) for row in file.calls)


def _chooses_calls(call_filter: CallFilter) -> bool:
    return call_filter._replace(project=None, session=None, dialect=None) != CallFilter()


def _stats_row(selection: CallSelection, rows: list[CallRow], call_filter: CallFilter) -> dict[str, object]:
    ledger = selection.call_table
    files = ledger.files
    counted = not _chooses_calls(call_filter)
    return {
        "files": len(files),
        "sessions": len(ledger.sessions),
        "lines": sum(file.counts.lines for file in files),
        "malformed": sum(file.counts.malformed for file in files),
        "calls": sum(row.state != "orphan_result" for row in rows),
        "orphan_results": sum(row.state == "orphan_result" for row in rows),
        "states": dict(Counter(row.state for row in rows)),
        "error_kinds": dict(Counter(row.error_kind for row in rows if row.error_kind)),
        "tokens": msgspec.to_builtins(ledger.tokens) if counted else None,
        "tokens_raw_sum": msgspec.to_builtins(ledger.tokens_raw_sum) if counted else None,
    }


def _tool_rows(rows: list[CallRow], limit: int) -> list[dict[str, object]]:
    return [msgspec.to_builtins(stats) for stats in tool_stats(rows)[: limit or None]]


def _print_stats(selection: CallSelection, rows: list[CallRow], limit: int) -> None:
    out = make_console()
    states = Counter(row.state for row in rows)
    files = selection.call_table.files
    out.print(
        f"[bold]{format_count(len(rows) - states['orphan_result'], 'call')}[/] in "
        f"{format_count(len(selection.call_table.sessions), 'session')} ({format_count(len(files), 'file')})"
        + (": " if states else "")
        + ", ".join(f"{n:,} {state}" for state, n in states.most_common())
        + "\n"
    )
    tools = tool_stats(rows)
    _print_tools(tools[:limit] if limit else tools)
    hidden = len(tools) - limit if limit else 0
    if hidden > 0:
        out.print(f"{format_count(hidden, 'more tool')} (--limit 0: all)")
    out.print("[dim]Durations run from request to result and include the wait for permission.[/]")


def _print_tools(tools: Sequence[ToolStats]) -> None:
    out = make_console()
    left_out = () if out.width >= _NARROW_WIDTH else _WIDE_COLUMNS if out.width >= _SLIM_WIDTH else _OPTIONAL_COLUMNS
    columns = [name for name in _COLUMN_FORMATS if name not in left_out]
    numbers = [name for name in columns if name not in ("tool", "pace")]
    listing = make_table(*columns, right=numbers, cut=("tool",))
    for stats in tools:
        listing.add_row(*(_COLUMN_FORMATS[name](stats) for name in columns))
    if tools:
        out.print(listing)


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


def _print_tokens(selection: CallSelection) -> None:
    tokens, raw = selection.call_table.tokens, selection.call_table.tokens_raw_sum
    listing = make_table("tokens", "counted once", "naive sum", right=("counted once", "naive sum"))
    for name in Tokens.__struct_fields__:
        label = name.removesuffix("_tokens").replace("_", " ")
        listing.add_row(label, f"{getattr(tokens, name):,}", f"{getattr(raw, name):,}")
    make_console().print("\n", listing, sep="")
