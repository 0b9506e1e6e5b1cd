"""Send events to any number of sinks, so that a slow or failing sink never affects a call.

A sink is a function that takes one event. Each sink has a queue: a plain function is called in its
own thread, an async function in a task. When a queue is full, progress is dropped first, then the
oldest event. Direct sinks, such as the recorder, are called immediately, before the call continues.
A sink that raises is logged once, and its exceptions are sent to the other sinks as `Faulted`.
Start at `Emitter`.
"""

from __future__ import annotations

import inspect
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import get_args

import anyio

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.isolation import IsolatedTasks, TaskSet, current_task_cancelled
from toolspan.runtime.tool import GRACE
from toolspan.types.events import Faulted, LiveEvent, Progressed

Sink = Callable[[LiveEvent], object]
"""A function that receives every event, in order. It may be async, block, raise or be slow; that
affects only the sink itself.
"""

EventType = type[LiveEvent]
EVENT_TYPES: frozenset[EventType] = frozenset(get_args(LiveEvent))

CAPACITY = 10_000
_MAX_REPORTED_FAULTS = 3  # the maximum number of reported exceptions per sink


class _SinkQueue:
    """The queue of events for one sink."""

    def __init__(self, sink: Sink, report_fault: Callable[[str, BaseException], None]) -> None:
        self.sink = sink
        self._report_fault = report_fault
        self.dropped = 0
        self.failures = 0

    def _record_failure(self, error: BaseException) -> None:
        self.failures += 1
        if self.failures <= _MAX_REPORTED_FAULTS:
            self._report_fault(_sink_name(self.sink), error)


class ThreadSinkQueue(_SinkQueue):
    """The queue for a plain function, which is called in its own thread."""

    def __init__(self, sink: Sink, report_fault: Callable[[str, BaseException], None]) -> None:
        super().__init__(sink, report_fault)
        self._events: queue.Queue[LiveEvent | None] = queue.Queue(CAPACITY)
        self._thread: threading.Thread | None = None

    def put(self, event: LiveEvent) -> None:
        """Add an event; the first one starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._drain_events, daemon=True, name="toolspan-sink")
            self._thread.start()
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self.dropped += 1
            if not isinstance(event, Progressed):
                with suppress(queue.Empty, queue.Full):  # the thread emptied or filled the queue first
                    self._events.get_nowait()
                    self._events.put_nowait(event)

    def close(self, grace: float) -> bool:
        """Wait until the sink has received all events, or return False if it takes longer than `grace` seconds."""
        if self._thread is None:
            return True
        deadline = time.monotonic() + grace
        try:
            self._events.put(None, timeout=grace)
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        done = not self._thread.is_alive()
        if done:
            self._thread = None
        return done

    def _drain_events(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                answer = self.sink(event)
                if isinstance(answer, Coroutine):
                    answer.close()
                if isinstance(answer, Awaitable):
                    raise TypeError("the sink returned an awaitable; pass the async function itself as the sink")
            except BaseException as error:  # noqa: BLE001 - user code
                self._record_failure(error)


class TaskSinkQueue(_SinkQueue):
    """The queue for an async function, which is awaited in a task."""

    def __init__(self, sink: Sink, report_fault: Callable[[str, BaseException], None]) -> None:
        super().__init__(sink, report_fault)
        self._events: deque[LiveEvent] = deque()
        self._wakeup = anyio.Event()
        self._closing = False
        self.done = anyio.Event()

    def open(self) -> None:
        """Accept events again after `close`."""
        self._closing = False
        self._wakeup, self.done = anyio.Event(), anyio.Event()
        if self._events:
            self._wakeup.set()

    def put(self, event: LiveEvent) -> None:
        """Add an event."""
        if len(self._events) >= CAPACITY:
            self.dropped += 1
            if isinstance(event, Progressed):
                return
            self._events.popleft()
        self._events.append(event)
        self._wakeup.set()

    def close(self) -> None:
        """Make `drain` return after the last event."""
        self._closing = True
        self._wakeup.set()

    async def drain(self, isolated_tasks: IsolatedTasks) -> None:
        """Send the events to the sink until the queue is closed and empty."""
        try:
            while self._events or not self._closing:
                await self._wakeup.wait()
                self._wakeup = anyio.Event()
                while self._events:
                    await self._deliver_event(self._events.popleft(), isolated_tasks)
        finally:
            self.done.set()

    async def _deliver_event(self, event: LiveEvent, isolated_tasks: IsolatedTasks) -> None:
        try:
            answer = self.sink(event)
            if isinstance(answer, Awaitable):
                await isolated_tasks.run(answer, GRACE, _sink_name(self.sink))
        except anyio.get_cancelled_exc_class() as error:
            if current_task_cancelled():
                raise
            self._record_failure(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - user code
            self._record_failure(error)


class FilteredSink:
    """A direct sink that receives only some types of events."""

    def __init__(self, sink: Sink, event_types: Iterable[EventType]) -> None:
        self.sink = sink
        self.event_types = frozenset(event_types)

    def __call__(self, event: LiveEvent) -> object:
        """Pass the event on if its type is one of those selected."""
        return self.sink(event) if type(event) in self.event_types else None


def _is_async(sink: Sink) -> bool:
    """Return whether the sink is an async function, or an object with an async `__call__`."""
    call = getattr(sink, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(sink) or inspect.iscoroutinefunction(call)


class Emitter:
    """Dispatcher of events to all sinks. `emit` never raises or blocks."""

    def __init__(
        self,
        sinks: Iterable[Sink] = (),
        *,
        direct: Iterable[Sink] = (),
        on_sink_fault: Callable[[Faulted], None] = lambda _: None,
        clock: Callable[[], float],
    ) -> None:
        """Create a dispatcher. `on_sink_fault` gets the exceptions that sinks raise. It must not raise."""
        self._clock = clock
        self._on_sink_fault = on_sink_fault
        self._direct: dict[EventType, list[Sink]] = {event_type: [] for event_type in EVENT_TYPES}
        for sink in direct:
            function = sink.sink if isinstance(sink, FilteredSink) else sink
            if _is_async(function):
                raise ToolspanError(f"{_sink_name(sink)} is async, and direct sinks are not awaited; use sinks=")
            for event_type in sink.event_types if isinstance(sink, FilteredSink) else EVENT_TYPES:
                self._direct[event_type].append(function)
        self._logged_sinks: set[str] = set()
        self._faults: deque[Faulted] = deque()  # faults in sinks, to be emitted in the event loop's thread
        self._threads: list[ThreadSinkQueue] = []
        self._tasks: list[TaskSinkQueue] = []
        for sink in sinks:
            if _is_async(sink):
                self._tasks.append(TaskSinkQueue(sink, self._report_fault))
            else:
                self._threads.append(ThreadSinkQueue(sink, self._report_thread_fault))
        self.observed_events = EVENT_TYPES if self._queues else frozenset(k for k in EVENT_TYPES if self._direct[k])
        """The types of events that at least one sink receives. Others need not be created."""

    @property
    def dropped(self) -> int:
        """The number of events that slow sinks missed."""
        return sum(sink_queue.dropped for sink_queue in self._queues)

    @property
    def _queues(self) -> list[ThreadSinkQueue | TaskSinkQueue]:
        return [*self._threads, *self._tasks]

    def emit(self, event: LiveEvent) -> None:
        """Send an event to every sink."""
        if self._faults:
            self._emit_faults()
        for sink in self._direct[type(event)]:
            try:
                sink(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a fault of a sink must not harm a call
                self._report_fault(_sink_name(sink), error)
        for thread in self._threads:
            thread.put(event)
        for task in self._tasks:
            task.put(event)

    def start(self, task_set: TaskSet, isolated_tasks: IsolatedTasks) -> None:
        """Start the tasks for the async sinks."""
        for sink_queue in self._tasks:
            sink_queue.open()
            task_set.start_soon(sink_queue.drain, isolated_tasks)

    async def close(self, grace: float) -> None:
        """Give the sinks `grace` seconds to receive the events in their queues."""
        async with anyio.create_task_group() as group:
            for thread in self._threads:
                group.start_soon(anyio.to_thread.run_sync, thread.close, grace)
        self._emit_faults()
        for sink_queue in self._tasks:
            sink_queue.close()
        with anyio.move_on_after(grace):
            for sink_queue in self._tasks:
                await sink_queue.done.wait()

    def _report_fault(self, where: str, error: BaseException) -> None:
        self._report_thread_fault(where, error)
        self._emit_faults()

    def _report_thread_fault(self, where: str, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {exception_text(error)}"
        if where not in self._logged_sinks:  # once per sink, because every event may fail
            self._logged_sinks.add(where)
            logging.getLogger("toolspan").warning("the sink %s failed, and may miss events: %s", where, reason)
        self._faults.append(Faulted(where=where, reason=reason, at=self._clock()))

    def _emit_faults(self) -> None:
        """Send each fault to all sinks except the one at fault. Faults that this causes are ignored."""
        while self._faults:
            fault = self._faults.popleft()
            self._on_sink_fault(fault)
            for sink in self._direct[Faulted]:
                if _sink_name(sink) != fault.where:
                    with suppress(Exception):
                        sink(fault)
            for sink_queue in self._queues:
                if _sink_name(sink_queue.sink) != fault.where:
                    sink_queue.put(fault)


def _sink_name(sink: Sink) -> str:
    return getattr(sink, "__qualname__", None) or type(sink).__qualname__
