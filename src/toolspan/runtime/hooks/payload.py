"""What handlers are told: the JSON object on a command's standard input.

In: a moment, a batch or an occasion, and the session. Out: a dict in the client's words and order,
without the fields that this client version does not know yet. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolspan.runtime.hooks.events import HookEnvironment, HookPoint, SessionHookEvent, ToolHookEvent
from toolspan.runtime.profiles import HookValues
from toolspan.types.span import Span

Payload = dict[str, object]

_WITHOUT_PERMISSION_MODE = frozenset({
    "SessionStart", "SessionEnd", "PreCompact", "PostCompact", "Notification", "SubagentStart",
    "CwdChanged", "TaskCreated", "TaskCompleted", "StopFailure", "WorktreeCreate",
    "FileChanged",
})  # fmt: skip
"""Points that do not tell the permission mode."""
_WITHOUT_EFFORT = (_WITHOUT_PERMISSION_MODE - {"StopFailure"}) | {"UserPromptSubmit"}


def tool_payload(
    point: HookPoint, tool_event: ToolHookEvent, hook_environment: HookEnvironment, values: HookValues
) -> Payload:
    """A call at one of its points."""
    payload = _common_fields(point, hook_environment, str(tool_event.cwd), values)
    payload |= {"tool_name": tool_event.tool, "tool_input": dict(tool_event.input)}
    if point == "PermissionRequest":
        suggestions = [dict(suggestion) for suggestion in tool_event.suggestions]
        return payload | ({"permission_suggestions": suggestions} if suggestions else {})
    if point == "PostToolUse":
        payload["tool_response"] = tool_event.output
    payload["tool_use_id"] = tool_event.call.id
    if point == "PostToolUseFailure":
        payload |= {"error": tool_event.error or "", "is_interrupt": tool_event.interrupted}
    if point != "PreToolUse":
        payload["duration_ms"] = round(tool_event.duration_ms or 0)
    server = tool_event.tool.split("__")[1:2] if tool_event.tool.startswith("mcp__") else []
    if server:
        payload["mcp_server"] = {"name": server[0], "source": "dynamic"}
    return _drop_unsupported(payload, values)


def batch_payload(spans: Sequence[Span], hook_environment: HookEnvironment, values: HookValues) -> Payload:
    """The calls of a message, all ended."""
    payload = _common_fields("PostToolBatch", hook_environment, str(hook_environment.cwd()), values)
    return _drop_unsupported(payload | {"tool_calls": [_call_payload(span) for span in spans]}, values)


def session_payload(session_event: SessionHookEvent, hook_environment: HookEnvironment, values: HookValues) -> Payload:
    """Any other point."""
    payload = _common_fields(session_event.point, hook_environment, str(hook_environment.cwd()), values)
    return _drop_unsupported(payload | dict(session_event.fields), values)


def _common_fields(point: HookPoint, hook_environment: HookEnvironment, cwd: str, values: HookValues) -> Payload:
    payload: Payload = {
        "session_id": hook_environment.session_id or "",
        "transcript_path": str(hook_environment.transcript_path or ""),
        "cwd": cwd,
    }
    if hook_environment.prompt_id is not None:
        payload["prompt_id"] = hook_environment.prompt_id
    if point not in _WITHOUT_PERMISSION_MODE:
        payload["permission_mode"] = hook_environment.permission_mode()
    if hook_environment.agent_id is not None:
        payload |= {"agent_id": hook_environment.agent_id, "agent_type": hook_environment.agent_type or ""}
    effort = hook_environment.effort or values.effort
    if effort is not None and point not in _WITHOUT_EFFORT:
        payload["effort"] = {"level": effort}
    payload["hook_event_name"] = point
    return _drop_unsupported(payload, values)


def _drop_unsupported(payload: Payload, values: HookValues) -> Payload:
    return {key: value for key, value in payload.items() if key not in values.omitted_fields}


def _call_payload(span: Span) -> Mapping[str, object]:
    return {
        "tool_name": span.tool,
        "tool_input": dict(span.call.arguments),
        "tool_use_id": span.id,
        "tool_response": span.result.content if span.result else None,
    }
