"""Which keys Codex's lines are known to have, so that new ones are noticed.

In: a record and its decoded line. Out: the keys nobody has described, as paths. Kinds of which
nothing is known are drift by themselves and are not searched here.
"""

from collections.abc import Iterator

from toolspan.wire.codex import Record

_LINE = frozenset({"timestamp", "type", "payload", "ordinal", "metadata"})
_ITEM = frozenset(
    {"type", "id", "status", "metadata", "internal_chat_message_metadata_passthrough"}
)
"""What any item may carry for the client's own use."""
_TURN = frozenset({"type", "turn_id", "root_turn_id", "started_at", "completed_at", "duration_ms"})
_COMMAND = frozenset({
    "call_id", "process_id", "command", "cwd", "parsed_cmd", "source", "interaction_input",
    "stdout", "stderr", "aggregated_output", "exit_code", "duration", "formatted_output", "status",
    "started_at_ms", "completed_at_ms",
})  # fmt: skip

_KEYS: dict[str, frozenset[str]] = {
    "session_meta": frozenset({
        "id", "session_id", "timestamp", "cwd", "originator", "cli_version", "source",
        "instructions", "base_instructions", "git", "model_provider", "forked_from_id",
        "parent_thread_id", "thread_source", "agent_nickname", "agent_role", "agent_type",
        "agent_path", "dynamic_tools", "memory_mode", "history_mode", "history_base",
        "subagent_history_start_ordinal", "multi_agent_version", "context_window",
        "runtime_workspace_roots",
    }),
    "turn_context": frozenset({
        "turn_id", "root_turn_id", "cwd", "workspace_roots", "current_date", "timezone",
        "approval_policy", "approvals_reviewer", "sandbox_policy", "permission_profile", "network",
        "model", "effort", "summary", "personality", "collaboration_mode", "truncation_policy",
        "comp_hash", "developer_instructions", "disabled_plugin_ids", "file_system_sandbox_policy",
        "multi_agent_version", "realtime_active", "user_instructions",
    }),
    "compacted": frozenset({
        "message", "replacement_history", "replacement_history_metadata", "window_number",
        "first_window_id", "previous_window_id", "window_id", "mcp_resource_origins",
    }),
    "world_state": frozenset({"full", "state"}),
    "response_item/message": _ITEM | {"role", "content", "phase", "end_turn"},
    "response_item/reasoning": _ITEM | {"summary", "content", "encrypted_content"},
    "response_item/function_call": _ITEM | {"name", "namespace", "arguments", "call_id"},
    "response_item/function_call_output": _ITEM | {"call_id", "output", "name"},
    "response_item/function_call_result": _ITEM | {"call_id", "result"},
    "response_item/custom_tool_call": _ITEM | {"call_id", "name", "input"},
    "response_item/custom_tool_call_output": _ITEM | {"call_id", "output", "name"},
    "response_item/local_shell_call": _ITEM | {"call_id", "action"},
    "response_item/web_search_call": _ITEM | {"action"},
    "response_item/tool_search_call": _ITEM | {"call_id", "execution", "arguments"},
    "response_item/tool_search_output": _ITEM | {"call_id", "execution", "tools"},
    "event_msg/user_message": frozenset({
        "type", "message", "images", "local_images", "text_elements", "kind", "client_id",
    }),
    "event_msg/agent_message": frozenset({"type", "message", "phase", "memory_citation"}),
    "event_msg/agent_reasoning": frozenset({"type", "text"}),
    "event_msg/token_count": frozenset({"type", "info", "rate_limits"}),
    "event_msg/task_started": _TURN | {
        "collaboration_mode_kind", "model_context_window", "turn_attribution",
    },
    "event_msg/task_complete": _TURN | {
        "last_agent_message", "error", "time_to_first_token_ms",
    },
    "event_msg/turn_aborted": _TURN | {"reason"},
    "event_msg/exec_command_begin": _TURN | _COMMAND,
    "event_msg/exec_command_end": _TURN | _COMMAND,
    "event_msg/patch_apply_end": _TURN | {
        "call_id", "stdout", "stderr", "success", "changes", "status",
    },
    "event_msg/mcp_tool_call_end": _TURN | {
        "call_id", "invocation", "duration", "result", "plugin_id", "connector_id", "link_id",
    },
    "event_msg/web_search_end": _TURN | {"call_id", "query", "action", "results"},
    "event_msg/item_completed": _TURN | {
        "thread_id", "item", "started_at_ms", "completed_at_ms",
    },
}  # fmt: skip


def unknown_keys(record: Record, found: dict[str, object]) -> Iterator[str]:
    """Keys of a line that nobody has described."""
    payload = found.get("payload")
    if record.payload is None or not isinstance(payload, dict):
        return
    yield from (key for key in found if key not in _LINE)
    known = _KEYS.get(record.kind)
    if known is not None:
        yield from (f"{record.kind}.{key}" for key in payload if key not in known)
