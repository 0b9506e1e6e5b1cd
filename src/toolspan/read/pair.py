"""Calls and results find each other.

In: entries in file order, each with its place. Out: spans in the order the model asked. Pairing is
by id alone, never by position or parent: results come in any order, interleaved with calls of the
same message, several in one line, twice, or without a call. One pass, memory per call, no I/O.
Read `Pairing.add` and `Pairing.surrender` first.
"""

import sys
from collections.abc import Iterable, Iterator

from msgspec import Raw, Struct

from toolspan.ids import CallId
from toolspan.model.event import Event, Permission, Progress
from toolspan.model.place import Place
from toolspan.model.span import Branch, Call, Copy, Evidence, Result, Span
from toolspan.model.toolkind import tool_kind
from toolspan.read.answer import SUCCEEDED, answer, plain_success
from toolspan.read.inline import InlineAgents
from toolspan.read.notes import Notes
from toolspan.read.shelf import TranscriptShelf
from toolspan.read.tree import BRANCHES, Branches
from toolspan.read.verdict import Around, Verdict, reconsider
from toolspan.wire.claude import CALL_BLOCKS, Block, Entry, text_of
from toolspan.wire.claude_parts import NOTHING, permission_decision
from toolspan.wire.source import Source

_INTERRUPT = "[Request interrupted by user"


class Life(Struct, gc=False):
    """A call and all that has been seen of it so far."""

    call: Call
    result: Result | None = None
    verdict: Verdict | None = None
    words: str = ""
    agent: str | None = None
    permission: Permission | None = None
    interrupt_follows: bool = False
    copies: tuple[Copy, ...] = ()
    early: tuple[Block, Entry] | None = None
    """A result that came before its call: judged again when the tool is known."""


class Pairing:
    """Joins the calls and results of one transcript."""

    def __init__(self, source: Source) -> None:
        self._shelf = TranscriptShelf(source)
        self._lives: dict[CallId, Life] = {}
        self._recent: list[Life] = []
        self._refusals: set[str] = set()
        self._started: dict[str, str] = {}
        self.notes = Notes(source.name)
        self._prompt: str | None = None
        self._inside = InlineAgents()
        self._before = self._unrecorded(CallId(""), Entry())
        """The last call, whose names the next one usually shares."""

    def __len__(self) -> int:
        return len(self._lives)

    def add(self, entries: Iterable[Entry], places: Iterable[int]) -> None:
        """Entries in file order, and their packed places."""
        for entry, at in zip(entries, places, strict=True):
            kind = entry.type
            if kind == "assistant":
                self._assistant(entry, at)
            elif kind == "user":
                self._prompt = entry.prompt_id or self._prompt
                self._user(entry, at)
            else:
                self.notes.add(entry, at)

    def _assistant(self, entry: Entry, at: int) -> None:
        if entry.is_sidechain and entry.agent_id is None:
            self._inside.owner(entry)
        if self._recent:
            self._recent.clear()
        message = entry.message
        if message is None or type(message.content) is not list:
            return
        for block in message.content:
            if block.type in CALL_BLOCKS:
                self._ask(block, entry, at)
            elif block.tool_use_id and block.type.endswith("_tool_result"):
                self._answer(block, entry, at)

    def _ask(self, block: Block, entry: Entry, at: int) -> None:
        call_id = block.id or self._nameless(at)
        known = self._lives.get(call_id)
        if known is not None and known.call.at:
            known.copies += (Copy("call", self._place(at)),)
            return
        call = self._before = self._call(call_id, block, entry, at)
        if block.input and block.input.prompt is not None and tool_kind(call.tool) == "agent":
            self._inside.send(call.id, block.input.prompt)
        if known is None:
            self._lives[call_id] = Life(call)
            return
        del self._lives[call_id]  # its result came first; the call's place in the order is here
        known.call = call
        if known.early is not None and known.result is not None:
            self._judge(known, *known.early, known.result.at)
            known.early = None
        self._lives[call_id] = known

    def _call(self, call_id: CallId, block: Block, entry: Entry, at: int) -> Call:
        """The call of a block; names that it shares with the one before are the same objects.

        A million copies of one session's name would be many.
        """
        before = self._before
        starter = entry.parent_tool_use_id_snake
        if entry.is_sidechain and entry.agent_id is None:
            starter = starter or self._inside.owner(entry)
        session = entry.session_id or entry.session_id_snake
        agent = entry.agent_id
        batch = (entry.message and entry.message.id) or entry.uuid or _name(at)
        prompt = entry.prompt_id or self._prompt
        return Call(
            id=call_id,
            tool=sys.intern(block.name or ""),
            at=at,
            requested_at=entry.timestamp,
            target=block.input.words() if block.input else None,
            session_id=before.session_id if session == before.session_id else session,
            agent_id=before.agent_id if agent == before.agent_id else agent,
            message_id=before.message_id if batch == before.message_id else batch,
            prompt_id=before.prompt_id if prompt == before.prompt_id else prompt,
            parent_call=before.parent_call if starter == before.parent_call else starter,
            shelf=self._shelf,
        )

    def _place(self, at: int) -> Place:
        return Place.unpacked(self._shelf.name, at)

    def _nameless(self, at: int) -> CallId:
        """A name for a block that has none: where its record begins, and a number."""
        number = 0
        while CallId(f"{_name(at)}.{number}") in self._lives:
            number += 1
        return CallId(f"{_name(at)}.{number}")

    def _user(self, entry: Entry, at: int) -> None:
        if entry.is_sidechain and entry.agent_id is None:
            self._inside.owner(entry)
        content = entry.message.content if entry.message else None
        if isinstance(content, list):
            for block in content:
                if block.type == "tool_result":
                    self._answer(block, entry, at)
                elif block.type == "text":
                    self._said_block(block.text, entry, at)
        elif content is not None:
            self._said(content, entry, at)

    def _said_block(self, raw: Raw, entry: Entry, at: int) -> None:
        head = memoryview(raw)[:80].tobytes()
        if b"[Request interrupted" in head or b"<task-notification" in head:
            self._said(text_of(raw), entry, at)
        elif self._recent and not entry.is_meta and not _carries_result(entry):
            self._recent.clear()

    def _said(self, text: str, entry: Entry, at: int) -> None:
        if text.startswith(_INTERRUPT):
            for life in self._recent:
                life.interrupt_follows = True
        else:
            self.notes.notice(text, entry.timestamp, at)
        if not entry.is_meta:
            self._recent.clear()

    def _answer(self, block: Block, entry: Entry, at: int) -> None:
        call_id = block.tool_use_id or self._nameless(at)
        life = self._lives.get(call_id)
        if life is None:
            life = self._lives[call_id] = Life(self._unrecorded(call_id, entry))
            life.early = _kept(block, entry)
        elif life.result is not None:
            life.copies += (Copy("result", self._place(at)),)
            return
        result = plain_success(life.call, block, entry, at)
        if result is not None:
            life.result, life.verdict = result, SUCCEEDED
        else:
            self._judge(life, block, entry, at)
        if entry.permission_decision is not NOTHING or entry.tool_denial_kind:
            life.permission = _permission(entry, self._place(at))
        self._recent.append(life)

    def _judge(self, life: Life, block: Block, entry: Entry, at: int) -> None:
        answered = answer(life.call, block, entry, at)
        life.result, life.verdict, life.words, life.agent = answered
        if answered.agent is not None:
            self._started[answered.agent] = life.call.id
        if answered.verdict.ambiguous:
            self._refusals.add(answered.words)

    def _unrecorded(self, call_id: CallId, entry: Entry) -> Call:
        """The call of a result that nobody asked for."""
        return Call(
            id=call_id,
            tool="",
            at=0,
            requested_at=None,
            target=None,
            session_id=entry.session,
            agent_id=entry.agent_id,
            shelf=self._shelf,
        )

    @property
    def started(self) -> dict[str, str]:
        """Which call started which subagent, by the subagent's id."""
        noted: dict[str, str] = {agent: call_id for call_id, agent in self.notes.agents.items()}
        return noted | self._started

    def successes(self) -> list[str]:
        """A name for each call that succeeded."""
        return [
            success_name(life.call)
            for life in self._lives.values()
            if life.verdict is not None and life.verdict.state == "succeeded" and life.call.at
        ]

    def surrender(self, branches: Branches) -> Iterator[Span]:
        """Every call, in the order the model asked; the file counts as finished.

        Each call is let go as its span is made: nothing is left afterwards.
        """
        batches = self._batches(branches) if branches else {}
        self._recent = []
        lives, self._lives = self._lives, {}
        for call_id in list(lives):
            yield self._span(lives.pop(call_id), batches)

    def _batches(self, branches: Branches) -> dict[str, Branch]:
        """The branch of each message's calls: they stay together, whichever result came last."""
        marks: dict[str, int] = {}
        farthest = len(BRANCHES) - 1
        for life in self._lives.values():
            batch, at = life.call.message_id, life.call.at
            known = marks.get(batch or "", farthest)
            if batch is None or not at or not known:
                continue
            mark = min(known, branches.mark(Place.line_of(at)))
            if mark and life.result is not None:
                mark = min(mark, branches.mark(Place.line_of(life.result.at)))
            marks[batch] = mark
        return {batch: BRANCHES[mark] for batch, mark in marks.items()}

    def _span(self, life: Life, batches: dict[str, Branch]) -> Span:
        call, result, notes = life.call, life.result, self.notes
        eventful = life.permission is not None or notes.speak_of(call.id)
        branch = batches.get(call.message_id or "", "active") if batches else "active"
        background = result is not None and result.background_task is not None
        if life.verdict is SUCCEEDED and call.at and not eventful:
            return Span(
                call=call,
                result=result,
                state="succeeded",
                evidence=SUCCEEDED.evidence,
                background=background,
                branch=branch,
                agent=life.agent or notes.agents.get(call.id),
                copies=life.copies,
            )
        verdict = self._verdict(life)
        return Span(
            call=call,
            result=result,
            state=verdict.state,
            evidence=verdict.evidence,
            error_kind=verdict.kind,
            message=life.words or None,
            events=self._events(life) if eventful else (),
            background=background and verdict.state == "succeeded",
            ambiguous=verdict.ambiguous,
            synthetic=verdict.synthetic,
            deferred=result is None and call.id in notes.deferred,
            branch=branch,
            agent=life.agent or notes.agents.get(call.id),
            copies=life.copies,
        )

    def _verdict(self, life: Life) -> Verdict:
        call, verdict, notes = life.call, life.verdict, self.notes
        if not call.at:
            kind = verdict.kind if verdict else None
            return Verdict(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if verdict is None:
            return _unanswered(call.id, notes)
        if verdict.state == "succeeded":
            return verdict
        around = Around(
            interrupt_follows=life.interrupt_follows,
            started=call.id in notes.started,
            hook_blocked=notes.blocked.get(call.id),
            hooked=call.id in notes.hooked,
            denied_by_host=call.id in notes.denied,
            refusal_words=life.words in self._refusals,
        )
        return reconsider(verdict, around)

    def _events(self, life: Life) -> tuple[Event, ...]:
        found: list[Event] = list(self.notes.events.get(life.call.id, ()))
        for kind, (count, first, last) in self.notes.progress.get(life.call.id, {}).items():
            found.append(Progress(kind=kind, count=count, first_at=first, last_at=last))
        if life.permission:
            found.append(life.permission)
        return tuple(found)


def _kept(block: Block, entry: Entry) -> tuple[Block, Entry]:
    """Copies of what judging needs: the originals would hold on to everything around them."""
    structured = entry.structured
    return (
        Block(content=block.content.copy(), is_error=block.is_error),
        Entry(
            timestamp=entry.timestamp,
            version=entry.version,
            tool_denial_kind=entry.tool_denial_kind,
            tool_use_result=[] if isinstance(structured, list) else structured,
        ),
    )


def success_name(call: Call) -> str:
    """What a call and its copies in other files have in common."""
    return f"{call.id} {call.message_id}"


def _name(at: int) -> str:
    """What stands in for a missing id: where the line begins."""
    return f"byte-{Place.offset_of(at)}"


def _unanswered(call_id: CallId, notes: Notes) -> Verdict:
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
    found = permission_decision(entry.permission_decision)
    if found and found.decision:
        return Permission(
            decision=found.decision,
            source=found.source,
            reason=found.reason_type,
            origin=found.rule_source,
            code=found.reason_code,
            scope=found.grant_scope,
            place=place,
        )
    if entry.tool_denial_kind:
        return Permission(decision=entry.tool_denial_kind, place=place)
    return None
