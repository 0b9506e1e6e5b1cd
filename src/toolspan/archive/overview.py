"""The last seven days at a glance: `Archive.overview` and `toolspan` without a command."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from toolspan.analysis.live_sessions import LiveSession, live_sessions
from toolspan.analysis.timesheet import Overview, Timesheet, overview_of
from toolspan.analysis.timing import FileTime, file_time
from toolspan.archive.engine import FileEngine, map_files
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection, mark_running
from toolspan.archive.sources import session_project
from toolspan.errors import NotFound
from toolspan.formats.source import to_path
from toolspan.reading.discovery import last_record_time
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import SCAN_JOB, FileJob
from toolspan.types.span import parse_timestamp

_PERIOD = timedelta(days=7)
CLOCK_TOLERANCE = timedelta(minutes=1)
"""The maximum time by which a file's modification time may lag behind its contents."""
_EARLIEST_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class RecentWork(Struct, frozen=True, kw_only=True):
    """The last seven days, and the sessions in progress."""

    overview: Overview
    live: tuple[LiveSession, ...]

    @property
    def live_statuses(self) -> dict[str, int]:
        """Number of sessions in progress by status."""
        return dict(Counter(session.status for session in self.live))


def summarize_recent_work(engine: FileEngine) -> RecentWork:
    """Return an overview of the last seven days, or of the seven days up to the last activity.

    Raises:
        NotFound: there are no transcripts.
    """
    files, _ = engine.locate()
    if not files:
        raise NotFound("you have no transcripts yet")
    now = datetime.fromtimestamp(time.time(), UTC)
    written = {file.path: last_record_time(file) for file in files}
    newest = max(written.values())
    earliest = min(now.timestamp(), newest) - (_PERIOD + CLOCK_TOLERANCE).total_seconds()
    recent = [file for file in files if max(written[file.path], file.modified) >= earliest]
    paths = [file.path for file in recent]
    with engine.reporter.progress(2 * sum(file.size for file in recent), "reading") as advance:
        call_table = CallTable(mark_running(map_files(paths, SCAN_JOB, advance)))
        times = list(map_files(paths, FileJob(file_time, FileTime), advance))
    ends = (parse_timestamp(file.info.ended_at) for file in call_table.files)
    last = max((end for end in ends if end is not None and end > _EARLIEST_TIME), default=now)
    until = now if now - last < _PERIOD else last + CLOCK_TOLERANCE
    since = until - _PERIOD
    rows = CallSelection(call_table, is_joined=True, reporter=engine.reporter).filter_calls(Filter(since=since))
    sheet = Timesheet.from_files(times, since=since, until=None)
    projects = {
        session.id: session_project(session) or str(to_path(session.file.file).parent)
        for session in call_table.sessions
        if session.overlaps(since, None)
    }
    live = live_sessions([to_path(name) for name in engine.names] or None)
    return RecentWork(overview=overview_of(rows, sheet, projects, since, until), live=tuple(live))
