"""The events in a Copilot CLI session, with those of its subagents. Start at `Parser.parse`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolspan.formats.json_repair import decode_readable
from toolspan.formats.pairing import StateInference
from toolspan.formats.record_parser import (
    ErrorTexts,
    Fields,
    Recorded,
    RecordedAgent,
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordedStart,
    RecordedStop,
    RecordParser,
    ToolShape,
    count_of,
    ended,
    failed,
    int_of,
    object_of,
    objects_of,
    text_of,
    time_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import MessageAuthor, Tokens
from toolspan.types.span import Evidence

_FILE = {"path": "file_path"}
TOOLS = {
    "bash": ToolShape(inputs.BashInput),
    "view": ToolShape(inputs.ReadInput, _FILE),
    "create": ToolShape(inputs.WriteInput, _FILE | {"file_text": "content"}),
    "edit": ToolShape(inputs.EditInput, _FILE | {"old_str": "old_string", "new_str": "new_string"}),
    "grep": ToolShape(inputs.GrepInput),
    "glob": ToolShape(inputs.GlobInput),
    "task": ToolShape(inputs.AgentInput, {"agent_type": "subagent_type"}),
    "web_fetch": ToolShape(inputs.WebFetchInput),
    "web_search": ToolShape(inputs.WebSearchInput),
}
_BY_HOOK = re.compile(r"\ADenied by (?:preToolUse|permissionRequest) hook")
_UNATTENDED = re.compile(r"no interactive user response was available|could-not-request-from-user")
_ERRORS: ErrorTexts = (
    ("unknown_tool", re.compile(r"\ATool '[^']*' does not exist")),
    ("invalid_input", re.compile(r'\bin JSON at position \d+|\A"\w+": (?:Required|Expected|Invalid)')),
    ("not_found", re.compile(r"\APath does not exist")),
    ("no_match", re.compile(r"\ANo match found")),
    ("ambiguous_match", re.compile(r"\AMultiple matches found")),
    ("mcp_error", re.compile(r"\AMCP server '")),
)


class Parser(RecordParser):
    """Parser for the events of one session."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._agents: dict[str, str] = {}
        """Subagents by the call that started them."""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of an event."""
        data, at = object_of(record, "data"), time_of(record, "timestamp")
        agent, kind = text_of(record, "agentId"), text_of(record, "type") or ""
        starter = text_of(data, "parentToolCallId")
        if agent and starter and starter not in self._agents:
            self._agents[starter] = agent
            yield RecordedAgent(call=starter, agent_id=agent)
        match kind:
            case "assistant.message":
                yield from self._parse_reply(data, agent, starter, at)
            case "tool.execution_start" if call := text_of(data, "toolCallId"):
                self._tools[call] = text_of(data, "toolName") or ""
                yield RecordedStart(call, "event tool.execution_start")
            case "tool.execution_complete" if call := text_of(data, "toolCallId"):
                yield self._make_result(data, call, at)
            case "user.message":
                yield RecordedMessage(
                    voice="injected" if agent else "prompt",
                    text=text_of(data, "content") or "",
                    at=at,
                    id=text_of(data, "messageId"),
                    agent_id=agent,
                )
            case "session.usage_record":
                yield _make_request(object_of(data, "usage"), text_of(record, "id") or "", agent, at)
            case "abort":
                reason = text_of(data, "reason") or "aborted"
                yield RecordedStop(outcome=ended("interrupted", "interrupted", "abort", reason))
                yield RecordedMessage(voice="interrupt", text=reason, at=at)
            case _ if kind.startswith("session."):
                yield from self._parse_session_event(kind, data, at)
            case _:
                yield from self._parse_call_event(kind, data, at)

    def _parse_session_event(self, kind: str, data: Fields, at: str | None) -> Iterator[Recorded]:
        match kind:
            case "session.start" | "session.resume":
                yield RecordedSession(
                    id=text_of(data, "sessionId"),
                    version=text_of(data, "copilotVersion"),
                    cwd=text_of(data, "context", "cwd"),
                    git_branch=text_of(data, "context", "branch"),
                    started_at=time_of(data, "startTime") or at,
                )
            case "session.title_changed":
                yield RecordedSession(title=text_of(data, "title"))
            case "session.error" | "session.warning":
                voice: MessageAuthor = "error" if kind.endswith("error") else "system"
                yield RecordedMessage(voice=voice, text=text_of(data, "message") or "", at=at)
            case "session.compaction_complete":
                yield RecordedCompaction()
                yield RecordedMessage(voice="summary", text=text_of(data, "summaryContent") or "", at=at)
            case _:
                pass

    def _parse_call_event(self, kind: str, data: Fields, at: str | None) -> Iterator[Recorded]:
        """Yield the content of an event about permission, a hook or a subagent."""
        call = text_of(data, "toolCallId") or text_of(data, "permissionRequest", "toolCallId")
        match kind:
            case "permission.requested" if call:
                yield RecordedEvent(id=call, kind="permission", values={"decision": "ask"})
            case "permission.completed" if call:
                values = {
                    "decision": text_of(data, "result", "kind") or "",
                    "source": text_of(data, "decisionSource"),
                }
                yield RecordedEvent(id=call, kind="permission", values=values)
            case "subagent.started" if call:
                agent = text_of(data, "agentId") or self._agents.get(call)
                if agent:
                    yield RecordedAgent(call=call, agent_id=agent, role=text_of(data, "agentName"))
            case "hook.end":
                for name, output in object_of(data, "output").items():
                    values = {
                        "point": "PreToolUse",
                        "name": text_of(data, "hookType") or "hook",
                        "outcome": "blocked" if _BY_HOOK.match(str(output)) else "success",
                        "text": str(output) if isinstance(output, str) else None,
                        "at": at,
                    }
                    yield RecordedEvent(id=name, kind="hook", values=values)
            case _:
                pass

    def _parse_reply(self, data: Fields, agent: str | None, starter: str | None, at: str | None) -> Iterator[Recorded]:
        if thinking := text_of(data, "reasoningText"):
            yield RecordedMessage(voice="thinking", text=thinking, at=at, agent_id=agent)
        yield RecordedMessage(voice="text", text=text_of(data, "content") or "", at=at, agent_id=agent)
        for n, request in enumerate(objects_of(data, "toolRequests")):
            arguments = request.get("arguments")
            if isinstance(arguments, str):
                arguments = decode_readable(arguments.encode("utf-8", "replace"))
            call = text_of(request, "toolCallId") or f"byte-{self.offset}.{n}"
            self._tools[call] = text_of(request, "name") or ""
            yield RecordedCall(
                id=call,
                tool=self._tools[call],
                arguments=arguments,
                at=at,
                batch=text_of(data, "messageId"),
                agent_id=agent,
                parent_call=starter,
            )

    def _make_result(self, data: Fields, call: str, at: str | None) -> RecordedResult:
        tool = self._tools.get(call, "")
        has_succeeded = data.get("success") is True
        text = text_of(data, "result", "content") if has_succeeded else text_of(data, "error", "message")
        return RecordedResult(
            id=call,
            content=text or "",
            at=at,
            is_error=not has_succeeded,
            exit_code=int_of(data, "shellExecution", "exitCode"),
            outcome=None if has_succeeded else _infer_outcome(tool, text or "", text_of(data, "error", "code")),
            structured=value_of(data, "result", "structuredContent"),
            denial_kind=code if (code := text_of(data, "error", "code")) in ("denied", "rejected") else None,
        )


def _make_request(usage: Fields, name: str, agent: str | None, at: str | None) -> RecordedRequest:
    cached = count_of(usage, "cacheReadTokens")
    written = count_of(usage, "cacheWriteTokens")
    return RecordedRequest(
        id=text_of(usage, "apiCallId") or name,
        at=at,
        model=text_of(usage, "model"),
        agent_id=agent,
        tokens=Tokens(
            input_tokens=max(count_of(usage, "inputTokens") - cached - written, 0),
            output_tokens=count_of(usage, "outputTokens"),
            cache_read_input_tokens=cached,
            cache_creation_input_tokens=written,
        ),
    )


def _infer_outcome(tool: str, text: str, code: str | None) -> StateInference:
    """Return the state that the client's code and text of an error show."""
    match code:
        case "rejected":
            return ended("denied", "user_denied", "code", code)
        case "denied" if _BY_HOOK.match(text):
            return ended("blocked_by_hook", "hook_blocked", "code", code)
        case "denied":
            kind: ErrorKind = "not_granted" if _UNATTENDED.search(text) else "rule_denied"
            return ended("denied", kind, "code", code)
        case "interrupted":  # written when the session was resumed, because there was no result
            evidence = (Evidence("code", code),)
            return StateInference(state="never_answered", evidence=evidence, synthetic=True)
        case _:
            return failed(_ERRORS, tool, text, code or "error")
