"""`toolspan stats`: counts, durations and timeouts per tool; tokens."""

from collections import Counter
from typing import Any

import click
import msgspec

from toolspan.cli.output import console, count, duration, escape, print_json, table
from toolspan.cli.select import Filter, Selection, complete_session, filters, select
from toolspan.model.tokens import Tokens
from toolspan.read.facts import CallFacts
from toolspan.read.groups import tool_stats


@click.command("stats")
@click.argument(
    "names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]..."
)
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@filters
def command(names: tuple[str, ...], *, last: bool, as_json: bool, **wanted: Any) -> None:
    """Counts, durations and timeouts per tool; tokens counted once per message.

    Filters choose calls; tokens are those of everything named.
    """
    keep = Filter(**wanted)
    found = select(names, last=last)
    rows = [row for row in found.calls() if keep.takes(row)]
    if as_json:
        print_json(_row(found, rows))
    else:
        _print(found, rows)


def _tokens(found: Selection) -> tuple[Tokens, Tokens]:
    ledger = found.ledger
    return ledger.tokens, ledger.tokens_raw_sum


def _row(found: Selection, rows: list[CallFacts]) -> dict[str, object]:
    tokens, raw = _tokens(found)
    files = found.ledger.files
    return {
        "files": len(files),
        "sessions": len(found.ledger.sessions),
        "lines": sum(file.counts.lines for file in files),
        "malformed": sum(file.counts.malformed for file in files),
        "calls": sum(row.state != "orphan_result" for row in rows),
        "orphan_results": sum(row.state == "orphan_result" for row in rows),
        "states": dict(Counter(row.state for row in rows)),
        "error_kinds": dict(Counter(row.error_kind for row in rows if row.error_kind)),
        "tokens": msgspec.to_builtins(tokens),
        "tokens_raw_sum": msgspec.to_builtins(raw),
        "tools": [msgspec.to_builtins(stats) for stats in tool_stats(rows)],
    }


def _print(found: Selection, rows: list[CallFacts]) -> None:
    out = console()
    states = Counter(row.state for row in rows)
    files = found.ledger.files
    out.print(
        f"[bold]{count(len(rows) - states['orphan_result'], 'call')}[/] in "
        f"{count(len(found.ledger.sessions), 'session')} ({count(len(files), 'file')}): "
        + ", ".join(f"{n:,} {state}" for state, n in states.most_common())
        + "\n"
    )
    listing = table(
        "tool", "calls", "wrong", "p50", "p95", "max", "total", "timed out", "pace",
        right=("calls", "wrong", "p50", "p95", "max", "total", "timed out"),
    )  # fmt: skip
    for stats in tool_stats(rows):
        listing.add_row(
            escape(stats.tool),
            f"{stats.calls:,}",
            f"{stats.errors / stats.calls:.0%}" if stats.errors else "",
            duration(stats.p50_ms),
            duration(stats.p95_ms),
            duration(stats.max_ms),
            duration(stats.total_ms),
            f"{stats.timeout_share:.1%}" if stats.timeouts else "",
            stats.pace,
        )
    out.print(listing)
    _print_tokens(found)


def _print_tokens(found: Selection) -> None:
    tokens, raw = _tokens(found)
    listing = table("tokens", "counted once", "naive sum", right=("counted once", "naive sum"))
    for name in Tokens.__struct_fields__:
        label = name.removesuffix("_tokens").replace("_", " ")
        listing.add_row(label, f"{getattr(tokens, name):,}", f"{getattr(raw, name):,}")
    console().print("\n", listing, sep="")
    console().print(
        "[dim]Durations run from request to result and include the wait for permission.[/]"
    )
