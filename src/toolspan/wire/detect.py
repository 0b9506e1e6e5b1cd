"""Whose transcript is this?

In: a source. Out: a dialect, told from the first lines. Only the beginning is read.
"""

from typing import Any, Literal

from toolspan.wire import document
from toolspan.wire.claude import Entry, decode_loosely
from toolspan.wire.source import Source

Dialect = Literal["claude", "codex", "empty", "unknown"]

_BEGINNING = 1 << 20
_ENOUGH = 50
_CODEX = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CODEX_BARE = frozenset({"function_call", "function_call_output", "reasoning", "message"})


def dialect_of(source: Source) -> Dialect:
    """The dialect of a source; `unknown` when no line says.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    with source.open() as stream:
        beginning = stream.read(_BEGINNING)
    if not beginning.strip():
        return "empty"
    lines = beginning.split(b"\n")[:_ENOUGH]
    if len(beginning) == _BEGINNING and len(lines) == 1:
        return (
            "claude" if b'"sessionId"' in beginning or b'"session_id"' in beginning else "unknown"
        )
    votes = [vote for line in lines if (vote := _vote(line)) is not None]
    if "claude" in votes:
        return "claude"
    return "codex" if "codex" in votes else "unknown"


def _vote(line: bytes) -> Literal["claude", "codex"] | None:
    try:
        found = document.decode(line)
    except ValueError:
        pieces = document.recover(line).pieces
        return _vote(pieces[0].data) if pieces and pieces[0].data != line else None
    if not isinstance(found, dict):
        return None
    if _is_codex(found):
        return "codex"
    entry: Entry = decode_loosely(line).entry
    return "claude" if entry.known or entry.message is not None else None


def _is_codex(found: dict[str, Any]) -> bool:
    kind = str(found.get("type"))
    if kind in _CODEX or found.get("record_type") == "state":
        return True
    return kind in _CODEX_BARE or ("instructions" in found and "git" in found)
