"""The cells of a notebook's text, changed without touching the rest of it.

In: the text of an `.ipynb` file. Out: the same text with one cell changed, added or gone. What is
not changed keeps its characters: indentation, line ends, order of keys, the way numbers and letters
are written. What is new is written in the style of what is there. Pure functions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolspan.disk.words import clean
from toolspan.errors import ToolError

Cell = Mapping[str, object]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
NOT_JSON = "Notebook is not valid JSON."
NO_NOTEBOOK = "The file is no notebook: its `cells` are not a list of objects."


class _Piece(NamedTuple):
    """A value in a text."""

    start: int
    end: int
    value: object


class _Member(NamedTuple):
    """A key of an object, and its value."""

    at: int
    name: str
    piece: _Piece


@dataclass(frozen=True, slots=True)
class _Style:
    """How a notebook is written."""

    newline: str
    """Empty when it is all in one line."""
    indent: str
    comma: str
    colon: str

    def write(self, value: object, depth: int) -> str:
        """A value as this notebook would have it."""
        if not self.newline:
            separators = (self.comma, self.colon)
            return clean(json.dumps(value, ensure_ascii=False, separators=separators))
        text = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return clean(text).replace("\n", self.newline + depth * self.indent)

    def lead(self, depth: int) -> str:
        """What stands before a value in a line of its own."""
        return self.newline + depth * self.indent if self.newline else ""

    @property
    def between(self) -> str:
        """What stands between two cells."""
        return "," + self.lead(2) if self.newline else self.comma


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook's text, and where its cells are in it."""

    text: str
    document: Mapping[str, object]
    cells: tuple[Cell, ...]
    _inside: tuple[int, int]
    """Behind the bracket that opens the list of cells, and before the one that closes it."""
    _pieces: tuple[_Piece, ...]
    _style: _Style

    def changed(self, index: int, values: Cell) -> str:
        """The text with some values of a cell changed; None takes one away.

        A value that is to be null is `NULL`.
        """
        piece, cell = self._pieces[index], self.cells[index]
        gone = [name for name, value in values.items() if value is None and name in cell]
        new = [name for name, value in values.items() if value is not None and name not in cell]
        if gone or new:
            whole = {**cell, **values}
            kept = {name: _plain(value) for name, value in whole.items() if name not in gone}
            kept = {name: value for name, value in kept.items() if name in cell or name in new}
            return self._spliced(piece.start, piece.end, self._style.write(kept, 2))
        text = self.text
        for member in reversed(_members(text, piece.start)):
            if (value := values.get(member.name)) is not None:
                written = self._style.write(_plain(value), 3)
                text = text[: member.piece.start] + written + text[member.piece.end :]
        return text

    def inserted(self, index: int, cell: Cell) -> str:
        """The text with one more cell, at this place."""
        written, style = self._style.write(cell, 2), self._style
        if not self._pieces:
            start, end = self._inside
            return self._spliced(start, end, style.lead(2) + written + style.lead(1))
        if index == 0:
            first = self._pieces[0].start
            return self._spliced(first, first, written + style.between)
        before = self._pieces[index - 1].end
        return self._spliced(before, before, style.between + written)

    def deleted(self, index: int) -> str:
        """The text without a cell."""
        pieces = self._pieces
        if len(pieces) == 1:
            return self._spliced(*self._inside, "")
        if index + 1 < len(pieces):
            return self._spliced(pieces[index].start, pieces[index + 1].start, "")
        return self._spliced(pieces[index - 1].end, pieces[index].end, "")

    def _spliced(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]


class _Null:
    """Null as a value to write, where None means that there is none."""


NULL = _Null()


def _plain(value: object) -> object:
    return None if isinstance(value, _Null) else value


def notebook(text: str) -> Notebook:
    """A notebook's text, read.

    Raises:
        ToolError: it is no JSON, or no notebook.
    """
    try:
        document = json.loads(text)
        start = _skip(text, 0)
        top = _members(text, start) if isinstance(document, dict) else []
        listed = next((one for one in reversed(top) if one.name == "cells"), None)
        if listed is None or not isinstance(listed.piece.value, list):
            raise ToolError(NO_NOTEBOOK, kind="invalid_input")
        pieces = _elements(text, listed.piece.start)
    except (ValueError, RecursionError) as error:
        raise ToolError(NOT_JSON, kind="invalid_input") from error
    cells = tuple(piece.value for piece in pieces if isinstance(piece.value, dict))
    if len(cells) != len(pieces):
        raise ToolError(NO_NOTEBOOK, kind="invalid_input")
    return Notebook(
        text=text,
        document=document,
        cells=cells,
        _inside=(listed.piece.start + 1, listed.piece.end - 1),
        _pieces=pieces,
        _style=_style(text, start, top),
    )


def _style(text: str, start: int, top: list[_Member]) -> _Style:
    lead = text[start + 1 : top[0].at]
    newline = next((end for end in ("\r\n", "\n", "\r") if end in lead), "")
    first = top[0].piece
    colon = text[text.rindex(":", top[0].at, first.start) : first.start]
    comma = ", " if len(top) < 2 or text[top[1].at - 1] == " " else ","
    return _Style(newline, lead.rpartition(newline)[2] if newline else "", comma, colon)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> _Piece:
    value, end = _DECODER.raw_decode(text, at)
    return _Piece(at, end, value)


def _members(text: str, start: int) -> list[_Member]:
    """The members of the object that begins here."""
    found: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        name = _value(text, at)
        piece = _value(text, _skip(text, _skip(text, name.end) + 1))
        found.append(_Member(at, str(name.value), piece))
        at = _behind(text, piece.end)
    return found


def _elements(text: str, start: int) -> tuple[_Piece, ...]:
    """The elements of the list that begins here."""
    found: list[_Piece] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        found.append(_value(text, at))
        at = _behind(text, found[-1].end)
    return tuple(found)


def _behind(text: str, end: int) -> int:
    """Where the next one begins, or the bracket that closes the list."""
    at = _skip(text, end)
    return _skip(text, at + 1) if text[at] == "," else at
