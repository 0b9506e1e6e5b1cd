r"""Bytes to lines: a streaming reader that survives anything a file can hold.

In: a `Source`. Out: `Chunk`s of whole lines, and `Line`s with number, offset and bytes, split on
`\n` only, because other line separators occur raw inside JSON strings. A line over the limit comes
without its bytes, so memory stays bounded. What a line means is `claude.py`'s business. Read
`read_lines` first; `read_chunks` is for those who can take many lines at once.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolspan.wire.source import Source

CHUNK = 1 << 19
LINE_LIMIT = 512 << 20


class Line(Struct, frozen=True, gc=False):
    """One physical line."""

    number: int
    """From 1."""
    offset: int
    length: int
    """Bytes before the newline; the line's real length even when `data` was not kept."""
    data: bytes
    """Without the newline. Empty when the line is over the limit."""
    ended: bool = True
    """A newline follows. False only for the last line of a file."""

    @property
    def oversized(self) -> bool:
        """The line was over the limit and its bytes were passed over."""
        return self.length != len(self.data)


class Chunk(Struct, frozen=True, gc=False):
    """Whole lines in one piece."""

    offset: int
    data: bytes
    """Each line with its newline; only the last line of a file may lack it."""
    passed: int = 0
    """Set when the chunk stands for one line over the limit: the length of what was passed over."""
    ended: bool = True
    """For a line passed over: a newline follows."""
    limit: int = LINE_LIMIT

    def lines(self, number: int) -> Iterator[Line]:
        """The lines, one by one; the first one has this number."""
        if self.passed:
            yield Line(number, self.offset, self.passed, b"", ended=self.ended)
            return
        pieces = self.data.split(b"\n")
        last = len(pieces) - 1
        offset = self.offset
        for n, data in enumerate(pieces):
            length = len(data)
            if n < last or length:
                kept = data if length <= self.limit else b""
                yield Line(number, offset, length, kept, ended=n < last)
            offset += length + 1
            number += 1


def read_lines(
    source: Source, *, offset: int = 0, number: int = 1, limit: int = LINE_LIMIT
) -> Iterator[Line]:
    """The lines of a source from `offset` on, which is the start of line `number`.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    for chunk in read_chunks(source, offset=offset, limit=limit):
        for line in chunk.lines(number):
            yield line
            number = line.number + 1


def read_chunks(source: Source, *, offset: int = 0, limit: int = LINE_LIMIT) -> Iterator[Chunk]:
    """The same lines, many at a time.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    held = _Held(limit)
    with source.open(offset) as stream:
        while data := stream.read(CHUNK):
            end = data.rfind(b"\n") + 1
            if not end:
                held.add(data)
                continue
            for piece, passed in held.finish(data, end):
                yield Chunk(offset, piece, passed, limit=limit)
                offset += len(piece) or passed + 1
            held.add(data[end:])
    for piece, passed in held.finish(b"", 0):
        yield Chunk(offset, piece, passed, ended=False, limit=limit)


class _Held:
    """The beginning of a line whose end has not been read yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._length = 0

    def add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def finish(self, data: bytes, end: int) -> list[tuple[bytes, int]]:
        """What is held together with `data[:end]`, as pieces or as a length passed over."""
        pieces, length = self._pieces, self._length
        self._pieces, self._length = [], 0
        first = data.find(b"\n", 0, end)
        if length + max(first, 0) > self._limit:
            rest = data[first + 1 : end]
            return [(b"", length + max(first, 0)), *([(rest, 0)] if rest else [])]
        whole = data if end == len(data) else data[:end]
        joined = b"".join([*pieces, whole]) if pieces else whole
        return [(joined, 0)] if joined else []
