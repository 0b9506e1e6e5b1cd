"""Pair the calls in a rollout with their outputs and end events, by call id.

A call that writes to a process refers to the call that started the process. Calls made by a script
become events of the script's call. One pass, memory per call, no I/O. Start at
`RolloutPairing.add`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolspan.formats import json_repair
from toolspan.formats.codex import records
from toolspan.formats.codex.calls import CommandOutput, call_arguments, parse_output, read_call_subject
from toolspan.formats.codex.records import (
    ABSENT,
    OUTPUT_ITEM_TYPES,
    SELF_CONTAINED_TYPES,
    RolloutItem,
    RolloutRecord,
    extract_calls,
    item_tool_name,
)
from toolspan.formats.codex.session_info import RolloutThread
from toolspan.formats.codex.state import (
    RETURNED,
    EndEvent,
    apply_end_event,
    describe_inner_call,
    infer_state,
    infer_unanswered,
    parse_end_event,
    spawned_agent_id,
)
from toolspan.formats.decoding import extract_text
from toolspan.formats.lines import missing_call_error, reread_line
from toolspan.formats.pairing import Branches, StateInference
from toolspan.formats.source import Source
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.span import (
    Branch,
    Call,
    DuplicateRecord,
    Event,
    Evidence,
    Hook,
    Note,
    Notification,
    Permission,
    Result,
    Span,
)

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


MISSING_ID_PREFIX = "#"
"""The prefix of ids that toolspan assigns to calls without one."""


class RolloutBodyStore:
    """Reader for the inputs and results in one rollout."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.end_locations: dict[CallId, int] = {}
        """Packed locations of the events that report the end of a call, by call id."""

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON, with any other text encoded as a JSON string."""
        if call.place is None:
            return b"{}"
        items = extract_calls(self._read_record(call.place).item)
        is_unnamed = call.id.startswith(MISSING_ID_PREFIX)
        names = (None,) if is_unnamed else (call.id,)
        item = next((item for item in items if (item.call_id or item.id) in names), None)
        if item is None:
            raise missing_call_error(call.place, call.id)
        return call_arguments(item)

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input, or an empty dict if it is not an object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type; models also call tools that belong to other clients."""
        from toolspan.formats.codex.results import narrow_input
        from toolspan.formats.registry import narrow_foreign_input
        from toolspan.types.inputs import UnknownInput

        data = self.raw_input(call)
        tool_input = narrow_input(call.tool, data)
        return narrow_foreign_input(call.tool, data) if isinstance(tool_input, UnknownInput) else tool_input

    def content(self, result: Result) -> Any:
        """Return the content sent to the model: a string or a list of blocks."""
        return json_repair.decode_readable(bytes(self._read_output(result)))

    def text(self, result: Result) -> str:
        """Return the content as text, without the JSON wrapper that some outputs have."""
        raw = self._read_output(result)
        text = extract_text(raw)
        return parse_output(raw).text if text.startswith('{"') else text

    def structured(self, result: Result) -> object:
        """Return the parsed output, supplemented by the call's end event."""
        from toolspan.formats.codex.results import narrow_result

        at = self.end_locations.get(result.id)
        event = self._read_record(SourceLocation.unpack(self.name, at)).item if at is not None else None
        return narrow_result(result.tool, self._read_output(result), event)

    def _read_output(self, result: Result) -> Raw:
        item = self._read_record(result.place).item
        if item.type in SELF_CONTAINED_TYPES:
            return item.result if item.result != ABSENT else item.action
        names = {item.call_id, item.tool_call_id, item.id} - {None}
        if result.id not in names and names:
            raise missing_call_error(result.place, result.id)
        return item_output(item)

    def _read_record(self, place: SourceLocation) -> RolloutRecord:
        return reread_line(self.source, place, records.decode_record).entry


def item_output(item: RolloutItem) -> Raw:
    """Return the output of an item, regardless of the key that holds it."""
    for raw in (item.output, item.result, item.tools, item.content):
        if raw != ABSENT:
            return raw
    return ABSENT


_OUTPUT_TEXT_LIMIT = 300
_ABORT_TAG = b"<turn_aborted>"
_HOOK_PREFIX = "blocked by PreToolUse hook: "
_SCRIPT_TOOLS = frozenset({"exec", "wait"})
"""Tools that run a script, whose own calls are recorded only as events."""


class RolloutCallBuilder(Struct, gc=False):
    """A call with everything read about it so far."""

    call: Call
    result: Result | None = None
    inference: StateInference | None = None
    output_text: str = ""
    """The beginning of the output, from which the error kind is inferred."""
    end_event: EndEvent | None = None
    agent_id: str | None = None
    abort_reason: str | None = None
    """The reason why the turn was aborted before the output."""
    runs_in_background: bool = False
    events: tuple[Event, ...] = ()
    copies: tuple[DuplicateRecord, ...] = ()


class RolloutPairing:
    """A builder of spans from the calls and outputs in one rollout."""

    def __init__(self, source: Source, thread: RolloutThread) -> None:
        self._body_store = RolloutBodyStore(source)
        self._thread = thread
        self._builders: dict[CallId, RolloutCallBuilder] = {}
        self._open_calls: dict[CallId, RolloutCallBuilder] = {}
        """Calls without an output, in request order."""
        self._stopped_calls: list[RolloutCallBuilder] = []
        """Calls that were open when the turn was aborted."""
        self._early_ends: dict[str, EndEvent] = {}
        """End events that precede their calls."""
        self._batch_id: str | None = None
        self._calls_by_process: dict[str, CallId] = {}
        self._missing_id_counts: dict[str, int] = {}
        self.agent_starters: dict[str, str] = {}
        """Ids of the calls that started subagents, by agent id."""

    def __len__(self) -> int:
        return len(self._builders)

    def add(self, record: RolloutRecord, at: int) -> None:
        """Add one record and its packed location."""
        item = record.item
        kind = item.type
        if record.is_event:
            self._add_event(item, record, at)
        elif record.type == "turn_context":
            self._batch_id = None
            self._stopped_calls.clear()
        elif kind in OUTPUT_ITEM_TYPES or (item.tool_call_id is not None and item.role == "tool"):
            self._add_output(item, record, at)
        elif kind == "message" or item.role is not None:
            self._add_message(item, record, at)
        else:
            self._add_calls(item, record, at)

    def _add_message(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        if item.role == "user":
            self._batch_id = None
            if _ABORT_TAG in memoryview(item.content)[:200].tobytes():
                self._abort_turn("interrupted")
        elif item.tool_calls != ABSENT:
            self._add_calls(item, record, at)

    def _add_calls(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        for call_item in extract_calls(item):
            self._add_call(call_item, record, at)

    def _add_call(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        call_id = item.call_id or CallId(item.id or self._make_missing_id())
        earlier_builder = self._builders.get(call_id)
        if earlier_builder is not None and earlier_builder.call.at:
            earlier_builder.copies += (DuplicateRecord("call", self._location_of(at)),)
            self._mark_changed(earlier_builder)
            return
        builder = RolloutCallBuilder(self._make_call(call_id, item, record, at))
        if earlier_builder is not None:  # its output came first
            del self._builders[call_id]
            builder.result, builder.output_text, builder.copies = (
                earlier_builder.result,
                earlier_builder.output_text,
                earlier_builder.copies,
            )
            builder.inference = earlier_builder.inference
        self._builders[call_id] = builder
        builder.end_event = self._early_ends.pop(call_id, None)
        if item.type in SELF_CONTAINED_TYPES:
            self._add_self_contained_result(builder, item, at)
        elif builder.result is None:
            self._open_calls[call_id] = builder
        self._mark_changed(builder)

    def _make_call(self, call_id: CallId, item: RolloutItem, record: RolloutRecord, at: int) -> Call:
        thread = self._thread
        if self._batch_id is None:
            self._batch_id = call_id
        call_summary = read_call_subject(item)
        turn = (item.passed.turn_id if item.passed else None) or thread.turn_id
        return Call(
            id=call_id,
            tool=sys.intern(item_tool_name(item)),
            at=at,
            requested_at=record.timestamp,
            target=call_summary.format_summary(),
            session_id=_make_session_id(thread.owner_session_id),
            agent_id=thread.agent_id,
            message_id=self._batch_id,
            prompt_id=thread.turn_id if turn == thread.turn_id else turn,
            parent_call=self._calls_by_process.get(call_summary.process_id) if call_summary.process_id else None,
            dialect="codex",
            body_store=self._body_store,
        )

    def _add_self_contained_result(self, builder: RolloutCallBuilder, item: RolloutItem, at: int) -> None:
        """Set the result of an item that carries its own outcome."""
        status = item.status or "completed"
        call = builder.call
        builder.result = Result(
            id=call.id,
            tool=call.tool,
            at=at,
            finished_at=None,
            is_error=None,
            trusts_reported=True,
            body_store=self._body_store,
        )
        if status in ("completed", "in_progress", "searching", "generating"):
            builder.inference = StateInference(state="succeeded", evidence=(Evidence("status", item.status),))
        else:
            builder.inference = StateInference(state="failed", kind="unknown", evidence=(Evidence("status", status),))

    def _add_output(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        self._batch_id = None
        call_id = item.call_id or item.tool_call_id or CallId(item.id or self._make_missing_id())
        builder = self._builders.get(call_id)
        if builder is None:
            builder = self._builders[call_id] = RolloutCallBuilder(self._make_unrecorded_call(call_id))
        elif builder.result is not None:
            builder.copies += (DuplicateRecord("result", self._location_of(at)),)
            self._mark_changed(builder)
            return
        self._open_calls.pop(call_id, None)
        output = parse_output(item_output(item)) if item.tools == ABSENT else CommandOutput()
        builder.inference = infer_state(builder.call.tool, output) if item.tools == ABSENT else RETURNED
        builder.output_text = output.text[:_OUTPUT_TEXT_LIMIT].strip()
        builder.result = self._make_result(builder.call, output, record, at)
        self._apply_output_effects(builder, output, record, at)
        self._mark_changed(builder)

    def _make_result(self, call: Call, output: CommandOutput, record: RolloutRecord, at: int) -> Result:
        return Result(
            id=call.id,
            tool=call.tool,
            at=at,
            finished_at=record.timestamp,
            is_error=None if output.flag is None else not output.flag,
            exit_code=output.exit_code,
            truncated=output.truncated,
            background_task=output.running,
            reported_ms=output.wall_ms,
            trusts_reported=True,
            body_store=self._body_store,
        )

    def _apply_output_effects(
        self, builder: RolloutCallBuilder, output: CommandOutput, record: RolloutRecord, at: int
    ) -> None:
        """Apply the effects of an output to other calls and to its own call's hooks."""
        call = builder.call
        if output.running is not None:
            builder.runs_in_background = True
            self._calls_by_process[output.running] = call.parent_call or call.id
        elif call.parent_call is not None and (output.exit_code is not None or output.script):
            starter = self._builders.get(call.parent_call)
            if starter is not None:
                starter.events += (self._make_notification(starter, output, record, at),)
                self._mark_changed(starter)
        if call.kind == "agent":
            builder.agent_id = spawned_agent_id(builder.output_text)
            if builder.agent_id is not None:
                self.agent_starters[builder.agent_id] = call.id
        if builder.inference is not None and builder.inference.state == "blocked_by_hook":
            builder.events += (self._make_hook_event(builder, record, at),)

    def _make_notification(
        self, starter: RolloutCallBuilder, output: CommandOutput, record: RolloutRecord, at: int
    ) -> Notification:
        """Return the notification that a process started by an earlier call has exited."""
        code = output.exit_code
        status = "failed" if code or output.script == "failed" else "completed"
        return Notification(
            task_id=starter.result.background_task if starter.result else None,
            status=status,
            summary=f"exit code {code}" if code is not None else output.script,
            at=record.timestamp,
            place=self._location_of(at),
        )

    def _make_hook_event(self, builder: RolloutCallBuilder, record: RolloutRecord, at: int) -> Hook:
        _, _, reason = builder.output_text.partition(_HOOK_PREFIX)
        return Hook(
            point="PreToolUse", name="PreToolUse", outcome="blocked", text=reason or None,
            at=record.timestamp, place=self._location_of(at),
        )  # fmt: skip

    def _make_unrecorded_call(self, call_id: CallId) -> Call:
        """Return a placeholder call for an output without a request."""
        return Call(
            id=call_id,
            tool="",
            at=0,
            requested_at=None,
            target=None,
            session_id=_make_session_id(self._thread.owner_session_id),
            agent_id=self._thread.agent_id,
            dialect="codex",
            body_store=self._body_store,
        )

    def _add_event(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        kind = item.type
        if kind in ("token_count", "agent_message", "agent_reasoning"):  # perf: the most frequent events
            return
        if kind == "turn_aborted":
            self._abort_turn(extract_text(item.reason) or "interrupted")
        elif kind in ("task_started", "turn_started"):
            self._begin_turn()
        elif kind == "user_message":
            self._batch_id = None
        elif kind.endswith("_approval_request") or kind in ("exec_approval", "patch_approval"):
            self._add_approval(item, at)
        else:
            self._add_end_event(item, record, at)

    def _abort_turn(self, reason: str) -> None:
        """Record the end of a turn, after which open calls can no longer get an output."""
        self._stopped_calls += self._open_calls.values()
        for (
            builder
        ) in self._stopped_calls:  # the abort is recorded first as a message, then as an event with the reason
            builder.abort_reason = reason
            self._mark_changed(builder)
        self._open_calls.clear()
        self._batch_id = None

    def _begin_turn(self) -> None:
        """Record the start of a turn, after which calls from the previous turn can no longer get an output."""
        self._open_calls.clear()
        self._stopped_calls.clear()
        self._batch_id = None

    def _mark_changed(self, builder: RolloutCallBuilder) -> None:
        """Record that a call has changed; overridden for growing files."""

    def _add_approval(self, item: RolloutItem, at: int) -> None:
        """Add an approval request, or the answer to one."""
        builder = self._builders.get(item.call_id or CallId(item.id or ""))
        if builder is None:
            return
        decision = extract_text(item.decision)
        reason = extract_text(item.reason)
        place = self._location_of(at)
        builder.events += (Permission(decision=decision or "ask", reason=reason or None, place=place),)
        self._mark_changed(builder)
        if decision in ("denied", "abort", "timed_out"):
            builder.end_event = EndEvent(
                event_name=item.type, declined=decision != "timed_out", timed_out=decision == "timed_out"
            )

    def _add_end_event(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        """Add an event that may report the end of a call."""
        call_end = parse_end_event(item)
        if call_end is None:
            return
        call_id, end_event = call_end
        builder = self._builders.get(call_id)
        if builder is not None:
            self._apply_end_event(builder, end_event, item, record, at)
            return
        script = self._find_script_call()
        if script is not None:
            self._add_inner_call(script, item, record, at)
        else:
            self._early_ends[call_id] = end_event

    def _apply_end_event(
        self, builder: RolloutCallBuilder, end_event: EndEvent, item: RolloutItem, record: RolloutRecord, at: int
    ) -> None:
        self._body_store.end_locations.setdefault(builder.call.id, at)
        self._mark_changed(builder)
        agent = item.new_thread_id
        if item.done is not None and item.done.receiver_thread_ids and item.done.tool == "spawnAgent":
            agent = item.done.receiver_thread_ids[0]
        if agent is not None:
            builder.agent_id = agent
            self.agent_starters[agent] = builder.call.id
        if not builder.runs_in_background:
            builder.end_event = end_event
            return
        status = "failed" if end_event.ok is False else "completed"
        code = end_event.exit_code
        builder.events += (
            Notification(
                task_id=builder.result.background_task if builder.result else None,
                status=status,
                summary=f"exit code {code}" if code is not None else None,
                at=record.timestamp,
                place=self._location_of(at),
            ),
        )

    def _find_script_call(self) -> RolloutCallBuilder | None:
        """Return the open script call that may have caused an event."""
        for builder in reversed(self._open_calls.values()):
            if builder.call.tool in _SCRIPT_TOOLS:
                return builder
        return None

    def _add_inner_call(self, builder: RolloutCallBuilder, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        text = describe_inner_call(item)
        place = self._location_of(at)
        builder.events += (Note(kind="inner_call", text=text, at=record.timestamp, place=place),)
        self._mark_changed(builder)

    def success_keys(self) -> list[str]:
        """Return a key for each successful call, shared with its copies in other files."""
        return [
            f"{builder.call.id} {builder.call.message_id}"
            for builder in self._builders.values()
            if self._infer_state(builder).state == "succeeded"
        ]

    def consume_spans(self, branches: Branches) -> Iterator[Span]:
        """Yield every call in request order, and free its memory; the file counts as complete."""
        other_branches = branches or None
        builders, self._builders = self._builders, {}
        self._open_calls = {}
        for call_id in list(builders):
            yield self._build_span(builders.pop(call_id), other_branches)

    def _build_span(self, builder: RolloutCallBuilder, branches: Branches | None) -> Span:
        """Return the span of a call; without `branches`, all lines count as active."""
        inference = self._infer_state(builder)
        result = builder.result
        if result is not None and result.reported_ms is None and builder.end_event is not None:
            result = replace(result, reported_ms=builder.end_event.duration_ms)
        text = builder.output_text or (builder.end_event.text if builder.end_event else None)
        is_failure = inference.kind is not None
        return Span(
            call=builder.call,
            result=result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=(text or None) if is_failure else None,
            events=builder.events,
            background=builder.runs_in_background and inference.state == "succeeded",
            synthetic=inference.synthetic,
            branch=self._branch_of(builder, branches),
            agent=builder.agent_id,
            copies=builder.copies,
        )

    @staticmethod
    def _branch_of(builder: RolloutCallBuilder, branches: Branches | None) -> Branch:
        if branches is None or not builder.call.at:
            return "active"
        return branches.branch_of(SourceLocation.packed_line(builder.call.at))

    def _infer_state(self, builder: RolloutCallBuilder) -> StateInference:
        inference, end_event = builder.inference, builder.end_event
        if not builder.call.at:
            kind = inference.kind if inference else None
            return StateInference(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if inference is None:
            return infer_unanswered(end_event, builder.abort_reason)
        if end_event is None:
            return inference
        return apply_end_event(builder.call.tool, inference, end_event, builder.output_text)

    def _make_missing_id(self) -> str:
        """Return an id for an item without one, made from its thread and a number so that copies in forks match."""
        owner = self._thread.owner_id or ""
        number = self._missing_id_counts.get(owner, 0)
        self._missing_id_counts[owner] = number + 1
        return f"{MISSING_ID_PREFIX}{owner}.{number}"

    def _location_of(self, at: int) -> SourceLocation:
        return SourceLocation.unpack(self._body_store.name, at)


def _make_session_id(name: str | None) -> SessionId | None:
    return SessionId(name) if name is not None else None
