"""The records of a Qwen Code chat. Start at `Parser.parse`.

The client's own telemetry repeats each call and request, and those of subagents. Only the time and the status of calls
are taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolspan.formats.pairing import StateInference
from toolspan.formats.record_parser import (
    ErrorTexts,
    Fields,
    Recorded,
    RecordedAgent,
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedLink,
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordedStop,
    RecordParser,
    ToolShape,
    count_of,
    ended,
    failed,
    int_of,
    number_of,
    object_of,
    objects_of,
    text_of,
    time_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import MessageAuthor, Tokens

TOOLS = {
    "run_shell_command": ToolShape(inputs.BashInput, {"is_background": "run_in_background"}),
    "read_file": ToolShape(inputs.ReadInput, {"absolute_path": "file_path"}),
    "write_file": ToolShape(inputs.WriteInput),
    "edit": ToolShape(inputs.EditInput),
    "glob": ToolShape(inputs.GlobInput),
    "grep_search": ToolShape(inputs.GrepInput),
    "list_directory": ToolShape(inputs.LsInput),
    "agent": ToolShape(inputs.AgentInput),
    "task": ToolShape(inputs.AgentInput),
    "todo_write": ToolShape(inputs.TodoWriteInput),
    "web_fetch": ToolShape(inputs.WebFetchInput),
    "web_search": ToolShape(inputs.WebSearchInput),
}
_KINDS: dict[str, ErrorKind] = {
    "file_not_found": "not_found",
    "edit_no_occurrence_found": "no_match",
    "edit_expected_occurrence_mismatch": "ambiguous_match",
    "edit_requires_prior_read": "read_required",
    "edit_no_change": "no_change",
    "tool_not_registered": "unknown_tool",
    "invalid_tool_params": "invalid_input",
    "mcp_tool_error": "mcp_error",
    "execution_timeout": "command_timeout",
    "file_too_large": "too_large",
    "permission_denied": "permission_os",
    "target_is_directory": "is_directory",
}
"""Error kinds by the client's own types."""
_DENIAL = re.compile(r"denied by permission rules|that permission was declined|Matching deny rule")
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_TIMED_OUT = re.compile(r"\ACommand timed out after ")
_ERRORS: ErrorTexts = (
    ("unknown_tool", re.compile(r"\ATool \"[^\"]*\" not found")),
    ("invalid_input", re.compile(r"\A(?:params|The '[^']+' parameter) must\b")),
    ("no_match", re.compile(r"0 occurrences found")),
    ("not_found", re.compile(r"\AFile not found")),
    ("mcp_error", re.compile(r"\AMCP tool '")),
)
_TASK = re.compile(
    r"<task-id>(?P<task>[^<]*)</task-id>\s*<tool-use-id>(?P<call>[^<]*)</tool-use-id>\s*<status>(?P<status>[^<]*)"
    r"</status>(?:\s*<summary>(?P<summary>[^<]*)</summary>)?"
)
_BACKGROUND_AGENT = re.compile(r"\ABackground agent launched successfully\.\s+task_id: (\S+)")


class Parser(RecordParser):
    """Parser for the records of one chat."""

    known_types = frozenset({"user", "assistant", "tool_result", "system"})

    def __init__(self) -> None:
        self._ends: dict[str, tuple[str | None, float | None]] = {}
        """The time and duration of calls, which telemetry records when they end; results are written later."""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of a record."""
        name, at = text_of(record, "uuid"), time_of(record, "timestamp")
        yield RecordedSession(
            id=text_of(record, "sessionId"),
            agent_id=text_of(record, "agentId"),
            role=text_of(record, "agentName"),
            cwd=text_of(record, "cwd"),
            version=text_of(record, "version"),
            git_branch=text_of(record, "gitBranch"),
            forked_from=text_of(record, "forkedFrom", "sessionId"),
            started_at=at,
        )
        if name is not None:
            yield RecordedLink(name, text_of(record, "parentUuid"))
        match record.get("type"):
            case "user":
                yield from self._parse_user(record, name, at)
            case "assistant":
                yield from self._parse_reply(record, name, at)
            case "tool_result":
                yield from self._parse_results(record, at)
            case "system":
                yield from self._parse_system(record, at)
            case _:
                pass

    def _parse_user(self, record: Fields, name: str | None, at: str | None) -> Iterator[Recorded]:
        text = "\n".join(filter(None, (text_of(part, "text") for part in objects_of(record, "message", "parts"))))
        subtype = text_of(record, "subtype")
        if subtype == "notification":
            yield RecordedMessage(voice="notification", text=text, at=at)
            if task := _TASK.search(text):
                values = {
                    "task_id": task["task"],
                    "status": task["status"],
                    "summary": task["summary"],
                    "at": at,
                }
                yield RecordedEvent(id=task["call"], kind="notification", values=values)
            return
        is_prompt = subtype is None and record.get("provenance") in (None, "real_user")
        yield RecordedMessage(voice="prompt" if is_prompt else "injected", text=text, at=at, id=name)

    def _parse_reply(self, record: Fields, name: str | None, at: str | None) -> Iterator[Recorded]:
        for n, part in enumerate(objects_of(record, "message", "parts")):
            call = object_of(part, "functionCall")
            if call:
                yield RecordedCall(
                    id=text_of(call, "id") or f"byte-{self.offset}.{n}",
                    tool=text_of(call, "name") or "",
                    arguments=value_of(call, "args"),
                    at=at,
                    batch=name,
                )
            elif text := text_of(part, "text"):
                voice: MessageAuthor = "thinking" if part.get("thought") else "text"
                yield RecordedMessage(voice=voice, text=text, at=at)
        if usage := object_of(record, "usageMetadata"):
            cached = count_of(usage, "cachedContentTokenCount")
            yield RecordedRequest(
                id=name or f"byte-{self.offset}",
                at=at,
                model=text_of(record, "model"),
                tokens=Tokens(
                    input_tokens=max(count_of(usage, "promptTokenCount") - cached, 0),
                    output_tokens=count_of(usage, "candidatesTokenCount"),
                    cache_read_input_tokens=cached,
                ),
            )

    def _parse_results(self, record: Fields, at: str | None) -> Iterator[Recorded]:
        outcome = object_of(record, "toolCallResult")
        for part in objects_of(record, "message", "parts"):
            response = object_of(part, "functionResponse")
            call_id = text_of(response, "id") or text_of(outcome, "callId")
            if response and call_id:
                yield from self._parse_result(response, call_id, outcome, at)

    def _parse_result(self, response: Fields, call_id: str, outcome: Fields, at: str | None) -> Iterator[Recorded]:
        tool = text_of(response, "name") or ""
        error = text_of(response, "response", "error")
        text = error if error is not None else text_of(response, "response", "output") or ""
        display = object_of(outcome, "resultDisplay")
        is_shell = tool == "run_shell_command"
        in_text = _EXIT.search(text) if is_shell else None
        status = text_of(outcome, "status")
        exit_code = int_of(display, "exitCode") if status != "cancelled" else None
        exit_code = int(in_text[1]) if exit_code is None and in_text else exit_code
        background = _BACKGROUND_AGENT.match(text) if tool == "agent" else None
        finished_at, duration_ms = self._ends.get(call_id, (at, None))
        yield RecordedResult(
            id=call_id,
            content=text,
            at=finished_at,
            is_error=None if status is None and error is None else error is not None,
            exit_code=exit_code,
            outcome=_infer_outcome(tool, text, outcome, exit_code, is_error=error is not None),
            structured=outcome.get("resultDisplay") or None,
            truncated=display.get("truncated") is True,
            reported_ms=duration_ms if duration_ms is not None else number_of(outcome, "durationMs"),
            background_task=background[1] if background else None,
            denial_kind=text_of(outcome, "errorType") if outcome.get("errorType") == "execution_denied" else None,
        )
        if background:
            yield RecordedAgent(call=call_id, agent_id=background[1])

    def _parse_system(self, record: Fields, at: str | None) -> Iterator[Recorded]:
        payload = object_of(record, "systemPayload")
        event = object_of(payload, "uiEvent")
        match text_of(record, "subtype"):
            case "ui_telemetry" if event.get("event.name") == "qwen-code.tool_call":
                call_id = text_of(event, "call_id")
                if call_id is not None:
                    self._ends[call_id] = (time_of(event, "event.timestamp") or at, number_of(event, "duration_ms"))
                    if event.get("status") == "cancelled":
                        outcome = ended("interrupted", "interrupted", "telemetry", "cancelled")
                        yield RecordedStop(calls=(call_id,), outcome=outcome)
            case "chat_compression":
                yield RecordedCompaction()
            case "custom_title":
                yield RecordedSession(title=text_of(payload, "title") or text_of(payload, "customTitle"))
            case _:
                pass


def _infer_outcome(
    tool: str, text: str, outcome: Fields, exit_code: int | None, *, is_error: bool
) -> StateInference | None:
    """Return the state that the client's status or type of error shows, or None for an exit code or success."""
    status, error_type = text_of(outcome, "status"), text_of(outcome, "errorType")
    never_ran = outcome.get("executionStatus") == "not_started"
    if status == "cancelled":
        if not never_ran:
            return ended("interrupted", "interrupted", "status", "cancelled")
        if "was canceled by the user" in text:
            return ended("denied", "user_denied", "status", "cancelled")
        return ended("cancelled", "cancelled", "status", "not_started")
    if error_type == "execution_denied":
        if _DENIAL.search(text):
            return ended("denied", "rule_denied", "error type", error_type)
        return ended("blocked_by_hook", "hook_blocked", "error type", error_type)
    if value_of(outcome, "resultDisplay", "outcome") == "timed_out" or _TIMED_OUT.match(text):
        return ended("timed_out", "command_timeout", "outcome", "timed_out")
    if not is_error or exit_code:
        return None
    if error_type in _KINDS:
        return ended("failed", _KINDS[error_type], "error type", error_type)
    return failed(_ERRORS, tool, text, error_type or "error")
