"""Failed calls in groups, with causes, solutions and recoveries: `Archive.errors` and `toolspan errors`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from msgspec.structs import replace

from toolspan.analysis.errors import (
    ErrorGroup,
    FileRecovery,
    file_recovery,
    file_recovery_all,
    group_errors,
    recovery_by_call,
)
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import CallSelection, mark_running
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import SCAN_JOB, FileJob

SORT_COLUMNS = ("count", "sessions", "first", "last", "program", "tool", "kind", "recovered")


class ErrorGroups(Rows[ErrorGroup]):
    """Groups of failures with the same cause. Searches that found nothing are not errors and come last."""

    def __init__(self, groups: Sequence[ErrorGroup], calls: int, total: int | None = None) -> None:
        super().__init__(groups, total)
        self.calls = calls
        """The number of all calls, successful ones included."""


def find_errors(
    engine: Engine,
    call_filter: Filter,
    *,
    sort: SortOrder | None = None,
    limit: int | None = None,
    zone: tzinfo | None = None,
) -> ErrorGroups:
    """Return the failed calls by cause, most frequent first. Days begin at midnight in `zone`, or locally."""
    everything = call_filter == Filter()  # successful calls then need no rows
    job = FileJob(file_recovery if everything else file_recovery_all, FileRecovery)
    files, joined = engine.read(job)
    facts = [file.facts for file in files]
    if call_filter.model or call_filter.about:  # this job does not read models and titles
        infos = {file.file: file.info for file in engine.without_warnings().read(SCAN_JOB)[0]}
        facts = [replace(file, info=infos.get(file.file, file.info)) for file in facts]
    call_table = CallTable(mark_running(facts))
    selection = CallSelection(call_table, joined, engine.reporter)
    if everything:
        rows = call_table.failures if joined else selection.list_calls()
    else:
        rows = selection.filter_calls(call_filter)
    endings = recovery_by_call([ending for file in files for ending in file.endings])
    groups = group_errors(rows, endings, names=engine.names, zone=zone)
    if sort is not None:  # searches without matches stay at the end
        causes = [group for group in groups if group.kind != "nothing_found"]
        groups = sort.sort(causes) + groups[len(causes) :]
    succeeded = sum(len(file.successes) for file in call_table.files)
    if succeeded and joined:
        calls = call_table.call_count
    else:
        calls = succeeded + sum(row.state not in ("orphan_result", "succeeded") for row in rows)
        calls += 0 if succeeded else sum(row.state == "succeeded" for row in rows)
    return ErrorGroups(groups[: limit or None], calls, len(groups))
