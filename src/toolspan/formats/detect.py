"""Whose transcript is this?

In: a source, or the beginning of one. Out: a dialect, told from the first lines. Only the beginning
is read.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, Literal

from toolspan.formats import json_repair
from toolspan.formats.claude.records import decode_entry
from toolspan.formats.codex.paths import is_rollout
from toolspan.formats.source import Source
from toolspan.types.session import Dialect as ReadDialect

DetectedDialect = Literal["claude", "codex", "empty", "unknown"]

_MAX_HEAD_BYTES = 1 << 20
_MAX_LINES = 50
_CODEX_TYPES = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "token_usage_record",
})  # fmt: skip
_CODEX_BARE_TYPES = frozenset({
    "function_call", "function_call_output", "function_call_result", "reasoning", "message",
    "local_shell_call", "custom_tool_call", "custom_tool_call_output", "web_search_call",
})  # fmt: skip
_DOCUMENT_START = re.compile(rb'[\s\xef\xbb\xbf]*\{\s*"(?:session|items)"\s*:\s*[\[{]')
_HINT_BYTES = 2_048
_CODEX_HINT = re.compile(
    rb'"(?:payload|record_type|instructions|items)"\s*:|"(?:function|custom_tool|local_shell)_call'
    rb'|^\{"type": ?"(?:message|reasoning)"',
    re.MULTILINE,
)
"""What a beginning of Codex's has and one of Claude's seldom."""
_CLAUDE_PREFIXES = tuple(
    b'{"%s' % key
    for key in (
        b'parentUuid":', b'type":"user",', b'type":"assistant",', b'type":"summary",',
        b'type":"file-history-snapshot",', b'type":"queue-operation",', b'type":"last-prompt",',
        b'type":"mode",', b'type":"permission-mode",', b'type":"progress",',
    )
)  # fmt: skip
"""How most files of Claude's begin, and none of Codex's."""
_LONG_CODEX_LINE = re.compile(rb'\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"[a-z_]+","payload":')


def detect_dialect(source: Source) -> DetectedDialect:
    """The dialect of a source; `unknown` when no line says.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    with source.open() as stream:
        return detect_dialect_in(stream.read(_MAX_HEAD_BYTES))


def detect_dialect_in(beginning: bytes) -> DetectedDialect:
    """The dialect that the beginning of a file shows; its last line may be cut."""
    if not beginning.strip():
        return "empty"
    lines = beginning.split(b"\n", _MAX_LINES)[:_MAX_LINES]
    if len(beginning) >= _MAX_HEAD_BYTES and len(lines) == 1:
        return _detect_long_line(beginning)
    codex = False
    for line in lines:
        vote = _detect_line_dialect(line)
        if vote == "claude":
            return "claude"
        codex = codex or vote == "codex"
    return "codex" if codex or _DOCUMENT_START.match(beginning) else "unknown"


def choose_dialect(name: str, data: bytes | bytearray, start: int, end: int) -> ReadDialect:
    """The dialect to read a file in, told as quickly as can be from its name and first bytes.

    The bytes are a part of a buffer, of which most is never looked at.
    """
    named = is_rollout(PurePath(name).name) if "rollout-" in name else False
    if not named:
        if data.startswith(_CLAUDE_PREFIXES, start):
            return "claude"
        if not _CODEX_HINT.search(data, start, min(end, start + _HINT_BYTES)):
            return "claude"
    detected = detect_dialect_in(bytes(data[start : min(end, start + _MAX_HEAD_BYTES)]))
    return "codex" if detected == "codex" or (named and detected != "claude") else "claude"


def is_document(beginning: bytes) -> bool:
    """Whether a file is one JSON document, as Codex's oldest are, instead of lines."""
    return _DOCUMENT_START.match(beginning[:_HINT_BYTES]) is not None


def _detect_long_line(beginning: bytes) -> DetectedDialect:
    """A line too long to decode only for this."""
    if _LONG_CODEX_LINE.match(beginning):
        return "codex"
    claude = b'"sessionId"' in beginning or b'"session_id"' in beginning
    return "claude" if claude else "unknown"


def _detect_line_dialect(line: bytes) -> Literal["claude", "codex"] | None:
    try:
        decoded = json_repair.decode_document(line)
    except ValueError:
        pieces = json_repair.recover_objects(line).pieces
        return _detect_line_dialect(pieces[0].data) if pieces and pieces[0].data != line else None
    if not isinstance(decoded, dict):
        return None
    if _is_codex_line(decoded):
        return "codex"
    entry = decode_entry(line).entry
    return "claude" if entry.is_known or entry.message is not None else None


def _is_codex_line(decoded: dict[str, Any]) -> bool:
    kind = str(decoded.get("type"))
    if kind in _CODEX_TYPES or decoded.get("record_type") == "state":
        return True
    if kind in _CODEX_BARE_TYPES and "message" not in decoded:
        return True
    return "instructions" in decoded and "id" in decoded and "type" not in decoded
