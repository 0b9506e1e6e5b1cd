"""Consent by an MCP tool: `--permission-prompt-tool mcp__server__tool`.

In: a call that nobody has decided on. Out: the tool's answer as `Allow` or `Deny`; a question that
could not be asked or was not understood is no consent. The tool gets `{tool_name, input,
tool_use_id}` and answers with one text: `{"behavior": "allow", "updatedInput": {...}}` or
`{"behavior": "deny", "message": "..."}`.
"""

import json
from collections.abc import Mapping

from toolspan.errors import NotFound, ToolError
from toolspan.mcp.client import McpServers
from toolspan.mcp.fault import Fault
from toolspan.mcp.results import error_text
from toolspan.mcp.server import Asked, Server
from toolspan.mcp.tools import as_sent, failure
from toolspan.model.decision import Allow, Ask, Deny
from toolspan.permission.decide import Approver, Question
from toolspan.profile import McpValues, Profile
from toolspan.schema.check import type_name
from toolspan.schema.issue import Issue
from toolspan.schema.zod import issue_json


def prompt_tool_approver(
    servers: McpServers, name: str, profile: Profile, *, timeout: float | None = None
) -> Approver:
    """An approver that asks this tool; `timeout` in seconds, else the client version's.

    Raises:
        NotFound: no connected server has such a tool.
    """
    found = servers.find(name)
    if found is None:
        known = ", ".join(tool for tool in servers.tools().names if tool.startswith("mcp__"))
        raise NotFound(f"No MCP tool is called {name!r}; there are: {known or 'none'}")
    server, tool = found
    seconds = timeout or profile.mcp.consent_timeout

    async def approve(question: Question, _ask: Ask) -> Allow | Deny:
        asked = Asked(
            tool=tool,
            arguments={
                "tool_name": question.tool,
                "input": as_sent(question.input),
                "tool_use_id": question.call.id,
            },
            call_id=question.call.id,
            progress=lambda _done, _total, _message: None,
            timeout=seconds,
        )
        try:
            answer = await server.call(asked)
        except Fault as fault:
            raise ToolError(_fault_words(fault, server, tool, profile, seconds)) from fault
        return _decision(answer, profile)

    return approve


def _fault_words(
    fault: Fault, server: Server, tool: str, profile: Profile, seconds: float | None
) -> str:
    values = profile.mcp
    if fault.kind == "timeout" and values.consent_timed_out and seconds is not None:
        return values.consent_timed_out.format(duration=_duration(seconds))
    if fault.kind in ("closed", "not_connected") and values.consent_unanswered:
        return values.consent_unanswered if fault.code is not None else fault.message
    return failure(fault, server, tool, values).text


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _decision(answer: Mapping[str, object], profile: Profile) -> Allow | Deny:
    content = answer.get("content")
    blocks = (
        [one for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []
    )
    if answer.get("isError") is True:
        raise ToolError(error_text(blocks, profile.mcp) or "the permission tool failed")
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    said = _json(texts[0] if texts else "")
    values = profile.mcp
    faults = _faults(said, values, profile.issues.validator == "zod 3")
    if faults is not None or not isinstance(said, Mapping):
        if values.consent_invalid is not None:
            return Deny(values.consent_invalid, "config")
        raise ToolError(issue_json([faults] if faults else [], profile.issues))
    if said["behavior"] == "allow":
        given = said.get("updatedInput")
        return Allow(None, "user_temporary", given if isinstance(given, Mapping) else None)
    return _refusal(said, values)


def _refusal(said: Mapping[str, object], values: McpValues) -> Deny:
    stop = said.get("interrupt") is True
    if stop and values.consent_interrupts:
        return Deny(None, "user_reject", stop)
    return Deny(str(said["message"]), "config", stop)


def _json(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None


def _faults(said: object, values: McpValues, old: bool) -> Issue | None:  # noqa: FBT001
    """What keeps an answer from being one; None when nothing does."""
    if not isinstance(said, Mapping):
        wrong = Issue("type", (), "", "object", type_name(said))
        return _neither((wrong,), (wrong,))
    record = "object" if old else "record"
    allow = _literal(said, "allow")
    given = said.get("updatedInput")
    if not isinstance(given, Mapping) and (given is not None or values.consent_needs_input):
        came = type_name(given) if "updatedInput" in said else "undefined"
        allow += (Issue("type", ("updatedInput",), "", record, came),)
    deny = _literal(said, "deny")
    if not isinstance(said.get("message"), str):
        came = type_name(said["message"]) if "message" in said else "undefined"
        deny += (Issue("type", ("message",), "", "string", came),)
    return _neither(allow, deny) if allow and deny else None


def _neither(allow: tuple[Issue, ...], deny: tuple[Issue, ...]) -> Issue:
    return Issue("union", (), "Invalid input", detail={"branches": (allow, deny)})


def _literal(said: Mapping[str, object], word: str) -> tuple[Issue, ...]:
    if said.get("behavior") == word:
        return ()
    detail = {"values": (word,), "value": said.get("behavior"), "literal": True}
    return (
        Issue("value", ("behavior",), "", received=type_name(said.get("behavior")), detail=detail),
    )
