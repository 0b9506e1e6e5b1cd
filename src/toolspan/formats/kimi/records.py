"""The events in a Kimi journal. Start at `Parser.parse`.

`Parser` understands the journals of Kimi Code; `_parse_older` those of the client before it.
"""

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
    number_of,
    object_of,
    text_of,
    texts_of,
    time_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.session import MessageAuthor, Tokens
from toolspan.types.tool_kinds import tool_kind

_FILE = {"path": "file_path"}
_EDIT = ToolShape(inputs.EditInput, _FILE)
TOOLS = {
    "Bash": ToolShape(inputs.BashInput),
    "Shell": ToolShape(inputs.BashInput),
    "Read": ToolShape(inputs.ReadInput, _FILE),
    "ReadFile": ToolShape(inputs.ReadInput, _FILE),
    "Write": ToolShape(inputs.WriteInput, _FILE),
    "WriteFile": ToolShape(inputs.WriteInput, _FILE),
    "Edit": _EDIT,
    "StrReplaceFile": ToolShape(
        inputs.MultiEditInput,
        _FILE | {"edit": "edits"},
        item_names={"edits": {"old": "old_string", "new": "new_string"}},
    ),
    "Grep": ToolShape(inputs.GrepInput),
    "Glob": ToolShape(inputs.GlobInput),
    "Agent": ToolShape(inputs.AgentInput),
    "Task": ToolShape(inputs.AgentInput, {"subagent_name": "subagent_type"}),
    "WebSearch": ToolShape(inputs.WebSearchInput),
    "SearchWeb": ToolShape(inputs.WebSearchInput),
    "FetchURL": ToolShape(inputs.WebFetchInput),
    "TodoList": ToolShape(inputs.TodoWriteInput),
    "SetTodoList": ToolShape(inputs.TodoWriteInput),
}
_EXIT = re.compile(r"(?:\A|\n)Command failed with exit code: (-?\d{1,9})\.\s*\Z")
_BACKGROUND = re.compile(r"\Atask_id: (\S+)\n(?:[^\n]*\n){0,4}status: running\b")
_INTERRUPTED = re.compile(r"(?:\A|\n)(?:Interrupted by user|Session closed)\s*\Z")
_WAITING = re.compile(r'\AThe user manually interrupted "')
_REJECTED = re.compile(r'\ATool "[^"]*" was not run because the user rejected|\AThe tool call is rejected by the user')
_DISABLED = re.compile(r"\A\S+ is disabled while \S+ permission mode is active")
_ERRORS: ErrorTexts = (
    ("unknown_tool", re.compile(r'\ATool "[^"]*" not found')),
    ("invalid_input", re.compile(r'\AInvalid args for tool "')),
    ("not_found", re.compile(r'\A"[^"\n]*" does not exist\.')),
    ("no_match", re.compile(r"\Aold_string not found in ")),
    ("mcp_error", re.compile(r'\ATool "mcp__\w+" failed: ')),
)
_NUMBERED_ID = re.compile(r"[A-Za-z]\w*[_:]\d+")
"""Ids that some models number, so that other sessions have the same ones."""


class Parser(RecordParser):
    """Parser for the events of one journal."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        """Unique ids by those that the model numbered."""
        self._tools: dict[str, str] = {}
        self._asked: dict[str, tuple[str, str | None]] = {}
        """The call and the time of each question about permission."""
        self._asked_at: dict[str, str | None] = {}
        self._agents: dict[str, str] = {}
        self._step = ""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of an event."""
        at = time_of(record, "time")
        if isinstance(record.get("message"), dict) and "timestamp" in record:
            yield from self._parse_older(object_of(record, "message"), time_of(record, "timestamp"))
            return
        match text_of(record, "type"):
            case "metadata":
                yield RecordedSession(started_at=time_of(record, "created_at"))
            case "profile.bind" | "config.update":
                yield RecordedSession(cwd=text_of(record, "environmentDisclosure", "cwd"))
            case "context.append_loop_event":
                yield from self._parse_loop_event(object_of(record, "event"), at)
            case "turn.prompt" | "turn.steer":
                is_user = text_of(record, "origin", "kind") in (None, "user", "system_trigger")
                voice: MessageAuthor = "prompt" if is_user else "injected"
                yield RecordedMessage(
                    voice=voice, text=texts_of(record, "input"), at=at, id=text_of(record, "promptId")
                )
            case "usage.record":
                yield self._make_request(object_of(record, "usage"), text_of(record, "model"), at)
            case "turn.ended" if record.get("reason") == "failed":
                error = text_of(record, "error", "message") or text_of(record, "error", "code") or "The turn failed"
                yield RecordedMessage(voice="error", text=error, at=at)
            case "turn.cancel":
                yield RecordedMessage(voice="interrupt", text=text_of(record, "reason") or "cancelled", at=at)
            case "full_compaction.completed" | "context.apply_compaction":
                yield RecordedCompaction()
            case _:
                yield from self._parse_call_event(record, at)

    def _parse_call_event(self, record: Fields, at: str | None) -> Iterator[Recorded]:
        """Yield the content of an event about permission, background work or a subagent."""
        call = text_of(record, "toolCallId") or ""
        match text_of(record, "type"):
            case "interaction.request" if call:
                self._asked_at[call] = at
            case "permission.record_approval_result" if call:
                values = {
                    "decision": text_of(record, "result", "decision") or "",
                    "source": "user",
                    "scope": text_of(record, "result", "scope"),
                }
                yield RecordedEvent(id=self._ids.get(call, call), kind="permission", values=values)
            case "subagent.spawned":
                agent, parent = text_of(record, "subagentId"), text_of(record, "parentToolCallId")
                if agent and parent:
                    role = text_of(record, "subagentName")
                    yield RecordedAgent(call=self._ids.get(parent, parent), agent_id=agent, role=role)
            case "task.terminated":
                task = text_of(record, "taskId") or text_of(record, "task", "taskId")
                starter = self._agents.get(task or "")
                code = int_of(record, "exitCode") if "exitCode" in record else int_of(record, "task", "exitCode")
                if starter is not None:
                    status = text_of(record, "status") or text_of(record, "task", "status")
                    values = {
                        "task_id": task,
                        "status": "failed" if code else status or "completed",
                        "summary": f"exit code {code}" if code is not None else None,
                        "at": at,
                    }
                    yield RecordedEvent(id=starter, kind="notification", values=values)
            case _:
                pass

    def _parse_loop_event(self, event: Fields, at: str | None) -> Iterator[Recorded]:
        match text_of(event, "type"):
            case "tool.call":
                call = text_of(event, "toolCallId") or text_of(event, "uuid") or f"byte-{self.offset}"
                name, tool = self._unique_id(call, text_of(event, "uuid"), at), text_of(event, "name") or ""
                self._tools[name] = tool
                yield RecordedCall(
                    id=name,
                    tool=tool,
                    arguments=event.get("args"),
                    at=self._asked_at.get(call) or at,
                    batch=text_of(event, "stepUuid"),
                )
                yield RecordedStart(name, "event tool.call")
            case "tool.result":
                call = text_of(event, "toolCallId") or ""
                result = object_of(event, "result")
                name = self._ids.get(call, call)
                text = texts_of(result, "output")
                yield self._make_result(name, result.get("output"), text, at, is_error=result.get("isError") is True,
                                        duration_ms=number_of(result, "durationMs"))  # fmt: skip
            case "content.part":
                part = object_of(event, "part")
                kind = text_of(part, "type")
                if kind in ("text", "think"):
                    text = text_of(part, "text") or text_of(part, "think") or ""
                    yield RecordedMessage(voice="text" if kind == "text" else "thinking", text=text, at=at)
            case _:
                pass

    def _make_result(
        self, name: str, content: object, text: str, at: str | None, *, is_error: bool, duration_ms: float | None = None
    ) -> RecordedResult:
        tool = self._tools.get(name, "")
        exit_code = _EXIT.search(text) if is_error and tool_kind(tool) == "shell" else None
        background = _BACKGROUND.match(text) if not is_error else None
        if background:
            self._agents[background[1]] = name
        return RecordedResult(
            id=name,
            content=content,
            text=text,
            at=at,
            is_error=is_error,
            exit_code=int(exit_code[1]) if exit_code else None,
            outcome=None if exit_code or not is_error else _infer_outcome(tool, text),
            reported_ms=duration_ms,
            background_task=background[1] if background else None,
        )

    def _make_request(self, usage: Fields, model: str | None, at: str | None) -> RecordedRequest:
        return RecordedRequest(
            id=f"byte-{self.offset}" if at is None else f"{at}-{model}-{count_of(usage, 'output')}",
            at=at,
            model=model.rpartition("/")[2] if model else None,
            tokens=Tokens(
                input_tokens=count_of(usage, "inputOther"),
                output_tokens=count_of(usage, "output"),
                cache_read_input_tokens=count_of(usage, "inputCacheRead"),
                cache_creation_input_tokens=count_of(usage, "inputCacheCreation"),
            ),
        )

    def _unique_id(self, call: str, uuid: str | None, at: str | None) -> str:
        if not _NUMBERED_ID.fullmatch(call):
            return call
        self._ids[call] = name = uuid if uuid and uuid != call else f"{call}@{at}"
        return name

    # The client before Kimi Code

    def _parse_older(self, message: Fields, at: str | None) -> Iterator[Recorded]:
        payload = object_of(message, "payload")
        match text_of(message, "type"):
            case "TurnBegin":
                yield RecordedMessage(voice="prompt", text=texts_of(payload, "user_input"), at=at)
            case "StepBegin":
                self._step = f"step-{self.offset}"
            case "ContentPart":
                is_thought = payload.get("type") == "think"
                text = text_of(payload, "think") if is_thought else text_of(payload, "text")
                yield RecordedMessage(voice="thinking" if is_thought else "text", text=text or "", at=at)
            case "ToolCall":
                call = text_of(payload, "id") or f"byte-{self.offset}"
                name = self._unique_id(call, None, at)
                arguments = text_of(payload, "function", "arguments")
                self._tools[name] = tool = text_of(payload, "function", "name") or ""
                decoded = decode_readable(arguments.encode("utf-8", "replace")) if arguments else {}
                yield RecordedCall(id=name, tool=tool, arguments=decoded, at=at, batch=self._step or None)
            case "ToolResult":
                call = text_of(payload, "tool_call_id") or ""
                value = object_of(payload, "return_value")
                text = "\n".join(filter(None, (texts_of(value, "output"), text_of(value, "message"))))
                yield self._make_result(
                    self._ids.get(call, call),
                    value_of(value, "output"),
                    text,
                    at,
                    is_error=value.get("is_error") is True,
                )
            case "StatusUpdate" if usage := object_of(payload, "token_usage"):
                yield RecordedRequest(
                    id=text_of(payload, "message_id") or f"byte-{self.offset}",
                    at=at,
                    tokens=Tokens(
                        input_tokens=count_of(usage, "input_other"),
                        output_tokens=count_of(usage, "output"),
                        cache_read_input_tokens=count_of(usage, "input_cache_read"),
                        cache_creation_input_tokens=count_of(usage, "input_cache_creation"),
                    ),
                )
            case "StepInterrupted":
                yield RecordedStop(outcome=ended("interrupted", "interrupted", "event StepInterrupted"))
                yield RecordedMessage(voice="interrupt", text="The step was interrupted", at=at)
            case _:
                pass


def _infer_outcome(tool: str, text: str) -> StateInference:
    if _WAITING.match(text):
        return ended("cancelled", "cancelled", "interrupted before it started")
    if _INTERRUPTED.search(text):
        return ended("interrupted", "interrupted", "interrupted")
    if _REJECTED.match(text):
        return ended("denied", "user_denied", "rejected")
    if _DISABLED.match(text):
        return ended("denied", "rule_denied", "mode")
    return failed(_ERRORS, tool, text)
