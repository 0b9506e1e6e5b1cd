"""`toolspan sessions`: list sessions. With `--live`, list those that are running, waiting, idle or dead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import click

from toolspan.analysis.live_sessions import LiveSession
from toolspan.archive.answers import Rows
from toolspan.archive.archive import Archive
from toolspan.archive.filters import Filter
from toolspan.archive.sessions import SORT_ALIASES, SORT_COLUMNS, SessionRow
from toolspan.archive.words import format_count, format_duration, format_size, shorten_line
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
_MAX_MODELS = 2
_WIDEST_WIDTH = 160
_COLUMNS = ("session", "started", "last", "duration", "calls", "unsuccessful", "agents", "cost", "size", "model",
            "project", "about")  # fmt: skip
_FOLDED_ROWS = 10
"""The number of rows to ask for, for each row that remains after folding."""
_WIDE_COLUMNS = ("duration", "agents", "cost", "project")
_WIDEST_COLUMNS = ("last", "size", "model")
_NUMBERS = ("duration", "calls", "unsuccessful", "agents", "cost", "size")
_MODEL_DATE = re.compile(r"(?:^claude-|-20\d{6}\b)")


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
    """List sessions, newest last, or with --about, most relevant first.

    Numbers are those of whole sessions, even if only a part of them lies in the period of --since and
    --until. Subagents belong to the session that started them. --live shows which sessions are running,
    waiting for you, idle, or dead with open calls, and the evidence for it.
    """
    if sort is None and call_filter.about is not None:
        sort = "relevance"
    if live:
        sessions = archive.live(call_filter)
        if as_json:
            print_json(*sessions[: limit or None])
        else:
            _print_live_sessions(sessions, limit, archive.names)
        return
    if as_json:
        print_json(*archive.sessions(call_filter, sort=sort, limit=limit))
    else:
        print_sessions(partial(archive.sessions, call_filter, sort=sort), archive.names, limit, sort, unfold=unfold)


def _equal_key(row: SessionRow) -> tuple[object, ...]:
    return row.calls, row.unsuccessful, row.agents, row.project, row.about


def print_sessions(
    ask: Callable[..., Rows[SessionRow]], names: Sequence[str], limit: int, sort: str | None, *, unfold: bool
) -> None:
    """Print a table of the sessions that `ask` returns for a limit."""
    out = make_console()
    # perf: an archive of very many sessions returns only the rows that may be visible, usually enough even if folded.
    asked = limit if unfold or not lists.is_default_limit() else limit * _FOLDED_ROWS
    while True:
        rows = ask(limit=asked)
        visible_rows = lists.visible_rows(rows, limit, sort, _equal_key, unfold=unfold)
        hidden = len(rows) - sum(count for _, count in visible_rows)
        # A run of equal rows may be longer than the part of it that is among the rows.
        if len(rows) == rows.total or hidden >= lists.MIN_FOLDED_ROWS or asked == limit:
            break
        asked *= _FOLDED_ROWS
    shown = [name for name in _COLUMNS if name != "cost" or any(row.cost_usd is not None for row in rows)]
    hidden_columns = {*(() if out.width >= _WIDEST_WIDTH else _WIDEST_COLUMNS)}
    hidden_columns |= {*(() if out.width >= _NARROW_WIDTH else _WIDE_COLUMNS)}
    columns = [name for name in shown if name not in hidden_columns or name == (sort or "").removeprefix("-")]
    table = make_table(*columns, right=_NUMBERS, cut=("project", "about"))
    for row, count in visible_rows:
        cells: dict[str, str | TargetCell] = {
            "session": escape_markup(row.id[:8]),
            "started": format_time(row.started),
            "duration": format_duration(row.duration_ms),
            "calls": f"{row.calls:,}",
            "unsuccessful": f"[red]{row.unsuccessful:,}[/]" if row.unsuccessful else "",
            "agents": str(row.agents or ""),
            "cost": "" if row.cost_usd is None else f"${row.cost_usd:,.2f}",
            "last": format_time(row.ended)[:16],
            "size": "" if row.bytes is None else format_size(row.bytes),
            "model": escape_markup(", ".join(_MODEL_DATE.sub("", model) for model in row.models[-_MAX_MODELS:])),
            "project": TargetCell(row.project),
            "about": markup_line(row.about, 200),
        }
        table.add_row(*(cells[column] for column in columns))
        if count > 1:
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{lists.fold_note(count)}[/]")
    if visible_rows:
        out.print(table)
    note = lists.limit_note(sum(count for _, count in visible_rows), rows.total, "first" if sort else "last")
    out.print(format_count(rows.total, "session") + note)
    if visible_rows:
        lists.print_hints(
            names, ("show SESSION PATHS", "shows one session"), ("calls PATHS --session SESSION", "lists its calls")
        )


def _print_live_sessions(sessions: Sequence[LiveSession], limit: int, names: Sequence[str]) -> None:
    visible_sessions = sessions[: limit or None]
    out = make_console()
    now = datetime.now(UTC)
    for session in visible_sessions:
        status = _STATUS_LABELS[session.status] + _format_age(session.since, now)
        host = f" on {escape_markup(session.host)}" if session.host else ""
        process = f", process {session.pid}{host}" if session.pid and session.status != "dead" else ""
        folder = f"{escape_markup(shorten_target(session.cwd, 50))}[dim]{process}[/]"
        out.print(f"{status}  [bold]{escape_markup(session.id[:8])}[/]  {folder}")
        if session.title:
            out.print(f"    {markup_line(session.title, out.width - 4)}")
        for call in session.calls[:5]:
            text = shorten_line(f"{call.tool} {shorten_line(call.target, 60)}", out.width - 18)
            out.print(f"    {escape_markup(text)}[dim]{_format_age(call.requested, now)}[/]")
        out.print(f"    [dim]{escape_markup('; '.join(session.evidence))}[/]")
    more = lists.limit_note(len(visible_sessions), len(sessions), "first")
    dead_sessions = [session for session in sessions if session.status == "dead"]
    dead = len(dead_sessions)
    out.print(f"{format_count(len(sessions) - dead, 'live session')}, {dead} dead{more}")
    if any(session.host is None for session in dead_sessions):
        out.print("[dim]toolspan doctor SESSION shows what a dead session needs.[/]")
    if any(session.host is not None for session in dead_sessions):
        lists.print_hints(names, ("run --store PATHS --resume SESSION", "continues a dead session on this host"))


def _format_age(at: str | None, now: datetime) -> str:
    start = parse_timestamp(at)
    if start is None or start > now:
        return ""
    return f" for {format_duration((now - start).total_seconds() * 1000)}"
