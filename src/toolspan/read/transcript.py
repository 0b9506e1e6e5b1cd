"""One file becomes a transcript: spans, messages, tokens, findings.

In: a source. Out: a `Transcript`, whose facts are in memory and whose bodies stay in the file.
Nothing a file contains raises; damage becomes findings. This is where reading begins: `read` asks
whose file it is, once; follow it to `Reader.line`, then `pair.py` for calls and `verdict.py` for
their states. Codex's files are read by `codex/reader.py`, which keeps the same things.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Union

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.message import Message
from toolspan.model.place import LINE_BIT, OFFSET_BIT, Place
from toolspan.model.session import Dialect, SessionInfo
from toolspan.model.span import Counts, Span
from toolspan.model.tokens import Tokens
from toolspan.read.about import About
from toolspan.read.damage import finding
from toolspan.read.pair import Pairing, success_name
from toolspan.read.tree import Branches, Tree
from toolspan.wire import claude, document
from toolspan.wire.claude import Entry
from toolspan.wire.detect import is_document, reads_as
from toolspan.wire.jsonl import Chunk, Line, read_chunks, read_lines
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


class Reader:
    """Takes lines in file order and keeps what they say."""

    dialect: Dialect = "claude"
    role: str | None = None
    """What sort of subagent wrote the file; a side file tells that, never the file itself."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        self.source = source
        self._file = source.name
        self.pairing = Pairing(source)
        self.about = About(calls_only=calls_only)
        self.tree = Tree()
        self.findings: list[Finding] = []
        self._number = 1
        self._lines = 0
        self._blank = 0
        self._malformed = 0
        self._recovered = 0

    @property
    def counts(self) -> Counts:
        """How many lines there were so far, and of what."""
        return Counts(
            lines=self._lines,
            blank=self._blank,
            malformed=self._malformed,
            recovered=self._recovered,
        )

    def chunk(self, chunk: Chunk) -> None:
        """The next lines, in one piece; one by one only where something is odd."""
        start = chunk.start
        small = chunk.end - start <= chunk.limit and not chunk.passed
        found = claude.decode_whole(chunk.data, start, chunk.end) if small else None
        if found is None:
            for line in chunk.lines(self._number):
                self.line(line)
                self._number = line.number + 1
            return
        entries, ends = found
        number, before = self._number, chunk.offset - start + 1
        places = [
            n << LINE_BIT | before + last << OFFSET_BIT | end - last - 1
            for n, last, end in zip(count(number), [start - 1, *ends], ends, strict=False)
        ]
        self.about.add(entries)
        self.tree.add(entries, number)
        self.pairing.add(entries, places)
        self._lines += len(entries)
        self._number += len(entries)

    def finish(self) -> None:
        """All has been read."""

    def branches(self) -> Branches:
        """Which lines are on the active branch."""
        return self.tree.branches()

    def lines(self) -> Iterator[Line]:
        """The lines, read again from the file."""
        return read_lines(self.source)

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.read.messages import heard

        for entry, place in entries(self.source):
            yield from heard(entry, place, self.source)

    def broke_off(self, error: SourceError) -> None:
        """The source failed: keep what was read, unless that is nothing.

        Raises:
            SourceError: nothing was read.
        """
        if not self._lines:
            raise error
        self._find("unreadable_rest", Place(self._file, self._lines, 0, 0), str(error))

    def line(self, line: Line) -> None:
        """The next line."""
        try:
            entry = claude.decode_typed(line.data)
        except claude.UNFIT:
            self._odd(line)
            return
        self._lines += 1
        self.entry(entry, self._place(line))

    def _odd(self, line: Line) -> None:
        """A line that the typed decoder refuses: odd values, or damage."""
        try:
            entry, odd = claude.decode_loosely(line.data)
        except ValueError:
            self._damaged(line)
            return
        self._lines += 1
        if odd:
            self._find("odd_type", self._place(line), f"unexpected type of {', '.join(odd[:5])}")
        self.entry(entry, self._place(line))

    def entry(self, entry: Entry, place: Place) -> None:
        """One entry and where it stands."""
        self.about.add((entry,))
        self.tree.add((entry,), place.line)
        self.pairing.add((entry,), (place.packed,))

    def _damaged(self, line: Line) -> None:
        """A line that is not exactly one JSON object: save what can be saved."""
        if not line.oversized and not line.data.strip():
            self._blank += 1
            return
        self._lines += 1
        self._malformed += 1
        if line.oversized:
            self._find("line_too_long", self._place(line), f"{line.length:,} bytes")
            return
        saved = document.recover(line.data)
        code = saved.reason if line.ended or saved.pieces else "torn_last_line"
        self._find(code, self._place(line), f"{len(saved.pieces)} entries recovered")
        for piece in saved.pieces:
            self._recovered += 1
            place = Place(self._file, line.number, line.offset + piece.offset, piece.length)
            self.entry(claude.decode(piece.data).entry, place)

    def _place(self, line: Line) -> Place:
        return Place(self._file, line.number, line.offset, line.length)

    def _find(self, code: str, place: Place, detail: str) -> None:
        self.findings.append(finding(code, place, detail))


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

    def failures(self) -> Iterator[Span]:
        """The calls that did not succeed; cheaper than all of them."""
        if "spans" in self.__dict__:
            return (span for span in self.spans if span.state != "succeeded")
        return self._reader.pairing.failures(self.branches())

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
    begun = False
    try:
        for line in read_lines(source):
            begun = True
            for offset, length, data in _documents(line):
                place = Place(source.name, line.number, line.offset + offset, length)
                yield claude.decode(data).entry, place
    except SourceError:
        if not begun:
            raise


def _documents(line: Line) -> list[document.Piece]:
    try:
        claude.decode(line.data)
    except ValueError:
        return document.recover(line.data).pieces
    return [document.Piece(0, line.length, line.data)]
