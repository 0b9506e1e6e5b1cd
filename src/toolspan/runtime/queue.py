"""Which calls may start now.

In: calls in the order the model asked for them, and which ones ended. Out: the calls to start, and
the ended ones that may be handed out. No tools, no tasks, no clock; `batch.py` owns those.
Read `Queue.start` first.

Strict order: scanning stops at the first call that cannot start, so nothing overtakes it. A call
that may overlap runs beside others of its kind; one that may not waits for all before it and holds
back all behind it. With `by_path`, calls that name the files they touch only wait for calls that
touch the same ones.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolspan.types.ids import CallId

Stage = Literal["queued", "executing", "completed", "yielded"]


class QueueItem(Struct, eq=False, gc=False):
    """One call's place in the queue."""

    id: CallId
    overlaps: bool
    """It may run beside others that may."""
    paths: frozenset[str] | None = None
    """The files it touches; None when that is not known."""
    stage: Stage = "queued"
    position: int = -1
    """How many were asked for before it; set by the queue."""


class Queue(Struct, eq=False):
    """The calls of one batch, in order."""

    max_running: int | None = None
    """How many may run at once."""
    by_path: bool = False
    """Calls that touch different files may overlap, even if they write."""
    _items: dict[CallId, QueueItem] = {}
    _waiting: dict[CallId, QueueItem] = {}
    _running: dict[CallId, QueueItem] = {}
    _exclusive: dict[CallId, QueueItem] = {}
    """Those of the running that do not overlap."""
    _completed: list[QueueItem] = []

    def add(self, item: QueueItem) -> None:
        """Put a call at the end.

        Raises:
            ValueError: the id is already there, or the item has been somewhere before.
        """
        if item.id in self._items:
            raise ValueError(f"call {item.id} is already in the queue")
        if item.stage != "queued":
            raise ValueError(f"call {item.id} is {item.stage}, not queued")
        item.position = len(self._items)
        self._items[item.id] = item
        self._waiting[item.id] = item

    def start(self) -> list[CallId]:
        """The calls that start now; from here on they count as running."""
        if not self._waiting:
            return []
        started: list[CallId] = []
        for item in self._waiting.values():
            if not self._may_start(item):
                break
            item.stage = "executing"
            self._running[item.id] = item
            if not item.overlaps:
                self._exclusive[item.id] = item
            started.append(item.id)
        for call_id in started:
            del self._waiting[call_id]
        return started

    def finish(self, call_id: CallId) -> None:
        """A running call ended.

        Raises:
            ValueError: it was not running.
        """
        item = self._running.pop(call_id, None)
        if item is None:
            raise ValueError(f"call {call_id} is not running")
        self._exclusive.pop(call_id, None)
        self._mark_completed(item)

    def withdraw(self, call_id: CallId) -> bool:
        """A call ends before it started; False when it had started, or is not there."""
        item = self._waiting.pop(call_id, None)
        if item is None:
            return False
        self._mark_completed(item)
        return True

    def take_completed(self) -> list[CallId]:
        """The ended calls that may be handed out, in the order they were asked for.

        An exclusive call that still runs holds back the ones behind it; a call that overlaps does
        not.
        """
        barrier = min((item.position for item in self._exclusive.values()), default=None)
        ready = [i for i in self._completed if barrier is None or i.position < barrier]
        if len(ready) == len(self._completed):
            self._completed = []
        else:
            self._completed = [i for i in self._completed if i not in ready]
        ready.sort(key=lambda item: item.position)
        for item in ready:
            item.stage = "yielded"
        return [item.id for item in ready]

    @property
    def running(self) -> frozenset[CallId]:
        """The calls that run now."""
        return frozenset(self._running)

    @property
    def waiting(self) -> tuple[CallId, ...]:
        """The calls that have not started, in order."""
        return tuple(self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Something has not started."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing runs."""
        return not self._running

    @property
    def is_done(self) -> bool:
        """Every call has ended."""
        return not self._waiting and not self._running

    def stage(self, call_id: CallId) -> Stage | None:
        """How far a call got; None when it is not here."""
        item = self._items.get(call_id)
        return item.stage if item else None

    def position(self, call_id: CallId) -> int:
        """How many calls were asked for before this one."""
        return self._items[call_id].position

    def __contains__(self, call_id: object) -> bool:
        return call_id in self._items

    def _mark_completed(self, item: QueueItem) -> None:
        item.stage = "completed"
        self._completed.append(item)

    def _may_start(self, item: QueueItem) -> bool:
        if not self._running:
            return True
        if self.max_running is not None and len(self._running) >= self.max_running:
            return False
        if item.overlaps and not self._exclusive:
            return True
        if not self.by_path or item.paths is None:
            return False
        return all(self._touch_different_files(item, other) for other in self._running.values())

    @staticmethod
    def _touch_different_files(item: QueueItem, other: QueueItem) -> bool:
        """Two calls that may run at once though one of them writes: they touch different files."""
        if item.overlaps and other.overlaps:
            return True
        return item.paths is not None and other.paths is not None and item.paths.isdisjoint(other.paths)
