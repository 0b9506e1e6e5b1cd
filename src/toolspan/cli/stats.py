"""`toolspan stats`: counts, durations and timeouts per tool; tokens."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from toolspan.cli.output import console, count, duration, escape, print_json, table
from toolspan.cli.select import (
    Filter,
    Selection,
    filters,
    limited,
    named,
    narrow,
    select,
    wanted_filter,
)
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts
from toolspan.read.groups import ToolStats, server_stats, tool_stats
from toolspan.read.history import Ledger
from toolspan.read.survey import FileFacts

_NARROW = 100
"""On a narrower screen, the rarer numbers make room for the tool's name."""
_RARER = ("timed out", "pace")
_SLIM = 60
"""On one narrower than this, more numbers do."""
_RARE = (*_RARER, "wrong", "p95", "total")


@click.command("stats")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--mcp", is_flag=True, help="The health of each MCP server instead.")
@limited(30, "Tools or servers")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@filters
def command(
    names: tuple[str, ...], *, last: bool, mcp: bool, limit: int, as_json: bool, **wanted: Any
) -> None:
    """Counts, durations and timeouts per tool; tokens counted once per message.

    Tokens belong to messages, not to calls: with a filter that chooses calls (tool, state, error,
    agent, time) they are left out.
    """
    keep = wanted_filter(wanted)
    everything = select(names, last=last)
    rows = narrow(everything, keep)
    if mcp:
        _servers(rows, limit, as_json=as_json)
        return
    found = _narrowed(everything, keep)
    if as_json:
        print_json({**_row(found, rows, keep), "tools": _tools(rows, limit)})
    else:
        _print(found, rows, limit)
        if not _chooses_calls(keep):
            _print_tokens(found)


def _servers(rows: list[CallFacts], limit: int, *, as_json: bool) -> None:
    """Each MCP server's calls, errors, timeouts, lost connections and times."""
    every = server_stats(rows)
    found = every[: limit or None]
    if as_json:
        print_json({"servers": [msgspec.to_builtins(stats) for stats in found]})
        return
    if not found:
        console().print("No calls of MCP servers.")
        return
    listing = table(
        "server", "tools", "calls", "wrong", "timed out", "lost", "p50", "p95", "max", "errors",
        right=("tools", "calls", "wrong", "timed out", "lost", "p50", "p95", "max"),
        cut=("server", "errors"),
    )  # fmt: skip
    for stats in found:
        listing.add_row(
            escape(stats.server),
            f"{stats.tools:,}",
            f"{stats.calls:,}",
            f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
            f"{stats.timeouts:,}" if stats.timeouts else "",
            f"{stats.lost:,}" if stats.lost else "",
            duration(stats.p50_ms),
            duration(stats.p95_ms),
            duration(stats.max_ms),
            ", ".join(f"{n}× {kind}" for kind, n in stats.error_kinds.items()),
        )
    console().print(listing)
    if hidden := len(every) - len(found):
        console().print(f"{count(hidden, 'more server')} (--limit 0: all)")


def _narrowed(found: Selection, keep: Filter) -> Selection:
    """Only the files that a filter can mean, so that sessions and tokens are theirs."""
    if keep == Filter():
        return found
    files = [file for file in found.ledger.files if _meant(file, keep)]
    if _chooses_calls(keep):
        files = [replace(file, message_tokens={}, tokens_raw_sum=Tokens()) for file in files]
    return Selection(Ledger(files), found.joined)


def _meant(file: FileFacts, keep: Filter) -> bool:
    if not keep.takes_file(file.file, file.info):
        return False
    if keep.session is not None or not _chooses_calls(keep):
        return True
    return any(keep.takes(row, file.info.cwd) for row in file.calls)


def _chooses_calls(keep: Filter) -> bool:
    return keep._replace(project=None, session=None, dialect=None) != Filter()


def _row(found: Selection, rows: list[CallFacts], keep: Filter) -> dict[str, object]:
    ledger = found.ledger
    files = ledger.files
    counted = not _chooses_calls(keep)
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


def _tools(rows: list[CallFacts], limit: int) -> list[dict[str, object]]:
    return [msgspec.to_builtins(stats) for stats in tool_stats(rows)[: limit or None]]


def _print(found: Selection, rows: list[CallFacts], limit: int) -> None:
    out = console()
    states = Counter(row.state for row in rows)
    files = found.ledger.files
    out.print(
        f"[bold]{count(len(rows) - states['orphan_result'], 'call')}[/] in "
        f"{count(len(found.ledger.sessions), 'session')} ({count(len(files), 'file')})"
        + (": " if states else "")
        + ", ".join(f"{n:,} {state}" for state, n in states.most_common())
        + "\n"
    )
    tools = tool_stats(rows)
    _print_tools(tools[:limit] if limit else tools)
    hidden = len(tools) - limit if limit else 0
    if hidden > 0:
        out.print(f"{count(hidden, 'more tool')} (--limit 0: all)")
    out.print("[dim]Durations run from request to result and include the wait for permission.[/]")


def _print_tools(tools: Sequence[ToolStats]) -> None:
    out = console()
    left_out = () if out.width >= _NARROW else _RARER if out.width >= _SLIM else _RARE
    columns = [name for name in _COLUMNS if name not in left_out]
    numbers = [name for name in columns if name not in ("tool", "pace")]
    listing = table(*columns, right=numbers, cut=("tool",))
    for stats in tools:
        listing.add_row(*(_COLUMNS[name](stats) for name in columns))
    if tools:
        out.print(listing)


_COLUMNS: dict[str, Callable[[ToolStats], str]] = {
    "tool": lambda stats: escape(stats.tool),
    "calls": lambda stats: f"{stats.calls:,}",
    "wrong": lambda stats: f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
    "p50": lambda stats: duration(stats.p50_ms),
    "p95": lambda stats: duration(stats.p95_ms),
    "max": lambda stats: duration(stats.max_ms),
    "total": lambda stats: duration(stats.total_ms),
    "timed out": lambda stats: f"{stats.timeout_share:.1%}" if stats.timeouts else "",
    "pace": lambda stats: stats.pace,
}


def _print_tokens(found: Selection) -> None:
    tokens, raw = found.ledger.tokens, found.ledger.tokens_raw_sum
    listing = table("tokens", "counted once", "naive sum", right=("counted once", "naive sum"))
    for name in Tokens.__struct_fields__:
        label = name.removesuffix("_tokens").replace("_", " ")
        listing.add_row(label, f"{getattr(tokens, name):,}", f"{getattr(raw, name):,}")
    console().print("\n", listing, sep="")
