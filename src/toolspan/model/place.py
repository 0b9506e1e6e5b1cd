"""Where in which file something stands."""

from msgspec import Struct


class Place(Struct, frozen=True, gc=False):
    """A run of bytes in a transcript: read it again instead of keeping a copy."""

    file: str
    line: int
    """Physical line, from 1."""
    offset: int
    """Bytes before it, in the decompressed file."""
    length: int

    def __str__(self) -> str:
        """`path:line`, as editors and compilers write it."""
        return f"{self.file}:{self.line}"
