"""Texts about files: sizes, numbered lines, names that can be printed.

Pure functions; no files.
"""

import math
import re
from collections.abc import Iterable
from typing import Literal

_LONE = re.compile("[\ud800-\udfff]")
_STEP = 1024
_UNITS = ("KB", "MB", "GB", "TB")


def clean(text: str) -> str:
    """The text without halves of characters, which no transcript can hold.

    They come from names with bytes that are no UTF-8, and from careless JSON.
    """
    return _LONE.sub("\ufffd", text)


def size_text(count: int) -> str:
    """A number of bytes for people: `584.9KB`."""
    if count < _STEP:
        return f"{count} bytes"
    power = min(int(math.log(count, _STEP)), len(_UNITS))
    return f"{count / _STEP**power:.1f}".removesuffix(".0") + _UNITS[power - 1]


def numbered(lines: Iterable[str], first: int, style: Literal["tab", "arrow"]) -> str:
    """Lines with their numbers before them."""
    if style == "tab":
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, first))
