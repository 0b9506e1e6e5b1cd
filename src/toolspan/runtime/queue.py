"""Decide which calls in a batch may start, without tools, tasks or a clock.

Start at `Queue.start`. The order is strict: the scan stops at the first call that cannot start, so that no call
overtakes it. Concurrent calls may overlap. An exclusive call waits for all calls before it and holds back all calls
after it. With `by_path`, calls that declare the files they access wait only for calls that access the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from toolspan.types.ids import CallId

Stage = Literal["queued", "executing", "completed", "yielded"]


class QueueItem(Struct, eq=False, gc=False):
    """A call in the queue."""

    id: CallId
    overlaps: bool | Callable[[], bool]
    """True if the call may overlap with other such calls, or a function that decides this when needed."""
    paths: frozenset[str] | None = None  # the files that the call accesses; None if unknown
    stage: Stage = "queued"
    position: int = -1  # the number of calls before this one, set by the queue

    def may_overlap(self) -> bool:
        """Return whether the call may overlap with other such calls."""
        if not isinstance(self.overlaps, bool):
            self.overlaps = self.overlaps()
        return self.overlaps


class Queue(Struct, eq=False):
    """The calls in one batch, in call order."""

    max_running: int | None = None  # the maximum number of calls that run concurrently; None for no limit
    by_path: bool = False  # calls that access different files may overlap, even if they write
    _items: dict[CallId, QueueItem] = {}
    _waiting: dict[CallId, QueueItem] = {}
    _running: dict[CallId, QueueItem] = {}
    _completed: list[QueueItem] = []

    def add(self, item: QueueItem) -> None:
        """Append a call.

        Raises:
            ValueError: the id is already in the queue, or the item was added before.
        """
        if item.id in self._items:
            raise ValueError(f"call {item.id} is already in the queue")
        if item.stage != "queued":
            raise ValueError(f"call {item.id} is {item.stage}, not queued")
        item.position = len(self._items)
        self._items[item.id] = item
        self._waiting[item.id] = item

    def start(self) -> list[CallId]:
        """Mark the calls that can start now as running, and return them."""
        started: list[CallId] = []
        for item in self._waiting.values():
            if self._running and not self._may_overlap_running(item):
                break
            item.stage = "executing"
            self._running[item.id] = item
            started.append(item.id)
        for call_id in started:
            del self._waiting[call_id]
        return started

    def finish(self, call_id: CallId) -> None:
        """Mark a running call as completed.

        Raises:
            ValueError: the call is not running.
        """
        item = self._running.pop(call_id, None)
        if item is None:
            raise ValueError(f"call {call_id} is not running")
        item.stage = "completed"
        self._completed.append(item)

    def withdraw(self, call_id: CallId) -> bool:
        """Complete a call before it starts, or return False if it has started or is not in the queue."""
        item = self._waiting.pop(call_id, None)
        if item is None:
            return False
        item.stage = "completed"
        self._completed.append(item)
        return True

    def take_completed(self) -> list[CallId]:
        """Return the completed calls that have not been returned before, in call order.

        An exclusive call that is still running holds back the calls after it; a concurrent one does not.
        """
        exclusive = [item.position for item in self._running.values() if not item.may_overlap()]
        barrier = min(exclusive, default=len(self._items))
        ready = sorted((i for i in self._completed if i.position < barrier), key=lambda item: item.position)
        self._completed = [item for item in self._completed if item.position >= barrier]
        for item in ready:
            item.stage = "yielded"
        return [item.id for item in ready]

    @property
    def running(self) -> frozenset[CallId]:
        """The calls that are running."""
        return frozenset(self._running)

    @property
    def waiting(self) -> tuple[CallId, ...]:
        """The calls that have not started, in order."""
        return tuple(self._waiting)

    @property
    def is_idle(self) -> bool:
        """True if no call is running."""
        return not self._running

    @property
    def is_done(self) -> bool:
        """True if every call has ended."""
        return not self._waiting and not self._running

    def stage(self, call_id: CallId) -> Stage | None:
        """Return the stage of a call, or None if it is not in the queue."""
        item = self._items.get(call_id)
        return item.stage if item else None

    def position(self, call_id: CallId) -> int:
        """Return the number of calls before this one."""
        return self._items[call_id].position

    def __contains__(self, call_id: object) -> bool:
        return call_id in self._items

    def _may_overlap_running(self, item: QueueItem) -> bool:
        if self.max_running is not None and len(self._running) >= self.max_running:
            return False
        for other in self._running.values():
            if item.may_overlap() and other.may_overlap():
                continue
            if not self.by_path or item.paths is None or other.paths is None or item.paths & other.paths:
                return False
        return True
