"""`toolspan` alone: the last seven days at a glance, and what to type next."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from toolspan.cli.gather import done
from toolspan.cli.output import clock, console, count, duration, escape, print_json, progress, short
from toolspan.cli.select import Filter, Selection, locate, narrow, project_of, surveyed
from toolspan.errors import ToolspanError
from toolspan.model.span import moment
from toolspan.read.history import Ledger
from toolspan.read.spread import Job
from toolspan.report.live import live_sessions
from toolspan.report.overview import Overview, overview_of
from toolspan.report.time.timesheet import Timesheet
from toolspan.report.time.timing import PARTS, FileTime, file_time

if TYPE_CHECKING:
    from rich.console import Console

    from toolspan.read.discover import FoundFile
    from toolspan.report.live import LiveSession

_DAYS = timedelta(days=7)
_SOON = timedelta(minutes=1)
"""By how much a file's clock may be behind its contents'."""
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""What claims to be older was not written by any client's clock."""
_KIND = 32


def tell(*, as_json: bool) -> None:
    """Print the last seven days; where they hold nothing, the last seven that hold something."""
    try:
        files, _ = locate(())
    except ToolspanError as error:
        if as_json:
            raise
        _welcome(console(), str(error))
        return
    if not files:
        _welcome(console(), "there is no transcript yet")
        return
    found = _look(files)
    live = live_sessions()
    if as_json:
        now = dict(Counter(one.status for one in live))
        print_json({**msgspec.to_builtins(found, builtin_types=(datetime,)), "live": now})
    else:
        _print(console(), found, live)


def _look(files: "Sequence[FoundFile]") -> Overview:
    """The week that ends now; if nothing happened in it, the one that ends with the last call."""
    now = datetime.fromtimestamp(time.time(), UTC)
    newest = datetime.fromtimestamp(max(file.modified for file in files), UTC)
    recent = _written_since(files, min(now, newest) - _DAYS)
    paths = [file.path for file in recent]
    with progress(2 * sum(file.size for file in recent), "reading") as advance:
        found = Selection(Ledger(surveyed(paths, advance=advance)), joined=True)
        times = list(done(paths, Job(file_time, FileTime), advance))
    until = _end(found, now)
    since = until - _DAYS
    rows = narrow(found, Filter(since=since))
    sheet = Timesheet.of(times, since=since, until=None)
    return overview_of(rows, sheet, _projects(found), since, until)


def _projects(found: Selection) -> dict[str, str]:
    """The project of each file, a subagent's being its session's."""
    sessions = found.ledger.sessions
    return {file.file: project_of(session) for session in sessions for file in session.files}


def _written_since(files: "Sequence[FoundFile]", since: datetime) -> "list[FoundFile]":
    """Files that were not written to since then hold nothing from after it."""
    return [file for file in files if file.modified >= (since - _SOON).timestamp()]


def _end(found: Selection, now: datetime) -> datetime:
    """Now, if something happened in the last days; else when the last thing did."""
    ends = (moment(file.info.ended_at) for file in found.ledger.files)
    last = max((end for end in ends if end is not None and end > _EARLIEST), default=now)
    return now if now - last < _DAYS else last + _SOON


def _welcome(out: "Console", reason: str) -> None:
    out.print(f"Nothing to read: {escape(reason)}.\n")
    out.print("  toolspan demo           see it work, without a key or a network")
    out.print("  toolspan errors FOLDER  what went wrong in transcripts that lie elsewhere")
    out.print("  toolspan --help         all commands")


def _print(out: "Console", found: Overview, live: "Sequence[LiveSession]") -> None:
    fresh = datetime.now(UTC) - found.until < _SOON
    when = "The last 7 days" if fresh else f"The 7 days up to {clock(found.until)}"
    where = f"{count(found.sessions, 'session')} in {count(found.folders, 'folder')}"
    out.print(f"[bold]{when}[/]: {where}, {count(found.calls, 'call')}")
    if found.states:
        out.print("  " + ", ".join(f"{n:,} {state}" for state, n in found.states.items()))
    if found.tools:
        named = ", ".join(f"{escape(tool)} {n:,}" for tool, n in list(found.tools.items())[:6])
        out.print(f"  [dim]{named}[/]")
    _print_errors(out, found)
    _print_time(out, found)
    _print_live(out, live)
    _print_next(out, found)


def _print_errors(out: "Console", found: Overview) -> None:
    if found.errors:
        out.print("\n[bold]What went wrong most[/]")
    for group in found.errors:
        kind = short(f"{group.kind} {group.tool}", _KIND)
        words = short(group.example.message, max(20, out.width - _KIND - 10))
        out.print(f"  [red]{group.count:>4}×[/] {escape(kind):<{_KIND}} [dim]{escape(words)}[/]")


def _print_time(out: "Console", found: Overview) -> None:
    wall = found.split.wall_ms
    if not wall:
        return
    parts = [(part, found.split.part(part)) for part in PARTS]
    told = [f"{part} {duration(ms)} ({ms / wall:.0%})" for part, ms in parts if ms]
    out.print(f"\n[bold]Where the time went[/]\n  {', '.join(told)}")


def _print_live(out: "Console", live: "Sequence[LiveSession]") -> None:
    if live:
        words = {"waiting": "waiting for you", "dead": "died in the middle"}
        states = Counter(one.status for one in live)
        told = ", ".join(f"{n} {words.get(state, state)}" for state, n in states.items())
        out.print(f"\n[bold]Now[/]: {told}  [dim](toolspan sessions --live)[/]")


def _print_next(out: "Console", found: Overview) -> None:
    since = f"--since {found.since:%Y-%m-%d}"
    rows = [(f"errors {since}", "causes and solutions")]
    failure = found.last_failure
    if failure is not None:
        rows.append((f"show {escape(failure.id)}", "the last failure"))
    rows += [
        (f"time {since}", "model, tools, permission, idle"),
        (f"files {since}", "what was changed; see restore"),
        ("--help", "all commands"),
    ]
    room = max(len(command) for command, _ in rows)
    out.print("\n[bold]Next[/]")
    for command, words in rows:
        out.print(f"  toolspan {command:<{room}}  [dim]{words}[/]")
