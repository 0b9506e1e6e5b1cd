"""Durations, counts, states and lines of text in the words that every front end uses.

`page_words` sends those that the browser needs with the page. `components/format.js` formats durations in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from toolspan.formats.registry import all_formats
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.session import MessageAuthor
from toolspan.types.state import OPEN_STATES, STATE_MEANINGS, STATE_SYMBOLS, UNSUCCESSFUL_STATES, State

Tone = Literal["good", "bad", "warn", "muted", "odd", "info"]
STATE_TONES: dict[State, Tone] = {
    "succeeded": "good", "failed": "bad", "timed_out": "bad", "never_answered": "bad", "denied": "warn",
    "blocked_by_hook": "warn", "cancelled": "muted", "orphan_result": "muted", "interrupted": "odd",
    "requested": "info", "awaiting_permission": "info", "running": "info",
}  # fmt: skip
"""The tone of each state. Front ends map tones to colours."""
VOICES: dict[MessageAuthor, tuple[str, str]] = {
    "prompt": ("❯", "Prompt"), "command": ("❯", "Command"), "text": ("", "Model"), "thinking": ("∴", "Thinking"),
    "injected": ("+", "Client, to the model"), "summary": ("≡", "Summary"), "notification": ("◆", "Notification"),
    "interrupt": ("■", "Interrupted"), "error": ("!", "Error"), "system": ("──", "Client"),
}  # fmt: skip
"""The symbol and the name of each author of messages."""
_SHORT_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
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


def short_number(count: float) -> str:
    """Return a number in at most five characters, such as `17.5M`."""
    for size, unit in _SHORT_UNITS:
        if count >= size:
            scaled = count / size
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{count:g}"


def format_size(size: float) -> str:
    """Format a number of bytes, such as `8.2 kB`, `130 kB` or `1.2 GB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e3:.{1 if size < 1e5 else 0}f} kB"


def format_states(states: Mapping[str, int], nothing_found: int) -> str:
    """Return the number of calls in each state, largest first, without orphan results.

    `nothing_found` of the failed calls are searches that found nothing, which do not count as unsuccessful.
    """
    ordered = sorted(((n, state) for state, n in states.items() if n and state != "orphan_result"), reverse=True)
    notes = {"failed": f" ({nothing_found:,} found nothing)"} if nothing_found else {}
    return ", ".join(f"{n:,} {state.replace('_', ' ')}{notes.get(state, '')}" for n, state in ordered)


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
    """Return the symbols, tones and names that the browser needs."""
    from toolspan.analysis.recovery import CHAIN_WORDS  # perf: commands do not need it
    from toolspan.analysis.timing import TIME_PARTS

    return {
        "open_states": sorted(OPEN_STATES),
        "unsuccessful_states": sorted(UNSUCCESSFUL_STATES),
        "meanings": STATE_MEANINGS,
        "voices": VOICES,
        "parts": TIME_PARTS,
        "kinds": KIND_WORDS,
        "recoveries": CHAIN_WORDS,
        "states": {state: [symbol, STATE_TONES[state]] for state, symbol in STATE_SYMBOLS.items()},
        "clients": {transcript_format.name: transcript_format.title for transcript_format in all_formats()},
    }
