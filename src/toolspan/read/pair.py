"""Calls and results find each other.

In: entries in file order, each with its place. Out: spans in the order the model asked. Pairing is
by id alone, never by position or parent: results come in any order, interleaved with calls of the
same message, several in one line, twice, or without a call. One pass, memory per call, no I/O.
Read `Pairing.add` and `Pairing.spans` first.
"""

from functools import lru_cache

from msgspec import Raw, Struct

from toolspan.ids import CallId, EntryId, SessionId
from toolspan.model.event import Event, Permission, Progress
from toolspan.model.kind import exit_code, unwrap
from toolspan.model.place import Place
from toolspan.model.span import Branch, Call, Evidence, Result, Span
from toolspan.model.toolkind import tool_kind
from toolspan.read.body import NoInput, StoredInput, StoredResult
from toolspan.read.notes import Notes
from toolspan.read.verdict import Answer, Around, Verdict, judge, reconsider
from toolspan.wire.claude import Block, Entry, text_of
from toolspan.wire.claude_parts import (
    PermissionDecision,
    StructuredFacts,
    agent_in_text,
    part,
    target_of,
)
from toolspan.wire.jsonl import Line
from toolspan.wire.source import Source

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_INTERRUPT = "[Request interrupted by user"
_PLAIN_TOOLS = frozenset({
    "Read", "Edit", "Write", "MultiEdit", "NotebookEdit", "Grep", "TodoWrite", "LS", "TaskCreate",
    "TaskUpdate", "TaskList", "TaskGet", "TodoRead", "AskUserQuestion", "ExitPlanMode",
})  # fmt: skip
"""Tools whose structured result never decides a state; theirs are large and left undecoded."""

_SUSPECT = (b'"<tool_use_error', b'"[', b'"Error', b'"result (', b'[{"type":"text","text":"Error')
"""How the content of a result without error flag begins when it deserves a closer look."""
_BACKGROUND = (b'"Command running in background', b'"Command was manually backgrounded',
               b'"Command exceeded the assistant-mode', b'"Async agent launched')  # fmt: skip
_KEPT_TEXT = 4_000
_SHOWN_TEXT = 300


class _Answered(Struct, gc=False):
    """The result of a call, as far as it must be kept."""

    place: Place
    at: str | None
    is_error: bool | None
    verdict: Verdict
    text: str = ""
    denial: str | None = None
    exit_code: int | None = None
    persisted: str | None = None
    background: str | None = None
    agent: str | None = None
    reported_ms: float | None = None


class _Asked(Struct, gc=False):
    """A call and all that has been seen of it so far."""

    id: str
    tool: str
    place: Place | None = None
    at: str | None = None
    target: str | None = None
    session: str | None = None
    agent: str | None = None
    message: str | None = None
    entry: str | None = None
    prompt: str | None = None
    parent_call: str | None = None
    answer: _Answered | None = None
    interrupt_follows: bool = False
    permission: Permission | None = None
    copies: tuple[Place, ...] = ()


class Pairing:
    """Joins the calls and results of one transcript."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._file = source.name
        self._calls: dict[str, _Asked] = {}
        self._recent: list[_Asked] = []
        self._refusals: set[str] = set()
        self.notes = Notes(source.name)

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, entry: Entry, line: Line) -> None:
        """One entry, in file order."""
        match entry.type:
            case "assistant":
                self._assistant(entry, line)
            case "user":
                self._user(entry, line)
            case _:
                self.notes.add(entry, line)

    def _assistant(self, entry: Entry, line: Line) -> None:
        self._recent.clear()
        message = entry.message
        if message is None or not isinstance(message.content, list):
            return
        for block in message.content:
            if block.type in _CALLS:
                self._ask(block, entry, self._place(line))
            elif block.tool_use_id and block.type.endswith("_tool_result"):
                self._answer(block, entry, self._place(line))

    def _place(self, line: Line) -> Place:
        return Place(self._file, line.number, line.offset, line.length)

    def _ask(self, block: Block, entry: Entry, place: Place) -> None:
        call_id = block.id or f"line-{place.line}"
        known = self._calls.get(call_id)
        if known is not None and known.place is not None:
            known.copies += (place,)
            return
        asked = _Asked(
            id=call_id,
            tool=block.name or "",
            place=place,
            at=entry.timestamp,
            target=target_of(block.input),
            session=entry.session,
            agent=entry.agent_id,
            message=entry.message.id if entry.message else None,
            entry=entry.uuid,
            prompt=entry.prompt_id,
            parent_call=entry.parent_tool_use_id_snake,
        )
        if known is not None:  # its result came first
            asked.answer = known.answer
            asked.copies = known.copies
            del self._calls[call_id]
        self._calls[call_id] = asked

    def _user(self, entry: Entry, line: Line) -> None:
        message = entry.message
        content = message.content if message else None
        if isinstance(content, str):
            self._said(content, entry, line)
        elif content:
            for block in content:
                if block.type == "tool_result":
                    self._answer(block, entry, self._place(line))
                elif block.type == "text":
                    self._said_block(block.text, entry, line)

    def _said_block(self, raw: Raw, entry: Entry, line: Line) -> None:
        head = memoryview(raw)[:80].tobytes()
        if b"[Request interrupted" in head or b"<task-notification" in head:
            self._said(text_of(raw), entry, line)
        elif not entry.is_meta and self._recent and not _carries_result(entry):
            self._recent.clear()

    def _said(self, text: str, entry: Entry, line: Line) -> None:
        if text.startswith(_INTERRUPT):
            for asked in self._recent:
                asked.interrupt_follows = True
        else:
            self.notes.notice(text, entry.timestamp, line)
        if not entry.is_meta:
            self._recent.clear()

    def _answer(self, block: Block, entry: Entry, place: Place) -> None:
        call_id = block.tool_use_id or f"line-{place.line}"
        asked = self._calls.get(call_id)
        if asked is None:
            asked = self._calls[call_id] = _Asked(
                id=call_id, tool="", session=entry.session, agent=entry.agent_id
            )
        elif asked.answer is not None:
            asked.copies += (place,)
            return
        asked.answer = _answered(asked.tool, block, entry, place)
        asked.permission = _permission(entry, place) or asked.permission
        self._recent.append(asked)
        if asked.answer.verdict.ambiguous:
            self._refusals.add(asked.answer.text)

    def spans(self, branches: dict[int, Branch] | None = None) -> list[Span]:
        """Every call so far, in the order the model asked; the file counts as finished."""
        return [self._span(asked, branches or {}) for asked in self._calls.values()]

    def _span(self, asked: _Asked, branches: dict[int, Branch]) -> Span:
        answer = asked.answer
        verdict = self._verdict(asked)
        deferred = asked.id in self.notes.deferred and answer is None
        return Span(
            call=self._call(asked),
            result=self._result(asked, answer) if answer else None,
            state=verdict.state,
            evidence=verdict.evidence,
            error_kind=verdict.kind,
            message=answer.text[:_SHOWN_TEXT] if answer and verdict.kind else None,
            events=self._events(asked),
            background=bool(answer and answer.background and verdict.state == "succeeded"),
            ambiguous=verdict.ambiguous,
            synthetic=verdict.synthetic,
            deferred=deferred,
            branch=branches.get(asked.place.line, "active") if asked.place else "active",
            agent=self.notes.agents.get(asked.id) or (answer.agent if answer else None),
            copies=asked.copies,
        )

    def _verdict(self, asked: _Asked) -> Verdict:
        answer = asked.answer
        if asked.place is None:
            kind = answer.verdict.kind if answer else None
            return Verdict(
                state="orphan_result", kind=kind, evidence=(Evidence("no request"),)
            )
        notes = self.notes
        if answer is None:
            return _unanswered(asked.id, notes)
        if answer.verdict.state == "succeeded":
            return answer.verdict
        around = Around(
            interrupt_follows=asked.interrupt_follows,
            started=asked.id in notes.started,
            hook_blocked=notes.blocked.get(asked.id),
            hooked=asked.id in notes.hooked,
            denied_by_host=asked.id in notes.denied,
            refusal_words=answer.text in self._refusals,
        )
        return reconsider(answer.verdict, around)

    def _call(self, asked: _Asked) -> Call:
        place = asked.place
        return Call(
            id=CallId(asked.id),
            tool=asked.tool,
            place=place,
            requested_at=asked.at,
            target=asked.target,
            session_id=SessionId(asked.session) if asked.session else None,
            agent_id=asked.agent,
            message_id=asked.message,
            entry_id=EntryId(asked.entry) if asked.entry else None,
            prompt_id=asked.prompt,
            parent_call=CallId(asked.parent_call) if asked.parent_call else None,
            body=StoredInput(self._source, place, asked.id, asked.tool) if place else NoInput(),
        )

    def _result(self, asked: _Asked, answer: _Answered) -> Result:
        return Result(
            place=answer.place,
            finished_at=answer.at,
            is_error=answer.is_error,
            exit_code=answer.exit_code,
            denial_kind=answer.denial,
            truncated=answer.verdict.truncated or answer.persisted is not None,
            persisted_path=answer.persisted,
            background_task=answer.background,
            reported_ms=answer.reported_ms,
            body=StoredResult(self._source, answer.place, asked.id, asked.tool),
        )

    def _events(self, asked: _Asked) -> tuple[Event, ...]:
        found: list[Event] = list(self.notes.events.get(asked.id, ()))
        progress = self.notes.progress.get(asked.id)
        if progress:
            found += [Progress(kind=kind, count=n, first_at=first, last_at=last)
                      for kind, (n, first, last) in progress.items()]  # fmt: skip
        if asked.permission:
            found.append(asked.permission)
        return tuple(found)


def _unanswered(call_id: str, notes: Notes) -> Verdict:
    nothing = Evidence("no result")
    if call_id in notes.denied:
        return Verdict(
            state="denied",
            kind="not_granted",
            evidence=(nothing, Evidence("listed as denied by the host")),
        )
    if call_id in notes.blocked:
        return Verdict(
            state="blocked_by_hook",
            kind="hook_blocked",
            evidence=(nothing, Evidence("blocking hook", notes.blocked[call_id])),
        )
    return Verdict(state="never_answered", evidence=(nothing,))


def _carries_result(entry: Entry) -> bool:
    content = entry.message.content if entry.message else None
    return isinstance(content, list) and any(block.type == "tool_result" for block in content)


def _permission(entry: Entry, place: Place) -> Permission | None:
    found = part(entry.permission_decision, PermissionDecision)
    if found and found.decision:
        return Permission(
            decision=found.decision, source=found.source, reason=found.reason_type, place=place
        )
    if entry.tool_denial_kind:
        return Permission(decision=entry.tool_denial_kind, place=place)
    return None


_SUCCEEDED = judge(Answer(tool="", text="", is_error=None))


def _answered(tool: str, block: Block, entry: Entry, place: Place) -> _Answered:
    facts = _facts(tool, entry)
    text = _text(block)
    background = _background(block, facts)
    if not text and facts is _NO_FACTS and not block.is_error and not entry.tool_denial_kind:
        return _Answered(
            place, entry.timestamp, block.is_error, _SUCCEEDED, background=background
        )
    words = unwrap(text)
    verdict = judge(
        Answer(
            tool=tool,
            text=words,
            is_error=block.is_error,
            wrapped=text.lstrip().startswith("<tool_use_error>"),
            denial=entry.tool_denial_kind,
            structured=memoryview(entry.structured)[:1].tobytes() in (b"{", b"["),
            version=_numbers(entry.version),
            interrupted=bool(facts.interrupted or facts.was_interrupted),
            timed_out=facts.timed_out_after_ms is not None,
            background=background is not None,
        )
    )
    wrong = verdict.kind is not None
    return _Answered(
        place=place,
        at=entry.timestamp,
        is_error=block.is_error,
        verdict=verdict,
        text=words[:_SHOWN_TEXT] if wrong else "",
        denial=entry.tool_denial_kind,
        exit_code=exit_code(text) if text else None,
        persisted=facts.persisted_output_path or _persisted(text),
        background=background,
        agent=facts.agent_id or _agent(tool, text),
        reported_ms=_reported(facts),
    )


@lru_cache(maxsize=64)
def _numbers(version: str | None) -> tuple[int, ...]:
    """A version as numbers that compare; empty when there is none."""
    parts = (version or "").split(".")
    return tuple(int(part) for part in parts if part.isdecimal())


_NO_FACTS = StructuredFacts()


def _facts(tool: str, entry: Entry) -> StructuredFacts:
    structured = entry.structured
    if tool in _PLAIN_TOOLS or memoryview(structured)[:1] != b"{":
        return _NO_FACTS
    return part(structured, StructuredFacts) or _NO_FACTS


def _reported(facts: StructuredFacts) -> float | None:
    if facts.duration_seconds is not None:
        return facts.duration_seconds * 1000
    return facts.duration_ms if facts.duration_ms is not None else facts.total_duration_ms


def _text(block: Block) -> str:
    """The text of a result, if it can matter for the state: success bodies stay undecoded."""
    head = memoryview(block.content)[:48].tobytes()
    if not block.is_error and not head.startswith(_SUSPECT):
        return _tail_text(block)
    return text_of(block.content)[:_KEPT_TEXT]


def _tail_text(block: Block) -> str:
    """For a success only the last line may state a fact: an exit code, an agent's id."""
    tail = memoryview(block.content)[-400:].tobytes()
    if b"[Exit code: " in tail or b"agentId: " in tail:
        return text_of(block.content)
    return ""


def _background(block: Block, facts: StructuredFacts) -> str | None:
    if facts.background_task_id:
        return facts.background_task_id
    if facts.status in ("async_launched", "remote_launched", "teammate_spawned") or facts.is_async:
        return facts.agent_id or facts.task_id or "agent"
    head = memoryview(block.content)[:120].tobytes()
    if head.startswith(_BACKGROUND) or head.startswith(b'[{"type":"text","text":"Async agent launched'):
        return "task"
    return None


def _persisted(text: str) -> str | None:
    if "saved to" not in text:
        return None
    tail = text.partition("saved to")[2].lstrip(": ").split("\n", 1)[0].strip()
    return tail.rstrip(".") or None


def _agent(tool: str, text: str) -> str | None:
    return agent_in_text(text) if text and tool_kind(tool) == "agent" else None
