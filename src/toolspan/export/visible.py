"""Texts that can do nothing but be read.

In: a text of a transcript. Out: the same without colours, and with every character that would act
on a terminal, a page or the order of letters shown as a sign. Pure.
"""

import re

_COLOURS = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_SIGNS = 0x2400
"""Where the pictures of control characters begin."""


def visible(text: str) -> str:
    """The text with acting characters shown; lines and tabs stay."""
    bare = _COLOURS.sub("", text).replace("\r\n", "\n") if "\x1b" in text or "\r" in text else text
    return _ACTING.sub(_sign, bare)


def one_line(text: str, most: int) -> str:
    """The text as one visible line of at most so many characters."""
    line = visible(" ".join(text[: most * 4].split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_SIGNS + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"
