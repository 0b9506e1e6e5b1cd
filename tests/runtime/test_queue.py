"""The queue against a simple model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from toolspan.runtime.queue import Queue, QueueItem
from toolspan.types.ids import CallId

PATHS = st.none() | st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2)


@dataclass
class QueuedCall:
    """One call, as the model of the queue knows it."""

    id: CallId
    overlaps: bool
    paths: frozenset[str] | None
    stage: str = "queued"


@dataclass
class Model:
    """The rules of the queue in their simplest form, computed from scratch each time."""

    cap: int | None = None
    by_path: bool = False
    calls: list[QueuedCall] = field(default_factory=list)

    def at(self, stage: str) -> list[QueuedCall]:
        return [call for call in self.calls if call.stage == stage]

    def start(self) -> list[CallId]:
        begun = []
        for call in self.at("queued"):
            if not self.may_start(call):
                break
            call.stage = "executing"
            begun.append(call.id)
        return begun

    def may_start(self, call: QueuedCall) -> bool:
        running = self.at("executing")
        full = self.cap is not None and len(running) >= max(1, self.cap)
        return not full and all(self.may_overlap(call, other) for other in running)

    def may_overlap(self, first: QueuedCall, second: QueuedCall) -> bool:
        if first.overlaps and second.overlaps:
            return True
        paths_known = first.paths is not None and second.paths is not None
        return self.by_path and paths_known and not (first.paths or set()) & (second.paths or set())

    def hand_out(self) -> list[CallId]:
        handed = []
        for call in self.calls:
            if call.stage == "executing" and not call.overlaps:
                break
            if call.stage == "completed":
                call.stage = "yielded"
                handed.append(call.id)
        return handed


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model = Model()

    @initialize(cap=st.none() | st.integers(0, 4), by_path=st.booleans())
    def begin(self, cap: int | None, by_path: bool) -> None:
        self.queue = Queue(max_running=cap, by_path=by_path)
        self.model = Model(cap, by_path)

    @rule(overlaps=st.booleans(), paths=PATHS)
    def add(self, overlaps: bool, paths: frozenset[str] | None) -> None:
        call_id = CallId(f"c{len(self.model.calls)}")
        self.queue.add(QueueItem(call_id, overlaps, paths))
        self.model.calls.append(QueuedCall(call_id, overlaps, paths))

    @rule()
    def start(self) -> None:
        assert self.queue.start() == self.model.start()

    @precondition(lambda self: self.model.at("executing"))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.model.at("executing")))
        self.queue.finish(call.id)
        call.stage = "completed"

    @precondition(lambda self: self.model.calls)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.model.calls))
        assert self.queue.withdraw(call.id) == (call.stage == "queued")
        if call.stage == "queued":
            call.stage = "completed"

    @rule()
    def hand_out(self) -> None:
        assert self.queue.take_completed() == self.model.hand_out()

    @precondition(lambda self: self.model.calls)
    @rule(data=st.data())
    def invalid_changes_are_rejected(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.model.calls))
        with pytest.raises(ValueError, match="already in the queue"):
            self.queue.add(QueueItem(call.id, overlaps=True))
        if call.stage != "executing":
            with pytest.raises(ValueError, match="not running"):
                self.queue.finish(call.id)

    @invariant()
    def queue_equals_model(self) -> None:
        running = [call.id for call in self.model.at("executing")]
        waiting = [call.id for call in self.model.at("queued")]
        assert self.queue.running == frozenset(running)
        assert self.queue.waiting == tuple(waiting)
        assert self.queue.is_idle == (not running)
        assert self.queue.is_done == (not running and not waiting)
        assert [self.queue.stage(call.id) for call in self.model.calls] == [call.stage for call in self.model.calls]

    @invariant()
    def running_calls_may_overlap(self) -> None:
        running = self.model.at("executing")
        for item in running:
            for other in running:
                assert item is other or self.model.may_overlap(item, other)


def test_queue_agrees_with_a_simple_model() -> None:
    run_state_machine_as_test(QueueMachine)


def queue_of(*items: QueueItem, cap: int | None = None, by_path: bool = False) -> Queue:
    queue = Queue(max_running=cap, by_path=by_path)
    for item in items:
        queue.add(item)
    return queue


def safe(name: str, *paths: str) -> QueueItem:
    return QueueItem(CallId(name), overlaps=True, paths=frozenset(paths) if paths else None)


def unsafe(name: str, *paths: str) -> QueueItem:
    return QueueItem(CallId(name), overlaps=False, paths=frozenset(paths) if paths else None)


def test_exclusive_call_is_a_barrier() -> None:
    queue = queue_of(safe("a"), safe("b"), unsafe("c"), safe("d"))

    assert queue.start() == ["a", "b"]
    queue.finish(CallId("a"))
    assert queue.start() == []
    queue.finish(CallId("b"))
    assert queue.start() == ["c"]
    queue.finish(CallId("c"))
    assert queue.start() == ["d"]


def test_blocked_call_is_not_overtaken() -> None:
    queue = queue_of(unsafe("a"), unsafe("b"), safe("c"))

    assert queue.start() == ["a"]
    queue.finish(CallId("a"))
    assert queue.start() == ["b"]
    assert queue.waiting == ("c",)


def test_concurrency_is_limited() -> None:
    queue = queue_of(safe("a"), safe("b"), safe("c"), cap=2)

    assert queue.start() == ["a", "b"]
    queue.finish(CallId("a"))
    assert queue.start() == ["c"]


def test_limit_of_zero_still_runs_one_call() -> None:
    assert queue_of(unsafe("a"), safe("b"), cap=0).start() == ["a"]


def test_writes_to_different_files_overlap_on_request() -> None:
    items = (unsafe("a", "x"), unsafe("b", "y"), unsafe("c", "x"))

    assert queue_of(*items, by_path=True).start() == ["a", "b"]
    writes = (unsafe("a", "x"), unsafe("b", "y"))
    assert queue_of(*writes).start() == ["a"]


def test_running_barrier_holds_back_later_results() -> None:
    queue = queue_of(safe("a"), unsafe("b"), safe("c"))
    queue.start()
    queue.finish(CallId("a"))
    queue.start()
    queue.withdraw(CallId("c"))

    assert queue.take_completed() == ["a"]
    queue.finish(CallId("b"))
    assert queue.take_completed() == ["b", "c"]
    assert queue.take_completed() == []


def test_running_concurrent_call_holds_back_nothing() -> None:
    queue = queue_of(safe("a"), safe("b"))
    queue.start()
    queue.finish(CallId("b"))

    assert queue.take_completed() == ["b"]


def test_item_is_queued_once() -> None:
    queue = queue_of(safe("a"))
    used = safe("b")
    used.stage = "completed"

    with pytest.raises(ValueError, match="already in the queue"):
        queue.add(safe("a"))
    with pytest.raises(ValueError, match="completed, not queued"):
        queue.add(used)
    assert CallId("a") in queue
    assert queue.position(CallId("a")) == 0
    assert queue.stage(CallId("z")) is None
