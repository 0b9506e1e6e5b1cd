"""Read a Gemini CLI chat: messages become calls with results, facts and findings.

A call and its result are one object, so nothing is paired by id. However, a file of lines repeats a
message whenever it changes, and the last record counts. Start at `GeminiReader._process`.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct, field

from toolspan.formats import json_repair
from toolspan.formats.checks import LineChecker
from toolspan.formats.decoding import TypedDecoder, content_to_text, extract_text
from toolspan.formats.gemini import parent_session
from toolspan.formats.gemini.tools import describe_call, input_drift, narrow_display, narrow_input
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.lines import LineReader, missing_call_error, reread_line
from toolspan.formats.pairing import BRANCH_NAMES, Branches, StateInference
from toolspan.formats.registry import narrow_foreign_input
from toolspan.formats.source import Source
from toolspan.types.error_kinds import ErrorKind, kind_of
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.inputs import ToolInput, UnknownInput, decode_json_object
from toolspan.types.session import Message, MessageAuthor, RequestUsage, SessionInfo, Tokens, shorten_prompt
from toolspan.types.span import Call, Evidence, Result, Span
from toolspan.types.tool_kinds import tool_kind

ABSENT = Raw()


class GeminiTokens(Struct, gc=False):
    """Token counts for one reply; `input` includes `cached`, the others are separate."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None


class GeminiThought(Struct, gc=False):
    """A summary of the model's thinking."""

    subject: str | None = None
    description: str | None = None
    timestamp: str | None = None


class GeminiCall(Struct, gc=False, rename="camel"):
    """A call with its result."""

    id: CallId | None = None
    name: str | None = None
    args: Raw = ABSENT
    status: str | None = None
    timestamp: str | None = None
    """The time at which the call completed."""
    result: Raw = ABSENT
    result_display: Raw = ABSENT


class GeminiRecord(Struct, gc=False, rename="camel"):
    """A line, or a message in a document."""

    id: str | None = None
    type: str = ""
    timestamp: str | None = None
    content: Raw = ABSENT
    display_content: Raw = ABSENT
    """The text typed by the user, if `content` includes more, such as files."""
    model: str | None = None
    tokens: GeminiTokens | None = None
    thoughts: list[GeminiThought] | None = None
    tool_calls: list[GeminiCall] | None = None
    session_id: str | None = None
    project_hash: str | None = None
    start_time: str | None = None
    last_updated: str | None = None
    kind: str | None = None
    """`main` or `subagent`, in a header."""
    summary: str | None = None
    directories: Raw = ABSENT
    messages: list[GeminiRecord] | None = None
    updates: GeminiRecord | None = field(default=None, name="$set")
    rewind_to: str | None = field(default=None, name="$rewindTo")

    @property
    def line_type(self) -> str:
        """The type under which the line is counted."""
        if self.updates is not None:
            return "$set"
        if self.rewind_to is not None:
            return "$rewindTo"
        return self.type or ("session" if self.session_id else "")


_DECODER = TypedDecoder(GeminiRecord)
decode_record = _DECODER.decode
decode_records = _DECODER.decode_many
encode_record = _DECODER.encode

_KNOWN_TYPES = frozenset({"user", "gemini", "info", "error", "warning", "session", "$set", "$rewindTo"})
_HEADER_KEYS = frozenset({
    "sessionId", "projectHash", "startTime", "lastUpdated", "kind", "summary", "directories", "messages",
    "memoryScratchpad",
})  # fmt: skip
_MESSAGE_KEYS = frozenset({
    "id", "timestamp", "type", "content", "displayContent", "thoughts", "model", "tokens", "toolCalls",
})  # fmt: skip
_CALL_KEYS = frozenset({
    "id", "name", "args", "status", "timestamp", "result", "resultDisplay", "description", "displayName",
    "renderOutputAsMarkdown", "agentId",
})  # fmt: skip


def iter_messages(record: GeminiRecord) -> Iterator[GeminiRecord]:
    """Yield the messages in a line: the line itself, or those in a header or an update."""
    if record.type and record.id:
        yield record
    for holder in (record, record.updates):
        yield from (message for message in (holder.messages if holder else None) or () if message.id)


def is_known(record: GeminiRecord) -> bool:
    """Return whether a line's type has been observed before."""
    return record.line_type in _KNOWN_TYPES


def unknown_keys(record: GeminiRecord, fields: dict[str, object]) -> Iterator[str]:
    """Yield the keys of a line that have not been observed before."""
    if record.line_type.startswith("$"):
        yield from (key for key in fields if key not in ("$set", "$rewindTo"))
        return
    known = _MESSAGE_KEYS if record.type else _HEADER_KEYS
    yield from (key for key in fields if key not in known)
    calls = fields.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from (f"toolCalls.{key}" for key in call if key not in _CALL_KEYS)


_ACTIVE, _COMPACTED, _ABANDONED = range(len(BRANCH_NAMES))
_ENDED_STATUSES = frozenset({"success", "error", "cancelled"})
_MESSAGE_LENGTH = 300
_TOKEN_LIMIT = 1 << 48
"""Larger counts are invalid."""
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_DENIAL = re.compile(r"\A(?:Error: )?Tool execution denied by policy\b")
_ERROR_KINDS: tuple[tuple[ErrorKind, re.Pattern[str]], ...] = (
    ("unknown_tool", re.compile(r"\ATool \"[^\"]*\" not found")),
    ("invalid_input", re.compile(r"\A(?:Error: )?(?:params|The '[^']+' parameter) must\b")),
    ("no_match", re.compile(r"could not find the string to replace|0 occurrences found", re.IGNORECASE)),
    ("ambiguous_match", re.compile(r"expected \d+ occurrences? but found \d+", re.IGNORECASE)),
)
"""Error messages that only Gemini CLI writes."""
_VOICES: dict[str, MessageAuthor] = {"user": "prompt", "gemini": "text", "error": "error"}


class GeminiReader(LineReader[GeminiRecord]):
    """Reader for a chat stored as a single JSON document or as JSON lines."""

    def __init__(self, source: Source, *, calls_only: bool = False, document: bool = False) -> None:
        super().__init__(source, document_key="messages" if document else None)
        folders = Path(source.name).parts[:-1]
        self.session_info: GeminiInfoCollector = GeminiInfoCollector(parent_session(folders), calls_only=calls_only)
        self.pairing: GeminiPairing = GeminiPairing(source, self.session_info)
        self._history = _ChatHistory()

    _decode_whole = staticmethod(decode_records)
    _decode = staticmethod(decode_record)

    def _process(self, decoded: Sequence[GeminiRecord], places: Sequence[int], number: int) -> None:
        for line, (record, at) in enumerate(zip(decoded, places, strict=True), number):
            self.session_info.add_header(record.updates or record)
            for message in iter_messages(record):
                self.session_info.add_message(message)
                self.pairing.add_message(message, at)
            self._history.add(record, line)

    def _process_document_fields(self, fields: GeminiRecord) -> None:
        self.session_info.add_header(fields)

    def branches(self) -> Branches:
        """Return the branch of every line: rewound messages are abandoned."""
        return self._history.branches()

    def messages(self) -> Iterator[Message]:
        """Reread the file and yield each message once, as in its last record."""
        latest: dict[str, tuple[GeminiRecord, SourceLocation]] = {}
        for record, place in self.records():
            for message in iter_messages(record):
                first_place = latest[message.id or ""][1] if message.id in latest else place
                latest[message.id or ""] = (message, first_place)
        for message, place in latest.values():
            for voice, text in _message_texts(message):
                if text.strip():
                    yield Message(
                        voice=voice,
                        text=text,
                        at=message.timestamp,
                        agent_id=self.session_info.agent_id,
                        place=place,
                    )

    def make_line_checker(self, spans: Sequence[Span], *, roundtrip: bool) -> LineChecker[GeminiRecord]:
        """Return a checker for drift, UTF-8 errors and re-encoding differences in the file's lines."""
        return GeminiLineChecker(self.source.name, spans, roundtrip=roundtrip)


def _message_texts(message: GeminiRecord) -> Iterator[tuple[MessageAuthor, str]]:
    for thought in message.thoughts or ():
        yield "thinking", "\n".join(part for part in (thought.subject, thought.description) if part)
    content = message.display_content if message.display_content != ABSENT else message.content
    yield _VOICES.get(message.type, "system"), extract_text(content)


class _ChatHistory:
    """The messages that are part of the model's history at the end of the file."""

    def __init__(self) -> None:
        self._message_lines: dict[str, list[int]] = {}
        """Line numbers of each message in the current history, in order."""
        self._hidden_lines: dict[int, int] = {}

    def add(self, record: GeminiRecord, line: int) -> None:
        """Add a record, in file order."""
        if record.rewind_to is not None:
            self._rewind(record.rewind_to)
        if record.updates is not None and record.updates.messages is not None:
            remaining = {message.id for message in record.updates.messages}
            self._hide([name for name in self._message_lines if name not in remaining], _COMPACTED)
        for message in iter_messages(record):
            self._message_lines.setdefault(message.id or "", []).append(line)

    def branches(self) -> Branches:
        """Return the branches of the lines that are not active."""
        lines = sorted(self._hidden_lines)
        return Branches(array("L", lines), bytearray(self._hidden_lines[line] for line in lines))

    def _rewind(self, message_id: str) -> None:
        """Hide a message and all later ones, or the whole history if the message is unknown, as the client does."""
        names = list(self._message_lines)
        self._hide(names[names.index(message_id) :] if message_id in self._message_lines else names, _ABANDONED)

    def _hide(self, message_ids: Sequence[str], mark: int) -> None:
        for message_id in message_ids:
            self._hidden_lines.update(dict.fromkeys(self._message_lines.pop(message_id), mark))


class GeminiInfoCollector:
    """A collector of facts and token counts for one conversation."""

    def __init__(self, parent: str | None, *, calls_only: bool) -> None:
        self._parent = parent
        self._calls_only = calls_only
        self._header = GeminiRecord()
        self._is_agent = parent is not None
        self._root: str | None = None
        self._models: dict[str, None] = {}
        self._first_prompt: str | None = None
        self._prompt_ids: dict[str, None] = {}
        self._compaction_count = 0
        self.requests: dict[str, RequestUsage] = {}
        self.raw_sum = Tokens()
        self.turn_id: str | None = None
        """The id of the last prompt."""

    @property
    def agent_id(self) -> str | None:
        """The subagent that wrote the file; None for a main conversation."""
        return self._header.session_id if self._is_agent else None

    @property
    def session_id(self) -> str | None:
        """The session to which the file belongs."""
        return self._parent if self._is_agent and self._parent else self._header.session_id

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message."""
        return {name: usage.tokens for name, usage in self.requests.items()}

    @property
    def tokens(self) -> Tokens:
        """All tokens, counting each message once."""
        return sum(self.message_tokens.values(), Tokens())

    def add_header(self, header: GeminiRecord) -> None:
        """Add the header, or an update to it."""
        known = self._header
        for name in ("session_id", "start_time", "last_updated", "summary", "kind"):
            setattr(known, name, getattr(header, name) or getattr(known, name))
        if header.directories != ABSENT:
            known.directories = header.directories
        if header.kind is not None:
            self._is_agent = header.kind == "subagent"
        if header.messages and header.session_id is None:
            self._compaction_count += self._root is not None

    def add_message(self, message: GeminiRecord) -> None:
        """Add a message; a repeated message counts only towards the raw sum."""
        self._root = self._root or message.id
        if message.type == "user":
            self.turn_id = message.id
        if self._calls_only:
            return
        if message.model:
            self._models[message.model] = None
        if message.type == "user" and message.id:
            self._prompt_ids[message.id] = None
            content = message.display_content if message.display_content != ABSENT else message.content
            self._first_prompt = self._first_prompt or shorten_prompt(extract_text(content))
        if message.tokens is not None:
            counts = message.tokens
            tokens = Tokens(
                input_tokens=_sane(counts.input) + _sane(counts.tool),
                output_tokens=_sane(counts.output) + _sane(counts.thoughts),
                cache_read_input_tokens=_sane(counts.cached),
            )
            self.requests[message.id or ""] = RequestUsage(at=message.timestamp, model=message.model, tokens=tokens)
            self.raw_sum += tokens

    def build_info(self, stem: str) -> SessionInfo:
        """Return the collected facts; `stem` is the file name without suffixes."""
        own_id = self._header.session_id
        directories = json_repair.decode_readable(bytes(self._header.directories))
        folder = directories[0] if isinstance(directories, list) and directories else None
        return SessionInfo(
            dialect="gemini",
            session_id=self.session_id or (stem if self._root else None),
            session_ids=tuple(filter(None, dict.fromkeys([self.session_id, own_id]))),
            agent_id=self.agent_id,
            root=self._root,
            models=tuple(self._models),
            cwd=folder if isinstance(folder, str) else None,
            title=self._header.summary,
            first_prompt=self._first_prompt,
            prompts=len(self._prompt_ids),
            compactions=self._compaction_count,
            started_at=self._header.start_time,
            ended_at=self._header.last_updated,
        )


def _sane(count: int | None) -> int:
    return count if count is not None and 0 <= count < _TOKEN_LIMIT else 0


class _CallBuilder(Struct, gc=False):
    call: Call
    result: Result | None
    inference: StateInference
    message: str | None


class GeminiPairing:
    """The calls in one chat."""

    def __init__(self, source: Source, info: GeminiInfoCollector) -> None:
        self._body_store = GeminiBodyStore(source)
        self._info = info
        self._builders: dict[CallId, _CallBuilder] = {}
        self.agent_starters: dict[str, str] = {}
        """Always empty: the client does not record which call started which subagent."""

    def add_message(self, message: GeminiRecord, at: int) -> None:
        """Add the calls in a message; a later record of a call replaces the earlier state."""
        for number, call in enumerate(message.tool_calls or ()):
            call_id = call.id or _missing_id(message, number)
            earlier = self._builders.get(call_id)
            request = earlier.call if earlier else self._make_call(call_id, call, message, at)
            text = result_text(call.result)
            self._builders[call_id] = _CallBuilder(
                request,
                self._make_result(request, call, text, at),
                infer_state(call, text),
                text[:_MESSAGE_LENGTH].strip(),
            )

    def _make_call(self, call_id: CallId, call: GeminiCall, message: GeminiRecord, at: int) -> Call:
        session = self._info.session_id
        return Call(
            id=call_id,
            tool=sys.intern(call.name or ""),
            at=at,
            requested_at=message.timestamp,
            target=describe_call(bytes(call.args)),
            session_id=SessionId(session) if session else None,
            agent_id=self._info.agent_id,
            message_id=message.id,
            prompt_id=self._info.turn_id,
            dialect="gemini",
            body_store=self._body_store,
        )

    def _make_result(self, request: Call, call: GeminiCall, text: str, at: int) -> Result | None:
        if call.status not in _ENDED_STATUSES and not text:
            return None
        exit_code = _EXIT_CODE.search(text) if request.kind == "shell" else None
        return Result(
            id=request.id,
            tool=request.tool,
            at=at,
            finished_at=call.timestamp,
            is_error={"success": False, "error": True}.get(call.status or ""),
            exit_code=int(exit_code[1]) if exit_code else None,
            body_store=self._body_store,
        )

    def success_keys(self) -> list[str]:
        """Return a key for each successful call, shared with its copies in other files."""
        return [
            f"{builder.call.id} {builder.call.message_id}"
            for builder in self._builders.values()
            if builder.inference.state == "succeeded"
        ]

    def consume_spans(self, branches: Branches) -> Iterator[Span]:
        """Yield every call in request order, and free its memory."""
        builders, self._builders = self._builders, {}
        for call_id in list(builders):
            builder = builders.pop(call_id)
            inference = builder.inference
            yield Span(
                call=builder.call,
                result=builder.result,
                state=inference.state,
                evidence=inference.evidence,
                error_kind=inference.kind,
                message=(builder.message or None) if inference.kind else None,
                branch=branches.branch_of(SourceLocation.packed_line(builder.call.at)),
            )


def _missing_id(message: GeminiRecord, number: int) -> CallId:
    return CallId(f"#{message.id}.{number}")


def infer_state(call: GeminiCall, text: str) -> StateInference:
    """Infer the state of a call from its recorded status; `text` is the content sent to the model."""
    status = Evidence("status", call.status)
    tool = call.name or ""
    if call.status == "cancelled":
        return StateInference(state="cancelled", kind="cancelled", evidence=(status,))
    if call.status == "error" or (call.status != "success" and '"error"' in _response_keys(call.result)):
        if denial := _DENIAL.match(text):
            return StateInference(state="denied", kind="rule_denied", evidence=(status, Evidence("policy", denial[0])))
        kind = next((kind for kind, pattern in _ERROR_KINDS if pattern.search(text)), None) or kind_of(tool, text)
        if kind == "unknown" and tool_kind(tool) == "shell":
            kind = "command_failed"
        timed_out = kind in ("command_timeout", "mcp_timeout")
        return StateInference(state="timed_out" if timed_out else "failed", kind=kind, evidence=(status,))
    if call.status == "success" or text:
        return StateInference(state="succeeded", evidence=(status,))
    return StateInference(state="never_answered", evidence=(Evidence("no result"),))


def _response_keys(result: Raw) -> str:
    """Return the keys of the first response, each in quotes."""
    for response in _responses(result):
        return " ".join(f'"{key}"' for key in response)
    return ""


def _responses(result: Raw) -> Iterator[dict[str, Any]]:
    parts = json_repair.decode_readable(bytes(result))
    for part in parts if isinstance(parts, list) else ():
        function = part.get("functionResponse") if isinstance(part, dict) else None
        response = function.get("response") if isinstance(function, dict) else None
        if isinstance(response, dict):
            yield response


def result_text(result: Raw) -> str:
    """Return the text sent to the model: the response's output or error, and further text parts."""
    if result == ABSENT:
        return ""
    parts = json_repair.decode_readable(bytes(result))
    if not isinstance(parts, list):
        return content_to_text(parts)
    texts = [str(value) for response in _responses(result) for value in _response_values(response)]
    texts += [content_to_text([part]) for part in parts if isinstance(part, dict) and "functionResponse" not in part]
    return "\n".join(text for text in texts if text)


def _response_values(response: dict[str, Any]) -> list[object]:
    values = [response[key] for key in ("output", "error") if isinstance(response.get(key), str)]
    return values or [json_repair.encode_document(response).decode("utf-8", "replace")] if response else []


class GeminiBodyStore:
    """Reader for the inputs and results in one chat."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON."""
        return bytes(self._read_call(SourceLocation.unpack(self.name, call.at), call.id).args) or b"{}"

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input, or an empty dict if it is not an object."""
        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type."""
        data = self.raw_input(call)
        tool_input = narrow_input(call.tool, data)
        return narrow_foreign_input(call.tool, data) if isinstance(tool_input, UnknownInput) else tool_input

    def content(self, result: Result) -> Any:
        """Return the content sent to the model as a list of parts."""
        return json_repair.decode_readable(bytes(self._read_call(result.place, result.id).result))

    def text(self, result: Result) -> str:
        """Return the content sent to the model as text."""
        return result_text(self._read_call(result.place, result.id).result)

    def structured(self, result: Result) -> object:
        """Return the displayed result as a type chosen by its shape."""
        return narrow_display(bytes(self._read_call(result.place, result.id).result_display))

    def _read_call(self, place: SourceLocation, call_id: CallId) -> GeminiCall:
        record = reread_line(self.source, place, decode_record).entry
        for message in iter_messages(record):
            for number, call in enumerate(message.tool_calls or ()):
                if (call.id or _missing_id(message, number)) == call_id:
                    return call
        raise missing_call_error(place, call_id)


class GeminiLineChecker(LineChecker[GeminiRecord]):
    """Checker for the messages of a document, or the lines of a file."""

    def _decode_view(self, data: bytes) -> GeminiRecord:
        return decode_record(data).entry

    def _line_type(self, view: GeminiRecord) -> str:
        return view.line_type

    def _encode_view(self, view: GeminiRecord, data: bytes) -> bytes:
        return encode_record(view, data)

    def _check_drift(self, view: GeminiRecord, fields: dict[str, object], line: JsonLine) -> None:
        if not is_known(view):
            self._add_finding("unknown_type", view.line_type or "no type", line)
        for key in unknown_keys(view, fields):
            self._add_finding("unknown_field", key, line)
        for message in iter_messages(view):
            for call in message.tool_calls or ():
                for path in input_drift(call.name or "", bytes(call.args)):
                    self._add_finding("unknown_input", f"{call.name}: {path}", line)
