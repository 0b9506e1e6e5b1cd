"""`toolspan sessions --live`: what goes on now."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack

import click

from toolspan.cli.output import console, count, duration, escape, print_json, short
from toolspan.cli.select import in_project, limit_note
from toolspan.model.span import moment
from toolspan.report.live import LiveSession, OpenCall, live_sessions

_WORDS = {
    "waiting": "[bold yellow]waiting for you[/]",
    "running": "[bold green]running[/]",
    "idle": "[dim]idle[/]",
    "dead": "[bold red]dead[/]",
}


class Wanted(TypedDict):
    """The filters of `toolspan sessions`."""

    project: str | None
    dialect: str | None
    since: datetime | None
    until: datetime | None


def tell(names: Sequence[str], *, limit: int, as_json: bool, **wanted: Unpack[Wanted]) -> None:
    """Print the sessions that go on, or died lately."""
    if wanted["since"] is not None or wanted["until"] is not None:
        raise click.UsageError("--live is about now: --since and --until say nothing there")
    dialect, project = wanted["dialect"], wanted["project"]
    found = [
        one
        for one in live_sessions([Path(name) for name in names] or None)
        if dialect in (None, one.dialect)
        if project is None or in_project(project, one.file or "", one.cwd)
    ]
    if as_json:
        for one in found[: limit or None]:
            print_json(one)
    else:
        _print(found, limit)


def _print(sessions: Sequence[LiveSession], limit: int) -> None:
    out = console()
    now = datetime.now(UTC)
    shown = sessions[:limit] if limit else sessions
    for one in shown:
        since = _ago(one.since, now)
        out.print(f"{_WORDS[one.status]}{since}  [bold]{escape(one.id[:8])}[/]  {_where(one)}")
        if one.title:
            out.print(f"    {escape(short(one.title, out.width - 4))}")
        for call in one.calls[:5]:
            out.print(f"    {_call(call, now, out.width - 4)}")
        out.print(f"    [dim]{escape('; '.join(one.evidence))}[/]")
    more = limit_note(len(shown), len(sessions), "first")
    dead = sum(one.status == "dead" for one in sessions)
    out.print(f"{count(len(sessions) - dead, 'live session')}, {dead} dead{more}")
    if dead:
        out.print("[dim]toolspan doctor SESSION says what a dead one would need.[/]")


def _where(one: LiveSession) -> str:
    process = f", process {one.pid}" if one.pid and one.status != "dead" else ""
    return f"{escape(short(one.cwd, 50))}[dim]{process}[/]"


def _call(call: OpenCall, now: datetime, width: int) -> str:
    words = f"{call.tool} {short(call.target, 60)}"
    return f"{escape(short(words, width - 14))}[dim]{_ago(call.requested, now)}[/]"


def _ago(at: str | None, now: datetime) -> str:
    start = moment(at)
    if start is None or start > now:
        return ""
    return f" for {duration((now - start).total_seconds() * 1000)}"
