"""Read the files of a session while they grow. After the first poll, only new bytes are read.

Calls have the same states as in `read` and `toolspan show`. Start at `open_file` and `GrowingFile.poll_growth`.
Compressed files, files that consist of one JSON document, and objects in a store are read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.base import TranscriptContent
from toolspan.formats.jsonl import LineChunk
from toolspan.formats.lines import TranscriptReader
from toolspan.formats.pairing import Branches
from toolspan.formats.registry import format_of_path
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import COMPRESSED_SUFFIXES
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.follow import FileReset, Follower
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.ids import CallId
from toolspan.types.session import RequestUsage, SessionInfo
from toolspan.types.span import Evidence, Span

RunningEvidence = Callable[[str, SessionInfo], str | None]
"""A function that takes the file and the facts of a session with open calls, and returns the evidence that the session
is still running, or None.
"""
_MAX_REST_BYTES = 1 << 24


class FileGrowth(Struct, frozen=True, kw_only=True):
    """The changes of one file since the last poll. The first poll returns the whole content."""

    content: TranscriptContent
    """The new messages, and the calls that are new or changed. All other fields describe the whole file."""
    requests: Mapping[str, RequestUsage]
    """Requests to models that are new or changed, by message id."""
    info: SessionInfo
    finding_count: int
    moved_line: int | None = None
    """The first line whose branch has changed since the last poll, or None."""


class GrowingFile(Follower):
    """A file that grows. Calls without a result are unanswered, unless there is evidence that they are running."""

    def __init__(self, path: Path | str, running_evidence: RunningEvidence) -> None:
        super().__init__(path)
        self._running_evidence = running_evidence
        self._format = format_of_path(path)

    def _reset(self) -> None:
        super()._reset()
        self._branches: Branches | None = None
        self._running_ids: set[CallId] = set()

    def poll_growth(self) -> FileGrowth | None:
        """Return the changes since the last poll, or None if the file must be read from the start.

        That is so if the file was replaced or removed, or if its last record has no newline yet.

        Raises:
            SourceError: the file cannot be read, or cannot be read incrementally.
        """
        if self._read_new_lines() or (self._reader is not None and not self.path.exists()):
            return None
        reader, calls, content = self._reader, self._calls, self._content
        if reader is None or calls is None or content is None:
            raise SourceError(f"{self.file}: this file cannot be read incrementally")
        rest = self._read_rest()
        while b"\n" in rest:  # lines that were written in the meantime
            if self._read_new_lines():
                return None
            rest = self._read_rest()
        if json_repair.recover_objects(rest).pieces:  # a whole record, whose newline is not written yet
            return None
        calls.treat_as_complete()
        branches, moved_line = reader.branches(), None
        if self._branches is None:
            if branches:
                calls.move_to_branches(branches)
        elif (moved_line := branches.first_change(self._branches)) is not None:
            calls.move_to_branches(branches)
        self._branches = branches
        info = reader.session_info.build_info(self.path.name.partition(".")[0])
        messages, content.messages = content.messages, []
        origin = self._format.agent_origin(self.path) if info.agent_id else None
        return FileGrowth(
            content=TranscriptContent(
                file=self.file,
                agent_id=info.agent_id,
                spans=self._changed_spans(info),
                messages=messages,
                inline_agent_keys=content.inline_agent_keys,
                branches=branches,
                agent_prompts=content.agent_prompts,
                starter_call=origin.starter_call if origin else None,
                role=origin.role if origin else None,
            ),
            requests=content.changed_requests(),
            info=info,
            finding_count=len(reader.findings) + bool(rest.strip()),
            moved_line=moved_line,
        )

    def finish_transcript(self) -> Transcript | None:
        """Read the rest of the file and return the whole transcript, or None if it must be read from the start."""
        if not self.path.exists() or any(isinstance(update, FileReset) for update in self.finish()):
            return None
        return None if self._reader is None else Transcript(self._reader, self._format)

    def _changed_spans(self, info: SessionInfo) -> list[Span]:
        """Return the calls that may have changed.

        Open calls of the last message are `running` if there is evidence that the session is.
        """
        assert self._calls is not None
        batch = self._calls.last_batch()
        open_ids = {span.id for span in batch if span.state == "never_answered" and span.result is None}
        evidence = self._running_evidence(self.file, info) if open_ids else None
        for call_id in self._running_ids | open_ids:
            self._calls.mark_started(call_id)  # so that it is returned: its state may have changed
        self._running_ids = open_ids if evidence is not None else set()
        return [
            replace(span, state="running", evidence=(Evidence(evidence or ""),))
            if span.id in self._running_ids
            else span
            for span in self._calls.changed_spans()
        ]

    def _read_rest(self) -> bytes:
        """Return the incomplete last line."""
        with self.path.open("rb") as stream:
            stream.seek(self._offset)
            return stream.read(_MAX_REST_BYTES)

    def _add_chunk(self, reader: TranscriptReader[Any], chunk: LineChunk) -> None:
        if self._content is None:
            raise SourceError(f"{self.file}: a timeline of this format cannot be built incrementally")
        number = reader.next_line
        reader.add_chunk(chunk)
        for record, place in reader.chunk_records(chunk, number):
            self._content.add(record, place)


class GrownFile:
    """An entry of `partial_reads` for a growing file, which must not be polled afterwards."""

    def __init__(self, file: GrowingFile) -> None:
        self._file = file

    def finish(self) -> Transcript | None:
        """Return the transcript, or None if the file must be read from the start."""
        return self._file.finish_transcript()


class WholeFile:
    """A file that is read whole, because it cannot be read incrementally."""

    def __init__(self, path: Path, running_evidence: RunningEvidence) -> None:
        self._path = path
        self._running_evidence = running_evidence
        self._stamp: str | None = None
        self._growth: FileGrowth | None = None
        self.is_empty = False
        """True if the file had no calls, messages or requests, for example because its first line was incomplete."""

    def poll_growth(self) -> FileGrowth | None:
        """Return the whole content the first time, then an empty growth, or None if the file has changed.

        Raises:
            SourceError: the file cannot be read.
        """
        stamp = compute_file_stamp(self._path)
        if self._growth is not None:
            return self._growth if stamp == self._stamp else None
        transcript = read(self._path)
        content = read_content(transcript)
        spans = self._mark_running(transcript, content.spans)
        findings = len(transcript.findings)
        growth = FileGrowth(
            content=replace(content, spans=spans),
            requests=transcript.requests,
            info=transcript.info,
            finding_count=findings,
        )
        self._stamp = stamp
        self.is_empty = not (content.spans or content.messages or transcript.requests)
        nothing = TranscriptContent(
            file=content.file, agent_id=content.agent_id, spans=(), messages=(), branches=content.branches,
            starter_call=content.starter_call, role=content.role,
        )  # fmt: skip
        self._growth = FileGrowth(content=nothing, requests={}, info=transcript.info, finding_count=findings)
        return growth

    def _mark_running(self, transcript: Transcript, spans: Sequence[Span]) -> Sequence[Span]:
        last = next((span.call.message_id for span in reversed(spans) if span.branch == "active"), None)
        open_ids = {
            span.id
            for span in spans
            if span.state == "never_answered" and span.result is None
            if span.branch == "active" and span.call.message_id == last
        }
        evidence = self._running_evidence(transcript.file, transcript.info) if open_ids else None
        if evidence is None:
            return spans
        return [
            replace(span, state="running", evidence=(Evidence(evidence),)) if span.id in open_ids else span
            for span in spans
        ]


def open_file(path: Path, running_evidence: RunningEvidence) -> tuple[GrowingFile | WholeFile, FileGrowth]:
    """Return a reader for a session's file, and the current content of the file.

    Raises:
        SourceError: the file cannot be read.
    """
    if not isinstance(path, RemotePath) and not path.name.endswith(COMPRESSED_SUFFIXES):
        growing = GrowingFile(path, running_evidence)
        try:
            growth = growing.poll_growth()
        except (SourceError, OSError):  # empty, a document, or another format
            growth = None
        if growth is not None:
            return growing, growth
    whole = WholeFile(path, running_evidence)
    growth = whole.poll_growth()
    assert growth is not None
    return whole, growth
