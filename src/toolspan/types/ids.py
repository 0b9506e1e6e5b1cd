"""Names of things, so that one kind of id is never passed for another."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

CallId = NewType("CallId", str)
"""Names a call, and the result that answers it."""
SessionId = NewType("SessionId", str)
"""Names a conversation."""
EntryId = NewType("EntryId", str)
"""Names a line of a transcript."""


OFFSET_BIT = 40
LINE_BIT = OFFSET_BIT + 48
"""Where offset and line begin in a packed place: lines of a terabyte, files of 256."""


class SourceLocation(Struct, frozen=True, gc=False):
    """A run of bytes in a transcript: read it again instead of keeping a copy."""

    file: str
    line: int
    """Physical line, from 1."""
    offset: int
    """Bytes before it, in the decompressed file."""
    length: int

    @property
    def packed(self) -> int:
        """Line, offset and length in one number: half the size, for those who keep millions."""
        return self.line << LINE_BIT | self.offset << OFFSET_BIT | self.length

    @staticmethod
    def packed_line(packed: int) -> int:
        """The line of a packed place."""
        return packed >> LINE_BIT

    @staticmethod
    def packed_offset(packed: int) -> int:
        """The offset of a packed place."""
        return (packed >> OFFSET_BIT) & ((1 << (LINE_BIT - OFFSET_BIT)) - 1)

    @staticmethod
    def unpack(file: str, packed: int) -> SourceLocation:
        """The place that was packed, in the file it was in."""
        offset = SourceLocation.packed_offset(packed)
        return SourceLocation(file, packed >> LINE_BIT, offset, packed & ((1 << OFFSET_BIT) - 1))

    def __str__(self) -> str:
        """`path:line`, as editors and compilers write it."""
        return f"{self.file}:{self.line}"
