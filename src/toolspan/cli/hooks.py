"""`toolspan hooks`: what hooks did, how often and how long, and what they blocked."""

from __future__ import annotations

from collections.abc import Sequence

import click

from toolspan.archive.answers import Rows
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.hooks import RUN_SORT_COLUMNS, SORT_ALIASES, SORT_COLUMNS, HookRun, HookTotals
from toolspan.archive.words import format_count, format_duration, join_parts, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_time,
    make_console,
    make_table,
    markup_line,
    print_json,
)

_NARROW_WIDTH = 110
_MAX_NAMES = 3
_ALL_COLUMNS = (*SORT_COLUMNS, *(name for name in RUN_SORT_COLUMNS if name not in SORT_COLUMNS))


@click.command("hooks")
@select.archive_options(tables=True)
@click.option("--runs", is_flag=True, help="List each run, in order of time.")
@click.option("--event", "point", metavar="EVENT", help="Only hooks of this event, such as PreToolUse or SessionStart.")
@lists.limit_option(30, "rows")
@lists.sort_option(*_ALL_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    *, archive: Archive, runs: bool, point: str | None, limit: int, sort: str | None, as_json: bool,
    call_filter: Filter,
) -> None:  # fmt: skip
    """Show how often each hook ran, how long it took and what it blocked, slow ones first.

    These are the hooks of your settings, projects and plugins, as transcripts record them. Older
    clients recorded that a hook started, but no duration. `toolspan hook install` adds hooks of
    toolspan.
    """
    if runs:
        rows = archive.hook_runs(call_filter, point=point, sort=sort, limit=limit)
        print_json(*rows) if as_json else _print_runs(rows, archive.names, sort)
        return
    totals = archive.hooks(call_filter, point=point, sort=sort, limit=limit)
    print_json(*totals) if as_json else _print_totals(totals, archive.names)


def _print_totals(rows: Rows[HookTotals], names: Sequence[str]) -> None:
    out = make_console()
    if not rows:
        out.print("No hooks recorded.")
        return
    is_narrow = out.width < _NARROW_WIDTH
    numbers = ("runs", "blocked", "failed", "median", "longest", "total")
    columns = ("event", *numbers, "hook") if is_narrow else ("event", *numbers, "last", "hook")
    table = make_table(*columns, right=numbers, cut=("hook",))
    for row in rows:
        cells: dict[str, str | TargetCell] = {
            "event": escape_markup(row.point),
            "runs": f"{row.runs:,}",
            "blocked": f"[yellow]{row.blocked:,}[/]" if row.blocked else "",
            "failed": f"[red]{row.failed:,}[/]" if row.failed else "",
            "median": format_duration(row.median_ms),
            "longest": format_duration(row.longest_ms),
            "total": format_duration(row.total_ms),
            "last": "" if is_narrow else format_time(row.last)[:10],
            "hook": TargetCell(row.name, shorten=shorten_line),
        }
        table.add_row(*(cells[column] for column in columns))
        if note := _describe(row):
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{markup_line(note, out.width)}[/]")
    out.print(table)
    untimed = sum(row.runs - row.timed for row in rows)
    out.print(format_count(rows.total, "hook") + lists.limit_note(len(rows), rows.total, "first"))
    if untimed:
        out.print(f"[dim]The client did not record the duration of {format_count(untimed, 'run')}.[/]")
    lists.print_hints(names, ("hooks PATHS --runs --sort duration", "lists the slowest runs"))


def _describe(row: HookTotals) -> str:
    """Return what a hook was about and did, for the line below its row."""
    abouts = [name.partition(":")[2] for name in row.names]
    about = ", ".join(filter(None, abouts[:_MAX_NAMES])) + (", …" if len(abouts) > _MAX_NAMES else "")
    effects = ", ".join(f"{kind} {n:,}" for kind, n in row.effects.items())
    objection = f"“{shorten_line(row.objection, 80)}”" if row.objection else ""
    return join_parts(about, effects, objection)


def _print_runs(rows: Rows[HookRun], names: Sequence[str], sort: str | None) -> None:
    out = make_console()
    columns = ("time", "session", "hook of", "outcome", "duration", "command")
    table = make_table(*columns, right=("duration",), cut=("command",))
    for row in rows:
        outcome = join_parts(row.outcome, *row.effects)
        style = {"blocked": "yellow", "error": "red"}.get(row.outcome, "dim")
        table.add_row(
            format_time(row.at),
            escape_markup(f"{row.session[:13]}:{row.line}"),
            escape_markup(shorten_line(row.name, 30)),
            f"[{style}]{escape_markup(outcome)}[/]",
            format_duration(row.duration_ms),
            TargetCell(join_parts(row.command, row.text), shorten=shorten_line),
        )
    if rows:
        out.print(table)
    out.print(format_count(rows.total, "run") + lists.limit_note(len(rows), rows.total, "first" if sort else "last"))
    if rows:
        lists.print_hints(names, ("show SESSION:LINE PATHS", "shows what happened around a run"))
