"""What calls did to files: totals, the history of one file, and its content at a call.

`Archive.files`, `Archive.file_history`, `Archive.file_content` and `toolspan files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from toolspan.analysis.file_history.archive import (
    FileArchive,
    FileTotals,
    FileTotalsCollector,
    RecordedChange,
    archive_about,
    changes_by_project,
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
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import MIN_CACHED_BYTES, FileEngine, scan_with_cache
from toolspan.archive.filters import Filter
from toolspan.archive.reporter import SILENT, Reporter
from toolspan.archive.selection import check_project, explain_nothing, filter_by_project, require_session
from toolspan.archive.sources import current_folder
from toolspan.errors import Ambiguous, InvalidFilter, NotFound
from toolspan.formats.registry import detect_dialect
from toolspan.formats.source import is_remote, source_for_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import match_prefix, short_id
from toolspan.types.tool_kinds import tool_kind

SORT_COLUMNS = ("file", "changes", "lines", "removed", "errors", "first", "last")
SORT_ALIASES = {"file": "path", "path": "path", "lines": "added", "added": "added"}


class ChangedFiles(Rows[FileTotals]):
    """Changed files, the latest last."""

    def __init__(self, rows: Sequence[FileTotals], all_rows: Sequence[FileTotals], unchanged: int) -> None:
        super().__init__(rows, len(all_rows))
        self.added = sum(row.added for row in all_rows)
        self.removed = sum(row.removed for row in all_rows)
        self.unchanged = unchanged
        """The number of files that calls only failed to change."""


def select_files(engine: FileEngine, call_filter: Filter) -> list[TranscriptFile]:
    """Return the transcripts that the client, session and project of a filter accept.

    Raises:
        NotFound: no transcript does.
    """
    files, _ = engine.locate()
    if call_filter.client is not None:
        files = [file for file in files if detect_dialect(source_for_path(file.path)) == call_filter.client]
    require_session(call_filter.session, files)
    in_project = filter_by_project(call_filter.project, files)
    if files and not in_project:
        summaries = scan_with_cache([file.path for file in files])
        check_project(call_filter.project, [(summary.file, summary.info) for summary in summaries])
    if call_filter.model or call_filter.client_version or call_filter.about:
        rest = call_filter.replace(session=None, project=None, client=None)
        infos = {item.file: item.info for item in scan_with_cache([file.path for file in in_project])}
        in_project = [file for file in in_project if rest.accepts_file(str(file.path), infos[str(file.path)])]
    return in_project


def list_changed_files(
    engine: FileEngine,
    call_filter: Filter,
    *,
    folder: str | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> ChangedFiles:
    """Return every changed file with the lines added and removed, the latest last.

    `folder` selects the files below it. A limit keeps the latest files, or the first ones of a sorted list.
    """
    files = select_files(engine, call_filter)
    parent = str(Path(folder).resolve()) if folder else None
    totals = FileTotalsCollector()
    size = sum(file.size for file in files)
    with engine.reporter.progress(size, "reading") as advance:
        is_cached = size >= MIN_CACHED_BYTES or any(is_remote(file.path) for file in files)
        for changes in changes_by_project(files, advance, engine.reporter.warn, cached=is_cached):
            for change in changes:
                if accepts_change(call_filter, change) and (parent is None or is_within(change.path, parent)):
                    totals.add(change)
    all_rows = totals.rows()
    if not all_rows:
        explain_nothing(engine, call_filter, [file.path for file in files])
    selects_failures = call_filter.state or call_filter.error
    rows = all_rows if selects_failures else [row for row in all_rows if row.changes]
    if sort is not None:
        rows = sort.sort(rows)
    visible = rows[: limit or None] if sort is not None else rows[-(limit or 0) :]
    return ChangedFiles(visible, rows, len(all_rows) - len(rows))


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
        and (call_filter.session is None or (change.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (change.agent or "").startswith(call_filter.agent))
        and call_filter.accepts_time(requested or change.at)
    )


def find_archive(files: Sequence[TranscriptFile], path: str, reporter: Reporter = SILENT) -> tuple[FileArchive, str]:
    """Return an archive with the file whose path is `path` or ends with it, and the file's full path."""
    name = PurePath(path.replace("\\", "/")).name
    with reporter.progress(sum(file.size for file in files), "reading") as advance:
        archive = archive_about(files, name, lambda changed: path_ends_with(changed, name), advance, reporter.warn)
    return archive, archive.find_path(path, str(current_folder()))


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
        """The number of further calls that failed to change the file."""
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
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter)
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
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    fields = asdict(content_at(point, recovered))
    return FileContentAnswer(path=path, **fields, disagreements=_disagreements(archive, path))


def read_file_contents(engine: FileEngine, call_filter: Filter, name: str) -> FileContents:
    """Return the content of a file before its first change and after each change."""
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter)
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
    archive, path = find_archive(select_files(engine, call_filter), name, engine.reporter)
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
