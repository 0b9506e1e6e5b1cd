"""Lines in file order, of any dialect: decoded, counted, and saved from damage where possible.

In: chunks of a file. Out: decoded lines with their places for whoever extends `LineReader`, counts
and findings. What a line means is the dialects' business. Read `LineReader.chunk` first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Generic, TypeVar

from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats import json_repair as document
from toolspan.formats.jsonl import JsonLine, LineChunk, read_lines
from toolspan.formats.source import Source
from toolspan.reading.finding_codes import make_finding
from toolspan.types.finding import Finding
from toolspan.types.ids import LINE_BIT, OFFSET_BIT, SourceLocation
from toolspan.types.span import LineCounts

T = TypeVar("T")
Decode = Callable[[bytes], tuple[T, tuple[str, ...]]]
"""One line, and the names of known fields whose values did not fit; ValueError on damage."""


class LineReader(ABC, Generic[T]):
    """Takes lines in file order; what they say is kept by who extends it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._file = source.name
        self.findings: list[Finding] = []
        self._next_number = 1
        self._line_count = 0
        self._blank_count = 0
        self._malformed_count = 0
        self._recovered_count = 0

    @abstractmethod
    def _decode_whole(self, data: bytes | bytearray, start: int, stop: int) -> tuple[list[T], list[int]] | None:
        """Many lines at once, and where they end; None when one needs a closer look."""

    @abstractmethod
    def _decode(self, data: bytes) -> tuple[T, tuple[str, ...]]:
        """One line, and the names of known fields whose values did not fit.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """

    @abstractmethod
    def _process(self, decoded: Sequence[T], places: Sequence[int], number: int) -> None:
        """Decoded lines that follow each other, their packed places, and the first's number."""

    @property
    def counts(self) -> LineCounts:
        """How many lines there were so far, and of what."""
        return LineCounts(
            lines=self._line_count,
            blank=self._blank_count,
            malformed=self._malformed_count,
            recovered=self._recovered_count,
        )

    def add_chunk(self, chunk: LineChunk) -> None:
        """The next lines, in one piece; one by one only where something is odd."""
        start = chunk.start
        small = chunk.end - start <= chunk.limit and not chunk.skipped_length
        whole_chunk = self._decode_whole(chunk.data, start, chunk.end) if small else None
        if whole_chunk is None:
            for line in chunk.iter_lines(self._next_number):
                self.add_line(line)
                self._next_number = line.number + 1
            return
        decoded, ends = whole_chunk
        number, before = self._next_number, chunk.offset - start + 1
        places = [
            n << LINE_BIT | before + last << OFFSET_BIT | end - last - 1
            for n, last, end in zip(count(number), [start - 1, *ends], ends, strict=False)
        ]
        self._process(decoded, places, number)
        self._line_count += len(decoded)
        self._next_number += len(decoded)

    def add_line(self, line: JsonLine) -> None:
        """The next line."""
        try:
            decoded, odd = self._decode(line.data)
        except ValueError:
            self._recover_line(line)
            return
        self._line_count += 1
        place = self._location_of(line)
        if odd:
            self._add_finding("odd_type", place, f"unexpected type of {', '.join(odd[:5])}")
        self._process((decoded,), (place.packed,), line.number)

    def finish(self) -> None:
        """All has been read."""

    def handle_source_error(self, error: SourceError) -> None:
        """The source failed: keep what was read, unless that is nothing.

        Raises:
            SourceError: nothing was read.
        """
        if not self._line_count:
            raise error
        self._add_finding("unreadable_rest", SourceLocation(self._file, self._line_count, 0, 0), str(error))

    def lines(self) -> Iterator[JsonLine]:
        """The lines, read again from the file."""
        return read_lines(self.source)

    def _recover_line(self, line: JsonLine) -> None:
        """A line that is not exactly one JSON object: save what can be saved."""
        if not line.is_oversized and not line.data.strip():
            self._blank_count += 1
            return
        self._line_count += 1
        self._malformed_count += 1
        if line.is_oversized:
            self._add_finding("line_too_long", self._location_of(line), f"{line.length:,} bytes")
            return
        saved = json_repair.recover_objects(line.data)
        code = saved.reason if line.has_newline or saved.pieces else "torn_last_line"
        self._add_finding(code, self._location_of(line), f"{len(saved.pieces)} entries recovered")
        for piece in saved.pieces:
            self._recovered_count += 1
            place = SourceLocation(self._file, line.number, line.offset + piece.offset, piece.length)
            self._process((self._decode(piece.data)[0],), (place.packed,), line.number)

    def _location_of(self, line: JsonLine) -> SourceLocation:
        return SourceLocation(self._file, line.number, line.offset, line.length)

    def _add_finding(self, code: str, place: SourceLocation, detail: str) -> None:
        self.findings.append(make_finding(code, place, detail))


def reread_lines(source: Source, decode: Decode[T]) -> Iterator[tuple[T, SourceLocation]]:
    """The lines of a source with their places, those recovered from damaged ones included.

    Raises:
        SourceError: nothing can be read.
    """
    begun = False
    try:
        for line in read_lines(source):
            begun = True
            for record, offset, length in _decode_documents(line, decode):
                yield record, SourceLocation(source.name, line.number, line.offset + offset, length)
    except SourceError:
        if not begun:
            raise


def _decode_documents(line: JsonLine, decode: Decode[T]) -> list[tuple[T, int, int]]:
    """What stands on a line, with offset and length; of a damaged one what can be saved."""
    try:
        return [(decode(line.data)[0], 0, line.length)]
    except ValueError:
        pieces = json_repair.recover_objects(line.data).pieces
        return [(decode(piece.data)[0], piece.offset, piece.length) for piece in pieces]


def reread_line(source: Source, place: SourceLocation, decode: Callable[[bytes], T]) -> T:
    """What stands at a place; of a damaged line, what was saved first.

    Raises:
        SourceError: nothing that can be decoded.
    """
    data = source.read(place.offset, place.length)
    try:
        return decode(data)
    except ValueError:
        pieces = document.recover_objects(data).pieces
    if not pieces:
        raise SourceError(f"{place}: the line has changed since it was read")
    return decode(pieces[0].data)


def missing_call_error(place: SourceLocation, call_id: str) -> SourceError:
    """A line that can be decoded, without the call it had."""
    return SourceError(f"{place}: {call_id} is no longer there")
