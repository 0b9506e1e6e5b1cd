"""Types for the results of Codex tools, and functions that convert inputs and outputs to types."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from toolspan.formats.codex import inputs
from toolspan.formats.codex.calls import parse_output
from toolspan.formats.codex.records import ABSENT, RolloutItem
from toolspan.formats.decoding import decode_input, extract_text, unknown_input_keys
from toolspan.types.inputs import McpInput, ToolInput, decode_json, decode_json_or_text
from toolspan.types.results import CommandResult, PatchedFile, PatchResult, ToolResult
from toolspan.types.tool_kinds import tool_kind


class McpResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The result of an MCP tool."""

    content: tuple[dict[str, object], ...] = ()
    structured: object = None
    is_error: bool | None = None
    error: str | None = None
    """The reason why the server could not be called."""


class OtherResult(ToolResult, frozen=True, kw_only=True, rename=None):
    """The output of another tool."""

    data: bytes

    def json(self) -> object:
        """Return the decoded value, or the text if it is not JSON."""
        return decode_json_or_text(self.data)


_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

_INPUT_TYPES: dict[str, type[ToolInput]] = {
    "apply_patch": inputs.ApplyPatchInput,
    "close_agent": inputs.AgentInput,
    "container.exec": inputs.ShellInput,
    "create_goal": inputs.GoalInput,
    "exec": inputs.ScriptInput,
    "exec_command": inputs.ExecCommandInput,
    "get_goal": inputs.GoalInput,
    "interrupt_agent": inputs.AgentInput,
    "js_repl": inputs.ScriptInput,
    "list_mcp_resource_templates": inputs.McpResourceInput,
    "list_mcp_resources": inputs.McpResourceInput,
    "local_shell": inputs.ShellInput,
    "read_mcp_resource": inputs.McpResourceInput,
    "request_user_input": inputs.RequestUserInputInput,
    "resume_agent": inputs.AgentInput,
    "send_input": inputs.AgentInput,
    "send_message": inputs.AgentInput,
    "shell": inputs.ShellInput,
    "shell_command": inputs.ShellInput,
    "spawn_agent": inputs.SpawnAgentInput,
    "tool_search": inputs.FindToolsInput,
    "update_goal": inputs.GoalInput,
    "update_plan": inputs.UpdatePlanInput,
    "view_image": inputs.ViewImageInput,
    "wait": inputs.AgentInput,
    "wait_agent": inputs.AgentInput,
    "web_search": inputs.WebActionInput,
    "write_stdin": inputs.WriteStdinInput,
}


def narrow_input(tool: str, data: bytes) -> ToolInput:
    """Return a call's input as its tool's type, or `UnknownInput` if it does not match."""
    if tool not in _INPUT_TYPES and tool_kind(tool) == "mcp":
        server, _, name = tool.removeprefix("mcp__").partition("__")
        with suppress(ValueError):
            arguments = decode_json(data)
            if isinstance(arguments, dict):
                return McpInput(server=server, tool=name, arguments=arguments)
    return decode_input(_INPUT_TYPES.get(tool), data)


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """Return the keys of an input for which its tool's type has no field."""
    return unknown_input_keys(_INPUT_TYPES.get(tool), data)


def narrow_result(tool: str, output: Raw, event: RolloutItem | None) -> ToolResult:
    """Return a call's result, built from its output and its end event."""
    kind = tool_kind(tool)
    try:
        if kind in ("shell", "edit"):
            return _command_or_patch_result(output, event, is_patch=kind == "edit")
        if kind != "mcp":
            return OtherResult(data=bytes(output))
        if event is None:
            return McpResult(content=_content_blocks(decode_json_or_text(bytes(output))))
        if event.done is not None:
            error = _decode_mapping(event.done.error).get("message")
            payload = _decode_mapping(event.done.result)
            return _build_mcp_result(payload, error=error, failed=event.done.status == "failed")
        reply = _decode_mapping(event.result)
        payload = reply["Ok"] if isinstance(reply.get("Ok"), dict) else {}
        return _build_mcp_result(payload, error=reply.get("Err"), failed=False)
    except _DECODE_ERRORS:
        return OtherResult(data=bytes(output))


def _command_or_patch_result(output: Raw, event: RolloutItem | None, *, is_patch: bool) -> CommandResult | PatchResult:
    parsed = parse_output(output)
    text, code = parsed.text or _output_body(output), parsed.exit_code
    done = event.done if event else None
    if not is_patch:
        if code is None and event is not None:
            code = event.exit_code if done is None else done.exit_code
        return CommandResult(output=text, exit_code=code, wall_ms=parsed.wall_ms, process=parsed.running)
    success = event.success if event else None
    if success is None and done is not None:
        success = done.status == "completed"
    changes: dict[str, PatchedFile] = {}
    with suppress(*_DECODE_ERRORS):
        reported = done or event
        recorded = _decode_mapping(reported.changes if reported else ABSENT)
        for path, change in recorded.items():
            if isinstance(change, dict) and "type" not in change and len(change) == 1:
                ((kind, inner),) = change.items()  # the oldest form: `{"add": {"content": …}}`
                recorded[path] = {"type": kind, **(inner if isinstance(inner, dict) else {})}
        changes = msgspec.convert(recorded, dict[str, PatchedFile])
    return PatchResult(output=text, exit_code=code, success=success, changes=changes)


def _output_body(output: Raw) -> str:
    """Return the text below the client's header, which `parse_output` omits for successful commands."""
    text = extract_text(output)
    head, mark, rest = text.partition("Output:\n")
    return rest if mark and len(head) < _MAX_HEADER_LENGTH else text


_MAX_HEADER_LENGTH = 400


def _decode_mapping(raw: Raw) -> dict[str, Any]:
    decoded = decode_json(bytes(raw)) if raw else None
    return decoded if isinstance(decoded, dict) else {}


def _build_mcp_result(payload: dict[str, Any], *, error: object, failed: bool) -> McpResult:
    flag = payload.get("isError", payload.get("is_error"))
    return McpResult(
        content=_content_blocks(payload.get("content")),
        structured=payload.get("structuredContent", payload.get("structured_content")),
        is_error=True if failed else flag if isinstance(flag, bool) else None,
        error=error if isinstance(error, str) else None,
    )


def _content_blocks(content: object) -> tuple[dict[str, object], ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return tuple(block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()
