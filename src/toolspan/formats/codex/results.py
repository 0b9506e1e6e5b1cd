"""Types for the results of Codex tools, and functions that convert inputs and outputs to types."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolspan.formats.codex import inputs
from toolspan.formats.codex.calls import parse_output
from toolspan.formats.codex.records import ABSENT, RolloutItem
from toolspan.formats.decoding import extract_text
from toolspan.types.inputs import McpInput, ToolInput, UnknownInput, decode_json, decode_json_or_text
from toolspan.types.tool_kinds import tool_kind


class CodexResult(Struct, frozen=True, kw_only=True):
    """The result of one call."""


class CommandResult(CodexResult, frozen=True, kw_only=True):
    """The output of a command that has exited or is still running."""

    output: str = ""
    exit_code: int | None = None
    wall_ms: float | None = None
    process: str | None = None
    """The number of a process that is still running."""


class PatchedFile(Struct, frozen=True, kw_only=True):
    """The change to one file."""

    type: str = ""
    """add, update or delete."""
    content: str | None = None
    unified_diff: str | None = None
    move_path: str | None = None


class PatchResult(CodexResult, frozen=True, kw_only=True):
    """The result of a patch."""

    output: str = ""
    exit_code: int | None = None
    success: bool | None = None
    changes: dict[str, PatchedFile] = {}
    """The changes by path; empty if only the output text describes them."""


class McpResult(CodexResult, frozen=True, kw_only=True):
    """The result of an MCP tool."""

    content: tuple[dict[str, object], ...] = ()
    structured: object = None
    is_error: bool | None = None
    error: str | None = None
    """The reason why the server could not be called."""


class OtherResult(CodexResult, frozen=True, kw_only=True):
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
    kind = _INPUT_TYPES.get(tool)
    try:
        if kind is not None:
            return msgspec.json.decode(data, type=kind, strict=False)
        if tool_kind(tool) == "mcp":
            return _mcp_input(tool, data)
    except _DECODE_ERRORS:
        pass
    return UnknownInput(data=data)


def _mcp_input(tool: str, data: bytes) -> McpInput:
    server, _, name = tool.removeprefix("mcp__").partition("__")
    arguments = decode_json(data)
    if not isinstance(arguments, dict):
        raise ValueError("not a JSON object")
    return McpInput(server=server, tool=name, arguments=arguments)


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """Return the keys of an input for which its tool's type has no field."""
    kind = _INPUT_TYPES.get(tool)
    decoded = decode_json_or_text(data)
    if kind is None or not isinstance(decoded, dict):
        return ()
    known_keys = {field.encode_name for field in msgspec.structs.fields(kind)}
    return tuple(str(key) for key in decoded if key not in known_keys)


def narrow_result(tool: str, output: Raw, event: RolloutItem | None) -> CodexResult:
    """Return a call's result, built from its output and its end event."""
    try:
        return _narrow_by_kind(tool, output, event)
    except _DECODE_ERRORS:
        return OtherResult(data=bytes(output))


def _narrow_by_kind(tool: str, output: Raw, event: RolloutItem | None) -> CodexResult:
    match tool_kind(tool):
        case "shell":
            return _command_result(output, event)
        case "edit":
            return _patch_result(output, event)
        case "mcp":
            return _mcp_result(output, event)
        case _:
            return OtherResult(data=bytes(output))


def _command_result(output: Raw, event: RolloutItem | None) -> CommandResult:
    parsed = parse_output(output)
    text = parsed.text or _output_body(output)
    code = parsed.exit_code
    if code is None and event is not None:
        code = event.exit_code if event.done is None else event.done.exit_code
    return CommandResult(output=text, exit_code=code, wall_ms=parsed.wall_ms, process=parsed.running)


def _output_body(output: Raw) -> str:
    """Return the text below the client's header, which `parse_output` leaves out for successful commands."""
    text = extract_text(output)
    head, mark, rest = text.partition("Output:\n")
    return rest if mark and len(head) < _MAX_HEADER_LENGTH else text


_MAX_HEADER_LENGTH = 400


def _patch_result(output: Raw, event: RolloutItem | None) -> PatchResult:
    parsed = parse_output(output)
    changes = ABSENT
    success = None
    if event is not None:
        changes = event.changes if event.done is None else event.done.changes
        success = event.success
        if success is None and event.done is not None:
            success = event.done.status == "completed"
    return PatchResult(
        output=parsed.text or _output_body(output),
        exit_code=parsed.exit_code,
        success=success,
        changes=_file_changes(changes),
    )


def _file_changes(raw: Raw) -> dict[str, PatchedFile]:
    if raw == ABSENT:
        return {}
    try:
        return {path: _file_change(change) for path, change in _decode_mapping(raw).items()}
    except _DECODE_ERRORS:
        return {}


def _file_change(change: Any) -> PatchedFile:
    """Parse one change, including the oldest form, whose key is the type: `{"add": {"content": …}}`."""
    if isinstance(change, dict) and "type" not in change and len(change) == 1:
        ((kind, inner),) = change.items()
        change = {"type": kind, **(inner if isinstance(inner, dict) else {})}
    return msgspec.convert(change, PatchedFile)


def _decode_mapping(raw: Raw) -> dict[str, Any]:
    decoded = decode_json(bytes(raw))
    return decoded if isinstance(decoded, dict) else {}


def _mcp_result(output: Raw, event: RolloutItem | None) -> McpResult:
    if event is None:
        return McpResult(content=_content_blocks(decode_json_or_text(bytes(output))))
    inner = event.done
    if inner is not None:
        failed = inner.status == "failed"
        payload = _decode_mapping(inner.result) if inner.result else {}
        error = _decode_mapping(inner.error).get("message") if inner.error else None
        return _build_mcp_result(payload, error=error, failed=failed)
    payload = _decode_mapping(event.result) if event.result else {}
    ok = payload.get("Ok")
    return _build_mcp_result(ok if isinstance(ok, dict) else {}, error=payload.get("Err"), failed=False)


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
