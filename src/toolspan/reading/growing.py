"""Read files while they grow. After the first read, only new complete lines are read.

`GrowingFile` serves everything that reads growing files: `follow.py` reports the calls with their open states, the
timeline of a session takes what is new (`poll_growth`), and jobs take the whole file (`read_transcript`). Compressed
files, files that consist of one JSON document, and objects in a store are read whole: see `open_file`.
"""

from __future__ import annotations

import io
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.base import ContentCollector, TranscriptContent
from toolspan.formats.jsonl import LineChunk, read_chunks
from toolspan.formats.lines import TranscriptReader
from toolspan.formats.pairing import Branches, LiveCallPairing
from toolspan.formats.registry import choose_format, format_of_path, is_foreign
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import COMPRESSED_SUFFIXES, FileSource, Source
from toolspan.reading.cache import compute_file_stamp
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.ids import CallId
from toolspan.types.session import RequestUsage, SessionInfo
from toolspan.types.span import Evidence, Span

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from toolspan.reading.rows import CallRow

RunningEvidence = Callable[[str, SessionInfo], str | None]
"""A function that takes the file and the facts of a session with open calls, and returns the evidence that the session
is still running, or None.
"""
ResetReason = Literal["truncated", "replaced", "rewritten"]
"""The reason why a file was read from the start again."""
_HEAD, _TAIL = 1024, 256
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


class GrowingFile:
    """An uncompressed file of lines, which may not exist yet and may be replaced by another."""

    def __init__(self, path: Path | str, running_evidence: RunningEvidence | None = None) -> None:
        """Create a file that has not been read yet. `running_evidence` is for `poll_growth`.

        Raises:
            SourceError: the file is compressed.
        """
        self.path = Path(path)
        self.file = str(path)
        if self.path.name.endswith(COMPRESSED_SUFFIXES):
            raise SourceError(f"{path}: a compressed transcript does not grow and cannot be followed")
        self._running_evidence = running_evidence
        self._format = format_of_path(path)
        self._was_reset = False
        self._reset()

    def _reset(self) -> None:
        self.reader: TranscriptReader[Any] | None = None
        self.calls: LiveCallPairing[Any] | None = None
        self.size = 0
        """The number of bytes read so far."""
        self._content: ContentCollector | None = None
        self._is_foreign = False
        self._edges = (b"", b"")
        self._inode: tuple[int, int] | None = None
        self._last_signature: tuple[int, ...] | None = None
        self._branches: Branches | None = None
        self._moved_line: int | None = None
        self._unreported: dict[CallId, Span] = {}
        """The calls that have changed since the last growth."""
        self._spans: dict[CallId, Span] | None = None
        """All calls, once a transcript has been read."""
        self._rows: dict[CallId, tuple[Span, CallRow]] = {}
        self._running_ids: set[CallId] = set()

    # New lines

    def read_new_lines(self, size: int | None = None, *, last: bool = False) -> ResetReason | None:
        """Read the new complete lines, or those in the first `size` bytes. With `last`, also read an incomplete one.

        Return the reason if everything had to be read again. The calls of a deleted file are kept.

        Raises:
            SourceError: the file exists, but cannot be read line by line.
        """
        reason: ResetReason | None = None
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise SourceError(f"{self.path}: not a file that can be followed")
            if _file_signature(status) == self._last_signature and not last:
                return None
            with self.path.open("rb", buffering=0) as stream:
                status = os.fstat(stream.fileno())
                reason = self._find_reset_reason(stream, status)
                if reason:
                    self._reset()
                    self._was_reset = True
                end = status.st_size if size is None else min(size, status.st_size)
                self._read_until(stream, end, last=last)
                self._edges = self._read_edges(stream)
                self._inode = (status.st_dev, status.st_ino)
                self._last_signature = _file_signature(status) if size is None else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from error
        return reason

    def _find_reset_reason(self, stream: BinaryIO, status: os.stat_result) -> ResetReason | None:
        if not self.size:
            return None
        if (status.st_dev, status.st_ino) != self._inode:
            return "replaced"
        if status.st_size < self.size:
            return "truncated"
        return "rewritten" if self._read_edges(stream) != self._edges else None

    def _read_edges(self, stream: BinaryIO) -> tuple[bytes, bytes]:
        """Return the first and last bytes of the part already read, which identify the file."""
        stream.seek(0)
        head = stream.read(min(_HEAD, self.size))
        stream.seek(max(0, self.size - _TAIL))
        return head, stream.read(min(_TAIL, self.size))

    def _read_until(self, stream: BinaryIO, end: int, *, last: bool) -> None:
        """Read from the current offset to `end`. An incomplete last line is only read if `last` is set."""
        source = cast("Source", _BoundedSource(stream, end))
        for chunk in read_chunks(source, offset=self.size):
            if not chunk.has_newline and not last:
                return
            if self.reader is None:
                self.reader = self._make_reader(chunk)
            number = self.reader.next_line
            self.reader.add_chunk(chunk)
            if self._content is not None:
                for record, place in self.reader.chunk_records(chunk, number):
                    self._content.add(record, place)
            self.size = chunk.offset + chunk.source_length

    def _make_reader(self, chunk: LineChunk) -> TranscriptReader[Any]:
        data, start, end = chunk.data, chunk.start, chunk.end
        self._is_foreign = is_foreign(self.file, data, start, end)
        self._format = choose_format(self.file, data, start, end)
        is_document = self._format.is_document(bytes(data[start:end]))
        live_reader = None if is_document else self._format.make_live_reader(FileSource(self.path))
        if live_reader is None:
            form = "one JSON document" if is_document else f"a file of {self._format.title}"
            raise SourceError(f"{self.path}: {form} cannot be followed, only read")
        if self._running_evidence is not None:
            if live_reader.content is None:
                raise SourceError(f"{self.file}: a timeline of this format cannot be built incrementally")
            self._content = live_reader.content
        self.calls = live_reader.calls
        return live_reader.reader

    def _read_all_lines(self) -> bytes | None:
        """Read the new lines until only an incomplete line is left, and return it; None if the file was removed."""
        while True:
            self.read_new_lines()
            try:
                with self.path.open("rb") as stream:
                    stream.seek(self.size)
                    rest = stream.read(_MAX_REST_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if b"\n" not in rest or self.reader is None:
                return rest

    # The content as if the file were complete

    def poll_growth(self) -> FileGrowth | None:
        """Return the changes since the last poll, or None if the file must be read from the start.

        That is so if the file was replaced or removed, or if its last record has no newline yet. Calls have the same
        states as in `read`, but open calls are `running` if there is evidence that the session is.

        Raises:
            SourceError: the file cannot be read, or cannot be read incrementally.
        """
        rest = self._read_all_lines()
        if rest is None or self._was_reset:
            return None
        reader, calls, content = self.reader, self.calls, self._content
        if reader is None or calls is None or content is None:
            raise SourceError(f"{self.file}: this file cannot be read incrementally")
        if json_repair.recover_objects(rest).pieces:  # a whole record, whose newline is not written yet
            return None
        branches = self._update_branches(reader, calls)
        info = reader.session_info.build_info(self.path.name.partition(".")[0])
        spans = self._take_unreported_spans(calls, info)
        messages, content.messages = content.messages, []
        moved_line, self._moved_line = self._moved_line, None
        origin = self._format.agent_origin(self.path) if info.agent_id else None
        return FileGrowth(
            content=TranscriptContent(
                file=self.file,
                agent_id=info.agent_id,
                spans=spans,
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

    def _take_unreported_spans(self, calls: LiveCallPairing[Any], info: SessionInfo) -> list[Span]:
        """Return the calls that may have changed since the last growth, with their states if the session runs."""
        batch = calls.last_batch()
        open_ids = {span.id for span in batch if span.state == "never_answered" and span.result is None}
        evidence = self._running_evidence(self.file, info) if open_ids and self._running_evidence else None
        for call_id in self._running_ids | open_ids:
            calls.mark_started(call_id)  # so that it is returned: its state may have changed
        self._running_ids = open_ids if evidence is not None else set()
        self._update_spans(calls)
        spans, self._unreported = self._unreported, {}
        return [
            replace(span, state="running", evidence=(Evidence(evidence or ""),))
            if span.id in self._running_ids
            else span
            for span in spans.values()
        ]

    def read_transcript(self) -> Transcript | None:
        """Read the new lines and return the same transcript as `read`. It is valid until more lines are read.

        Return None if the file must be read from the start: if its last line is incomplete, if it was removed or cannot
        be read line by line, or if no known client wrote it.
        """
        try:
            rest = self._read_all_lines()
        except SourceError:
            return None
        if rest is None or rest.strip() or self.reader is None or self.calls is None or self._is_foreign:
            return None
        self._update_branches(self.reader, self.calls)
        self._update_spans(self.calls)
        if self._spans is None:
            self._spans = {span.id: span for span in self.calls.current_spans()}
        spans = [self._spans[call_id] for call_id in self.calls.call_ids]
        return Transcript(self.reader, self._format, spans, self._rows)

    def _update_branches(self, reader: TranscriptReader[Any], calls: LiveCallPairing[Any]) -> Branches:
        calls.treat_as_complete()
        branches = reader.branches()
        if self._branches is None:
            if branches:
                calls.move_to_branches(branches)
        elif (moved_line := branches.first_change(self._branches)) is not None:
            calls.move_to_branches(branches)
            self._moved_line = min(moved_line, self._moved_line or moved_line)
        self._branches = branches
        return branches

    def _update_spans(self, calls: LiveCallPairing[Any]) -> None:
        changed = {span.id: span for span in calls.changed_spans()}
        if self._content is not None:
            self._unreported |= changed
        if self._spans is not None:
            self._spans |= changed


def _file_signature(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class _BoundedSource(io.RawIOBase):
    """An open file limited to a fixed size, so that one poll sees a consistent state."""

    def __init__(self, stream: BinaryIO, end: int) -> None:
        super().__init__()
        self._stream = stream
        self._end = end

    def open(self, offset: int = 0) -> BinaryIO:
        self._stream.seek(offset)
        return cast("BinaryIO", self)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        data = self._stream.read(min(len(view), max(0, self._end - self._stream.tell())))
        view[: len(data)] = data
        return len(data)


class KeptFiles:
    """The files that grew last, which a process keeps in memory between questions.

    perf: otherwise, each answer reads a growing session from the start (0.6 s of CPU time for 100 MB).
    """

    def __init__(self, max_files: int = 4, max_bytes: int = 128 << 20) -> None:
        """Create an empty set with these limits. At least one file is kept."""
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._files: OrderedDict[str, GrowingFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def keep(self, paths: Iterable[str]) -> None:
        """Keep these files, which are read when they are needed, and forget the oldest ones."""
        for path in paths:
            if path not in self._files:
                self._files[path] = GrowingFile(path)
            self._files.move_to_end(path)
        size = sum(file.size for file in self._files.values())
        while len(self._files) > 1 and (len(self._files) > self._max_files or size > self._max_bytes):
            size -= self._files.popitem(last=False)[1].size

    def read(self, path: Path | str) -> Transcript | None:
        """Return the transcript of a file that is kept, or None if it must be read from the start."""
        file = self._files.get(str(path))
        return None if file is None else file.read_transcript()

    def clear(self) -> None:
        """Forget all files."""
        self._files.clear()


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
