"""Gemini CLI's records: bytes to typed views and back.

A file of lines begins with a header, continues with messages, and changes both: a message with a known id replaces the
earlier one, `$set` changes the header, `$rewindTo` takes messages back. A document is a header with a list of messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, Struct, field

from toolspan.formats.decoding import TypedDecoder
from toolspan.types.ids import CallId

ABSENT = Raw()


class GeminiTokens(Struct, gc=False):
    """Token counts of one reply; `input` includes `cached`, the others are separate."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None


class GeminiThought(Struct, gc=False):
    """A summary of the model's thinking."""

    subject: str | None = None
    description: str | None = None
    timestamp: str | None = None


class GeminiCall(Struct, gc=False, rename="camel"):
    """A call with its result."""

    id: CallId | None = None
    name: str | None = None
    args: Raw = ABSENT
    status: str | None = None
    timestamp: str | None = None
    """The time at which the call was completed."""
    result: Raw = ABSENT
    result_display: Raw = ABSENT


class GeminiRecord(Struct, gc=False, rename="camel"):
    """A line, or a message of a document."""

    id: str | None = None
    type: str = ""
    timestamp: str | None = None
    content: Raw = ABSENT
    display_content: Raw = ABSENT
    """The text that the user typed, if `content` has more, such as included files."""
    model: str | None = None
    tokens: GeminiTokens | None = None
    thoughts: list[GeminiThought] | None = None
    tool_calls: list[GeminiCall] | None = None
    session_id: str | None = None
    project_hash: str | None = None
    start_time: str | None = None
    last_updated: str | None = None
    kind: str | None = None
    """`main` or `subagent`, in a header."""
    summary: str | None = None
    directories: Raw = ABSENT
    messages: list[GeminiRecord] | None = None
    updates: GeminiRecord | None = field(default=None, name="$set")
    rewind_to: str | None = field(default=None, name="$rewindTo")

    @property
    def line_type(self) -> str:
        """The type under which a line is counted."""
        if self.updates is not None:
            return "$set"
        if self.rewind_to is not None:
            return "$rewindTo"
        return self.type or ("session" if self.session_id else "")


_DECODER = TypedDecoder(GeminiRecord)
decode_record = _DECODER.decode
decode_records = _DECODER.decode_many
encode_record = _DECODER.encode

_KNOWN_TYPES = frozenset({"user", "gemini", "info", "error", "warning", "session", "$set", "$rewindTo"})
_HEADER_KEYS = frozenset({
    "sessionId", "projectHash", "startTime", "lastUpdated", "kind", "summary", "directories", "messages",
    "memoryScratchpad",
})  # fmt: skip
_MESSAGE_KEYS = frozenset({
    "id", "timestamp", "type", "content", "displayContent", "thoughts", "model", "tokens", "toolCalls",
})  # fmt: skip
_CALL_KEYS = frozenset({
    "id", "name", "args", "status", "timestamp", "result", "resultDisplay", "description", "displayName",
    "renderOutputAsMarkdown", "agentId",
})  # fmt: skip


def iter_messages(record: GeminiRecord) -> Iterator[GeminiRecord]:
    """Yield the messages of a line: itself, or those in a header or an update."""
    if record.type and record.id:
        yield record
    for holder in (record, record.updates):
        yield from (message for message in (holder.messages if holder else None) or () if message.id)


def is_known(record: GeminiRecord) -> bool:
    """Return whether a line's type has been seen before."""
    return record.line_type in _KNOWN_TYPES


def unknown_keys(record: GeminiRecord, fields: dict[str, object]) -> Iterator[str]:
    """Yield the keys of a line that have not been seen before."""
    if record.line_type.startswith("$"):
        yield from (key for key in fields if key not in ("$set", "$rewindTo"))
        return
    known = _MESSAGE_KEYS if record.type else _HEADER_KEYS
    yield from (key for key in fields if key not in known)
    calls = fields.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from (f"toolCalls.{key}" for key in call if key not in _CALL_KEYS)
