"""Cancelled calls still get their result and leave nothing running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, call
from tests.runtime.waiting_tools import Held, gone
from toolspan.runtime.batch import Batch
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import tool
from toolspan.tools import bash_tool
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.events import Decided, Finished, PermissionRequested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def endless() -> Held:
    return Held("endless", concurrent=True, partial=lambda: "half of it")


@tool
async def quick() -> str:
    """At once."""
    return "quick"


@asynccontextmanager
async def at_work(output: EventLog) -> AsyncIterator[tuple[Runner, Batch]]:
    running = endless()
    async with Runner([running.tool, quick], direct=[output]) as runner, runner.batch() as batch:
        batch.add(call("a", "endless"))
        batch.add(call("b", "quick"))
        await running.inside.wait()
        yield runner, batch


async def test_cancelling_a_call_does_not_affect_the_others() -> None:
    log = EventLog()
    async with at_work(log) as (runner, batch):
        batch.add(call("c", "quick"))
        batch.cancel(CallId("c"))
        assert log.states == {"c": "cancelled"}  # at once: it was waiting
        runner.cancel("a")
        finished = await batch.drain()

    assert [item.span.state for item in finished] == ["interrupted", "succeeded", "cancelled"]
    assert "half of it" in str(finished[0].content)


async def test_interrupt_ends_running_and_queued_calls() -> None:
    log = EventLog()
    async with at_work(log) as (runner, batch):
        runner.cancel()
        finished = await batch.drain()

    assert [item.span.state for item in finished] == ["interrupted", "cancelled"]
    assert [item.call_id for item in log.of(Started)] == ["a"]


@pytest.mark.parametrize("way", ["scope", "task"])
async def test_cancelled_host_leaves_every_call_with_a_result_and_no_task(way: str) -> None:
    running, output = endless(), EventLog()
    ran: list[int] = []

    @tool
    async def counted() -> str:
        ran.append(1)
        return "x"

    async def host() -> None:
        runner = Runner([running.tool, counted], direct=[output])
        await runner.run([call("a", "endless"), call("b", "counted"), call("c", "counted")])

    around = asyncio.all_tasks()
    await gone(way, host, running.inside)

    assert sorted(output.states) == ["a", "b", "c"]
    assert (output.states["a"], output.states["b"], ran) == ("interrupted", "cancelled", [])
    assert {task for task in asyncio.all_tasks() - around if not task.done()} == set()


async def test_nothing_starts_in_a_runner_whose_host_was_cancelled() -> None:
    running, output = endless(), EventLog()

    with anyio.CancelScope() as host:
        async with Runner([running.tool, quick], direct=[output]) as runner:
            with anyio.CancelScope(shield=True):
                async with runner.batch() as batch:
                    batch.add(call("a", "endless"))
                    batch.add(call("b", "quick"))
                    await running.inside.wait()
                    host.cancel()
                    await batch.drain()

    assert output.states == {"a": "interrupted", "b": "cancelled"}


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("way", ["call", "all", "host", "task"])
async def test_uninterruptible_tool_finishes_and_keeps_its_result(way: str, hooked: bool) -> None:
    log = EventLog()
    inside, go_on = anyio.Event(), anyio.Event()
    hooks = Hooks()
    if hooked:
        hooks.post_tool_use()(lambda call, moment: "seen")

    @tool(interrupt="block")
    async def steady() -> str:
        inside.set()
        await go_on.wait()
        return "finished"

    runner = Runner([steady, quick], hooks=hooks, direct=[log])

    async def host() -> None:
        await runner.run([call("a", "steady"), call("b", "quick")])

    async with anyio.create_task_group() as group:
        task = asyncio.create_task(host())
        await inside.wait()
        match way:
            case "call":
                runner.cancel("a")
            case "all":
                runner.cancel()
            case "host":
                group.cancel_scope.cancel()
                task.cancel()
            case _:
                task.cancel()
        go_on.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])

    assert log.states["a"] == "succeeded"
    assert next(item.content for item in log.of(Finished) if item.call_id == "a") == "finished"


async def test_output_of_a_tool_is_kept_if_post_hooks_are_cancelled() -> None:
    hooked, output = anyio.Event(), EventLog()
    hooks = Hooks()

    @hooks.post_tool_use()
    async def slow(call: Call, moment: object) -> None:
        hooked.set()
        await anyio.sleep_forever()

    async with Runner([quick], hooks=hooks, direct=[output]) as runner, runner.batch() as batch:
        batch.add(call("a", "quick"))
        await hooked.wait()
        batch.cancel()
        finished = await batch.drain()

    assert (finished[0].span.state, finished[0].content) == ("succeeded", "quick")


async def test_cancelled_sync_tool_ends_at_once_while_its_thread_continues() -> None:
    inside, go_on, thread_ended = anyio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    saw: list[bool] = []

    @tool
    def stubborn(ctx: ToolContext) -> str:
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(5)
        saw.append(ctx.cancelled)
        thread_ended.set()
        return "too late"

    try:
        async with Runner([stubborn, quick]) as runner, runner.batch() as batch:
            batch.add(call("a", "stubborn"))
            batch.add(call("b", "quick"))
            await inside.wait()
            batch.cancel(CallId("a"))
            finished = await batch.drain()
            assert not saw
    finally:
        go_on.set()

    assert [item.span.state for item in finished] == ["interrupted", "succeeded"]
    assert await anyio.to_thread.run_sync(thread_ended.wait, 5)
    assert saw == [True]


async def test_unanswered_question_is_reported_as_aborted() -> None:
    request, output = anyio.Event(), EventLog()

    async def approver(question: PermissionRequest, ask: Ask) -> Allow | Deny:
        request.set()
        await anyio.sleep_forever()
        return Allow()

    runner = Runner([quick], policies=[lambda question: Ask("sure?")], approver=approver, direct=[output])
    async with runner, runner.batch() as batch:
        batch.add(call("a", "quick"))
        await request.wait()
        batch.cancel()
        finished = await batch.drain()

    assert finished[0].span.state == "cancelled"
    assert [item.reason for item in output.of(PermissionRequested)] == ["sure?"]
    assert [(item.allowed, item.source) for item in output.of(Decided)] == [(False, "user_abort")]


async def test_call_cancelled_by_its_policy_does_not_run() -> None:
    log = EventLog()
    runner = Runner([quick], policies=[lambda question: runner.cancel("a")], direct=[log])

    finished = await runner.finish([call("a", "quick")])

    assert (finished[0].span.state, log.of(Started)) == ("cancelled", [])


async def test_no_hook_runs_for_a_cancelled_call() -> None:
    hooks = Hooks()
    fired: list[Call] = []
    hooks.pre_tool_use()(fired.append)

    async with Runner([quick], hooks=hooks) as runner, runner.batch() as batch:
        batch.add(call("a", "quick"))
        batch.cancel()
        finished = await batch.drain()

    assert (finished[0].span.state, fired) == ("cancelled", [])


@pytest.mark.parametrize("partial", [lambda: 1 / 0, lambda: 7, None])
async def test_failing_partial_output_does_not_lose_the_result(partial: Any) -> None:
    running = Held("endless", partial=partial)

    async with Runner([running.tool]) as runner, runner.batch() as batch:
        batch.add(call("a", "endless"))
        await running.inside.wait()
        batch.cancel()
        finished = await batch.drain()

    assert finished[0].span.state == "interrupted"


async def test_cancelled_command_ends_with_all_its_processes_and_keeps_its_output(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    apart = "(setsid sh -c 'echo $$ >> pids; exec sleep 100' &)"
    command = f"echo begun; sleep 100 & echo $$ $! > pids; {apart}; mv pids ready; wait"
    shell = bash_tool(profile("2.0.65"))

    runner = Runner([shell], cwd=tmp_path, profile=profile("2.0.65"))
    async with runner, runner.batch() as batch:
        batch.add(call("a", "Bash", command=command))
        while not ready.exists():
            await anyio.lowlevel.checkpoint()
        pids = [int(pid) for pid in ready.read_text(encoding="utf-8").split()]
        assert all(is_alive(pid) for pid in pids)
        batch.cancel()
        finished = await batch.drain()

    assert [pid for pid in pids if is_alive(pid)] == []
    assert "begun" in str(finished[0].content)
    assert finished[0].span.state == "interrupted"


@requirement("cancel.discard")
async def test_calls_of_a_retried_reply_are_answered_with_that_reason() -> None:
    async with at_work(EventLog()) as (_, batch):
        batch.cancel(by="discarded")
        finished = await batch.drain()

    assert [item.span.error_kind for item in finished] == ["stream_discarded", "stream_discarded"]


async def test_tool_that_awaits_a_cancelled_task_ends_no_other_call() -> None:
    @tool(concurrent=True)
    async def unlucky() -> str:
        task = asyncio.create_task(anyio.sleep_forever())
        await anyio.lowlevel.checkpoint()
        task.cancel()
        await task
        return ""

    finished = await Runner([unlucky, replace(quick, concurrent=True)]).finish(
        [call("a", "unlucky"), call("b", "quick"), call("c", "unlucky")]
    )

    assert [item.span.state for item in finished] == ["failed", "succeeded", "failed"]
