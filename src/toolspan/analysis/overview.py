"""A week at a glance: how much was done, what went wrong, where the time went.

In: the facts and times of some files. Out: an `Overview`. Pure.
"""

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
    """Where they worked, each once."""
    calls: int
    states: dict[str, int]
    """How the calls ended, the most frequent first."""
    tools: dict[str, int]
    """How often each tool was called, the most frequent first."""
    errors: list[ErrorGroup]
    """What went wrong most."""
    split: TimeSplit
    """Where the time went."""
    last_failure: CallRow | None


def overview_of(
    rows: Sequence[CallRow], sheet: Timesheet, projects: Mapping[str, str], since: datetime, until: datetime
) -> Overview:
    """What some calls and their times come to; `projects` tells of each file where it worked."""
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
