"""`toolspan sessions`: list sessions. With `--live`, list those that are running, waiting, idle or dead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from toolspan.analysis.live_sessions import LiveSession
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.sessions import SORT_ALIASES, SORT_COLUMNS, SessionRow
from toolspan.archive.words import format_count, format_duration, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import session_filter_options
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_time,
    make_console,
    make_table,
    markup_line,
    print_json,
    shorten_target,
)
from toolspan.types.span import parse_timestamp

_STATUS_LABELS = {
    "waiting": "[bold yellow]waiting for you[/]",
    "running": "[bold green]running[/]",
    "idle": "[dim]idle[/]",
    "dead": "[bold red]dead[/]",
}
_NARROW_WIDTH = 100
_COLUMNS = ("session", "started", "lasted", "calls", "failed", "agents", "project", "about")
_WIDE_COLUMNS = ("agents", "project")


@click.command("sessions")
@select.archive_options(last=False, tables=True)
@click.option("--live", is_flag=True, help="Only sessions that are open, or died recently with open calls.")
@lists.limit_option(30, "sessions")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@lists.unfold_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
@session_filter_options
def command(
    *, archive: Archive, live: bool, limit: int, sort: str | None, unfold: bool, as_json: bool, call_filter: Filter
) -> None:
    """List sessions, newest last.

    Numbers are those of whole sessions, even if only a part of them lies in the period of --since and
    --until. Subagents belong to the session that started them. --live shows which sessions are running,
    waiting for you, idle, or dead with open calls, and the evidence for it.
    """
    if live:
        sessions = archive.live(call_filter)
        if as_json:
            print_json(*sessions[: limit or None])
        else:
            _print_live_sessions(sessions, limit)
        return
    rows = archive.sessions(call_filter, sort=sort, limit=limit if as_json else None)
    if as_json:
        print_json(*rows)
    else:
        _print_sessions(rows, archive.names, limit, sort, unfold=unfold)


def _equal_key(row: SessionRow) -> tuple[object, ...]:
    return row.calls, row.wrong, row.agents, row.project, row.about


def _print_sessions(
    rows: Sequence[SessionRow], names: Sequence[str], limit: int, sort: str | None, *, unfold: bool
) -> None:
    out = make_console()
    visible_rows = lists.visible_rows(rows, limit, sort, _equal_key, unfold=unfold)
    columns = [name for name in _COLUMNS if out.width >= _NARROW_WIDTH or name not in _WIDE_COLUMNS]
    table = make_table(*columns, right=("lasted", "calls", "failed", "agents"), cut=("project", "about"))
    for row, count in visible_rows:
        cells: dict[str, str | TargetCell] = {
            "session": escape_markup(row.id[:8]),
            "started": format_time(parse_timestamp(row.started)),
            "lasted": format_duration(row.duration_ms),
            "calls": f"{row.calls:,}",
            "failed": f"[red]{row.wrong:,}[/]" if row.wrong else "",
            "agents": str(row.agents or ""),
            "project": TargetCell(row.project),
            "about": markup_line(row.about, 200),
        }
        table.add_row(*(cells[column] for column in columns))
        if count > 1:
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{lists.fold_note(count)}[/]")
    if visible_rows:
        out.print(table)
    note = lists.limit_note(sum(count for _, count in visible_rows), len(rows), "first" if sort else "last")
    out.print(format_count(len(rows), "session") + note)
    if visible_rows:
        lists.print_hints(
            names, ("show SESSION PATHS", "shows one session"), ("calls PATHS --session SESSION", "lists its calls")
        )


def _print_live_sessions(sessions: Sequence[LiveSession], limit: int) -> None:
    visible_sessions = sessions[: limit or None]
    out = make_console()
    now = datetime.now(UTC)
    for session in visible_sessions:
        status = _STATUS_LABELS[session.status] + _format_age(session.since, now)
        process = f", process {session.pid}" if session.pid and session.status != "dead" else ""
        folder = f"{escape_markup(shorten_target(session.cwd, 50))}[dim]{process}[/]"
        out.print(f"{status}  [bold]{escape_markup(session.id[:8])}[/]  {folder}")
        if session.title:
            out.print(f"    {markup_line(session.title, out.width - 4)}")
        for call in session.calls[:5]:
            text = shorten_line(f"{call.tool} {shorten_line(call.target, 60)}", out.width - 18)
            out.print(f"    {escape_markup(text)}[dim]{_format_age(call.requested, now)}[/]")
        out.print(f"    [dim]{escape_markup('; '.join(session.evidence))}[/]")
    more = lists.limit_note(len(visible_sessions), len(sessions), "first")
    dead = sum(session.status == "dead" for session in sessions)
    out.print(f"{format_count(len(sessions) - dead, 'live session')}, {dead} dead{more}")
    if dead:
        out.print("[dim]toolspan doctor SESSION shows what a dead session needs.[/]")


def _format_age(at: str | None, now: datetime) -> str:
    start = parse_timestamp(at)
    if start is None or start > now:
        return ""
    return f" for {format_duration((now - start).total_seconds() * 1000)}"
