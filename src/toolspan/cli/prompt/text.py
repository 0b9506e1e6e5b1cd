"""Texts of strangers, fit for a terminal and for the eyes of whoever has to decide.

In: any text. Out: lines in which every character is seen: what a terminal would obey, what turns
the direction of writing, and what has no look at all stands there by its number. Too many lines are
cut in the middle: the end of a command matters as much as its beginning. Pure.
"""

import unicodedata
from collections.abc import Iterator, Sequence

_UNSEEN = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that look like nothing."""
_TAB = "    "
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


def visible(text: str) -> str:
    """A text on one line, with nothing in it that is not seen."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(letter: str) -> str:
    if letter == "\t":
        return _TAB
    code = ord(letter)
    hidden = letter in _UNSEEN or any(code in one for one in _SELECTORS)
    return letter if letter.isprintable() and not hidden else f"<U+{code:04X}>"


def columns(text: str) -> int:
    """How many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def folded(text: str, width: int) -> Iterator[str]:
    """The lines of a text, made visible, none wider than this."""
    for line in text.split("\n"):
        yield from _folded(visible(line), max(width, 2))


def _folded(line: str, width: int) -> Iterator[str]:
    if line.isascii():
        yield from (line[at : at + width] for at in range(0, max(len(line), 1), width))
        return
    start = taken = 0
    for at, letter in enumerate(line):
        wide = _columns(letter)
        if taken + wide > width:
            yield line[start:at]
            start, taken = at, 0
        taken += wide
    yield line[start:]


def cut(lines: Sequence[str], most: int, how: str = "") -> list[str]:
    """At most so many lines, from both ends; what is left out is counted in one of them.

    `how` tells how to see it.
    """
    if len(lines) <= most:
        return list(lines)
    tail = max(most // 3, 1)
    head = max(most - tail - 1, 1)
    gone = len(lines) - head - tail
    return [*lines[:head], f"... {gone} lines not shown{how} ...", *lines[-tail:]]
