"""Signs of life of running calls: by a clock that is told what time it is."""

from __future__ import annotations

import pytest

from tests.requirement import requirement
from tests.runtime.made import Told
from toolspan.runtime.batch import HEARTBEAT_SECONDS, PROGRESS_INTERVAL, ProgressReporter
from toolspan.runtime.pending_call import LiveBodyStore, PendingCall
from toolspan.types.events import Progressed, Slow
from toolspan.types.ids import CallId
from toolspan.types.span import Call


class World:
    """A watch, its clock, and what it told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told = Told()
        self.watch = ProgressReporter(self.told, lambda: self.now)

    def job(self, tool: str, *, started: bool = True) -> PendingCall:
        shelf = LiveBodyStore({})
        asked = Call(id=CallId("a"), tool=tool, at=0, requested_at=None, target=None, body_store=shelf)
        job = PendingCall(call=asked, body_store=shelf, tool=None, parsed=None, requested_at=self.now)
        job.started_at = self.now if started else None
        return job

    def after(self, seconds: float, job: PendingCall) -> list[str]:
        """What is told when somebody looks after this time."""
        self.now += seconds
        before = len(self.told.events)
        self.watch.report_due_calls([job])
        return [
            event.kind if isinstance(event, Progressed) else type(event).__name__ for event in self.told.events[before:]
        ]


@requirement("run.signs-of-life")
def test_a_call_that_takes_longer_than_usual_is_told_of_once() -> None:
    world = World()
    job = world.job("Read")

    assert world.after(1.9, job) == []
    assert world.after(0.2, job) == ["Slow"]
    assert world.after(1.0, job) == []
    assert world.after(HEARTBEAT_SECONDS, job) == ["heartbeat"]
    (slow,) = world.told.of(Slow)
    assert (slow.tool, slow.expected_s, slow.at) == ("Read", 2.0, 1002.1)


@requirement("run.signs-of-life")
@pytest.mark.parametrize("started", [True, False])
def test_a_call_that_runs_and_runs_gives_a_sign_now_and_then(started: bool) -> None:
    world = World()
    job = world.job("Bash", started=started)  # of which nobody knows how long it takes

    assert world.after(HEARTBEAT_SECONDS - 1, job) == []
    assert world.after(1, job) == ["heartbeat"]
    assert world.after(HEARTBEAT_SECONDS - 1, job) == []
    assert world.after(1, job) == ["heartbeat"]
    assert [one.data for one in world.told.of(Progressed)] == [
        {"elapsed_s": HEARTBEAT_SECONDS},
        {"elapsed_s": 2 * HEARTBEAT_SECONDS},
    ]


@requirement("run.signs-of-life")
def test_of_news_in_quick_succession_the_latest_waits_for_its_turn() -> None:
    world = World()
    job = world.job("Bash")
    for number in range(3):
        world.watch.report_progress(job, f"step {number}", {})

    assert [one.kind for one in world.told.of(Progressed)] == ["step 0"]
    assert world.after(PROGRESS_INTERVAL / 2, job) == []
    assert world.after(PROGRESS_INTERVAL, job) == ["step 2"]
    assert world.after(PROGRESS_INTERVAL, job) == []
    world.watch.report_progress(job, "step 3", {})
    assert [one.kind for one in world.told.of(Progressed)] == ["step 0", "step 2", "step 3"]
