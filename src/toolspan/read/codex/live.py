"""Calls of a rollout that still grows.

In: the same records as `pair.py`, as they are written. Out: besides the final states the open ones,
and which calls changed since somebody last asked. Read `LivePairing.changed` first.
"""

from toolspan.ids import CallId
from toolspan.model.event import Permission
from toolspan.model.span import Evidence, Span
from toolspan.read.changes import Changes
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
        self._changes = Changes()
        self._branches: Branches | None = None

    def changed(self) -> list[Span]:
        """The calls that may have changed since last asked, in the order the model asked."""
        return [self._span(life, self._branches) for life in self._changes.take(self._lives)]

    def begin(self, call_id: CallId) -> None:
        """Something shows that a call has started."""
        self._changes.begin(call_id)

    def end(self, branches: Branches) -> None:
        """The file counts as finished: what is open stays unanswered, and branches are known."""
        self._branches = branches or None
        self._changes.end(self._lives, moved=bool(branches))

    def add(self, record: Record, at: int) -> None:
        """One record and its packed place."""
        if record.is_event and record.item.type in _BEGINNINGS and record.item.call_id:
            self.begin(record.item.call_id)
        super().add(record, at)

    def _touch(self, life: Life) -> None:
        self._changes.meet(life.call.id)

    def _turn(self) -> None:
        self._changes.leave(self._open)
        super()._turn()

    def _verdict(self, life: Life) -> Verdict:
        verdict = super()._verdict(life)
        if not self._changes.is_open(life, verdict):
            return verdict
        if life.call.id in self._changes.begun or life.ended is not None:
            return Verdict(state="running", evidence=(Evidence("progress"),))
        if any(isinstance(event, Permission) and event.decision == "ask" for event in life.events):
            return Verdict(state="awaiting_permission", evidence=(Evidence("approval asked"),))
        return Verdict(state="requested", evidence=(Evidence("no result yet"),))
