"""`toolspan calls`: list tool calls, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import click

from toolspan.archive.archive import Archive
from toolspan.archive.calls import SORT_ALIASES, SORT_COLUMNS, TimedCall, fold_commands, public_row
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

_NARROW_WIDTH = 110
_WIDE_WIDTH = 130
_STATE_WIDTH = 150
"""The width from which a failure shows its state and kind. Otherwise, the kind alone leaves room for the subject."""
_COLUMNS = ("requested", "session", "call", "tool", "state", "duration", "waited", "about")
_WIDE_COLUMNS = ("requested", "session")


@click.command("calls")
@select.archive_options(tables=True)
@lists.limit_option(50, "calls")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@lists.unfold_option
@click.option("--group", metavar="ID", help="Only the calls of this group of `toolspan errors`.")
@click.option("--commands", is_flag=True, help="With --json: leave out calls that continue a background command.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call.")
@filter_options
def command(
    *, archive: Archive, limit: int, sort: str | None, unfold: bool, group: str | None, commands: bool,
    as_json: bool, call_filter: Filter,
) -> None:  # fmt: skip
    """List tool calls, one row each.

    Named files are read one by one. A folder or a session id joins subagents, resumes and forks,
    and lists each call once. Without a name, all of your transcripts are read.

    A background command and the calls that read its output are one row with its whole length. The
    column `waited` is the part of the duration in which a call waited for permission: `~` means
    inferred, `?` unknown; `--sort duration` does not count it. With --json, every call is a row;
    `continues` names its command.
    """
    if group is not None and lists.is_default_limit():
        limit = 0  # a group is always listed completely
    if as_json and group is None and sort is None and not commands:  # lazily, as a file may contain very many calls
        for row in archive.iter_calls(call_filter, limit=limit):
            print_json(public_row(row))
        return
    if as_json:
        print_json(*map(public_row, archive.calls(call_filter, group=group, commands=commands, sort=sort, limit=limit)))
        return
    rows = archive.calls(call_filter, group=group, sort=sort)
    _print_rows(archive.names, rows, limit, sort, unfold=unfold)


def _print_rows(names: Sequence[str], rows: Sequence[TimedCall], limit: int, sort: str | None, *, unfold: bool) -> None:
    out = make_console()
    commands = rows if unfold else fold_commands(rows)
    visible_rows = lists.visible_rows(commands, limit, sort, _equal_key, unfold=unfold)
    narrow = out.width < _NARROW_WIDTH
    columns = [name for name in _COLUMNS if not narrow or name not in _WIDE_COLUMNS]
    if not any(_format_wait(row) for row, _ in visible_rows):
        columns.remove("waited")
    tool_width = 30 if out.width >= _WIDE_WIDTH else 12 if narrow or "waited" in columns else 20
    table = make_table(*columns, right=("duration", "waited"), cut=("about",))
    for row, count in visible_rows:
        kind = row.error_kind or ""
        state = row.state + (f" · {kind}" if kind not in ("", row.state) else "")
        state = kind if kind and out.width < _STATE_WIDTH else state
        cells: dict[str, str | TargetCell] = {
            "requested": "" if narrow else format_time(row.requested),
            "session": escape_markup((row.session or PurePath(row.file).stem)[:8]) + (" ↳" if row.agent else ""),
            "call": escape_markup(short_id(row.id)[:8]),
            "tool": escape_markup(shorten_middle(row.tool or "?", tool_width)),
            "state": f"[{STATE_STYLES[row.state]}]{state}[/]" + (" ⟳" if row.background else ""),
            "duration": format_duration(row.duration_ms),
            "waited": _format_wait(row),
            "about": TargetCell(row.target or row.message),
        }
        table.add_row(*(cells[column] for column in columns))
        if count > 1:
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{lists.fold_note(count)}[/]")
    if visible_rows:
        out.print(table)
    visible_count = sum(count for _, count in visible_rows)
    note = lists.limit_note(visible_count, len(commands), "first" if sort else "last")
    if polls := len(rows) - len(commands):
        note = f", {polls:,} of them part of the row of a background command{note}"
    out.print(format_call_count(rows) + note)
    if visible_rows:
        lists.print_hints(names, lists.CALL_HINT)


def _format_wait(row: TimedCall) -> str:
    """Return the wait for permission, or `?` for a long call that may include one."""
    mark = "~" if row.wait_certainty == "inferred" else ""
    return f"{mark}{format_duration(row.wait_ms)}" if row.wait_ms else "?" if row.may_include_wait else ""


def _equal_key(row: CallRow) -> tuple[object, ...]:
    return row.session, row.agent, row.tool, row.state, row.error_kind, row.background, row.target or row.message
