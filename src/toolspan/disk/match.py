"""Where a text stands in another, with or without typographic quotes.

Pure functions; positions are those of the text searched in.
"""

import re

from toolspan.disk.text import Span

_STRAIGHT = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
_CURLY_DOUBLE = re.compile("[“”]")
_CURLY_SINGLE = re.compile("[‘’]")
_OPENS_AFTER = frozenset(" \t\n\r([{—–“‘")
"""A quote behind one of these, or at the beginning, opens; any other closes."""


def find(text: str, wanted: str) -> list[Span]:
    """Every place where the text stands; straight quotes match curly ones if nothing else fits."""
    return _find(text, wanted) or _find(text.translate(_STRAIGHT), wanted.translate(_STRAIGHT))


def curled(new: str, replaced: str) -> str:
    """The new text with curly quotes of the kinds that the replaced text has."""
    if _CURLY_DOUBLE.search(replaced):
        new = _curl(new, '"', "“", "”")
    if _CURLY_SINGLE.search(replaced):
        new = _curl(new, "'", "‘", "’")
    return new


def _find(text: str, wanted: str) -> list[Span]:
    found: list[Span] = []
    at = text.find(wanted)
    while at >= 0:
        found.append(Span(at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return found


def _curl(text: str, straight: str, opening: str, closing: str) -> str:
    def curl(found: re.Match[str]) -> str:
        at = found.start()
        return opening if at == 0 or text[at - 1] in _OPENS_AFTER else closing

    return re.sub(straight, curl, text)
