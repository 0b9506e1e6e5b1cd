"""Shared parts for pairing calls with results: inferred states, branches and change tracking."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from toolspan.types.error_kinds import ErrorKind
from toolspan.types.ids import CallId
from toolspan.types.span import Branch, Call, Evidence, Result
from toolspan.types.state import State

BRANCH_NAMES: tuple[Branch, ...] = ("active", "compacted", "abandoned")


class StateInference(Struct, frozen=True, kw_only=True, gc=False):
    """An inferred state and the evidence for it."""

    state: State
    kind: ErrorKind | None = None
    evidence: tuple[Evidence, ...] = ()
    ambiguous: bool = False
    synthetic: bool = False
    truncated: bool = False
    never_ran: bool = False
    """True for a command without the exit code that every executed command leaves."""
    rejection: bool = False
    """True if the text is the standard user rejection, which clients also write for an interrupt."""


class Branches:
    """The branch of each line, one byte per line."""

    def __init__(self, lines: array[int], marks: bytearray) -> None:
        self._lines = lines
        self._branch_indexes = marks

    def __bool__(self) -> bool:
        """Return whether any line is not on the active branch."""
        return any(self._branch_indexes)

    def branch_of(self, line: int) -> Branch:
        """Return the branch of a line number; lines that are not listed are active."""
        return BRANCH_NAMES[self.branch_index(line)]

    def branch_index(self, line: int) -> int:
        """Return the index of a line's branch in `BRANCH_NAMES`, where 0 is the active branch."""
        at = bisect_left(self._lines, line)
        if at == len(self._lines) or self._lines[at] != line:
            return 0
        return self._branch_indexes[at]


class _TrackedCall(Protocol):
    call: Call
    result: Result | None
    inference: StateInference | None


L = TypeVar("L", bound=_TrackedCall)


class CallChangeTracker:
    """A record of which calls in a growing file have changed."""

    def __init__(self) -> None:
        self.changed_ids: set[CallId] = set()
        """Calls that may have changed since the last `take_changed`; some requests may not have been read yet."""
        self.started_ids: set[CallId] = set()
        self._abandoned_ids: set[CallId] = set()
        self._is_finished = False
        self._positions: dict[CallId, int] = {}
        self._next_position = itertools.count()

    def take_changed(self, builders: Mapping[CallId, L]) -> list[L]:
        """Return the calls that may have changed since the previous invocation, in request order."""
        call_ids = [call_id for call_id in self.changed_ids if call_id in builders]
        self.changed_ids.clear()
        call_ids.sort(key=self._positions.__getitem__)
        return [builders[call_id] for call_id in call_ids]

    def assign_position(self, call_id: CallId) -> None:
        """Place a call after all others."""
        self._positions[call_id] = next(self._next_position)

    def mark_changed(self, call_id: CallId) -> None:
        """Mark a call as changed, and place a new call after all others."""
        if call_id not in self._positions:
            self.assign_position(call_id)
        self.changed_ids.add(call_id)

    def mark_started(self, call_id: CallId) -> None:
        """Mark a call as started."""
        self.started_ids.add(call_id)
        self.changed_ids.add(call_id)

    def mark_abandoned(self, calls: Collection[CallId]) -> None:
        """Mark calls as unable to get a result, because the client continued without them."""
        self._abandoned_ids.update(calls)
        self.changed_ids.update(calls)

    def finish(self, builders: Mapping[CallId, _TrackedCall], *, moved: bool) -> None:
        """Treat the file as complete; with `moved`, branches are now known and every call may have changed."""
        self._is_finished = True
        self.changed_ids.update(call_id for call_id, builder in builders.items() if moved or builder.result is None)

    def is_open(self, builder: _TrackedCall, inference: StateInference) -> bool:
        """Return whether a call without a result may still get one."""
        if builder.inference is not None or inference.state != "never_answered":
            return False
        return not self._is_finished and builder.call.id not in self._abandoned_ids
