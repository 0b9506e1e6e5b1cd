"""Claude Code records as a given client version would write them, for `claude_builder.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from toolspan.session.models.scripted import SeededIds
from toolspan.testing.claude_results import Blocks, client_shape

Record = dict[str, object]

_INITIAL_TOKENS = 9_000
"""The number of tokens in the system prompt."""


@dataclass
class BuiltLine:
    """A record or raw bytes to write as one line."""

    record: Record | bytes
    agent_call: str | None = None
    """The call that started the subagent."""
    kept_bytes: int | None = None
    """The number of bytes that reached the disk; None means all."""
    end: bytes = b"\n"

    def encoded(self) -> bytes:
        """Return the bytes to write to the file."""
        whole = self.record if isinstance(self.record, bytes) else encode_record(self.record)
        return whole[: self.kept_bytes] + self.end


@dataclass(frozen=True, kw_only=True)
class BuiltAgent:
    """The subagent to which a file belongs."""

    id: str | None
    """The agent id, or None if subagents write into the session's file."""
    call: str
    kind: str
    description: str


@dataclass(frozen=True, kw_only=True)
class LineContext:
    """The fields that are repeated in every record of a session."""

    session_id: str
    version: str
    cwd: str
    branch: str


@dataclass
class _BuiltMessage:
    """One message from the model, across all its records."""

    records: list[Record]
    cached: int
    """Tokens cached by earlier messages."""
    uncached: int
    usage: dict[str, int] = field(default_factory=dict)


class LineBuilder:
    """A writer that builds records and stores them."""

    def __init__(self, context: LineContext, now: datetime, agent: BuiltAgent | None = None) -> None:
        self.context = context
        self.shape = client_shape(context.version)
        self.agent = agent
        self.ids = SeededIds(f"{context.session_id}/{agent.call}" if agent else context.session_id)
        self.now = now
        self.last_uuid: str | None = None
        """The uuid of the last record."""
        self.lines: list[BuiltLine] = []
        self.current_message: str | None = None
        """The message that the model is writing."""
        self.prompt_id: str | None = None
        self._messages: dict[str, _BuiltMessage] = {}
        self._character_count = 0
        self._cached = 0

    @property
    def tokens(self) -> int:
        """The approximate length of the conversation in tokens."""
        return _INITIAL_TOKENS + self._character_count // 4

    def add_entry(
        self, body: Record, extras: Record | None = None, *, parent: str | None, links: Record | None = None
    ) -> Record:
        """Add a conversation record, with `extras` after its timestamp."""
        uuid = self.ids.next_uuid()
        agent_id = {"agentId": self.agent.id} if self.agent and self.agent.id else {}
        head: Record = {"parentUuid": parent, **(links or {}), "isSidechain": bool(self.agent)}
        entry_fields: Record = {**agent_id, **body, "uuid": uuid, "timestamp": _format_time(self.now), **(extras or {})}
        envelope = self._envelope_fields()
        record = head | entry_fields | envelope if self.shape.envelope_last else head | envelope | entry_fields
        self.add_line(record)
        self._character_count += len(encode_record(body))
        self.last_uuid = uuid
        return record

    def add_line(self, record: Record | bytes) -> None:
        """Add a line unchanged."""
        self.lines.append(BuiltLine(record, self.agent.call if self.agent else None))

    def add_user_entry(self, content: str | Blocks, extras: Record | None = None, *, parent: str | None = None) -> None:
        """Add a user record; its parent is the previous record by default."""
        self.current_message = None
        body: Record = {"type": "user", "message": {"role": "user", "content": content}}
        if self.shape.prompt_ids and self.prompt_id:
            body = {"promptId": self.prompt_id, **body}
        self.add_entry(body, extras, parent=parent or self.last_uuid)

    def add_block(self, block: Mapping[str, object], message: str | None) -> str:
        """Add a block from the model's message as a record, and return its uuid."""
        message_id = message or self.current_message or self.ids.next_token("msg_01")
        built_message = self._open_message(message_id)
        message_fields = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": self.shape.model,
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
        }
        body: Record = {
            "message": message_fields,
            "requestId": f"req_011{message_id.removeprefix('msg_01')}",
            "type": "assistant",
        }
        if self.shape.blocks_numbered:
            body = {"message": message_fields, "apiBlockIndex": len(built_message.records), **body}
        built_message.records.append(self.add_entry(body, parent=self.last_uuid))
        return self.last_uuid or ""

    def add_synthetic_reply(self, text: str) -> None:
        """Add a message that the client writes in the model's name."""
        message = {
            "id": self.ids.next_uuid(),
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage_fields(),
            "content": [{"type": "text", "text": text}],
        }
        body: Record = {"type": "assistant", "message": message}
        self.add_entry(body, {"isApiErrorMessage": False}, parent=self.last_uuid)

    def set_token_counts(self, tokens: dict[str, int]) -> None:
        """Set token counts for the current message; missing ones are invented.

        Raises:
            ValueError: there is no current message.
        """
        if self.current_message is None:
            raise ValueError("Expected a text, a thought or a call before its token counts")
        self._messages[self.current_message].usage |= tokens

    def reset_token_counts(self) -> None:
        """Restart counting, as after a compaction."""
        self._character_count = self._cached = 0

    def continue_from(self, other: LineBuilder) -> None:
        """Continue from the last record of another file, with its token counts."""
        self.last_uuid, self._character_count, self._cached = (other.last_uuid, other._character_count, other._cached)

    def finish_messages(self) -> None:
        """Fill in stop reasons and token counts, which are known only once a message is complete."""
        for message in self._messages.values():
            self._finish_message(message)

    def _open_message(self, message_id: str) -> _BuiltMessage:
        if message_id not in self._messages:
            tokens = self.tokens
            self._messages[message_id] = _BuiltMessage([], self._cached, tokens - self._cached)
            self._cached = tokens
        self.current_message = message_id
        return self._messages[message_id]

    def _envelope_fields(self) -> Record:
        """Return the folder, session and version fields."""
        entrypoint = {"entrypoint": "sdk-cli"} if self.shape.envelope_last else {}
        return {
            "userType": "external",
            **entrypoint,
            "cwd": self.context.cwd,
            "sessionId": self.context.session_id,
            "version": self.context.version,
            "gitBranch": self.context.branch,
        }

    def _finish_message(self, message: _BuiltMessage) -> None:
        contents = [message_fields["content"] for message_fields in map(_record_message, message.records)]
        has_calls = any(b'"type":"tool_use"' in encode_record(content) for content in contents)
        output = sum(len(encode_record(content)) for content in contents) // 4
        final = _usage_fields(cached=message.cached, uncached=message.uncached, output=output, overrides=message.usage)
        for n, message_fields in enumerate(map(_record_message, message.records)):
            is_final = self.shape.final_stop or n == len(contents) - 1
            message_fields["stop_reason"] = ("tool_use" if has_calls else "end_turn") if is_final else None
            message_fields["usage"] = final if is_final else final | {"output_tokens": 1}


def encode_record(record: object) -> bytes:
    """Encode a record as compact JSON with its keys in order."""
    return msgspec.json.encode(record)


def _record_message(record: Record) -> Record:
    """Return the message of a record."""
    message = record["message"]
    return message if isinstance(message, dict) else {}


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _usage_fields(
    *, cached: int = 0, uncached: int = 0, output: int = 0, overrides: Mapping[str, int] | None = None
) -> Record:
    return {
        "input_tokens": 4 if output else 0,
        "cache_creation_input_tokens": uncached,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        **(overrides or {}),
        "service_tier": "standard",
    }


class StreamRecord(NamedTuple):
    """A record, and the call whose subagent wrote it."""

    record: dict[str, object]
    agent_call: str | None


def to_stream_records(records: Sequence[StreamRecord], session_id: str, model: str) -> list[dict[str, object]]:
    """Return the lines that the client would have printed."""
    printed = [item for item in records if _is_printed(item)]
    printed.sort(key=lambda item: str(item.record["timestamp"]))
    first = {
        "type": "system",
        "subtype": "init",
        "cwd": printed[0].record["cwd"] if printed else "",
        "session_id": session_id,
        "model": model,
        "permissionMode": "default",
        "claude_code_version": printed[0].record["version"] if printed else "",
    }
    return [first, *(_stream_line(item, session_id) for item in printed), _result_line(printed, session_id)]


def _is_printed(item: StreamRecord) -> bool:
    """Return whether a record is printed, as the model's blocks and results are, but not prompts."""
    if item.record.get("type") == "assistant":
        return True
    return any(block.get("type") == "tool_result" for block in _record_blocks(item.record))


def _stream_line(item: StreamRecord, session_id: str) -> dict[str, object]:
    record = item.record
    line: dict[str, object] = {
        "type": record["type"],
        "message": _without_stop_reason(record["message"]),
        "parent_tool_use_id": item.agent_call,
        "session_id": session_id,
        "uuid": record["uuid"],
        "timestamp": record["timestamp"],
    }
    if "requestId" in record:
        line["request_id"] = record["requestId"]
    if "toolUseResult" in record:
        line["tool_use_result"] = record["toolUseResult"]
    return line


def _without_stop_reason(message: object) -> object:
    """Remove the stop reason, which is not known when a block is printed."""
    if isinstance(message, dict) and "stop_reason" in message:
        return {**message, "stop_reason": None}
    return message


def _result_line(printed: Sequence[StreamRecord], session_id: str) -> dict[str, object]:
    """Return the last line of a run, with its outcome and the denied calls."""
    calls = {
        block["id"]: block
        for item in printed
        for block in _record_blocks(item.record)
        if block.get("type") == "tool_use"
    }
    texts = [block["text"] for item in printed for block in _record_blocks(item.record) if block.get("type") == "text"]
    denials = [
        {"tool_name": call["name"], "tool_use_id": call["id"], "tool_input": call["input"]}
        for item in printed
        if "toolDenialKind" in item.record
        for block in _record_blocks(item.record)
        if (call := calls.get(block.get("tool_use_id")))
    ]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": len(printed),
        "result": texts[-1] if texts else "",
        "session_id": session_id,
        "permission_denials": denials,
        "terminal_reason": "completed",
    }


def _record_blocks(record: dict[str, object]) -> list[dict[str, object]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []
