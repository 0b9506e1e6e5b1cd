"""`toolspan` without a command: an overview of the last seven days, and suggested commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from toolspan.analysis.timing import TIME_PARTS
from toolspan.archive.archive import Archive
from toolspan.archive.clock import now
from toolspan.archive.overview import CLOCK_TOLERANCE, Overview
from toolspan.archive.words import format_count, format_duration, format_states, shorten_line
from toolspan.cli.output import escape_markup, format_time, make_console, print_json
from toolspan.cli.sample import demo_command, sample_folder
from toolspan.cli.select import REPORTER
from toolspan.errors import ToolspanError
from toolspan.types.error_kinds import KIND_WORDS

if TYPE_CHECKING:
    from rich.console import Console

    from toolspan.analysis.live_sessions import LiveSession

_KIND_WIDTH = 32


def print_overview(names: Sequence[str] = (), *, as_json: bool, since: datetime | None = None) -> None:
    """Print an overview of the time since then, or else of the last seven days or those up to the last activity."""
    archive = Archive(*names, reporter=REPORTER)
    try:
        recent = archive.overview(since)
    except ToolspanError as error:
        if as_json:
            raise
        _print_welcome(make_console(), str(error))
        return
    if as_json:
        overview = msgspec.to_builtins(recent.overview, builtin_types=(datetime,))
        print_json({**overview, "live": recent.live_statuses, "retention": archive.retention()})
        return
    out = make_console()
    _print_report(out, recent.overview, recent.live, since)
    retention = archive.retention()
    if retention is not None and retention.advice and not sample_folder():
        out.print(f"\n[yellow]{escape_markup(retention.advice)}.[/]")
    _print_next(out, recent.overview)


def _print_welcome(out: Console, reason: str) -> None:
    out.print(f"Nothing to read: {escape_markup(reason)}.\n")
    out.print("  toolspan --demo errors  try a command on a sample archive; likewise the others")
    out.print("  toolspan errors FOLDER  show unsuccessful calls of transcripts in another folder")
    out.print("  toolspan --help         list all commands")


def _print_report(out: Console, overview: Overview, live: Sequence[LiveSession], since: datetime | None) -> None:
    fresh = now() - overview.until < CLOCK_TOLERANCE
    when = "The last 7 days" if fresh else f"The 7 days up to {format_time(overview.until)}"
    when = when if since is None else f"Since {format_time(since)}"
    where = f"{format_count(overview.sessions, 'session')} in {format_count(overview.folders, 'folder')}"
    orphans = overview.states.get("orphan_result", 0)
    results = f" and {format_count(orphans, 'orphan result')}" if orphans else ""
    out.print(f"[bold]{when}[/]: {where}, {format_count(overview.calls, 'call')}{results}")
    if overview.states:
        out.print("  " + format_states(overview.states, overview.nothing_found))
    if overview.tools:
        named = ", ".join(f"{escape_markup(tool)} {n:,}" for tool, n in list(overview.tools.items())[:6])
        out.print(f"  [dim]{named}[/]")
    if overview.errors:
        out.print("\n[bold]Most frequent errors[/]")
    for group in overview.errors:
        kind = shorten_line(f"{group.program or group.tool}: {KIND_WORDS.get(group.kind, group.kind)}", _KIND_WIDTH)
        message = shorten_line(group.message or group.example.message, max(20, out.width - _KIND_WIDTH - 10))
        out.print(f"  [red]{group.count:>4}×[/] {escape_markup(kind):<{_KIND_WIDTH}} [dim]{escape_markup(message)}[/]")
    if wall := overview.split.wall_ms:
        parts = [(part, overview.split.part_ms(part)) for part in TIME_PARTS]
        shares = [f"{part.replace('_', ' ')} {format_duration(ms)} ({ms / wall:.0%})" for part, ms in parts if ms]
        out.print(f"\n[bold]Where the time went[/]\n  {', '.join(shares)}")
    if live:
        labels = {"waiting": "waiting for you", "dead": "dead with open calls"}
        states = Counter(session.status for session in live)
        summary = ", ".join(f"{n} {labels.get(state, state)}" for state, n in states.items())
        out.print(f"\n[bold]Now[/]: {summary}  [dim](toolspan sessions --live)[/]")


def _print_next(out: Console, overview: Overview) -> None:
    since = f"--since {overview.since:%Y-%m-%d}"
    rows = [(f"errors {since}", "causes and solutions")]
    if overview.last_unsuccessful is not None:
        rows.append((f"show {escape_markup(overview.last_unsuccessful.id)}", "the last unsuccessful call"))
    rows += [
        (f"time {since}", "model, tools, permission, idle"),
        (f"files {since}", "changed files; see also restore"),
        ("--help", "all commands"),
    ]
    rows = [(demo_command(f"toolspan {command}"), purpose) for command, purpose in rows]
    width = max(len(command) for command, _ in rows)
    out.print("\n[bold]Next[/]")
    for command, purpose in rows:
        out.print(f"  {command:<{width}}  [dim]{purpose}[/]")
