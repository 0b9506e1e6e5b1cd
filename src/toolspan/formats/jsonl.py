r"""Bytes to lines: a streaming reader that survives anything a file can hold.

In: a `Source`. Out: `Chunk`s of whole lines, and `Line`s with number, offset and bytes, split on
`\n` only, because other line separators occur raw inside JSON strings. A line over the limit comes
without its bytes, so memory stays bounded. What a line means is `claude.py`'s business. Read
`read_lines` first; `read_chunks` is for those who can take many lines at once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from msgspec import Struct

from toolspan.formats.source import Source

CHUNK_SIZE = 1 << 19
MAX_LINE_LENGTH = 512 << 20


class JsonLine(Struct, frozen=True, gc=False):
    """One physical line."""

    number: int
    """From 1."""
    offset: int
    length: int
    """Bytes before the newline; the line's real length even when `data` was not kept."""
    data: bytes
    """Without the newline. Empty when the line is over the limit."""
    has_newline: bool = True
    """A newline follows. False only for the last line of a file."""

    @property
    def is_oversized(self) -> bool:
        """The line was over the limit and its bytes were passed over."""
        return self.length != len(self.data)


class LineChunk(Struct, frozen=True, kw_only=True, gc=False):
    """Whole lines in one piece: a part of a buffer, so that nothing is copied.

    Good until the next one is asked for: the buffer is then filled anew.
    """

    offset: int
    """Of its first line in the source."""
    data: bytes | bytearray
    start: int = 0
    end: int
    """Where its lines lie in `data`; only the last line of a file may lack its newline."""
    skipped_length: int = 0
    """Set when the chunk stands for one line over the limit: the length of what was passed over."""
    has_newline: bool = True
    """For a line passed over: a newline follows."""
    limit: int = MAX_LINE_LENGTH

    @property
    def source_length(self) -> int:
        """Bytes of the source it stands for."""
        return self.skipped_length + self.has_newline if self.skipped_length else self.end - self.start

    def iter_lines(self, number: int) -> Iterator[JsonLine]:
        """The lines, one by one; the first one has this number."""
        if self.skipped_length:
            yield JsonLine(number, self.offset, self.skipped_length, b"", has_newline=self.has_newline)
            return
        pieces = memoryview(self.data)[self.start : self.end].tobytes().split(b"\n")
        last = len(pieces) - 1
        offset = self.offset
        for n, data in enumerate(pieces):
            length = len(data)
            if n < last or length:
                line_data = data if length <= self.limit else b""
                yield JsonLine(number, offset, length, line_data, has_newline=n < last)
            offset += length + 1
            number += 1


def read_lines(source: Source, *, offset: int = 0, number: int = 1, limit: int = MAX_LINE_LENGTH) -> Iterator[JsonLine]:
    """The lines of a source from `offset` on, which is the start of line `number`.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    for chunk in read_chunks(source, offset=offset, limit=limit):
        for line in chunk.iter_lines(number):
            yield line
            number = line.number + 1


def read_chunks(source: Source, *, offset: int = 0, limit: int = MAX_LINE_LENGTH) -> Iterator[LineChunk]:
    """The same lines, many at a time; each chunk is good until the next one.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    held = _PartialLine(limit)
    with source.open(offset) as stream, _borrow_buffer() as data:
        fill = _make_filler(stream)
        while size := fill(data):
            end = data.rfind(b"\n", 0, size) + 1
            start = 0
            if held and end:
                start = data.find(b"\n") + 1
                line, passed = held.finish(bytes(data[:start]))
                yield LineChunk(offset=offset, data=line, end=len(line), skipped_length=passed, limit=limit)
                offset += len(line) or passed + 1
            if start < end:
                yield LineChunk(offset=offset, data=data, start=start, end=end, limit=limit)
                offset += end - start
            held.add(bytes(data[end:size]))
    if held:
        line, passed = held.finish(b"")
        yield LineChunk(offset=offset, data=line, end=len(line), skipped_length=passed, has_newline=False, limit=limit)


def _make_filler(stream: BinaryIO) -> Callable[[bytearray], int | None]:
    """Reads as much as fits into a buffer, or comes; tells how much that was."""
    if isinstance(stream, io.RawIOBase | io.BufferedIOBase):
        return stream.readinto

    def fill(buffer: bytearray) -> int:
        data = stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    return fill


_SPARE_BUFFERS: list[bytearray] = []
"""Buffers that nobody uses now: fresh memory costs the system more than filling it."""
_MAX_SPARE_BUFFERS = 4


@contextmanager
def _borrow_buffer() -> Iterator[bytearray]:
    try:
        buffer = _SPARE_BUFFERS.pop()  # not asked before whether there is one: threads read too
    except IndexError:
        buffer = bytearray(CHUNK_SIZE)
    try:
        yield buffer if len(buffer) == CHUNK_SIZE else bytearray(CHUNK_SIZE)
    finally:
        if len(_SPARE_BUFFERS) < _MAX_SPARE_BUFFERS:
            _SPARE_BUFFERS.append(buffer)


class _PartialLine:
    """The beginning of a line whose end has not been read yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._length = 0

    def __bool__(self) -> bool:
        return self._length > 0

    def add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def finish(self, rest: bytes) -> tuple[bytes, int]:
        """The whole line with its newline; over the limit nothing but its length without it."""
        length = self._length + len(rest.removesuffix(b"\n"))
        line = b"".join([*self._pieces, rest]) if length <= self._limit else b""
        self._pieces, self._length = [], 0
        return line, 0 if line else length
