"""Code that ignores cancellation: its call and the runner end without it."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.limits import PATIENCE
from tests.runtime.calls import EventLog, call
from tests.runtime.waiting_tools import Held, gone
from toolspan import Session
from toolspan.runtime.batch import RunStep
from toolspan.runtime.context import RunnerContext, ToolContext
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Tool, tool
from toolspan.types.decision import Allow, Ask, Decision
from toolspan.types.events import Faulted, Finished, LiveEvent
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio
GRACE = 0.05


class IgnoresCancellation:
    def __init__(self) -> None:
        self.inside = anyio.Event()
        self.gate = anyio.Event()
        self.cancellations = 0

    async def swallow(self) -> None:
        """Catch every cancellation."""
        self.inside.set()
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancellations += 1

    async def swallow_all(self) -> None:
        """Catch every exception."""
        self.inside.set()
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except BaseException:  # noqa: BLE001 - as some tools do
                self.cancellations += 1

    async def shield(self) -> None:
        self.inside.set()
        with anyio.CancelScope(shield=True):
            await self.gate.wait()

    async def sleep(self) -> None:
        """Wait for a task that does not stop either."""
        task = asyncio.ensure_future(self.swallow())
        with anyio.CancelScope(shield=True):
            await self.inside.wait()
        await asyncio.gather(task)

    def tool(self, way: str = "swallow", *, timeout: float | None = None) -> Tool:
        async def stubborn(ctx: ToolContext) -> str:
            ctx.partial = lambda: "half of it"
            await getattr(self, way)()
            ctx.progress("other", too="late")
            return "late"

        if timeout is None:
            return tool(concurrent=True, grace=GRACE)(stubborn)
        return tool(concurrent=True, grace=GRACE, timeout=timeout)(stubborn)


@tool(concurrent=True)
async def quick() -> str:
    """At once."""
    return "quick"


WAYS = ("swallow", "swallow_all", "shield", "sleep")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("who", ["one", "all"])
async def test_tool_that_ignores_cancellation_is_abandoned_and_its_call_interrupted(way: str, who: str) -> None:
    stubborn, output = IgnoresCancellation(), EventLog()
    async with Runner([stubborn.tool(way), quick], direct=[output]) as runner:
        async with runner.batch() as batch:
            batch.add(call("a", "stubborn"))
            batch.add(call("b", "quick"))
            await stubborn.inside.wait()
            runner.cancel("a" if who == "one" else None)
            finished = await batch.drain()
        second = await runner.finish([call("c", "quick")])
        assert [item.reason for item in output.of(Faulted)] == [
            "it did not stop after it was cancelled, and was abandoned"
        ]
        stubborn.gate.set()
        await anyio.wait_all_tasks_blocked()

    assert finished[0].span.state == "interrupted"
    assert "half of it" in str(finished[0].content)
    assert any("did not stop" in item.rule for item in finished[0].span.evidence)
    assert [item.span.state for item in second] == ["succeeded"]
    assert [str(item.call_id) for item in output.of(Finished)].count("a") == 1
    late = output.of(Faulted)[-1]
    assert (late.where, late.call_id) == ("tool", "a")
    assert late.reason.startswith("it ended after it was abandoned")


@pytest.mark.parametrize("way", WAYS)
async def test_tool_that_ignores_its_timeout_has_timed_out(way: str) -> None:
    stubborn = IgnoresCancellation()
    async with Runner([stubborn.tool(way, timeout=0.001)]) as runner:
        (finished,) = await runner.finish([call("a", "stubborn")])
        stubborn.gate.set()

    assert finished.span.state == "timed_out"
    assert any("did not stop" in item.rule for item in finished.span.evidence)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it catches all
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", ["scope", "task"])
async def test_cancelled_host_ends_though_a_tool_ignores_cancellation(way: str, host: str) -> None:
    stubborn, output = IgnoresCancellation(), EventLog()

    async def run() -> None:
        runner = Runner([stubborn.tool(way), quick], direct=[output], grace=GRACE)
        await runner.run([call("a", "stubborn"), call("b", "quick")])

    await gone(host, run, stubborn.inside)
    stubborn.gate.set()
    await anyio.wait_all_tasks_blocked()

    assert output.states == {"a": "interrupted", "b": "succeeded"}


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_cancelled_host_cancels_other_calls_while_a_tool_ignores_cancellation(order: str) -> None:
    stubborn, output = IgnoresCancellation(), EventLog()
    held = Held("held", concurrent=True)
    calls = {"a": call("a", "stubborn"), "b": call("b", "held")}

    async def run() -> None:
        runner = Runner([stubborn.tool(), held.tool], direct=[output], grace=GRACE)
        await runner.run([calls[name] for name in order])

    both_inside = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(gone, "task", run, both_inside)
        await stubborn.inside.wait()
        await held.inside.wait()
        both_inside.set()
    stubborn.gate.set()
    await anyio.wait_all_tasks_blocked()

    assert [str(item.call_id) for item in output.of(Finished)] == ["b", "a"]  # not only after the grace
    assert output.states == {"a": "interrupted", "b": "interrupted"}


async def test_tool_that_ignores_cancellation_is_cancelled_a_few_times_only() -> None:
    stubborn = IgnoresCancellation()
    ended: list[str] = []

    @tool(name="stubborn", grace=0.6)
    async def patient() -> str:
        try:
            await stubborn.swallow()
        finally:
            ended.append("closed")
        return "never"

    async with Runner([patient], grace=GRACE) as runner, runner.batch() as batch:
        batch.add(call("a", "stubborn"))
        await stubborn.inside.wait()
        runner.cancel()
        await batch.drain()
        assert 1 < stubborn.cancellations < 10  # at growing pauses
        before = stubborn.cancellations
        await anyio.sleep(0.05)
        assert stubborn.cancellations == before

    assert ended == ["closed"]


async def test_abandoned_task_is_closed_with_the_runner() -> None:
    stubborn, output = IgnoresCancellation(), EventLog()
    around = asyncio.all_tasks()
    async with Runner([stubborn.tool()], direct=[output], grace=GRACE) as runner, runner.batch() as batch:
        batch.add(call("a", "stubborn"))
        await stubborn.inside.wait()
        runner.cancel()
        await batch.drain()

    assert [item for item in asyncio.all_tasks() - around if not item.done()] == []
    assert output.of(Faulted)[-1].reason == "it never stopped, and was closed when the runner exited"


async def test_tool_that_stops_within_the_grace_keeps_its_result() -> None:
    stubborn = IgnoresCancellation()
    async with Runner([stubborn.tool("shield")]) as runner, runner.batch() as batch:
        batch.add(call("a", "stubborn"))
        await stubborn.inside.wait()
        runner.cancel()
        stubborn.gate.set()
        (finished,) = await batch.drain()

    assert (finished.span.state, finished.content) == ("succeeded", "late")


async def test_cancelled_host_ends_after_the_cleanup_of_its_tool() -> None:
    stubborn, output = IgnoresCancellation(), EventLog()
    ran: list[str] = []

    @tool
    async def later() -> str:
        ran.append("later")
        return ""

    async def host() -> None:
        async with Runner([stubborn.tool("shield"), later], direct=[output]) as runner:
            await runner.run([call("a", "stubborn"), call("b", "later")])
            ran.append("host")

    task = asyncio.create_task(host())
    await stubborn.inside.wait()
    task.cancel()
    stubborn.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert output.states == {"a": "succeeded", "b": "cancelled"}
    assert ran == []


@pytest.mark.parametrize("where", ["tool", "hook"])
async def test_cancelled_host_gets_one_cancellation(where: str) -> None:
    inside = anyio.Event()
    cleaned: list[bool] = []
    hooks = Hooks()

    async def wait(*about: object) -> None:
        inside.set()
        await anyio.sleep_forever()

    @tool
    async def endless() -> str:
        await wait()
        return ""

    if where == "hook":
        hooks.post_tool_batch()(wait)

    async def host() -> None:
        async with Runner([endless, quick], hooks=hooks) as runner:
            try:
                await runner.run([call("a", "endless" if where == "tool" else "quick")])
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                cleaned.append(True)

    task = asyncio.create_task(host())
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])

    assert cleaned == [True]


async def test_blocking_tool_is_not_cancelled_with_its_host() -> None:
    inside, gate, output = anyio.Event(), anyio.Event(), EventLog()

    @tool(interrupt="block")
    async def steady() -> str:
        inside.set()
        await gate.wait()
        return "done"

    async def host() -> None:
        await Runner([steady], direct=[output]).run([call("a", "steady")])

    task = asyncio.create_task(host())
    await inside.wait()
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert output.states == {"a": "succeeded"}


async def test_tool_is_abandoned_at_once_without_a_grace() -> None:
    stubborn = IgnoresCancellation()

    @tool(name="stubborn", grace=0)
    async def hasty() -> str:
        await stubborn.swallow()
        return ""

    async with Runner([hasty]) as runner, runner.batch() as batch:
        batch.add(call("a", "stubborn"))
        await stubborn.inside.wait()
        runner.cancel()
        (finished,) = await batch.drain()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert stubborn.cancellations <= 2
        stubborn.gate.set()

    assert finished.span.state == "interrupted"


def hooked(stubborn: IgnoresCancellation, point: str) -> Hooks:
    hooks = Hooks()

    async def handler(*about: object) -> None:
        await stubborn.swallow()

    getattr(hooks, point)()(handler)
    return hooks


@pytest.mark.parametrize("what", ["before", "after", "permission", "policy", "fallback", "approver", "check"])
async def test_call_ends_though_hook_policy_or_approver_ignores_cancellation(what: str) -> None:
    stubborn, output = IgnoresCancellation(), EventLog()

    async def policy(question: PermissionRequest) -> Decision | None:
        await stubborn.swallow()
        return Allow()

    async def approver(question: PermissionRequest, ask: Ask) -> Allow:
        await stubborn.swallow()
        return Allow()

    async def check(value: object, ctx: ToolContext) -> None:
        await stubborn.swallow()

    @tool(validate_input=check)
    async def checked() -> str:
        return "ran"

    points = {"before": "pre_tool_use", "after": "post_tool_use", "permission": "permission_request"}
    asking = what in ("approver", "permission")
    runner = Runner(
        [checked if what == "check" else quick],
        hooks=hooked(stubborn, points[what]) if what in points else None,
        policies=[policy] if what == "policy" else [lambda _: Ask()] if asking else [],
        fallback=policy if what == "fallback" else None,
        approver=approver if asking else None,
        direct=[output],
        grace=GRACE,
        hook_grace=GRACE,
    )
    async with runner, runner.batch() as batch:
        batch.add(call("a", "checked" if what == "check" else "quick"))
        await stubborn.inside.wait()
        runner.cancel()
        (finished,) = await batch.drain()
        stubborn.gate.set()

    assert finished.span.state == ("succeeded" if what == "after" else "cancelled")
    assert output.of(Faulted)[0].call_id == "a"
    assert len(output.of(Finished)) == 1


async def test_recovery_that_ignores_cancellation_is_abandoned_and_runs_nothing_more() -> None:
    stubborn, output = IgnoresCancellation(), EventLog()
    refused: list[BaseException] = []

    class Recovery:
        async def before_call(self, call: Call, desk: RunnerContext, run: RunStep) -> None:
            await stubborn.swallow()
            try:
                await run("quick", {})
            except Exception as error:
                refused.append(error)
                raise

        async def on_failure(self, failed: Finished, desk: RunnerContext, run: RunStep) -> None:
            """Nothing."""

    runner = Runner([quick], recoveries=[Recovery()], direct=[output], hook_grace=GRACE)
    async with runner, runner.batch() as batch:
        batch.add(call("a", "quick"))
        await stubborn.inside.wait()
        runner.cancel()
        (finished,) = await batch.drain()
        stubborn.gate.set()
        await anyio.wait_all_tasks_blocked()

    assert finished.span.state == "cancelled"
    assert [str(error) for error in refused] == ["call a has ended, so no further calls run for it"]
    assert [str(item.call_id) for item in output.of(Finished)] == ["a"]


@pytest.mark.parametrize("what", ["batch hook", "sink"])
async def test_runner_can_be_left_though_a_hook_or_sink_ignores_cancellation(what: str) -> None:
    stubborn = IgnoresCancellation()

    async def sink(event: LiveEvent) -> None:
        await stubborn.swallow()

    hooks = hooked(stubborn, "post_tool_batch") if what == "batch hook" else None
    runner = Runner([quick], hooks=hooks, sinks=[sink] if what == "sink" else [], grace=GRACE, hook_grace=GRACE)
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run, [call("a", "quick")])
        await stubborn.inside.wait()
        group.cancel_scope.cancel()

    assert stubborn.cancellations > 0


@pytest.mark.parametrize("point", ["SessionStart", "UserPromptSubmit", "Stop"])
async def test_session_can_be_left_though_a_session_hook_ignores_cancellation(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn, hooks = IgnoresCancellation(), Hooks()
    monkeypatch.setattr("toolspan.runtime.runner.PROCESS_GRACE", GRACE)
    monkeypatch.setattr("toolspan.runtime.runner.GRACE", GRACE)

    async def handler(occasion: SessionHookEvent) -> None:
        await stubborn.swallow()

    if point == "SessionStart":
        hooks.at("SessionStart")(handler)
    elif point == "UserPromptSubmit":
        hooks.at("UserPromptSubmit")(handler)
    else:
        hooks.at("Stop")(handler)

    async def converse() -> None:
        async with Session(cwd=tmp_path, tools=[quick], hooks=hooks, transcript=None) as session:
            await session.submit("go")
            await session.run({"role": "assistant", "content": [{"type": "text", "text": "done"}]})

    async with anyio.create_task_group() as group:
        group.start_soon(converse)
        await stubborn.inside.wait()
        group.cancel_scope.cancel()

    assert stubborn.cancellations > 0


def test_program_ends_though_a_tool_never_does() -> None:
    async def main() -> str:
        stubborn = IgnoresCancellation()
        runner = Runner([stubborn.tool(timeout=0.001)], grace=GRACE)
        (finished,) = await runner.finish([call("a", "stubborn")])
        return finished.span.state

    assert asyncio.run(main()) == "timed_out"


async def test_tool_has_one_task_and_its_own_timeouts() -> None:
    observed: list[object] = []

    @tool
    async def look() -> str:
        first = asyncio.current_task()
        async with asyncio.timeout(PATIENCE), anyio.create_task_group() as group:
            with anyio.CancelScope():
                group.start_soon(anyio.sleep, 0)
                await asyncio.sleep(0)
                observed.append(asyncio.current_task() is first)
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(5)
        except TimeoutError:
            observed.append("timed out")
        with anyio.move_on_after(0.001):
            await anyio.sleep(5)
        return "looked"

    (result,) = await Runner([look]).run([call("a", "look")])

    assert (observed, result.text) == ([True, "timed out"], "looked")


async def test_tool_that_cancels_its_task_ends_only_its_call() -> None:
    @tool(concurrent=True)
    async def end_me(wait: bool) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if wait:
            await anyio.sleep(5)
        return "still there"

    calls = [call("a", "end_me", wait=False), call("b", "end_me", wait=True), call("c", "quick")]
    finished = await Runner([end_me, quick]).finish(calls)

    assert [item.span.state for item in finished] == ["succeeded", "failed", "succeeded"]


async def test_timed_out_tool_has_its_grace_to_clean_up() -> None:
    cleaned: list[str] = []

    @tool(timeout=0.001, grace=5)
    async def tidy() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(5):
                    await asyncio.sleep(0)
            cleaned.append("all")
        return ""

    (finished,) = await Runner([tidy]).finish([call("a", "tidy")])

    assert cleaned == ["all"]
    assert [item.rule for item in finished.span.evidence] == ["the tool exceeded its timeout"]


async def test_cancel_scope_left_open_by_a_tool_does_not_end_the_next_one() -> None:
    @tool
    async def careless() -> str:
        scope = anyio.CancelScope(deadline=anyio.current_time() + 0.02)
        scope.__enter__()
        await asyncio.sleep(0)
        return "gone"

    @tool
    async def careful() -> str:
        later = anyio.Event()
        asyncio.get_running_loop().call_later(0.04, later.set)
        await later.wait()
        return "done"

    results = await Runner([careless, careful]).run([call("a", "careless"), call("b", "careful")])

    assert [result.text for result in results] == ["gone", "done"]


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def test_tool_that_cancels_its_task_and_returns_does_not_affect_the_next_one() -> None:
    @tool
    async def end_me() -> str:
        cancel_own_task()
        return "still there"

    @tool
    async def patient() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "done"

    results = await Runner([end_me, patient]).run([call("a", "end_me"), call("b", "patient")])

    assert [result.text for result in results] == ["still there", "done"]


async def test_tool_that_survives_its_own_cancellation_keeps_its_result() -> None:
    @tool
    async def end_me() -> str:
        cancel_own_task()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return "still there"

    results = await Runner([end_me, quick]).run([call("a", "end_me"), call("b", "end_me"), call("c", "quick")])

    assert [result.is_error for result in results] == [None, None, None]


async def test_task_awaited_by_a_cancelled_tool_is_cancelled() -> None:
    children: list[asyncio.Task[None]] = []

    @tool
    async def parent() -> str:
        task = asyncio.current_task()
        assert task is not None
        children.append(asyncio.create_task(asyncio.sleep(60)))
        task.cancel()
        await children[0]
        return ""

    (finished,) = await Runner([parent]).finish([call("a", "parent")])

    assert (finished.span.state, children[0].cancelled()) == ("failed", True)


async def test_exceptions_leave_no_garbage_behind() -> None:
    class OwnError(ValueError):
        """Of no other test."""

    @tool
    async def fails() -> str:
        await anyio.sleep(0)
        raise OwnError("no")

    async with Runner([fails]) as runner:
        await runner.run([call("a", "fails")])
        gc.collect()
        await runner.run([call("b", "fails")])
        assert [item for item in gc.get_objects() if isinstance(item, OwnError)] == []
