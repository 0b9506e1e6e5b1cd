"""`toolspan usage`: tokens and cost by day, week, month, block, model, project, session, agent or client, and the
results that fill the context.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from toolspan.analysis.prices import PriceTable, load_prices
from toolspan.analysis.usage import (
    GROUPINGS,
    PERIODS,
    USAGE_JOB,
    Grouping,
    RequestJoiner,
    UsageRequest,
    UsageRow,
    filter_requests,
    group_usage,
    join_requests,
    sum_rows,
)
from toolspan.cli.filters import CallFilter, filter_options
from toolspan.cli.lists import CALL_HINT, SortOrder, print_hints, sort_option
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_count,
    make_console,
    make_table,
    print_json,
    print_table,
    shorten_middle,
    shorten_target,
    time_zone,
)
from toolspan.cli.select import (
    MIN_CACHED_BYTES,
    check_session,
    explain_nothing,
    last_option,
    locate_files,
    names_argument,
    read_files,
    read_filtered_files,
    selected_tables,
    tables_option,
)
from toolspan.reading.lineage import group_sessions, sessions_named
from toolspan.reading.parallel import FileJob
from toolspan.types.session import Tokens
from toolspan.types.span import is_within

if TYPE_CHECKING:
    from toolspan.analysis.context_size import ContextCall

_NARROW_WIDTH = 100
_COLUMN_GAP = 3
_CONTEXT_ROWS = 15
_SHORT_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))

_SORT_COLUMNS = ("name", "requests", *Tokens.__struct_fields__, "cost_usd")
_SORT_ALIASES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_write": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cost": "cost_usd",
    **dict.fromkeys(("period", *GROUPINGS), "name"),
}


@click.command("usage")
@names_argument
@last_option
@tables_option
@click.option("--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="The grouping of the rows.")
@click.option("--context", is_flag=True, help="Show which results fill the context, by tool and by call.")
@click.option(
    "--prices", type=click.Path(path_type=Path, dir_okay=False), help="Prices that override the built-in ones."
)
@sort_option(*_SORT_COLUMNS, **_SORT_ALIASES)
@click.option("--limit", type=click.IntRange(min=0),
              help=f"Show at most this many rows; 0 for all.  [default: 0; {_CONTEXT_ROWS} of --context]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    names: tuple[str, ...], *, last: bool, by: Grouping, context: bool, prices: Path | None,
    sort: SortOrder | None, limit: int | None, as_json: bool, call_filter: CallFilter,
) -> None:  # fmt: skip
    """Show tokens and cost: per day, or --by another grouping.

    Each model request counts once, even if forks and resumes copied it. Input excludes cached
    tokens for every client. Costs are list prices; a model without a price shows "no price".

    --context shows how many bytes the results of calls put into the conversation, and how many
    requests contained them.
    """
    if call_filter.state or call_filter.error or (call_filter.tool and not context):
        raise click.UsageError("--tool, --state and --error select calls, but tokens belong to requests")
    if context:
        _show_context(names, call_filter, limit=limit, as_json=as_json, last=last)
        return
    zone = time_zone()
    table = load_prices(prices)
    if call_filter == CallFilter() and prices is None and selected_tables() is None:
        rows = _all_usage(names, by, table, zone, last=last)
    else:
        requests, paths = read_requests(names, call_filter, last=last)
        rows = group_usage(requests, by, prices=table, zone=zone)
        if not rows:
            explain_nothing(call_filter, paths)
    if sort is not None:
        rows = sort.sort(rows, _sort_value)
    latest_last = by in PERIODS and sort is None
    visible = rows[-(limit or 0) :] if latest_last else rows[: limit or None]
    if as_json:
        print_json(*(usage_record(row, by) for row in visible))
    else:
        _print_usage(visible, sum_rows("total", rows), by, table, hidden=len(rows) - len(visible))
        if by == "session":
            print_hints(
                names, ("usage PATHS --context", "shows what fills the context"), ("show SESSION PATHS", "shows one")
            )
        else:
            print_hints(names, ("usage PATHS --by session", "shows the cost per session"))


def read_requests(
    names: Sequence[str], call_filter: CallFilter, *, last: bool, as_recorded: bool = False
) -> tuple[list[UsageRequest], list[str]]:
    """Return the requests that a filter accepts, and the files that were read.

    Other sessions are read, too, because a request that a fork or resume copied belongs to the original session.
    """
    files = read_filtered_files(names, USAGE_JOB, call_filter._replace(session=None), last=last)
    joined = join_requests(files, as_recorded=as_recorded)
    requests = filter_requests(joined, call_filter.since, call_filter.until, call_filter.agent)
    if call_filter.session is not None:
        check_session(call_filter.session, (file.info for file in files))
        session_ids = {session.id for session in sessions_named(group_sessions(files), call_filter.session)}
        requests = [request for request in requests if request.session in session_ids]
    return requests, [file.file for file in files]


def _sort_value(row: UsageRow, column: str) -> object:
    return getattr(row.tokens if column in Tokens.__struct_fields__ else row, column)


def _all_usage(
    names: Sequence[str], by: Grouping, prices: PriceTable, zone: tzinfo | None, *, last: bool
) -> list[UsageRow]:
    """Return the usage of all requests, from the cache if no file has changed since it was last computed."""
    from toolspan.reading.cache import Cache, StampedFiles, cached_answer, default_folder

    files, _ = locate_files(names, last=last)
    rows: list[UsageRow] = []

    def compute(stamped: StampedFiles | None = None) -> list[UsageRow] | None:
        joiner = RequestJoiner()
        usages = read_files(files, USAGE_JOB, stamped, joiner.add)
        requests = joiner.join(usages)
        rows[:] = group_usage(requests, by, prices=prices, zone=zone)
        return None if any(usage.problem for usage in usages) else rows

    folder = default_folder()
    if folder is None or sum(file.size for file in files) < MIN_CACHED_BYTES:
        return compute() or rows
    local_zone = f"{os.environ.get('TZ')} {time.tzname} {time.timezone} {realpath('/etc/localtime')}"
    question = f"usage by {by}, prices of {prices.date}, {zone or local_zone}"
    stamped = StampedFiles.from_listing(files)
    answer = cached_answer(stamped, question, list[UsageRow], partial(compute, stamped), Cache(folder))
    return rows if answer is None else answer


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
    is_narrow = out.width < _NARROW_WIDTH
    numbers = ("requests", "input", "output", "cache write", "cache read", "cost")[is_narrow:]
    format_number = short_number if is_narrow else "{:,}".format
    cells = []
    for row in (*rows, total):
        counts = (row.requests, *msgspec.structs.astuple(row.tokens))[is_narrow:]
        cells.append([*map(format_number, counts), format_cost(row)])
    name_width = _remaining_width(out.width, numbers, cells)
    table = make_table(by, *numbers, right=numbers)
    for row, values in zip((*rows, total), cells, strict=True):
        name = (shorten_target if by == "project" else shorten_middle)(row.name, name_width)
        table.add_row(escape_markup(name), *values, end_section=row is rows[-1])
    print_table(table)
    if hidden:
        out.print(f"{format_count(hidden, 'more row')} (--limit 0: all)")
    note = f"List prices of {prices.date or 'unknown date'} ({prices.source})."
    if total.unpriced_models:
        star = "no price: requests to" if total.cost_usd is None else "* excludes models without a price:"
        note += f" {star} {', '.join(map(escape_markup, total.unpriced_models))} (--prices FILE adds prices)."
    out.print(f"[dim]{note}[/]")


def format_cost(row: UsageRow) -> str:
    """Format a cost, with a star if it excludes requests without a price."""
    if row.cost_usd is None:
        return "no price" if row.unpriced_requests else "$0.00"
    return f"${row.cost_usd:,.2f}" + ("*" if row.unpriced_requests else "")


def _remaining_width(width: int, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width available for one more column beside these cells."""
    widths = (max(len(head), *map(len, column)) for head, *column in zip(heads, *rows, strict=True))
    return width - sum(column + _COLUMN_GAP for column in widths)


def short_number(count: float) -> str:
    """Return a number in at most five characters, such as `17.5M`."""
    for size, unit in _SHORT_UNITS:
        if count >= size:
            scaled = count / size
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{count:g}"


# What fills the context


def _show_context(
    names: tuple[str, ...], call_filter: CallFilter, *, limit: int | None, as_json: bool, last: bool
) -> None:
    from toolspan.analysis.context_size import (
        BYTES_PER_TOKEN,
        FileContext,
        context_by_tool,
        file_context,
        join_context,
    )
    from toolspan.reading.history import short_id

    files = read_filtered_files(names, FileJob(file_context, FileContext), call_filter, last=last)
    calls = [call for call in join_context(files) if _accepts_context(call, call_filter)]
    limit = (0 if as_json else _CONTEXT_ROWS) if limit is None else limit
    visible, tools = calls[: limit or None], context_by_tool(calls)
    if as_json:
        print_json(*({"row": "tool", **msgspec.to_builtins(tool)} for tool in tools))
        print_json(*({"row": "call", **msgspec.to_builtins(call)} for call in visible))
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
    for call in visible:
        counts = (call.bytes, call.estimated_tokens, call.requests, call.resent_tokens)[-len(visible_numbers) :]
        labels = escape_markup(short_id(call.call)[:8]), escape_markup(shorten_middle(call.tool, 14))
        table.add_row(*labels, *map(short_number, counts), TargetCell(call.target))
    print_table(table)
    if hidden := len(calls) - len(visible):
        out.print(f"{format_count(hidden, 'more call')} (--limit 0: all)")
    out.print(
        f"[dim]Tokens are an estimate: {BYTES_PER_TOKEN} bytes each. requests: how many model requests contained the "
        "result, up to the next compaction or the end (mean per tool). tokens sent: tokens times requests.[/]"
    )
    print_hints(names, CALL_HINT)


def _accepts_context(call: ContextCall, call_filter: CallFilter) -> bool:
    if call_filter.tool and not call_filter.accepts_tool(call.tool):
        return False
    if call_filter.agent is not None and not (call.agent or "").startswith(call_filter.agent):
        return False
    return is_within(call.at, call_filter.since, call_filter.until)
