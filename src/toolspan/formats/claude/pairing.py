"""Pair calls with results, by id alone, in one pass.

Positions and parent links are not used, because results may come in any order, between calls from
the same message, several on one line, twice, or without a call. Start at `Pairing.add`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from toolspan.formats import json_repair
from toolspan.formats.claude.records import (
    ABSENT,
    BODIES_DECODER,
    CALL_BLOCK_TYPES,
    LAUNCHED_STATUSES,
    NOTICE_START,
    TASK_OUTPUT_TOOLS,
    TASK_TOOLS,
    BlockBody,
    Entry,
    EntryBodies,
    MessageBlock,
    StructuredFacts,
    decode_permission_decision,
    find_agent_id,
)
from toolspan.formats.claude.side_records import WARMUP_PROMPT, InlineAgents, SideRecords, WarmupAgents
from toolspan.formats.claude.state import ResultFacts, infer_state, infer_unanswered, refine_inference
from toolspan.formats.decoding import content_to_text, extract_text
from toolspan.formats.lines import LineBodyStore, missing_call_error
from toolspan.formats.pairing import (
    BRANCH_NAMES,
    Branches,
    CallBuilderBase,
    CallPairing,
    StateInference,
    refine_exit_status,
)
from toolspan.formats.source import Source
from toolspan.types.error_kinds import denial_message, parse_exit_code, unwrap_error_text
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.span import Branch, Call, DuplicateRecord, Event, Evidence, Hook, Permission, Result, Span
from toolspan.types.tool_kinds import tool_kind, tools_of_kinds

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput


class TranscriptBodyStore(LineBodyStore):
    """Reader for the inputs and results in one transcript."""

    def raw_input(self, call: Call) -> bytes:
        """Return the input as JSON, or an empty object for an orphan result, whose input is not recorded."""
        if call.place is None:
            return b"{}"
        blocks = self._reread(call.place, BODIES_DECODER).blocks
        unnamed = [block for block in blocks if not block.id and block.type in CALL_BLOCK_TYPES]
        block = next((b for b in blocks if b.id == call.id and b.id), _nth_unnamed_block(unnamed, call.id))
        if block is None:
            raise missing_call_error(call.place, call.id)
        return bytes(block.input) or b"{}"

    def typed_input(self, call: Call) -> ToolInput:
        from toolspan.formats.claude.narrow import narrow_input

        return narrow_input(call.tool, self.raw_input(call))

    def content(self, result: Result) -> Any:
        return self._block_content(self._reread(result.place, BODIES_DECODER), result)

    def text(self, result: Result) -> str:
        """Return the content sent to the model as text."""
        return content_to_text(self.content(result))

    def structured(self, result: Result) -> object:
        """Return the structured result as its tool's type, parsed from the text if the client did not record it."""
        from toolspan.formats.claude.narrow import narrow_result, narrow_text_result

        bodies = self._reread(result.place, BODIES_DECODER)
        if bodies.structured is None:
            return narrow_text_result(result.tool, content_to_text(self._block_content(bodies, result)))
        return narrow_result(result.tool, bodies.structured)

    def _block_content(self, bodies: EntryBodies, result: Result) -> Any:
        unnamed = [b for b in bodies.blocks if b.type == "tool_result" and not b.tool_use_id]
        block = next((b for b in bodies.blocks if b.tool_use_id == result.id), _nth_unnamed_block(unnamed, result.id))
        if block is None:
            raise missing_call_error(result.place, result.id)
        return json_repair.decode_readable(bytes(block.content))


def _nth_unnamed_block(unnamed: list[BlockBody], name: str) -> BlockBody | None:
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
_AGENT_TOOLS = tools_of_kinds("agent")
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
    tool, content, structured = call.tool, block.content, entry.structured
    facts = structured if type(structured) is StructuredFacts else _NO_STRUCTURED_FACTS
    text = ""  # a body that cannot affect the state stays undecoded
    if block.is_error or _ERROR_START.match(content) or (tool in _STATUS_LINE_TOOLS and _has_status_line(block)):
        text = extract_text(content)
    background = "task" if _BACKGROUND_START.match(content) else None
    if facts.background_task_id:
        background = facts.background_task_id
    elif facts.status in LAUNCHED_STATUSES or facts.is_async:
        background = facts.agent_id or facts.task_id or "agent"
    inference, error_text, code = SUCCEEDED, "", None
    if text or block.is_error or entry.tool_denial_kind or facts.is_abnormal:
        decision = decode_permission_decision(entry.permission_decision) if entry.tool_denial_kind else None
        plain_text = unwrap_error_text(text)
        error_text, code = plain_text[:_RESULT_TEXT_LIMIT], parse_exit_code(plain_text)
        result_facts = ResultFacts(
            tool=tool,
            text=error_text,
            is_error=block.is_error,
            exit_code=code,
            wrapped=text.lstrip().startswith("<tool_use_error>"),
            denial_kind=entry.tool_denial_kind,
            denial_source=decision.source if decision and decision.decision == "reject" else None,
            structured=type(structured) in (StructuredFacts, list),
            version=_parse_version(entry.version),
            interrupted=bool(facts.interrupted or facts.was_interrupted),
            timed_out=facts.timed_out_after_ms is not None,
            background=background is not None,
        )
        inference = infer_state(result_facts)
    persisted = facts.persisted_output_path
    if persisted is None and (text or _SPILLED_START.match(content)):
        # The text states the path to which the client saved an output that was too long.
        before, _, after = (text or extract_text(content)[:_RESULT_TEXT_LIMIT]).partition("saved to")
        if len(before) <= _ERROR_TEXT_LIMIT:
            persisted = after.lstrip(": ").split("\n", 1)[0].strip().rstrip(".") or None
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
        records_changes=facts.bash_edit_diff is not None,
        body_store=call.body_store,
    )
    agent = facts.agent_id or (find_agent_id(text) if text and tool_kind(tool) == "agent" else None)
    if not inference.rejection:  # a rejection contains the user's words
        error_text = error_text[:_ERROR_TEXT_LIMIT]
    return InferredResult(result, inference, error_text if inference.kind else "", agent)


@lru_cache(maxsize=64)
def _parse_version(version: str | None) -> tuple[int, ...]:
    parts = (version or "").split(".")
    return tuple(int(part[:9]) for part in parts if part.isdecimal() and part.isascii())


def _has_status_line(block: MessageBlock) -> bool:
    """Return whether the last line may state an exit code or an agent id."""
    data = bytes(block.content)
    return data.find(b"[Exit code: ", -_TAIL_BYTES) >= 0 or data.find(b"agentId: ", -_TAIL_BYTES) >= 0


_EXIT_LINE = re.compile(r"\A(?:Error: )?Exit code -?\d+|\AError\Z|\[Exit code: -?\d+\]\Z")
"""The exit code line that the client adds to the text of a failed command."""
_COPIED_REPLIES = 2
"""The number of replies without delay from which a timestamp counts as the time of a copy."""
_SECOND_LENGTH = len("2026-11-02T09:00:00")
_INTERRUPT_PREFIX = "[Request interrupted by user"


class SubagentFilter:
    """Filter for the entries that describe subagents: their types, ids and requests."""

    def __init__(self) -> None:
        self._other_calls: set[str | None] = set()
        """Ids of the calls that do not start subagents."""

        self._progress_seen: set[tuple[str | None, str | None]] = set()
        """Subagents that have reported progress, each with the call that started it."""

    def select(self, entries: Sequence[Entry]) -> list[int]:
        """Return the indexes of the entries to add to a `Pairing`.

        An entry is selected if it names a subagent, if a subagent wrote it in the file of its parent, or if it contains
        a call that starts a subagent, or the result of such a call or of an unknown call.
        """
        indexes = []
        other_calls, progress_seen = self._other_calls, self._progress_seen
        for n, entry in enumerate(entries):
            is_selected = entry.parent_tool_use_id_snake is not None or (entry.is_sidechain and entry.agent_id is None)
            message, progress = entry.message, entry.data
            if message is not None and type(message.content) is list:
                for block in message.content:
                    if block.name is None:
                        # A damaged call may have an id but no name.
                        if block.id or (block.tool_use_id and block.tool_use_id not in other_calls):
                            is_selected = True
                    elif block.type in CALL_BLOCK_TYPES and block.name not in _AGENT_TOOLS:
                        other_calls.add(block.id)
                    else:
                        is_selected = True
            structured = entry.tool_use_result
            if structured is None:  # perf: as `entry.structured`
                structured = entry.tool_use_result_snake
            if type(structured) is StructuredFacts and structured.agent_id:
                is_selected = True
            if progress is not None and progress.agent_id:
                key = (progress.agent_id, entry.parent_tool_use_id)
                is_selected = is_selected or key not in progress_seen
                progress_seen.add(key)
            if is_selected:
                indexes.append(n)
        return indexes


class CallBuilder(CallBuilderBase, gc=False):
    """Everything read so far about a call in a Claude Code transcript."""

    error_text: str = ""
    agent_id: str | None = None
    permission: Permission | None = None
    interrupt_follows: bool = False
    is_warmup: bool = False
    """True if the client itself started the subagent, to warm up its cache."""
    copies: tuple[DuplicateRecord, ...] = ()
    early_result: tuple[MessageBlock, Entry] | None = None
    """A result that preceded its call; its state is inferred again once the tool is known."""


class Pairing(CallPairing[CallBuilder]):
    """The calls in one transcript, paired with their results."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.name)
        self._body_store = TranscriptBodyStore(source)
        self._message_branches: dict[str, Branch] = {}
        self._recent_results: list[CallBuilder] = []
        self._refusal_texts: set[str] = set()
        self.side_records = SideRecords(source.name)
        self._prompt_id: str | None = None
        self._inline_agents = InlineAgents()
        self._warmups = WarmupAgents()
        self._last_user_time: str | None = None
        self._instant_replies: dict[str, int] = {}
        """The number of replies with the same time as the record they answer, by timestamp or by second."""
        self._previous_call = self._make_unrecorded_call(CallId(""), Entry())
        """The previous call; the next one usually has the same session, agent and message."""

    def add(self, entries: Iterable[Entry], places: Iterable[int]) -> None:
        """Add entries and their packed locations, in file order."""
        for entry, at in zip(entries, places, strict=True):
            kind = entry.type
            if kind == "assistant":
                if entry.timestamp == self._last_user_time and entry.timestamp:
                    self._add_instant_reply(entry, entry.timestamp)
                self._last_user_time = None
                self._add_assistant(entry, at)
            elif kind == "user":
                self._last_user_time = entry.timestamp
                self._prompt_id = entry.prompt_id or self._prompt_id
                self._add_user(entry, at)
            else:
                self.side_records.add(entry, at)

    def _add_assistant(self, entry: Entry, at: int) -> None:
        message = entry.message
        starter = entry.parent_tool_use_id_snake
        if entry.is_sidechain:
            self.has_sidechains = True
            self._warmups.add(entry)
            if entry.agent_id is None:
                starter = self._inline_agents.find_owner(entry) or starter
        if starter is not None and message is not None and message.id is not None:
            self.message_starters[message.id] = starter
        if self._recent_results:
            self._recent_results.clear()
        if message is None or type(message.content) is not list:
            return
        for block in message.content:
            if block.type in CALL_BLOCK_TYPES:
                self._add_call(block, entry, at)
            elif block.tool_use_id and block.type.endswith("_tool_result"):
                self._add_result(block, entry, at)

    def _add_instant_reply(self, entry: Entry, time: str) -> None:
        """Count a reply with the same timestamp as its request: a client that resumed a session copied both.

        Only old clients did this, within one second. In newer versions, a single match may be a coincidence.
        """
        if entry.message is not None and entry.message.model != "<synthetic>":
            if _parse_version(entry.version)[:1] in ((0,), (1,)):
                self._instant_replies[time[:_SECOND_LENGTH]] = _COPIED_REPLIES
            self._instant_replies[time] = self._instant_replies.get(time, 0) + 1

    def _is_copy_time(self, time: str | None) -> bool:
        replies, at = self._instant_replies, time or ""
        return replies.get(at, 0) >= _COPIED_REPLIES or at[:_SECOND_LENGTH] in replies

    def _add_call(self, block: MessageBlock, entry: Entry, at: int) -> None:
        call_id = block.id or self._make_missing_id(at)
        builder = self._builders.get(call_id)
        starts_agent = block.input and block.input.prompt is not None and tool_kind(block.name or "") == "agent"
        if starts_agent and block.input and isinstance(block.input.subagent_type, str):
            self.agent_types.setdefault(call_id, block.input.subagent_type)
        if builder is not None and builder.call.at:
            builder.copies += (DuplicateRecord("call", self._location_of(at)),)
            return
        starter = entry.parent_tool_use_id_snake
        if entry.is_sidechain and entry.agent_id is None:
            starter = starter or self._inline_agents.find_owner(entry)
        session = entry.session_id or entry.session_id_snake
        agent = entry.agent_id
        batch = (entry.message and entry.message.id) or entry.uuid or _fallback_id(at)
        prompt = entry.prompt_id or self._prompt_id
        target = block.input.format_summary() if block.input else None
        previous = self._previous_call  # to save memory, ids equal to those of the previous call are shared
        call = self._previous_call = Call(
            id=call_id,
            tool=sys.intern(block.name or ""),
            at=at,
            requested_at=entry.timestamp,
            target=target,
            session_id=previous.session_id if session == previous.session_id else session,
            agent_id=previous.agent_id if agent == previous.agent_id else agent,
            message_id=previous.message_id if batch == previous.message_id else batch,
            prompt_id=previous.prompt_id if prompt == previous.prompt_id else prompt,
            parent_call=previous.parent_call if starter == previous.parent_call else starter,
            continues=self.side_records.starters_by_task.get(target or "") if block.name in TASK_TOOLS else None,
            body_store=self._body_store,
        )
        if starts_agent and block.input:
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

    def _make_missing_id(self, at: int) -> CallId:
        """Return an id for a block without one, made from the offset of its record and a number."""
        number = 0
        while CallId(f"{_fallback_id(at)}.{number}") in self._builders:
            number += 1
        return CallId(f"{_fallback_id(at)}.{number}")

    def _add_user(self, entry: Entry, at: int) -> None:
        if entry.is_sidechain:
            self._warmups.add(entry)
            if entry.agent_id is None:
                self._inline_agents.find_owner(entry)
        content = entry.message.content if entry.message else None
        if not isinstance(content, list):
            if content is not None:
                self._add_user_text(content, entry, at)
            return
        for block in content:
            if block.type == "tool_result":
                self._add_result(block, entry, at)
            elif block.type == "text":
                head = memoryview(block.text)[:80].tobytes()
                if b"[Request interrupted" in head or NOTICE_START.search(head):
                    self._add_user_text(extract_text(block.text), entry, at)
                elif self._recent_results and not entry.is_meta and not any(b.type == "tool_result" for b in content):
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
            # Copy only what is needed to infer the state again: the originals keep a whole chunk in memory.
            structured = entry.structured
            builder.early_result = (
                MessageBlock(content=block.content.copy(), is_error=block.is_error),
                Entry(
                    timestamp=entry.timestamp,
                    version=entry.version,
                    tool_denial_kind=entry.tool_denial_kind,
                    tool_use_result=[] if isinstance(structured, list) else structured,
                ),
            )
        elif builder.result is not None:
            builder.copies += (DuplicateRecord("result", self._location_of(at)),)
            return
        builder.is_warmup = bool(entry.is_sidechain) and self._warmups.contains(entry)
        result = parse_plain_success(builder.call, block, entry, at)
        if result is not None:
            builder.result, builder.inference = result, SUCCEEDED
        else:
            self._apply_result(builder, block, entry, at)
        if builder.call.tool in TASK_OUTPUT_TOOLS and builder.call.target and b"<status>" in bytes(block.content):
            self.side_records.add_task_end(builder.call.target, extract_text(block.content), entry.timestamp, at)
        if builder.call.continues and builder.inference and builder.inference.state in ("succeeded", "interrupted"):
            self.side_records.add_poll(builder.call.continues, entry.timestamp)
        if entry.permission_decision is not ABSENT or entry.tool_denial_kind:
            decision = decode_permission_decision(entry.permission_decision)
            if decision and decision.decision:
                builder.permission = Permission(
                    decision=decision.decision,
                    source=decision.source,
                    reason=decision.reason_type,
                    origin=decision.rule_source,
                    code=decision.reason_code,
                    scope=decision.grant_scope,
                    place=self._location_of(at),
                )
            elif entry.tool_denial_kind:
                builder.permission = Permission(decision=entry.tool_denial_kind, place=self._location_of(at))
        self._recent_results.append(builder)

    def _apply_result(self, builder: CallBuilder, block: MessageBlock, entry: Entry, at: int) -> None:
        parsed = parse_result(builder.call, block, entry, at)
        builder.result, builder.inference, builder.error_text, builder.agent_id = parsed
        if parsed.agent_id is not None:
            self._starters[parsed.agent_id] = builder.call.id
        if parsed.result.background_task is not None:
            self.side_records.starters_by_task[parsed.result.background_task] = builder.call.id
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
        return {agent: call_id for call_id, agent in self.side_records.agents_by_call.items()} | self._starters

    @property
    def hooks(self) -> Mapping[str, Sequence[Hook]]:
        """The hooks that ran, by the id of the call or of the event for which they ran."""
        events = self.side_records.events.items()
        hooks = {name: [event for event in group if isinstance(event, Hook)] for name, group in events}
        return {name: group for name, group in hooks.items() if group}

    def _set_branches(self, branches: Branches) -> None:
        """Set the branch of each message, which all its calls share regardless of where their results are."""
        marks: dict[str, int] = {}
        farthest = len(BRANCH_NAMES) - 1
        for builder in self._builders.values() if branches else ():
            batch, at = builder.call.message_id, builder.call.at
            current = marks.get(batch or "", farthest)
            if batch is None or not at or not current:
                continue
            mark = min(current, branches.branch_index(SourceLocation.packed_line(at)))
            if mark and builder.result is not None:
                mark = min(mark, branches.branch_index(SourceLocation.packed_line(builder.result.at)))
            marks[batch] = mark
        self._message_branches = {batch: BRANCH_NAMES[mark] for batch, mark in marks.items()}

    def _build_span(self, builder: CallBuilder) -> Span:
        call, result, side_records = builder.call, builder.result, self.side_records
        inference = self._infer_state(builder)
        events: tuple[Event, ...] = ()
        if builder.permission is not None or call.id in side_records.events or call.id in side_records.progress:
            events = (
                *side_records.events.get(call.id, ()),
                *side_records.progress.get(call.id, {}).values(),
                *((builder.permission,) if builder.permission else ()),
            )
        if (
            result is not None
            and self._instant_replies
            and self._is_copy_time(call.requested_at)
            and self._is_copy_time(result.finished_at)
        ):
            result = replace(result, has_copied_times=True)
        background = result is not None and result.background_task is not None
        return Span(
            call=call,
            result=result,
            state=inference.state,
            evidence=inference.evidence,
            error_kind=inference.kind,
            message=denial_message(builder.error_text) if builder.error_text else None,
            events=events,
            background=background and inference.state == "succeeded",
            ambiguous=inference.ambiguous,
            synthetic=inference.synthetic,
            deferred=result is None and call.id in side_records.deferred_ids,
            branch=self._message_branches.get(call.message_id or "", "active"),
            agent=builder.agent_id or side_records.agents_by_call.get(call.id),
            copies=builder.copies,
        )

    def _infer_state(self, builder: CallBuilder) -> StateInference:
        call, inference = builder.call, builder.inference
        if not call.at:
            kind = inference.kind if inference else None
            return StateInference(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if inference is None:
            return infer_unanswered(call.id, self.side_records)
        if inference.state == "succeeded":
            return inference
        if builder.is_warmup and inference.rejection:  # the client cancelled its own request without asking
            evidence = (*inference.evidence, Evidence("subagent of the client", WARMUP_PROMPT))
            return StateInference(state="cancelled", kind="cancelled", evidence=evidence)
        refined = refine_inference(
            inference,
            call.id,
            self.side_records,
            interrupt_follows=builder.interrupt_follows,
            is_refusal_text=builder.error_text in self._refusal_texts,
        )
        output = _EXIT_LINE.sub("", builder.error_text).strip()
        return refine_exit_status(refined, call, builder.result.exit_code if builder.result else None, output)


def _fallback_id(at: int) -> str:
    return f"byte-{SourceLocation.packed_offset(at)}"
