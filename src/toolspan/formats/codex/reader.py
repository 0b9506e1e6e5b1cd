"""Read a rollout: lines, or one document from the first versions, become calls, facts and findings.

Start at `RolloutReader._process`, then `pairing.py` for calls and `state.py` for their states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Raw

from toolspan.formats import json_repair
from toolspan.formats.codex import records
from toolspan.formats.codex.calls import call_arguments
from toolspan.formats.codex.pairing import RolloutCallBuilder, RolloutPairing
from toolspan.formats.codex.records import ABSENT, RolloutItem, RolloutRecord, TurnItem
from toolspan.formats.codex.session_info import RolloutInfoCollector, RolloutThread, RolloutTurns, message_author
from toolspan.formats.decoding import content_to_text, extract_text
from toolspan.formats.jsonl import JsonLine
from toolspan.formats.lines import TranscriptReader
from toolspan.formats.pairing import Branches, LiveCallPairing, StateInference
from toolspan.formats.source import Source
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import Evidence, Permission

_BEGIN_EVENTS = frozenset({"exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin"})


class RolloutReader(TranscriptReader[RolloutRecord]):
    """Reader for the lines of a rollout."""

    decoder = records.RECORD_DECODER
    pairing: RolloutPairing
    session_info: RolloutInfoCollector

    def __init__(self, source: Source, *, document: bool = False) -> None:
        super().__init__(source, document_key="items" if document else None)
        self.thread = RolloutThread()
        self.pairing = RolloutPairing(source, self.thread)
        self.session_info = RolloutInfoCollector(self.thread)
        self._turns = RolloutTurns()

    @property
    def role(self) -> str | None:
        return self.thread.role

    def branches(self) -> Branches:
        return self._turns.branches()

    def _process(self, decoded: Sequence[RolloutRecord], places: Sequence[int], number: int) -> None:
        for line, (record, at) in enumerate(zip(decoded, places, strict=True), number):
            self.thread.add(record)
            self.session_info.add(record)
            self._turns.add(record, line)
            self.pairing.add(record, at)

    def _process_document_fields(self, fields: RolloutRecord) -> None:
        if fields.session != ABSENT:
            header = records.decode_record(bytes(fields.session)).entry
            self.thread.add(header)
            self.session_info.add(header)

    def messages(self) -> Iterator[Message]:
        return read_rollout_messages(self.records())

    def messages_in(self, lines: Sequence[tuple[int, bytes]]) -> Iterator[Message]:
        return read_rollout_messages(
            (record, SourceLocation(self.source.name, 1, offset + start, length))
            for offset, data in lines
            for record, start, length in self._decode_documents(JsonLine(1, offset, len(data), data))
        )

    def line_type(self, view: RolloutRecord) -> str:
        return view.kind

    def find_drift(
        self, view: RolloutRecord, fields: dict[str, object], line: JsonLine, tools: Mapping[CallId, str]
    ) -> Iterator[tuple[str, str]]:
        from toolspan.formats.codex.results import input_drift

        if not view.is_known:
            yield "unknown_type", view.kind or "no type"
        yield from (("unknown_field", key) for key in records.unknown_keys(view, fields))
        for item in records.extract_calls(view.item):
            tool = records.item_tool_name(item)
            yield from (("unknown_input", f"{tool}: {path}") for path in input_drift(tool, call_arguments(item)))


class LiveRolloutPairing(RolloutPairing, LiveCallPairing[RolloutCallBuilder]):
    """Pairing for a growing rollout, with open states and change tracking."""

    def add(self, record: RolloutRecord, at: int) -> None:
        """Add one record and its packed location."""
        if record.is_event and record.item.type in _BEGIN_EVENTS and record.item.call_id:
            self.mark_started(record.item.call_id)
        super().add(record, at)

    def _mark_changed(self, builder: RolloutCallBuilder) -> None:
        self._mark_id_changed(builder.call.id)

    def _begin_turn(self) -> None:
        self._mark_abandoned(self._open_calls)
        super()._begin_turn()

    def _infer_state(self, builder: RolloutCallBuilder) -> StateInference:
        inference = super()._infer_state(builder)
        if not self._is_open(builder, inference):
            return inference
        if builder.call.id in self._started_ids or builder.end_event is not None:
            return StateInference(state="running", evidence=(Evidence("progress"),))
        if any(isinstance(event, Permission) and event.decision == "ask" for event in builder.events):
            return StateInference(state="awaiting_permission", evidence=(Evidence("approval asked"),))
        return StateInference(state="requested", evidence=(Evidence("no result yet"),))


_COMPARED_LENGTH = 200
"""The number of characters by which two messages are compared."""


def read_rollout_messages(records: Iterable[tuple[RolloutRecord, SourceLocation]]) -> Iterator[Message]:
    """Yield each message once, in file order; most are recorded both as an item and as an event."""
    thread = RolloutThread()
    unmatched: Counter[tuple[bool, MessageAuthor, str]] = Counter()
    for record, place in records:
        thread.add(record)
        for voice, text in _record_texts(record):
            beginning = text.strip()[:_COMPARED_LENGTH]
            if not beginning:
                continue
            if unmatched[not record.is_event, voice, beginning] > 0:
                unmatched[not record.is_event, voice, beginning] -= 1
                continue
            if voice in ("prompt", "text", "thinking", "interrupt", "summary"):
                unmatched[record.is_event, voice, beginning] += 1
            yield Message(voice=voice, text=text, at=record.timestamp, agent_id=thread.agent_id, place=place)


def _record_texts(record: RolloutRecord) -> Iterator[tuple[MessageAuthor, str]]:
    item = record.item
    if record.is_event:
        yield from _event_texts(item)
    elif record.type == "compacted":
        yield "summary", extract_text(item.message) or "Conversation compacted"
    elif item.type == "reasoning":
        for raw in (item.summary, item.content):
            parts = _decode_raw(raw)
            yield from (("thinking", content_to_text([part])) for part in (parts if isinstance(parts, list) else ()))
    elif item.role == "assistant":
        yield "text", extract_text(item.content)
    elif item.role not in (None, "tool"):
        text = extract_text(item.content)
        is_abort = text.lstrip().startswith("<turn_aborted>")
        yield message_author(item, text), "Turn aborted: interrupted" if is_abort else text
    elif item.type == "agent_message":
        yield "notification", extract_text(item.content)
    elif item.is_context:
        yield "injected", extract_text(item.output)


_EVENT_VOICES: dict[str, MessageAuthor] = {
    "agent_message": "text",
    "error": "error",
    "stream_error": "error",
    "warning": "system",
    "deprecation_notice": "system",
}
"""Authors of the events that carry only a message."""


def _event_texts(item: RolloutItem) -> Iterator[tuple[MessageAuthor, str]]:
    inner = item.done or TurnItem()
    match item.type, inner.type:
        case kind, _ if kind in _EVENT_VOICES:
            yield _EVENT_VOICES[kind], extract_text(item.message)
        case ("user_message", _) | ("item_completed", "UserMessage"):
            text = extract_text(item.message if item.type == "user_message" else inner.content)
            yield message_author(RolloutItem(role="user"), text), text
        case "agent_reasoning" | "agent_reasoning_raw_content", _:
            yield "thinking", extract_text(item.text)
        case "item_completed", "AgentMessage":
            yield "text", extract_text(inner.content)
        case "item_completed", "Plan":
            yield "text", extract_text(inner.text)
        case "task_complete" | "turn_complete", _ if item.error != ABSENT:
            error = _decode_raw(item.error)
            message = error.get("message") if isinstance(error, dict) else error
            yield "error", message if isinstance(message, str) else "The turn failed"
        case "turn_aborted", _:
            yield "interrupt", f"Turn aborted: {extract_text(item.reason) or 'interrupted'}"
        case "thread_rolled_back", _:
            yield "system", f"{item.num_turns or 0} turns taken back"
        case _:
            return


def _decode_raw(raw: Raw) -> object:
    """Decode a JSON value, or return None if it is absent or nested too deeply."""
    try:
        return json_repair.decode_document(bytes(raw))
    except ValueError:
        return None
