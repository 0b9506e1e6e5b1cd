"""`toolspan calls`: list tool calls, one row each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import PurePath

import click
from msgspec.structs import replace

from toolspan.cli import lists, select
from toolspan.cli.filters import CallFilter, filter_options
from toolspan.cli.output import (
    STATE_STYLES,
    TargetCell,
    escape_markup,
    format_call_count,
    format_duration,
    format_time,
    make_console,
    make_table,
    print_json,
    shorten_middle,
)
from toolspan.errors import NotFound
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.reading.parallel import SCAN_JOB
from toolspan.reading.rows import CallRow, has_client_id, make_call_row
from toolspan.reading.transcript import read
from toolspan.types.span import parse_timestamp

_NARROW_WIDTH = 110
_COLUMNS = ("requested", "session", "call", "tool", "state", "took", "about")


@click.command("calls")
@select.names_argument
@select.last_option
@lists.limit_option(50, "calls")
@lists.sort_option(
    "requested", "finished", "session", "call", "tool", "state", "error_kind", "took", "about",
    call="id", id="id", took="duration_ms", duration_ms="duration_ms", about="target", target="target",
)  # fmt: skip
@lists.unfold_option
@click.option("--group", metavar="ID", help="Only the calls of this group of `toolspan errors`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call.")
@filter_options
def command(
    names: tuple[str, ...], *, last: bool, limit: int, sort: lists.SortOrder | None, unfold: bool, group: str | None,
    as_json: bool, call_filter: CallFilter,
) -> None:  # fmt: skip
    """List tool calls, one row each.

    Named files are read one by one. A folder or a session id joins subagents, resumes and forks,
    and lists each call once. Without a name, all of your transcripts are read.
    """
    rows: Iterable[CallRow]
    files, joined = select.locate_files(names, last=last)
    if joined or len(files) > 1:
        call_table = CallTable(select.mark_running(select.read_files(files, SCAN_JOB)))
        rows = select.filter_calls(select.CallSelection(call_table, joined), call_filter)
    else:  # read lazily, because a single file may contain very many calls
        transcript = read(files[0].path)
        select.check_session(call_filter.session, [transcript.info])
        all_rows = (make_call_row(span, transcript.file) for span in transcript.iter_spans())
        rows = (row for row in all_rows if call_filter.accepts_call(row, transcript.info.cwd))
        first = next(rows, None)
        if first is None:
            select.explain_nothing(call_filter, [file.path for file in files])
        rows = chain([first] if first else [], rows)
    if group is not None:
        rows = _filter_by_group(list(rows), group)
        if lists.is_default_limit():
            limit = 0  # a group is always listed completely
    if sort is not None:
        rows = sort.sort(rows, getattr)
    if as_json:
        if limit:
            rows = lists.limit_rows(rows, limit, sort) if isinstance(rows, list) else deque(rows, limit)
        for row in rows:
            print_json(row if has_client_id(row) else replace(row, id=""))
    else:
        _print_rows(list(rows), names, limit, sort, unfold=unfold)


def _filter_by_group(rows: Sequence[CallRow], prefix: str) -> list[CallRow]:
    """Return the rows of the group whose id begins with `prefix`."""
    groups = [row.error_group for row in rows if row.error_group]
    if not groups:
        raise NotFound("none of the selected calls failed, so there are no groups")
    group = match_prefix(prefix, groups, "error group")
    return [row for row in rows if row.error_group == group]


def _print_rows(
    rows: Sequence[CallRow], names: Sequence[str], limit: int, sort: lists.SortOrder | None, *, unfold: bool
) -> None:
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
