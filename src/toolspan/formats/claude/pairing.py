"""Pair calls with results, by id alone.

Positions and parent links are not used, because results may come in any order, between calls from
the same message, several on one line, twice, or without a call. One pass, memory per call, no I/O.
Start at `Pairing.add` and `Pairing.consume_spans`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw, Struct

from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.records import (
    ABSENT,
    CALL_BLOCK_TYPES,
    LAUNCHED_STATUSES,
    Entry,
    MessageBlock,
    StructuredFacts,
    decode_permission_decision,
    find_agent_id,
)
from toolspan.formats.claude.side_records import InlineAgents, SideRecords
from toolspan.formats.claude.state import InferenceContext, ResultFacts, infer_state, refine_inference
from toolspan.formats.decoding import content_to_text, extract_text
from toolspan.formats.lines import missing_call_error, reread_line
from toolspan.formats.pairing import BRANCH_NAMES, Branches, StateInference
from toolspan.formats.source import Source
from toolspan.types.error_kinds import parse_exit_code, unwrap_error_text
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.span import Branch, Call, DuplicateRecord, Event, Evidence, Permission, Progress, Result, Span
from toolspan.types.tool_kinds import tool_kind, tools_of_kinds

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


class TranscriptBodyStore:
    """Reader for the inputs and results in one transcript."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON, or an empty object for an orphan result, whose input is not recorded."""
        if call.place is None:
            return b"{}"
        blocks = self._read_bodies(call.place).blocks
        unnamed = [block for block in blocks if not block.id and block.type in CALL_BLOCK_TYPES]
        block = next((b for b in blocks if b.id == call.id and b.id), _nth_unnamed_block(unnamed, call.id))
        if block is None:
            raise missing_call_error(call.place, call.id)
        return bytes(block.input) or b"{}"

    def arguments(self, call: Call) -> dict[str, object]:
        """Return the decoded input, or an empty dict if it is not an object."""
        from toolspan.types.inputs import decode_json_object

        return decode_json_object(self.raw_input(call))

    def typed_input(self, call: Call) -> ToolInput:
        """Return the input as its tool's type."""
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> Any:
        """Return the content sent to the model: a string or a list of blocks."""
        return self._block_content(self._read_bodies(result.place), result)

    def text(self, result: Result) -> str:
        """Return the content sent to the model as text."""
        return content_to_text(self.content(result))

    def structured(self, result: Result) -> object:
        """Return the structured result as its tool's type, parsed from the text if the client did not record it."""
        from toolspan.formats.claude.narrow import narrow_result, narrow_text_result

        bodies = self._read_bodies(result.place)
        if bodies.structured is None:
            return narrow_text_result(result.tool, content_to_text(self._block_content(bodies, result)))
        return narrow_result(result.tool, bodies.structured)

    def _block_content(self, bodies: records.EntryBodies, result: Result) -> Any:
        blocks = bodies.blocks
        unnamed = [b for b in blocks if b.type == "tool_result" and not b.tool_use_id]
        block = next((b for b in blocks if b.tool_use_id == result.id), _nth_unnamed_block(unnamed, result.id))
        if block is None:
            raise missing_call_error(result.place, result.id)
        return json_repair.decode_readable(bytes(block.content))

    def _read_bodies(self, place: SourceLocation) -> records.EntryBodies:
        return reread_line(self.source, place, records.decode_bodies)


def _nth_unnamed_block(unnamed: list[records.BlockBody], name: str) -> records.BlockBody | None:
    """Return the block for a generated id (`byte-OFFSET.NUMBER`), which pairing assigns to blocks without one."""
    number = name.rpartition(".")[2]
    if not name.startswith("byte-") or not number.isdecimal() or int(number) >= len(unnamed):
        return None
    return unnamed[int(number)]


_ERROR_START = re.compile(rb'"(?:<tool_use_error|\[|Error|result \()|\[\{"type":"text","text":"Error')
"""Beginnings of results that may be errors despite having no error flag."""
_BACKGROUND_START = re.compile(
    rb'"(?:Async agent launched|Command (?:running in background|was manually backgrounded'
    rb'|exceeded the assistant-mode))|\[\{"type":"text","text":"Async agent launched'
)
_SPILLED_START = re.compile(rb'"<persisted-output>')
_TAIL_BYTES = 400
_RESULT_TEXT_LIMIT = 4_000
_ERROR_TEXT_LIMIT = 300
_NO_STRUCTURED_FACTS = StructuredFacts()
_INFORMATIVE_START = re.compile(b"|".join(part.pattern for part in (_ERROR_START, _BACKGROUND_START, _SPILLED_START)))
"""Beginnings of results that may be more than plain successes."""
_STATUS_LINE_TOOLS = tools_of_kinds("shell", "agent") | {""}
"""Tools whose last line may state an exit code or an agent id; an unknown tool may be one of them."""
SUCCEEDED = infer_state(ResultFacts(tool="", text="", is_error=None))
"""The inference shared by all plain successes, compared by identity."""


class InferredResult(NamedTuple):
    """A result and its inferred state."""

    result: Result
    inference: StateInference
    error_text: str
    """The beginning of the error message without tags; empty for successes."""
    agent_id: str | None
    """The subagent that the call started."""


def parse_plain_success(call: Call, block: MessageBlock, entry: Entry, at: int) -> Result | None:
    """Return the result if it is a plain success, or None if it needs `parse_result`.

    perf: most results are plain successes, so this examines as little as possible.
    """
    if block.is_error or entry.tool_denial_kind or _INFORMATIVE_START.match(block.content):
        return None
    tool = call.tool
    if tool in _STATUS_LINE_TOOLS and _has_status_line(block):
        return None
    facts, reported = entry.structured, None
    if type(facts) is StructuredFacts:
        if facts.has_details:
            return None
        reported = facts.reported_ms
    return Result(
        id=call.id,
        tool=tool,
        at=at,
        finished_at=entry.timestamp,
        is_error=block.is_error,
        reported_ms=reported,
        body_store=call.body_store,
    )


def parse_result(call: Call, block: MessageBlock, entry: Entry, at: int) -> InferredResult:
    """Parse a result block and infer its state."""
    tool = call.tool
    content = block.content
    structured = entry.structured
    facts = structured if type(structured) is StructuredFacts else _NO_STRUCTURED_FACTS
    text = _relevant_text(tool, block)
    background = "task" if _BACKGROUND_START.match(content) else None
    if facts is not _NO_STRUCTURED_FACTS:
        background = _background_task(facts) or background
    inference, error_text, code = SUCCEEDED, "", None
    if text or block.is_error or entry.tool_denial_kind or facts.is_abnormal:
        result_facts = _collect_result_facts(tool, text, block, entry, facts, background)
        inference, error_text, code = (infer_state(result_facts), result_facts.text, result_facts.exit_code)
    persisted = facts.persisted_output_path
    if persisted is None and (text or _SPILLED_START.match(content)):
        persisted = _persisted_path(text or extract_text(content)[:_RESULT_TEXT_LIMIT])
    result = Result(
        id=call.id,
        tool=tool,
        at=at,
        finished_at=entry.timestamp,
        is_error=block.is_error,
        exit_code=code,
        denial_kind=entry.tool_denial_kind,
        truncated=inference.truncated or persisted is not None,
        persisted_path=persisted,
        background_task=background,
        reported_ms=facts.reported_ms,
        body_store=call.body_store,
    )
    agent = facts.agent_id or (find_agent_id(text) if text and tool_kind(tool) == "agent" else None)
    return InferredResult(result, inference, error_text[:_ERROR_TEXT_LIMIT] if inference.kind else "", agent)


def _collect_result_facts(
    tool: str, text: str, block: MessageBlock, entry: Entry, facts: StructuredFacts, background: str | None
) -> ResultFacts:
    plain_text = unwrap_error_text(text)
    return ResultFacts(
        tool=tool,
        text=plain_text[:_RESULT_TEXT_LIMIT],
        is_error=block.is_error,
        exit_code=parse_exit_code(plain_text),
        wrapped=text.lstrip().startswith("<tool_use_error>"),
        denial_kind=entry.tool_denial_kind,
        denial_source=_denial_source(entry) if entry.tool_denial_kind else None,
        structured=type(entry.structured) in (StructuredFacts, list),
        version=_parse_version(entry.version),
        interrupted=bool(facts.interrupted or facts.was_interrupted),
        timed_out=facts.timed_out_after_ms is not None,
        background=background is not None,
    )


def _denial_source(entry: Entry) -> str | None:
    decision = decode_permission_decision(entry.permission_decision)
    return decision.source if decision and decision.decision == "reject" else None


@lru_cache(maxsize=64)
def _parse_version(version: str | None) -> tuple[int, ...]:
    """Return a version as comparable numbers; empty if it is missing."""
    parts = (version or "").split(".")
    return tuple(int(part[:9]) for part in parts if part.isdecimal() and part.isascii())


def _relevant_text(tool: str, block: MessageBlock) -> str:
    """Return the text of a result if it can affect the state; other bodies stay undecoded."""
    if block.is_error or _ERROR_START.match(block.content):
        return extract_text(block.content)
    if tool in _STATUS_LINE_TOOLS and _has_status_line(block):
        return extract_text(block.content)
    return ""


def _has_status_line(block: MessageBlock) -> bool:
    """Return whether the last line may state an exit code or an agent id."""
    data = bytes(block.content)
    return data.find(b"[Exit code: ", -_TAIL_BYTES) >= 0 or data.find(b"agentId: ", -_TAIL_BYTES) >= 0


def _background_task(facts: StructuredFacts) -> str | None:
    """Return the id of the task that continues after the call has returned."""
    if facts.background_task_id:
        return facts.background_task_id
    if facts.status in LAUNCHED_STATUSES or facts.is_async:
        return facts.agent_id or facts.task_id or "agent"
    return None


def _persisted_path(text: str) -> str | None:
    """Return the path to which the client saved an output that was too long."""
    before, separator, after = text.partition("saved to")
    if not separator or len(before) > _ERROR_TEXT_LIMIT:
        return None
    return after.lstrip(": ").split("\n", 1)[0].strip().rstrip(".") or None


_INTERRUPT_PREFIX = "[Request interrupted by user"


class CallBuilder(Struct, gc=False):
    """A call with everything read about it so far."""

    call: Call
    result: Result | None = None
    inference: StateInference | None = None
    error_text: str = ""
    agent_id: str | None = None
    permission: Permission | None = None
    interrupt_follows: bool = False
    copies: tuple[DuplicateRecord, ...] = ()
    early_result: tuple[MessageBlock, Entry] | None = None
    """A result that preceded its call; its state is inferred again once the tool is known."""


class Pairing:
    """A builder of spans from the calls and results in one transcript."""

    def __init__(self, source: Source) -> None:
        self._body_store = TranscriptBodyStore(source)
        self._builders: dict[CallId, CallBuilder] = {}
        self._recent_results: list[CallBuilder] = []
        self._refusal_texts: set[str] = set()
        self._starters: dict[str, str] = {}
        self.side_records = SideRecords(source.name)
        self._prompt_id: str | None = None
        self._inline_agents = InlineAgents()
        self._previous_call = self._make_unrecorded_call(CallId(""), Entry())
        """The previous call; the next one usually has the same session, agent and message."""

    def __len__(self) -> int:
        return len(self._builders)

    def add(self, entries: Iterable[Entry], places: Iterable[int]) -> None:
        """Add entries and their packed locations, in file order."""
        for entry, at in zip(entries, places, strict=True):
            kind = entry.type
            if kind == "assistant":
                self._add_assistant(entry, at)
            elif kind == "user":
                self._prompt_id = entry.prompt_id or self._prompt_id
                self._add_user(entry, at)
            else:
                self.side_records.add(entry, at)

    def _add_assistant(self, entry: Entry, at: int) -> None:
        if entry.is_sidechain and entry.agent_id is None:
            self._inline_agents.find_owner(entry)
        if self._recent_results:
            self._recent_results.clear()
        message = entry.message
        if message is None or type(message.content) is not list:
            return
        for block in message.content:
            if block.type in CALL_BLOCK_TYPES:
                self._add_call(block, entry, at)
            elif block.tool_use_id and block.type.endswith("_tool_result"):
                self._add_result(block, entry, at)

    def _add_call(self, block: MessageBlock, entry: Entry, at: int) -> None:
        call_id = block.id or self._make_missing_id(at)
        builder = self._builders.get(call_id)
        if builder is not None and builder.call.at:
            builder.copies += (DuplicateRecord("call", self._location_of(at)),)
            return
        call = self._previous_call = self._make_call(call_id, block, entry, at)
        if block.input and block.input.prompt is not None and tool_kind(call.tool) == "agent":
            self._inline_agents.add_prompt(call.id, block.input.prompt)
        if builder is None:
            self._builders[call_id] = CallBuilder(call)
            return
        del self._builders[call_id]  # its result came first; use the position of the call
        builder.call = call
        if builder.early_result is not None and builder.result is not None:
            self._apply_result(builder, *builder.early_result, builder.result.at)
            builder.early_result = None
        self._builders[call_id] = builder

    def _make_call(self, call_id: CallId, block: MessageBlock, entry: Entry, at: int) -> Call:
        """Return the call that a block requests.

        Memory: ids equal to those of the previous call are shared instead of copied.
        """
        previous = self._previous_call
        starter = entry.parent_tool_use_id_snake
        if entry.is_sidechain and entry.agent_id is None:
            starter = starter or self._inline_agents.find_owner(entry)
        session = entry.session_id or entry.session_id_snake
        agent = entry.agent_id
        batch = (entry.message and entry.message.id) or entry.uuid or _fallback_id(at)
        prompt = entry.prompt_id or self._prompt_id
        return Call(
            id=call_id,
            tool=sys.intern(block.name or ""),
            at=at,
            requested_at=entry.timestamp,
            target=block.input.format_summary() if block.input else None,
            session_id=previous.session_id if session == previous.session_id else session,
            agent_id=previous.agent_id if agent == previous.agent_id else agent,
            message_id=previous.message_id if batch == previous.message_id else batch,
            prompt_id=previous.prompt_id if prompt == previous.prompt_id else prompt,
            parent_call=previous.parent_call if starter == previous.parent_call else starter,
            body_store=self._body_store,
        )

    def _location_of(self, at: int) -> SourceLocation:
        return SourceLocation.unpack(self._body_store.name, at)

    def _make_missing_id(self, at: int) -> CallId:
        """Return an id for a block without one, made from the offset of its record and a number."""
        number = 0
        while CallId(f"{_fallback_id(at)}.{number}") in self._builders:
            number += 1
        return CallId(f"{_fallback_id(at)}.{number}")

    def _add_user(self, entry: Entry, at: int) -> None:
        if entry.is_sidechain and entry.agent_id is None:
            self._inline_agents.find_owner(entry)
        content = entry.message.content if entry.message else None
        if isinstance(content, list):
            for block in content:
                if block.type == "tool_result":
                    self._add_result(block, entry, at)
                elif block.type == "text":
                    self._add_text_block(block.text, entry, at)
        elif content is not None:
            self._add_user_text(content, entry, at)

    def _add_text_block(self, raw: Raw, entry: Entry, at: int) -> None:
        head = memoryview(raw)[:80].tobytes()
        if b"[Request interrupted" in head or b"<task-notification" in head:
            self._add_user_text(extract_text(raw), entry, at)
        elif self._recent_results and not entry.is_meta and not _has_result(entry):
            self._recent_results.clear()

    def _add_user_text(self, text: str, entry: Entry, at: int) -> None:
        if text.startswith(_INTERRUPT_PREFIX):
            for builder in self._recent_results:
                builder.interrupt_follows = True
        else:
            self.side_records.add_notices(text, entry.timestamp, at)
        if not entry.is_meta:
            self._recent_results.clear()

    def _add_result(self, block: MessageBlock, entry: Entry, at: int) -> None:
        call_id = block.tool_use_id or self._make_missing_id(at)
        builder = self._builders.get(call_id)
        if builder is None:
            builder = self._builders[call_id] = CallBuilder(self._make_unrecorded_call(call_id, entry))
            builder.early_result = _copy_early_result(block, entry)
        elif builder.result is not None:
            builder.copies += (DuplicateRecord("result", self._location_of(at)),)
            return
        result = parse_plain_success(builder.call, block, entry, at)
        if result is not None:
            builder.result, builder.inference = result, SUCCEEDED
        else:
            self._apply_result(builder, block, entry, at)
        if entry.permission_decision is not ABSENT or entry.tool_denial_kind:
            builder.permission = _parse_permission(entry, self._location_of(at))
        self._recent_results.append(builder)

    def _apply_result(self, builder: CallBuilder, block: MessageBlock, entry: Entry, at: int) -> None:
        parsed = parse_result(builder.call, block, entry, at)
        builder.result, builder.inference, builder.error_text, builder.agent_id = parsed
        if parsed.agent_id is not None:
            self._starters[parsed.agent_id] = builder.call.id
        if parsed.inference.ambiguous:
            self._refusal_texts.add(parsed.error_text)

    def _make_unrecorded_call(self, call_id: CallId, entry: Entry) -> Call:
        """Return a placeholder call for a result without a request."""
        return Call(
            id=call_id,
            tool="",
            at=0,
            requested_at=None,
            target=None,
            session_id=entry.session,
            agent_id=entry.agent_id,
            body_store=self._body_store,
        )

    @property
    def agent_starters(self) -> dict[str, str]:
        """Ids of the calls that started subagents, by agent id."""
        starters: dict[str, str] = {agent: call_id for call_id, agent in self.side_records.agents_by_call.items()}
        return starters | self._starters

    def success_keys(self) -> list[str]:
        """Return a key for each successful call, shared with its copies in other files."""
        return [
            success_key(builder.call)
            for builder in self._builders.values()
            if builder.inference is not None and builder.inference.state == "succeeded" and builder.call.at
        ]

    def consume_spans(self, branches: Branches) -> Iterator[Span]:
        """Yield every call in request order, and free its memory; the file counts as complete."""
        message_branches = self._branches_by_message(branches) if branches else {}
        self._recent_results = []
        builders, self._builders = self._builders, {}
        for call_id in list(builders):
            yield self._build_span(builders.pop(call_id), message_branches)

    def _branches_by_message(self, branches: Branches) -> dict[str, Branch]:
        """Return the branch of each message, which all its calls share regardless of where their results are."""
        marks: dict[str, int] = {}
        farthest = len(BRANCH_NAMES) - 1
        for builder in self._builders.values():
            batch, at = builder.call.message_id, builder.call.at
            current = marks.get(batch or "", farthest)
            if batch is None or not at or not current:
                continue
            mark = min(current, branches.branch_index(SourceLocation.packed_line(at)))
            if mark and builder.result is not None:
                mark = min(mark, branches.branch_index(SourceLocation.packed_line(builder.result.at)))
            marks[batch] = mark
        return {batch: BRANCH_NAMES[mark] for batch, mark in marks.items()}

    def _build_span(self, builder: CallBuilder, message_branches: dict[str, Branch]) -> Span:
        call, result, side_records = builder.call, builder.result, self.side_records
        eventful = builder.permission is not None or side_records.has_events(call.id)
        branch = message_branches.get(call.message_id or "", "active") if message_branches else "active"
        background = result is not None and result.background_task is not None
        if builder.inference is SUCCEEDED and call.at and not eventful:
            return Span(
                call=call,
                result=result,
                state="succeeded",
                evidence=SUCCEEDED.evidence,
                background=background,
                branch=branch,
                agent=builder.agent_id or side_records.agents_by_call.get(call.id),
                copies=builder.copies,
            )
        inference = self._infer_state(builder)
        return Span(
            call=call,
            result=result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=builder.error_text or None,
            events=self._collect_events(builder) if eventful else (),
            background=background and inference.state == "succeeded",
            ambiguous=inference.ambiguous,
            synthetic=inference.synthetic,
            deferred=result is None and call.id in side_records.deferred_ids,
            branch=branch,
            agent=builder.agent_id or side_records.agents_by_call.get(call.id),
            copies=builder.copies,
        )

    def _infer_state(self, builder: CallBuilder) -> StateInference:
        call, inference, side_records = builder.call, builder.inference, self.side_records
        if not call.at:
            kind = inference.kind if inference else None
            return StateInference(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if inference is None:
            return _infer_unanswered(call.id, side_records)
        if inference.state == "succeeded":
            return inference
        context = InferenceContext(
            interrupt_follows=builder.interrupt_follows,
            started=call.id in side_records.started_ids,
            hook_blocked=side_records.blocked_reasons.get(call.id),
            was_hooked=call.id in side_records.hooked_ids,
            denied_by_host=call.id in side_records.denied_ids,
            is_refusal_text=builder.error_text in self._refusal_texts,
        )
        return refine_inference(inference, context)

    def _collect_events(self, builder: CallBuilder) -> tuple[Event, ...]:
        events: list[Event] = list(self.side_records.events.get(builder.call.id, ()))
        for kind, (count, first, last) in self.side_records.progress.get(builder.call.id, {}).items():
            events.append(Progress(kind=kind, count=count, first_at=first, last_at=last))
        if builder.permission:
            events.append(builder.permission)
        return tuple(events)


def _copy_early_result(block: MessageBlock, entry: Entry) -> tuple[MessageBlock, Entry]:
    """Copy only what is needed to infer the state again, because the originals keep a whole chunk in memory."""
    structured = entry.structured
    return (
        MessageBlock(content=block.content.copy(), is_error=block.is_error),
        Entry(
            timestamp=entry.timestamp,
            version=entry.version,
            tool_denial_kind=entry.tool_denial_kind,
            tool_use_result=[] if isinstance(structured, list) else structured,
        ),
    )


def success_key(call: Call) -> str:
    """Return the key that a call shares with its copies in other files."""
    return f"{call.id} {call.message_id}"


def _fallback_id(at: int) -> str:
    """Return the replacement for a missing id, made from the offset of the line."""
    return f"byte-{SourceLocation.packed_offset(at)}"


def _infer_unanswered(call_id: CallId, side_records: SideRecords) -> StateInference:
    nothing = Evidence("no result")
    if call_id in side_records.denied_ids:
        return StateInference(
            state="denied", kind="not_granted", evidence=(nothing, Evidence("listed as denied by the host"))
        )
    if call_id in side_records.blocked_reasons:
        return StateInference(
            state="blocked_by_hook",
            kind="hook_blocked",
            evidence=(nothing, Evidence("blocking hook", side_records.blocked_reasons[call_id])),
        )
    return StateInference(state="never_answered", evidence=(nothing,))


def _has_result(entry: Entry) -> bool:
    content = entry.message.content if entry.message else None
    return isinstance(content, list) and any(block.type == "tool_result" for block in content)


def _parse_permission(entry: Entry, place: SourceLocation) -> Permission | None:
    decision = decode_permission_decision(entry.permission_decision)
    if decision and decision.decision:
        return Permission(
            decision=decision.decision,
            source=decision.source,
            reason=decision.reason_type,
            origin=decision.rule_source,
            code=decision.reason_code,
            scope=decision.grant_scope,
            place=place,
        )
    if entry.tool_denial_kind:
        return Permission(decision=entry.tool_denial_kind, place=place)
    return None
