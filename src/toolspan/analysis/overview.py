"""A summary of some days: number of calls, errors, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.errors import ErrorGroup, group_errors, is_unsuccessful
from toolspan.analysis.timesheet import Timesheet
from toolspan.analysis.timing import TimeSplit
from toolspan.reading.rows import CallRow

_MAX_ERRORS = 5


class Overview(Struct, frozen=True, kw_only=True):
    """Some days of work with agents."""

    since: datetime
    until: datetime
    sessions: int
    folders: int
    """Number of distinct working folders."""
    calls: int
    states: dict[str, int]
    """Calls by state, the most frequent first."""
    tools: dict[str, int]
    """Calls by tool, the most frequent first."""
    errors: list[ErrorGroup]
    """The most frequent errors."""
    split: TimeSplit
    last_failure: CallRow | None


def overview_of(
    rows: Sequence[CallRow], sheet: Timesheet, projects: Mapping[str, str], since: datetime, until: datetime
) -> Overview:
    """Summarize calls and times. `projects` maps each file to its working folder."""
    calls = [row for row in rows if row.state != "orphan_result"]
    failed = [row for row in calls if is_unsuccessful(row)]
    return Overview(
        since=since,
        until=until,
        sessions=len({row.session for row in rows}),
        folders=len({projects.get(row.file) or str(Path(row.file).parent) for row in rows}),
        calls=len(calls),
        states=dict(Counter(row.state for row in rows).most_common()),
        tools=dict(Counter(row.tool for row in calls if row.tool).most_common()),
        errors=group_errors(rows)[:_MAX_ERRORS],
        split=sheet.split,
        last_failure=max(failed, key=lambda row: row.requested or "", default=None),
    )
