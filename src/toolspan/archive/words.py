"""Durations, counts, states and lines of text in the words that every front end uses.

`page_words` sends those that the browser needs with the page. `components/format.js` formats durations in the same way.
"""

from __future__ import annotations

import re
from typing import Literal

from toolspan.formats.registry import all_formats
from toolspan.types.state import STATE_SYMBOLS, State

Tone = Literal["good", "bad", "warn", "muted", "odd", "info"]
STATE_TONES: dict[State, Tone] = {
    "succeeded": "good", "failed": "bad", "timed_out": "bad", "never_answered": "bad", "denied": "warn",
    "blocked_by_hook": "warn", "cancelled": "muted", "orphan_result": "muted", "interrupted": "odd",
    "requested": "info", "awaiting_permission": "info", "running": "info",
}  # fmt: skip
"""The tone of each state. Front ends map tones to colours."""
_ANSI_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def format_duration(ms: float | None) -> str:
    """Format a duration, such as `350 ms`, `2.5 s`, `3m 04s`, `1h 20m` or `3d 4h`; empty for None."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02}m"
    return f"{hours // 24}d {hours % 24}h"


def format_count(n: int, noun: str) -> str:
    """Return a number followed by its noun, in the plural if needed."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def join_parts(*parts: str | None) -> str:
    """Join the parts that are not empty."""
    return " · ".join(part for part in parts if part)


def replace_unprintable(text: str) -> str:
    """Replace each control character with U+FFFD."""
    if text.isprintable():  # perf: almost always true
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten_line(text: str | None, width: int) -> str:
    """Shorten text to one line of at most `width` characters, without control characters."""
    line = replace_unprintable(" ".join((text or "").split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def shorten_middle(text: str, width: int) -> str:
    """Shorten a name in the middle, so that its beginning and its end remain."""
    tail = max(width // 2, 1)
    return text if len(text) <= width else f"{text[: max(width - tail - 1, 0)]}…{text[-tail:]}"


def plain_line(text: str | None, width: int) -> str:
    """Shorten text to one line of at most `width` characters, without colour codes and control characters."""
    return shorten_line(_ANSI_ESCAPES.sub("", (text or "")[: width * 8]), max(width, 1))


def plain_lines(text: str) -> list[str]:
    """Split text into lines, without colour codes and control characters."""
    bare = _ANSI_ESCAPES.sub("", text).replace("\r\n", "\n").expandtabs(4)
    return [replace_unprintable(line) for line in bare.split("\n")]


def page_words() -> dict[str, object]:
    """Return the symbols and tones of states and the names of clients, for the browser."""
    return {
        "states": {state: [symbol, STATE_TONES[state]] for state, symbol in STATE_SYMBOLS.items()},
        "clients": {transcript_format.name: transcript_format.title for transcript_format in all_formats()},
    }
