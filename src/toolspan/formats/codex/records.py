"""Codex rollout lines: from bytes to typed views and back.

The `item` of a record is the payload of an enveloped line, or the line itself in the oldest files.
Bodies stay undecoded. Start at `RolloutRecord` and `decode_record`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct, field

from toolspan.formats.decoding import DECODE_ERRORS, TypedDecoder, known_keys
from toolspan.types.ids import CallId

ABSENT = Raw()

CALL_ITEM_TYPES = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "tool_search_call",
})  # fmt: skip
"""Items that call a tool and are answered by another item."""
OUTPUT_ITEM_TYPES = frozenset({
    "function_call_output", "custom_tool_call_output", "function_call_result", "tool_search_output",
    "local_shell_call_output", "mcp_tool_call_output",
})  # fmt: skip
"""Items that answer a call; `function_call_result` is an old name for `function_call_output`."""
SELF_CONTAINED_TYPES = frozenset({"web_search_call", "image_generation_call"})
"""Items that contain both a tool call and its outcome."""

ENVELOPE_TYPES = frozenset({
    "session_meta", "response_item", "event_msg", "compacted", "turn_context", "world_state",
    "token_usage_record", "inter_agent_communication", "inter_agent_communication_metadata",
    "security_risk_score", "session_state",
})  # fmt: skip
_ITEM_TYPES = CALL_ITEM_TYPES | OUTPUT_ITEM_TYPES | SELF_CONTAINED_TYPES | {
    "message", "agent_message", "reasoning", "compaction", "compaction_summary",
    "context_compaction", "ghost_snapshot", "other", "additional_tools",
}  # fmt: skip


class ThreadUsage(Struct, gc=False):
    """Token counts; `input_tokens` includes the cached tokens."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class TokenInfo(Struct, gc=False):
    """The tokens that a thread has used so far."""

    total_token_usage: ThreadUsage | None = None


class GitInfo(Struct, gc=False):
    """The git repository in which a session ran."""

    branch: str | None = None
    commit_hash: str | None = None
    repository_url: str | None = None


class HistoryBase(Struct, gc=False):
    """The thread whose rollout contains the history before this file's first line."""

    thread_id: str | None = None


class ItemMetadata(Struct, gc=False):
    """Metadata that newer clients attach to an item."""

    turn_id: str | None = None
    content_item_kinds: list[str] | None = None
    """The origin of each part of a message: `user.text`, `environments.environment_context`, …"""


class TurnItem(Struct, gc=False):
    """The subject of an `item_completed` event: a command, a patch, a message, …"""

    type: str = ""
    id: str | None = None
    status: str | None = None
    exit_code: int | None = None
    duration: Raw = ABSENT
    command: Raw = ABSENT
    server: str | None = None
    tool: str | None = None
    result: Raw = ABSENT
    error: Raw = ABSENT
    changes: Raw = ABSENT
    query: str | None = None
    path: str | None = None
    content: Raw = ABSENT
    text: Raw = ABSENT
    summary_text: Raw = ABSENT
    receiver_thread_ids: list[str] | None = None


class RolloutItem(Struct, gc=False):
    """A payload, with the fields of all payload types side by side, since their names do not clash."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = ABSENT
    call_id: CallId | None = None
    input: Raw = ABSENT
    output: Raw = ABSENT
    role: str | None = None
    content: Raw = ABSENT
    summary: Raw = ABSENT
    action: Raw = ABSENT
    result: Raw = ABSENT
    tools: Raw = ABSENT
    tool_calls: Raw = ABSENT
    """Calls inside an assistant message, in the oldest documents."""
    tool_call_id: CallId | None = None
    info: TokenInfo | None = None
    message: Raw = ABSENT
    text: Raw = ABSENT
    done: TurnItem | None = field(default=None, name="item")
    turn_id: str | None = None
    exit_code: int | None = None
    duration: Raw = ABSENT
    success: bool | None = None
    invocation: Raw = ABSENT
    changes: Raw = ABSENT
    command: Raw = ABSENT
    error: Raw = ABSENT
    reason: Raw = ABSENT
    decision: Raw = ABSENT
    num_turns: int | None = None
    query: str | None = None
    path: str | None = None
    tool: str | None = None
    model: str | None = None
    session_id: Raw = ABSENT
    """A session id in `session_meta`, or a process number elsewhere."""
    cwd: str | None = None
    cli_version: str | None = None
    source: Raw = ABSENT
    git: GitInfo | None = None
    forked_from_id: str | None = None
    history_base: HistoryBase | None = None
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    new_thread_id: str | None = None
    history_start: int | None = field(default=None, name="subagent_history_start_ordinal")
    replacement_history: Raw = ABSENT
    started: str | None = field(default=None, name="timestamp")
    """The payload's own timestamp; in `session_meta`, the start of the session."""
    passed: ItemMetadata | None = field(default=None, name="internal_chat_message_metadata_passthrough")

    @property
    def is_context(self) -> bool:
        """True for an output that answers no call: the client tells the model about a goal or another state."""
        is_output = self.type in OUTPUT_ITEM_TYPES and self.call_id is None and self.tool_call_id is None
        return is_output and (self.name is not None or (self.id or "").startswith("fco_"))


class RolloutRecord(RolloutItem, gc=False):
    """The typed view of one line."""

    payload: RolloutItem | None = None
    ordinal: int | None = None
    record_type: str | None = None
    instructions: Raw = ABSENT
    session: Raw = ABSENT

    @property
    def timestamp(self) -> str | None:
        """The time of the line, which the oldest files record only in their first line."""
        return self.started

    @property
    def item(self) -> RolloutItem:
        """The content of the line, with or without an envelope."""
        return self if self.payload is None else self.payload

    @property
    def is_event(self) -> bool:
        """True if the line is an event for display, not an item of the conversation."""
        return self.type == "event_msg"

    @property
    def is_header(self) -> bool:
        """True if the line is the first line of a file without envelopes."""
        return self.payload is None and not self.type and self.id is not None and not self.role

    @property
    def kind(self) -> str:
        """The line type and payload type, such as `response_item/function_call` or `turn_context`."""
        if self.payload is None:
            return self.type or self.record_type or ("session" if self.is_header else "")
        return f"{self.type}/{self.payload.type}" if self.payload.type else self.type

    @property
    def is_known(self) -> bool:
        """True if the line type has been observed or documented."""
        if self.payload is None:
            return self.type in _ITEM_TYPES or self.record_type == "state" or bool(self.role or self.id)
        kind = self.payload.type
        if self.type == "response_item":
            return kind in _ITEM_TYPES
        return self.type in ENVELOPE_TYPES and (self.type != "event_msg" or kind in known_keys("codex")["event types"])


class LegacyFunction(Struct, gc=False):
    """The function name and arguments of an old call."""

    name: str | None = None
    arguments: Raw = ABSENT


class LegacyCall(Struct, gc=False):
    """A call inside an assistant message of the oldest documents."""

    id: CallId | None = None
    function: LegacyFunction | None = None


RECORD_DECODER = TypedDecoder(RolloutRecord)
_LEGACY_CALLS_DECODER = msgspec.json.Decoder(list[LegacyCall])

decode_record = RECORD_DECODER.decode
encode_record = RECORD_DECODER.encode


def extract_calls(item: RolloutItem) -> list[RolloutItem]:
    """Return the calls in an item: the item itself, or the calls in a message of the oldest documents."""
    if item.type in CALL_ITEM_TYPES or item.type in SELF_CONTAINED_TYPES:
        return [item]
    if not item.tool_calls:
        return []
    try:
        legacy_calls = _LEGACY_CALLS_DECODER.decode(item.tool_calls)
    except DECODE_ERRORS:
        return []
    return [
        RolloutItem(
            type="function_call",
            call_id=call.id,
            name=call.function.name if call.function else None,
            arguments=call.function.arguments if call.function else ABSENT,
        )
        for call in legacy_calls
    ]


def item_tool_name(item: RolloutItem) -> str:
    """Return the name of the tool that an item calls, with the full name for MCP tools."""
    if item.type in ("local_shell_call", "web_search_call", "image_generation_call"):
        return item.type.removesuffix("_call")
    if item.type == "tool_search_call":
        return item.name or "tool_search"
    name, space = item.name or "", item.namespace or ""
    return f"{space}__{name}" if space.startswith("mcp__") else name


def unknown_keys(record: RolloutRecord, decoded: dict[str, object]) -> Iterator[str]:
    """Yield the keys of a line that have not been observed before."""
    payload, known = decoded.get("payload"), known_keys("codex")
    if record.payload is None or not isinstance(payload, dict):
        return
    yield from (key for key in decoded if key not in known["line"])
    if record.kind in known:
        yield from (f"{record.kind}.{key}" for key in payload if key not in known[record.kind])
