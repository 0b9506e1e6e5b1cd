"""`toolspan stats`: counts, durations and timeouts per tool or MCP server, and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import msgspec

from toolspan.analysis.stats import PERIODS, CallStats, ServerStats
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.stats import GROUPINGS, SORT_ALIASES, SORT_COLUMNS, Stats
from toolspan.archive.words import format_count, format_duration, format_states, shorten_middle
from toolspan.cli import lists, select
from toolspan.cli.filters import NameChoice, filter_options
from toolspan.cli.output import TargetCell, make_console, make_table, print_json, time_zone
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.session import Tokens

_NARROW_WIDTH = 100
_WIDE_COLUMNS = ("timed out", "pace")
_SLIM_WIDTH = 60
_MCP_WIDE_COLUMNS = ("tools", "timed out", "lost", "p95", "errors")
_OPTIONAL_COLUMNS = (*_WIDE_COLUMNS, "unsuccessful", "p95", "total")


@click.command("stats")
@select.archive_options(tables=True)
@click.option("--mcp", is_flag=True, help="Show MCP servers instead of tools.")
@click.option(
    "--by",
    type=NameChoice(GROUPINGS),
    default="tool",
    help="Group by tool, by subagent type, or by the day or hour in which calls began.",
)
@lists.limit_option(30, "tools or servers")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@filter_options
def command(
    *, archive: Archive, mcp: bool, by: str, limit: int, sort: str | None, as_json: bool, call_filter: Filter
) -> None:
    """Show counts, durations and timeouts per tool, and tokens counted once per message.

    Tokens belong to messages, not to calls, so they are omitted if a filter selects calls by tool, kind, state or
    error.
    """
    stats = archive.stats(call_filter, by=by, sort=sort, limit=limit, zone=time_zone())
    if mcp:
        _print_servers(stats.servers, archive.names, limit, as_json=as_json)
    elif as_json:
        print_json(stats)
    else:
        _print_stats(stats, by)
        if stats.tokens is not None and by not in PERIODS:
            _print_tokens(stats.tokens)
        if stats.rows:
            hints = ("calls PATHS --tool TOOL", "lists its calls"), ("errors PATHS", "shows causes of errors")
            lists.print_hints(archive.names, *hints)


def _print_tokens(tokens: Tokens) -> None:
    table = make_table("tokens", "counted once", right=("counted once",))
    for name in Tokens.__struct_fields__:
        table.add_row(name.removesuffix("_tokens").replace("_", " "), f"{getattr(tokens, name):,}")
    make_console().print("\n", table, sep="")


def _print_servers(servers: Sequence[ServerStats], names: Sequence[str], limit: int, *, as_json: bool) -> None:
    visible_servers = servers[: limit or None]
    if as_json:
        print_json({"servers": [msgspec.to_builtins(stats) for stats in visible_servers]})
        return
    if not visible_servers:
        make_console().print("No calls to MCP servers.")
        return
    numbers = ("tools", "calls", "unsuccessful", "timed out", "lost", "p50", "p95", "max")
    is_narrow = make_console().width < _NARROW_WIDTH
    columns = [name for name in ("server", *numbers, "errors") if not is_narrow or name not in _MCP_WIDE_COLUMNS]
    table = make_table(*columns, right=numbers, cut=("server", "errors"))
    for stats in visible_servers:
        cells: dict[str, str | TargetCell] = {
            "server": TargetCell(stats.server, shorten=shorten_middle),
            "tools": f"{stats.tools:,}",
            "calls": f"{stats.calls:,}",
            "unsuccessful": _format_share(stats),
            "timed out": f"{stats.timeouts:,}" if stats.timeouts else "",
            "lost": f"{stats.lost:,}" if stats.lost else "",
            "p50": format_duration(stats.p50_ms),
            "p95": format_duration(stats.p95_ms),
            "max": format_duration(stats.max_ms),
            "errors": ", ".join(f"{n}× {KIND_WORDS.get(kind, kind)}" for kind, n in stats.error_kinds.items()),
        }
        table.add_row(*(cells[column] for column in columns))
    make_console().print(table)
    if hidden := len(servers) - len(visible_servers):
        make_console().print(f"{format_count(hidden, 'more server')} (--limit 0: all)")
    lists.print_hints(names, ("calls PATHS --tool 'mcp__SERVER__*'", "lists the calls of a server"))


def _print_stats(stats: Stats, by: str) -> None:
    out = make_console()
    states = format_states(stats.states, stats.nothing_found)
    orphans = f" and {format_count(stats.orphan_results, 'orphan result')}" if stats.orphan_results else ""
    out.print(
        f"[bold]{format_count(stats.calls, 'call')}{orphans}[/] in {format_count(stats.sessions, 'session')} "
        f"({format_count(stats.files, 'file')}){': ' if states else ''}{states}\n"
    )
    omitted = () if out.width >= _NARROW_WIDTH else _WIDE_COLUMNS if out.width >= _SLIM_WIDTH else _OPTIONAL_COLUMNS
    columns = [name for name in _COLUMN_FORMATS if name not in omitted]
    numbers = [name for name in columns if name not in ("tool", "pace")]
    table = make_table(by, *columns[1:], right=numbers, cut=(by,))
    for row in stats.rows:
        table.add_row(*(_COLUMN_FORMATS[name](row) for name in columns))
    if stats.rows:
        out.print(table)
    if hidden := stats.groups - len(stats.rows):
        out.print(f"{format_count(hidden, f'more {by}')} (--limit 0: all)")
    out.print("[dim]Durations run from request to result and include the wait for permission.[/]")


def _format_share(stats: CallStats | ServerStats) -> str:
    """Return the share of unsuccessful calls."""
    return f"{stats.unsuccessful / stats.calls:.0%}" if stats.unsuccessful else ""


_COLUMN_FORMATS: dict[str, Callable[[CallStats], str | TargetCell]] = {
    "tool": lambda stats: TargetCell(stats.name, shorten=shorten_middle),
    "calls": lambda stats: f"{stats.calls:,}",
    "unsuccessful": _format_share,
    "p50": lambda stats: format_duration(stats.p50_ms),
    "p95": lambda stats: format_duration(stats.p95_ms),
    "max": lambda stats: format_duration(stats.max_ms),
    "total": lambda stats: format_duration(stats.total_ms),
    "timed out": lambda stats: f"{stats.timeout_share:.1%}" if stats.timeouts else "",
    "pace": lambda stats: stats.pace,
}
