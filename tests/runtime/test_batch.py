"""Concurrent and exclusive calls, proved with barriers and without a clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.runtime.calls import EventLog, call
from tests.runtime.waiting_tools import Held
from toolspan.errors import BadCall, ToolError
from toolspan.runtime.context import CallContext, ToolContext
from toolspan.runtime.profiles import profile
from toolspan.runtime.profiles.base import Siblings
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, tool
from toolspan.tools import bash_tool
from toolspan.types.events import BatchFinished, Duplicate, Faulted, Finished, Started
from toolspan.types.ids import CallId

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [2, 30])
async def test_concurrent_calls_run_at_once(count: int) -> None:
    all_inside = asyncio.Barrier(count)

    @tool(concurrent=True)
    async def meet() -> str:
        await all_inside.wait()
        return "met"

    results = await Runner([meet]).run([call(f"c{n}", "meet") for n in range(count)])

    assert [result.text for result in results] == ["met"] * count


async def test_concurrent_sync_calls_run_at_once() -> None:
    both_inside = asyncio.Barrier(2)
    loop = asyncio.get_running_loop()

    @tool(concurrent=True)
    def meet() -> str:
        asyncio.run_coroutine_threadsafe(both_inside.wait(), loop).result(5)
        return "met"

    results = await Runner([meet]).run([call("a", "meet"), call("b", "meet")])

    assert [result.text for result in results] == ["met", "met"]


async def test_two_commands_run_at_once(tmp_path: Path) -> None:
    bash = replace(bash_tool(profile()), concurrent=True)
    here, there = "mkfifo x; echo 1 > x; cat y", "until mkfifo y 2>/dev/null; do :; done"
    commands = [f"{here}", f"{there}; until [ -p x ]; do :; done; cat x; echo 2 > y"]

    results = await Runner([bash], cwd=tmp_path).run(
        [call(f"c{n}", "Bash", command=command) for n, command in enumerate(commands)]
    )

    assert [result.text for result in results] == ["2", "1"]


async def test_exclusive_call_never_overlaps_another() -> None:
    inside: list[str] = []
    beside: list[list[str]] = []

    async def stay(name: str) -> str:
        inside.append(name)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        if name == "alone":
            beside.append([other for other in inside if other != name])
        inside.remove(name)
        return name

    @tool(concurrent=True)
    async def shared() -> str:
        return await stay("shared")

    @tool
    async def alone() -> str:
        return await stay("alone")

    names = ["shared", "shared", "alone", "shared", "alone", "alone", "shared"]
    results = await Runner([shared, alone]).run([call(f"c{n}", name) for n, name in enumerate(names)])

    assert [result.text for result in results] == names
    assert beside == [[], [], []]


async def test_call_with_an_invalid_input_waits_for_earlier_calls() -> None:
    log = EventLog()
    inside, go_on = anyio.Event(), anyio.Event()

    @tool(concurrent=True)
    async def shared(n: int) -> str:
        inside.set()
        await go_on.wait()
        return "shared"

    async with Runner([shared], direct=[log]) as runner, runner.batch() as batch:
        batch.add(call("a", "shared", n=1))
        batch.add(call("b", "shared", n="one"))
        await inside.wait()
        await anyio.lowlevel.checkpoint()
        assert log.states == {}
        go_on.set()
        await batch.drain()

    assert log.states == {"a": "succeeded", "b": "failed"}


async def test_results_come_in_call_order_whatever_ends_first() -> None:
    second_done = anyio.Event()
    log = EventLog()

    @tool(concurrent=True)
    async def first() -> str:
        await second_done.wait()
        return "first"

    @tool(concurrent=True)
    async def second() -> str:
        second_done.set()
        return "second"

    runner = Runner([first, second], direct=[log])
    results = await runner.run([call("a", "first"), call("b", "second")])

    assert [result.text for result in results] == ["first", "second"]
    assert [str(item.call_id) for item in log.of(Finished)] == ["b", "a"]


async def test_calls_start_while_the_message_still_streams() -> None:
    early = Held("early", concurrent=True)

    async with Runner([early.tool]) as runner, runner.batch() as batch:
        batch.add(call("a", "early"))
        await early.inside.wait()
        assert batch.completed() == []
        assert runner.in_progress == {CallId("a")}
        batch.add(call("b", "early"))
        early.go_on.set()
        got = [str(finished.call_id) async for finished in batch.remaining()]

    assert sorted(got) == ["a", "b"]
    assert runner.in_progress == frozenset()


async def test_call_id_is_accepted_once_in_a_conversation() -> None:
    log = EventLog()
    ran: list[int] = []

    @tool
    async def count() -> str:
        ran.append(1)
        return str(len(ran))

    async with Runner([count], direct=[log]) as runner:
        first = await runner.run([call("a", "count"), call("a", "count")])
        second = await runner.run([call("a", "count")])

    assert ([item.text for item in first], second, len(ran)) == (["1"], [], 1)
    assert len(log.of(Duplicate)) == 2
    assert [item.call_ids for item in log.of(BatchFinished)] == [("a",), ()]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "name": "count", "input": {}},
        {"type": "tool_use", "id": "", "name": "count", "input": {}},
        {"type": "text", "text": "hello"},
    ],
)
async def test_invalid_block_raises_and_no_call_of_its_message_runs(block: dict[str, object]) -> None:
    ran: list[int] = []

    @tool
    async def count() -> str:
        ran.append(1)
        return "x"

    runner = Runner([count])
    with pytest.raises(BadCall):
        await runner.run([call("a", "count"), block])

    assert ran == []


async def test_context_change_of_a_call_reaches_the_next() -> None:
    @tool
    async def enter(folder: str, ctx: ToolContext) -> Output:
        target = ctx.cwd / folder
        return Output(str(ctx.cwd.name), modify=lambda context: replace(context, cwd=target))

    async with Runner([enter], cwd="/tmp") as runner:
        results = await runner.run([call(item, "enter", folder=item) for item in "abc"])

    assert [result.text for result in results] == ["tmp", "a", "b"]
    assert runner.context.cwd == Path("/tmp/a/b/c")


async def test_context_changes_of_parallel_calls_are_applied_after_all_ended() -> None:
    last_ended = anyio.Event()
    observed: list[object] = []

    def leave(mark: str, context: CallContext) -> CallContext:
        trail = f"{context.values.get('trail', '')}{mark}"
        return replace(context, values={"trail": trail})

    @tool(concurrent=True)
    async def slow(ctx: ToolContext) -> Output:
        await last_ended.wait()
        return Output("x", modify=lambda context: leave("1", context))

    @tool(concurrent=True)
    async def quick(ctx: ToolContext) -> Output:
        last_ended.set()
        return Output("x", modify=lambda context: leave("2", context))

    @tool
    async def look(ctx: ToolContext) -> str:
        observed.append(ctx.context.values.get("trail"))
        return "x"

    async with Runner([slow, quick, look]) as runner:
        await runner.run([call("a", "slow"), call("b", "quick"), call("c", "look")])

    assert observed == ["12"]


async def test_failing_modifier_is_reported_and_changes_nothing() -> None:
    log = EventLog()

    @tool
    async def breaks() -> Output:
        return Output("fine", modify=lambda context: 1 / 0)  # type: ignore[arg-type,return-value]

    results = await Runner([breaks], direct=[log]).run([call("a", "breaks")])

    assert results[0].text == "fine"
    assert [(item.where, item.call_id) for item in log.of(Faulted)] == [("context modifier", "a")]


@pytest.mark.parametrize("policy", ["independent", "cancel_on_shell_error"])
async def test_failed_command_cancels_its_siblings_only_by_policy(policy: Siblings) -> None:
    log = EventLog()
    failing = anyio.Event()

    @tool(name="Bash", concurrent=True)
    async def shell(ok: bool) -> str:
        if not ok:
            await failing.wait()
            raise ToolError("Exit code 1")
        failing.set()
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return "ok"

    @tool
    async def later() -> str:
        return "later"

    client = profile()
    cancels = replace(client, availability=replace(client.availability, siblings=policy))
    runner = Runner([shell, later], profile=cancels, direct=[log])
    results = await runner.run([call("a", "Bash", ok=False), call("b", "Bash", ok=True), call("c", "later")])

    if policy == "independent":
        assert log.states == {"a": "failed", "b": "succeeded", "c": "succeeded"}
    else:
        assert log.states == {"a": "failed", "b": "cancelled", "c": "cancelled"}
        assert results[2].text == "<tool_use_error>Sibling tool call errored</tool_use_error>"


async def test_disabled_tool_is_unknown() -> None:
    log = EventLog()

    @tool(aliases=("other",))
    async def hidden() -> str:
        return "seen"

    off = replace(hidden, enabled=False)
    results = await Runner([off], direct=[log]).run([call("a", "hidden"), call("b", "other")])

    assert "No such tool available: hidden" in results[0].text
    assert log.of(Started) == []


async def test_calls_on_different_files_overlap_with_path_locks() -> None:
    both_inside = asyncio.Barrier(2)

    @tool(paths=lambda fields: frozenset({str(fields["path"])}))
    async def write(path: str) -> str:
        await both_inside.wait()
        return path

    results = await Runner([write], by_path=True).run([call("a", "write", path="x"), call("b", "write", path="y")])

    assert [result.text for result in results] == ["x", "y"]
