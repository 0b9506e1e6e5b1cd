"""Escape characters of transcripts that would control a terminal, act as markup or change the text direction."""

from __future__ import annotations

import re

_ANSI_COLORS = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_CONTROL_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_CONTROL_PICTURES_START = 0x2400
"""Code point of the first control picture."""


def escape_control_chars(text: str) -> str:
    """Return the text without colours and with control characters made visible. Newlines and tabs stay."""
    bare = _ANSI_COLORS.sub("", text).replace("\r\n", "\n") if "\x1b" in text or "\r" in text else text
    return _CONTROL_CHARS.sub(_control_picture, bare)


def one_line(text: str, max_chars: int) -> str:
    """Return the text as one line of at most `max_chars` characters."""
    line = escape_control_chars(" ".join(text[: max_chars * 4].split()))
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def _control_picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES_START + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"
