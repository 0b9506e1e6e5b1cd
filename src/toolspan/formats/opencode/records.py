"""The records of an OpenCode session: the session, its messages and their parts. Start at `Parser.parse`.

An exported document has the same objects, with the parts of a message below it.
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
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordedStart,
    RecordParser,
    ToolShape,
    count_of,
    ended,
    failed,
    find_kind,
    int_of,
    number_of,
    object_of,
    objects_of,
    text_of,
    time_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.session import MessageAuthor, Tokens

_FILE = {"filePath": "file_path"}
TOOLS = {
    "bash": ToolShape(inputs.BashInput),
    "read": ToolShape(inputs.ReadInput, _FILE),
    "write": ToolShape(inputs.WriteInput, _FILE),
    "edit": ToolShape(
        inputs.EditInput,
        _FILE | {"oldString": "old_string", "newString": "new_string", "replaceAll": "replace_all"},
    ),
    "multiedit": ToolShape(inputs.MultiEditInput, _FILE),
    "glob": ToolShape(inputs.GlobInput),
    "grep": ToolShape(inputs.GrepInput),
    "list": ToolShape(inputs.LsInput),
    "task": ToolShape(inputs.AgentInput),
    "todowrite": ToolShape(inputs.TodoWriteInput),
    "todoread": ToolShape(inputs.TodoReadInput),
    "webfetch": ToolShape(inputs.WebFetchInput),
    "websearch": ToolShape(inputs.WebSearchInput),
}
_TIMED_OUT = "terminated command after exceeding timeout"
_ABORTED = "User aborted the command"
_ERRORS: tuple[tuple[str, StateInference], ...] = (
    ("The user has specified a rule which prevents", ended("denied", "rule_denied", "denied")),
    ("The user rejected permission to use", ended("denied", "user_denied", "denied")),
    ("Tool execution aborted", ended("interrupted", "interrupted", "aborted")),
)
"""Error texts with which only the client itself ends a call."""
_ERROR_KINDS: ErrorTexts = (
    ("unknown_tool", re.compile(r"unavailable tool", re.IGNORECASE)),
    ("invalid_input", re.compile(r"called with invalid arguments|JSON parsing failed|Invalid input")),
    ("not_found", re.compile(r"\AFile not found")),
    ("no_match", re.compile(r"Could not find oldString|oldString not found")),
    ("ambiguous_match", re.compile(r"multiple (?:matches|times).*oldString|oldString.*multiple", re.IGNORECASE)),
    ("read_required", re.compile(r"must read (?:the )?file|read it (?:first|before)", re.IGNORECASE)),
    ("mcp_error", re.compile(r"\AMCP error")),
)


class Parser(RecordParser):
    """Parser for the rows of one session."""

    known_types = frozenset({
        "session", "user", "assistant", "text", "reasoning", "tool", "step-start", "step-finish", "file", "patch",
        "snapshot", "agent", "subtask", "retry", "compaction",
    })  # fmt: skip

    def __init__(self) -> None:
        self._roles: dict[str, str] = {}
        self._times: dict[str, str | None] = {}

    def record_type(self, record: Fields) -> str:
        info = object_of(record, "info") or record
        is_session = str(info.get("id")).startswith("ses_")
        return "session" if is_session else text_of(info, "role") or text_of(info, "type") or ""

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of a session, a message or a part."""
        info = object_of(record, "info")
        if info and ("parts" in record or str(info.get("id")).startswith("ses_")):  # of an exported document
            yield from self.parse(info)
            for part in objects_of(record, "parts"):
                yield from self.parse(part)
        elif str(record.get("id")).startswith("ses_"):
            yield from self._parse_session(record)
        elif "role" in record:
            yield from self._parse_message(record)
        else:
            yield from self._parse_part(record)

    def _parse_session(self, record: Fields) -> Iterator[Recorded]:
        name, parent = text_of(record, "id"), text_of(record, "parentID")
        yield RecordedSession(
            id=(text_of(record, "rootID") or parent) if parent else name,
            agent_id=name if parent else None,
            role=text_of(record, "agent") if parent else None,
            cwd=text_of(record, "directory"),
            title=text_of(record, "title"),
            version=text_of(record, "version"),
            started_at=time_of(record, "time", "created"),
        )

    def _parse_message(self, record: Fields) -> Iterator[Recorded]:
        name, role = text_of(record, "id") or "", text_of(record, "role") or ""
        at = time_of(record, "time", "created")
        self._roles[name], self._times[name] = role, at
        if role != "assistant":
            return
        tokens = object_of(record, "tokens")
        if any(count_of(tokens, key) for key in ("input", "output", "reasoning")) or count_of(tokens, "cache", "read"):
            yield RecordedRequest(
                id=_request_key(record),
                at=at,
                model=text_of(record, "modelID"),
                cost_usd=number_of(record, "cost"),
                tokens=Tokens(
                    input_tokens=count_of(tokens, "input"),
                    output_tokens=count_of(tokens, "output") + count_of(tokens, "reasoning"),
                    cache_read_input_tokens=count_of(tokens, "cache", "read"),
                    cache_creation_input_tokens=count_of(tokens, "cache", "write"),
                ),
            )
        if error := object_of(record, "error"):
            text = text_of(error, "data", "message") or text_of(error, "name") or ""
            voice: MessageAuthor = "interrupt" if error.get("name") == "MessageAbortedError" else "error"
            yield RecordedMessage(voice=voice, text=text, at=time_of(record, "time", "completed") or at)

    def _parse_part(self, record: Fields) -> Iterator[Recorded]:
        message = text_of(record, "messageID") or ""
        at = time_of(record, "time", "start") or self._times.get(message)
        match record.get("type"):
            case "tool":
                yield from self._parse_tool(record, message)
            case "text" if text := text_of(record, "text"):
                is_prompt = self._roles.get(message) == "user"
                voice: MessageAuthor = (
                    "injected" if is_prompt and record.get("synthetic") else "prompt" if is_prompt else "text"
                )
                yield RecordedMessage(voice=voice, text=text, at=at, id=message)
            case "reasoning" if text := text_of(record, "text"):
                yield RecordedMessage(voice="thinking", text=text, at=at)
            case "compaction":
                yield RecordedCompaction()
            case _:
                pass

    def _parse_tool(self, record: Fields, message: str) -> Iterator[Recorded]:
        state = object_of(record, "state")
        call_id = text_of(record, "callID") or text_of(record, "id")
        tool = text_of(record, "tool") or ""
        if not call_id:
            return
        start = time_of(state, "time", "start")
        yield RecordedCall(
            id=call_id,
            tool=tool,
            arguments=value_of(state, "input"),
            at=start or self._times.get(message),
            batch=message or None,
        )
        if agent := text_of(state, "metadata", "sessionId"):
            role = text_of(state, "input", "subagent_type")
            yield RecordedAgent(call=call_id, agent_id=agent, role=role)
        status = text_of(state, "status")
        if status == "running":
            yield RecordedStart(call_id, "status running")
        elif status in ("completed", "error"):
            yield self._parse_result(state, call_id, tool, status)

    def _parse_result(self, state: Fields, call_id: str, tool: str, status: str) -> RecordedResult:
        metadata = object_of(state, "metadata")
        is_error = status == "error"
        text = (text_of(state, "error") if is_error else text_of(state, "output")) or ""
        exit_code = int_of(metadata, "exit")
        return RecordedResult(
            id=call_id,
            content=text,
            at=time_of(state, "time", "end"),
            is_error=is_error,
            exit_code=exit_code,
            outcome=_infer_outcome(tool, state, text, is_error=is_error, exit_code=exit_code),
            structured=metadata or None,
            truncated=metadata.get("truncated") is True,
            persisted_path=text_of(metadata, "outputPath"),
        )


def _request_key(record: Fields) -> str:
    """Return an id that the copies of a request in forked sessions share; their message ids differ."""
    times, tokens = object_of(record, "time"), object_of(record, "tokens")
    numbers = (times.get("created"), times.get("completed"), tokens.get("input"), tokens.get("output"))
    return "-".join(map(str, ("request", *numbers)))


def _infer_outcome(
    tool: str, state: Fields, text: str, *, is_error: bool, exit_code: int | None
) -> StateInference | None:
    """Return the state that the text or the tool shows, or None if the exit code or error flag is all there is."""
    if tool == "invalid":  # the client's own tool, which stands for a call that it could not make
        asked = text_of(state, "input", "error") or text
        return ended("failed", find_kind(_ERROR_KINDS, "", asked), "tool invalid", asked[:80])
    if not is_error:
        if tool == "bash" and exit_code is None:
            if _TIMED_OUT in text:
                return ended("timed_out", "command_timeout", "timeout", _TIMED_OUT)
            if _ABORTED in text:
                return ended("interrupted", "interrupted", "aborted", _ABORTED)
        return None
    for beginning, inference in _ERRORS:
        if text.startswith(beginning):
            return inference
    return failed(_ERROR_KINDS, tool, text, "status error")
