"""Sessions and tasks: a session can be entered and left by any task of an asyncio program."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import anyio
import psutil
import pytest

from toolspan import Hooks, Permissions, Session, read, tool
from toolspan.errors import ToolspanError
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools
from toolspan.types.events import LiveEvent

pytestmark = pytest.mark.anyio


@tool(concurrent=True)
async def echo(text: str) -> str:
    """Return the text."""
    return text


def reply(name: str, **fields: object) -> dict[str, object]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": fields}],
    }


async def test_steps_of_a_session_may_run_in_different_tasks(tmp_path: Path) -> None:
    events: list[str] = []
    hooks = Hooks()
    hooks.at("SessionEnd")(lambda event: events.append("end"))

    async def receive(event: LiveEvent) -> None:
        events.append(type(event).__name__)

    path = tmp_path / "t.jsonl"
    session = Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, tools=[echo], transcript=path, sinks=[receive], hooks=hooks
    )

    async def run() -> None:
        session.say("Go.")
        assert await session.run(reply("echo", text="hi"))

    assert await asyncio.create_task(session.open()) is session
    await asyncio.create_task(run())
    await asyncio.create_task(session.close())
    await session.close()

    assert "Finished" in events
    assert events.count("end") == 1
    assert [span.state for span in read(path).spans] == ["succeeded"]
    async with session:  # it can be entered again
        pass


async def test_close_from_another_task_ends_calls_and_processes_with_a_result(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tools = coding_tools(only=["Bash"])
    session = Session(permissions=Permissions.allow_all(), cwd=tmp_path, tools=tools, transcript=path)
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    async with session, anyio.create_task_group() as group:
        session.say("Go.")
        group.start_soon(session.run, reply("Bash", command=f"echo $$ > {fifo}; sleep 1000"))
        pid = int(await anyio.to_thread.run_sync(fifo.read_text))
        await asyncio.create_task(session.close())
        assert not psutil.pid_exists(pid)

    assert [span.state for span in read(path).spans] == ["interrupted"]


def test_session_and_runner_refuse_trio_on_entry(tmp_path: Path) -> None:
    trio = pytest.importorskip("trio")
    path = tmp_path / "t.jsonl"

    async def main() -> None:
        session = Session(cwd=tmp_path, tools=[echo], transcript=path)
        with pytest.raises(ToolspanError, match=r"need asyncio.*trio"):
            await session.__aenter__()
        with pytest.raises(ToolspanError, match="need asyncio"):
            await Runner([echo]).__aenter__()
        with pytest.raises(ToolspanError, match="need asyncio"):
            await Runner([echo]).run(reply("echo", text="hi"))

    trio.run(main)

    async def later() -> None:
        async with Session(cwd=tmp_path, tools=[echo], transcript=path):
            pass

    anyio.run(later)
