"""`toolspan errors`: unsuccessful calls in groups, with causes, solutions and recoveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from toolspan.analysis.errors import ErrorGroup
from toolspan.analysis.recovery import CHAIN_WORDS
from toolspan.archive.answers import Rows
from toolspan.archive.archive import Archive
from toolspan.archive.errors import GROUPINGS, SORT_COLUMNS, TOTAL_SORT_COLUMNS, ErrorGrouping, ErrorGroups, ErrorTotals
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_count, format_duration, shorten_line, shorten_middle
from toolspan.cli import lists, select
from toolspan.cli.error_groups import NARROW_WIDTH, command_lines, group_lines, wrap_parts
from toolspan.cli.filters import NameChoice, filter_options
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    make_console,
    make_table,
    print_json,
    shorten_target,
    time_zone,
)
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.state import State

if TYPE_CHECKING:
    pass

_SMALL_SHARE = 0.1
"""Smaller shares are shown with a decimal."""


@click.command("errors")
@select.archive_options(tables=True)
@lists.limit_option(15, "groups")
@click.option(
    "--by",
    type=NameChoice(GROUPINGS),
    metavar="GROUPING",
    help=f"Count unsuccessful calls instead, by {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}.",
)
@click.option(
    "--recovered",
    type=bool,
    metavar="yes|no",
    help="Only calls that a later call recovered (yes), or that none did (no).",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    help=f"Sort by a column: {', '.join(SORT_COLUMNS)}; with --by, {', '.join(TOTAL_SORT_COLUMNS)}. "
    "Numbers sort descending; -COLUMN reverses the order.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@filter_options
def command(
    *, archive: Archive, by: ErrorGrouping | None, recovered: bool | None, limit: int, sort: str | None, as_json: bool,
    call_filter: Filter,
) -> None:  # fmt: skip
    """Group unsuccessful calls by cause: the program that failed and its error message.

    Each group shows when it occurred, advice, how later calls recovered from it, and the command
    that lists all its calls. Searches that found nothing are not errors and are counted last.

    --sort harm begins with the causes that cost most: the mean of their shares in the time and the
    tokens lost until the last attempt, in the calls that nothing recovered, and in the repetitions.
    """
    if by is not None:
        totals = archive.error_totals(call_filter, by=by, recovered=recovered, sort=sort, limit=limit, zone=time_zone())
        print_json(*totals) if as_json else _print_totals(totals, by, archive.names)
        return
    groups = archive.errors(
        call_filter, recovered=recovered, sort=sort, limit=limit if as_json else None, zone=time_zone()
    )
    if as_json:
        print_json(*groups)
    else:
        verb = _outcome_words(call_filter, groups.calls, recovered=recovered)
        _print_groups(groups, limit, verb, archive.names, sort=sort)


def _print_totals(rows: Rows[ErrorTotals], by: str, names: Sequence[str]) -> None:
    out = make_console()
    numbers = ("unsuccessful", "calls", "share", "recovered", "lost")
    shown = [name for name in numbers if out.width >= NARROW_WIDTH or name in numbers[:3]]
    shown = [name for name in shown if by != "kind" or name not in ("calls", "share")]
    columns = (by.replace("-", " "), *shown, "causes", "most frequent")
    table = make_table(*columns, right=(*shown, "causes"), cut=("most frequent",))
    for row in rows:
        name = row.name[:13] if by == "session" else row.name
        cells = {
            "unsuccessful": f"[red]{row.unsuccessful:,}[/]",
            "calls": "" if row.calls is None else f"{row.calls:,}",
            "share": "" if row.share is None else f"{row.share:.0%}",
            "recovered": f"{row.recovered:,}" if row.recovered else "",
            "lost": format_duration(row.lost_ms) if row.lost_ms else "",
        }
        place = shorten_target(name, max(out.width // 3, 20)) if by == "project" else shorten_middle(name, 40)
        message = TargetCell(row.top_message, shorten=shorten_line)
        table.add_row(escape_markup(place), *(cells[column] for column in shown), f"{row.causes:,}", message)
    if rows:
        out.print(table)
    out.print(format_count(rows.total, "row") + lists.limit_note(len(rows), rows.total, "first"))
    option = "--program NAME" if by == "program" else f"--{by} NAME"
    if rows and by in ("program", "tool", "client", "client-version", "model", "project", "session"):
        lists.print_hints(names, (f"errors PATHS {option}", "shows the causes"))


def _print_groups(groups: ErrorGroups, limit: int, verb: str, names: Sequence[str], *, sort: str | None) -> None:
    out = make_console()
    calls = groups.calls
    causes = [group for group in groups if group.kind != "nothing_found"]
    for line in _headline(causes, calls, verb, sort):
        out.print(line)
    lines: list[str] = []
    visible_groups = causes[: limit or None]
    for group in visible_groups:
        lines += ["", *group_lines(group, out)]
    lines.append("")
    if hidden := len(causes) - len(visible_groups):
        lines.append(f"{format_count(hidden, 'more group')} (--limit 0: all)")
    for group in groups[len(causes) :]:
        what = "search or check" if group.count == 1 else "searches or checks"
        note = f"{group.count:,} {what} found nothing, which is not an error:"
        if len(note) + len(group.command) < out.width:
            lines.append(f"{note} {escape_markup(group.command)}")
        else:
            lines += [*wrap_parts([note], out), *command_lines(group.command, out.width)]
    # perf: one print is much faster. The lines are already wrapped.
    out.print("\n".join(lines), soft_wrap=True)
    if groups:
        lists.print_hints(names, lists.CALL_HINT, wrap=False)


_STATE_VERBS: dict[State, str] = {
    "failed": "failed", "timed_out": "timed out", "denied": "were denied", "blocked_by_hook": "were blocked by a hook",
    "cancelled": "were cancelled", "interrupted": "were interrupted", "never_answered": "were never answered",
}  # fmt: skip


def _outcome_words(call_filter: Filter, calls: int, *, recovered: bool | None) -> str:
    """Return the verb of the headline: what happened to the calls that the filter selects."""
    verbs = [_STATE_VERBS[state] for state in _STATE_VERBS if state in call_filter.state]
    words = " or ".join(verbs or ["were unsuccessful"])
    if calls == 1:
        words = words.replace("were ", "was ")
    kinds = [KIND_WORDS.get(kind, kind.replace("_", " ")) for kind in call_filter.error]
    words += f" ({' or '.join(kinds)})" if kinds else ""
    return f"{words} and not recovered" if recovered is False else words


def _headline(groups: Sequence[ErrorGroup], calls: int, verb: str, sort: str | None) -> Iterator[str]:
    counts: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for group in groups:
        counts["orphans" if group.kind == "orphan_result" else "unsuccessful"] += group.count - group.background
        counts["background"] += group.background
        counts["recovered"] += group.recovered or 0
        ways.update(group.recovered_by)
    headline = f"[bold]{counts['unsuccessful']:,}[/] of {format_count(calls, 'call')} {verb}"
    if calls:
        share = counts["unsuccessful"] / calls
        headline += f" ({share:.{int(0 < share < _SMALL_SHARE)}%})"
    if recovered := counts["recovered"]:
        headline += f"; {recovered:,} {'was' if recovered == 1 else 'were'} recovered by later calls"
    if counts["background"]:
        headline += f"; {format_count(counts['background'], 'background command')} failed later"
    if counts["orphans"]:
        headline += f"; {format_count(counts['orphans'], 'orphan result')}"
    yield headline
    if len(groups) > 1:
        order = f"sorted by {escape_markup(sort)}" if sort else "most frequent first"
        yield f"[dim]{len(groups):,} causes, {order}[/]"
    if ways:
        how = ", ".join(f"{CHAIN_WORDS[name]} {n:,}" for name, n in ways.most_common())
        yield f"[dim]recovered by: {how}[/]"
