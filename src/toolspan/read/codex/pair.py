"""Calls and outputs of a rollout find each other.

In: records in file order, each with its place, and the thread they belong to. Out: spans in the
order the model asked. Pairing is by `call_id`; events that tell of a call's end join by the same
id. Calls that speak to a process of an earlier call name that call; what a script did inside one
call becomes its events. One pass, memory per call, no I/O. Read `Pairing.add` first.
"""

import sys
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from toolspan.ids import CallId, SessionId
from toolspan.model.event import Event, Hook, Note, Notification, Permission
from toolspan.model.place import Place
from toolspan.model.span import Branch, Call, Copy, Evidence, Result, Span
from toolspan.read.codex.ended import ended_by, inner_call, spawned
from toolspan.read.codex.shelf import NAMELESS, RolloutShelf, output_of
from toolspan.read.codex.thread import Thread
from toolspan.read.codex.verdict import RETURNED, Ended, judge, unanswered, weigh
from toolspan.read.tree import Branches
from toolspan.read.verdict import Verdict
from toolspan.wire.codex import NOTHING, OUTPUTS, SELF_CONTAINED, Item, Record, calls_of, tool_of
from toolspan.wire.codex_calls import about
from toolspan.wire.codex_output import Said, said
from toolspan.wire.source import Source
from toolspan.wire.views import text_of

_SHOWN_TEXT = 300
_ABORTED = b"<turn_aborted>"
_HOOK = "blocked by PreToolUse hook: "
_SCRIPTS = frozenset({"exec", "wait"})
"""Tools that run a script, whose own calls leave only events."""


class Life(Struct, gc=False):
    """A call and all that has been seen of it so far."""

    call: Call
    result: Result | None = None
    verdict: Verdict | None = None
    words: str = ""
    """The beginning of the output, for those who may need it for an error's kind."""
    ended: Ended | None = None
    agent: str | None = None
    aborted: str | None = None
    """Why the turn ended, when it ended before the output."""
    runs_on: bool = False
    events: tuple[Event, ...] = ()
    copies: tuple[Copy, ...] = ()


class Pairing:
    """Joins the calls and outputs of one rollout."""

    def __init__(self, source: Source, thread: Thread) -> None:
        self._shelf = RolloutShelf(source)
        self._thread = thread
        self._lives: dict[CallId, Life] = {}
        self._open: dict[CallId, Life] = {}
        """Calls without output, in order."""
        self._stopped: list[Life] = []
        """Calls that the end of the turn has stopped."""
        self._early: dict[str, Ended] = {}
        """Ends of calls that have not been asked for yet, or never are."""
        self._batch: str | None = None
        self._processes: dict[str, CallId] = {}
        self._unnamed: dict[str, int] = {}
        self.started: dict[str, str] = {}
        """Which call started which subagent, by the subagent's id."""

    def __len__(self) -> int:
        return len(self._lives)

    def add(self, record: Record, at: int) -> None:
        """One record and its packed place."""
        item = record.item
        kind = item.type
        if record.is_event:
            self._event(item, record, at)
        elif record.type == "turn_context":
            self._batch = None
            self._stopped.clear()
        elif kind in OUTPUTS or (item.tool_call_id is not None and item.role == "tool"):
            self._answer(item, record, at)
        elif kind == "message" or item.role is not None:
            self._message(item, record, at)
        else:
            self._ask_all(item, record, at)

    def _message(self, item: Item, record: Record, at: int) -> None:
        if item.role == "user":
            self._batch = None
            if _ABORTED in memoryview(item.content)[:200].tobytes():
                self._abort("interrupted")
        elif item.tool_calls != NOTHING:
            self._ask_all(item, record, at)

    def _ask_all(self, item: Item, record: Record, at: int) -> None:
        for asked in calls_of(item):
            self._ask(asked, record, at)

    def _ask(self, item: Item, record: Record, at: int) -> None:
        call_id = item.call_id or CallId(item.id or self._nameless())
        known = self._lives.get(call_id)
        if known is not None and known.call.at:
            known.copies += (Copy("call", self._place(at)),)
            self._touch(known)
            return
        life = Life(self._call(call_id, item, record, at))
        if known is not None:  # its output came first
            del self._lives[call_id]
            life.result, life.words, life.copies = known.result, known.words, known.copies
            life.verdict = known.verdict
        self._lives[call_id] = life
        life.ended = self._early.pop(call_id, None)
        if item.type in SELF_CONTAINED:
            self._contain(life, item, at)
        elif life.result is None:
            self._open[call_id] = life
        self._touch(life)

    def _call(self, call_id: CallId, item: Item, record: Record, at: int) -> Call:
        thread = self._thread
        if self._batch is None:
            self._batch = call_id
        given = about(item)
        turn = (item.passed.turn_id if item.passed else None) or thread.turn
        return Call(
            id=call_id,
            tool=sys.intern(tool_of(item)),
            at=at,
            requested_at=record.timestamp,
            target=given.words(),
            session_id=_session(thread.speaker),
            agent_id=thread.agent_id,
            message_id=self._batch,
            prompt_id=thread.turn if turn == thread.turn else turn,
            parent_call=self._processes.get(given.process) if given.process else None,
            dialect="codex",
            shelf=self._shelf,
        )

    def _contain(self, life: Life, item: Item, at: int) -> None:
        """An item that carries its own outcome."""
        status = item.status or "completed"
        call = life.call
        life.result = Result(
            id=call.id, tool=call.tool, at=at, finished_at=None, is_error=None, shelf=self._shelf
        )
        if status in ("completed", "in_progress", "searching", "generating"):
            life.verdict = Verdict(state="succeeded", evidence=(Evidence("status", item.status),))
        else:
            life.verdict = Verdict(
                state="failed", kind="unknown", evidence=(Evidence("status", status),)
            )

    def _answer(self, item: Item, record: Record, at: int) -> None:
        self._batch = None
        call_id = item.call_id or item.tool_call_id or CallId(item.id or self._nameless())
        life = self._lives.get(call_id)
        if life is None:
            life = self._lives[call_id] = Life(self._unrecorded(call_id))
        elif life.result is not None:
            life.copies += (Copy("result", self._place(at)),)
            self._touch(life)
            return
        self._open.pop(call_id, None)
        told = said(output_of(item)) if item.tools == NOTHING else Said()
        life.verdict = judge(life.call.tool, told) if item.tools == NOTHING else RETURNED
        life.words = told.text[:_SHOWN_TEXT].strip()
        life.result = self._result(life.call, told, record, at)
        self._follow(life, told, record, at)
        self._touch(life)

    def _result(self, call: Call, told: Said, record: Record, at: int) -> Result:
        return Result(
            id=call.id,
            tool=call.tool,
            at=at,
            finished_at=record.timestamp,
            is_error=None if told.flag is None else not told.flag,
            exit_code=told.exit_code,
            truncated=told.truncated,
            background_task=told.running,
            reported_ms=told.wall_ms,
            shelf=self._shelf,
        )

    def _follow(self, life: Life, told: Said, record: Record, at: int) -> None:
        """What an output means for other calls, and for the hooks of its own."""
        call = life.call
        if told.running is not None:
            life.runs_on = True
            self._processes[told.running] = call.parent_call or call.id
        elif call.parent_call is not None and (told.exit_code is not None or told.script):
            starter = self._lives.get(call.parent_call)
            if starter is not None:
                starter.events += (self._news(starter, told, record, at),)
                self._touch(starter)
        if call.kind == "agent":
            life.agent = spawned(life.words)
            if life.agent is not None:
                self.started[life.agent] = call.id
        if life.verdict is not None and life.verdict.state == "blocked_by_hook":
            life.events += (self._hook(life, record, at),)

    def _news(self, starter: Life, told: Said, record: Record, at: int) -> Notification:
        """The process of an earlier call has ended."""
        code = told.exit_code
        status = "failed" if code or told.script == "failed" else "completed"
        return Notification(
            task_id=starter.result.background_task if starter.result else None,
            status=status,
            summary=f"exit code {code}" if code is not None else told.script,
            at=record.timestamp,
            place=self._place(at),
        )

    def _hook(self, life: Life, record: Record, at: int) -> Hook:
        _, _, reason = life.words.partition(_HOOK)
        return Hook(
            point="PreToolUse", name="PreToolUse", outcome="blocked", text=reason or None,
            at=record.timestamp, place=self._place(at),
        )  # fmt: skip

    def _unrecorded(self, call_id: CallId) -> Call:
        """The call of an output that nobody asked for."""
        return Call(
            id=call_id,
            tool="",
            at=0,
            requested_at=None,
            target=None,
            session_id=_session(self._thread.speaker),
            agent_id=self._thread.agent_id,
            dialect="codex",
            shelf=self._shelf,
        )

    def _event(self, item: Item, record: Record, at: int) -> None:
        kind = item.type
        if kind in ("token_count", "agent_message", "agent_reasoning"):  # most of them
            return
        if kind == "turn_aborted":
            self._abort(text_of(item.reason) or "interrupted")
        elif kind in ("task_started", "turn_started"):
            self._turn()
        elif kind == "user_message":
            self._batch = None
        elif kind.endswith("_approval_request") or kind in ("exec_approval", "patch_approval"):
            self._consent(item, at)
        else:
            self._end(item, record, at)

    def _abort(self, reason: str) -> None:
        """The turn ended: what has no output by now is never run to its end."""
        self._stopped += self._open.values()
        for life in self._stopped:  # words tell of it first, an event then says why
            life.aborted = reason
            self._touch(life)
        self._open.clear()
        self._batch = None

    def _turn(self) -> None:
        """Another turn begins: what has no output by now never gets one."""
        self._open.clear()
        self._stopped.clear()
        self._batch = None

    def _touch(self, life: Life) -> None:
        """More is known of a call; for those who follow a file as it grows."""

    def _consent(self, item: Item, at: int) -> None:
        """Somebody was asked, or has answered."""
        life = self._lives.get(item.call_id or CallId(item.id or ""))
        if life is None:
            return
        answer = text_of(item.decision)
        reason = text_of(item.reason)
        place = self._place(at)
        life.events += (Permission(decision=answer or "ask", reason=reason or None, place=place),)
        self._touch(life)
        if answer in ("denied", "abort", "timed_out"):
            life.ended = Ended(
                what=item.type, declined=answer != "timed_out", timed_out=answer == "timed_out"
            )

    def _end(self, item: Item, record: Record, at: int) -> None:
        """An event that may tell of a call's end."""
        found = ended_by(item)
        if found is None:
            return
        call_id, ended = found
        life = self._lives.get(call_id)
        if life is not None:
            self._finish(life, ended, item, record, at)
            return
        script = self._script()
        if script is not None:
            self._inside(script, item, record, at)
        else:
            self._early[call_id] = ended

    def _finish(self, life: Life, ended: Ended, item: Item, record: Record, at: int) -> None:
        self._shelf.ends.setdefault(life.call.id, at)
        self._touch(life)
        agent = item.new_thread_id
        if (
            item.done is not None
            and item.done.receiver_thread_ids
            and item.done.tool == "spawnAgent"
        ):
            agent = item.done.receiver_thread_ids[0]
        if agent is not None:
            life.agent = agent
            self.started[agent] = life.call.id
        if not life.runs_on:
            life.ended = ended
            return
        status = "failed" if ended.ok is False else "completed"
        code = ended.exit_code
        life.events += (
            Notification(
                task_id=life.result.background_task if life.result else None,
                status=status,
                summary=f"exit code {code}" if code is not None else None,
                at=record.timestamp,
                place=self._place(at),
            ),
        )

    def _script(self) -> Life | None:
        """The open call whose script may have done what an event tells of."""
        for life in reversed(self._open.values()):
            if life.call.tool in _SCRIPTS:
                return life
        return None

    def _inside(self, life: Life, item: Item, record: Record, at: int) -> None:
        text = inner_call(item)
        place = self._place(at)
        life.events += (Note(kind="inner_call", text=text, at=record.timestamp, place=place),)
        self._touch(life)

    def successes(self) -> list[str]:
        """A name for each call that succeeded."""
        return [
            f"{life.call.id} {life.call.message_id}"
            for life in self._lives.values()
            if self._verdict(life).state == "succeeded"
        ]

    def surrender(self, branches: Branches) -> Iterator[Span]:
        """Every call, in the order the model asked; the file counts as finished.

        Each call is let go as its span is made: nothing is left afterwards.
        """
        others = branches or None
        lives, self._lives = self._lives, {}
        self._open = {}
        for call_id in list(lives):
            yield self._span(lives.pop(call_id), others)

    def _span(self, life: Life, branches: Branches | None) -> Span:
        """The span of a call; without branches, all lines are on the active one."""
        verdict = self._verdict(life)
        result = life.result
        if result is not None and result.reported_ms is None and life.ended is not None:
            result = replace(result, reported_ms=life.ended.duration_ms)
        words = life.words or (life.ended.text if life.ended else None)
        wrong = verdict.kind is not None
        return Span(
            call=life.call,
            result=result,
            state=verdict.state,
            evidence=verdict.evidence,
            error_kind=verdict.kind,
            message=(words or None) if wrong else None,
            events=life.events,
            background=life.runs_on and verdict.state == "succeeded",
            synthetic=verdict.synthetic,
            branch=self._branch(life, branches),
            agent=life.agent,
            copies=life.copies,
        )

    @staticmethod
    def _branch(life: Life, branches: Branches | None) -> Branch:
        if branches is None or not life.call.at:
            return "active"
        return branches.of(Place.line_of(life.call.at))

    def _verdict(self, life: Life) -> Verdict:
        verdict, ended = life.verdict, life.ended
        if not life.call.at:
            kind = verdict.kind if verdict else None
            return Verdict(state="orphan_result", kind=kind, evidence=(Evidence("no request"),))
        if verdict is None:
            return unanswered(ended, life.aborted)
        if ended is None:
            return verdict
        return weigh(life.call.tool, verdict, ended, life.words)

    def _nameless(self) -> str:
        """A name for an item that has none: its thread's, and a number, as a fork's copy has."""
        owner = self._thread.owner or ""
        number = self._unnamed.get(owner, 0)
        self._unnamed[owner] = number + 1
        return f"{NAMELESS}{owner}.{number}"

    def _place(self, at: int) -> Place:
        return Place.unpacked(self._shelf.name, at)


def _session(name: str | None) -> SessionId | None:
    return SessionId(name) if name is not None else None
