"""`toolspan usage`: tokens and cost by day, week, month, block, model, project, session, agent or client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

import click
import msgspec

from toolspan.analysis.prices import PriceTable, load_prices
from toolspan.analysis.usage import (
    GROUPINGS,
    PERIODS,
    FileUsage,
    Grouping,
    ModelRequest,
    UsageRow,
    file_usage,
    group_usage,
    join_requests,
    sum_usage,
)
from toolspan.cli.output import escape_markup, format_count, make_console, make_table, print_json, print_table
from toolspan.cli.select import (
    CallFilter,
    filter_options,
    last_option,
    names_argument,
    read_filtered_files,
)
from toolspan.reading.parallel import FileJob


@click.command("usage")
@names_argument
@last_option
@click.option("--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="What a row stands for.")
@click.option("--prices", type=click.Path(path_type=Path, dir_okay=False), help="A price table that takes precedence.")
@click.option("--utc", is_flag=True, help="Begin days at midnight UTC instead of local midnight.")
@click.option("--limit", default=0, type=click.IntRange(min=0), help="Show at most this many rows; 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    names: tuple[str, ...], *, last: bool, by: Grouping, prices: Path | None, utc: bool, limit: int, as_json: bool,
    call_filter: CallFilter,
) -> None:  # fmt: skip
    """Show tokens and cost: per day, or --by another grouping.

    Each model request counts once, also if forks and resumes copied it. Input excludes cached
    tokens for every client. Costs are list prices; a model without a price shows "no price".
    """
    table = load_prices(prices)
    files = read_filtered_files(names, FileJob(file_usage, FileUsage), call_filter, last=last)
    requests = [request for request in join_requests(files) if _is_selected(request, call_filter)]
    rows = group_usage(requests, by, prices=table, zone=UTC if utc else None)
    visible = rows[-limit:] if by in PERIODS else rows[: limit or None]
    if as_json:
        print_json(*(usage_record(row, by) for row in visible))
    else:
        _print_usage(visible, sum_usage("total", requests, table), by, table, hidden=len(rows) - len(visible))


def _is_selected(request: ModelRequest, call_filter: CallFilter) -> bool:
    since, until, agent = call_filter.since, call_filter.until, call_filter.agent
    if agent is not None and not request.agent.startswith(agent):
        return False
    if request.at is None:
        return since is None and until is None
    return (since is None or request.at >= since) and (until is None or request.at < until)


def usage_record(row: UsageRow, by: Grouping) -> dict[str, object]:
    """Return a row as a JSON object."""
    return {
        "period" if by in PERIODS else by: row.name,
        "requests": row.requests,
        **msgspec.to_builtins(row.tokens),
        "cost_usd": round(row.cost_usd, 9) if row.cost_usd is not None else None,
        "unpriced_requests": row.unpriced_requests,
        "models": list(row.models),
    }


def _print_usage(rows: Sequence[UsageRow], total: UsageRow, by: Grouping, prices: PriceTable, *, hidden: int) -> None:
    out = make_console()
    if not rows:
        out.print("No tokens recorded.")
        return
    numbers = ("requests", "input", "output", "cache write", "cache read", "cost")
    table = make_table(by, *numbers, right=numbers, cut=(by,))
    for row in (*rows, total):
        tokens = row.tokens
        counts = (
            row.requests, tokens.input_tokens, tokens.output_tokens,
            tokens.cache_creation_input_tokens, tokens.cache_read_input_tokens,
        )  # fmt: skip
        table.add_row(
            escape_markup(row.name), *(f"{count:,}" for count in counts), format_cost(row), end_section=row is rows[-1]
        )
    print_table(table)
    if hidden:
        out.print(f"{format_count(hidden, 'more row')} (--limit 0: all)")
    note = f"List prices of {prices.date or 'unknown date'} ({prices.source})."
    if total.unpriced_models:
        note += f" * excludes models without a price: {', '.join(map(escape_markup, total.unpriced_models))}."
    out.print(f"[dim]{note}[/]")


def format_cost(row: UsageRow) -> str:
    """Return the cost for people, with a star if it excludes requests without a price."""
    if row.cost_usd is None:
        return "no price" if row.unpriced_requests else "$0.00"
    return f"${row.cost_usd:,.2f}" + ("*" if row.unpriced_requests else "")
