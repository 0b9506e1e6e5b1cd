"""File changes across many transcripts, and the content of a file before or after any call.

Start at `FileArchive`; `content.py` infers the contents. Nothing is written, and only transcripts and client
backups are read, never the files themselves.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePath

import msgspec
from msgspec import Struct

from toolspan.analysis.file_history.changes import ChangeKind, FileChange
from toolspan.analysis.file_history.content import (
    Absent,
    CallSide,
    EditEffect,
    Effect,
    FileContent,
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
from toolspan.reading.facts import FactKind
from toolspan.reading.transcript import Transcript, read

_BETWEEN_SESSIONS = "it may have been changed between two sessions"


class FileTotals(Struct, frozen=True, kw_only=True):
    """The numbers of changes and of unsuccessful calls for one file."""

    path: str
    changes: int
    added: int
    removed: int
    known: bool
    """True if the changed lines could be counted for every change."""
    created: int
    deleted: int
    unsuccessful: int
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    first: str | None
    last: str | None
    last_call: str | None
    last_kind: ChangeKind | None


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

    def find_path(
        self,
        name: str,
        cwd: str | None = None,
        accepts: Callable[[FileChange | FailedChange], bool] = lambda _: True,
    ) -> str:
        """Return the full path of the changed file whose path is `name` or ends with it.

        If there are several, only those of accepted changes count.

        Raises:
            NotFound: no such file was changed.
            Ambiguous: several files match.
        """
        changes: list[FileChange | FailedChange] = [*self.changes, *self.failed_changes]
        paths = dict.fromkeys(change.path for change in changes)
        for candidate in (name, absolute_path(name, cwd)):
            if candidate in paths:
                return candidate
        matches = [path for path in paths if path_ends_with(path, PurePath(name).as_posix())]
        if not matches:
            raise NotFound(f"no call in these transcripts changed {printable_path(name)}")
        if len(matches) > 1:
            accepted = {change.path for change in changes if accepts(change)}
            matches = [path for path in matches if path in accepted] or matches
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
            self._timelines[path] = FileTimeline(
                points, lambda source, call: None if call is None else self.content(source, call, "before")
            )
        return self._timelines[path]

    def content(self, path: str, call: str, side: CallSide) -> RecoveredContent:
        """Return the content of a file right before or after a call, which need not concern this file.

        Raises:
            NotFound: the transcripts contain no such call.
        """
        timeline = self.timeline_of(path)
        slot = timeline.slot_of(call, side)
        if slot is None:
            key = self._event_log.calls.get(call)
            if key is None:
                raise NotFound(f"no call in these transcripts has the id {call}")
            keys = [at for at, _ in self._timeline_points(path)]
            slot = bisect_left(keys, key) if side == "before" else bisect_right(keys, key)
        return timeline.content_at(slot, side)

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
        case PossibleWriter() if suspicion := _write_suspicion(detail, path):
            return HistoryPoint(call=detail.call, source=detail.tool, doubt=suspicion)
        case _:
            return None


def _write_suspicion(writer: PossibleWriter, path: str) -> str | None:
    name = f"{writer.tool} {writer.call}"
    if path in writer.explained:
        return None
    if (reason := writer.any_file_reason) is not None:
        suspect = reason if " " in reason else f"subagent {reason} of {name}"
        return f"{suspect} may have written it"
    if writer.raw_input:
        file = PurePath(path.replace("\\", "/")).name.encode("utf-8", "replace")
        return f"{name} names it and may have written it" if file in writer.raw_input else None
    if writer.command and may_write(writer.command, path, writer.cwd):
        return f"{name} ran a command that may have written it"
    return None


class RecordedChange(Struct, frozen=True, kw_only=True):
    """A change or a failed change without contents, which would take too much space in memory and in the cache."""

    path: str
    call: str
    tool: str
    at: str | None
    requested: str | None
    session: str | None
    agent: str | None
    kind: ChangeKind | None = None
    """None if the change failed."""
    added: int | None = None
    removed: int | None = None
    """The number of removed lines; None if unknown, for example if a file of unknown length was replaced."""
    state: str = "succeeded"
    error_kind: str | None = None

    @classmethod
    def of(cls, change: FileChange | FailedChange) -> RecordedChange:
        """Return a change without its contents."""
        shared = {name: getattr(change, name) for name in ("path", "call", "tool", "at", "session", "agent")}
        if isinstance(change, FailedChange):
            return cls(**shared, requested=change.at, state=change.state, error_kind=change.error_kind)
        return cls(**shared, requested=change.requested, kind=change.kind, added=change.added, removed=change.removed)


def merge_changes(changes: Iterable[RecordedChange]) -> list[RecordedChange]:
    """Return one record per call and file, because a patch can change a file more than once.

    A file that a patch deletes and adds again is edited.
    """
    merged: dict[tuple[str, str], RecordedChange] = {}
    for later in changes:
        earlier = merged.get((later.call, later.path))
        if earlier is not None and earlier.kind is not None and later.kind is not None:
            merged[later.call, later.path] = _join_changes(earlier, later)
        else:
            merged[later.call, later.path] = later
    return list(merged.values())


def _join_changes(earlier: RecordedChange, later: RecordedChange) -> RecordedChange:
    added = [change.added for change in (earlier, later) if change.added is not None]
    is_length_known = earlier.removed is not None and later.removed is not None
    is_replaced = earlier.kind == "deleted" and later.kind == "created"
    return msgspec.structs.replace(
        later,
        kind="edited" if is_replaced else earlier.kind if later.kind == "edited" else later.kind,
        added=sum(added) if added else None,
        removed=(earlier.removed or 0) + (later.removed or 0) if is_length_known else None,
    )


class FileChanges(Struct, frozen=True):
    """The changes that the calls in one transcript made to files, one for each call and file."""

    changes: list[RecordedChange]
    problem: str | None = None


CHANGES = FactKind(
    name="changes",
    measure=lambda reading: FileChanges(
        merge_changes(map(RecordedChange.of, FileArchive([reading.transcript], contents=False).changes_and_failures))
    ),
    facts_type=FileChanges,
    unreadable=lambda _, problem: FileChanges([], problem),
    finds_causes=False,
)


class FileTotalsCollector:
    """A collector that counts the changes and the unsuccessful calls of each file."""

    def __init__(self) -> None:
        self._changes: dict[str, dict[str, RecordedChange]] = {}
        self._unsuccessful: dict[str, set[str]] = {}

    def add(self, change: FileChange | FailedChange | RecordedChange) -> None:
        """Count a change or a failed change. Repeated records of the same call count once."""
        recorded = change if isinstance(change, RecordedChange) else RecordedChange.of(change)
        changes = self._changes.setdefault(recorded.path, {})
        if recorded.kind is None:
            self._unsuccessful.setdefault(recorded.path, set()).add(recorded.call)
        else:
            changes.setdefault(recorded.call, recorded)

    def rows(self) -> list[FileTotals]:
        """Return one row per file, ordered by the last change."""
        totals: list[FileTotals] = []
        for path, unordered in self._changes.items():
            changes = sorted(unordered.values(), key=lambda change: change.at or "")
            last = changes[-1] if changes else None
            totals.append(
                FileTotals(
                    path=path,
                    changes=len(changes),
                    added=sum(change.added or 0 for change in changes),
                    removed=sum(change.removed or 0 for change in changes),
                    known=all(change.added is not None and change.removed is not None for change in changes),
                    created=sum(change.kind == "created" for change in changes),
                    deleted=sum(change.kind == "deleted" for change in changes),
                    unsuccessful=len(self._unsuccessful.get(path, ())),
                    sessions=tuple(dict.fromkeys(change.session for change in changes if change.session)),
                    agents=tuple(dict.fromkeys(change.agent for change in changes if change.agent)),
                    first=changes[0].at if changes else None,
                    last=last.at if last else None,
                    last_call=last.call if last else None,
                    last_kind=last.kind if last else None,
                )
            )
        return sorted(totals, key=lambda row: (row.last or "", row.path))


_READ_SIZE = 1 << 20
_UNESCAPED = re.compile(r"[A-Za-z0-9_.-]+")

ProgressCallback = Callable[[int], None]
ProblemCallback = Callable[[str], None]


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
    session_of = {file.path: file.name.session_id or str(file.path) for file in files}
    sessions = {session_of[file.path] for file in files if file_mentions(file, needle)}
    group = [file for file in files if session_of[file.path] in sessions]
    transcripts = list(_read_transcripts(group, advance, problem))
    sources: set[str] = set()  # old paths of moved files, whose content is needed too
    for change in reversed(FileArchive(transcripts, contents=False).changes):
        if change.moved_from and (change.path in sources or path_filter(change.path)):
            sources.add(change.moved_from)
    return FileArchive(transcripts, lambda path: path in sources or path_filter(path))


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


def _read_transcripts(
    files: Iterable[TranscriptFile], advance: ProgressCallback, problem: ProblemCallback
) -> Iterator[Transcript]:
    for file in files:
        try:
            yield read(file.path)
        except SourceError as error:
            problem(str(error))
        advance(file.size)


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
    for part in sorted(recovered.parts, key=lambda item: item.start):
        if part.start > at:
            lines.append(f"… lines {at}-{part.start - 1} are not known …")
        end = part.start + len(part.lines)
        if end > at:
            lines += part.lines[max(at - part.start, 0) :]
            at = end
    return "".join(f"{line}\n" for line in lines)
