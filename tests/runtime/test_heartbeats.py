"""Heartbeats, progress and slow-call events of running calls, with a clock that the test sets."""

from __future__ import annotations

import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, pending_call
from toolspan.runtime.batch import HEARTBEAT_SECONDS, PROGRESS_INTERVAL, report_due_events, report_progress
from toolspan.runtime.pending_call import LiveBodyStore, PendingCall
from toolspan.runtime.tool import Toolset
from toolspan.tools import coding_tools
from toolspan.types.events import Progressed, Slow


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


@requirement("run.signs-of-life")
def test_slow_call_is_reported_once() -> None:
    watch = Watch("Read")

    assert watch.after(1.9) == []
    assert watch.after(0.2) == ["Slow"]
    assert watch.after(1.0) == []
    assert watch.after(HEARTBEAT_SECONDS) == ["heartbeat"]
    (slow,) = watch.sink.of(Slow)
    assert (slow.tool, slow.expected_s, slow.at) == ("Read", 2.0, 1002.1)


@requirement("run.signs-of-life")
@pytest.mark.parametrize("started", [True, False])
def test_long_call_sends_heartbeats(started: bool) -> None:
    watch = Watch("Bash", started=started)

    assert watch.after(HEARTBEAT_SECONDS - 1) == []
    assert watch.after(1) == ["heartbeat"]
    assert watch.after(HEARTBEAT_SECONDS - 1) == []
    assert watch.after(1) == ["heartbeat"]
    elapsed = [event.data for event in watch.sink.of(Progressed)]
    assert elapsed == [{"elapsed_s": HEARTBEAT_SECONDS}, {"elapsed_s": 2 * HEARTBEAT_SECONDS}]


@requirement("run.signs-of-life")
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
