"""Runners with and without a context manager."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from tests.runtime.calls import EventLog, call
from toolspan.errors import BadCall
from toolspan.runtime.batch import RunStep
from toolspan.runtime.context import RunnerContext, ToolContext
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.types.events import Faulted, Finished, Progressed, Requested
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@tool
async def quick() -> str:
    """At once."""
    return "quick"


@tool
async def fails() -> str:
    """Not at all."""
    raise ValueError("no")


async def test_runner_accepts_a_message_a_block_or_blocks() -> None:
    blocks = [call("a", "quick"), call("b", "quick")]
    message = {"role": "assistant", "content": [{"type": "text", "text": "Well"}, *blocks]}

    assert [item.id for item in await Runner([quick]).run(message)] == ["a", "b"]
    assert [item.id for item in await Runner([quick]).run(blocks)] == ["a", "b"]
    assert [item.id for item in await Runner([quick]).run(blocks[0])] == ["a"]
    assert await Runner([quick]).run({"role": "assistant", "content": "Done."}) == []
    with pytest.raises(BadCall):
        await Runner([quick]).run({"role": "assistant", "content": 7})


async def test_runner_can_be_used_repeatedly_without_being_entered() -> None:
    runner = Runner([quick])
    around = asyncio.all_tasks()

    for n in range(3):
        assert [item.text for item in await runner.run([call(f"c{n}", "quick")])] == ["quick"]
        await anyio.lowlevel.checkpoint()
        assert asyncio.all_tasks() == around


async def test_concurrent_runs_of_a_runner_that_is_not_entered_do_not_end_each_other() -> None:
    first_done, second_inside = anyio.Event(), anyio.Event()

    @tool
    async def first() -> str:
        await second_inside.wait()
        return "first"

    @tool
    async def second() -> str:
        second_inside.set()
        await first_done.wait()
        return "second"

    runner = Runner([first, second])
    texts: dict[str, str] = {}

    async def run(name: str) -> None:
        (finished,) = await runner.finish([call(name, name)])
        texts[name] = str(finished.content)

    async def watch() -> None:
        while runner.in_progress != {"second"}:
            await anyio.lowlevel.checkpoint()
        first_done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run, "first")
        group.start_soon(run, "second")
        group.start_soon(watch)

    assert texts == {"first": "first", "second": "second"}


async def test_tool_can_run_calls() -> None:
    @tool
    async def outer() -> str:
        (result,) = await runner.run([call("inner", "quick")])
        return f"inside: {result.text}"

    runner = Runner([outer, quick])
    (result,) = await runner.run([call("a", "outer")])

    assert result.text == "inside: quick"


async def test_leaving_a_runner_finalizes_running_calls() -> None:
    log = EventLog()

    @tool
    async def endless() -> str:
        await anyio.sleep_forever()
        return ""

    with pytest.raises(KeyError):
        async with Runner([endless, quick], direct=[log]) as runner, runner.batch() as batch:
            batch.add(call("a", "endless"))
            batch.add(call("b", "quick"))
            await anyio.lowlevel.checkpoint()
            raise KeyError("the host's own")

    assert set(log.states) == {"a", "b"}


async def test_progress_is_limited_to_ten_per_second_and_the_last_is_sent() -> None:
    log = EventLog()
    now = [1000.0]

    @tool
    async def busy(ctx: ToolContext) -> str:
        for n in range(105):
            now[0] += 0.01
            ctx.progress("other", n=n)
        return "done"

    runner = Runner([busy], direct=[log], clock=lambda: now[0])
    await runner.run([call("a", "busy")])

    numbers = [item.data["n"] for item in log.of(Progressed)]
    assert 9 <= len(numbers) <= 12
    assert numbers[-1] == 104
    assert type(log.events[-2]) is Finished


class Recovering:
    """Makes further calls for each that failed."""

    def __init__(self, *, crashes: bool = False) -> None:
        self.crashes = crashes

    async def before_call(self, call: Call, desk: RunnerContext, run: RunStep) -> None:
        if self.crashes:
            raise RuntimeError("no")

    async def on_failure(self, failed: Finished, desk: RunnerContext, run: RunStep) -> None:
        await run("quick", {})
        await run("missing", {})


async def test_recovery_steps_are_calls_with_one_result_each() -> None:
    log = EventLog()
    ids = ["a", "a_r1", "a_rest", "b"]
    runner = Runner([quick, fails], recoveries=[Recovering()], direct=[log])

    finished = await runner.finish([call(item, "fails" if item in ("a", "b") else "quick") for item in ids])

    got = [str(item.call_id) for item in finished]
    assert [item for item in got if item in ids] == ids
    assert len(set(got)) == len(got) == 8
    assert [item.span.state for item in finished[:3]] == ["failed", "succeeded", "failed"]
    requested = [str(item.call.id) for item in log.of(Requested)]
    assert sorted(requested) == sorted(str(item.call_id) for item in log.of(Finished)) == sorted(got)


async def test_failing_recovery_does_not_lose_the_result_of_its_call() -> None:
    log = EventLog()
    runner = Runner([quick], recoveries=[Recovering(crashes=True)], direct=[log])

    (result,) = await runner.run([call("a", "quick")])

    assert result.text == "quick"
    assert [item.where for item in log.of(Faulted)] == ["recovery"]


class Endless:
    """A recovery that never ends, before a call or after a failed one."""

    def __init__(self, when: str, *, in_step: bool) -> None:
        self.when = when
        self.in_step = in_step
        self.at_work = anyio.Event()

    async def before_call(self, call: Call, desk: RunnerContext, run: RunStep) -> None:
        await self._work("before", run)

    async def on_failure(self, failed: Finished, desk: RunnerContext, run: RunStep) -> None:
        await self._work("after", run)

    async def _work(self, when: str, run: RunStep) -> None:
        if when == self.when:
            self.at_work.set()
            await (run("endless", {}) if self.in_step else anyio.sleep_forever())


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("way", ["one", "all", "host"])
async def test_cancelling_a_call_ends_its_recovery(way: str, when: str, in_step: bool) -> None:
    output, recovery = EventLog(), Endless(when, in_step=in_step)

    @tool
    async def endless() -> str:
        await anyio.sleep_forever()
        return ""

    runner = Runner([fails, endless, quick], recoveries=[recovery], direct=[output])
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run, [call("a", "fails"), call("b", "quick")])
        await recovery.at_work.wait()
        await anyio.lowlevel.checkpoint()
        match way:
            case "one":
                runner.cancel("a")
                recovery.when = "never"
            case "all":
                runner.cancel()
            case _:
                group.cancel_scope.cancel()

    requested = sorted(str(item.call.id) for item in output.of(Requested))
    assert sorted(str(item.call_id) for item in output.of(Finished)) == requested
    assert output.states["a"] == ("cancelled" if when == "before" else "failed")
    assert output.states["b"] == ("succeeded" if way == "one" else "cancelled")
