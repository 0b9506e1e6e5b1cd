"""Exceptions, interrupts and invalid options in user code affect only their own call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from tests.runtime.calls import EventLog, call
from toolspan import Hooks, Permissions, Runner, Session, ToolContext, ToolspanError, read, tool
from toolspan.errors import BadCall, BadTool
from toolspan.runtime.tool import Tool
from toolspan.testing import check_history
from toolspan.types.events import LiveEvent, Progressed
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


class Panic(BaseException):
    """As extension modules raise it when they break."""


def use(name: str, call_id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def reply(*names: str) -> dict[str, object]:
    blocks = [use(name, f"{name}-{n}") for n, name in enumerate(names)]
    return {"role": "assistant", "content": blocks}


@tool(concurrent=True)
async def quick() -> str:
    """Return."""
    return "done"


@pytest.mark.parametrize("kind", [Panic, GeneratorExit, SystemExit])
@pytest.mark.parametrize("late", [False, True])
async def test_any_exception_of_a_tool_is_its_result(kind: type[BaseException], late: bool) -> None:
    @tool(concurrent=True)
    async def breaks() -> str:
        """Break."""
        if late:
            await anyio.lowlevel.checkpoint()
        raise kind("broken")

    async with Session(permissions=Permissions.allow_all(), tools=[breaks, quick], transcript=None) as session:
        session.say("go")
        await session.run(reply("breaks"))
        await session.run({"role": "assistant", "content": [
            use("quick", "before"), use("breaks", "beside"), use("quick", "after"),
        ]})  # fmt: skip
        output: dict[str, tuple[str, str]] = {
            span.id: (span.state, span.result.text) for span in session.spans if span.result
        }

    assert check_history(session.messages) == []
    assert output["before"] == output["after"] == ("succeeded", "done")
    for call_id in ("breaks-0", "beside"):
        state, text = output[call_id]
        assert state == "failed"
        assert kind.__name__ in text
        assert "broken" in text


async def test_system_exit_passes_through_a_session() -> None:
    with pytest.raises(SystemExit) as ended:
        async with Session(permissions=Permissions.allow_all(), tools=[], transcript=None):
            sys.exit(3)

    assert ended.value.code == 3


async def test_results_are_in_the_history_after_repeated_cancellation() -> None:
    begun, finish = anyio.Event(), anyio.Event()

    @tool(interrupt="block")
    async def commit() -> str:
        """Finish what was begun."""
        begun.set()
        await finish.wait()
        return "committed"

    async with Session(permissions=Permissions.allow_all(), tools=[commit], transcript=None) as session:
        session.say("go")
        task = asyncio.create_task(session.run(reply("commit")))
        await begun.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert check_history(session.messages) == []
        assert [span.state for span in session.spans] == ["succeeded"]


@pytest.mark.parametrize("way", ["task", "scope"])
async def test_end_of_one_run_does_not_end_another_in_a_runner_that_is_not_entered(way: str) -> None:
    inside, finish = [anyio.Event(), anyio.Event()], anyio.Event()

    @tool(concurrent=True)
    async def waits(ctx: ToolContext) -> str:
        """Wait."""
        inside[int(ctx.call.id)].set()
        await finish.wait()
        return "finished"

    runner = Runner([waits])
    first = anyio.CancelScope()

    async def run_first() -> None:
        with first:
            await runner.run([use("waits", "0")])

    around = asyncio.all_tasks()
    first_run = asyncio.create_task(run_first())
    await inside[0].wait()
    other = asyncio.create_task(runner.run([use("waits", "1")]))
    await inside[1].wait()
    if way == "task":
        first_run.cancel()
    else:
        first.cancel()
    await asyncio.wait({first_run})  # without waiting for the other
    finish.set()
    results = await other

    assert [result.text for result in results] == ["finished"]
    assert [task for task in asyncio.all_tasks() - around if not task.done()] == []
    assert [result.text for result in await runner.run([use("waits", "0")])] == []


async def test_runner_cannot_be_entered_twice() -> None:
    async with Runner([quick]) as runner:
        with pytest.raises(ToolspanError, match="already entered"):
            await runner.__aenter__()
        assert [item.text for item in await runner.run([use("quick", "1")])] == ["done"]


@pytest.mark.parametrize("calls", [None, 5, "text", b"bytes", [None], ["text"], [5]])
async def test_invalid_call_is_refused(calls: object) -> None:
    with pytest.raises(BadCall):
        await Runner([quick]).run(calls)  # type: ignore[arg-type]  # on purpose


class Block:
    """A block as the objects of an SDK are."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def model_dump(self, **_: object) -> dict[str, object]:
        return self._fields


async def test_sdk_objects_are_accepted_as_calls() -> None:
    blocks = [Block(**use("quick", "1")), Block(**use("quick", "2"))]
    message = Block(role="assistant", content=[Block(**use("quick", "3"))])

    async with Runner([quick]) as runner:
        some = await runner.run(blocks)  # type: ignore[arg-type]
        first = await runner.run(message)  # type: ignore[arg-type]

    assert [result.id for result in [*some, *first]] == ["1", "2", "3"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_progress_from_any_thread_is_emitted_in_the_event_loop_thread(kind: str) -> None:
    output: list[tuple[str, bool]] = []
    home = threading.get_ident()

    def direct(event: LiveEvent) -> None:
        if isinstance(event, Progressed):
            output.append((event.kind, threading.get_ident() == home))

    def work(ctx: ToolContext) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(ctx.progress, "pooled").result()

    @tool
    def sync(ctx: ToolContext) -> str:
        """Work in a thread."""
        work(ctx)
        return "done"

    @tool(name="async")
    async def in_loop(ctx: ToolContext) -> str:
        """Work in a thread, awaited."""
        await anyio.to_thread.run_sync(work, ctx)
        return "done"

    async with Runner([sync, in_loop], direct=[direct]) as runner:
        await runner.run([use(kind, "1")])

    assert output == [("pooled", True)]


def test_async_direct_sink_is_refused() -> None:
    async def watch(event: LiveEvent) -> None:
        """Never awaited."""

    async def enter() -> None:
        async with Runner([quick], direct=[watch]):
            pass

    with pytest.raises(ToolspanError, match="not awaited"):
        asyncio.run(enter())


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def _raise(event: LiveEvent) -> NoReturn:
    raise WordlessError


@pytest.mark.parametrize("where", ["direct", "sinks"])
async def test_sink_exception_without_a_message_is_harmless(where: str) -> None:
    sinks = {where: [_raise]}
    async with Runner([quick], **sinks) as runner:  # type: ignore[arg-type]
        results = await runner.run([use("quick", "1"), use("quick", "2")])

    assert [result.text for result in results] == ["done", "done"]


@pytest.mark.parametrize(
    ("options", "text"),
    [({"aliases": "ls"}, "must be a tuple of names"), ({"timeout": "5"}, "seconds"), ({"grace": "1"}, "sec")],
)
def test_option_of_the_wrong_type_is_refused(options: dict[str, object], text: str) -> None:
    async def listing() -> str:
        """List."""
        return ""

    with pytest.raises(BadTool, match=text):
        tool(**options)(listing)  # type: ignore[call-overload]


def waiting_tool(running: anyio.Event) -> Tool:
    @tool(concurrent=True)
    async def wait() -> str:
        running.set()
        await anyio.sleep_forever()
        return "never"

    return wait


async def test_keyboard_interrupt_in_a_tool_leaves_every_call_with_a_result() -> None:
    running = anyio.Event()
    wait = waiting_tool(running)

    @tool(concurrent=True)
    async def press() -> str:
        await running.wait()
        raise KeyboardInterrupt

    @tool
    async def later() -> str:
        return "never"

    events = EventLog()
    with pytest.raises(KeyboardInterrupt):
        await Runner([wait, press, later], direct=[events]).run(
            [call("a", "wait"), call("b", "press"), call("c", "later")]
        )

    assert events.states == {"a": "interrupted", "b": "interrupted", "c": "cancelled"}


@pytest.mark.parametrize(("where", "state"), [("tool", "interrupted"), ("hook", "cancelled")])
async def test_session_and_transcript_have_every_result_after_a_keyboard_interrupt(
    where: str, state: str, tmp_path: Path
) -> None:
    running = anyio.Event()
    wait = waiting_tool(running)

    @tool(concurrent=True)
    async def press() -> str:
        await running.wait()
        if where == "tool":
            raise KeyboardInterrupt
        return "pressed"

    hooks = Hooks()

    @hooks.pre_tool_use("press")
    async def interrupt(_call: Call) -> None:
        await running.wait()
        if where == "hook":
            raise KeyboardInterrupt

    path = tmp_path / "t.jsonl"
    session = Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[wait, press], transcript=path, hooks=hooks
    )
    async with session:
        session.say("Go.")
        with pytest.raises(KeyboardInterrupt):
            await session.run({"role": "assistant", "content": [call("a", "wait"), call("b", "press")]})
        assert check_history(session.messages) == []

    assert {span.id: span.state for span in read(path).spans} == {"a": "interrupted", "b": state}
