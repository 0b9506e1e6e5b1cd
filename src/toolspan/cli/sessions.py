"""`toolspan sessions`: list sessions. With `--live`, list those that are running, waiting, idle or dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from msgspec.structs import asdict

from toolspan.analysis.errors import is_unsuccessful
from toolspan.analysis.live_sessions import live_sessions
from toolspan.cli import lists, select
from toolspan.cli.dates import parse_time, parse_until, resolve_until
from toolspan.cli.filters import CallFilter, in_project
from toolspan.cli.output import (
    TargetCell,
    escape_markup,
    format_count,
    format_duration,
    format_time,
    make_console,
    make_table,
    markup_line,
    print_json,
    shorten_line,
    shorten_target,
    utc_option,
    warn,
)
from toolspan.formats.registry import FORMAT_NAMES
from toolspan.formats.source import to_path
from toolspan.reading.history import CallTable
from toolspan.reading.lineage import SessionFiles
from toolspan.reading.parallel import FileSummary
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
@select.names_argument
@select.tables_option
@click.option("--live", is_flag=True, help="Only sessions that are open, or died recently with open calls.")
@click.option("--project", help="Only sessions whose file or working folder contains this text.")
@click.option("--dialect", type=click.Choice(FORMAT_NAMES), help="Only sessions of this client.")
@click.option(
    "--since",
    callback=parse_time,
    metavar="TIME",
    help="Only sessions active at or after this time: 7d, 24h, today, monday, 2026-11, 2026-11-01.",
)
@click.option("--until", callback=parse_until, metavar="TIME",
              help="Only sessions that began before this time; if --since names the same day or month, before its end.",
              )  # fmt: skip
@lists.limit_option(30, "sessions")
@lists.sort_option("session", "started", "ended", "lasted", "calls", "failed", "agents", "project", "about",
                   session="id", id="id", wrong="failed", about="title", title="title")  # fmt: skip
@lists.unfold_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
@utc_option
def command(
    names: tuple[str, ...],
    *,
    live: bool,
    project: str | None,
    dialect: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    sort: lists.SortOrder | None,
    unfold: bool,
    as_json: bool,
) -> None:
    """List sessions, newest last.

    Numbers are those of whole sessions, even if only a part of them lies in the period of --since and
    --until. Subagents belong to the session that started them. --live shows which sessions are running,
    waiting for you, idle, or dead with open calls, and the evidence for it.
    """
    until = resolve_until(since, until)
    if live:
        if since is not None or until is not None:
            raise click.UsageError("--since and --until do not apply to --live, which shows the present")
        _print_live_sessions(names, project, dialect, limit=limit, as_json=as_json)
        return
    selection = select.read_selection(names)
    call_table = selection.call_table
    select.check_project(project, [(file.file, file.info) for file in call_table.files])
    call_filter = CallFilter(project=project, dialect=dialect, since=since, until=until)
    sessions = select.filter_sessions(selection, call_filter)
    starts = sorted(session.started_at for session in call_table.sessions if session.started_at)
    if starts and not sessions and (since or until):
        warn(f"no sessions in this period; there are sessions from {starts[0][:10]} to {starts[-1][:10]}")
    if sort is not None:
        sessions = sort.sort(sessions, lambda session, column: _sort_values(session, call_table)[column])
    if as_json:
        print_json(*(_session_row(session, call_table) for session in lists.limit_rows(sessions, limit, sort)))
        return
    rows = [_SessionLine(session, _sort_values(session, call_table)) for session in sessions]
    _print_sessions(rows, names, limit, sort, unfold=unfold)


class _SessionLine(NamedTuple):
    session: SessionFiles[FileSummary]
    values: dict[str, Any]

    def equal_key(self) -> tuple[object, ...]:
        return tuple(self.values[name] for name in ("calls", "failed", "agents", "project", "title"))


def _sort_values(session: SessionFiles[FileSummary], call_table: CallTable) -> dict[str, Any]:
    info, states = session.file.info, _count_states(session, call_table)
    calls = states.total() - states["orphan_result"]
    start, end = parse_timestamp(session.started_at), parse_timestamp(session.ended_at)
    return {
        "started": start, "ended": end, "lasted": end - start if start and end else None, "calls": calls,
        "failed": _count_failed(session, call_table), "agents": len(session.agents), "id": session.id,
        "project": select.session_project(session), "title": info.title or info.first_prompt,
    }  # fmt: skip


def _count_states(session: SessionFiles[FileSummary], call_table: CallTable) -> Counter[str]:
    return Counter(row.state for row in call_table.calls_by_session[session.id])


def _count_failed(session: SessionFiles[FileSummary], call_table: CallTable) -> int:
    """Return the number of failed calls, excluding searches without matches."""
    rows = call_table.calls_by_session[session.id]
    return sum(is_unsuccessful(row) and row.state != "orphan_result" for row in rows)


def _session_row(session: SessionFiles[FileSummary], call_table: CallTable) -> dict[str, object]:
    info = session.file.info
    states = _count_states(session, call_table)
    return {
        "id": session.id,
        "dialect": info.dialect,
        "title": info.title,
        "first_prompt": info.first_prompt,
        "project": select.session_project(session),
        "git_branch": info.git_branch,
        "started": session.started_at,
        "ended": session.ended_at,
        "versions": info.versions,
        "models": info.models,
        "prompts": info.prompts,
        "compactions": info.compactions,
        "calls": states.total() - states["orphan_result"],
        "wrong": _count_failed(session, call_table),
        "states": dict(states),
        "tools": dict(Counter(row.tool for row in call_table.calls_by_session[session.id] if row.tool)),
        "agents": len(session.agents),
        "tokens": asdict(call_table.tokens_by_session[session.id]),
        "malformed": sum(file.counts.malformed for file in session.files),
        "files": [file.file for file in session.files],
        "forked_from": info.forked_from,
        "session_ids": info.session_ids,
    }


def _print_sessions(
    lines: Sequence[_SessionLine], names: Sequence[str], limit: int, sort: lists.SortOrder | None, *, unfold: bool
) -> None:
    out = make_console()
    visible_lines = lists.visible_rows(lines, limit, sort, _SessionLine.equal_key, unfold=unfold)
    columns = [name for name in _COLUMNS if out.width >= _NARROW_WIDTH or name not in _WIDE_COLUMNS]
    table = make_table(*columns, right=("lasted", "calls", "failed", "agents"), cut=("project", "about"))
    for (session, values), count in visible_lines:
        lasted, failed = values["lasted"], values["failed"]
        cells: dict[str, str | TargetCell] = {
            "session": escape_markup(session.id[:8]),
            "started": format_time(values["started"]),
            "lasted": format_duration(lasted.total_seconds() * 1000 if lasted is not None else None),
            "calls": f"{values['calls']:,}",
            "failed": f"[red]{failed:,}[/]" if failed else "",
            "agents": str(values["agents"] or ""),
            "project": TargetCell(values["project"]),
            "about": markup_line(values["title"], 200),
        }
        table.add_row(*(cells[column] for column in columns))
        if count > 1:
            table.add_row(*[""] * (len(columns) - 1), f"[dim]{lists.fold_note(count)}[/]")
    if visible_lines:
        out.print(table)
    note = lists.limit_note(sum(count for _, count in visible_lines), len(lines), "first" if sort else "last")
    out.print(format_count(len(lines), "session") + note)
    if visible_lines:
        lists.print_hints(
            names, ("show SESSION PATHS", "shows one session"), ("calls PATHS --session SESSION", "lists its calls")
        )


def _print_live_sessions(
    names: Sequence[str], project: str | None, dialect: str | None, *, limit: int, as_json: bool
) -> None:
    sessions = [
        session
        for session in live_sessions([to_path(name) for name in names] or None)
        if dialect in (None, session.dialect)
        if project is None or in_project(project, session.file or "", session.cwd)
    ]
    visible_sessions = sessions[: limit or None]
    if as_json:
        print_json(*visible_sessions)
        return
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
