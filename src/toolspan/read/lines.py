"""Lines in file order, of any dialect: decoded, counted, and saved from damage where possible.

In: chunks of a file. Out: decoded lines with their places for whoever extends `LineReader`, counts
and findings. What a line means is the dialects' business. Read `LineReader.chunk` first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Generic, TypeVar

from toolspan.errors import SourceError
from toolspan.model.finding import Finding
from toolspan.model.place import LINE_BIT, OFFSET_BIT, Place
from toolspan.model.span import Counts
from toolspan.read.damage import finding
from toolspan.wire import document
from toolspan.wire.jsonl import Chunk, Line, read_lines
from toolspan.wire.source import Source

T = TypeVar("T")
Decode = Callable[[bytes], tuple[T, tuple[str, ...]]]
"""One line, and the names of known fields whose values did not fit; ValueError on damage."""


class LineReader(ABC, Generic[T]):
    """Takes lines in file order; what they say is kept by who extends it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._file = source.name
        self.findings: list[Finding] = []
        self._number = 1
        self._lines = 0
        self._blank = 0
        self._malformed = 0
        self._recovered = 0

    @abstractmethod
    def _decode_whole(
        self, data: bytes | bytearray, start: int, stop: int
    ) -> tuple[list[T], list[int]] | None:
        """Many lines at once, and where they end; None when one needs a closer look."""

    @abstractmethod
    def _decode(self, data: bytes) -> tuple[T, tuple[str, ...]]:
        """One line, and the names of known fields whose values did not fit.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """

    @abstractmethod
    def _take(self, found: Sequence[T], places: Sequence[int], number: int) -> None:
        """Decoded lines that follow each other, their packed places, and the first's number."""

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
        found = self._decode_whole(chunk.data, start, chunk.end) if small else None
        if found is None:
            for line in chunk.lines(self._number):
                self.line(line)
                self._number = line.number + 1
            return
        decoded, ends = found
        number, before = self._number, chunk.offset - start + 1
        places = [
            n << LINE_BIT | before + last << OFFSET_BIT | end - last - 1
            for n, last, end in zip(count(number), [start - 1, *ends], ends, strict=False)
        ]
        self._take(decoded, places, number)
        self._lines += len(decoded)
        self._number += len(decoded)

    def line(self, line: Line) -> None:
        """The next line."""
        try:
            decoded, odd = self._decode(line.data)
        except ValueError:
            self._damaged(line)
            return
        self._lines += 1
        place = self._place(line)
        if odd:
            self._find("odd_type", place, f"unexpected type of {', '.join(odd[:5])}")
        self._take((decoded,), (place.packed,), line.number)

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

    def lines(self) -> Iterator[Line]:
        """The lines, read again from the file."""
        return read_lines(self.source)

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
            self._take((self._decode(piece.data)[0],), (place.packed,), line.number)

    def _place(self, line: Line) -> Place:
        return Place(self._file, line.number, line.offset, line.length)

    def _find(self, code: str, place: Place, detail: str) -> None:
        self.findings.append(finding(code, place, detail))


def decoded_again(source: Source, decode: Decode[T]) -> Iterator[tuple[T, Place]]:
    """The lines of a source with their places, those recovered from damaged ones included.

    Raises:
        SourceError: nothing can be read.
    """
    begun = False
    try:
        for line in read_lines(source):
            begun = True
            for found, offset, length in _documents(line, decode):
                yield found, Place(source.name, line.number, line.offset + offset, length)
    except SourceError:
        if not begun:
            raise


def _documents(line: Line, decode: Decode[T]) -> list[tuple[T, int, int]]:
    """What stands on a line, with offset and length; of a damaged one what can be saved."""
    try:
        return [(decode(line.data)[0], 0, line.length)]
    except ValueError:
        pieces = document.recover(line.data).pieces
        return [(decode(piece.data)[0], piece.offset, piece.length) for piece in pieces]
