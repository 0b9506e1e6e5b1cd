"""File changes across many transcripts, and the content of a file before or after any call.

Start at `FileArchive`; `content.py` infers the contents. Nothing is written, and only transcripts and client
backups are read, never the files themselves.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import Struct

from toolspan.analysis.file_history.changes import ChangeKind, FileChange
from toolspan.analysis.file_history.content import (
    Absent,
    CallSide,
    EditEffect,
    Effect,
    FileContent,
    FileExcerpt,
    FileTimeline,
    HistoryPoint,
    MoveEffect,
    PatchEffect,
    RecoveredContent,
    UnknownEffect,
    WriteEffect,
)
from toolspan.analysis.file_history.events import (
    EventKey,
    FailedChange,
    FileEventDetail,
    PathFilter,
    PossibleWriter,
    collect_file_events,
)
from toolspan.analysis.file_history.shell_writes import (
    FileObservation,
    absolute_path,
    may_write,
    path_ends_with,
    printable_path,
)
from toolspan.diffs import DiffKind, unified
from toolspan.diffs.make import make_hunks
from toolspan.errors import Ambiguous, NotFound, SourceError
from toolspan.formats.source import source_for_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.transcript import Transcript, read

_BETWEEN_SESSIONS = "it may have been changed between two sessions"


class FileTotals(Struct, frozen=True, kw_only=True):
    """Change counts for one file."""

    path: str
    changes: int
    """Number of calls that changed the file."""
    added: int
    removed: int
    known: bool
    """True if the changed lines could be counted for every change."""
    created: int
    deleted: int
    errors: int
    """Number of requested changes that failed."""
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    first: str | None
    last: str | None
    last_call: str | None


class FileArchive:
    """The file changes recorded in a set of transcripts."""

    def __init__(
        self, transcripts: Sequence[Transcript], path_filter: PathFilter = lambda _: True, *, contents: bool = True
    ) -> None:
        """Collect the events for the files that `path_filter` accepts. Without `contents`, collect only changes."""
        self._event_log = collect_file_events(transcripts, path_filter, contents=contents)
        self._timelines: dict[str, FileTimeline] = {}

    @cached_property
    def changes(self) -> list[FileChange]:
        """Every change that took effect, in order."""
        return [event.detail for event in self._event_log.events if isinstance(event.detail, FileChange)]

    @cached_property
    def failed_changes(self) -> list[FailedChange]:
        """Every change that failed, in order."""
        return [event.detail for event in self._event_log.events if isinstance(event.detail, FailedChange)]

    @property
    def changes_and_failures(self) -> list[FileChange | FailedChange]:
        """Changes and failed changes, in order."""
        details = (event.detail for event in self._event_log.events)
        return [detail for detail in details if isinstance(detail, FileChange | FailedChange)]

    @property
    def calls(self) -> list[str]:
        """The ids of all calls, including those that changed nothing."""
        return list(self._event_log.calls)

    def file_totals(self) -> list[FileTotals]:
        """Return one row for each file with a change or a failed change, ordered by the last change."""
        collector = FileTotalsCollector()
        for change in self.changes_and_failures:
            collector.add(change)
        return collector.rows()

    def find_path(self, name: str, cwd: str | None = None) -> str:
        """Return the full path of the changed file whose path is `name` or ends with it.

        Raises:
            NotFound: no such file was changed.
            Ambiguous: several files match.
        """
        paths = dict.fromkeys(change.path for change in self.changes)
        paths.update(dict.fromkeys(change.path for change in self.failed_changes))
        for candidate in (name, absolute_path(name, cwd)):
            if candidate in paths:
                return candidate
        matches = [path for path in paths if path_ends_with(path, PurePath(name).as_posix())]
        if not matches:
            raise NotFound(f"no call in these transcripts changed {printable_path(name)}")
        if len(matches) > 1:
            some = ", ".join(map(printable_path, matches[:4]))
            raise Ambiguous(f"{len(matches)} changed files end in {printable_path(name)}: {some}")
        return matches[0]

    def changes_to(self, path: str) -> list[FileChange]:
        """Return the changes to one file, in order."""
        return [change for change in self.changes if change.path == path]

    def timeline_of(self, path: str) -> FileTimeline:
        """Return the recorded history of one file."""
        if path not in self._timelines:
            points = [point for _, point in self._timeline_points(path)]
            self._timelines[path] = FileTimeline(points, self._content_before_move)
        return self._timelines[path]

    def content(self, path: str, call: str, side: CallSide) -> RecoveredContent:
        """Return the content of a file right before or after a call, which need not concern this file.

        Raises:
            NotFound: the transcripts contain no such call.
        """
        timeline = self.timeline_of(path)
        slot = timeline.slot_of(call, side)
        if slot is None:
            slot = self._slot_by_time(path, call, side)
        return timeline.content_at(slot, side)

    def _content_before_move(self, path: str, call: str | None) -> RecoveredContent | None:
        """Return the content of a moved file at its old path before the move."""
        return None if call is None else self.content(path, call, "before")

    def _slot_by_time(self, path: str, call: str, side: CallSide) -> int:
        key = self._event_log.calls.get(call)
        if key is None:
            raise NotFound(f"no call in these transcripts has the id {call}")
        keys = [at for at, _ in self._timeline_points(path)]
        return bisect_left(keys, key) if side == "before" else bisect_right(keys, key)

    def _timeline_points(self, path: str) -> Iterator[tuple[EventKey, HistoryPoint]]:
        background_doubt: str | None = None
        session: str | None = None
        for event in self._event_log.events:
            point = _history_point(event.detail, path)
            if point is None:
                continue
            if session not in (None, event.session):
                yield event.key, HistoryPoint(call=None, source="time", doubt=_BETWEEN_SESSIONS)
            session = event.session
            yield event.key, point
            if isinstance(event.detail, PossibleWriter) and event.detail.in_background:
                background_doubt = f"{point.doubt} (in the background)"
            elif background_doubt:
                yield (event.key, HistoryPoint(call=None, source="a background command", doubt=background_doubt))


def _history_point(detail: FileEventDetail, path: str) -> HistoryPoint | None:
    """Return an event as a point in the history of one file, or None if it concerns other files."""
    match detail:
        case FileChange() if detail.path == path:
            after = detail.effect.content if isinstance(detail.effect, WriteEffect) else None
            return HistoryPoint(
                call=detail.call, source=detail.tool, before=detail.before, after=after, effect=detail.effect
            )
        case FileObservation() if detail.path == path:
            return HistoryPoint(
                call=detail.call, source=detail.source, before=detail.content, seen=True, parts=detail.parts
            )
        case FailedChange() if detail.path == path and detail.may_be_applied:
            doubt = f"{detail.tool} {detail.call} was cut off and may have written it"
            return HistoryPoint(call=detail.call, source=detail.tool, doubt=doubt)
        case PossibleWriter():
            suspicion = _write_suspicion(detail, path)
            return HistoryPoint(call=detail.call, source=detail.tool, doubt=suspicion) if suspicion else None
        case _:
            return None


def _write_suspicion(writer: PossibleWriter, path: str) -> str | None:
    """Return the reason why a call may have written a file, or None if it cannot have."""
    name = f"{writer.tool} {writer.call}"
    if (reason := writer.any_file_reason) is not None:
        suspect = reason if " " in reason else f"subagent {reason} of {name}"
        return f"{suspect} may have written it"
    if writer.raw_input:
        file = PurePath(path.replace("\\", "/")).name.encode("utf-8", "replace")
        return f"{name} names it and may have written it" if file in writer.raw_input else None
    if any(may_write(command, path, writer.cwd) for command in writer.commands):
        return f"{name} ran a command that may have written it"
    return None


class FileTotalsCollector:
    """A collector of change totals for each file."""

    def __init__(self) -> None:
        self._changes: dict[str, list[_ChangeSummary]] = {}
        self._errors: dict[str, set[str]] = {}

    def add(self, change: FileChange | FailedChange) -> None:
        """Count a change or a failed change. Repeated records of the same call count once."""
        rows = self._changes.setdefault(change.path, [])
        if isinstance(change, FailedChange):
            self._errors.setdefault(change.path, set()).add(change.call)
        elif all(row.call != change.call for row in rows):
            rows.append(
                _ChangeSummary(
                    change.call, change.at, change.kind, change.added, change.removed, change.session, change.agent
                )
            )

    def rows(self) -> list[FileTotals]:
        """Return one row per file, ordered by the last change."""
        totals = [
            _build_totals(path, sorted(changes, key=lambda row: row.at or ""), self._errors.get(path, ()))
            for path, changes in self._changes.items()
        ]
        return sorted(totals, key=lambda row: (row.last or "", row.path))


class _ChangeSummary(NamedTuple):
    """A change without its content."""

    call: str
    at: str | None
    kind: ChangeKind
    added: int | None
    removed: int | None
    session: str | None
    agent: str | None


def _build_totals(path: str, changes: Sequence[_ChangeSummary], errors: Collection[str]) -> FileTotals:
    last = changes[-1] if changes else None
    return FileTotals(
        path=path,
        changes=len(changes),
        added=sum(change.added or 0 for change in changes),
        removed=sum(change.removed or 0 for change in changes),
        known=all(change.added is not None for change in changes),
        created=sum(change.kind == "created" for change in changes),
        deleted=sum(change.kind == "deleted" for change in changes),
        errors=len(errors),
        sessions=_distinct_names(change.session for change in changes),
        agents=_distinct_names(change.agent for change in changes),
        first=changes[0].at if changes else None,
        last=last.at if last else None,
        last_call=last.call if last else None,
    )


def _distinct_names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


_READ_SIZE = 1 << 20
_UNESCAPED = re.compile(r"[A-Za-z0-9_.-]+")

ProgressCallback = Callable[[int], None]
"""Called with the number of bytes read."""
ProblemCallback = Callable[[str], None]
"""Called with an error message for each unreadable file."""


def archives_by_project(
    files: Sequence[TranscriptFile], advance: ProgressCallback, problem: ProblemCallback
) -> Iterator[FileArchive]:
    """Yield one archive for each project, with changes but without contents."""
    groups: dict[Path, list[TranscriptFile]] = {}
    for file in files:
        groups.setdefault(_project_folder(file.path), []).append(file)
    for group in groups.values():
        yield FileArchive(list(_read_transcripts(group, advance, problem)), contents=False)


def archive_about(
    files: Sequence[TranscriptFile],
    name: str,
    path_filter: PathFilter,
    advance: ProgressCallback,
    problem: ProblemCallback,
) -> FileArchive:
    """Return an archive of all sessions that mention a file name."""
    # Only this part of the name is the same in every JSON escaping.
    needle = max(_UNESCAPED.findall(name), key=len, default="").encode()
    sessions = {_session_key(file) for file in files if file_mentions(file, needle)}
    group = [file for file in files if _session_key(file) in sessions]
    transcripts = list(_read_transcripts(group, advance, problem))
    sources = _move_sources(FileArchive(transcripts, contents=False).changes, path_filter)
    return FileArchive(transcripts, lambda path: path in sources or path_filter(path))


def _move_sources(changes: Sequence[FileChange], path_filter: PathFilter) -> set[str]:
    """Return the old paths of moved files that match the filter, because their content is needed too."""
    sources: set[str] = set()
    for change in reversed(changes):
        if change.moved_from and (change.path in sources or path_filter(change.path)):
            sources.add(change.moved_from)
    return sources


def file_mentions(file: TranscriptFile, needle: bytes) -> bool:
    """Return whether a file contains the bytes `needle`, or False if it is unreadable."""
    if not needle:
        return True
    buffer = b""
    try:
        with source_for_path(file.path).open() as stream:
            while piece := stream.read(_READ_SIZE):
                buffer += piece
                if needle in buffer:
                    return True
                buffer = buffer[-len(needle) :]
    except SourceError:
        return False
    return False


def _project_folder(path: Path) -> Path:
    for folder in path.parents:
        if folder.name in ("projects", "sessions", "archived_sessions"):
            return folder / path.relative_to(folder).parts[0]
    return path.parent


def _session_key(file: TranscriptFile) -> str:
    return file.name.session_id or str(file.path)


def _read_transcripts(
    files: Iterable[TranscriptFile], advance: ProgressCallback, problem: ProblemCallback
) -> Iterator[Transcript]:
    for file in files:
        try:
            yield read(file.path)
        except SourceError as error:
            problem(str(error))
        advance(file.size)


class ChangeRow(Struct, frozen=True, kw_only=True):
    """A change as `toolspan files PATH --json` prints it."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    file: str
    """The transcript and the line number of the result."""
    line: int
    added: int | None
    removed: int | None
    complete: bool
    moved_from: str | None
    moved_to: str | None
    diff: str


def change_row(archive: FileArchive, change: FileChange) -> ChangeRow:
    """Return the row for a change."""
    return ChangeRow(
        path=change.path,
        kind=change.kind,
        call=change.call,
        tool=change.tool,
        at=change.at,
        session=change.session,
        agent=change.agent,
        file=change.place.file,
        line=change.place.line,
        added=change.added,
        removed=change.removed,
        complete=change.is_complete,
        moved_from=change.moved_from,
        moved_to=change.moved_to,
        diff=diff_of_change(archive, change),
    )


def diff_of_change(archive: FileArchive, change: FileChange) -> str:
    """Return a change as a diff, without line numbers if they are unknown."""
    patch_change: DiffKind = {"created": "create", "deleted": "delete"}.get(change.kind, "update")  # type: ignore[assignment]
    if change.moved_to is not None:
        return unified((), change.moved_to, old_path=change.path)
    if change.hunks:
        return unified(change.hunks, change.path, change=patch_change)
    before = archive.content(change.moved_from or change.path, change.call, "before").content
    after = archive.content(change.path, change.call, "after").content
    if before is not None and after is not None:
        return diff_between(before, after, change.path, old_path=change.moved_from)
    return "".join(f"{line}\n" for line in describe_effect(change.effect))


def diff_between(before: FileContent, after: FileContent, path: str, old_path: str | None = None) -> str:
    """Return the diff between two contents."""
    if isinstance(before, Absent):
        hunks = make_hunks("", "" if isinstance(after, Absent) else after)
        return "" if isinstance(after, Absent) else unified(hunks, path, change="create")
    if isinstance(after, Absent):
        return unified(make_hunks(before, ""), path, change="delete")
    return unified(make_hunks(before, after), path, old_path=old_path)


def describe_effect(effect: Effect) -> Iterator[str]:
    """Yield the lines that describe a change whose position in the file is unknown."""
    match effect:
        case PatchEffect(section=section) | MoveEffect(change=PatchEffect(section=section)):
            for chunk in section.chunks:
                yield " ".join(("@@", *chunk.contexts, "@@ place unknown @@"))
                yield from chunk.lines
        case EditEffect(edits=edits):
            for edit in edits:
                yield "@@ place unknown @@"
                yield from (f"-{line}" for line in (edit.old_string or "").split("\n"))
                yield from (f"+{line}" for line in (edit.new_string or "").split("\n"))
        case UnknownEffect(reason=reason):
            yield f"({reason})"
        case _:
            return


def known_text(recovered: RecoveredContent) -> str:
    """Return the content, or its known lines with gaps marked."""
    if isinstance(recovered.content, str):
        return recovered.content
    lines: list[str] = []
    at = 1
    for part in _merge_excerpts(recovered.parts):
        if part.start > at:
            lines.append(f"… lines {at}-{part.start - 1} are not known …")
        lines += part.lines
        at = part.start + len(part.lines)
    return "".join(f"{line}\n" for line in lines)


def _merge_excerpts(parts: Sequence[FileExcerpt]) -> Iterator[FileExcerpt]:
    """Yield excerpts in order, with overlaps removed."""
    at = 1
    for part in sorted(parts, key=lambda item: item.start):
        skip = max(at - part.start, 0)
        if skip < len(part.lines):
            yield FileExcerpt(start=part.start + skip, lines=part.lines[skip:])
            at = part.start + len(part.lines)
