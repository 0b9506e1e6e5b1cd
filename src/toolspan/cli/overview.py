"""`toolspan` without a command: an overview of the last seven days, and suggested commands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from toolspan.analysis.live_sessions import live_sessions
from toolspan.analysis.timesheet import Overview, Timesheet, overview_of
from toolspan.analysis.timing import TIME_PARTS, FileTime, file_time
from toolspan.cli.filters import CallFilter
from toolspan.cli.output import (
    escape_markup,
    format_count,
    format_duration,
    format_time,
    make_console,
    print_json,
    progress_bar,
    shorten_line,
)
from toolspan.cli.select import (
    CallSelection,
    filter_calls,
    locate_files,
    map_files,
    mark_running,
    session_project,
)
from toolspan.errors import ToolspanError
from toolspan.formats.source import to_path
from toolspan.reading.discovery import last_record_time
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import SCAN_JOB, FileJob
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from rich.console import Console

    from toolspan.analysis.live_sessions import LiveSession
    from toolspan.reading.discovery import TranscriptFile


_PERIOD = timedelta(days=7)
_CLOCK_TOLERANCE = timedelta(minutes=1)
"""The maximum time by which a file's modification time may lag behind its contents."""
_EARLIEST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_KIND_WIDTH = 32


def print_overview(names: Sequence[str] = (), *, as_json: bool) -> None:
    """Print an overview of the last seven days, or of the seven days up to the last activity."""
    try:
        files, _ = locate_files(names)
    except ToolspanError as error:
        if as_json:
            raise
        _print_welcome(make_console(), str(error))
        return
    if not files:
        _print_welcome(make_console(), "you have no transcripts yet")
        return
    now = datetime.fromtimestamp(time.time(), UTC)
    overview = _read_overview(files, now)
    live = live_sessions([to_path(name) for name in names] or None)
    if as_json:
        statuses = dict(Counter(session.status for session in live))
        print_json({**msgspec.to_builtins(overview, builtin_types=(datetime,)), "live": statuses})
    else:
        _print_report(make_console(), overview, live)


def _read_overview(files: Sequence[TranscriptFile], now: datetime) -> Overview:
    written = {file.path: last_record_time(file) for file in files}
    newest = max(written.values())
    earliest = min(now.timestamp(), newest) - (_PERIOD + _CLOCK_TOLERANCE).total_seconds()
    recent = [file for file in files if max(written[file.path], file.modified) >= earliest]
    paths = [file.path for file in recent]
    with progress_bar(2 * sum(file.size for file in recent), "reading") as advance:
        selection = CallSelection(CallTable(mark_running(map_files(paths, SCAN_JOB, advance))), is_joined=True)
        times = list(map_files(paths, FileJob(file_time, FileTime), advance))
    call_table = selection.call_table
    ends = (parse_timestamp(file.info.ended_at) for file in call_table.files)
    last = max((end for end in ends if end is not None and end > _EARLIEST_TIME), default=now)
    until = now if now - last < _PERIOD else last + _CLOCK_TOLERANCE
    since = until - _PERIOD
    rows = filter_calls(selection, CallFilter(since=since))
    sheet = Timesheet.from_files(times, since=since, until=None)
    projects = {
        session.id: session_project(session) or str(to_path(session.file.file).parent)
        for session in call_table.sessions
        if session.overlaps(since, None)
    }
    return overview_of(rows, sheet, projects, since, until)


def _print_welcome(out: Console, reason: str) -> None:
    out.print(f"Nothing to read: {escape_markup(reason)}.\n")
    out.print("  toolspan demo           see how it works, without an API key or a network")
    out.print("  toolspan errors FOLDER  show failed calls of transcripts in another folder")
    out.print("  toolspan --help         list all commands")


def _print_report(out: Console, overview: Overview, live: Sequence[LiveSession]) -> None:
    fresh = datetime.now(UTC) - overview.until < _CLOCK_TOLERANCE
    when = "The last 7 days" if fresh else f"The 7 days up to {format_time(overview.until)}"
    where = f"{format_count(overview.sessions, 'session')} in {format_count(overview.folders, 'folder')}"
    states = {**overview.states, "failed": overview.states.get("failed", 0) - overview.nothing_found}
    states["found nothing"] = overview.nothing_found
    orphans = states.pop("orphan_result", 0)
    results = f" and {format_count(orphans, 'orphan result')}" if orphans else ""
    out.print(f"[bold]{when}[/]: {where}, {format_count(overview.calls, 'call')}{results}")
    if overview.states:
        out.print("  " + ", ".join(f"{n:,} {state.replace('_', ' ')}" for state, n in states.items() if n))
    if overview.tools:
        named = ", ".join(f"{escape_markup(tool)} {n:,}" for tool, n in list(overview.tools.items())[:6])
        out.print(f"  [dim]{named}[/]")
    if overview.errors:
        out.print("\n[bold]Most frequent errors[/]")
    for group in overview.errors:
        kind = shorten_line(f"{group.program or group.tool}: {KIND_WORDS.get(group.kind, group.kind)}", _KIND_WIDTH)
        message = shorten_line(group.text or group.example.message, max(20, out.width - _KIND_WIDTH - 10))
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
    _print_next(out, overview)


def _print_next(out: Console, overview: Overview) -> None:
    since = f"--since {overview.since:%Y-%m-%d}"
    rows = [(f"errors {since}", "causes and solutions")]
    if overview.last_failure is not None:
        rows.append((f"show {escape_markup(overview.last_failure.id)}", "the last failure"))
    rows += [
        (f"time {since}", "model, tools, permission, idle"),
        (f"files {since}", "changed files; see also restore"),
        ("--help", "all commands"),
    ]
    width = max(len(command) for command, _ in rows)
    out.print("\n[bold]Next[/]")
    for command, purpose in rows:
        out.print(f"  toolspan {command:<{width}}  [dim]{purpose}[/]")
