"""Events to any number of sinks; a slow or crashing one never harms a call.

A sink is a function of one event. Each gets its own line of waiting events: a plain function is
called in a thread of its own, an async one in a task. When a line is full, progress is dropped
first, then the oldest event; what was dropped is counted. Watchers that must see an event before
the call goes on (the recorder) are given as `direct`: they are called at once, in order. Events of
a kind that nobody hears need not be made: see `Emitter.hears`.
"""

import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import get_args

import anyio
import anyio.abc

from toolspan.errors import ToolspanError, words_of
from toolspan.hooks.stray import is_cancelled
from toolspan.model.live import Faulted, LiveEvent, Progressed
from toolspan.run.rooms import Rooms
from toolspan.run.tool import GRACE

Sink = Callable[[LiveEvent], object]
"""Receives every event, in order. May be async. May block, raise or be slow: only it suffers."""

Kind = type[LiveEvent]
KINDS: frozenset[Kind] = frozenset(get_args(LiveEvent))

CAPACITY = 10_000
_FAULTS = 3
"""So many exceptions are told of per sink; the rest is only counted."""


class _Line:
    """Events on their way to a sink, and how many of them went wrong."""

    def __init__(self, sink: Sink, fault: Callable[[str, BaseException], None]) -> None:
        self.sink = sink
        self._fault = fault
        self.dropped = 0
        self.failed = 0

    def _failed(self, error: BaseException) -> None:
        self.failed += 1
        if self.failed <= _FAULTS:
            self._fault(_name(self.sink), error)


class ThreadLine(_Line):
    """A plain function, called in a thread of its own."""

    def __init__(self, sink: Sink, fault: Callable[[str, BaseException], None]) -> None:
        super().__init__(sink, fault)
        self._events: queue.Queue[LiveEvent | None] = queue.Queue(CAPACITY)
        self._thread: threading.Thread | None = None

    def put(self, event: LiveEvent) -> None:
        """Add an event; the thread starts with the first."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._drain, daemon=True, name="toolspan-sink")
            self._thread.start()
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self.dropped += 1
            if not isinstance(event, Progressed):
                self._make_room(event)

    def close(self, grace: float) -> bool:
        """Wait until all events were taken; False when the sink was too slow for that."""
        if self._thread is None:
            return True
        until = time.monotonic() + grace
        try:
            self._events.put(None, timeout=grace)
        except queue.Full:
            return False
        self._thread.join(max(0.0, until - time.monotonic()))
        done = not self._thread.is_alive()
        if done:
            self._thread = None
        return done

    def _make_room(self, event: LiveEvent) -> None:
        try:
            self._events.get_nowait()
            self._events.put_nowait(event)
        except (queue.Empty, queue.Full):
            return  # the thread was quicker; the event counts as dropped

    def _drain(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                _refuse_awaitable(self.sink(event))
            except BaseException as error:  # noqa: BLE001 - user code; only it suffers
                self._failed(error)


class TaskLine(_Line):
    """An async function, awaited in a task."""

    def __init__(self, sink: Sink, fault: Callable[[str, BaseException], None]) -> None:
        super().__init__(sink, fault)
        self._events: deque[LiveEvent] = deque()
        self._news = anyio.Event()
        self._closing = False
        self.done = anyio.Event()

    def put(self, event: LiveEvent) -> None:
        """Add an event."""
        if len(self._events) >= CAPACITY:
            self.dropped += 1
            if isinstance(event, Progressed):
                return
            self._events.popleft()
        self._events.append(event)
        self._news.set()

    def close(self) -> None:
        """No more events come."""
        self._closing = True
        self._news.set()

    async def drain(self, rooms: Rooms) -> None:
        """Pass the events on until the line is closed and empty."""
        try:
            while self._events or not self._closing:
                await self._news.wait()
                self._news = anyio.Event()
                while self._events:
                    await self._pass_on(self._events.popleft(), rooms)
        finally:
            self.done.set()

    async def _pass_on(self, event: LiveEvent, rooms: Rooms) -> None:
        try:
            answer = self.sink(event)
            if isinstance(answer, Awaitable):
                await rooms.run(answer, GRACE, _name(self.sink))
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled():
                raise
            self._failed(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - user code; only it suffers
            self._failed(error)


class Only:
    """A direct watcher that wants events of some kinds and is not bothered with others."""

    def __init__(self, sink: Sink, kinds: Iterable[Kind]) -> None:
        self.sink = sink
        self.kinds = frozenset(kinds)

    def __call__(self, event: LiveEvent) -> object:
        """Take an event, if it is of such a kind."""
        return self.sink(event) if type(event) in self.kinds else None


def _is_async(sink: Sink) -> bool:
    """Whether it is an async function, or an object with an async call."""
    call = getattr(sink, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(call)


def _refuse_async(sink: Sink) -> Sink:
    if _is_async(sink.sink if isinstance(sink, Only) else sink):
        raise ToolspanError(f"{_name(sink)} is async: what is direct is not awaited; use sinks=")
    return sink


def _refuse_awaitable(answer: object) -> None:
    """A plain function that gives what nobody will await."""
    if isinstance(answer, Awaitable):
        if isinstance(answer, Coroutine):
            answer.close()
        raise TypeError("it gave something to await; name the async function itself as the sink")


class Emitter:
    """Passes events on to everybody who wants them; `emit` never raises and never waits."""

    def __init__(
        self,
        sinks: Iterable[Sink] = (),
        *,
        direct: Iterable[Sink] = (),
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._direct = _by_kind(_refuse_async(sink) for sink in direct)
        self._late: deque[Faulted] = deque()
        """Faults of sinks in their threads, to be told in the thread of the event loop."""
        self._threads: list[ThreadLine] = []
        self._tasks: list[TaskLine] = []
        for sink in sinks:
            if _is_async(sink):
                self._tasks.append(TaskLine(sink, self._fault))
            else:
                self._threads.append(ThreadLine(sink, self._fault_in_thread))
        self.hears = KINDS if self._lines else frozenset(k for k in KINDS if self._direct[k])
        """The kinds of events that somebody hears."""

    @property
    def dropped(self) -> int:
        """Events that some sink was too slow for."""
        return sum(line.dropped for line in self._lines)

    @property
    def _lines(self) -> list[ThreadLine | TaskLine]:
        return [*self._threads, *self._tasks]

    def emit(self, event: LiveEvent) -> None:
        """Pass an event on."""
        if self._late:
            self._tell_late()
        for watcher in self._direct[type(event)]:
            try:
                watcher(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a watcher's fault must not harm a call
                self._fault(_name(watcher), error)
        for thread in self._threads:
            thread.put(event)
        for task in self._tasks:
            task.put(event)

    def start(self, group: anyio.abc.TaskGroup, rooms: Rooms) -> None:
        """Begin to serve the async sinks."""
        for line in self._tasks:
            group.start_soon(line.drain, rooms)

    async def close(self, grace: float) -> None:
        """Give the sinks a last while to take what waits for them."""
        async with anyio.create_task_group() as group:
            for thread in self._threads:
                group.start_soon(anyio.to_thread.run_sync, thread.close, grace)
        self._tell_late()
        for line in self._tasks:
            line.close()
        with anyio.move_on_after(grace):
            for line in self._tasks:
                await line.done.wait()

    def _fault(self, where: str, error: BaseException) -> None:
        self._tell(self._faulted(where, error))

    def _fault_in_thread(self, where: str, error: BaseException) -> None:
        self._late.append(self._faulted(where, error))

    def _faulted(self, where: str, error: BaseException) -> Faulted:
        reason = f"{type(error).__name__}: {words_of(error)}"
        return Faulted(where=where, reason=reason, at=self._clock())

    def _tell_late(self) -> None:
        while self._late:
            self._tell(self._late.popleft())

    def _tell(self, fault: Faulted) -> None:
        """Tell all but the one whose fault it is; who fails at that is not told of again."""
        for watcher in self._direct[Faulted]:
            if _name(watcher) != fault.where:
                with suppress(Exception):
                    watcher(fault)
        for line in self._lines:
            if _name(line.sink) != fault.where:
                line.put(fault)


def _by_kind(direct: Iterable[Sink]) -> dict[Kind, list[Sink]]:
    """Who is to be called for an event of each kind."""
    chosen: dict[Kind, list[Sink]] = {kind: [] for kind in KINDS}
    for watcher in direct:
        wanted, sink = (
            (watcher.kinds, watcher.sink) if isinstance(watcher, Only) else (KINDS, watcher)
        )
        for kind in wanted:
            chosen[kind].append(sink)
    return chosen


def _name(sink: Sink) -> str:
    return getattr(sink, "__qualname__", None) or type(sink).__qualname__
