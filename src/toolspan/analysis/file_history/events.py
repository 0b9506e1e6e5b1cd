"""File events from transcripts, in order: changes, observed contents and possible writers.

Start at `collect_file_events`. The events of one transcript are in line order, and transcripts are
merged by time.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from toolspan.analysis.file_history.changes import (
    PATCH_TOOL_NAMES,
    FileChange,
    changes_of,
    command_of,
    patched_paths,
    recorded_edits,
)
from toolspan.analysis.file_history.content import ABSENT, FileExcerpt
from toolspan.analysis.file_history.shell_writes import FileObservation, absolute_path, printed_file
from toolspan.errors import SourceError
from toolspan.formats.registry import get_format
from toolspan.formats.source import source_for_path
from toolspan.reading.history import CallTable
from toolspan.reading.transcript import Transcript
from toolspan.types import results
from toolspan.types.inputs import BashInput, ReadInput
from toolspan.types.span import Span, parse_timestamp

_NEVER_RAN = frozenset({"denied", "blocked_by_hook", "cancelled", "orphan_result"})
_MAX_BACKUP_BYTES = 64 << 20
_REJECTED_PATCH_TEXTS = ("verification failed", "patch rejected", "nvalid patch", "unsupported")
_READ_ONLY_SHELL_TOOLS = frozenset({"BashOutput", "KillShell", "KillBash", "TaskOutput"})
"""Tools of the kind `shell` that do not run commands."""

PathFilter = Callable[[str], bool]


class PossibleWriter(Struct, frozen=True, kw_only=True):
    """A call that may have written any file, or any file mentioned in its input."""

    call: str
    tool: str
    command: str = ""
    cwd: str | None = None
    in_background: bool = False
    raw_input: bytes = b""
    """The input of an unknown tool, which can only have written files that the input mentions."""
    explained: tuple[str, ...] = ()
    """The files of which the call's changes are recorded."""
    any_file_reason: str | None = None


class FailedChange(Struct, frozen=True, kw_only=True):
    """A requested change that did not succeed."""

    path: str
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    state: str
    error_kind: str | None
    may_be_applied: bool


FileEventDetail = FileChange | FileObservation | PossibleWriter | FailedChange


EventKey = tuple[float, int, int]
"""Time, index of the transcript, and line."""


class FileEvent(Struct, frozen=True, kw_only=True):
    """A file event and its position in the order of all events."""

    key: EventKey
    session: str | None
    detail: FileEventDetail


class FileEventLog(Struct, frozen=True, kw_only=True):
    """All file events."""

    events: list[FileEvent]
    calls: dict[str, EventKey]


def collect_file_events(
    transcripts: Sequence[Transcript], path_filter: PathFilter = lambda _: True, *, contents: bool = True
) -> FileEventLog:
    """Return the events for the files that `path_filter` accepts, in order.

    Without `contents`, only changes and failed changes are collected.
    """
    # A call that occurs in several files is taken from one of them.
    is_alone = len(transcripts) == 1  # perf: the rows of a single file would be 10 % of `toolspan tables`
    rows = [] if is_alone else CallTable.from_transcripts(transcripts).calls
    chosen = {(row.file, row.id) for row in rows}
    agents = {transcript.info.agent_id for transcript in transcripts}
    events: list[FileEvent] = []
    calls: dict[str, EventKey] = {}
    for number, transcript in enumerate(transcripts):
        spans = [span for span in transcript.spans if is_alone or (transcript.file, span.id) in chosen]
        agents.update(span.call.agent_id for span in spans)
        time = 0.0  # never decreases within a transcript, whose calls are ordered by the line of their result
        for line, span in sorted(((_result_line(span), span) for span in spans), key=lambda pair: pair[0]):
            at = span.finished or span.requested
            time = max(time, at.timestamp()) if at else time
            key = calls[span.id] = (time, number, line)
            details = _event_details(span, transcript.info.cwd, path_filter, contents=contents)
            events += (FileEvent(key=key, session=span.call.session_id, detail=detail) for detail in details)
        if contents:
            events += _rewind_events(spans, calls)
            events += _backup_events(transcript, path_filter)
    agents.discard(None)
    # A subagent whose transcript was read is not a possible writer, because its changes are known.
    unexplained = [
        event
        for event in events
        if not (isinstance(event.detail, PossibleWriter) and event.detail.any_file_reason in agents)
    ]
    return FileEventLog(events=sorted(unexplained, key=lambda event: event.key), calls=calls)


def _rewind_events(spans: Sequence[Span], calls: dict[str, EventKey]) -> Iterator[FileEvent]:
    """Yield an event for each rewind, because the client may have restored files at that point."""
    reason = "a rewind, which may have restored files,"
    for earlier, later in pairwise(sorted(spans, key=lambda span: calls[span.id])):
        if earlier.branch == "abandoned" and later.branch != "abandoned":
            time, number, line = calls[earlier.id]
            writer = PossibleWriter(call=later.id, tool=later.tool, any_file_reason=reason)
            session = later.call.session_id
            yield FileEvent(key=(time, number, line + 1), session=session, detail=writer)


def _result_line(span: Span) -> int:
    place = span.result.place if span.result else span.call.place
    return place.line if place else 0


def _event_details(
    span: Span, cwd: str | None, path_filter: PathFilter, *, contents: bool
) -> Iterator[FileEventDetail]:
    kind = span.call.kind
    may_change = kind in ("edit", "write", "shell") or span.tool in PATCH_TOOL_NAMES
    with suppress(SourceError):
        changes = changes_of(span, cwd) if may_change else []
        for change in changes:
            if any(path_filter(path) for path in (change.path, change.moved_from, change.moved_to) if path):
                yield change
        if changes:
            if contents and (explained := recorded_edits(span).changed_files):
                yield from _command_details(span, cwd, path_filter, explained)
            return
        if kind in ("edit", "write"):
            yield from (change for change in _failed_changes(span, cwd) if path_filter(change.path))
        elif not contents or span.state in _NEVER_RAN:
            return
        elif kind == "read":
            yield from (observation for observation in _read_observations(span, cwd) if path_filter(observation.path))
        elif may_change:
            yield from _command_details(span, cwd, path_filter)
        elif kind == "agent" and span.agent:
            yield PossibleWriter(call=span.id, tool=span.tool, any_file_reason=span.agent)
        elif kind in ("mcp", "other") and span.tool:
            yield PossibleWriter(call=span.id, tool=span.tool, raw_input=span.call.raw_input)


def _command_details(
    span: Span, cwd: str | None, path_filter: PathFilter, explained: tuple[str, ...] = ()
) -> Iterator[FileEventDetail]:
    command, folder = command_of(span, cwd)
    observation = printed_file(span, command, folder)
    if observation and path_filter(observation.path):
        yield observation
    if command:
        yield PossibleWriter(
            call=span.id,
            tool=span.tool,
            command=command,
            cwd=folder if get_format(span.call.client).shell_keeps_folder else None,
            explained=explained,
            in_background=span.background or (isinstance(span.input, BashInput) and bool(span.input.run_in_background)),
        )
    elif span.tool not in _READ_ONLY_SHELL_TOOLS and span.call.arguments.get("chars") != "":
        # A script, or input to a process that continues.
        yield PossibleWriter(call=span.id, tool=span.tool, any_file_reason=f"{span.tool} {span.id}")


def _failed_changes(span: Span, cwd: str | None) -> Iterator[FailedChange]:
    """Yield the changes that a failed call requested. An interrupted call may still have applied them."""
    if span.state == "succeeded":
        return
    may_be_applied = span.state in ("interrupted", "timed_out", "never_answered", "running")
    if span.state == "failed" and get_format(span.call.client).patches_are_partial:  # applied file by file
        text = span.result.text if span.result else ""
        may_be_applied = not any(phrase in text for phrase in _REJECTED_PATCH_TEXTS)
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
                may_be_applied=may_be_applied,
            )


# --- Observed contents


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
    is_whole = (
        file.start_line in (0, 1)
        and file.num_lines is not None
        and file.num_lines == file.total_lines == file.content.count("\n") + 1
        and not file.truncated_by_token_cap
    )
    if path and is_whole:
        yield FileObservation(path=path, call=span.id, source="Read", content=file.content)
    elif path and file.num_lines:
        part = FileExcerpt(start=file.start_line or 1, lines=tuple(file.content.split("\n")))
        yield FileObservation(path=path, call=span.id, source="Read", parts=(part,))


# --- Backups kept by the client


def _backup_events(transcript: Transcript, path_filter: PathFilter) -> Iterator[FileEvent]:
    with suppress(SourceError):
        for backup in transcript.format.backups(transcript.source, transcript.session_id):
            path, at = absolute_path(backup.path, transcript.info.cwd), parse_timestamp(backup.at)
            if at is None or not path_filter(path):
                continue
            content = ABSENT if backup.copy is None else _read_backup(backup.copy)
            if content is not None:
                observation = FileObservation(path=path, call=None, source="the client's backup", content=content)
                key = (at.timestamp(), -1, backup.line)
                yield FileEvent(key=key, session=transcript.session_id, detail=observation)


def _read_backup(path: Path) -> str | None:
    try:
        if not path.is_file():
            path = path.with_name(f"{path.name}.zst")  # in a kept archive
        if not path.is_file() or path.stat().st_size > _MAX_BACKUP_BYTES:
            return None
        data = source_for_path(path).read(0, _MAX_BACKUP_BYTES)
    except (OSError, ValueError, SourceError):
        return None
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_utf16 else "utf-8-sig", "replace").replace("\r\n", "\n")
