"""`toolspan usage`: tokens and cost by day, week, month, block, model, project, session, agent or client, and the
results that fill the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from toolspan.analysis.usage import GROUPINGS, Grouping
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.usage import SORT_ALIASES, SORT_COLUMNS, Usage, UsageRows
from toolspan.archive.words import format_count, short_number, shorten_line, shorten_middle
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    make_console,
    make_table,
    print_json,
    print_table,
    shorten_target,
    time_zone,
)
from toolspan.types.session import Tokens

_NARROW_WIDTH = 100
_COLUMN_GAP = 3
_CONTEXT_ROWS = 15
_SHORT_ID = 13


@click.command("usage")
@select.archive_options(tables=True)
@click.option("--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="The grouping of the rows.")
@click.option("--context", is_flag=True, help="Show which results fill the context, by tool and by call.")
@click.option(
    "--prices", type=click.Path(path_type=Path, dir_okay=False), help="Prices that override the built-in ones."
)
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--limit", type=click.IntRange(min=0),
              help=f"Show at most this many rows; 0 for all.  [default: 0; {_CONTEXT_ROWS} of --context]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    *, archive: Archive, by: Grouping, context: bool, prices: Path | None, sort: str | None, limit: int | None,
    as_json: bool, call_filter: Filter,
) -> None:  # fmt: skip
    """Show tokens and cost: per day, or --by another grouping.

    Each model request counts once, even if forks and resumes copied it. Input excludes cached
    tokens for every client. Costs are list prices; a model without a price shows "no price".

    --context shows how many bytes the results of calls put into the conversation, and how many
    requests contained them.
    """
    if context:
        _show_context(archive, call_filter, limit=limit, as_json=as_json)
        return
    rows = archive.usage(call_filter, by=by, prices=prices, sort=sort, limit=limit, zone=time_zone())
    if as_json:
        print_json(*rows)
        return
    _print_usage(rows, by)
    if by == "session":
        hints = ("usage PATHS --context", "shows what fills the context"), ("show SESSION PATHS", "shows one")
        lists.print_hints(archive.names, *hints)
    else:
        lists.print_hints(archive.names, ("usage PATHS --by session", "shows the cost per session"))


def _print_usage(rows: UsageRows, by: Grouping) -> None:
    out = make_console()
    if not rows:
        out.print("No tokens recorded.")
        return
    is_narrow = out.width < _NARROW_WIDTH
    numbers = ("requests", "input", "output", "cache write", "cache read", "cost")[is_narrow:]
    format_number = short_number if is_narrow else "{:,}".format
    cells = []
    for row in (*rows, rows.sum):
        counts = (row.requests, *(getattr(row, name) for name in Tokens.__struct_fields__))[is_narrow:]
        cells.append([*map(format_number, counts), format_cost(row)])
    name_width = _remaining_width(out.width, numbers, cells)
    about = ("about",) if by == "session" else ()
    table = make_table(by, *numbers, *about, right=numbers, cut=about)
    for row, values in zip((*rows, rows.sum), cells, strict=True):
        name = (shorten_target if by == "project" else shorten_middle)(row.name, name_width)
        name = name[:_SHORT_ID] if about else name
        titles = (TargetCell(row.title, shorten=shorten_line),) if about else ()
        table.add_row(escape_markup(name), *values, *titles, end_section=row is rows[-1])
    print_table(table)
    if hidden := rows.total - len(rows):
        out.print(f"{format_count(hidden, 'more row')} (--limit 0: all)")
    note = f"List prices of {rows.prices.date or 'unknown date'} ({rows.prices.source})."
    if rows.unpriced_models:
        star = "no price: requests to" if rows.sum.cost_usd is None else "* excludes models without a price:"
        note += f" {star} {', '.join(map(escape_markup, rows.unpriced_models))} (--prices FILE adds prices)."
    out.print(f"[dim]{note}[/]")


def format_cost(row: Usage) -> str:
    """Format a cost, with a star if it excludes requests without a price."""
    if row.cost_usd is None:
        return "no price" if row.unpriced_requests else "$0.00"
    return f"${row.cost_usd:,.2f}" + ("*" if row.unpriced_requests else "")


def _remaining_width(width: int, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width available for one more column beside these cells."""
    widths = (max(len(head), *map(len, column)) for head, *column in zip(heads, *rows, strict=True))
    return width - sum(column + _COLUMN_GAP for column in widths)


# What fills the context


def _show_context(archive: Archive, call_filter: Filter, *, limit: int | None, as_json: bool) -> None:
    from toolspan.analysis.context_size import BYTES_PER_TOKEN
    from toolspan.reading.history import short_id

    limit = (0 if as_json else _CONTEXT_ROWS) if limit is None else limit
    context = archive.context(call_filter, limit=limit)
    calls, tools = context.calls, context.tools
    if as_json:
        print_json(*context.to_rows())
        return
    out = make_console()
    if not calls:
        out.print("No results recorded.")
        return
    numbers = ("bytes", "≈ tokens", "requests", "≈ tokens sent")
    table = make_table("tool", "calls", *numbers, right=("calls", *numbers), cut=("tool",))
    for tool in tools[: limit or None]:
        sizes = (tool.calls, tool.bytes, tool.estimated_tokens, tool.requests, tool.resent_tokens)
        table.add_row(escape_markup(tool.tool), *map(short_number, sizes))
    print_table(table)
    if limit and len(tools) > limit:
        out.print(f"{format_count(len(tools) - limit, 'more tool')} (--limit 0: all)")
    visible_numbers = numbers[out.width < _NARROW_WIDTH :]
    table = make_table("call", "tool", *visible_numbers, "about", right=numbers, cut=("about",))
    for call in calls:
        counts = (call.bytes, call.estimated_tokens, call.requests, call.resent_tokens)[-len(visible_numbers) :]
        labels = escape_markup(short_id(call.call)[:8]), escape_markup(shorten_middle(call.tool, 14))
        table.add_row(*labels, *map(short_number, counts), TargetCell(call.target))
    print_table(table)
    if hidden := context.total - len(calls):
        out.print(f"{format_count(hidden, 'more call')} (--limit 0: all)")
    out.print(
        f"[dim]Tokens are an estimate: {BYTES_PER_TOKEN} bytes each. requests: how many model requests contained the "
        "result, up to the next compaction or the end (mean per tool). tokens sent: tokens times requests.[/]"
    )
    lists.print_hints(archive.names, lists.CALL_HINT)
