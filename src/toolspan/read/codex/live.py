"""Calls of a rollout that still grows.

In: the same records as `pair.py`, as they are written. Out: besides the final states the open ones,
and which calls changed since somebody last asked. Read `LivePairing.changed` first.
"""

import itertools

from toolspan.ids import CallId
from toolspan.model.event import Permission
from toolspan.model.span import Evidence, Span
from toolspan.read.codex.pair import Life, Pairing
from toolspan.read.codex.thread import Thread
from toolspan.read.tree import Branches
from toolspan.read.verdict import Verdict
from toolspan.wire.codex import Record
from toolspan.wire.source import Source

_BEGINNINGS = frozenset({"exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin"})


class LivePairing(Pairing):
    """Joins the calls of a rollout that still grows: open states, and which calls changed."""

    def __init__(self, source: Source, thread: Thread) -> None:
        super().__init__(source, thread)
        self._touched: set[CallId] = set()
        self._order: dict[CallId, int] = {}
        self._numbers = itertools.count()
        self._begun: set[CallId] = set()
        self._left: set[CallId] = set()
        """Calls without output from which the client went on to another turn."""
        self._branches: Branches | None = None
        self._ended = False

    def changed(self) -> list[Span]:
        """The calls that may have changed since last asked, in the order the model asked."""
        known = [call_id for call_id in self._touched if call_id in self._lives]
        self._touched.clear()
        known.sort(key=self._order.__getitem__)
        return [self._span(self._lives[call_id], self._branches) for call_id in known]

    def begin(self, call_id: CallId) -> None:
        """Something shows that a call has started."""
        self._begun.add(call_id)
        self._touched.add(call_id)

    def end(self, branches: Branches) -> None:
        """The file counts as finished: what is open stays unanswered, and branches are known."""
        self._ended = True
        self._branches = branches or None
        self._touched.update(
            call_id for call_id, life in self._lives.items() if branches or life.result is None
        )

    def add(self, record: Record, at: int) -> None:
        """One record and its packed place."""
        if record.is_event and record.item.type in _BEGINNINGS and record.item.call_id:
            self.begin(record.item.call_id)
        super().add(record, at)

    def _touch(self, life: Life) -> None:
        call_id = life.call.id
        if call_id not in self._order:
            self._order[call_id] = next(self._numbers)
        self._touched.add(call_id)

    def _turn(self) -> None:
        self._left.update(self._open)
        self._touched.update(self._open)
        super()._turn()

    def _verdict(self, life: Life) -> Verdict:
        verdict = super()._verdict(life)
        call_id = life.call.id
        over = self._ended or call_id in self._left
        if over or life.verdict is not None or verdict.state != "never_answered":
            return verdict
        if call_id in self._begun or life.ended is not None:
            return Verdict(state="running", evidence=(Evidence("progress"),))
        if any(isinstance(event, Permission) and event.decision == "ask" for event in life.events):
            return Verdict(state="awaiting_permission", evidence=(Evidence("approval asked"),))
        return Verdict(state="requested", evidence=(Evidence("no result yet"),))
