"""A KeyboardInterrupt in user code reaches the host after every call has its result."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.requirement import requirement
from tests.runtime.calls import EventLog, call
from toolspan import Hooks, Permissions, Session, read, tool
from toolspan.runtime.runner import Runner
from toolspan.testing import check_history
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


@requirement("run.keyboard-interrupt")
async def test_keyboard_interrupt_in_a_tool_leaves_every_call_with_a_result() -> None:
    running = anyio.Event()

    @tool(concurrent=True)
    async def wait() -> str:
        running.set()
        await anyio.sleep_forever()
        return "never"

    @tool(concurrent=True)
    async def press() -> str:
        await running.wait()
        raise KeyboardInterrupt

    @tool
    async def later() -> str:
        return "never"

    events = EventLog()
    with anyio.fail_after(30), pytest.raises(KeyboardInterrupt):
        await Runner([wait, press, later], direct=[events]).run(
            [call("a", "wait"), call("b", "press"), call("c", "later")]
        )

    assert events.states == {"a": "interrupted", "b": "interrupted", "c": "cancelled"}


@requirement("run.keyboard-interrupt")
@pytest.mark.parametrize(("where", "state"), [("tool", "interrupted"), ("hook", "cancelled")])
async def test_session_and_transcript_have_every_result_after_a_keyboard_interrupt(
    where: str, state: str, tmp_path: Path
) -> None:
    running = anyio.Event()

    @tool(concurrent=True)
    async def wait() -> str:
        running.set()
        await anyio.sleep_forever()
        return "never"

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
    with anyio.fail_after(30):
        async with session:
            session.say("Go.")
            with pytest.raises(KeyboardInterrupt):
                await session.run({"role": "assistant", "content": [call("a", "wait"), call("b", "press")]})
            assert check_history(session.messages) == []

    assert {span.id: span.state for span in read(path).spans} == {"a": "interrupted", "b": state}
