"""Calls of a transcript that still grows.

In: the same entries as `pair.py`, as they are written. Out: besides the final states the open ones,
and which calls changed since somebody last asked, so that following costs only what is new. Read
`LivePairing.changed` first.
"""

from toolspan.ids import CallId
from toolspan.model.event import Event
from toolspan.model.span import Branch, Call, Evidence, Span
from toolspan.read.changes import Changes
from toolspan.read.notes import Notes
from toolspan.read.pair import Life, Pairing
from toolspan.read.tree import Branches
from toolspan.read.verdict import Verdict
from toolspan.wire.claude import Block, Entry
from toolspan.wire.source import Source


class LivePairing(Pairing):
    """Joins the calls of a transcript that still grows: open states, and which calls changed."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._changes = Changes()
        self._touched = self._changes.touched
        self.notes = _LiveNotes(source.name, self._touched)
        self._waiting: dict[str, dict[CallId, Life]] = {}
        """Calls without result, by who asked."""
        self._obscure: dict[str, set[CallId]] = {}
        """Failures without a known kind, by their words: a later refusal may explain them."""
        self._known: dict[str, Branch] = {}

    def changed(self) -> list[Span]:
        """The calls that may have changed since last asked, in the order the model asked."""
        return [self._span(life, self._known) for life in self._changes.take(self._lives)]

    def begin(self, call_id: CallId) -> None:
        """Something outside the file shows that a call has started."""
        self._changes.begin(call_id)

    def end(self, branches: Branches) -> None:
        """The file counts as finished: what is open stays unanswered, and branches are known."""
        self._known = self._batches(branches) if branches else {}
        self._changes.end(self._lives, moved=bool(branches))

    def _assistant(self, entry: Entry, at: int) -> None:
        speaker = entry.agent_id or entry.parent_tool_use_id_snake or ""
        nobody = entry.is_sidechain and not speaker  # one of several subagents, no telling which
        waiting = None if nobody else self._waiting.get(speaker)
        message = entry.message
        if waiting and message is not None and message.id and message.model != "<synthetic>":
            self._leave(waiting, message.id)
        super()._assistant(entry, at)

    def _leave(self, waiting: dict[CallId, Life], message_id: str) -> None:
        """The model went on to another message: nobody answers the calls of those before."""
        passed = [name for name, life in waiting.items() if life.call.message_id != message_id]
        for call_id in passed:
            del waiting[call_id]
        self._changes.leave(passed)

    def _ask(self, block: Block, entry: Entry, at: int) -> None:
        call_id = block.id or self._nameless(at)
        before = self._lives.get(call_id)
        new = before is None or not before.call.at
        super()._ask(block, entry, at)
        life = self._lives[call_id]
        if new:
            self._changes.order(call_id)
            if life.result is None:
                self._waiting.setdefault(_speaker(life.call), {})[call_id] = life
        self._touched.add(call_id)

    def _answer(self, block: Block, entry: Entry, at: int) -> None:
        call_id = block.tool_use_id or self._nameless(at)
        refusals = len(self._refusals)
        super()._answer(block, entry, at)
        life = self._lives[call_id]
        self._changes.meet(call_id)
        self._waiting.get(_speaker(life.call), {}).pop(call_id, None)
        if life.verdict is not None and life.verdict.kind == "unknown":
            self._obscure.setdefault(life.words, set()).add(call_id)
        if len(self._refusals) > refusals:
            self._touched.update(self._obscure.get(life.words, ()))

    def _said(self, text: str, entry: Entry, at: int) -> None:
        recent = tuple(self._recent)
        super()._said(text, entry, at)
        self._touched.update(life.call.id for life in recent if life.interrupt_follows)

    def _verdict(self, life: Life) -> Verdict:
        verdict = super()._verdict(life)
        if not self._changes.is_open(life, verdict):
            return verdict
        call_id = life.call.id
        if call_id in self.notes.started or call_id in self.notes.progress:
            return Verdict(state="running", evidence=(Evidence("progress"),))
        if call_id in self._changes.begun:
            return Verdict(state="running", evidence=(Evidence("subagent started"),))
        return Verdict(state="requested", evidence=(Evidence("no result yet"),))


def _speaker(call: Call) -> str:
    """Who asked: a subagent by its id or by the call that started it; empty for the main one."""
    return call.agent_id or call.parent_call or ""


class _LiveNotes(Notes):
    """Notes that tell which calls they speak of."""

    def __init__(self, file: str, touched: set[CallId]) -> None:
        super().__init__(file)
        self._touched = touched

    def add(self, entry: Entry, at: int) -> None:
        super().add(entry, at)
        if entry.type == "result" or entry.subtype == "permission_denied":
            self._touched.update(map(CallId, self.denied | self.deferred))

    def _tick(self, call_id: str | None, kind: str, at: str | None) -> None:
        super()._tick(call_id, kind, at)
        if call_id is not None:
            self._touched.add(CallId(call_id))

    def _event(self, call_id: str, event: Event) -> None:
        super()._event(call_id, event)
        self._touched.add(CallId(call_id))
