"""Read a Gemini CLI chat: messages become calls with results, facts and findings.

A call and its result are one object, so nothing is paired by id. However, a file of lines repeats a
message whenever it changes, and the last record counts. Start at `GeminiReader._process`.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, field

from toolspan.formats import json_repair
from toolspan.formats.decoding import TypedDecoder, content_to_text, extract_text, known_keys, sane_count
from toolspan.formats.gemini import parent_session
from toolspan.formats.gemini.tools import describe_call, input_drift, narrow_display
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.labelled_output import parse_labelled_output
from toolspan.formats.lines import LineBodyStore, TranscriptReader, missing_call_error
from toolspan.formats.pairing import (
    BRANCH_NAMES,
    Branches,
    CallBuilderBase,
    CallPairing,
    StateInference,
    refine_exit_status,
)
from toolspan.formats.source import Source, to_path
from toolspan.types.error_kinds import ErrorKind, kind_of
from toolspan.types.ids import CallId, SessionId, SourceLocation
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

    @property
    def shown_content(self) -> Raw:
        """The content as the user sees it."""
        return self.content if self.display_content == ABSENT else self.display_content


RECORD_DECODER = TypedDecoder(GeminiRecord)

_KNOWN_TYPES = frozenset({"user", "gemini", "info", "error", "warning", "session", "$set", "$rewindTo"})


def iter_messages(record: GeminiRecord) -> Iterator[GeminiRecord]:
    """Yield the messages in a line: the line itself, or those in a header or an update."""
    if record.type and record.id:
        yield record
    for holder in (record, record.updates):
        yield from (message for message in (holder.messages if holder else None) or () if message.id)


def unknown_keys(record: GeminiRecord, fields: dict[str, object]) -> Iterator[str]:
    """Yield the keys of a line that have not been observed before."""
    known = known_keys("gemini")
    if record.line_type.startswith("$"):
        yield from (key for key in fields if key not in ("$set", "$rewindTo"))
        return
    line_keys = known["message" if record.type else "header"]
    yield from (key for key in fields if key not in line_keys)
    calls = fields.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from (f"toolCalls.{key}" for key in call if key not in known["call"])


_ACTIVE, _COMPACTED, _ABANDONED = range(len(BRANCH_NAMES))
_ENDED_STATUSES = frozenset({"success", "error", "cancelled"})
_MESSAGE_LENGTH = 300
_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,9})\s*$", re.MULTILINE)
_SIGNAL = re.compile(r"^Signal: (\w+)\s*$", re.MULTILINE)
_BACKGROUND = re.compile(r"Command moved to background \(PID: (\d+)\)")
_DENIAL = re.compile(r"\A(?:Error: )?Tool execution denied by policy\b")
_BLOCKED = re.compile(r"\A(?:Error: )?Tool execution blocked: ")
_CONTEXT = "<session_context>"
"""The beginning of the first message, which the client writes itself."""
_FOLDER = re.compile(r"Workspace Directories:\*\*\n\s*- ([^\n]+)")
_ERROR_KINDS: tuple[tuple[ErrorKind, re.Pattern[str]], ...] = (
    ("unknown_tool", re.compile(r"\ATool \"[^\"]*\" not found")),
    ("invalid_input", re.compile(r"\A(?:Error: )?(?:params|The '[^']+' parameter) must\b")),
    (
        "no_match",
        re.compile(r"could not find (?:the string to replace|an exact match)|0 occurrences found", re.IGNORECASE),
    ),
    ("ambiguous_match", re.compile(r"expected \d+ occurrences? but found \d+", re.IGNORECASE)),
)
"""Error messages that only Gemini CLI writes."""
_VOICES: dict[str, MessageAuthor] = {"user": "prompt", "gemini": "text", "error": "error"}


class GeminiReader(TranscriptReader[GeminiRecord]):
    """Reader for a chat stored as a single JSON document or as JSON lines."""

    decoder = RECORD_DECODER

    def __init__(self, source: Source, *, document: bool = False) -> None:
        super().__init__(source, document_key="messages" if document else None)
        folders = to_path(source.name).parts[:-1]
        self.session_info: GeminiInfoCollector = GeminiInfoCollector(parent_session(folders))
        self.pairing: GeminiPairing = GeminiPairing(source, self.session_info)
        self._history = _ChatHistory()

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
        """Reread the file and yield the latest version of each message."""
        latest: dict[str, tuple[GeminiRecord, SourceLocation]] = {}
        for record, place in self.records():
            for message in iter_messages(record):
                first_place = latest[message.id or ""][1] if message.id in latest else place
                latest[message.id or ""] = (message, first_place)
        agent_id = self.session_info.agent_id
        for message, place in latest.values():
            texts: list[tuple[MessageAuthor, str]] = [
                ("thinking", "\n".join(part for part in (thought.subject, thought.description) if part))
                for thought in message.thoughts or ()
            ]
            if message.type != "user" or (text := prompt_text(message)) is None:
                texts.append((_VOICES.get(message.type, "system"), extract_text(message.shown_content)))
            else:
                texts.append(("injected" if text.startswith(_CONTEXT) else "prompt", text))
            for voice, text in texts:
                if text.strip():
                    yield Message(voice=voice, text=text, at=message.timestamp, agent_id=agent_id, place=place)

    def line_type(self, view: GeminiRecord) -> str:
        return view.line_type

    def find_drift(
        self, view: GeminiRecord, fields: dict[str, object], line: JsonLine, tools: Mapping[CallId, str]
    ) -> Iterator[tuple[str, str]]:
        if view.line_type not in _KNOWN_TYPES:
            yield "unknown_type", view.line_type or "no type"
        yield from (("unknown_field", key) for key in unknown_keys(view, fields))
        for message in iter_messages(view):
            for call in message.tool_calls or ():
                for path in input_drift(call.name or "", bytes(call.args)):
                    yield "unknown_input", f"{call.name}: {path}"


class _ChatHistory:
    """The messages that are part of the model's history at the end of the file."""

    def __init__(self) -> None:
        self._message_lines: dict[str, list[int]] = {}
        """Line numbers of each message in the current history, in order."""
        self._hidden_lines: dict[int, int] = {}

    def add(self, record: GeminiRecord, line: int) -> None:
        if record.rewind_to is not None:
            # An unknown message hides the whole history, as in the client.
            names = list(self._message_lines)
            start = names.index(record.rewind_to) if record.rewind_to in self._message_lines else 0
            self._hide(names[start:], _ABANDONED)
        if record.updates is not None and record.updates.messages is not None:
            remaining = {message.id for message in record.updates.messages}
            self._hide([name for name in self._message_lines if name not in remaining], _COMPACTED)
        for message in iter_messages(record):
            self._message_lines.setdefault(message.id or "", []).append(line)

    def branches(self) -> Branches:
        lines = sorted(self._hidden_lines)
        return Branches(array("L", lines), bytearray(self._hidden_lines[line] for line in lines))

    def _hide(self, message_ids: Sequence[str], mark: int) -> None:
        for message_id in message_ids:
            self._hidden_lines.update(dict.fromkeys(self._message_lines.pop(message_id), mark))


class GeminiInfoCollector:
    """Facts and token counts collected from one conversation."""

    def __init__(self, parent: str | None) -> None:
        self._parent = parent
        self._header = GeminiRecord()
        self._is_agent = parent is not None
        self._root: str | None = None
        self._models: dict[str, None] = {}
        self._folder: str | None = None
        self._first_prompt: str | None = None
        self._prompt_ids: dict[str, None] = {}
        self._compaction_count = 0
        self.requests: dict[str, RequestUsage] = {}
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
        return sum(self.message_tokens.values(), Tokens())

    def add_header(self, header: GeminiRecord) -> None:
        """Add the header, or an update to it."""
        known = self._header
        started = known.start_time  # a resume adds another header to the file
        for name in ("session_id", "start_time", "last_updated", "summary", "kind"):
            setattr(known, name, getattr(header, name) or getattr(known, name))
        known.start_time = started or known.start_time
        if header.directories != ABSENT:
            known.directories = header.directories
        if header.kind is not None:
            self._is_agent = header.kind == "subagent"
        if header.messages and header.session_id is None and self._root is not None:
            self._compaction_count += self._root not in {message.id for message in header.messages}

    def add_message(self, message: GeminiRecord) -> None:
        """Add a message; a repeated message counts only towards the raw sum."""
        prompt = prompt_text(message) if message.type == "user" else None
        if prompt is not None and prompt.startswith(_CONTEXT):
            self._folder = self._folder or _parse_folder(prompt)
            return  # many sessions have the same first message
        self._root = self._root or message.id
        if message.model:
            self._models[message.model] = None
        if prompt is not None:
            self.turn_id = message.id
            self._prompt_ids[message.id or ""] = None
            self._first_prompt = self._first_prompt or shorten_prompt(prompt)
        if message.tokens is not None:
            counts = message.tokens
            tokens = Tokens(
                input_tokens=sane_count(counts.input) + sane_count(counts.tool),
                output_tokens=sane_count(counts.output) + sane_count(counts.thoughts),
                cache_read_input_tokens=sane_count(counts.cached),
            )
            self.requests[message.id or ""] = RequestUsage(at=message.timestamp, model=message.model, tokens=tokens)

    def build_info(self, stem: str) -> SessionInfo:
        own_id = self._header.session_id
        directories = json_repair.decode_readable(bytes(self._header.directories))
        folder = directories[0] if isinstance(directories, list) and directories else None
        return SessionInfo(
            client="gemini",
            session_id=self.session_id or (stem if self._root else None),
            session_ids=tuple(filter(None, dict.fromkeys([self.session_id, own_id]))),
            agent_id=self.agent_id,
            root=self._root,
            models=tuple(self._models),
            cwd=folder if isinstance(folder, str) else self._folder,
            title=self._header.summary,
            first_prompt=self._first_prompt,
            prompts=len(self._prompt_ids),
            compactions=self._compaction_count,
            started_at=self._header.start_time,
            ended_at=self._header.last_updated,
        )


class GeminiCallBuilder(CallBuilderBase, gc=False):
    """Everything read so far about a call in a chat."""

    message: str | None = None


class GeminiPairing(CallPairing[GeminiCallBuilder]):
    """The calls in one chat; the client does not record which call started which subagent."""

    def __init__(self, source: Source, info: GeminiInfoCollector) -> None:
        super().__init__(source.name)
        self._body_store = GeminiBodyStore(source)
        self._info = info

    def add_message(self, message: GeminiRecord, at: int) -> None:
        """Add the calls in a message; a later record of a call replaces the earlier state."""
        for number, call in enumerate(message.tool_calls or ()):
            call_id = call.id or _missing_id(message, number)
            earlier = self._builders.get(call_id)
            session = self._info.session_id
            request = earlier.call if earlier else Call(
                id=call_id,
                tool=sys.intern(call.name or ""),
                at=at,
                requested_at=message.timestamp,
                target=describe_call(bytes(call.args)),
                session_id=SessionId(session) if session else None,
                agent_id=self._info.agent_id,
                message_id=message.id,
                prompt_id=self._info.turn_id,
                client="gemini",
                body_store=self._body_store,
            )  # fmt: skip
            text = result_text(call.result)
            result = None
            if call.status in _ENDED_STATUSES or text:
                exit_code = _last_match(_EXIT_CODE, text) if request.kind == "shell" else None
                background = _BACKGROUND.search(text) if request.kind == "shell" else None
                result = Result(
                    id=request.id,
                    tool=request.tool,
                    at=at,
                    finished_at=call.timestamp,
                    is_error={"success": False, "error": True}.get(call.status or ""),
                    exit_code=int(exit_code[1]) if exit_code else None,
                    background_task=background[1] if background else None,
                    body_store=self._body_store,
                )
            inference = infer_state(call, text)
            if result is not None and request.kind == "shell" and inference.state == "succeeded":
                inference = _infer_from_exit(result.exit_code, text) or inference
            if result is not None and result.exit_code is not None:
                output = parse_labelled_output(text)
                inference = refine_exit_status(inference, request, result.exit_code, output)
            beginning = parse_labelled_output(text) if request.kind == "shell" else text
            self._builders[call_id] = GeminiCallBuilder(request, result, inference, beginning[:_MESSAGE_LENGTH].strip())

    def _infer_state(self, builder: GeminiCallBuilder) -> StateInference:
        return builder.inference or _UNANSWERED

    def _build_span(self, builder: GeminiCallBuilder) -> Span:
        inference = self._infer_state(builder)
        line = SourceLocation.packed_line(builder.call.at)
        return Span(
            call=builder.call,
            result=builder.result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=(builder.message or None) if inference.kind else None,
            background=inference.state == "succeeded" and bool(builder.result and builder.result.background_task),
            branch=self._branches.branch_of(line) if self._branches else "active",
        )


def prompt_text(message: GeminiRecord) -> str | None:
    """Return the text of a user's message, or None if it only repeats the results of calls for the model."""
    if b'"functionResponse"' in bytes(message.shown_content)[:40]:
        return None
    return extract_text(message.shown_content)


def _parse_folder(context: str) -> str | None:
    folder = _FOLDER.search(context)
    return folder[1].strip() if folder else None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match: a command may print the same words before."""
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


def _infer_from_exit(exit_code: int | None, text: str) -> StateInference | None:
    """Return the state of a command that ended with a code or by a signal, which the client records as a success."""
    if exit_code:
        kind: ErrorKind = "command_not_found" if exit_code == 127 else "command_failed"
        return StateInference(state="failed", kind=kind, evidence=(Evidence("exit code", str(exit_code)),))
    signal = _last_match(_SIGNAL, text)
    if exit_code is None and signal is not None:
        return StateInference(state="failed", kind="command_failed", evidence=(Evidence("signal", signal[1]),))
    return None


def _missing_id(message: GeminiRecord, number: int) -> CallId:
    return CallId(f"#{message.id}.{number}")


_UNANSWERED = StateInference(state="never_answered", evidence=(Evidence("no result"),))


def infer_state(call: GeminiCall, text: str) -> StateInference:
    """Infer the state of a call from its recorded status; `text` is the content sent to the model."""
    status = Evidence("status", call.status)
    tool = call.name or ""
    if call.status == "cancelled":
        return StateInference(state="cancelled", kind="cancelled", evidence=(status,))
    if call.status == "error" or (call.status != "success" and "error" in next(_responses(call.result), {})):
        if denial := _DENIAL.match(text):
            return StateInference(state="denied", kind="rule_denied", evidence=(status, Evidence("policy", denial[0])))
        if _BLOCKED.match(text):
            return StateInference(state="blocked_by_hook", kind="hook_blocked", evidence=(status, Evidence("hook")))
        kind = next((kind for kind, pattern in _ERROR_KINDS if pattern.search(text)), None) or kind_of(tool, text)
        if kind == "unknown" and tool_kind(tool) == "shell":
            kind = "command_failed"
        timed_out = kind in ("command_timeout", "mcp_timeout")
        return StateInference(state="timed_out" if timed_out else "failed", kind=kind, evidence=(status,))
    if call.status == "success" or text:
        return StateInference(state="succeeded", evidence=(status,))
    return _UNANSWERED


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
    texts: list[str] = []
    for response in _responses(result):
        values = [response[key] for key in ("output", "error") if isinstance(response.get(key), str)]
        if not values and response:
            values = [json_repair.encode_document(response).decode("utf-8", "replace")]
        texts += values
    texts += [content_to_text([part]) for part in parts if isinstance(part, dict) and "functionResponse" not in part]
    return "\n".join(text for text in texts if text)


class GeminiBodyStore(LineBodyStore):
    """Reader for the inputs and results in one chat."""

    def raw_input(self, call: Call) -> bytes:
        return bytes(self._read_call(SourceLocation.unpack(self.name, call.at), call.id).args) or b"{}"

    def content(self, result: Result) -> Any:
        return json_repair.decode_readable(bytes(self._read_call(result.place, result.id).result))

    def text(self, result: Result) -> str:
        """Return the content sent to the model as text."""
        return result_text(self._read_call(result.place, result.id).result)

    def structured(self, result: Result) -> object:
        """Return the displayed result as a type chosen by its shape."""
        return narrow_display(bytes(self._read_call(result.place, result.id).result_display))

    def _read_call(self, place: SourceLocation, call_id: CallId) -> GeminiCall:
        for message in iter_messages(self._reread(place, RECORD_DECODER)):
            for number, call in enumerate(message.tool_calls or ()):
                if (call.id or _missing_id(message, number)) == call_id:
                    return call
        raise missing_call_error(place, call_id)
