"""Whose transcript is this?

In: a source, or the beginning of one. Out: a dialect, told from the first lines. Only the beginning
is read.
"""

import re
from pathlib import PurePath
from typing import Any, Literal

from toolspan.model.session import Dialect as ReadDialect
from toolspan.wire import document
from toolspan.wire.claude import decode
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.source import Source

Dialect = Literal["claude", "codex", "empty", "unknown"]

_BEGINNING = 1 << 20
_ENOUGH = 50
_CODEX = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "token_usage_record",
})  # fmt: skip
_CODEX_BARE = frozenset({
    "function_call", "function_call_output", "function_call_result", "reasoning", "message",
    "local_shell_call", "custom_tool_call", "custom_tool_call_output", "web_search_call",
})  # fmt: skip
_DOCUMENT = re.compile(rb'[\s\xef\xbb\xbf]*\{\s*"(?:session|items)"\s*:\s*[\[{]')
_HEAD = 2_048
_HINT = re.compile(
    rb'"(?:payload|record_type|instructions|items)"\s*:|"(?:function|custom_tool|local_shell)_call'
    rb'|^\{"type": ?"(?:message|reasoning)"',
    re.MULTILINE,
)
"""What a beginning of Codex's has and one of Claude's seldom."""
_CLAUDE = tuple(
    b'{"%s' % key
    for key in (
        b'parentUuid":', b'type":"user",', b'type":"assistant",', b'type":"summary",',
        b'type":"file-history-snapshot",', b'type":"queue-operation",', b'type":"last-prompt",',
        b'type":"mode",', b'type":"permission-mode",', b'type":"progress",',
    )
)  # fmt: skip
"""How most files of Claude's begin, and none of Codex's."""
_LONG = re.compile(rb'\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"[a-z_]+","payload":')


def dialect_of(source: Source) -> Dialect:
    """The dialect of a source; `unknown` when no line says.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    with source.open() as stream:
        return dialect_in(stream.read(_BEGINNING))


def dialect_in(beginning: bytes) -> Dialect:
    """The dialect that the beginning of a file shows; its last line may be cut."""
    if not beginning.strip():
        return "empty"
    lines = beginning.split(b"\n", _ENOUGH)[:_ENOUGH]
    if len(beginning) >= _BEGINNING and len(lines) == 1:
        return _of_long_line(beginning)
    codex = False
    for line in lines:
        vote = _vote(line)
        if vote == "claude":
            return "claude"
        codex = codex or vote == "codex"
    return "codex" if codex or _DOCUMENT.match(beginning) else "unknown"


def reads_as(name: str, data: bytes | bytearray, start: int, end: int) -> ReadDialect:
    """The dialect to read a file in, told as quickly as can be from its name and first bytes.

    The bytes are a part of a buffer, of which most is never looked at.
    """
    named = is_rollout(PurePath(name).name) if "rollout-" in name else False
    if not named:
        if data.startswith(_CLAUDE, start):
            return "claude"
        if not _HINT.search(data, start, min(end, start + _HEAD)):
            return "claude"
    found = dialect_in(bytes(data[start : min(end, start + _BEGINNING)]))
    return "codex" if found == "codex" or (named and found != "claude") else "claude"


def is_document(beginning: bytes) -> bool:
    """Whether a file is one JSON document, as Codex's oldest are, instead of lines."""
    return _DOCUMENT.match(beginning[:_HEAD]) is not None


def _of_long_line(beginning: bytes) -> Dialect:
    """A line too long to decode only for this."""
    if _LONG.match(beginning):
        return "codex"
    claude = b'"sessionId"' in beginning or b'"session_id"' in beginning
    return "claude" if claude else "unknown"


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
    entry = decode(line).entry
    return "claude" if entry.known or entry.message is not None else None


def _is_codex(found: dict[str, Any]) -> bool:
    kind = str(found.get("type"))
    if kind in _CODEX or found.get("record_type") == "state":
        return True
    if kind in _CODEX_BARE and "message" not in found:
        return True
    return "instructions" in found and "id" in found and "type" not in found
