"""Pair the calls in a rollout with their outputs and end events, by call id, in one pass.

A call that writes to a process refers to the call that started the process. Calls made by a script
become events of the script's call. Start at `RolloutPairing.add`.
"""

from __future__ import annotations

import sys
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from toolspan.formats import json_repair
from toolspan.formats.codex import records, state
from toolspan.formats.codex.calls import CommandOutput, call_arguments, parse_output, read_call_subject
from toolspan.formats.codex.records import ABSENT, RECORD_DECODER, SELF_CONTAINED_TYPES, RolloutItem, RolloutRecord
from toolspan.formats.codex.session_info import RolloutThread
from toolspan.formats.codex.state import EndEvent
from toolspan.formats.decoding import extract_text
from toolspan.formats.lines import LineBodyStore, missing_call_error
from toolspan.formats.pairing import PROCESS_RULE, CallBuilderBase, CallPairing, StateInference, refine_exit_status
from toolspan.formats.source import Source
from toolspan.types.error_kinds import denial_message
from toolspan.types.ids import CallId, SessionId, SourceLocation
from toolspan.types.span import (
    POLL,
    Branch,
    Call,
    DuplicateRecord,
    Event,
    Evidence,
    Hook,
    Note,
    Notification,
    Permission,
    Progress,
    Result,
    Span,
)

MISSING_ID_PREFIX = "#"
"""The prefix of ids that toolspan assigns to calls without one."""


class RolloutBodyStore(LineBodyStore):
    """Reader for the inputs and results in one rollout."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.end_locations: dict[CallId, int] = {}
        """Packed locations of the events that report the end of a call, by call id."""

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON, with any other text encoded as a JSON string."""
        if call.place is None:
            return b"{}"
        name = None if call.id.startswith(MISSING_ID_PREFIX) else call.id
        items = records.extract_calls(self._reread(call.place, RECORD_DECODER).item)
        item = next((item for item in items if (item.call_id or item.id) == name), None)
        if item is None:
            raise missing_call_error(call.place, call.id)
        return call_arguments(item)

    def content(self, result: Result) -> Any:
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
        place = SourceLocation.unpack(self.name, at) if at is not None else None
        event = self._reread(place, RECORD_DECODER).item if place is not None else None
        return narrow_result(result.tool, self._read_output(result), event)

    def _read_output(self, result: Result) -> Raw:
        item = self._reread(result.place, RECORD_DECODER).item
        if item.type in SELF_CONTAINED_TYPES:
            return item.result if item.result != ABSENT else item.action
        names = {item.call_id, item.tool_call_id, item.id} - {None}
        if result.id not in names and names:
            raise missing_call_error(result.place, result.id)
        return item_output(item)


def item_output(item: RolloutItem) -> Raw:
    """Return the output of an item, regardless of the key that holds it."""
    for raw in (item.output, item.result, item.tools, item.content):
        if raw != ABSENT:
            return raw
    return ABSENT


_OUTPUT_TEXT_LIMIT = 300
_BACKGROUND_OUTPUT_LIMIT = 4_000
_ABORT_TAG = b"<turn_aborted>"
_HOOK_PREFIX = "blocked by PreToolUse hook: "
_SCRIPT_TOOLS = frozenset({"exec", "wait"})
"""Tools that run a script, whose own calls are recorded only as events."""


class RolloutCallBuilder(CallBuilderBase, gc=False):
    """Everything read so far about a call in a rollout."""

    output_text: str = ""
    """The beginning of the output, from which the error kind is inferred."""
    end_event: EndEvent | None = None
    agent_id: str | None = None
    abort_reason: str | None = None
    """The reason why the turn was aborted before the output."""
    runs_in_background: bool = False
    polls: Progress | None = None
    events: tuple[Event, ...] = ()
    copies: tuple[DuplicateRecord, ...] = ()


class RolloutPairing(CallPairing[RolloutCallBuilder]):
    """The calls in one rollout, paired with their outputs."""

    def __init__(self, source: Source, thread: RolloutThread) -> None:
        super().__init__(source.name)
        self._body_store = RolloutBodyStore(source)
        self._thread = thread
        self._open_calls: dict[CallId, RolloutCallBuilder] = {}
        """Calls without an output, in request order."""
        self._stopped_calls: list[RolloutCallBuilder] = []
        """Calls that were open when the turn was aborted."""
        self._early_ends: dict[str, EndEvent] = {}
        """End events that precede their calls."""
        self._batch_id: str | None = None
        self._calls_by_process: dict[str, CallId] = {}
        self._missing_id_counts: dict[str, int] = {}

    def add(self, record: RolloutRecord, at: int) -> None:
        """Add one record and its packed location."""
        item = record.item
        if record.is_event:
            self._add_event(item, record, at)
        elif record.type == "turn_context":
            self._batch_id = None
            self._stopped_calls.clear()
        elif item.is_context:
            self._batch_id = None
        elif item.type in records.OUTPUT_ITEM_TYPES or (item.tool_call_id is not None and item.role == "tool"):
            self._add_output(item, record, at)
        elif item.role == "user":
            self._batch_id = None
            if _ABORT_TAG in memoryview(item.content)[:200].tobytes():
                self._abort_turn("interrupted")
        elif item.role is None or item.tool_calls != ABSENT:
            for call_item in records.extract_calls(item):
                self._add_call(call_item, record, at)

    def _add_call(self, item: RolloutItem, record: RolloutRecord, at: int) -> None:
        call_id = item.call_id or CallId(item.id or self._make_missing_id())
        earlier = self._builders.get(call_id)
        if earlier is not None and earlier.call.at:
            earlier.copies += (DuplicateRecord("call", self._location_of(at)),)
            self._mark_changed(earlier)
            return
        thread = self._thread
        self._batch_id = self._batch_id or call_id
        subject = read_call_subject(item)
        turn = (item.passed.turn_id if item.passed else None) or thread.turn_id
        starter = self._calls_by_process.get(subject.process_id) if subject.process_id else None
        call = Call(
            id=call_id,
            tool=sys.intern(records.item_tool_name(item)),
            at=at,
            requested_at=record.timestamp,
            target=subject.summary,
            session_id=_make_session_id(thread.owner_session_id),
            agent_id=thread.agent_id,
            message_id=self._batch_id,
            prompt_id=thread.turn_id if turn == thread.turn_id else turn,
            parent_call=starter,
            continues=starter,
            client="codex",
            body_store=self._body_store,
        )
        builder = RolloutCallBuilder(call)
        if earlier is not None:  # its output came first
            del self._builders[call_id]
            builder.result, builder.inference = earlier.result, earlier.inference
            builder.output_text, builder.copies = earlier.output_text, earlier.copies
        self._builders[call_id] = builder
        builder.end_event = self._early_ends.pop(call_id, None)
        if item.type in SELF_CONTAINED_TYPES:
            builder.result = Result(
                id=call.id,
                tool=call.tool,
                at=at,
                finished_at=None,
                is_error=None,
                trusts_reported=True,
                body_store=self._body_store,
            )
            succeeded = (item.status or "completed") in ("completed", "in_progress", "searching", "generating")
            builder.inference = StateInference(
                state="succeeded" if succeeded else "failed",
                kind=None if succeeded else "unknown",
                evidence=(Evidence("status", item.status),),
            )
        elif builder.result is None:
            self._open_calls[call_id] = builder
        self._mark_changed(builder)

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
        call = builder.call
        output = parse_output(item_output(item)) if item.tools == ABSENT else CommandOutput()
        builder.inference = state.infer_state(call.tool, output) if item.tools == ABSENT else state.RETURNED
        builder.output_text = output.text[:_OUTPUT_TEXT_LIMIT].strip()
        builder.result = Result(
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
        starter = self._builders.get(call.continues) if call.continues else None
        if starter is not None and (output.running is not None or output.exit_code is not None or output.script
                                    or builder.inference.state == "interrupted"):  # fmt: skip
            self._add_poll(starter, record.timestamp)
        if output.running is not None:
            builder.runs_in_background = True
            self._calls_by_process[output.running] = call.continues or call.id
        elif starter is not None and (output.exit_code is not None or output.script):
            # A process started by an earlier call has exited.
            failed = bool(output.exit_code) or output.script == "failed"
            summary = output.script
            if failed:
                evidence = (*builder.inference.evidence, Evidence(PROCESS_RULE, starter.call.target))
                builder.inference = replace(builder.inference, evidence=evidence)
            end, code = output.text[-_BACKGROUND_OUTPUT_LIMIT:] if failed else None, output.exit_code
            self._add_process_end(starter, record, at, failed=failed, code=code, summary=summary, output=end)
        if call.kind == "agent":
            builder.agent_id = state.spawned_agent_id(builder.output_text)
            if builder.agent_id is not None:
                self._starters[builder.agent_id] = call.id
        if builder.inference.state == "blocked_by_hook":
            _, _, reason = builder.output_text.partition(_HOOK_PREFIX)
            hook = Hook(
                point="PreToolUse",
                name="PreToolUse",
                outcome="blocked",
                text=reason or None,
                at=record.timestamp,
                place=self._location_of(at),
            )
            builder.events += (hook,)
        self._mark_changed(builder)

    def _add_poll(self, starter: RolloutCallBuilder, at: str | None) -> None:
        polls = starter.polls or Progress(kind=POLL, count=0, first_at=at, last_at=at)
        starter.polls = replace(polls, count=polls.count + 1, last_at=at)
        self._mark_changed(starter)

    def _add_process_end(
        self,
        starter: RolloutCallBuilder,
        record: RolloutRecord,
        at: int,
        *,
        failed: bool,
        code: int | None,
        summary: str | None = None,
        output: str | None = None,
    ) -> None:
        notification = Notification(
            task_id=starter.result.background_task if starter.result else None,
            status="failed" if failed else "completed",
            summary=f"exit code {code}" if code is not None else summary,
            output=output,
            at=record.timestamp,
            place=self._location_of(at),
        )
        starter.events += (notification,)
        self._mark_changed(starter)

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
            client="codex",
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
        elif call_end := state.parse_end_event(item):
            call_id, end_event = call_end
            builder = self._builders.get(call_id)
            open_calls = reversed(self._open_calls.values())
            script = next((open_call for open_call in open_calls if open_call.call.tool in _SCRIPT_TOOLS), None)
            if builder is not None:
                self._apply_end_event(builder, end_event, item, record, at)
            elif script is not None:  # which may have made the call
                text, place = state.describe_inner_call(item), self._location_of(at)
                script.events += (Note(kind="inner_call", text=text, at=record.timestamp, place=place),)
                self._mark_changed(script)
            else:
                self._early_ends[call_id] = end_event

    def _abort_turn(self, reason: str) -> None:
        """Record the end of a turn, after which open calls can no longer get an output."""
        self._stopped_calls += self._open_calls.values()
        # The abort is recorded first as a message, then as an event with the reason.
        for builder in self._stopped_calls:
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
        builder = self._builders.get(item.call_id or CallId(item.id or ""))
        if builder is None:
            return
        decision, reason = extract_text(item.decision), extract_text(item.reason)
        permission = Permission(decision=decision or "ask", reason=reason or None, place=self._location_of(at))
        builder.events += (permission,)
        self._mark_changed(builder)
        if decision in ("denied", "abort", "timed_out"):
            timed_out = decision == "timed_out"
            builder.end_event = EndEvent(event_name=item.type, declined=not timed_out, timed_out=timed_out)

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
            self._starters[agent] = builder.call.id
        if builder.runs_in_background:
            self._add_process_end(builder, record, at, failed=end_event.ok is False, code=end_event.exit_code)
        else:
            builder.end_event = end_event

    def _build_span(self, builder: RolloutCallBuilder) -> Span:
        inference = self._infer_state(builder)
        call, result, end_event = builder.call, builder.result, builder.end_event
        if result is not None and result.reported_ms is None and end_event is not None:
            result = replace(result, reported_ms=end_event.duration_ms)
        text = builder.output_text or (end_event.text if end_event else None)
        branch: Branch = "active"
        if self._branches is not None and call.at:
            branch = self._branches.branch_of(SourceLocation.packed_line(call.at))
        return Span(
            call=call,
            result=result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=denial_message(text or "") if inference.kind is not None else None,
            events=(*builder.events, builder.polls) if builder.polls else builder.events,
            background=builder.runs_in_background and inference.state == "succeeded",
            synthetic=inference.synthetic,
            branch=branch,
            agent=builder.agent_id,
            copies=builder.copies,
        )

    def _infer_state(self, builder: RolloutCallBuilder) -> StateInference:
        inference, end_event = builder.inference, builder.end_event
        if not builder.call.at:
            kind = inference.kind if inference else None
            return StateInference(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if inference is None:
            return state.infer_unanswered(end_event, builder.abort_reason)
        code = builder.result.exit_code if builder.result else None
        if end_event is not None:
            inference = state.apply_end_event(builder.call.tool, inference, end_event, builder.output_text)
            code = code if code is not None else end_event.exit_code
        return refine_exit_status(inference, builder.call, code, builder.output_text) if code else inference

    def _make_missing_id(self) -> str:
        """Return an id for an item without one, made from its thread and a number so that copies in forks match."""
        owner = self._thread.owner_id or ""
        number = self._missing_id_counts.get(owner, 0)
        self._missing_id_counts[owner] = number + 1
        return f"{MISSING_ID_PREFIX}{owner}.{number}"


def _make_session_id(name: str | None) -> SessionId | None:
    return SessionId(name) if name is not None else None
