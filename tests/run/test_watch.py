"""Signs of life of running calls: by a clock that is told what time it is."""

import pytest

from tests.requirement import requirement
from tests.run.made import Told
from toolspan.ids import CallId
from toolspan.model.live import Progressed, Slow
from toolspan.model.span import Call
from toolspan.run.desk import Job
from toolspan.run.shelf import LiveShelf
from toolspan.run.watch import HEARTBEAT, PAUSE, Watch


class World:
    """A watch, its clock, and what it told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told = Told()
        self.watch = Watch(self.told, lambda: self.now)

    def job(self, tool: str, *, started: bool = True) -> Job:
        shelf = LiveShelf({})
        asked = Call(id=CallId("a"), tool=tool, at=0, requested_at=None, target=None, shelf=shelf)
        job = Job(call=asked, shelf=shelf, tool=None, parsed=None, requested=self.now)
        job.started = self.now if started else None
        return job

    def after(self, seconds: float, job: Job) -> list[str]:
        """What is told when somebody looks after this time."""
        self.now += seconds
        before = len(self.told.events)
        self.watch.look([job])
        return [
            event.kind if isinstance(event, Progressed) else type(event).__name__
            for event in self.told.events[before:]
        ]


@requirement("run.signs-of-life")
def test_a_call_that_takes_longer_than_usual_is_told_of_once() -> None:
    world = World()
    job = world.job("Read")

    assert world.after(1.9, job) == []
    assert world.after(0.2, job) == ["Slow"]
    assert world.after(1.0, job) == []
    assert world.after(HEARTBEAT, job) == ["heartbeat"]
    (slow,) = world.told.of(Slow)
    assert (slow.tool, slow.expected_s, slow.at) == ("Read", 2.0, 1002.1)


@requirement("run.signs-of-life")
@pytest.mark.parametrize("started", [True, False])
def test_a_call_that_runs_and_runs_gives_a_sign_now_and_then(started: bool) -> None:
    world = World()
    job = world.job("Bash", started=started)  # of which nobody knows how long it takes

    assert world.after(HEARTBEAT - 1, job) == []
    assert world.after(1, job) == ["heartbeat"]
    assert world.after(HEARTBEAT - 1, job) == []
    assert world.after(1, job) == ["heartbeat"]
    assert [one.data for one in world.told.of(Progressed)] == [
        {"elapsed_s": HEARTBEAT},
        {"elapsed_s": 2 * HEARTBEAT},
    ]


@requirement("run.signs-of-life")
def test_of_news_in_quick_succession_the_latest_waits_for_its_turn() -> None:
    world = World()
    job = world.job("Bash")
    for number in range(3):
        world.watch.progress(job, f"step {number}", {})

    assert [one.kind for one in world.told.of(Progressed)] == ["step 0"]
    assert world.watch.next_look([job]) == pytest.approx(PAUSE)
    assert world.after(PAUSE / 2, job) == []
    assert world.after(PAUSE, job) == ["step 2"]
    assert world.after(PAUSE, job) == []
    world.watch.progress(job, "step 3", {})
    assert [one.kind for one in world.told.of(Progressed)] == ["step 0", "step 2", "step 3"]


@requirement("run.signs-of-life")
def test_the_next_look_is_when_the_first_of_the_calls_is_due() -> None:
    world = World()
    read, bash = world.job("Read"), world.job("Bash")

    assert world.watch.next_look([bash]) == HEARTBEAT
    assert world.watch.next_look([read, bash]) == 2.0
    world.after(2.0, read)
    assert world.watch.next_look([read, bash]) == HEARTBEAT - 2.0
    world.now += 2 * HEARTBEAT
    assert world.watch.next_look([bash]) == 0.01  # it is late: at once, but not without a pause
    assert world.watch.next_look([]) == float("inf")
