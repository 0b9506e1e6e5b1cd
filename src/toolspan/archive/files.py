"""What calls did to files: totals, the history of one file, and its content at a call.

`Archive.files`, `Archive.file_history`, `Archive.file_content` and `toolspan files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from toolspan.analysis.file_history.archive import (
    CHANGES,
    FileArchive,
    FileTotals,
    FileTotalsCollector,
    RecordedChange,
    archive_about,
    diff_between,
    diff_of_change,
    known_text,
)
from toolspan.analysis.file_history.changes import ChangeKind, FileChange
from toolspan.analysis.file_history.content import (
    Absent,
    CallSide,
    Confidence,
    Disagreement,
    FileContent,
    FileExcerpt,
    RecoveredContent,
)
from toolspan.analysis.file_history.events import FailedChange
from toolspan.analysis.file_history.shell_writes import is_within, path_ends_with, printable_path
from toolspan.archive.answers import Rows, SortOrder, arrange
from toolspan.archive.engine import Engine, FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.selection import check_session, explain_nothing, filter_files
from toolspan.archive.sources import current_folder
from toolspan.errors import Ambiguous, InvalidFilter, NotFound
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.facts import CALLS, FileSummary, tuple_job
from toolspan.reading.history import CallTable, match_prefix, short_id
from toolspan.types.tool_kinds import tool_kind

ALL = Filter()
SORT_COLUMNS = ("file", "changes", "lines", "removed", "unsuccessful", "first", "last")
SORT_ALIASES = {"file": "path", "path": "path", "lines": "added", "added": "added", "errors": "unsuccessful"}


class ChangedFiles(Rows[FileTotals]):
    """Changed files, the latest last."""

    def __init__(self, rows: Sequence[FileTotals], all_rows: Sequence[FileTotals], unchanged: int) -> None:
        super().__init__(rows, len(all_rows))
        self.added = sum(row.added for row in all_rows)
        self.removed = sum(row.removed for row in all_rows)
        self.unchanged = unchanged
        """The number of files that only unsuccessful calls would have changed."""


def select_files(engine: FileEngine, call_filter: Filter) -> Sequence[TranscriptFile]:
    """Return the transcripts that a filter accepts, regardless of its session, whose calls others may have copied.

    Raises:
        NotFound: the filter accepts no transcript, or its session does not exist.
    """
    files, _ = engine.locate()
    if call_filter == call_filter.without_file_filters():
        return files
    summaries = list(engine.scan([file.path for file in files]))
    accepted = {summary.file for summary in _filter_summaries(summaries, call_filter)}
    return [file for file in files if str(file.path) in accepted]


def _filter_summaries(summaries: Sequence[FileSummary], call_filter: Filter) -> list[FileSummary]:
    check_session(call_filter.session, (summary.info for summary in summaries))
    return filter_files(summaries, call_filter.replace(session=None))


_JOB = tuple_job(CALLS, CHANGES)


def list_changed_files(
    engine: Engine,
    call_filter: Filter,
    *,
    folder: str | None = None,
    name: str | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> ChangedFiles:
    """Return every changed file with the lines added and removed, the latest last.

    `folder` selects the files below it, and `name` those whose path is or ends with it. A limit keeps the latest
    files, or the first ones of a sorted list.
    """
    results, _ = engine.read(_JOB)
    summaries = _filter_summaries([summary for summary, _ in results], call_filter)
    parent = str(Path(folder).resolve()) if folder else None
    # A call that occurs in several files is taken from one of them.
    counted = {(row.file, row.id) for row in CallTable(summaries).calls}
    totals = FileTotalsCollector()
    for summary, recorded in results:
        own = (change for change in recorded.changes if (summary.file, change.call) in counted)
        for change in own:
            is_there = parent is None or is_within(change.path, parent)
            if is_there and (name is None or path_ends_with(change.path, name)) and accepts_change(call_filter, change):
                totals.add(change)
    all_rows = totals.rows()
    if not all_rows:
        explain_nothing(engine, call_filter, [summary.file for summary in summaries])
    selects_failures = call_filter.state or call_filter.error
    rows = all_rows if selects_failures else [row for row in all_rows if row.changes]
    return ChangedFiles(arrange(rows, sort, limit), rows, len(all_rows) - len(rows))


def accepts_change(call_filter: Filter, change: FileChange | FailedChange | RecordedChange) -> bool:
    """Return whether the filter accepts a change whose client and project have already been checked."""
    state, error = "succeeded", ""
    requested = change.at if isinstance(change, FailedChange) else change.requested
    if not isinstance(change, FileChange):
        state, error = change.state, change.error_kind or ""
    return (
        (not call_filter.tool or call_filter.accepts_tool(change.tool))
        and (not call_filter.kind or tool_kind(change.tool or "") in call_filter.kind)
        and (not call_filter.state or state in call_filter.state)
        and (not call_filter.error or error in call_filter.error)
        and (call_filter.calls is None or change.call in call_filter.calls)
        and (call_filter.session is None or (change.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (change.agent or "").startswith(call_filter.agent))
        and call_filter.accepts_time(requested or change.at)
    )


def find_archive(
    files: Sequence[TranscriptFile], path: str, reporter: Reporter = SILENT, call_filter: Filter = ALL
) -> tuple[FileArchive, str]:
    """Return an archive with the file whose path is `path` or ends with it, and the file's full path.

    If several files fit, those count that accepted calls changed, or tried to change.
    """
    name = PurePath(path.replace("\\", "/")).name
    with reporter.progress(sum(file.size for file in files), "reading") as advance:
        archive = archive_about(files, name, lambda changed: path_ends_with(changed, name), advance, reporter.warn)
    return archive, archive.find_path(path, str(current_folder()), partial(accepts_change, call_filter))


class ContentPoint(NamedTuple):
    """A point in time: before or after a call."""

    call: str
    side: CallSide


def resolve_point(archive: FileArchive, path: str, before: str | None, after: str | None) -> ContentPoint:
    """Return the point that the options select. The default is after the last change."""
    if before is not None and after is not None:
        raise InvalidFilter("use either --before or --after")
    call_prefix = after if before is None else before
    side: CallSide = "after" if before is None else "before"
    changes = archive.changes_to(path)
    if call_prefix is None:
        if not changes:
            raise NotFound(f"no successful call changed {printable_path(path)}")
        return ContentPoint(changes[-1].call, "after")
    changing_calls = list(dict.fromkeys(change.call for change in changes))
    try:
        call = match_prefix(call_prefix, changing_calls, "call that changed the file")
    except Ambiguous:
        raise
    except NotFound:
        call = match_prefix(call_prefix, archive.calls, "call", hint=short_id)
    return ContentPoint(call, side)


class FileAtCall(Struct, frozen=True, kw_only=True):
    """The content of a file before or after a call, as far as it is known."""

    call: str
    side: CallSide
    confidence: Confidence
    reasons: tuple[str, ...]
    exists: bool | None
    """Null if the content is unknown."""
    content: str | None
    parts: tuple[FileExcerpt, ...]
    """The known parts of a file whose content is not known as a whole."""


def content_at(point: ContentPoint, recovered: RecoveredContent) -> FileAtCall:
    """Return the content at a point."""
    is_known = recovered.content is not None or bool(recovered.parts)
    return FileAtCall(
        call=point.call,
        side=point.side,
        confidence=recovered.confidence,
        reasons=recovered.reasons,
        exists=not isinstance(recovered.content, Absent) if is_known else None,
        content=recovered.content if isinstance(recovered.content, str) else None,
        parts=recovered.parts,
    )


def parse_point(name: str) -> tuple[str | None, str | None]:
    """Return the values of --before and --after for a point such as `CALL` or `before:CALL`."""
    return (name.removeprefix("before:"), None) if name.startswith("before:") else (None, name)


class ChangeRow(Struct, frozen=True, kw_only=True):
    """A change that one call made to a file, with its diff and the place of its result."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    file: str
    """Path of the transcript."""
    line: int
    added: int | None
    removed: int | None
    complete: bool
    """False if the record does not contain the whole change."""
    moved_from: str | None
    moved_to: str | None
    diff: str


class FileHistory(Rows[ChangeRow]):
    """The changes to one file, the latest last."""

    def __init__(
        self, path: str, rows: Sequence[ChangeRow], total: int, attempts: int, disagreements: Sequence[Disagreement]
    ) -> None:
        super().__init__(rows, total)
        self.path = path
        self.attempts = attempts
        """The number of further, unsuccessful calls that would have changed the file."""
        self.disagreements = tuple(disagreements)
        """Records that contradict each other."""


class FileContentAnswer(FileAtCall, frozen=True, kw_only=True):
    """The content of a file at one point, with its path and the records that contradict each other."""

    path: str
    disagreements: tuple[Disagreement, ...]


def known_content(answer: FileContentAnswer) -> str:
    """Return the content, or its known parts with a line for each gap; empty if the file did not exist."""
    recovered = RecoveredContent(
        content=answer.content, confidence=answer.confidence, reasons=answer.reasons, parts=answer.parts
    )
    return "" if answer.exists is False else known_text(recovered)


class FileContents(Struct, frozen=True, kw_only=True):
    """The content of a file before its first change and after each change."""

    path: str
    changes: tuple[ChangeRow, ...]
    points: tuple[FileAtCall, ...]
    disagreements: tuple[Disagreement, ...]


class PointHead(Struct, frozen=True, kw_only=True):
    """A point between which contents are compared."""

    call: str
    side: CallSide
    confidence: Confidence
    reasons: tuple[str, ...]
    exists: bool


class FileDifference(Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """The difference between the contents of a file at two points."""

    path: str
    start: PointHead
    end: PointHead
    diff: str


def read_file_history(engine: FileEngine, call_filter: Filter, name: str, *, limit: int | None = None) -> FileHistory:
    """Return each change to the file whose path is `name` or ends with it. A limit keeps the latest changes."""
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter, call_filter)
    changes = [change for change in archive.changes_to(path) if accepts_change(call_filter, change)]
    attempts = [change for change in archive.failed_changes if change.path == path]
    return FileHistory(
        path,
        [_change_row(archive, change) for change in changes[-(limit or 0) :]],
        len(changes),
        sum(accepts_change(call_filter, change) for change in attempts),
        archive.timeline_of(path).disagreements,
    )


def read_file_content(
    engine: FileEngine, call_filter: Filter, name: str, *, before: str | None = None, after: str | None = None
) -> FileContentAnswer:
    """Return the content of a file before or after a call, by default after the last change."""
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter, call_filter)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    fields = asdict(content_at(point, recovered))
    return FileContentAnswer(path=path, **fields, disagreements=_disagreements(archive, path))


def read_file_contents(engine: FileEngine, call_filter: Filter, name: str) -> FileContents:
    """Return the content of a file before its first change and after each change."""
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter, call_filter)
    changes = archive.changes_to(path)
    calls = list(dict.fromkeys(change.call for change in changes))
    points = [ContentPoint(call, "before") for call in calls[:1]] + [ContentPoint(call, "after") for call in calls]
    return FileContents(
        path=path,
        changes=tuple(_change_row(archive, change) for change in changes),
        points=tuple(content_at(point, archive.content(path, point.call, point.side)) for point in points),
        disagreements=_disagreements(archive, path),
    )


def read_file_difference(engine: FileEngine, call_filter: Filter, name: str, start: str, end: str) -> FileDifference:
    """Return the difference between the contents of a file at two points, such as `CALL` or `before:CALL`."""
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter, call_filter)
    points = [resolve_point(archive, path, *parse_point(text)) for text in (start, end)]
    recovered = [archive.content(path, point.call, point.side) for point in points]
    contents: list[FileContent] = [
        item.content if isinstance(item.content, Absent) else known_text(item) for item in recovered
    ]
    heads = [
        PointHead(
            call=point.call,
            side=point.side,
            confidence=item.confidence,
            reasons=item.reasons,
            exists=not isinstance(item.content, Absent),
        )
        for point, item in zip(points, recovered, strict=True)
    ]
    return FileDifference(path=path, start=heads[0], end=heads[1], diff=diff_between(contents[0], contents[1], path))


def _disagreements(archive: FileArchive, path: str) -> tuple[Disagreement, ...]:
    return tuple(archive.timeline_of(path).disagreements)


def _change_row(archive: FileArchive, change: FileChange) -> ChangeRow:
    return ChangeRow(
        **{name: getattr(change, name) for name in ("path", "kind", "call", "tool", "at", "session", "agent")},
        file=change.place.file,
        line=change.place.line,
        added=change.added,
        removed=change.removed,
        complete=change.is_complete,
        moved_from=change.moved_from,
        moved_to=change.moved_to,
        diff=diff_of_change(archive, change),
    )
