"""One file becomes a transcript: spans, messages, tokens, findings.

In: a source. Out: a `Transcript`, whose facts are in memory and whose bodies stay in the file.
Nothing a file contains raises; damage becomes findings. This is where reading begins: `read` asks
whose file it is, once; follow it to `Reader.line`, then `pair.py` for calls and `verdict.py` for
their states. Codex's files are read by `codex/reader.py`, which keeps the same things.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Union

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.message import Message
from toolspan.model.place import Place
from toolspan.model.session import Dialect, SessionInfo
from toolspan.model.span import Span
from toolspan.model.tokens import Tokens
from toolspan.read.about import About
from toolspan.read.lines import LineReader, decoded_again
from toolspan.read.pair import Pairing, success_name
from toolspan.read.tree import Branches, Tree
from toolspan.wire import claude
from toolspan.wire.claude import Entry
from toolspan.wire.detect import is_document, reads_as
from toolspan.wire.jsonl import Chunk, Line, read_chunks
from toolspan.wire.source import Source, source_of

if TYPE_CHECKING:
    from toolspan.read.codex.reader import Reader as RolloutReader


def read(path: Path | str | Source) -> "Transcript":
    """A transcript read from a file, which counts as finished.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read(source_of(path) if isinstance(path, str | Path) else path)


def read_calls(path: Path) -> "Transcript":
    """The same without tokens, titles and prompts, for those who only ask about calls.

    Raises:
        SourceError: the file cannot be opened or read.
    """
    return _read(source_of(path), calls_only=True)


def _read(source: Source, *, calls_only: bool = False) -> "Transcript":
    reader: AnyReader | None = None
    try:
        for chunk in read_chunks(source):
            if reader is None:
                reader = reader_for(source, chunk, calls_only=calls_only)
            reader.chunk(chunk)
    except SourceError as error:
        if reader is None:
            raise
        reader.broke_off(error)
    reader = reader or Reader(source)
    reader.finish()
    return Transcript(reader)


def reader_for(source: Source, chunk: Chunk, *, calls_only: bool = False) -> "AnyReader":
    """The reader of the dialect that a file's first chunk shows."""
    if reads_as(source.name, chunk.data, chunk.start, chunk.end) == "claude":
        return Reader(source, calls_only=calls_only)
    from toolspan.read.codex.reader import DocumentReader
    from toolspan.read.codex.reader import Reader as RolloutReader

    document = is_document(bytes(chunk.data[chunk.start : chunk.end]))
    kind = DocumentReader if document else RolloutReader
    return kind(source, calls_only=calls_only)


class Reader(LineReader[Entry]):
    """Takes the lines of a Claude transcript and keeps what they say."""

    dialect: Dialect = "claude"
    role: str | None = None
    """What sort of subagent wrote the file; a side file tells that, never the file itself."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source)
        self.pairing = Pairing(source)
        self.about = About(calls_only=calls_only)
        self.tree = Tree()

    _decode_whole = staticmethod(claude.decode_whole)
    _decode = staticmethod(claude.decode)

    def _take(self, found: Sequence[Entry], places: Sequence[int], number: int) -> None:
        self.about.add(found)
        self.tree.add(found, number)
        self.pairing.add(found, places)

    def branches(self) -> Branches:
        """Which lines are on the active branch."""
        return self.tree.branches()

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.read.messages import heard

        for entry, place in entries(self.source):
            yield from heard(entry, place, self.source)


AnyReader = Union[Reader, "RolloutReader"]


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
        return list(self.surrender())

    def surrender(self) -> Iterator[Span]:
        """The same one after another, each let go as it is given, for those who keep none."""
        return self._reader.pairing.surrender(self.branches())

    @property
    def started(self) -> dict[str, str]:
        """Which call started which subagent, by the subagent's id."""
        return self._reader.pairing.started

    @property
    def successes(self) -> list[str]:
        """A name for each call that succeeded, by which copies in other files are known."""
        if "spans" in self.__dict__:
            return [success_name(span.call) for span in self.spans if span.state == "succeeded"]
        return self._reader.pairing.successes()

    @cached_property
    def info(self) -> SessionInfo:
        """What the file says about the conversation as a whole."""
        return self._reader.about.info(Path(self.file).name.partition(".")[0])

    @property
    def session_id(self) -> str | None:
        """The session the file belongs to."""
        return self.info.session_id

    @cached_property
    def tokens(self) -> Tokens:
        """Per message the largest value of each field, summed."""
        return self._reader.about.tokens

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message id."""
        return self._reader.about.messages

    @property
    def tokens_raw_sum(self) -> Tokens:
        """What naive adding gives; shown to explain differences."""
        return self._reader.about.raw_sum

    @property
    def findings(self) -> list[Finding]:
        """Damage that reading met."""
        return self._reader.findings

    @property
    def tree(self) -> Tree:
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

    def lines(self) -> Iterator[Line]:
        """The lines, or what stands for them, read again from the file."""
        return self._reader.lines()

    def entries(self) -> Iterator[tuple[Entry, Place]]:
        """All entries of a Claude transcript with their places, read again from the file."""
        return entries(self.source) if self.dialect == "claude" else iter(())


def entries(source: Source) -> Iterator[tuple[Entry, Place]]:
    """The entries of a source, those recovered from damaged lines included.

    Raises:
        SourceError: nothing can be read.
    """
    return decoded_again(source, claude.decode)
