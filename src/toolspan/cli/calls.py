"""`toolspan calls`: list tool calls, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import click

from toolspan.archive.archive import Archive
from toolspan.archive.calls import SORT_ALIASES, SORT_COLUMNS, public_row
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_duration, shorten_middle
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    STATE_STYLES,
    TargetCell,
    escape_markup,
    format_call_count,
    format_time,
    make_console,
    make_table,
    print_json,
)
from toolspan.reading.history import short_id
from toolspan.reading.rows import CallRow
from toolspan.types.span import parse_timestamp

_NARROW_WIDTH = 110
_COLUMNS = ("requested", "session", "call", "tool", "state", "took", "about")


@click.command("calls")
@select.archive_options()
@lists.limit_option(50, "calls")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@lists.unfold_option
@click.option("--group", metavar="ID", help="Only the calls of this group of `toolspan errors`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call.")
@filter_options
def command(
    *, archive: Archive, limit: int, sort: str | None, unfold: bool, group: str | None, as_json: bool,
    call_filter: Filter,
) -> None:  # fmt: skip
    """List tool calls, one row each.

    Named files are read one by one. A folder or a session id joins subagents, resumes and forks,
    and lists each call once. Without a name, all of your transcripts are read.
    """
    if group is not None and lists.is_default_limit():
        limit = 0  # a group is always listed completely
    if as_json and group is None and sort is None:  # lazily, because a file may contain very many calls
        for row in archive.iter_calls(call_filter, limit=limit):
            print_json(public_row(row))
        return
    rows = archive.calls(call_filter, group=group, sort=sort, limit=limit if as_json else None)
    if as_json:
        print_json(*map(public_row, rows))
    else:
        _print_rows(rows, archive.names, limit, sort, unfold=unfold)


def _print_rows(rows: Sequence[CallRow], names: Sequence[str], limit: int, sort: str | None, *, unfold: bool) -> None:
    out = make_console()
    visible_rows = lists.visible_rows(rows, limit, sort, _equal_key, unfold=unfold)
    narrow = out.width < _NARROW_WIDTH
    columns = ("call", "tool", "state", "took", "about") if narrow else _COLUMNS
    table = make_table(*columns, right=("took",), cut=("about",))
    for row, count in visible_rows:
        kind = row.error_kind or ""
        state = kind if narrow and kind else row.state + (f" · {kind}" if kind not in ("", row.state) else "")
        cells: dict[str, str | TargetCell] = {
            "requested": "" if narrow else format_time(parse_timestamp(row.requested)),
            "session": escape_markup((row.session or PurePath(row.file).stem)[:8]) + (" ↳" if row.agent else ""),
            "call": escape_markup(short_id(row.id)[:8]),
            "tool": escape_markup(shorten_middle(row.tool or "?", 12 if narrow else 30)),
            "state": f"[{STATE_STYLES[row.state]}]{state}[/]" + (" ⟳" if row.background else ""),
            "took": format_duration(row.duration_ms),
            "about": TargetCell(row.target or row.message),
        }
        table.add_row(*(cells[column] for column in columns))
        if count > 1:
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{lists.fold_note(count)}[/]")
    if visible_rows:
        out.print(table)
    visible_count = sum(count for _, count in visible_rows)
    out.print(format_call_count(rows) + lists.limit_note(visible_count, len(rows), "first" if sort else "last"))
    if visible_rows:
        lists.print_hints(names, lists.CALL_HINT)


def _equal_key(row: CallRow) -> tuple[object, ...]:
    return row.session, row.agent, row.tool, row.state, row.error_kind, row.background, row.target or row.message
