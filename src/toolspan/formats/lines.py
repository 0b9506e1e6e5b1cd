"""Read the lines of a transcript in file order: decode, count, and recover damaged lines.

Formats extend `LineReader`. Start at `LineReader.add_chunk`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Generic, TypeVar

from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.base import TranscriptReader
from toolspan.formats.checks import make_finding
from toolspan.formats.jsonl import JsonLine, LineChunk, read_lines, split_document
from toolspan.formats.source import Source
from toolspan.types.ids import LINE_BIT, OFFSET_BIT, SourceLocation
from toolspan.types.session import Finding
from toolspan.types.span import LineCounts

T = TypeVar("T")


class LineReader(TranscriptReader, Generic[T]):
    """Reader for lines in file order, or for the items of a JSON document treated as lines."""

    def __init__(self, source: Source, *, document_key: str | None = None) -> None:
        self.source = source
        self.findings: list[Finding] = []
        self._file = source.name
        self._document_key = document_key
        """The key of the item list, if the file is a JSON document."""
        self._document_pieces: list[bytes] = []
        self._next_number = 1
        self._line_count = 0
        self._blank_count = 0
        self._malformed_count = 0
        self._recovered_count = 0

    @abstractmethod
    def _decode_whole(self, data: bytes | bytearray, start: int, stop: int) -> tuple[list[T], list[int]] | None:
        """Decode many lines at once, and return their end offsets, or None if any line needs `_decode`."""

    @abstractmethod
    def _decode(self, data: bytes) -> tuple[T, tuple[str, ...]]:
        """Decode one line, and return the names of known fields whose values have the wrong type.

        Raises:
            ValueError: the bytes are not exactly one JSON object.
        """

    @abstractmethod
    def _process(self, decoded: Sequence[T], places: Sequence[int], number: int) -> None:
        """Process consecutive decoded lines and their packed locations; `number` is the first line number."""

    def _process_document_fields(self, fields: T) -> None:
        """Process the fields of a document other than its items."""

    @property
    def counts(self) -> LineCounts:
        """The line counts so far."""
        return LineCounts(
            lines=self._line_count,
            blank=self._blank_count,
            malformed=self._malformed_count,
            recovered=self._recovered_count,
        )

    def add_chunk(self, chunk: LineChunk) -> None:
        """Read the next lines, all at once or, if any of them is damaged or unusual, one by one."""
        start = chunk.start
        if self._document_key is not None:
            self._document_pieces.append(memoryview(chunk.data)[start : chunk.end].tobytes())
            return
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
        """Read the next line."""
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
        """Finish reading at the end of the file; a document is split only here."""
        if self._document_key is None:
            return
        document = split_document(b"".join(self._document_pieces), self._document_key)
        self._document_pieces.clear()
        fields = {key: json_repair.decode_readable(value) for key, value in document.fields.items()}
        with suppress(ValueError):  # nested too deeply
            self._process_document_fields(self._decode(json_repair.encode_document(fields))[0])
        for line in document.lines:
            self.add_line(line)
        if not document.is_complete:
            self._malformed_count += 1
            self._add_finding("torn_last_line", SourceLocation(self._file, len(document.lines) + 1, 0, 0), "")

    def handle_source_error(self, error: SourceError) -> None:
        """Record that the rest of the file cannot be read.

        Raises:
            SourceError: nothing has been read yet.
        """
        if not self._line_count:
            raise error
        self._add_finding("unreadable_rest", SourceLocation(self._file, self._line_count, 0, 0), str(error))

    def lines(self) -> Iterator[JsonLine]:
        """Reread the lines of the file, or the items of a document."""
        if self._document_key is None:
            return read_lines(self.source)
        with self.source.open() as stream:
            return iter(split_document(stream.read(), self._document_key).lines)

    def records(self) -> Iterator[tuple[T, SourceLocation]]:
        """Reread all records with their locations, including those recovered from damaged lines.

        Raises:
            SourceError: nothing can be read.
        """
        begun = False
        try:
            for line in self.lines():
                begun = True
                for record, offset, length in self._decode_documents(line):
                    yield record, SourceLocation(self._file, line.number, line.offset + offset, length)
        except SourceError:
            if not begun:
                raise

    def _decode_documents(self, line: JsonLine) -> list[tuple[T, int, int]]:
        """Return the records on a line, each with its offset and length."""
        try:
            return [(self._decode(line.data)[0], 0, line.length)]
        except ValueError:
            pieces = json_repair.recover_objects(line.data).pieces
            return [(self._decode(piece.data)[0], piece.offset, piece.length) for piece in pieces]

    def _recover_line(self, line: JsonLine) -> None:
        """Recover the objects in a line that is not exactly one JSON object."""
        if not line.is_oversized and not line.data.strip():
            self._blank_count += 1
            return
        self._line_count += 1
        self._malformed_count += 1
        if line.is_oversized:
            self._add_finding("line_too_long", self._location_of(line), f"{line.length:,} bytes")
            return
        recovered = json_repair.recover_objects(line.data)
        code = recovered.reason if line.has_newline or recovered.pieces else "torn_last_line"
        self._add_finding(code, self._location_of(line), f"{len(recovered.pieces)} entries recovered")
        for piece in recovered.pieces:
            self._recovered_count += 1
            place = SourceLocation(self._file, line.number, line.offset + piece.offset, piece.length)
            self._process((self._decode(piece.data)[0],), (place.packed,), line.number)

    def _location_of(self, line: JsonLine) -> SourceLocation:
        return SourceLocation(self._file, line.number, line.offset, line.length)

    def _add_finding(self, code: str, place: SourceLocation, detail: str) -> None:
        self.findings.append(make_finding(code, place, detail))


def reread_line(source: Source, place: SourceLocation, decode: Callable[[bytes], T]) -> T:
    """Reread and decode the record at a location, or the first object if the line is damaged.

    Raises:
        SourceError: the location no longer contains a record.
    """
    data = source.read(place.offset, place.length)
    try:
        return decode(data)
    except ValueError:
        pieces = json_repair.recover_objects(data).pieces
    if not pieces:
        raise SourceError(f"{place}: the line has changed since it was read")
    return decode(pieces[0].data)


def missing_call_error(place: SourceLocation, call_id: str) -> SourceError:
    """Return the error for a line that no longer contains the expected call."""
    return SourceError(f"{place}: {call_id} is no longer there")
