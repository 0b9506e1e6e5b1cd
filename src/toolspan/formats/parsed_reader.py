"""Read a transcript with a `RecordParser`: pairing, branches, messages, bodies and live following for its format.

Start at `ParsedReader._process`. `parsed_format.py` has the class that a format of this kind extends.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, structs

from toolspan.formats import json_repair
from toolspan.formats.base import ContentCollector, FileName, TranscriptContent
from toolspan.formats.decoding import DECODE_ERRORS, DecodedLine, TypedDecoder, content_to_text, decode_object
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.lines import LineBodyStore, TranscriptReader, missing_call_error
from toolspan.formats.pairing import Branches, CallBuilderBase, LiveCallPairing, StateInference, refine_exit_status
from toolspan.formats.record_parser import (
    Fields,
    RecordedAgent,
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedLink,
    RecordedMessage,
    RecordedRequest,
    RecordedResult,
    RecordedSession,
    RecordedStart,
    RecordedStop,
    ToolShape,
    texts_of,
)
from toolspan.formats.registry import parse_file_name
from toolspan.formats.source import Source
from toolspan.types.error_kinds import ErrorKind, kind_of
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.session import Message, RequestUsage, SessionInfo, Tokens, shorten_prompt
from toolspan.types.span import (
    Call,
    DuplicateRecord,
    Event,
    Evidence,
    Hook,
    Notification,
    Permission,
    Result,
    Span,
)
from toolspan.types.state import State
from toolspan.types.tool_kinds import tool_kind

if TYPE_CHECKING:
    from toolspan.formats.parsed_format import ParsedFormat

_MESSAGE_LENGTH = 300
_SUBJECT_LENGTH = 160
_SUBJECT_KEYS = (
    "command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "prompt", "description", "question",
    "questions", "title", "name", "tool",
)  # fmt: skip
"""Input keys that identify the subject of a call, most specific first."""
_TIMEOUT_KINDS: frozenset[ErrorKind] = frozenset({"command_timeout", "mcp_timeout"})


R = TypeVar("R", RecordedCall, RecordedResult)


class JsonRecord(Struct, gc=False):
    """A record whose fields are not declared."""

    fields: Fields


class _RecordDecoder(TypedDecoder[JsonRecord]):
    """Decoder for lines that are any JSON object."""

    def __init__(self) -> None:
        super().__init__(JsonRecord)
        self._objects = msgspec.json.Decoder(Fields)
        self.decode_typed = lambda data, /: JsonRecord(self._objects.decode(data))

    def decode_many(
        self, data: bytes | bytearray, start: int = 0, stop: int | None = None
    ) -> tuple[list[JsonRecord], list[int]] | None:
        """Return None: each line is decoded separately, because its fields are decoded completely anyway."""
        return None

    def decode(self, data: bytes) -> DecodedLine[JsonRecord]:
        """Decode one line."""
        try:
            return DecodedLine(JsonRecord(self._objects.decode(data)), ())
        except DECODE_ERRORS:
            return DecodedLine(JsonRecord(decode_object(data)), ())

    def encode(self, view: JsonRecord, data: bytes) -> bytes:
        """Encode a record."""
        return json_repair.encode_document(decode_object(data) | view.fields)


_DECODER = _RecordDecoder()


class ParsedReader(TranscriptReader[JsonRecord]):
    """Reader for a transcript whose records a `RecordParser` understands."""

    decoder = _DECODER
    pairing: ParsedPairing
    session_info: ParsedInfo

    def __init__(self, source: Source, transcript_format: ParsedFormat, *, document_key: str | None = None) -> None:
        super().__init__(source, document_key=document_key, nested_key=transcript_format.nested_key)
        self.format = transcript_format
        self.parser = transcript_format.make_parser()
        name = parse_file_name(source.name)
        self.session_info = ParsedInfo(transcript_format.name, name)
        self.pairing = ParsedPairing(source, transcript_format, self.session_info)
        self._links: list[tuple[int, str, str | None]] = []

    @property
    def role(self) -> str | None:
        return self.session_info.session.role

    def _process(self, decoded: Sequence[JsonRecord], places: Sequence[int], number: int) -> None:
        for line, (record, at) in enumerate(zip(decoded, places, strict=True), number):
            self.parser.offset = SourceLocation.packed_offset(at)
            for item in self.parser.parse(record.fields):
                if isinstance(item, RecordedLink):
                    self._links.append((line, item.id, item.parent))
                self.session_info.add(item)
                self.pairing.add(item, at)

    def _process_document_fields(self, fields: JsonRecord) -> None:
        for item in self.parser.parse(fields.fields):
            self.session_info.add(item)

    def branches(self) -> Branches:
        """Return the branch of every line: only the chain from the last linked record to the root is active."""
        parents = {name: parent for _, name, parent in self._links}
        active: set[str] = set()
        current = self._links[-1][1] if self._links else None
        while current is not None and current not in active:
            active.add(current)
            current = parents.get(current)
        lines = [line for line, name, _ in self._links if name not in active]
        return Branches(array("L", lines), bytearray(b"\x02" * len(lines)))

    def messages(self) -> Iterator[Message]:
        parser = self.format.make_parser()
        for record, place in self.records():
            parser.offset = place.offset
            for item in parser.parse(record.fields):
                if isinstance(item, RecordedMessage) and item.text.strip():
                    yield self.session_info.make_message(item, place)

    def read_content(self, info: SessionInfo, spans: Sequence[Span]) -> TranscriptContent:
        """Return calls and messages, with the lines of subagents that the file of their session contains."""
        content = super().read_content(info, spans)
        if info.agent_id is not None:
            return content
        items = [(message.agent_id, message.place) for message in content.messages]
        calls = [(span.call.agent_id, span.call.place) for span in content.spans]
        keys = {place.line: agent for agent, place in (*items, *calls) if agent is not None and place is not None}
        return structs.replace(content, inline_agent_keys=keys)

    def line_type(self, view: JsonRecord) -> str:
        return self.parser.record_type(view.fields)

    def find_drift(
        self, view: JsonRecord, fields: dict[str, object], line: JsonLine, tools: Mapping[CallId, str]
    ) -> Iterator[tuple[str, str]]:
        kind = self.line_type(view)
        if self.parser.known_types and kind not in self.parser.known_types:
            yield "unknown_type", kind or "no type"


class ParsedInfo:
    """Facts and token counts of one session."""

    def __init__(self, client: str, name: FileName) -> None:
        self._client = client
        self._name = name
        self.session = RecordedSession()
        self._ids: dict[str, None] = {}
        self._versions: dict[str, None] = {}
        self._models: dict[str, None] = {}
        self._root: str | None = None
        self._first_prompt: str | None = None
        self._prompts = 0
        self._compactions = 0
        self._ended_at: str | None = None
        self.requests: dict[str, RequestUsage] = {}
        self.prompt_id: str | None = None

    @property
    def session_id(self) -> str | None:
        """The session to which the file belongs."""
        return (self._name.session_id if self._name.role == "agent" else None) or self.session.id

    @property
    def agent_id(self) -> str | None:
        """The subagent that wrote the file."""
        return self.session.agent_id or (self._name.agent_id if self._name.role == "agent" else None)

    @property
    def message_tokens(self) -> dict[str, Tokens]:
        """Tokens by message."""
        return {name: usage.tokens for name, usage in self.requests.items()}

    @property
    def tokens(self) -> Tokens:
        return sum(self.message_tokens.values(), Tokens())

    def add(self, item: object) -> None:
        """Add the next part of a record."""
        match item:
            case RecordedSession():
                self._add_session(item)
            case RecordedLink():
                self._root = self._root or item.id
            case RecordedCompaction():
                self._compactions += 1
            case RecordedMessage(voice="prompt", agent_id=None) if item.text.strip():
                self._prompts += 1
                self.prompt_id = item.id or f"prompt-{self._prompts}"
                self._first_prompt = self._first_prompt or shorten_prompt(item.text)
            case RecordedRequest():
                if item.model:
                    self._models[item.model] = None
                self.requests[item.id] = RequestUsage(
                    at=item.at,
                    model=item.model,
                    tokens=item.tokens,
                    sidechain=item.agent_id is not None,
                    cost_usd=item.cost_usd or None,  # clients without a price record 0
                )
            case _:
                pass
        at = getattr(item, "at", None)
        if at is not None:
            self._ended_at = max(self._ended_at or at, at)
            self.session.started_at = self.session.started_at or at

    def _add_session(self, item: RecordedSession) -> None:
        known = self.session
        if item.version:
            self._versions[item.version] = None
        if item.id:
            self._ids[item.id] = None
        started_at = known.started_at
        for name in RecordedSession.__struct_fields__:
            setattr(known, name, getattr(item, name) or getattr(known, name))
        known.started_at = started_at or known.started_at

    def make_message(self, item: RecordedMessage, place: SourceLocation) -> Message:
        """Return a message at a location."""
        agent_id = item.agent_id or self.agent_id
        return Message(voice=item.voice, text=item.text, at=item.at, agent_id=agent_id, place=place)

    def build_info(self, stem: str) -> SessionInfo:
        known = self.session
        session_id = self.session_id or self._name.session_id or (stem if self._ended_at else None)
        return SessionInfo(
            client=self._client,
            session_id=session_id,
            session_ids=tuple(dict.fromkeys([name for name in (session_id, *self._ids) if name])),
            agent_id=self.agent_id,
            root=self._root,
            forked_from=known.forked_from,
            versions=tuple(self._versions),
            models=tuple(self._models),
            cwd=known.cwd,
            git_branch=known.git_branch,
            git_commit=known.git_commit,
            title=known.title,
            first_prompt=self._first_prompt,
            prompts=self._prompts,
            compactions=self._compactions,
            started_at=known.started_at,
            ended_at=self._ended_at,
        )


class ParsedCallBuilder(CallBuilderBase, gc=False):
    """Everything read so far about a call."""

    text: str = ""
    """The beginning of the result's text."""
    started: str | None = None
    """The evidence that the call was started."""
    events: tuple[Event, ...] = ()
    copies: tuple[DuplicateRecord, ...] = ()
    agent_id: str | None = None


class ParsedPairing(LiveCallPairing[ParsedCallBuilder]):
    """The calls in one transcript. Unless it is followed, a call without a result was never answered."""

    def __init__(self, source: Source, transcript_format: ParsedFormat, info: ParsedInfo) -> None:
        super().__init__(source.name)
        self.is_live = False
        self._format = transcript_format
        self._info = info
        self._body_store = ParsedBodyStore(source, transcript_format)
        self._open_ids: dict[CallId, None] = {}
        self._tools = transcript_format.tools()

    def add(self, item: object, at: int) -> None:
        """Add the next part of a record at a packed location."""
        match item:
            case RecordedCall():
                self._add_call(item, at)
            case RecordedResult():
                self._add_result(item, at)
            case RecordedStop():
                self._stop_calls(item)
            case RecordedStart(id=name) if builder := self._builders.get(CallId(name)):
                builder.started = item.evidence
                self._mark_id_changed(builder.call.id)
            case RecordedEvent(id=name) if builder := self._builders.get(CallId(name)):
                builder.events += (_make_event(item, self._location_of(at)),)
                self._mark_id_changed(builder.call.id)
            case RecordedAgent(call=name, agent_id=agent, role=role):
                self._starters[agent] = name
                if role:
                    self.agent_types[name] = role
                if builder := self._builders.get(CallId(name)):
                    builder.agent_id = agent
                    self._mark_id_changed(builder.call.id)
            case RecordedMessage(voice="prompt", agent_id=None) if self._open_ids:
                self._mark_abandoned(self._open_ids)
                self._open_ids.clear()
            case _:
                pass

    def _add_call(self, item: RecordedCall, at: int) -> None:
        call_id = CallId(item.id)
        earlier = self._builders.get(call_id)
        if earlier is not None and earlier.call.at:
            earlier.copies += (DuplicateRecord("call", self._location_of(at)),)
            self._mark_id_changed(call_id)
            return
        session = self._info.session_id
        call = Call(
            id=call_id,
            tool=sys.intern(item.tool),
            at=at,
            requested_at=item.at,
            target=describe_arguments(item.arguments, self._tools.get(item.tool)),
            session_id=SessionId(session) if session else None,
            agent_id=item.agent_id or self._info.agent_id,
            message_id=item.batch,
            prompt_id=self._info.prompt_id,
            parent_call=CallId(item.parent_call) if item.parent_call else None,
            client=self._format.name,
            body_store=self._body_store,
        )
        builder = ParsedCallBuilder(call)
        if earlier is not None:  # its result came first
            del self._builders[call_id]
            builder.result, builder.inference, builder.text = earlier.result, earlier.inference, earlier.text
        else:
            self._open_ids[call_id] = None
        self._builders[call_id] = builder
        self._mark_id_changed(call_id)

    def _add_result(self, item: RecordedResult, at: int) -> None:
        call_id = CallId(item.id)
        builder = self._builders.get(call_id)
        if builder is None:
            call = Call(id=call_id, tool="", at=0, requested_at=None, target=None, client=self._format.name,
                        body_store=self._body_store)  # fmt: skip
            builder = self._builders[call_id] = ParsedCallBuilder(call)
        elif builder.result is not None:
            builder.copies += (DuplicateRecord("result", self._location_of(at)),)
            self._mark_id_changed(call_id)
            return
        self._open_ids.pop(call_id, None)
        text = _result_text(item)
        builder.text = text[:_MESSAGE_LENGTH].strip()
        builder.inference = infer_state(builder.call, item, text, self._format.command_output)
        builder.result = Result(
            id=call_id,
            tool=builder.call.tool,
            at=at,
            finished_at=item.at,
            is_error=item.is_error,
            exit_code=item.exit_code,
            denial_kind=item.denial_kind,
            truncated=item.truncated,
            persisted_path=item.persisted_path,
            background_task=item.background_task,
            reported_ms=item.reported_ms,
            trusts_reported=item.trusts_reported,
            body_store=self._body_store,
        )
        self._mark_id_changed(call_id)

    def _stop_calls(self, item: RecordedStop) -> None:
        for name in list(self._open_ids) if item.calls is None else map(CallId, item.calls):
            builder = self._builders.get(name)
            if builder is None or builder.result is not None:
                continue
            if item.calls is None and item.agent_id is not None and builder.call.agent_id != item.agent_id:
                continue
            builder.inference = item.outcome
            self._open_ids.pop(name, None)
            self._mark_id_changed(name)

    def _infer_state(self, builder: ParsedCallBuilder) -> StateInference:
        if not builder.call.at:
            kind = builder.inference.kind if builder.inference else None
            return StateInference(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if builder.inference is not None:
            return builder.inference
        inference = StateInference(state="never_answered", evidence=(Evidence("no result"),))
        if not self.is_live or not self._is_open(builder, inference):
            return inference
        if builder.started or builder.call.id in self._started_ids:
            return StateInference(state="running", evidence=(Evidence(builder.started or "progress"),))
        last = builder.events[-1] if builder.events else None
        if isinstance(last, Permission) and last.decision == "ask":
            return StateInference(state="awaiting_permission", evidence=(Evidence("approval asked"),))
        return StateInference(state="requested", evidence=(Evidence("no result yet"),))

    def _build_span(self, builder: ParsedCallBuilder) -> Span:
        inference = self._infer_state(builder)
        line = SourceLocation.packed_line(builder.call.at)
        branch = self._branches.branch_of(line) if self._branches and builder.call.at else "active"
        return Span(
            call=builder.call,
            result=builder.result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=(builder.text or None) if inference.kind else None,
            events=builder.events,
            background=bool(builder.result and builder.result.background_task) and inference.state == "succeeded",
            ambiguous=inference.ambiguous,
            synthetic=inference.synthetic,
            branch=branch,
            agent=builder.agent_id,
            copies=builder.copies,
        )


def infer_state(call: Call, item: RecordedResult, text: str, command_output: Callable[[str], str]) -> StateInference:
    """Infer a state from the parser's outcome, else from the exit code, else from the error flag."""
    if item.outcome is not None:
        inference = item.outcome
    elif item.exit_code:
        kind: ErrorKind = "command_not_found" if item.exit_code == 127 else "command_failed"
        inference = StateInference(state="failed", kind=kind, evidence=(Evidence("exit code", str(item.exit_code)),))
    elif item.is_error:
        kind = kind_of(call.tool, text)
        kind = "command_failed" if kind == "unknown" and tool_kind(call.tool) == "shell" else kind
        state: State = "timed_out" if kind in _TIMEOUT_KINDS else "failed"
        inference = StateInference(state=state, kind=kind, evidence=(Evidence("error flag", "true"),))
    else:
        rule = "exit code" if item.exit_code == 0 else "no error"
        return StateInference(state="succeeded", evidence=(Evidence(rule),))
    return refine_exit_status(inference, call, item.exit_code, command_output(text)) if item.exit_code else inference


def describe_arguments(arguments: object, shape: ToolShape | None = None) -> str | None:
    """Return the subject of a call, shortened: a command, path, pattern, URL or question."""
    if not isinstance(arguments, dict):
        return None
    if shape is not None and shape.names:
        arguments = shape.rename(arguments)
    for key in _SUBJECT_KEYS:
        value = arguments.get(key)
        if isinstance(value, list) and value:
            value = value[0].get("question") if isinstance(value[0], dict) else value[0]
        if isinstance(value, str) and value.strip():
            return value.strip()[:_SUBJECT_LENGTH]
    return None


def _result_text(item: RecordedResult) -> str:
    return item.text if item.text is not None else texts_of(item.content) or content_to_text(item.content)


def _make_event(item: RecordedEvent, place: SourceLocation) -> Event:
    if item.kind == "permission":
        return Permission(place=place, **item.values)
    if item.kind == "hook":
        return Hook(place=place, **item.values)
    return Notification(place=place, **item.values)


class ParsedBodyStore(LineBodyStore):
    """Reader for the inputs and results in one transcript, which parses their records again."""

    def __init__(self, source: Source, transcript_format: ParsedFormat) -> None:
        super().__init__(source)
        self._format = transcript_format

    def raw_input(self, call: Call) -> bytes:
        if not call.at:
            return b"{}"
        place = SourceLocation.unpack(self.name, call.at)
        calls = [item for item in self._items(place) if isinstance(item, RecordedCall)]
        arguments = _find_by_id(calls, call.id, place).arguments
        return b"{}" if arguments is None else json_repair.encode_document(arguments)

    def content(self, result: Result) -> Any:
        return self._read_result(result).content

    def text(self, result: Result) -> str:
        """Return the content sent to the model as text."""
        return _result_text(self._read_result(result))

    def structured(self, result: Result) -> object:
        """Return the structured result as decoded, because its shape is not declared."""
        return self._format.convert_result(result.tool, self._read_result(result).structured)

    def _read_result(self, result: Result) -> RecordedResult:
        results = [item for item in self._items(result.place) if isinstance(item, RecordedResult)]
        return _find_by_id(results, result.id, result.place)

    def _items(self, place: SourceLocation) -> Iterator[object]:
        parser = self._format.make_parser()
        parser.offset = place.offset
        return parser.parse(self._reread(place, _DECODER).fields)


def _find_by_id(items: Sequence[R], name: str, place: SourceLocation) -> R:
    """Return the call or result with an id. A parser may need earlier records to make ids, unless there is only one."""
    found = items if len(items) == 1 else [item for item in items if item.id == name]
    if not found:
        raise missing_call_error(place, name)
    return found[0]


class ParsedContent(ContentCollector):
    """The messages of a growing file."""

    def __init__(self, reader: ParsedReader) -> None:
        super().__init__()
        self._info = reader.session_info
        self._parser = reader.format.make_parser()
        self._reported: dict[str, RequestUsage] = {}

    def add(self, record: JsonRecord, place: SourceLocation) -> None:
        self._parser.offset = place.offset
        for item in self._parser.parse(record.fields):
            if isinstance(item, RecordedMessage) and item.text.strip():
                self.messages.append(self._info.make_message(item, place))
            if isinstance(item, RecordedMessage | RecordedCall) and item.agent_id is not None:
                self.inline_agent_keys[place.line] = item.agent_id

    def changed_requests(self) -> dict[str, RequestUsage]:
        changed = {name: usage for name, usage in self._info.requests.items() if self._reported.get(name) != usage}
        self._reported |= changed
        return changed
