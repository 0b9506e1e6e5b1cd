"""One rollout becomes calls, facts and findings.

In: chunks of lines, or one whole document of the oldest client. Out: what `Transcript` asks for:
pairing, about, branches, counts, findings, messages. Nothing a file contains raises. Read
`Reader.chunk` first, then `pair.py` for calls and `verdict.py` for their states.
"""

from collections.abc import Iterator
from itertools import count

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.message import Message
from toolspan.model.place import LINE_BIT, OFFSET_BIT, Place
from toolspan.model.session import Dialect
from toolspan.model.span import Counts
from toolspan.read.codex.about import About
from toolspan.read.codex.live import LivePairing
from toolspan.read.codex.pair import Pairing
from toolspan.read.codex.thread import Thread
from toolspan.read.codex.turns import Turns
from toolspan.read.damage import finding
from toolspan.read.tree import Branches, Tree
from toolspan.wire import codex, codex_document, document
from toolspan.wire.codex import Record
from toolspan.wire.jsonl import Chunk, Line, read_lines
from toolspan.wire.source import Source


class Reader:
    """Takes lines in file order and keeps what they say."""

    dialect: Dialect = "codex"

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        self.source = source
        self._file = source.name
        self._thread = Thread()
        self.pairing = self._pairing(source, self._thread)
        self.about = About(self._thread, calls_only=calls_only)
        self.turns = Turns()
        self.tree = Tree()
        """Lines of a rollout name no parents: they follow each other."""
        self.findings: list[Finding] = []
        self._number = 1
        self._lines = 0
        self._blank = 0
        self._malformed = 0
        self._recovered = 0

    def _pairing(self, source: Source, thread: Thread) -> Pairing:
        return Pairing(source, thread)

    @property
    def counts(self) -> Counts:
        """How many lines there were so far, and of what."""
        return Counts(
            lines=self._lines,
            blank=self._blank,
            malformed=self._malformed,
            recovered=self._recovered,
        )

    @property
    def role(self) -> str | None:
        """What sort of subagent wrote the file, if it says."""
        return self._thread.role

    def branches(self) -> Branches:
        """Which lines the model still saw at the end."""
        return self.turns.branches()

    def chunk(self, chunk: Chunk) -> None:
        """The next lines, in one piece; one by one only where something is odd."""
        start = chunk.start
        small = chunk.end - start <= chunk.limit and not chunk.passed
        found = codex.decode_whole(chunk.data, start, chunk.end) if small else None
        if found is None:
            for line in chunk.lines(self._number):
                self.line(line)
                self._number = line.number + 1
            return
        records, ends = found
        before = chunk.offset - start + 1
        for record, number, last, end in zip(
            records, count(self._number), [start - 1, *ends], ends, strict=False
        ):
            at = number << LINE_BIT | before + last << OFFSET_BIT | end - last - 1
            self._record(record, at)
        self._lines += len(records)
        self._number += len(records)

    def line(self, line: Line) -> None:
        """The next line."""
        try:
            record, odd = codex.decode(line.data)
        except ValueError:
            self._damaged(line)
            return
        self._lines += 1
        place = self._place(line)
        if odd:
            self._find("odd_type", place, f"unexpected type of {', '.join(odd[:5])}")
        self._record(record, place.packed)

    def _record(self, record: Record, at: int) -> None:
        self._thread.add(record)
        self.about.add(record)
        self.turns.add(record, Place.line_of(at))
        self.pairing.add(record, at)

    def finish(self) -> None:
        """All has been read."""

    def broke_off(self, error: SourceError) -> None:
        """The source failed: keep what was read, unless that is nothing.

        Raises:
            SourceError: nothing was read.
        """
        if not self._lines:
            raise error
        self._find("unreadable_rest", Place(self._file, self._lines, 0, 0), str(error))

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
        self._find(code, self._place(line), f"{len(saved.pieces)} records recovered")
        for piece in saved.pieces:
            self._recovered += 1
            place = Place(self._file, line.number, line.offset + piece.offset, piece.length)
            self._record(codex.decode(piece.data).record, place.packed)

    def _place(self, line: Line) -> Place:
        return Place(self._file, line.number, line.offset, line.length)

    def _find(self, code: str, place: Place, detail: str) -> None:
        self.findings.append(finding(code, place, detail))

    def lines(self) -> Iterator[Line]:
        """The lines, read again from the file."""
        return read_lines(self.source)

    def records(self) -> Iterator[tuple[Record, Place]]:
        """All records with their places, read again from the file."""
        return records(self.source)

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.read.codex.messages import messages

        return messages(self.records())


class LiveReader(Reader):
    """Reads a file that still grows."""

    pairing: LivePairing

    def _pairing(self, source: Source, thread: Thread) -> Pairing:
        return LivePairing(source, thread)


class DocumentReader(Reader):
    """Reads a file that is one JSON document: its items count as its lines."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source, calls_only=calls_only)
        self._pieces: list[bytes] = []

    def chunk(self, chunk: Chunk) -> None:
        """The next part of the document."""
        self._pieces.append(memoryview(chunk.data)[chunk.start : chunk.end].tobytes())

    def finish(self) -> None:
        """Takes the document apart."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        found = codex_document.items(data)
        if found.session is not None:
            header = codex.decode(found.session).record
            self._thread.add(header)
            self.about.add(header)
        for line in found.lines:
            self.line(line)
        if not found.whole:
            self._malformed += 1
            self._find("torn_last_line", Place(self._file, len(found.lines) + 1, 0, 0), "")

    def records(self) -> Iterator[tuple[Record, Place]]:
        """All items with their places, read again from the file."""
        return ((codex.decode(line.data).record, self._place(line)) for line in self.lines())

    def lines(self) -> Iterator[Line]:
        """The items as lines, read again from the file."""
        with self.source.open() as stream:
            return iter(codex_document.items(stream.read()).lines)


def records(source: Source) -> Iterator[tuple[Record, Place]]:
    """The records of a source, those recovered from damaged lines included.

    Raises:
        SourceError: nothing can be read.
    """
    begun = False
    try:
        for line in read_lines(source):
            begun = True
            for offset, length, data in _documents(line):
                place = Place(source.name, line.number, line.offset + offset, length)
                yield codex.decode(data).record, place
    except SourceError:
        if not begun:
            raise


def _documents(line: Line) -> list[document.Piece]:
    try:
        codex.decode(line.data)
    except ValueError:
        return document.recover(line.data).pieces
    return [document.Piece(0, line.length, line.data)]
