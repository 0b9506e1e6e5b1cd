"""Sinks and the events they get; misbehaving sinks do not affect calls."""

from __future__ import annotations

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest

from tests.limits import PATIENCE
from tests.runtime.calls import EventLog, call, pending_call
from toolspan.runtime import sinks
from toolspan.runtime.batch import HEARTBEAT_SECONDS, PROGRESS_INTERVAL, report_due_events, report_progress
from toolspan.runtime.isolation import IsolatedTasks, TaskSet
from toolspan.runtime.pending_call import LiveBodyStore, PendingCall
from toolspan.runtime.runner import Runner
from toolspan.runtime.sinks import Emitter, FilteredSink
from toolspan.runtime.tool import Toolset, tool
from toolspan.tools import coding_tools
from toolspan.types.events import Faulted, Finished, LiveEvent, Progressed, Requested, Slow, Started
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio


@tool
async def quick() -> str:
    """At once."""
    return "quick"


def started(n: int) -> Started:
    return Started(call_id=CallId(str(n)), at=0.0)


def news(n: int) -> Progressed:
    return Progressed(call_id=CallId(str(n)), kind="other", data={}, at=0.0)


async def test_every_sink_gets_every_event_in_order() -> None:
    output, in_thread, in_task = EventLog(), EventLog(), EventLog()

    async def waits(event: LiveEvent) -> None:
        await anyio.lowlevel.checkpoint()
        in_task(event)

    async with Runner([quick], direct=[output], sinks=[in_thread, waits]) as runner:
        await runner.run([call("a", "quick"), call("b", "quick")])

    assert len(output.of(Finished)) == 2
    assert output.events == in_thread.events == in_task.events
    assert runner.dropped == 0


async def test_filtered_sink_gets_only_its_kinds() -> None:
    ends, all_of_it = EventLog(), EventLog()

    for others in ([], [all_of_it]):
        async with Runner([quick], direct=[FilteredSink(ends, [Finished]), *others]) as runner:
            await runner.run([call("a", "quick")])

    assert ends.events == ends.of(Finished)
    assert len(ends.events) == 2
    assert [type(event).__name__ for event in all_of_it.events] == [
        "Requested", "Started", "Finished", "BatchFinished",
    ]  # fmt: skip


async def test_raising_sinks_are_reported_a_few_times_and_affect_nothing() -> None:
    log = EventLog()

    def crashes(event: LiveEvent) -> None:
        raise ValueError("no")

    async def crashes_later(event: LiveEvent) -> None:
        raise asyncio.CancelledError

    def crashes_directly(event: LiveEvent) -> None:
        raise ValueError("neither")

    def crashes_too(event: LiveEvent) -> None:
        raise ValueError("nor here")

    runner = Runner([quick], sinks=[crashes, crashes_later], direct=[crashes_directly, crashes_too, log])
    async with runner:
        results = await runner.run([call(f"c{n}", "quick") for n in range(5)])

    assert [result.text for result in results] == ["quick"] * 5
    faulted = [item.where.rpartition(".")[2] for item in log.of(Faulted)]
    assert faulted.count("crashes") == faulted.count("crashes_later") == 3
    assert faulted.count("crashes_directly") == len(log.events) - len(faulted)


async def test_blocked_sinks_delay_no_call_and_the_end_only_for_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolspan.runtime.runner.SINK_GRACE", 0.05)
    output, go_on = EventLog(), threading.Event()

    async def blocks_in_task(event: LiveEvent) -> None:
        await anyio.sleep_forever()

    def blocks(event: LiveEvent) -> None:
        go_on.wait()

    try:
        async with Runner([quick], direct=[output], sinks=[*[blocks] * 20, blocks_in_task]) as runner:
            results = await runner.run([call("a", "quick")])
    finally:
        go_on.set()

    assert [result.text for result in results] == ["quick"]
    assert output.states == {"a": "succeeded"}


async def test_all_blocked_sinks_share_one_grace() -> None:
    go_on = threading.Event()
    closing = Emitter([lambda event: go_on.wait()] * 300, clock=lambda: 0.0)
    closing.emit(started(1))

    try:
        with anyio.move_on_after(PATIENCE) as patience:  # one after the other they would need longer
            await closing.close(PATIENCE / 200)
    finally:
        go_on.set()

    assert not patience.cancelled_caught


@pytest.mark.parametrize("way", ["thread", "task"])
async def test_full_sink_queue_drops_progress_first_then_the_oldest_and_counts(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "CAPACITY", 3)
    got: list[str] = []
    go_on, begun = threading.Event(), threading.Event()

    def slow(event: LiveEvent) -> None:
        begun.set()
        go_on.wait(5)
        got.append(str(event.call_id) if isinstance(event, Started | Progressed) else "?")

    async def later(event: LiveEvent) -> None:
        got.append(str(event.call_id) if isinstance(event, Started | Progressed) else "?")

    emitter = Emitter([slow if way == "thread" else later], clock=lambda: 0.0)
    if way == "thread":
        emitter.emit(started(0))
        await anyio.to_thread.run_sync(begun.wait)
    for n in (1, 2, 3):
        emitter.emit(started(n))
    emitter.emit(news(4))
    assert emitter.dropped == 1
    emitter.emit(started(5))
    assert emitter.dropped == 2
    go_on.set()
    tasks = TaskSet()
    emitter.start(tasks, IsolatedTasks(lambda *output: None))
    await emitter.close(4)
    await tasks.close()

    assert got == [*(["0"] if way == "thread" else []), "2", "3", "5"]


async def test_sink_errors_in_threads_are_reported_in_the_event_loop_thread() -> None:
    where: set[int] = set()

    def crashes(event: LiveEvent) -> None:
        raise ValueError("no")

    def watch(event: LiveEvent) -> None:
        if isinstance(event, Faulted):
            where.add(threading.get_ident())

    emitter = Emitter([crashes], direct=[watch], clock=lambda: 0.0)
    emitter.emit(started(1))
    await emitter.close(4)

    assert where == {threading.get_ident()}


async def test_object_with_an_async_call_is_a_sink() -> None:
    class Keeps:
        def __init__(self) -> None:
            self.events: list[LiveEvent] = []

        async def __call__(self, event: LiveEvent) -> None:
            self.events.append(event)

    keeps = Keeps()
    await Runner([quick], sinks=[keeps]).run([call("a", "quick")])

    assert [type(event) for event in keeps.events][:2] == [Requested, Started]


class Watch:
    """A running call, a clock, and the events of the call."""

    def __init__(self, tool: str, *, started: bool = True) -> None:
        self.now = 1000.0
        self.sink = EventLog()
        self.pending = PendingCall(
            call=pending_call(tool),
            body_store=LiveBodyStore({}),
            tool=Toolset(coding_tools()).find(tool),
            parsed=None,
            requested_at=self.now,
            started_at=self.now if started else None,
        )

    def after(self, seconds: float) -> list[str]:
        """Return the events that are due after this time."""
        self.now += seconds
        before = len(self.sink.events)
        report_due_events(self.pending, self.now, self.sink)
        return [
            event.kind if isinstance(event, Progressed) else type(event).__name__ for event in self.sink.events[before:]
        ]


def test_slow_call_is_reported_once() -> None:
    watch = Watch("Read")

    assert watch.after(1.9) == []
    assert watch.after(0.2) == ["Slow"]
    assert watch.after(1.0) == []
    assert watch.after(HEARTBEAT_SECONDS) == ["heartbeat"]
    (slow,) = watch.sink.of(Slow)
    assert (slow.tool, slow.expected_s, slow.at) == ("Read", 2.0, 1002.1)


@pytest.mark.parametrize("started", [True, False])
def test_long_call_sends_heartbeats(started: bool) -> None:
    watch = Watch("Bash", started=started)

    assert watch.after(HEARTBEAT_SECONDS - 1) == []
    assert watch.after(1) == ["heartbeat"]
    assert watch.after(HEARTBEAT_SECONDS - 1) == []
    assert watch.after(1) == ["heartbeat"]
    elapsed = [event.data for event in watch.sink.of(Progressed)]
    assert elapsed == [{"elapsed_s": HEARTBEAT_SECONDS}, {"elapsed_s": 2 * HEARTBEAT_SECONDS}]


def test_only_the_latest_of_quick_progress_is_sent() -> None:
    watch = Watch("Bash")
    for number in range(3):
        report_progress(watch.pending, f"step {number}", {}, watch.now, watch.sink)

    assert [event.kind for event in watch.sink.of(Progressed)] == ["step 0"]
    assert watch.after(PROGRESS_INTERVAL / 2) == []
    assert watch.after(PROGRESS_INTERVAL) == ["step 2"]
    assert watch.after(PROGRESS_INTERVAL) == []
    report_progress(watch.pending, "step 3", {}, watch.now, watch.sink)
    assert [event.kind for event in watch.sink.of(Progressed)] == ["step 0", "step 2", "step 3"]
