"""Bytes to lines: a streaming reader that survives anything a file can hold.

In: a `Source`. Out: `Line`s with number, offset and bytes, split on `\\n` only, because other line
separators occur raw inside JSON strings. A line over the limit comes without its bytes, so memory
stays bounded. What a line means is `claude.py`'s business. Read `read_lines` first.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolspan.wire.source import Source

CHUNK = 1 << 20
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


def read_lines(
    source: Source, *, offset: int = 0, number: int = 1, limit: int = LINE_LIMIT
) -> Iterator[Line]:
    """The lines of a source from `offset` on, which is the start of line `number`.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    held = _Held(limit)
    with source.open(offset) as stream:
        while chunk := stream.read(CHUNK):
            pieces = chunk.split(b"\n")
            last = pieces.pop()
            if pieces and held:
                data, length = held.finish(pieces[0])
                yield Line(number, offset, length, data)
                offset += length + 1
                number += 1
                del pieces[0]
            for data in pieces:
                length = len(data)
                yield Line(number, offset, length, data)
                offset += length + 1
                number += 1
            held.add(last)
    if held:
        data, length = held.finish(b"")
        yield Line(number, offset, length, data, ended=False)


class _Held:
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

    def finish(self, piece: bytes) -> tuple[bytes, int]:
        """The whole line and its length; without its bytes when it is over the limit."""
        self.add(piece)
        length = self._length
        data = b"".join(self._pieces) if length <= self._limit else b""
        self._pieces = []
        self._length = 0
        return data, length
