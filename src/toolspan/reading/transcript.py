"""Read one file into a `Transcript`: its calls, messages, tokens and findings.

Facts are kept in memory, and bodies stay in the file. No file content raises an exception: problems become
findings. Start at `read`, which detects the format from the first lines and uses the reader for that format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from toolspan.types.span import Hook, Span

if TYPE_CHECKING:
    from toolspan.reading.rows import CallRow

_MAX_ROWS = 20_000
"""The maximum number of rows that are kept for a growing file."""


def read(path: Path | str | Source) -> Transcript:
    """Read a transcript, at a path or URL, and treat it as complete: calls without a result are unanswered.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read_source(source_for_path(path) if isinstance(path, str | Path | RemotePath) else path)


def read_known(path: Path | Source) -> Transcript:
    """Read a transcript like `read`, but also raise SourceError if no known client wrote the file."""
    return _read_source(source_for_path(path) if isinstance(path, Path | RemotePath) else path, known_only=True)


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


def _read_source(source: Source, *, scope: ReadScope = "all", known_only: bool = False) -> Transcript:
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
        spans: list[Span] | None = None,
        rows: dict[CallId, tuple[Span, CallRow]] | None = None,
    ) -> None:
        """Create a transcript from a reader that has read the file.

        A growing file, which keeps its calls, gives them and the rows that were made of some of them.
        """
        self.reader = reader
        if spans is not None:
            self.spans = spans
        self._rows = rows
        self.format = transcript_format
        self.source = reader.source
        self.counts = reader.counts

    @property
    def client(self) -> str:
        """The name of the client whose format the file has."""
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
        """Yield and release each call. Afterwards `spans` is empty, unless it was used before."""
        if "spans" in self.__dict__:
            return iter(self.spans)
        return self.reader.pairing.consume_spans(self.branches())

    def make_row(self, span: Span) -> CallRow:
        """Return the row for one of the calls. Rows of a growing file are made once, unless the call changes."""
        from toolspan.reading.rows import make_call_row

        if self._rows is None:
            return make_call_row(span, self.file)
        before, row = self._rows.get(span.id, (None, None))
        if row is None or before is not span:
            row = make_call_row(span, self.file)
            if len(self._rows) < _MAX_ROWS:
                self._rows[span.id] = (span, row)
        return row

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
    def hooks(self) -> Mapping[str, Sequence[Hook]]:
        """The hooks that ran, by the id of the call or of the event for which they ran."""
        return self.reader.pairing.hooks

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
