"""Which calls of a file that grows have changed since somebody last asked.

In: what happens to calls, by their ids, as a file is written. Out: the calls that may have changed,
in the order the model asked, and whether a call can still be answered. Knows no client's format:
`live.py` and `codex/live.py` read the lines and tell it.
"""

import itertools
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from toolspan.ids import CallId
from toolspan.model.span import Call, Result
from toolspan.read.verdict import Verdict


class _Life(Protocol):
    """What is known of a call."""

    call: Call
    result: Result | None
    verdict: Verdict | None


L = TypeVar("L", bound=_Life)


class Changes:
    """Remembers what has happened to the calls of one file."""

    def __init__(self) -> None:
        self.touched: set[CallId] = set()
        """Calls that may have changed since last asked; some may not be asked for yet."""
        self.begun: set[CallId] = set()
        """Calls that were seen to start."""
        self._left: set[CallId] = set()
        self._ended = False
        self._order: dict[CallId, int] = {}
        self._numbers = itertools.count()

    def take(self, lives: Mapping[CallId, L]) -> list[L]:
        """The calls that may have changed since last asked, in the order the model asked."""
        known = [call_id for call_id in self.touched if call_id in lives]
        self.touched.clear()
        known.sort(key=self._order.__getitem__)
        return [lives[call_id] for call_id in known]

    def order(self, call_id: CallId) -> None:
        """A call comes behind all that there are."""
        self._order[call_id] = next(self._numbers)

    def meet(self, call_id: CallId) -> None:
        """A call is spoken of; if it is new, it comes behind all that there are."""
        if call_id not in self._order:
            self.order(call_id)
        self.touched.add(call_id)

    def begin(self, call_id: CallId) -> None:
        """Something shows that a call has started."""
        self.begun.add(call_id)
        self.touched.add(call_id)

    def leave(self, calls: Collection[CallId]) -> None:
        """The client went on without the results of these calls: nobody gives them any more."""
        self._left.update(calls)
        self.touched.update(calls)

    def end(self, lives: Mapping[CallId, _Life], *, moved: bool) -> None:
        """The file counts as finished; `moved` when that says of all calls where they stand."""
        self._ended = True
        self.touched.update(
            call_id for call_id, life in lives.items() if moved or life.result is None
        )

    def is_open(self, life: _Life, verdict: Verdict) -> bool:
        """Whether a call may still be answered; the verdict is that of a file that is finished."""
        if life.verdict is not None or verdict.state != "never_answered":
            return False
        return not self._ended and life.call.id not in self._left
