"""The oldest rollouts: one JSON document with `session` and `items`.

In: the whole file. Out: the session as JSON, and each item as if it were a line: its number among
the items, its place in the file, its bytes. Of a document that was cut short, the items before the
cut. Nothing here raises. Read `items` first.
"""

import json
import re
from typing import NamedTuple

from toolspan.wire.jsonl import Line

_KEY = re.compile(r'\s*,?\s*"(\w+)"\s*:\s*')
_NEXT = re.compile(r"\s*,?\s*")
_SCANNER = json.JSONDecoder(strict=False)


class Items(NamedTuple):
    """A document, taken apart."""

    session: bytes | None
    lines: list[Line]
    whole: bool


def items(data: bytes) -> Items:
    """The items of a document."""
    text = data.decode("utf-8", "surrogateescape")
    start = text.find("{") + 1
    session: bytes | None = None
    lines: list[Line] = []
    at = start
    while found := _KEY.match(text, at):
        at = found.end()
        if found[1] == "items" and text.startswith("[", at):
            lines, at = _lines(text, at + 1)
            if at < 0:
                return Items(session, lines, whole=False)
            continue
        end = _end(text, at)
        if end is None:
            return Items(session, lines, whole=False)
        if found[1] == "session":
            session = _bytes(text[at:end])
        at = end
    return Items(session, lines, whole=text[at:].strip() == "}")


def _lines(text: str, at: int) -> tuple[list[Line], int]:
    """The objects of an array, and where it ends; -1 when it does not."""
    found: list[Line] = []
    offset, counted = 0, 0
    while True:
        at = _skip(text, at)
        if text.startswith("]", at):
            return found, at + 1
        end = _end(text, at)
        if end is None:
            return found, -1
        offset += len(_bytes(text[counted:at]))
        own = _bytes(text[at:end])
        found.append(Line(len(found) + 1, offset, len(own), own))
        offset += len(own)
        counted = at = end


def _skip(text: str, at: int) -> int:
    blank = _NEXT.match(text, at)
    return blank.end() if blank else at


def _end(text: str, at: int) -> int | None:
    try:
        return _SCANNER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
