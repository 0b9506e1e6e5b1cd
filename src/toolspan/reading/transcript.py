"""One file becomes a transcript: spans, messages, tokens, findings.

In: a source. Out: a `Transcript`, whose facts are in memory and whose bodies stay in the file.
Nothing a file contains raises; damage becomes findings. This is where reading begins: `read` asks
whose file it is, once; follow it to `Reader.line`, then `pair.py` for calls and `verdict.py` for
their states. Codex's files are read by `codex/reader.py`, which keeps the same things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Union

from toolspan.errors import SourceError
from toolspan.formats.claude import records
from toolspan.formats.claude.pairing import Pairing, success_key
from toolspan.formats.claude.records import Entry
from toolspan.formats.claude.session_info import SessionInfoCollector
from toolspan.formats.claude.tree import Branches, RecordTree
from toolspan.formats.detect import choose_dialect, is_document
from toolspan.formats.jsonl import JsonLine, LineChunk, read_chunks
from toolspan.formats.lines import LineReader, reread_lines
from toolspan.formats.source import Source, source_for_path
from toolspan.types.finding import Finding
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Dialect, Message, SessionInfo
from toolspan.types.span import Span
from toolspan.types.tokens import Tokens

if TYPE_CHECKING:
    from toolspan.formats.codex.reader import RolloutReader


def read(path: Path | str | Source) -> Transcript:
    """A transcript read from a file, which counts as finished.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read_source(source_for_path(path) if isinstance(path, str | Path) else path)


def read_calls(path: Path) -> Transcript:
    """The same without tokens, titles and prompts, for those who only ask about calls.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read_source(source_for_path(path), calls_only=True)


def _read_source(source: Source, *, calls_only: bool = False) -> Transcript:
    reader: AnyReader | None = None
    try:
        for chunk in read_chunks(source):
            if reader is None:
                reader = make_reader(source, chunk, calls_only=calls_only)
            reader.add_chunk(chunk)
    except SourceError as error:
        if reader is None:
            raise
        reader.handle_source_error(error)
    reader = reader or ClaudeReader(source)
    reader.finish()
    return Transcript(reader)


def make_reader(source: Source, chunk: LineChunk, *, calls_only: bool = False) -> AnyReader:
    """The reader of the dialect that a file's first chunk shows."""
    if choose_dialect(source.name, chunk.data, chunk.start, chunk.end) == "claude":
        return ClaudeReader(source, calls_only=calls_only)
    from toolspan.formats.codex.reader import RolloutDocumentReader, RolloutReader

    document = is_document(bytes(chunk.data[chunk.start : chunk.end]))
    kind = RolloutDocumentReader if document else RolloutReader
    return kind(source, calls_only=calls_only)


class ClaudeReader(LineReader[Entry]):
    """Takes the lines of a Claude transcript and keeps what they say."""

    dialect: Dialect = "claude"
    role: str | None = None
    """What sort of subagent wrote the file; a side file tells that, never the file itself."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source)
        self.pairing = Pairing(source)
        self.session_info = SessionInfoCollector(calls_only=calls_only)
        self.tree = RecordTree()

    _decode_whole = staticmethod(records.decode_entries)
    _decode = staticmethod(records.decode_entry)

    def _process(self, decoded: Sequence[Entry], places: Sequence[int], number: int) -> None:
        self.session_info.add(decoded)
        self.tree.add(decoded, number)
        self.pairing.add(decoded, places)

    def branches(self) -> Branches:
        """Which lines are on the active branch."""
        return self.tree.branches()

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.formats.claude.messages import parse_entry_messages

        for entry, place in iter_entries(self.source):
            yield from parse_entry_messages(entry, place, self.source)


AnyReader = Union[ClaudeReader, "RolloutReader"]


class Transcript:
    """One file, read, whichever client wrote it."""

    def __init__(self, reader: AnyReader) -> None:
        self._reader = reader
        self.source = reader.source
        self.counts = reader.counts

    @property
    def dialect(self) -> Dialect:
        """Whose form the file has."""
        return self._reader.dialect

    @property
    def file(self) -> str:
        """The file's name as given."""
        return self.source.name

    @cached_property
    def spans(self) -> list[Span]:
        """Every call of the file, in the order the model asked."""
        return list(self.iter_spans())

    def iter_spans(self) -> Iterator[Span]:
        """The same one after another, each let go as it is given, for those who keep none."""
        return self._reader.pairing.consume_spans(self.branches())

    @property
    def agent_starters(self) -> dict[str, str]:
        """Which call started which subagent, by the subagent's id."""
        return self._reader.pairing.agent_starters

    @property
    def success_keys(self) -> list[str]:
        """A name for each call that succeeded, by which copies in other files are known."""
        if "spans" in self.__dict__:
            return [success_key(span.call) for span in self.spans if span.state == "succeeded"]
        return self._reader.pairing.success_keys()

    @cached_property
    def info(self) -> SessionInfo:
        """What the file says about the conversation as a whole."""
        return self._reader.session_info.build_info(Path(self.file).name.partition(".")[0])

    @property
    def session_id(self) -> str | None:
        """The session the file belongs to."""
        return self.info.session_id

    @cached_property
    def tokens(self) -> Tokens:
        """Per message the largest value of each field, summed."""
        return self._reader.session_info.tokens

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message id."""
        return self._reader.session_info.message_tokens

    @property
    def tokens_raw_sum(self) -> Tokens:
        """What naive adding gives; shown to explain differences."""
        return self._reader.session_info.raw_sum

    @property
    def findings(self) -> list[Finding]:
        """Damage that reading met."""
        return self._reader.findings

    @property
    def tree(self) -> RecordTree:
        """The parent links of the file's lines; empty where lines have none."""
        return self._reader.tree

    def branches(self) -> Branches:
        """Which lines the model still saw at the end."""
        return self._reader.branches()

    @property
    def role(self) -> str | None:
        """What sort of subagent wrote the file, if the file says."""
        return self._reader.role

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        return self._reader.messages()

    def lines(self) -> Iterator[JsonLine]:
        """The lines, or what stands for them, read again from the file."""
        return self._reader.lines()

    def entries(self) -> Iterator[tuple[Entry, SourceLocation]]:
        """All entries of a Claude transcript with their places, read again from the file."""
        return iter_entries(self.source) if self.dialect == "claude" else iter(())


def iter_entries(source: Source) -> Iterator[tuple[Entry, SourceLocation]]:
    """The entries of a source, those recovered from damaged lines included.

    Raises:
        SourceError: nothing can be read.
    """
    return reread_lines(source, records.decode_entry)
