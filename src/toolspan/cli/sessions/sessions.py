"""`toolspan sessions`: list conversations."""

from collections import Counter
from datetime import datetime
from typing import Any

import click

from toolspan.cli.output import clock, console, count, duration, escape, print_json, short, table
from toolspan.cli.select import (
    in_project,
    limit_note,
    limited,
    named,
    project_of,
    select,
    when,
)
from toolspan.model.span import moment
from toolspan.model.tokens import Tokens
from toolspan.read.history import SessionFacts
from toolspan.read.lineage import sum_tokens

_NARROW = 100
"""On a narrower screen, what a session is about gets the room of its folder."""
_RARER = ("agents", "project")


@click.command("sessions")
@named
@click.option("--live", is_flag=True, help="Those that go on, or died lately in the middle.")
@click.option("--project", help="Only sessions whose folder has this in it.")
@click.option("--dialect", type=click.Choice(["claude", "codex"]), help="Only this client's.")
@click.option("--since", callback=when, help="Went on then or later: 7d, 24h, 2026-11-01.")
@click.option("--until", callback=when, help="Began before that time.")
@limited(30, "Rows")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(
    names: tuple[str, ...], *, live: bool, limit: int, as_json: bool, **wanted: Any
) -> None:
    """List conversations, the newest last.

    Subagents count with the session that started them. With --live: which sessions run now, wait
    for you, are idle, or died with calls unanswered, and how that is known.
    """
    if live:
        from toolspan.cli.sessions.live import tell

        tell(names, limit=limit, as_json=as_json, **wanted)
        return
    found = [session for session in select(names).ledger.sessions if _wanted(session, **wanted)]
    if as_json:
        for session in found[-limit:]:  # all of them, when it is 0
            print_json(_row(session))
    else:
        _print(found, limit)


def _wanted(
    session: SessionFacts,
    *,
    project: str | None,
    dialect: str | None,
    since: datetime | None,
    until: datetime | None,
) -> bool:
    info = session.file.info
    if dialect is not None and info.dialect != dialect:
        return False
    if project is not None and not in_project(project, session.file.file, info.cwd):
        return False
    return _goes_on(session, since, until)


def _goes_on(session: SessionFacts, since: datetime | None, until: datetime | None) -> bool:
    """Whether some part of a session lies between two times."""
    if since is None and until is None:
        return True
    infos = [file.info for file in session.files]
    times = [moment(at) for info in infos for at in (info.started_at, info.ended_at)]
    known = [at for at in times if at is not None]
    return bool(known) and (
        (since is None or max(known) >= since) and (until is None or min(known) < until)
    )


def _states(session: SessionFacts) -> Counter[str]:
    return Counter(row.state for file in session.files for row in file.calls)


def _calls(states: Counter[str]) -> int:
    """How many calls there are; results without a call are none."""
    return sum(states.values()) - states["orphan_result"]


def _tokens(session: SessionFacts) -> Tokens:
    return sum_tokens(file.message_tokens for file in session.files)


def _row(session: SessionFacts) -> dict[str, object]:
    info = session.file.info
    tokens = _tokens(session)
    return {
        "id": session.id,
        "dialect": info.dialect,
        "title": info.title,
        "first_prompt": info.first_prompt,
        "project": project_of(session),
        "git_branch": info.git_branch,
        "started": info.started_at,
        "ended": info.ended_at,
        "versions": info.versions,
        "models": info.models,
        "prompts": info.prompts,
        "compactions": info.compactions,
        "calls": _calls(_states(session)),
        "states": dict(_states(session)),
        "agents": len(session.agents),
        "tokens": {name: getattr(tokens, name) for name in tokens.__struct_fields__},
        "malformed": sum(file.counts.malformed for file in session.files),
        "files": [file.file for file in session.files],
        "forked_from": info.forked_from,
        "session_ids": info.session_ids,
    }


def _print(sessions: list[SessionFacts], limit: int) -> None:
    out = console()
    shown = sessions[-limit:] if limit else sessions
    columns = ["session", "started", "lasted", "calls", "wrong", "agents", "project", "about"]
    kept = [n for n, name in enumerate(columns) if out.width >= _NARROW or name not in _RARER]
    listing = table(
        *(columns[n] for n in kept),
        right=("lasted", "calls", "wrong", "agents"),
        cut=("project", "about"),
    )
    for session in shown:
        info = session.file.info
        states = _states(session)
        wrong = _calls(states) - states["succeeded"]
        start, end = moment(info.started_at), moment(info.ended_at)
        lasted = (end - start).total_seconds() * 1000 if start and end else None
        row = (
            escape(session.id[:8]),
            clock(start),
            duration(lasted),
            f"{_calls(states):,}",
            f"[red]{wrong:,}[/]" if wrong else "",
            str(len(session.agents) or ""),
            escape(short(project_of(session), 34)),
            escape(short(info.title or info.first_prompt, 50)),
        )
        listing.add_row(*(row[n] for n in kept))
    if shown:
        out.print(listing)
    out.print(count(len(sessions), "session") + limit_note(len(shown), len(sessions)))
