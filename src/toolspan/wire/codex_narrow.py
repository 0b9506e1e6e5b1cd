"""From the bytes of a Codex input or output to the type of its tool.

In: a tool's name, JSON bytes, the event of the call's end where there is one. Out: a struct of
`model/codex_inputs.py` or `codex_results.py`. What does not fit comes back as `UnknownInput` or
`OtherResult` with its bytes. Nothing here raises. Which tool has which type is in the table.
"""

from typing import Any

import msgspec
from msgspec import Raw

from toolspan.model import codex_inputs as inputs
from toolspan.model.inputs import McpInput, ToolInput, UnknownInput, decode_anything, decode_json
from toolspan.model.toolkind import tool_kind
from toolspan.wire.codex import NOTHING, Item
from toolspan.wire.codex_output import said
from toolspan.wire.codex_results import (
    CodexResult,
    CommandResult,
    FileChange,
    McpResult,
    OtherResult,
    PatchResult,
)
from toolspan.wire.views import text_of

_UNFIT = (msgspec.MsgspecError, ValueError, RecursionError)

_INPUTS: dict[str, type[ToolInput]] = {
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
    """A call's input as its tool's type; `UnknownInput` where that is not possible."""
    kind = _INPUTS.get(tool)
    try:
        if kind is not None:
            return msgspec.json.decode(data, type=kind, strict=False)
        if tool_kind(tool) == "mcp":
            return _mcp_input(tool, data)
    except _UNFIT:
        pass
    return UnknownInput(data=data)


def _mcp_input(tool: str, data: bytes) -> McpInput:
    server, _, name = tool.removeprefix("mcp__").partition("__")
    found = decode_json(data)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return McpInput(server=server, tool=name, arguments=found)


def input_drift(tool: str, data: bytes) -> tuple[str, ...]:
    """Keys of an input that its tool's type does not know."""
    kind = _INPUTS.get(tool)
    found = decode_anything(data)
    if kind is None or not isinstance(found, dict):
        return ()
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    return tuple(str(key) for key in found if key not in known)


def narrow_result(tool: str, output: Raw, event: Item | None) -> CodexResult:
    """What a call gave back, from its output and the event of its end."""
    try:
        return _result(tool, output, event)
    except _UNFIT:
        return OtherResult(data=bytes(output))


def _result(tool: str, output: Raw, event: Item | None) -> CodexResult:
    match tool_kind(tool):
        case "shell":
            return _command(output, event)
        case "edit":
            return _patch(output, event)
        case "mcp":
            return _mcp(output, event)
        case _:
            return OtherResult(data=bytes(output))


def _command(output: Raw, event: Item | None) -> CommandResult:
    found = said(output)
    text = found.text or _body(output)
    code = found.exit_code
    if code is None and event is not None:
        code = event.exit_code if event.done is None else event.done.exit_code
    return CommandResult(output=text, exit_code=code, wall_ms=found.wall_ms, process=found.running)


def _body(output: Raw) -> str:
    """The text under the client's header, which `said` leaves out when all went well."""
    text = text_of(output)
    head, mark, rest = text.partition("Output:\n")
    return rest if mark and len(head) < _HEADER else text


_HEADER = 400


def _patch(output: Raw, event: Item | None) -> PatchResult:
    found = said(output)
    changes = NOTHING
    success = None
    if event is not None:
        changes = event.changes if event.done is None else event.done.changes
        success = event.success
        if success is None and event.done is not None:
            success = event.done.status == "completed"
    return PatchResult(
        output=found.text or _body(output),
        exit_code=found.exit_code,
        success=success,
        changes=_changes(changes),
    )


def _changes(raw: Raw) -> dict[str, FileChange]:
    if raw == NOTHING:
        return {}
    try:
        return {path: _change(change) for path, change in _object(raw).items()}
    except _UNFIT:
        return {}


def _change(found: Any) -> FileChange:
    """One change; the oldest form has its sort as a key: `{"add": {"content": …}}`."""
    if isinstance(found, dict) and "type" not in found and len(found) == 1:
        ((kind, inner),) = found.items()
        found = {"type": kind, **(inner if isinstance(inner, dict) else {})}
    return msgspec.convert(found, FileChange)


def _object(raw: Raw) -> dict[str, Any]:
    found = decode_json(bytes(raw))
    return found if isinstance(found, dict) else {}


def _mcp(output: Raw, event: Item | None) -> McpResult:
    if event is None:
        return McpResult(content=_blocks(decode_anything(bytes(output))))
    inner = event.done
    if inner is not None:
        failed = inner.status == "failed"
        told = _object(inner.result) if inner.result else {}
        error = _object(inner.error).get("message") if inner.error else None
        return _served(told, error=error, failed=failed)
    told = _object(event.result) if event.result else {}
    ok = told.get("Ok")
    return _served(ok if isinstance(ok, dict) else {}, error=told.get("Err"), failed=False)


def _served(told: dict[str, Any], *, error: object, failed: bool) -> McpResult:
    flag = told.get("isError", told.get("is_error"))
    return McpResult(
        content=_blocks(told.get("content")),
        structured=told.get("structuredContent", told.get("structured_content")),
        is_error=True if failed else flag if isinstance(flag, bool) else None,
        error=error if isinstance(error, str) else None,
    )


def _blocks(found: object) -> tuple[dict[str, object], ...]:
    if isinstance(found, str):
        return ({"type": "text", "text": found},)
    return (
        tuple(block for block in found if isinstance(block, dict))
        if isinstance(found, list)
        else ()
    )
