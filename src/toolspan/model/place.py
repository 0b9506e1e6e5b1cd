"""Where in which file something stands."""

from msgspec import Struct

OFFSET_BIT = 40
LINE_BIT = OFFSET_BIT + 48
"""Where offset and line begin in a packed place: lines of a terabyte, files of 256."""


class Place(Struct, frozen=True, gc=False):
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
    def line_of(packed: int) -> int:
        """The line of a packed place."""
        return packed >> LINE_BIT

    @staticmethod
    def offset_of(packed: int) -> int:
        """The offset of a packed place."""
        return (packed >> OFFSET_BIT) & ((1 << (LINE_BIT - OFFSET_BIT)) - 1)

    @staticmethod
    def unpacked(file: str, packed: int) -> "Place":
        """The place that was packed, in the file it was in."""
        offset = Place.offset_of(packed)
        return Place(file, packed >> LINE_BIT, offset, packed & ((1 << OFFSET_BIT) - 1))

    def __str__(self) -> str:
        """`path:line`, as editors and compilers write it."""
        return f"{self.file}:{self.line}"
