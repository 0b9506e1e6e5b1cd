"""`toolspan guard`: limits on sessions of Claude Code, which its hooks check. And `toolspan statusline`."""

from __future__ import annotations

import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from toolspan.cli.output import format_time, print_json, warn
from toolspan.errors import InvalidFilter, NotFound
from toolspan.integrations.claude_hooks import is_guard_installed
from toolspan.integrations.guard import (
    LIFT_HOURS,
    SCOPES,
    check_limits,
    lift,
    limits_path,
    load_limits,
    print_status_line,
    sum_states,
)

_LIMIT = re.compile(r"(\w+)\.(\w+)=([\d_.]*)")
_ID = re.compile(r"[0-9A-Za-z_-]+")


@click.group("guard")
def command() -> None:
    """Stop Claude Code when a session, a day or a project reaches a limit.

    Set limits here, and install the hooks that check them with `toolspan hook install --guard`:

      toolspan guard set session.cost=5 day.cost=20 session.same_failure=4

    `set` and `status` print JSON with --json.
    """


@command.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="SCOPE.NAME=NUMBER...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def set_limits(limits: tuple[str, ...], *, as_json: bool) -> None:
    """Set limits; an empty number removes one.

    \b
    session.cost=5          dollars, at list prices
    session.tokens=2000000  tokens, cached ones included
    session.minutes=90      working time, without pauses of more than half an hour
    session.calls=300
    session.same_failure=4  the same call fails this often in a row
    session.context=0.9     part of the context window
    day.cost, day.tokens, day.calls          all sessions of today
    project.cost, project.tokens, project.calls  all sessions in this folder in 30 days
    action=ask              ask instead of stopping
    """  # noqa: D301 - the character by which click keeps the lines
    values = _load()
    for text in limits:
        match = _LIMIT.fullmatch(text)
        if text.startswith("action="):
            values["action"] = text.removeprefix("action=")
        elif match is None:
            raise InvalidFilter(f"{text!r} is not a limit such as session.cost=5")
        elif match[3]:
            values.setdefault(match[1], {})[match[2]] = _parse_number(match[3])
        else:
            values.get(match[1], {}).pop(match[2], None)
    path = Path(limits_path())
    try:
        check_limits(values, "limits")
    except ValueError as error:
        raise InvalidFilter(str(error).removeprefix("limits: ")) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_format_limits(values), encoding="utf-8")
    _print_limits(values, as_json=as_json)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(*, as_json: bool) -> None:
    """Show the limits, and what all sessions with the hooks used today."""
    _print_limits(_load(), as_json=as_json)


@command.command("lift")
@click.argument("session")
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), default=LIFT_HOURS, show_default=True)
def lift_command(session: str, *, hours: float) -> None:
    """Lift the limits for a session for some hours, or for all sessions with `all`."""
    if not _ID.fullmatch(session):
        raise NotFound(f"{session!r} is not the id of a session")
    until = datetime.fromtimestamp(lift(session, hours)).astimezone()
    whose = "all sessions" if session == "all" else f"sessions that begin with {session}"
    click.echo(f"The limits are lifted for {whose} until {format_time(until)}.")


@click.command("statusline")
@click.option("--json", "as_json", is_flag=True, expose_value=False, help="No effect: the client expects one line.")
def statusline() -> None:
    """Print one line for Claude Code's status line: context, cost of the session and today, failures.

    Set it in ~/.claude/settings.json:

      "statusLine": {"type": "command", "command": "toolspan statusline"}
    """
    print_status_line()


def _load() -> dict[str, Any]:
    try:
        return load_limits()
    except ValueError as error:
        raise InvalidFilter(str(error)) from error


def _parse_number(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError as error:
        raise InvalidFilter(f"{text!r} is not a number") from error


def _format_limits(values: dict[str, Any]) -> str:
    lines = ["# Limits of sessions with the hooks of `toolspan hook install --guard`."]
    if "action" in values:
        lines.append(f'action = "{values["action"]}"')
    for scope in SCOPES:
        if values.get(scope):
            lines += ["", f"[{scope}]", *(f"{name} = {value}" for name, value in values[scope].items())]
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    return text


def _print_limits(values: dict[str, Any], *, as_json: bool) -> None:
    today = sum_states({"project": None}, "day")
    if as_json:
        print_json({"path": limits_path(), "limits": values, "today": today})
        return
    for scope in SCOPES:
        for name, value in values.get(scope, {}).items():
            click.echo(f"{scope}.{name} = {value:,}")
    if not any(values.get(scope) for scope in SCOPES):
        click.echo("No limits are set: toolspan guard set session.cost=5")
    elif not is_guard_installed(Path.cwd()):
        warn("these limits have no effect yet: install the hook that checks them with `toolspan hook install --guard`")
    click.echo(f"today ${today['cost']:.2f}, {today['tokens']:,.0f} tokens, {today['calls']:,.0f} calls")
    click.echo(f"in {limits_path()}")
