"""Read one file into a `Transcript`: its calls, messages, tokens and findings.

Facts are kept in memory, and bodies stay in the file. No file content raises an exception: problems become
findings. Start at `read`, which detects the format from the first lines and uses the reader for that format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.formats.base import AgentOrigin, ReadScope, TranscriptContent, TranscriptFormat
from toolspan.formats.jsonl import JsonLine, read_chunks
from toolspan.formats.lines import TranscriptReader
from toolspan.formats.pairing import Branches
from toolspan.formats.registry import choose_format, foreign_file_problem, format_of_path, is_foreign
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import Source, source_for_path, to_path
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Finding, Message, RequestUsage, SessionInfo, Tokens
from toolspan.types.span import Span

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow


def read(path: Path | str | Source) -> Transcript:
    """Read a transcript, at a path or URL, and treat it as complete: calls without a result are unanswered.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read_source(source_for_path(path) if isinstance(path, str | Path | RemotePath) else path)


def read_known(path: Path | Source) -> Transcript:
    """Read a transcript like `read`, but also raise SourceError if no known client wrote the file."""
    return _read_source(source_for_path(path) if isinstance(path, Path | RemotePath) else path, known_only=True)


def read_calls(path: Path) -> Transcript:
    """Read a transcript without collecting tokens, titles and prompts.

    Raises:
        SourceError: the file cannot be opened or read, or no known client wrote it.
    """
    return _read_source(source_for_path(path), scope="calls", known_only=True)


def read_requests(path: Path) -> Transcript:
    """Read only a transcript's model requests, and the types of the subagents that made them. It has no calls.

    Raises:
        SourceError: the file cannot be opened or read, or no known client wrote it.
    """
    return _read_source(source_for_path(path), scope="requests", known_only=True)


def read_content(transcript: Transcript, spans: Sequence[Span] | None = None) -> TranscriptContent:
    """Read a transcript's file again and return its calls, or some of them, and its messages for a timeline.

    Raises:
        SourceError: the file can no longer be read.
    """
    return transcript.reader.read_content(transcript.info, transcript.spans if spans is None else spans)


class Continuation(Protocol):
    """A file that has been read in part."""

    def finish(self) -> Transcript | None:
        """Read the rest and return the transcript, or None if the file must be read from the start. Call it once."""


class PartialRead:
    """A growing file that has been read up to the end of its last complete line.

    A server keeps one for each recent file and forks a process for each query. In that process, `read` continues from
    here instead of reading the whole file.
    """

    def __init__(self, path: str) -> None:
        """Create an object that has read nothing yet. `catch_up` reads the file."""
        self._path = path
        self._offset = 0
        self._edge = b""
        self._inode: tuple[int, int] | None = None
        self._reader: TranscriptReader[Any] | None = None
        self._format = format_of_path(path)
        self._rows: dict[CallId, tuple[Span, CallRow]] = {}

    @property
    def size(self) -> int:
        """The number of bytes read so far."""
        return self._offset

    def catch_up(self) -> bool:
        """Read the new complete lines, or return False if the file must be read from the start."""
        from toolspan.reading.rows import make_call_row

        if not self._read_on(last=False):
            return False
        if self._reader is not None and len(self._rows) < _MAX_ROWS:
            for span in self._reader.pairing.answered_spans(self._rows):
                self._rows[span.id] = (span, make_call_row(span, self._path))
        return True

    def finish(self) -> Transcript | None:
        """Read the rest and return the transcript, or None if the file must be read from the start. Call it once."""
        if not self._read_on(last=True) or self._reader is None:
            return None
        self._reader.finish()
        return Transcript(self._reader, self._format, self._rows)

    def _read_on(self, *, last: bool) -> bool:
        try:
            status = Path(self._path).stat()
            inode = (status.st_dev, status.st_ino)
            if self._inode not in (None, inode) or status.st_size < self._offset or self._read_edge() != self._edge:
                return False
            self._inode = inode
            source = source_for_path(self._path)
            for chunk in read_chunks(source, offset=self._offset):
                if not chunk.has_newline and not last:
                    break
                if self._reader is None:
                    if is_foreign(source.name, chunk.data, chunk.start, chunk.end):
                        return False
                    self._format = choose_format(source.name, chunk.data, chunk.start, chunk.end)
                    if self._format.is_document(bytes(chunk.data[chunk.start : chunk.end])):
                        return False
                    self._reader = self._format.make_reader(source, chunk)
                self._reader.add_chunk(chunk)
                self._offset = chunk.offset + chunk.source_length
            self._edge = self._read_edge()
        except (OSError, SourceError):
            return False
        return True

    def _read_edge(self) -> bytes:
        """Return the bytes before the current offset. If they have changed, the file was rewritten."""
        if not self._offset:
            return b""
        with Path(self._path).open("rb") as stream:
            stream.seek(max(0, self._offset - _EDGE_BYTES))
            return stream.read(min(_EDGE_BYTES, self._offset))


_EDGE_BYTES = 512
_MAX_ROWS = 20_000
"""The maximum number of rows that are kept for a growing file."""
partial_reads: ContextVar[dict[str, Continuation] | None] = ContextVar("partial_reads", default=None)
"""Partly read files that `read` continues, by name. Each is used once."""


def _read_source(source: Source, *, scope: ReadScope = "all", known_only: bool = False) -> Transcript:
    partial = (partial_reads.get() or {}).pop(source.name, None)
    if partial is not None and (transcript := partial.finish()) is not None:
        return transcript
    transcript_format = format_of_path(source.name)
    reader: TranscriptReader[Any] | None = None
    try:
        for chunk in read_chunks(source):
            if reader is None:
                if known_only and is_foreign(source.name, chunk.data, chunk.start, chunk.end):
                    raise SourceError(foreign_file_problem(source.name))
                transcript_format = choose_format(source.name, chunk.data, chunk.start, chunk.end)
                reader = transcript_format.make_reader(source, chunk, scope=scope)
            reader.add_chunk(chunk)
    except SourceError as error:
        if reader is None:
            raise
        reader.handle_source_error(error)
    reader = reader or transcript_format.make_reader(source, None)
    reader.finish()
    return Transcript(reader, transcript_format)


class Transcript:
    """The content of one transcript file in any format."""

    def __init__(
        self,
        reader: TranscriptReader[Any],
        transcript_format: TranscriptFormat,
        rows: Mapping[CallId, tuple[Span, CallRow]] | None = None,
    ) -> None:
        self.reader = reader
        self._rows = rows or {}
        self.format = transcript_format
        self.source = reader.source
        self.counts = reader.counts

    @property
    def dialect(self) -> str:
        """The name of the format."""
        return self.format.name

    @property
    def file(self) -> str:
        """The file name as the caller gave it."""
        return self.source.name

    @cached_property
    def spans(self) -> list[Span]:
        """Every call in the file, in request order."""
        return list(self.iter_spans())

    def iter_spans(self) -> Iterator[Span]:
        """Yield and release each call. Afterwards `spans` is empty."""
        return self.reader.pairing.consume_spans(self.branches())

    def make_row(self, span: Span) -> CallRow:
        """Return the row for one of the calls. Rows of a growing file are reused, unless the call has changed."""
        from toolspan.reading.rows import make_call_row

        before, row = self._rows.get(span.id, (None, None))
        if row is None or replace(span, branch="active") != before:
            return make_call_row(span, self.file)
        return row if span.branch == row.branch else replace(row, branch=span.branch)

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        return self.reader.pairing.agent_starters

    @property
    def agent_origin(self) -> AgentOrigin:
        """Facts about the subagent that wrote the file, from the file beside it."""
        if not self.info.agent_id:
            return AgentOrigin()
        path = to_path(self.file)
        return format_of_path(path).agent_origin(path)

    @property
    def agent_types(self) -> dict[str, str]:
        """Types of the started subagents, by the id of the call that started each."""
        return self.reader.pairing.agent_types

    @property
    def message_starters(self) -> dict[str, str]:
        """Calls that started the subagents whose messages are in this file, by message id."""
        return self.reader.pairing.message_starters

    @property
    def success_keys(self) -> list[str]:
        """A key for each successful call. Copies in other files have the same key."""
        if "spans" in self.__dict__:
            return [f"{span.call.id} {span.call.message_id}" for span in self.spans if span.state == "succeeded"]
        return self.reader.pairing.success_keys()

    @cached_property
    def info(self) -> SessionInfo:
        """Facts about the conversation as a whole."""
        name = os.path.basename(self.file)  # noqa: PTH119 - perf: called for every file
        return self.reader.session_info.build_info(name.partition(".")[0])

    @property
    def session_id(self) -> str | None:
        """The session that the file belongs to."""
        return self.info.session_id

    @cached_property
    def tokens(self) -> Tokens:
        """The total number of tokens, counting each message once with the largest value of each field."""
        return self.reader.session_info.tokens

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message id."""
        return self.reader.session_info.message_tokens

    @property
    def requests(self) -> dict[str, RequestUsage]:
        """Model requests by message id, each with its tokens, model and time."""
        return self.reader.session_info.requests

    @property
    def findings(self) -> list[Finding]:
        """Problems found while reading."""
        return self.reader.findings

    @property
    def role(self) -> str | None:
        """The type of the subagent that wrote the file, if recorded."""
        return self.reader.role

    def branches(self) -> Branches:
        """Return the branch of each line."""
        return self.reader.branches()

    def messages(self) -> Iterator[Message]:
        """Read the file again and yield the messages between the calls."""
        return self.reader.messages()

    def lines(self) -> Iterator[JsonLine]:
        """Read the file again and yield its lines, or the items of a JSON document."""
        return self.reader.lines()

    def entries(self) -> Iterator[tuple[Any, SourceLocation]]:
        """Read the file again and yield its decoded lines with their locations. Their type depends on the format.

        Raises:
            SourceError: nothing can be read.
        """
        return self.reader.records()
