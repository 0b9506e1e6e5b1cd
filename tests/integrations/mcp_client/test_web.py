"""MCP servers over streamable HTTP and legacy SSE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from tests.integrations.mcp_client.connect import ToolCaller, talk, text
from tests.integrations.mcp_client.web_server import WebServer
from tests.requirement import requirement
from toolspan.types.events import Finished

pytestmark = pytest.mark.anyio

WIRES = {"http": "/mcp", "sse": "/sse"}


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@asynccontextmanager
async def online(folder: Path, web: WebServer, wire: str = "http", **env: str) -> AsyncIterator[ToolCaller]:
    address = {"type": wire, "url": web.url + WIRES[wire], "headers": {"X-Key": "${KEY}"}}
    servers: dict[str, object] = {"mcpServers": {"chaos": address}}
    async with talk(folder, servers=servers, env={"KEY": "k", **env}) as conversation:
        yield conversation


async def in_flight(web: WebServer, number: int) -> None:
    """Wait until the server has so many calls to answer."""
    while web.methods.count("tools/call") < number:
        await anyio.sleep(0.01)


@pytest.mark.parametrize("wire", WIRES)
async def test_remote_server_is_called(wire: str, web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web, wire) as conversation:
        done = await conversation.call("echo", words="hi")

    assert text(done) == '{"words": "hi"}'
    assert {headers["x-key"] for headers in web.headers} == {"k"}


async def test_progress_is_streamed(web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web) as conversation:
        done = await conversation.call("news", n=1)

        assert text(done) == '{"n": 1}'
        assert [news["message"] for news in conversation.progress] == ["nearly"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tool", ["hang", "drop", "crash"])
async def test_unanswered_remote_call_ends_and_the_next_one_works(
    tool: str, wire: str, web: WebServer, tmp_path: Path
) -> None:
    async with online(tmp_path, web, wire, MCP_TOOL_TIMEOUT="1000") as conversation:
        bad = await conversation.call(tool)
        good = await conversation.call("echo", n=1)

        assert bad.span.state in ("failed", "timed_out")
        assert text(good) == '{"n": 1}'
        assert set(conversation.finished.values()) == {1}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tool", ["empty", "broken"])
async def test_invalid_remote_answer_ends_its_call_at_once(
    tool: str, wire: str, web: WebServer, tmp_path: Path
) -> None:
    async with online(tmp_path, web, wire) as conversation:
        bad = await conversation.call(tool)
        good = await conversation.call("echo", n=1)

        assert text(bad).startswith("Invalid answer from the server: ")
        assert "\n" not in text(bad)
        assert text(good) == '{"n": 1}'
        assert conversation.health.errors == {"unreadable": 1}


async def test_split_character_in_a_stream_does_not_lose_a_call(web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web, "sse") as conversation:
        done = await conversation.call("halves")

    assert text(done) == "cut in \ufffd half"


@pytest.mark.parametrize("wire", WIRES)
async def test_calls_in_flight_end_when_the_remote_server_dies(wire: str, web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web, wire) as conversation:
        ended: list[Finished] = []

        async def hang() -> None:
            ended.append(await conversation.call("hang"))

        async with anyio.create_task_group() as group:
            group.start_soon(hang)
            group.start_soon(hang)
            await in_flight(web, 2)
            web.die()
        good = await conversation.call("echo", n=1)

    assert {text(item) for item in ended} <= {"fetch failed", "Connection closed"}
    assert conversation.health.errors == {"closed": 2}
    assert text(good) == '{"n": 1}'


async def test_dropped_connection_ends_only_its_call(web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web, MCP_TOOL_TIMEOUT="1000") as conversation:
        ended: dict[str, Finished] = {}

        async def call(tool: str) -> None:
            ended[tool] = await conversation.call(tool)

        async with anyio.create_task_group() as group:
            group.start_soon(call, "hang")
            await in_flight(web, 1)
            await call("drop")
            assert set(ended) == {"drop"}

    assert text(ended["drop"]) == "fetch failed"
    assert "timed out after" in text(ended["hang"])
    assert conversation.health.restarts == 0


@pytest.mark.parametrize("tool", ["drop", "crash"])
async def test_undelivered_message_is_not_awaited(tool: str, web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web, "sse") as conversation:
        bad = await conversation.call(tool)
        good = await conversation.call("echo", n=1)

    assert text(bad) == "Connection closed"
    assert text(good) == '{"n": 1}'


async def test_lost_session_is_renewed_and_the_call_succeeds(web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web) as conversation:
        web.forget()
        done = await conversation.call("echo", n=2)

        assert text(done) == '{"n": 2}'
        assert web.methods.count("initialize") == 2
        assert conversation.health.restarts == 1


@requirement("mcp.connect")
async def test_refused_connection_is_reported(tmp_path: Path) -> None:
    with WebServer() as server:
        pass  # it is gone, and has an address
    async with online(tmp_path, server) as conversation:
        assert conversation.health.state == "failed"
        assert conversation.servers.tools().names == ()


@pytest.mark.parametrize("wire", WIRES)
async def test_closed_connection_leaves_nothing_behind(wire: str, web: WebServer, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with online(tmp_path, web, wire, MCP_TOOL_TIMEOUT="300") as conversation:
        await conversation.call("hang")
        await conversation.call("drop")

    assert asyncio.all_tasks() == before
    here = psutil.Process().net_connections("tcp")
    port = int(web.url.rpartition(":")[2])
    assert [item for item in here if getattr(item.raddr, "port", None) == port] == []


@pytest.mark.parametrize(("wire", "arguments"), [("http", {}), ("http", {"events": True}), ("sse", {})])
async def test_endless_answer_of_a_remote_server_ends_with_an_error_in_bounded_memory(
    wire: str, arguments: dict[str, object], web: WebServer, tmp_path: Path
) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    async with online(tmp_path, web, wire) as conversation:
        bad = await conversation.call("flood", **arguments)
        grown = process.memory_info().rss - before
        good = await conversation.call("echo", n=1)

        assert bad.span.state == "failed"
        assert text(good) == '{"n": 1}'
        assert grown < 600 << 20


async def test_compressed_answer_that_was_not_requested_is_refused(web: WebServer, tmp_path: Path) -> None:
    async with online(tmp_path, web) as conversation:
        done = await conversation.call("zipped", n=1)

        assert "compressed" in text(done)
        assert {headers["accept-encoding"] for headers in web.headers} == {"identity"}
