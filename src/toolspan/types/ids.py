"""Distinct types for ids, and locations in transcript files."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

CallId = NewType("CallId", str)
SessionId = NewType("SessionId", str)
EntryId = NewType("EntryId", str)


OFFSET_BIT = 40
LINE_BIT = OFFSET_BIT + 48
"""The lowest bit of the line number in a packed location; below it, 40 bits of length and 48 of offset."""


class SourceLocation(Struct, frozen=True, gc=False):
    """A byte range in a transcript, stored instead of a copy of the bytes."""

    file: str
    line: int
    """The physical line number, starting at 1."""
    offset: int
    """The offset in the decompressed file."""
    length: int

    @property
    def packed(self) -> int:
        """Line, offset and length in one integer, which takes half the memory."""
        return self.line << LINE_BIT | self.offset << OFFSET_BIT | self.length

    @staticmethod
    def packed_line(packed: int) -> int:
        """Return the line number in a packed location."""
        return packed >> LINE_BIT

    @staticmethod
    def packed_offset(packed: int) -> int:
        """Return the offset in a packed location."""
        return (packed >> OFFSET_BIT) & ((1 << (LINE_BIT - OFFSET_BIT)) - 1)

    @staticmethod
    def packed_range(packed: int) -> tuple[int, int]:
        """Return the offset and length in a packed location."""
        return SourceLocation.packed_offset(packed), packed & ((1 << OFFSET_BIT) - 1)

    @staticmethod
    def unpack(file: str, packed: int) -> SourceLocation:
        """Return the location for a packed integer."""
        return SourceLocation(file, packed >> LINE_BIT, *SourceLocation.packed_range(packed))

    def __str__(self) -> str:
        """Return `path:line`."""
        return f"{self.file}:{self.line}"
