"""Everything transcripts tell about files, in the order in which it happened.

In: transcripts that are read together. Out: `Happening`s: changes, sights of a file's content, and
calls of which nobody knows what they wrote. Within a transcript the order of its lines holds, and
between transcripts their times. Read `walk` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.file_history.content import ABSENT, Effect, FileContent, FileExcerpt, UnknownEffect
from toolspan.analysis.file_history.shell_writes import FileObservation, absolute_path, printed_files
from toolspan.analysis.file_history.sources import (
    PATCH_TOOL_NAMES,
    ChangeKind,
    RecordedChange,
    changes_by_command,
    changes_by_editor,
    changes_by_patch,
    commands_of,
    holds_patch,
    patched_paths,
)
from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.claude import results
from toolspan.formats.claude.file_backups import BACKUP_MARK, Backup, parse_backups
from toolspan.formats.jsonl import read_lines
from toolspan.formats.registry import get_format
from toolspan.reading.history import CallTable
from toolspan.reading.transcript import Transcript
from toolspan.tools.files.safe_read import read_file
from toolspan.tools.files.text import decode_text
from toolspan.types.hunk import Hunk
from toolspan.types.ids import SourceLocation
from toolspan.types.inputs import BashInput, ReadInput
from toolspan.types.span import Span, parse_timestamp


class FileChange(Struct, frozen=True, kw_only=True):
    """What one call did to one file."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    """When it was done, as the client wrote it."""
    session: str | None
    agent: str | None
    place: SourceLocation
    """Where the result stands."""
    added: int | None
    """Lines; None where nobody knows."""
    removed: int | None
    hunks: tuple[Hunk, ...] = ()
    """What changed, with line numbers; none where the place of the lines is not known."""
    effect: Effect
    before: FileContent | None = None
    """The content before as the client recorded it; None: it did not."""
    moved_from: str | None = None
    moved_to: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the record tells all that was done to the file."""
        return not isinstance(self.effect, UnknownEffect)


def changes_of(span: Span, cwd: str | None) -> list[FileChange]:
    """What a call changed; nothing for calls that did not succeed or change no files."""
    if span.state != "succeeded" or span.result is None:
        return []
    try:
        recorded = list(_recorded_changes(span, cwd))
    except SourceError:
        return []
    return [_to_file_change(change, span) for change in recorded]


def may_change(span: Span) -> bool:
    """Whether a call is of a tool that changes files by itself."""
    return span.call.kind in ("edit", "write", "shell") or span.tool in PATCH_TOOL_NAMES


def _to_file_change(change: RecordedChange, span: Span) -> FileChange:
    assert span.result is not None
    added, removed = change.count if change.count is not None else (None, None)
    return FileChange(
        path=change.path,
        kind=change.kind,
        call=span.id,
        tool=span.tool,
        at=span.result.finished_at or span.call.requested_at,
        session=span.call.session_id,
        agent=span.call.agent_id,
        place=span.result.place,
        added=added,
        removed=removed,
        hunks=change.hunks,
        effect=change.effect,
        before=change.before,
        moved_from=change.moved_from,
        moved_to=change.moved_to,
    )


def _recorded_changes(span: Span, cwd: str | None) -> Iterator[RecordedChange]:
    if holds_patch(span):
        return changes_by_patch(span, cwd)
    if span.call.kind == "shell":
        return changes_by_command(span, cwd)
    return changes_by_editor(span, cwd)


_NEVER_RAN = frozenset({"denied", "blocked_by_hook", "cancelled", "orphan_result"})
_MAX_BACKUP_BYTES = 64 << 20
_REJECTED_PATCH_TEXTS = ("verification failed", "patch rejected", "nvalid patch", "unsupported")
"""What Codex says of patches of which it has applied nothing."""
_READ_ONLY_SHELL_TOOLS = frozenset({"BashOutput", "KillShell", "KillBash", "TaskOutput"})
"""Tools of the shell's kind that run nothing."""

PathFilter = Callable[[str], bool]
"""Whether a path is asked about."""


class PossibleWriter(Struct, frozen=True, kw_only=True):
    """A call that may have written anything, or anything its input names."""

    call: str
    tool: str
    commands: tuple[str, ...] = ()
    cwd: str | None = None
    in_background: bool = False
    """It went on after its result."""
    raw_input: bytes = b""
    """For tools nobody knows: the input, in which the file would have to be named."""
    any_file_reason: str | None = None
    """Why it may have written any file."""


class FailedChange(Struct, frozen=True, kw_only=True):
    """A change that was asked for and did not succeed."""

    path: str
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    state: str
    error_kind: str | None
    may_be_applied: bool
    """It may have been made all the same."""


FileEventDetail = FileChange | FileObservation | PossibleWriter | FailedChange


EventKey = tuple[float, int, int]
"""When: the time, the transcript's number, the line."""


class FileEvent(Struct, frozen=True, kw_only=True):
    """Something that is told about files, and when."""

    key: EventKey
    session: str | None
    detail: FileEventDetail


class FileEventLog(Struct, frozen=True, kw_only=True):
    """All that happened to files."""

    events: list[FileEvent]
    calls: dict[str, EventKey]
    """When each call was done, whatever it did."""


def collect_file_events(
    transcripts: Sequence[Transcript], path_filter: PathFilter = lambda _: True, *, contents: bool = True
) -> FileEventLog:
    """What happened to files, in order; of those that are wanted.

    Without contents only changes are told, not what was seen in between or may have been done.
    """
    ledger = CallTable.from_transcripts(transcripts)
    chosen = {(row.file, row.id) for row in ledger.calls}
    agents = {transcript.info.agent_id for transcript in transcripts}
    events: list[FileEvent] = []
    calls: dict[str, EventKey] = {}
    for number, transcript in enumerate(transcripts):
        spans = [span for span in transcript.spans if (transcript.file, span.id) in chosen]
        agents.update(span.call.agent_id for span in spans)
        for key, span in _spans_in_order(spans, number):
            calls[span.id] = key
            details = (
                _event_details(span, transcript, path_filter) if contents else _changes_or_failures(span, transcript)
            )
            session = span.call.session_id
            events += (FileEvent(key=key, session=session, detail=detail) for detail in details)
        if contents:
            events += _rewind_events(spans, calls)
            events += _backup_events(transcript, path_filter)
    retained_events = [event for event in events if not _is_in_subagent_transcript(event.detail, agents)]
    return FileEventLog(events=sorted(retained_events, key=lambda event: event.key), calls=calls)


def _is_in_subagent_transcript(detail: FileEventDetail, agents: set[str | None]) -> bool:
    """Whether a subagent's own transcript tells what it did."""
    return (
        isinstance(detail, PossibleWriter) and detail.any_file_reason in agents and detail.any_file_reason is not None
    )


def _spans_in_order(spans: Sequence[Span], number: int) -> Iterator[tuple[EventKey, Span]]:
    """The calls of one transcript by the lines of their results; times only ever go on."""
    time = 0.0
    for line, span in sorted(((_result_line(span), span) for span in spans), key=lambda pair: pair[0]):
        at = span.finished or span.requested
        time = max(time, at.timestamp()) if at else time
        yield (time, number, line), span


def _rewind_events(spans: Sequence[Span], calls: dict[str, EventKey]) -> Iterator[FileEvent]:
    """Where a conversation went on from an earlier place; the client may have put files back."""
    reason = "a rewind, which may have put files back,"
    for earlier, later in pairwise(sorted(spans, key=lambda span: calls[span.id])):
        if earlier.branch == "abandoned" and later.branch != "abandoned":
            time, number, line = calls[earlier.id]
            writer = PossibleWriter(call=later.id, tool=later.tool, any_file_reason=reason)
            session = later.call.session_id
            yield FileEvent(key=(time, number, line + 1), session=session, detail=writer)


def _result_line(span: Span) -> int:
    place = span.result.place if span.result else span.call.place
    return place.line if place else 0


def _event_details(span: Span, transcript: Transcript, path_filter: PathFilter) -> Iterator[FileEventDetail]:
    cwd = transcript.info.cwd
    if span.state in _NEVER_RAN and span.call.kind not in ("edit", "write"):
        return
    with suppress(SourceError):
        if span.call.kind == "read":
            yield from (observation for observation in _read_observations(span, cwd) if path_filter(observation.path))
        elif may_change(span):
            yield from _change_details(span, cwd, path_filter)
        else:
            yield from _other_writers(span)


def _changes_or_failures(span: Span, transcript: Transcript) -> Iterator[FileEventDetail]:
    """The changes of a call, made or only asked for."""
    with suppress(SourceError):
        if may_change(span):
            cwd = transcript.info.cwd
            changes = changes_of(span, cwd)
            yield from changes
            if not changes and span.call.kind in ("edit", "write"):
                yield from _failed_changes(span, cwd)


def _change_details(span: Span, cwd: str | None, path_filter: PathFilter) -> Iterator[FileEventDetail]:
    changes = changes_of(span, cwd)
    yield from (change for change in changes if path_filter(change.path) or _move_matches(change, path_filter))
    if changes:
        return
    if span.call.kind in ("edit", "write"):
        yield from (failed_change for failed_change in _failed_changes(span, cwd) if path_filter(failed_change.path))
        return
    commands, folder = commands_of(span, cwd)
    for observation in printed_files(span, commands, folder):
        if path_filter(observation.path):
            yield observation
    if commands:
        yield PossibleWriter(
            call=span.id,
            tool=span.tool,
            commands=commands,
            cwd=folder if get_format(span.call.dialect).shell_keeps_folder else None,
            in_background=span.background or _is_in_background(span),
        )
    elif span.tool not in _READ_ONLY_SHELL_TOOLS and span.call.arguments.get("chars") != "":
        # A script, or something typed into a process that goes on.
        yield PossibleWriter(call=span.id, tool=span.tool, any_file_reason=f"{span.tool} {span.id}")


def _move_matches(change: FileChange, path_filter: PathFilter) -> bool:
    return any(path_filter(path) for path in (change.moved_from, change.moved_to) if path)


def _is_in_background(span: Span) -> bool:
    tool_input = span.input
    return isinstance(tool_input, BashInput) and bool(tool_input.run_in_background)


def _failed_changes(span: Span, cwd: str | None) -> Iterator[FailedChange]:
    """A change that went wrong; one that was cut off may have been made all the same."""
    if span.state == "succeeded":
        return
    for path in patched_paths(span, cwd) or [absolute_path(span.call.target or "", cwd)]:
        if path:
            yield FailedChange(
                path=path,
                call=span.id,
                tool=span.tool,
                at=span.call.requested_at,
                session=span.call.session_id,
                agent=span.call.agent_id,
                state=span.state,
                error_kind=span.error_kind,
                may_be_applied=_may_be_half_applied(span),
            )


def _may_be_half_applied(span: Span) -> bool:
    """Whether some of it may have been done: a patch is applied file by file."""
    if span.state in ("interrupted", "timed_out", "never_answered", "running"):
        return True
    if span.state != "failed" or not get_format(span.call.dialect).patches_are_partial:
        return False
    text = span.result.text if span.result else ""
    return not any(word in text for word in _REJECTED_PATCH_TEXTS)


def _other_writers(span: Span) -> Iterator[PossibleWriter]:
    if span.call.kind == "agent" and span.agent:
        yield PossibleWriter(call=span.id, tool=span.tool, any_file_reason=span.agent)
    elif span.call.kind in ("mcp", "other") and span.tool:
        yield PossibleWriter(call=span.id, tool=span.tool, raw_input=span.call.raw_input)


# What somebody saw


def _read_observations(span: Span, cwd: str | None) -> Iterator[FileObservation]:
    tool_input = span.input
    path = tool_input.file_path if isinstance(tool_input, ReadInput) else ""
    if span.error_kind == "not_found" and path and span.tool == "Read":
        yield FileObservation(path=absolute_path(path, cwd), call=span.id, source="Read", content=ABSENT)
    structured = span.result.structured if span.result and span.state == "succeeded" else None
    if not isinstance(structured, results.ReadText):
        return
    file = structured.file
    path = absolute_path(file.file_path or path, cwd)
    if not path:
        return
    if _is_whole(file):
        yield FileObservation(path=path, call=span.id, source="Read", content=file.content)
    elif file.num_lines:
        part = FileExcerpt(start=file.start_line or 1, lines=tuple(file.content.split("\n")))
        yield FileObservation(path=path, call=span.id, source="Read", parts=(part,))


def _is_whole(file: results.TextFile) -> bool:
    return (
        file.start_line in (0, 1)
        and file.num_lines is not None
        and file.num_lines == file.total_lines == file.content.count("\n") + 1
        and not file.truncated_by_token_cap
    )


# Copies that the client kept


def _backup_events(transcript: Transcript, path_filter: PathFilter) -> Iterator[FileEvent]:
    """Files as they were before they were changed, from the client's own copies."""
    seen: set[Backup] = set()
    folder = backup_folder(Path(transcript.file), transcript.session_id)
    for number, backup in _iter_backups(transcript):
        path = absolute_path(backup.path, transcript.info.cwd)
        at = parse_timestamp(backup.at)
        if backup in seen or at is None or not path_filter(path):
            continue
        seen.add(backup)
        content = ABSENT if backup.name is None else _read_backup(folder, backup.name)
        if content is not None:
            observation = FileObservation(path=path, call=None, source="the client's backup", content=content)
            key = (at.timestamp(), -1, number)
            yield FileEvent(key=key, session=transcript.session_id, detail=observation)


def _iter_backups(transcript: Transcript) -> Iterator[tuple[int, Backup]]:
    with suppress(SourceError):
        for line in read_lines(transcript.source):
            if BACKUP_MARK in line.data:
                for backup in parse_backups(line.data):
                    yield line.number, backup


def backup_folder(transcript: Path, session: str | None) -> Path | None:
    """Where the client that wrote a transcript keeps the copies of a session."""
    if session is None or len(transcript.parts) < 4:
        return None
    return transcript.parents[2] / "file-history" / session


def _read_backup(folder: Path | None, name: str) -> str | None:
    if folder is None or "/" in name or "\\" in name or name.startswith("."):
        return None
    try:
        return decode_text(read_file(folder / name, _MAX_BACKUP_BYTES).data).printable
    except (ToolspanError, ValueError):
        return None
