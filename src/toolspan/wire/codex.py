"""Codex's rollout lines: bytes to records and back.

In: a line of any age. Out: a `Record`, whose `item` is the payload of an enveloped line, or the
line itself where it has no envelope, as in the oldest files. Like Claude's side: the typed decoder
reads what most questions need and leaves bodies undecoded; a line whose known fields have other
types is read again loosely; encoding lays the view over the line. Read `Record` and `decode` first.
"""

import msgspec
from msgspec import Raw, Struct, field

from toolspan.ids import CallId
from toolspan.wire.views import UNFIT, View

NOTHING = Raw()
"""A part that is absent."""

CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "tool_search_call",
})  # fmt: skip
"""Items that ask for a tool and are answered by another item."""
OUTPUTS = frozenset({
    "function_call_output", "custom_tool_call_output", "function_call_result", "tool_search_output",
    "local_shell_call_output", "mcp_tool_call_output",
})  # fmt: skip
"""Items that answer; the third is what old notes call the first."""
SELF_CONTAINED = frozenset({"web_search_call", "image_generation_call"})
"""Items that ask and carry their own outcome."""

ENVELOPES = frozenset({
    "session_meta", "response_item", "event_msg", "compacted", "turn_context", "world_state",
    "token_usage_record", "inter_agent_communication", "inter_agent_communication_metadata",
    "security_risk_score", "session_state",
})  # fmt: skip
_ITEMS = CALLS | OUTPUTS | SELF_CONTAINED | {
    "message", "agent_message", "reasoning", "compaction", "compaction_summary",
    "context_compaction", "ghost_snapshot", "other", "additional_tools",
}  # fmt: skip
_EVENTS = frozenset({
    "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
    "agent_reasoning_section_break", "token_count", "turn_aborted", "task_started", "turn_started",
    "task_complete", "turn_complete", "context_compacted", "entered_review_mode",
    "exited_review_mode", "thread_rolled_back", "undo_started", "undo_completed",
    "exec_command_begin", "exec_command_output_delta", "exec_command_end", "error", "stream_error",
    "warning", "view_image_tool_call", "patch_apply_begin", "patch_apply_end",
    "mcp_tool_call_begin", "mcp_tool_call_end", "web_search_begin", "web_search_end",
    "image_generation_begin", "image_generation_end", "sub_agent_activity",
    "item_started", "item_completed",
    "thread_settings_applied", "thread_goal_updated", "thread_name_updated",
    "dynamic_tool_call_request", "dynamic_tool_call_response", "exec_approval_request",
    "apply_patch_approval_request", "exec_approval", "patch_approval", "request_permissions",
    "request_user_input", "elicitation_request", "plan_update", "turn_diff", "hook_started",
    "hook_completed", "background_event", "session_configured", "shutdown_complete",
    "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_agent_interaction_begin",
    "collab_agent_interaction_end", "collab_waiting_begin", "collab_waiting_end",
    "collab_close_begin", "collab_close_end", "collab_resume_begin", "collab_resume_end",
    "deprecation_notice", "model_reroute",
})  # fmt: skip


class Usage(Struct, gc=False):
    """Token counts; `input_tokens` has the cached ones in it."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


class TokenInfo(Struct, gc=False):
    """How many tokens a thread has used up to now."""

    total_token_usage: Usage | None = None


class Git(Struct, gc=False):
    """The repository a session worked in."""

    branch: str | None = None
    commit_hash: str | None = None
    repository_url: str | None = None


class HistoryBase(Struct, gc=False):
    """The thread whose rollout holds what came before this one's first line."""

    thread_id: str | None = None


class Passed(Struct, gc=False):
    """What newer clients attach to an item for themselves."""

    turn_id: str | None = None
    content_item_kinds: list[str] | None = None
    """Who made each part of a message: `user.text`, `environments.environment_context`, …"""


class TurnItem(Struct, gc=False):
    """What an `item_completed` event tells of: a command, a patch, a message, …"""

    type: str = ""
    id: str | None = None
    status: str | None = None
    exit_code: int | None = None
    duration: Raw = NOTHING
    command: Raw = NOTHING
    server: str | None = None
    tool: str | None = None
    result: Raw = NOTHING
    error: Raw = NOTHING
    changes: Raw = NOTHING
    query: str | None = None
    path: str | None = None
    content: Raw = NOTHING
    text: Raw = NOTHING
    summary_text: Raw = NOTHING
    receiver_thread_ids: list[str] | None = None


class Item(Struct, gc=False):
    """A payload: the fields of all kinds side by side, since their names do not clash."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = NOTHING
    call_id: CallId | None = None
    input: Raw = NOTHING
    output: Raw = NOTHING
    role: str | None = None
    content: Raw = NOTHING
    summary: Raw = NOTHING
    action: Raw = NOTHING
    result: Raw = NOTHING
    tools: Raw = NOTHING
    tool_calls: Raw = NOTHING
    """In the oldest documents an assistant's message carries its calls."""
    tool_call_id: CallId | None = None
    info: TokenInfo | None = None
    message: Raw = NOTHING
    text: Raw = NOTHING
    done: TurnItem | None = field(default=None, name="item")
    turn_id: str | None = None
    exit_code: int | None = None
    duration: Raw = NOTHING
    success: bool | None = None
    invocation: Raw = NOTHING
    changes: Raw = NOTHING
    command: Raw = NOTHING
    error: Raw = NOTHING
    reason: Raw = NOTHING
    decision: Raw = NOTHING
    num_turns: int | None = None
    query: str | None = None
    path: str | None = None
    tool: str | None = None
    model: str | None = None
    session_id: Raw = NOTHING
    """A session's name in `session_meta`, a process's number elsewhere."""
    cwd: str | None = None
    cli_version: str | None = None
    source: Raw = NOTHING
    git: Git | None = None
    forked_from_id: str | None = None
    history_base: HistoryBase | None = None
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    new_thread_id: str | None = None
    history_start: int | None = field(default=None, name="subagent_history_start_ordinal")
    replacement_history: Raw = NOTHING
    started: str | None = field(default=None, name="timestamp")
    """A payload's own time: of a session's beginning, in `session_meta`."""
    passed: Passed | None = field(default=None, name="internal_chat_message_metadata_passthrough")


class Record(Item, gc=False):
    """The typed view of one line."""

    payload: Item | None = None
    ordinal: int | None = None
    record_type: str | None = None
    instructions: Raw = NOTHING

    @property
    def timestamp(self) -> str | None:
        """When the line was written; the oldest files say so only in their first line."""
        return self.started

    @property
    def item(self) -> Item:
        """What the line holds, with or without its envelope."""
        return self if self.payload is None else self.payload

    @property
    def is_event(self) -> bool:
        """An event, which tells of something; not an item the model reads or wrote."""
        return self.type == "event_msg"

    @property
    def is_header(self) -> bool:
        """The first line of a file without envelopes."""
        return self.payload is None and not self.type and self.id is not None and not self.role

    @property
    def kind(self) -> str:
        """Its type, and its payload's: `response_item/function_call`, `turn_context`."""
        if self.payload is None:
            return self.type or self.record_type or ("session" if self.is_header else "")
        return f"{self.type}/{self.payload.type}" if self.payload.type else self.type

    @property
    def known(self) -> bool:
        """Its type has been seen or described before."""
        if self.payload is None:
            return self.type in _ITEMS or self.record_type == "state" or bool(self.role or self.id)
        kind = self.payload.type
        if self.type == "response_item":
            return kind in _ITEMS
        return self.type in ENVELOPES and (self.type != "event_msg" or kind in _EVENTS)


class OldFunction(Struct, gc=False):
    """The function of an old call."""

    name: str | None = None
    arguments: Raw = NOTHING


class OldCall(Struct, gc=False):
    """A call in an assistant's message of the oldest documents."""

    id: CallId | None = None
    function: OldFunction | None = None


_RECORDS = View(Record)
_OLD_CALLS = msgspec.json.Decoder(list[OldCall])

decode = _RECORDS.decode
decode_whole = _RECORDS.decode_whole
encode = _RECORDS.encode


def calls_of(item: Item) -> list[Item]:
    """The calls in an item: itself, or those that a message of the oldest documents carries."""
    if item.type in CALLS or item.type in SELF_CONTAINED:
        return [item]
    if not item.tool_calls:
        return []
    try:
        found = _OLD_CALLS.decode(item.tool_calls)
    except UNFIT:
        return []
    return [
        Item(
            type="function_call",
            call_id=call.id,
            name=call.function.name if call.function else None,
            arguments=call.function.arguments if call.function else NOTHING,
        )
        for call in found
    ]


def tool_of(item: Item) -> str:
    """The tool an item asks for, MCP tools by their full name."""
    match item.type:
        case "local_shell_call":
            return "local_shell"
        case "web_search_call":
            return "web_search"
        case "image_generation_call":
            return "image_generation"
        case "tool_search_call":
            return item.name or "tool_search"
        case _:
            name = item.name or ""
            space = item.namespace or ""
            return f"{space}__{name}" if space.startswith("mcp__") else name
