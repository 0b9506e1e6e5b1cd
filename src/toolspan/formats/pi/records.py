"""The records of a Pi session: a header, then entries with a parent. Start at `Parser.parse`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from toolspan.formats.pairing import StateInference
from toolspan.formats.record_parser import (
    ErrorTexts,
    Fields,
    Recorded,
    RecordedCall,
    RecordedCompaction,
    RecordedLink,
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordParser,
    ToolShape,
    count_of,
    ended,
    failed,
    number_of,
    object_of,
    objects_of,
    text_of,
    texts_of,
    time_of,
    value_of,
)
from toolspan.types import inputs
from toolspan.types.session import MessageAuthor, Tokens
from toolspan.types.span import Evidence

_FILE = {"path": "file_path"}
TOOLS = {
    "bash": ToolShape(inputs.BashInput),
    "read": ToolShape(inputs.ReadInput, _FILE),
    "write": ToolShape(inputs.WriteInput, _FILE),
    "edit": ToolShape(
        inputs.MultiEditInput, _FILE, item_names={"edits": {"oldText": "old_string", "newText": "new_string"}}
    ),
    "grep": ToolShape(inputs.GrepInput),
    "find": ToolShape(inputs.GlobInput),
    "ls": ToolShape(inputs.LsInput),
}
_EXIT = re.compile(r"(?:\A|\n)Command exited with code (-?\d{1,9})\s*\Z")
_TIMED_OUT = re.compile(r"(?:\A|\n)Command timed out after [\d.]+ seconds?\s*\Z")
_ABORTED = re.compile(r"(?:\A|\n)(?:Command aborted|Operation aborted|This operation was aborted)\s*\Z")
_ERRORS: ErrorTexts = (
    ("unknown_tool", re.compile(r"\ATool \S+ not found")),
    ("invalid_input", re.compile(r"\AValidation failed for tool ")),
    ("no_match", re.compile(r"Could not find (?:the exact text|edits\[)")),
    ("ambiguous_match", re.compile(r"\AFound \d+ occurrences of ")),
    ("not_found", re.compile(r"\A(?:ENOENT|Path not found)|not found: ")),
)
_STOPPED = frozenset({"aborted", "error"})


class Parser(RecordParser):
    """Parser for the entries of one session."""

    known_types = frozenset({
        "session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "context_edit",
        "usage", "label", "session_info", "custom", "custom_message",
    })  # fmt: skip

    def parse(self, record: Fields) -> Iterator[Recorded]:
        """Yield the content of the header or an entry."""
        kind, at = text_of(record, "type"), time_of(record, "timestamp")
        if kind == "session":
            parent = text_of(record, "parentSession")
            yield RecordedSession(
                id=text_of(record, "id"),
                cwd=text_of(record, "cwd"),
                forked_from=PurePath(parent).stem.rpartition("_")[2] if parent else None,
                started_at=at,
            )
            return
        name = text_of(record, "id")
        if name is not None:
            yield RecordedLink(name, text_of(record, "parentId"))
        usage = object_of(record, "usage")
        match kind:
            case "message":
                yield from self._parse_message(object_of(record, "message"), name, at)
            case "session_info":
                yield RecordedSession(title=text_of(record, "name"))
            case "compaction":
                yield RecordedCompaction()
                yield RecordedMessage(voice="summary", text=text_of(record, "summary") or "", at=at)
            case "branch_summary":
                yield RecordedMessage(voice="summary", text=text_of(record, "summary") or "", at=at)
            case "custom_message":
                yield RecordedMessage(voice="injected", text=texts_of(record, "content"), at=at)
            case "usage":
                usage = usage or record
            case _:
                pass
        if usage and name is not None:
            yield _make_request(usage, f"{name}-{at}", at, text_of(record, "model"))

    def _parse_message(self, message: Fields, name: str | None, at: str | None) -> Iterator[Recorded]:
        match message.get("role"):
            case "user":
                yield RecordedMessage(voice="prompt", text=texts_of(message, "content"), at=at, id=name)
            case "assistant":
                yield from self._parse_reply(message, name, at)
            case "toolResult":
                yield from self._parse_result(message, at)
            case "bashExecution":
                yield RecordedMessage(voice="command", text=f"!{text_of(message, 'command') or ''}", at=at)
            case "custom":
                yield RecordedMessage(voice="injected", text=texts_of(message, "content"), at=at)
            case _:
                pass

    def _parse_reply(self, message: Fields, name: str | None, at: str | None) -> Iterator[Recorded]:
        batch = text_of(message, "responseId") or f"{name}-{at}"
        for n, block in enumerate(objects_of(message, "content")):
            voices: dict[str | None, MessageAuthor] = {"text": "text", "thinking": "thinking"}
            kind = text_of(block, "type")
            if kind in voices:
                yield RecordedMessage(voice=voices[kind], text=text_of(block, kind or "") or "", at=at)
            elif kind == "toolCall":
                yield RecordedCall(
                    id=text_of(block, "id") or f"byte-{self.offset}.{n}",
                    tool=text_of(block, "name") or "",
                    arguments=value_of(block, "arguments"),
                    at=at,
                    batch=batch,
                )
        if usage := object_of(message, "usage"):
            yield _make_request(usage, batch, at, text_of(message, "model"))
        if (reason := text_of(message, "stopReason")) in _STOPPED:
            error = text_of(message, "errorMessage") or reason
            is_abort = reason == "aborted" or "aborted" in error
            yield RecordedMessage(voice="interrupt" if is_abort else "error", text=error, at=at)

    def _parse_result(self, message: Fields, at: str | None) -> Iterator[Recorded]:
        call_id, tool = text_of(message, "toolCallId"), text_of(message, "toolName") or ""
        if call_id is None:
            return
        text, details = texts_of(message, "content"), object_of(message, "details")
        is_error = value_of(message, "isError") is True
        exit_code = _EXIT.search(text) if tool == "bash" and is_error else None
        yield RecordedResult(
            id=call_id,
            content=value_of(message, "content"),
            at=time_of(message, "timestamp") or at,
            is_error=is_error,
            exit_code=int(exit_code[1]) if exit_code else None,
            outcome=None if exit_code or not is_error else _infer_outcome(tool, text),
            structured=details or None,
            truncated=value_of(details, "truncation", "truncated") is True,
            persisted_path=text_of(details, "fullOutputPath"),
        )
        if usage := object_of(message, "usage"):
            yield _make_request(usage, f"result-{call_id}", at, None)


def _infer_outcome(tool: str, text: str) -> StateInference:
    if _TIMED_OUT.search(text):
        return ended("timed_out", "command_timeout", "timeout")
    if _ABORTED.search(text):
        return ended("interrupted", "interrupted", "aborted")
    inference = failed(_ERRORS, tool, text)
    if tool == "bash" and inference.kind == "command_failed":  # each command that ran leaves one of the texts above
        evidence = (Evidence("no exit code, so the command did not run"),)
        return StateInference(state="blocked_by_hook", kind="hook_blocked", evidence=evidence, ambiguous=True)
    return inference


def _make_request(usage: Fields, name: str, at: str | None, model: str | None) -> RecordedRequest:
    return RecordedRequest(
        id=name,
        at=at,
        model=model,
        cost_usd=number_of(usage, "cost", "total"),
        tokens=Tokens(
            input_tokens=count_of(usage, "input"),
            output_tokens=count_of(usage, "output"),
            cache_read_input_tokens=count_of(usage, "cacheRead"),
            cache_creation_input_tokens=count_of(usage, "cacheWrite"),
        ),
    )
