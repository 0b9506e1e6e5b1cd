"""`toolspan compare`: two sessions, folders, files or periods side by side."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click
from rich.text import Text

from toolspan.analysis.compare import ComparedSide, Comparison, Parting, Step
from toolspan.analysis.timing import TIME_PARTS
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_count, format_duration, plain_line
from toolspan.cli.filters import SINCE_TYPE, filter_options
from toolspan.cli.lists import CALL_HINT, print_hints
from toolspan.cli.output import (
    escape_markup,
    format_time,
    make_console,
    make_table,
    print_json,
    print_table,
    shorten_target,
)
from toolspan.cli.select import REPORTER, complete_session, fetch_stores
from toolspan.formats.source import to_path
from toolspan.reading.history import short_id
from toolspan.types.error_kinds import KIND_WORDS

_MAX_ROWS = 10
_TOKEN_LABELS = {
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cache_creation_input_tokens": "cache write tokens",
    "cache_read_input_tokens": "cache read tokens",
}


@click.command("compare")
@click.argument("names", nargs=-1, callback=fetch_stores, shell_complete=complete_session, metavar="[A B [FOLDER]...]")
@click.option("--at", type=SINCE_TYPE, metavar="TIME",
              help="Compare the time before and after this: 7d, monday, 2026-11-01.")  # fmt: skip
@click.option(
    "--prices", type=click.Path(path_type=Path, dir_okay=False), help="Prices that override the built-in ones."
)
@click.option("--limit", default=_MAX_ROWS, show_default=True, type=click.IntRange(min=0),
              help="Show at most this many tools and kinds of errors; 0 for all.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@filter_options
def command(
    names: tuple[str, ...], *, at: datetime | None, prices: Path | None, limit: int, as_json: bool,
    call_filter: Filter,
) -> None:  # fmt: skip
    """Compare two sessions, folders or files, or two periods.

    toolspan compare compares the last two sessions. toolspan compare A B compares two sessions,
    folders or files, or two periods such as 2026-02 and 2026-03; with FOLDERs, A and B are sessions
    or periods in them. toolspan compare --since 14d --at 7d compares
    the time before --at with the time after it. For two sessions with the same beginning, the
    output shows where they diverge.
    """
    if at is not None:
        comparison = Archive(*names, reporter=REPORTER).compare_periods(at, call_filter, prices=prices)
    elif not names and call_filter.since is None and call_filter.until is None:
        comparison = Archive(reporter=REPORTER).compare(call_filter=call_filter, prices=prices)
    elif len(names) < 2 or not all(to_path(folder).is_dir() for folder in names[2:]):
        raise click.UsageError("name two sessions, folders or files, or a time with --at: compare --since 14d --at 7d")
    else:
        archive = Archive(*names[2:], reporter=REPORTER)
        comparison = archive.compare(names[0], names[1], call_filter, prices=prices)
    if as_json:
        print_json(comparison)
        return
    _print_comparison(comparison, limit)
    if at is None and len(names) == 2:
        print_hints((), (f"errors {shlex.quote(names[1])}", "shows the unsuccessful calls of B"), CALL_HINT)


def _print_comparison(comparison: Comparison, limit: int) -> None:
    out = make_console()
    a, b = comparison.a, comparison.b
    is_period = (a.name, b.name) == ("before", "after")
    for letter, side in (("A", a), ("B", b)):
        if is_period:
            text = f"{format_time(side.since) or 'the beginning'} to {format_time(side.until) or 'now'}"
        else:
            text = side.name
        out.print(Text(f"{letter}  ", style="bold").append(shorten_target(text, out.width - 3)))
    numbers = ("A", "B", "change")
    table = make_table("", *numbers, right=numbers)
    for section in _table_sections(comparison, limit):
        for n, (label, *cells) in enumerate(section):
            table.add_row(escape_markup(label), *cells, end_section=n == len(section) - 1)
    print_table(table)
    if comparison.parting is not None:
        _print_parting(comparison.parting)
    elif not is_period and a.sessions == b.sessions == 1:
        out.print("[dim]The two sessions begin differently.[/]")
    if any(side.unpriced_requests and side.cost_usd is not None for side in (a, b)):
        out.print("[dim]* excludes requests to models without a price.[/]")


_Row = tuple[str, str, str, str]


def _table_sections(comparison: Comparison, limit: int) -> Iterator[list[_Row]]:
    a, b = comparison.a, comparison.b
    yield [
        _count_row(label, getattr(a, name), getattr(b, name))
        for label, name in (("sessions", "sessions"), ("calls", "calls"), ("unsuccessful calls", "unsuccessful"))
    ]
    if kinds := _largest_rows(a.error_kinds, b.error_kinds, limit, "kind"):
        yield [_count_row(f"  {KIND_WORDS.get(kind, kind)}", *counts) for kind, *counts in kinds]
    yield [
        _duration_row(label, a.time.part_ms(part), b.time.part_ms(part))
        for part, label in ((part, f"time: {part.replace('_', ' ')}") for part in TIME_PARTS)
    ]
    token_rows = [
        _count_row(label, getattr(a.tokens, name), getattr(b.tokens, name)) for name, label in _TOKEN_LABELS.items()
    ]
    totals = [sum(getattr(side.tokens, name) for name in _TOKEN_LABELS) for side in (a, b)]
    token_rows.append(_count_row("all tokens", *totals))
    yield [_count_row("model requests", a.requests, b.requests), *token_rows, _cost_row(a, b)]
    yield [
        _count_row("files changed", a.files_changed, b.files_changed),
        _count_row("lines added", a.lines_added, b.lines_added),
        _count_row("lines removed", a.lines_removed, b.lines_removed),
    ]
    if tools := _largest_rows(a.tools, b.tools, limit, "tool"):
        yield [_count_row(*row) for row in tools]


def _largest_rows(a: dict[str, int], b: dict[str, int], limit: int, noun: str) -> list[tuple[str, int, int]]:
    """Return the names with the largest counts, and one row with the sum of the others."""
    names = sorted({**a, **b}, key=lambda name: (-a.get(name, 0) - b.get(name, 0), name))
    rows = [(name, a.get(name, 0), b.get(name, 0)) for name in names]
    if not limit or len(rows) <= limit:
        return rows
    rest = rows[limit:]
    label = f"{format_count(len(rest), f'more {noun}')} (--limit 0)"
    return [*rows[:limit], (label, sum(row[1] for row in rest), sum(row[2] for row in rest))]


def _count_row(label: str, a: int, b: int) -> _Row:
    change = b - a
    share = f" ({change / a:+.0%})" if a and change else ""
    return label, f"{a:,}", f"{b:,}", f"{change:+,}{share}" if change else "="


def _duration_row(label: str, a: int, b: int) -> _Row:
    change = b - a
    sign = "+" if change > 0 else "-"
    share = f" ({change / a:+.0%})" if a else ""
    text = f"{sign}{format_duration(abs(change))}{share}" if change else "="
    return label, format_duration(a), format_duration(b), text


def _cost_row(a: ComparedSide, b: ComparedSide) -> _Row:
    cells = [
        ("no price" if side.unpriced_requests else "$0.00")
        if side.cost_usd is None
        else f"${side.cost_usd:,.2f}" + ("*" if side.unpriced_requests else "")
        for side in (a, b)
    ]
    if a.cost_usd is None or b.cost_usd is None:
        return "cost", cells[0], cells[1], "?"
    change = b.cost_usd - a.cost_usd
    share = f" ({change / a.cost_usd:+.0%})" if a.cost_usd else ""
    return "cost", cells[0], cells[1], f"{'+' if change >= 0 else '-'}${abs(change):,.2f}{share}"


def _print_parting(parting: Parting) -> None:
    out = make_console()
    steps = "step" if parting.shared_steps == 1 else "steps"
    if parting.a is None and parting.b is None and parting.first_different_result is None:
        out.print(f"\nBoth take the same {parting.shared_steps:,} {steps}, with the same results.", style="bold")
        return
    out.print(f"\nBoth begin with the same {parting.shared_steps:,} {steps} and diverge after:", style="bold")
    rows: list[tuple[str, Step | None]] = [("both", parting.last_shared), ("A", parting.a), ("B", parting.b)]
    if parting.first_different_result is not None:
        rows.append(("differs", parting.first_different_result))
    for label, step in rows:
        out.print(Text(f"  {label:8}", style="dim").append(plain_line(_describe_step(step), out.width - 10)))
    if parting.first_different_result is not None:
        out.print("[dim]differs: the first shared call whose results are not the same[/]")


def _describe_step(step: Step | None) -> str:
    if step is None:
        return "ends here"
    if step.kind == "prompt":
        return f"❯ {step.text}"
    place = f"{short_id(step.call or '')[:8]} · line {step.line} · {(step.state or '').replace('_', ' ')}"
    return f"{step.tool} {plain_line(step.text, 80)} · {place}"
