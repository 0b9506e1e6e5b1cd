r"""What ripgrep prints, cut into records as it comes.

In: pieces of output with null bytes behind file names. Out: records, each a file and a line, while
they are wanted; afterwards they are only counted. A name may have any byte but null in it, also a
newline. Every line has its own name and null byte, and so has the `--` between groups, with an
empty name; only ripgrep's notes on binary files have none.
"""

import re
from typing import NamedTuple

SEPARATOR = rb"\x00--"
"""What ripgrep is told to print between groups."""
_NOTE = re.compile(
    rb"[^\0]*?: (?:binary file matches|WARNING: stopped searching binary file after match)"
    rb' \(found "\\0" byte around offset \d+\)\n',
    re.DOTALL,
)


class Record(NamedTuple):
    """One printed line."""

    name: bytes
    """The file; empty for a separator or a note."""
    line: bytes
    """What is printed behind the name."""


class Records:
    """Cuts output into records."""

    def __init__(self) -> None:
        self._name: bytes | None = None
        """The file whose line is not complete yet."""
        self._rest = b""

    def cut(self, data: bytes) -> list[Record]:
        """The records that are complete with this piece."""
        first, *others = (self._rest + data).split(b"\0")
        found: list[Record] = []
        self._rest = first
        for piece in others:
            self._close(found)
            self._name, self._rest = self._rest, piece
        self._close(found)
        return found

    def _close(self, found: list[Record]) -> None:
        """Give out the line at the beginning of the rest, and the notes behind it."""
        if self._name is not None:
            line, end, behind = self._rest.partition(b"\n")
            if not end:
                return
            found.append(Record(self._name, line))
            self._name, self._rest = None, behind
        while note := _NOTE.match(self._rest):
            found.append(Record(b"", note[0][:-1]))
            self._rest = self._rest[note.end() :]
