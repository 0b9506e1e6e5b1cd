"""`toolspan calls`: every tool call, one row each."""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import click
from msgspec.structs import replace

from toolspan.cli.output import (
    STATE_STYLE,
    clock,
    console,
    counted,
    duration,
    escape,
    print_json,
    short,
    table,
)
from toolspan.cli.select import (
    Filter,
    check_session,
    filters,
    limit_note,
    limited,
    locate,
    named,
    narrow,
    select,
    wanted_filter,
)
from toolspan.model.span import moment
from toolspan.read.facts import CallFacts, facts_of, named_by_client
from toolspan.read.history import short_id
from toolspan.read.transcript import read


@click.command("calls")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@limited(50, "Rows")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@filters
def command(
    names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, **wanted: Any
) -> None:
    """Every tool call, one row each.

    Files are read alone; a folder or a session's id joins subagents, resumes and forks, and each
    call is listed once. Without a name: all of this user's transcripts.
    """
    keep = wanted_filter(wanted)
    rows = _rows(names, keep, last=last)
    if as_json:
        for row in deque(rows, limit) if limit else rows:
            print_json(row if named_by_client(row) else replace(row, id=""))
    else:
        _print(list(rows), limit)


def _rows(names: tuple[str, ...], keep: Filter, *, last: bool) -> Iterable[CallFacts]:
    """The calls of what is named; those of a single file one by one, however many there are."""
    files, joined = locate(names, last=last)
    if joined or len(files) > 1:
        return narrow(select(names, last=last), keep)
    transcript = read(files[0].path)
    check_session(keep.session, [transcript.info])
    rows = (facts_of(span, transcript.file) for span in transcript.surrender())
    return (row for row in rows if keep.takes(row, transcript.info.cwd))


_NARROW = 110
"""Fewer columns of the screen than this leave no room for all of ours."""


def _cells(row: CallFacts, *, narrow: bool) -> dict[str, str]:
    style = STATE_STYLE[row.state]
    kind = row.error_kind or ""
    state = kind if narrow and kind else row.state + (f" · {kind}" if kind else "")
    return {
        "requested": clock(moment(row.requested)),
        "session": escape((row.session or PurePath(row.file).stem)[:8])
        + (" ↳" if row.agent else ""),
        "call": escape(short_id(row.id)[:8]),
        "tool": escape(short(row.tool or "?", 12 if narrow else 30)),
        "state": f"[{style}]{state}[/]" + (" ⟳" if row.background else ""),
        "took": duration(row.duration_ms),
        "about": escape(short(row.target or row.message, 200)),
    }


def _print(rows: Sequence[CallFacts], limit: int) -> None:
    out = console()
    shown = rows[-limit:] if limit else rows
    columns = ["requested", "session", "call", "tool", "state", "took", "about"]
    narrow = out.width < _NARROW
    if narrow:
        columns = ["call", "tool", "state", "took", "about"]
    listing = table(*columns, right=("took",), cut=("about",))
    for row in shown:
        cells = _cells(row, narrow=narrow)
        listing.add_row(*(cells[column] for column in columns))
    if shown:
        out.print(listing)
    out.print(counted(rows) + limit_note(len(shown), len(rows)))
