"""Make every character of an untrusted text visible, for people who must decide about it.

A text is split into pieces, so that front ends can style escapes: pieces with an even index are as in the text, those
with an odd index are escapes such as `<U+202E>`. Only newlines separate lines, and tabs become spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

Pieces = tuple[str, ...]
LineKind = Literal["plain", "header", "hunk", "added", "removed", "same", "note"]

_DIFF_KINDS: dict[str, LineKind] = {"@": "hunk", "+": "added", "-": "removed", "\\": "note"}
_PRINTED_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Characters that Python regards as printable, but that are drawn as a blank or not at all."""


def split_invisible(line: str) -> Pieces:
    """Split a line into visible text and escapes of control, format, blank and unassigned characters."""
    line = line.replace("\t", "    ")
    if line.isascii() and line.isprintable():
        return (line,)
    pieces: list[str] = []
    for is_visible, group in groupby(line, _is_visible):
        if not is_visible and not pieces:
            pieces.append("")
        pieces.append("".join(character if is_visible else f"<U+{ord(character):04X}>" for character in group))
    return tuple(pieces)


def escape_invisible(text: str) -> str:
    """Return `text` as one line in which every character is visible."""
    return "".join(split_invisible(text))


def _is_visible(character: str) -> bool:
    return character.isprintable() and not _PRINTED_BLANK.match(character)


def text_width(text: str) -> int:
    """Return the number of columns that `text` occupies."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap_pieces(pieces: Sequence[str], width: int) -> Iterator[Pieces]:
    """Yield rows of at most `width` columns. A blank line has one row."""
    width = max(width, 2)
    if len(pieces) == 1 and pieces[0].isascii():
        yield from ((pieces[0][at : at + width],) for at in range(0, max(len(pieces[0]), 1), width))
        return
    row, taken = [""], 0
    for index, piece in enumerate(pieces):
        if index:
            row.append("")
        for character in piece:
            columns = _character_width(character)
            if taken + columns > width:
                yield tuple(row)
                row, taken = [""] * (1 + index % 2), 0
            row[-1] += character
            taken += columns
    yield tuple(row)


class TextRow(Struct, frozen=True, omit_defaults=True):
    """A row of a wrapped text."""

    pieces: Pieces
    kind: LineKind = "plain"
    continues: bool = False
    """True if the row continues the line of the row before."""


def wrap_text(text: str, width: int, *, is_diff: bool = False) -> list[TextRow]:
    """Return the rows of a text, or of a unified diff of one file."""
    rows = []
    inside = False
    for line in text.split("\n"):
        inside = inside or line.startswith("@@")
        kind: LineKind = "plain" if not is_diff else _DIFF_KINDS.get(line[:1], "same") if inside else "header"
        wrapped = wrap_pieces(split_invisible(line), width)
        rows += [TextRow(pieces, kind, continues=number > 0) for number, pieces in enumerate(wrapped)]
    return rows


class Fold(Struct, frozen=True):
    """The number of rows to show of a long text: those at its beginning and at its end."""

    head: int
    tail: int
    hidden: int = 0

    @classmethod
    def of(cls, row_count: int, max_rows: int) -> Fold:
        """Return the rows to show, which with a notice about the others are at most `max_rows`."""
        if row_count <= max_rows:
            return cls(row_count, 0)
        tail = max(max_rows // 3, 1)
        head = max(max_rows - tail - 1, 1)
        return cls(head, tail, row_count - head - tail)
