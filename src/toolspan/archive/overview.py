"""The last seven days at a glance: `Archive.overview` and `toolspan` without a command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from toolspan.analysis.errors import ErrorGroup, group_errors
from toolspan.analysis.file_time import TIMES, join_time
from toolspan.analysis.live_sessions import LiveSession, live_sessions, mark_running
from toolspan.analysis.timesheet import Timesheet
from toolspan.analysis.timing import TimeSplit
from toolspan.archive.clock import now
from toolspan.archive.engine import FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection
from toolspan.archive.sources import session_project
from toolspan.errors import NotFound
from toolspan.formats.source import to_path
from toolspan.reading.discovery import recent_files
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.reading.history import CallTable
from toolspan.reading.rows import CallRow
from toolspan.types.span import parse_timestamp

_PERIOD = timedelta(days=7)
CLOCK_TOLERANCE = timedelta(minutes=1)
"""The maximum time by which a file's modification time may lag behind its contents."""
_EARLIEST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_ERRORS = 5
_JOB = tuple_job(CALLS, TIMES)


class Overview(Struct, frozen=True, kw_only=True):
    """An overview of several days of work with agents."""

    since: datetime
    until: datetime
    sessions: int
    folders: int
    calls: int
    states: dict[str, int]
    """Number of calls by state, most frequent first."""
    unsuccessful: int
    """Number of calls that ended in any way other than success, without searches that found nothing."""
    nothing_found: int
    """The number of failed calls that are only searches without a match."""
    tools: dict[str, int]
    """Number of calls by tool, most frequent first."""
    errors: list[ErrorGroup]
    split: TimeSplit
    last_unsuccessful: CallRow | None


class RecentWork(Struct, frozen=True, kw_only=True):
    """The last seven days, and the sessions in progress."""

    overview: Overview
    live: tuple[LiveSession, ...]

    @property
    def live_statuses(self) -> dict[str, int]:
        """Number of sessions in progress by status."""
        return dict(Counter(session.status for session in self.live))


def summarize_recent_work(engine: FileEngine, since: datetime | None = None) -> RecentWork:
    """Return an overview of the time since then, of the last seven days, or of the seven days up to the last activity.

    Raises:
        NotFound: there are no transcripts.
    """
    files, _ = engine.locate()
    if not files:
        raise NotFound("you have no transcripts yet")
    at = now()
    period = (_PERIOD + CLOCK_TOLERANCE).total_seconds()
    earliest = None if since is None else since.timestamp()
    recent = [
        file
        for file, _ in recent_files(
            files, lambda newest: min(at.timestamp(), newest) - period if earliest is None else min(earliest, newest)
        )
    ]
    paths = [file.path for file in recent]
    with engine.reporter.progress(sum(file.size for file in recent), "reading") as advance:
        files_read = list(engine.mapper.map(paths, _JOB, advance))
    call_table = CallTable(mark_running(summary for summary, _ in files_read))
    times = [join_time(summary, file_times) for summary, file_times in files_read]
    ends = (parse_timestamp(file.info.ended_at) for file in call_table.files)
    last = max((end for end in ends if end is not None and end > _EARLIEST_TIME), default=at)
    until = at if since is not None or at - last < _PERIOD else last + CLOCK_TOLERANCE
    since = since or until - _PERIOD
    rows = CallSelection(call_table, is_joined=True, reporter=engine.reporter).filter_calls(Filter(since=since))
    sheet = Timesheet.from_files(times, since=since, until=None)
    projects = {
        session.id: session_project(session) or str(to_path(session.file.file).parent)
        for session in call_table.sessions
        if session.overlaps(since, None)
    }
    live = live_sessions([to_path(name) for name in engine.names] or None, scan=engine.scan)
    return RecentWork(overview=_make_overview(rows, sheet, projects, since, until), live=tuple(live))


def _make_overview(
    rows: Sequence[CallRow], sheet: Timesheet, projects: Mapping[str, str], since: datetime, until: datetime
) -> Overview:
    """Summarize calls and times. `projects` maps each session in the period to its working folder."""
    calls = [row for row in rows if row.state != "orphan_result"]
    unsuccessful = [row for row in calls if row.is_unsuccessful]
    return Overview(
        since=since,
        until=until,
        sessions=len(projects),
        folders=len(set(projects.values())),
        calls=len(calls),
        states=dict(Counter(row.state for row in rows).most_common()),
        unsuccessful=len(unsuccessful),
        nothing_found=sum(row.error_kind == "nothing_found" for row in calls),
        tools=dict(Counter(row.tool for row in calls if row.tool).most_common()),
        errors=[group for group in group_errors(rows) if group.kind != "nothing_found"][:_MAX_ERRORS],
        split=sheet.split,
        last_unsuccessful=max(unsuccessful, key=lambda row: row.requested or "", default=None),
    )
