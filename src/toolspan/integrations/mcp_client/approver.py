"""Approval by an MCP tool: `--permission-prompt-tool mcp__server__tool`.

The tool receives `{tool_name, input, tool_use_id}` and returns one text: `{"behavior": "allow", "updatedInput":
{...}}` or `{"behavior": "deny", "message": "..."}`. Any failure is a denial.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from toolspan.errors import NotFound, ToolError
from toolspan.integrations.mcp_client.protocol import McpError
from toolspan.integrations.mcp_client.results import error_text
from toolspan.integrations.mcp_client.server import McpCall, McpServer
from toolspan.integrations.mcp_client.servers import McpServers
from toolspan.integrations.mcp_client.tools import prepare_arguments, to_tool_failure
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.runtime.profiles import McpValues, Profile
from toolspan.runtime.schema.check import type_name
from toolspan.runtime.schema.issues import Issue, issue_json
from toolspan.types.decision import Allow, Ask, Deny


def prompt_tool_approver(servers: McpServers, name: str, profile: Profile, *, timeout: float | None = None) -> Approver:
    """Return an approver that calls this tool; `timeout` (seconds) overrides that of the profile.

    Raises:
        NotFound: no connected server has the tool.
    """
    entry = servers.find(name)
    if entry is None:
        names = ", ".join(tool for tool in servers.tools().names if tool.startswith("mcp__"))
        raise NotFound(f"No MCP tool is called {name!r}; available tools: {names or 'none'}")
    server, tool = entry
    seconds = timeout or profile.mcp.approval_timeout

    async def approve(permission_request: PermissionRequest, _ask: Ask) -> Allow | Deny:
        call = McpCall(
            tool=tool,
            arguments={
                "tool_name": permission_request.tool,
                "input": prepare_arguments(permission_request.input),
                "tool_use_id": permission_request.call.id,
            },
            call_id=permission_request.call.id,
            progress=lambda _done, _total, _message: None,
            timeout=seconds,
        )
        try:
            answer = await server.call_tool(call)
        except McpError as error:
            raise ToolError(_error_message(error, server, tool, profile, seconds)) from error
        return _parse_decision(answer, profile)

    return approve


def _error_message(error: McpError, server: McpServer, tool: str, profile: Profile, seconds: float | None) -> str:
    values = profile.mcp
    if error.kind == "timeout" and values.approval_timed_out and seconds is not None:
        return values.approval_timed_out.format(duration=_format_duration(seconds))
    if error.kind in ("closed", "not_connected") and values.approval_unanswered:
        return values.approval_unanswered if error.code is not None else error.message
    return to_tool_failure(error, server, tool, values).text


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _parse_decision(answer: Mapping[str, object], profile: Profile) -> Allow | Deny:
    content = answer.get("content")
    blocks = [item for item in content if isinstance(item, Mapping)] if isinstance(content, list) else []
    if answer.get("isError") is True:
        raise ToolError(error_text(blocks, profile.mcp) or "the permission tool failed")
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    response = _parse_json(texts[0] if texts else "")
    values = profile.mcp
    issue = _response_issue(response, values, profile.issues.validator == "zod 3")
    if issue is not None or not isinstance(response, Mapping):
        if values.approval_invalid is not None:
            return Deny(values.approval_invalid, "config")
        raise ToolError(issue_json([issue] if issue else [], profile.issues))
    if response["behavior"] == "allow":
        new_input = response.get("updatedInput")
        return Allow(None, "user_temporary", new_input if isinstance(new_input, Mapping) else None)
    return _parse_denial(response, values)


def _parse_denial(response: Mapping[str, object], values: McpValues) -> Deny:
    stop = response.get("interrupt") is True
    if stop and values.approval_interrupts:
        return Deny(None, "user_reject", stop)
    return Deny(str(response["message"]), "config", stop)


def _parse_json(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None


def _response_issue(response: object, values: McpValues, old: bool) -> Issue | None:  # noqa: FBT001
    """Return the problem of an invalid response, or None if it is valid."""
    if not isinstance(response, Mapping):
        wrong = Issue("type", (), "", "object", type_name(response))
        return _union_issue((wrong,), (wrong,))
    record = "object" if old else "record"
    allow = _literal_issues(response, "allow")
    new_input = response.get("updatedInput")
    if not isinstance(new_input, Mapping) and (new_input is not None or values.approval_requires_input):
        received_type = type_name(new_input) if "updatedInput" in response else "undefined"
        allow += (Issue("type", ("updatedInput",), "", record, received_type),)
    deny = _literal_issues(response, "deny")
    if not isinstance(response.get("message"), str):
        received_type = type_name(response["message"]) if "message" in response else "undefined"
        deny += (Issue("type", ("message",), "", "string", received_type),)
    return _union_issue(allow, deny) if allow and deny else None


def _union_issue(allow: tuple[Issue, ...], deny: tuple[Issue, ...]) -> Issue:
    return Issue("union", (), "Invalid input", detail={"branches": (allow, deny)})


def _literal_issues(response: Mapping[str, object], literal: str) -> tuple[Issue, ...]:
    if response.get("behavior") == literal:
        return ()
    detail = {"values": (literal,), "value": response.get("behavior"), "literal": True}
    return (Issue("value", ("behavior",), "", received=type_name(response.get("behavior")), detail=detail),)
