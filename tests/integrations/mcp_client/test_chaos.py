"""Every call is finalized once and no process is left, whatever a server does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import anyio
import psutil
import pytest

from tests.integrations.mcp_client.connect import config, talk, text
from tests.requirement import requirement
from toolspan.integrations.mcp_client import McpServers
from toolspan.runtime.process import is_subreaper
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

QUICK = {"MCP_TOOL_TIMEOUT": "300"}


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("hang", "timed out after"),
        ("half", "timed out after"),
        ("wrong_id", "timed out after"),
        ("die", "Connection closed"),
        ("close_stdout", "Connection closed"),
        ("endless", "Connection closed"),
        ("misfit", "Invalid answer from the server"),
        ("refuse", "no such thing"),
        ("twice", "twice"),
        ("garbage", "garbage"),
        ("surrogate", "cut in \ufffd half"),
    ],
)
async def test_call_is_finalized_once_and_the_next_one_works(tool: str, message: str, tmp_path: Path) -> None:
    env = QUICK if "timed out" in message else {}
    async with talk(tmp_path, env=env) as conversation:
        bad = await conversation.call(tool)
        good = await conversation.call("echo", words="hi")

        assert message in text(bad)
        assert text(good) == '{"words": "hi"}'
        assert set(conversation.finished.values()) == {1}


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("null_result", "result: Input should be an object"),
        ("number_result", "result: Input should be an object"),
        ("null_error", "error: Input should be a"),
        ("neither", "result: Field required"),
        ("no_version", "jsonrpc: Field required"),
    ],
)
async def test_invalid_answer_ends_its_call_at_once(tool: str, message: str, tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:  # nothing here would end within ten minutes
        bad = await conversation.call(tool)
        good = await conversation.call("echo", words="hi")

        assert text(bad).startswith(f"Invalid answer from the server: {message}")
        assert text(good) == '{"words": "hi"}'
        assert conversation.health.errors == {"unreadable": 1}


async def test_server_that_stops_reading_fails_only_its_call(tmp_path: Path) -> None:
    async with talk(tmp_path, env=QUICK) as conversation:
        deaf = await conversation.call("deaf")
        full = [await conversation.call("echo", words="x" * 300_000) for _ in range(3)]

    assert {item.span.state for item in [deaf, *full]} == {"timed_out"}
    assert set(conversation.finished.values()) == {1}


async def test_floods_and_large_answers_are_handled(tmp_path: Path) -> None:
    async with talk(tmp_path, "noisy", "chatty") as conversation:
        flooded = await conversation.call("flood", n=3_000)
        huge = await conversation.call("huge", n=20_000_000)

        assert text(flooded) == "flooded"
        assert huge.span.state == "succeeded"
        assert text(huge).startswith("Error: result (20,000,000 characters across 1 line) exceeds maximum")
        assert conversation.health.garbage_lines > 3_000


async def test_calls_in_flight_are_finalized_when_the_server_dies(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        waiting: list[tuple[str, dict[str, object]]] = [("hang", {})] * 8

        async def kill() -> None:
            while len([m for m in conversation.heard() if m.get("method") == "tools/call"]) < 8:
                await anyio.lowlevel.checkpoint()
            for child in psutil.Process().children():
                if str(tmp_path) in " ".join(child.cmdline()):
                    child.kill()

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            ended = await conversation.calls(*waiting)

    assert {text(item) for item in ended} == {"Connection closed"}
    assert conversation.health.errors == {"closed": 8}


@pytest.mark.parametrize("end", ["die", "endless", "close_stdout"])
async def test_crash_ends_concurrent_calls_of_the_server(end: str, tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:  # a call may take ten minutes here
        ended: list[Finished] = []

        async def call(tool: str) -> None:
            ended.append(await conversation.call(tool))

        async with anyio.create_task_group() as group:
            group.start_soon(call, "hang")
            await conversation.hears("tools/call")
            group.start_soon(call, end)

    assert [text(item) for item in ended] == ["Connection closed"] * 2
    assert conversation.health.errors == {"closed": 2}


async def test_orphan_of_a_dead_server_does_not_delay_its_calls(tmp_path: Path) -> None:
    async with talk(tmp_path) as conversation:
        await conversation.call("fork")  # it has the server's pipes, and stays
        ended: list[Finished] = []

        async def call(tool: str) -> None:
            ended.append(await conversation.call(tool))

        async with anyio.create_task_group() as group:
            group.start_soon(call, "hang")
            while len([m for m in conversation.heard() if m.get("method") == "tools/call"]) < 2:
                await anyio.lowlevel.checkpoint()
            group.start_soon(call, "die")

    assert [text(item) for item in ended] == ["Connection closed"] * 2


@pytest.mark.parametrize("habits", [(), ("stubborn",), ("noisy",), ("mute",), ("dead",)])
async def test_no_process_of_a_server_is_left(habits: tuple[str, ...], tmp_path: Path) -> None:
    async with talk(tmp_path, env={"MCP_TIMEOUT": "2000"}):
        pass  # the SDK and the loop have opened what they keep
    before, tasks = descriptors(), asyncio.all_tasks()

    async with talk(tmp_path, *habits, env={**QUICK, "MCP_TIMEOUT": "1000"}) as conversation:
        if conversation.health.state == "connected":
            grandchild = int(text(await conversation.call("fork")))
            await conversation.call("hang")
            await conversation.call("die")
            await conversation.call("echo")
        else:
            grandchild = None

    assert asyncio.all_tasks() == tasks
    assert descriptors() == before
    assert [item for item in psutil.Process().children(recursive=True) if _ours(item, tmp_path)] == []
    assert grandchild is None or not _runs(grandchild)


def descriptors() -> int:
    return psutil.Process().num_fds()


def _ours(process: psutil.Process, folder: Path) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE and str(folder) in " ".join(process.cmdline())


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE or is_subreaper()
    except psutil.NoSuchProcess:
        return False


@requirement("mcp.connect")
@pytest.mark.parametrize(
    ("habit", "reason"),
    [("mute", "no answer within 0.5 s"), ("dead", "Connection closed (its last error output: no database)")],
)
async def test_server_that_fails_to_start_is_left_out_with_the_reason(habit: str, reason: str, tmp_path: Path) -> None:
    async with talk(tmp_path, habit, env={"MCP_TIMEOUT": "500"}) as conversation:
        assert conversation.servers.tools().names == ()
        assert (conversation.health.state, conversation.health.reason) == ("failed", reason)


async def open_gate(gate: Path) -> None:
    await anyio.to_thread.run_sync(lambda: gate.write_text("go", encoding="utf-8"))


@requirement("mcp.connect")
async def test_slow_start_is_awaited(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with anyio.create_task_group() as group:
        group.start_soon(open_gate, gate)
        async with talk(tmp_path, f"gate={gate}") as conversation:
            assert text(await conversation.call("echo")) == "{}"


@requirement("mcp.connect")
async def test_failed_server_does_not_affect_the_others(tmp_path: Path) -> None:
    servers = config(tmp_path / "log")
    both = {**servers["mcpServers"], "gone": {"command": str(tmp_path / "none")}}  # type: ignore[dict-item]
    async with talk(tmp_path, servers={"mcpServers": both}) as conversation:
        assert text(await conversation.call("echo")) == "{}"
        gone = conversation.servers.health["gone"]
        assert gone.state == "failed"
        assert "No such file" in str(gone.reason)


async def test_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    servers = McpServers(config(tmp_path / "log", "mute"), cwd=tmp_path)
    async with anyio.create_task_group() as group:

        async def enter() -> None:
            async with servers:
                raise AssertionError("it never starts")

        group.start_soon(enter)
        while b"initialize" not in (tmp_path / "log").read_bytes():
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert [item for item in psutil.Process().children(recursive=True) if _ours(item, tmp_path)] == []
