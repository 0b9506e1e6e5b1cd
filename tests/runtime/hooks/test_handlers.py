"""Handlers that are no commands: addresses, MCP tools, models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from tests.requirement import requirement
from tests.runtime.hooks.stage import at, hooks, moment
from toolspan.errors import ToolError
from toolspan.runtime.hooks.events import PreToolDecision
from toolspan.runtime.hooks.load import HookServices
from toolspan.types.decision import Deny

pytestmark = pytest.mark.anyio

DENY = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}


class Asked:
    """What came to a server."""

    def __init__(self) -> None:
        self.url = ""
        self.headers: dict[str, str] = {}
        self.body: dict[str, object] = {}


@asynccontextmanager
async def server(status: str, body: str, *more: str) -> AsyncIterator[Asked]:
    """An address that gives one answer to whoever posts to it."""
    asked = Asked()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, rest = data.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            asked.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
            while len(rest) < int(asked.headers["content-length"]):
                rest += await stream.receive()
            asked.body = json.loads(rest)
            sent = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *more, "", body]
            await stream.send("\r\n".join(sent).encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    asked.url = f"http://127.0.0.1:{port}/hook"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield asked
        group.cancel_scope.cancel()


async def before(
    tmp_path: Path, handler: Mapping[str, object], means: HookServices | None = None, **settings: object
) -> PreToolDecision:
    block = at("PreToolUse", handler)
    async with hooks(tmp_path, block, means=means, settings=settings) as given:
        with anyio.fail_after(20):
            return await given.run_pre_tool_use(moment("Bash", tmp_path, command="echo hi"))


@requirement("hooks.http")
async def test_the_input_is_posted_to_an_address_and_the_body_is_the_answer(tmp_path: Path) -> None:
    async with server("200 OK", json.dumps(DENY)) as asked:
        told = await before(tmp_path, {"type": "http", "url": asked.url})

    assert isinstance(told.decision, Deny)
    assert asked.body["tool_input"] == {"command": "echo hi"}
    assert asked.headers["content-type"] == "application/json"


@requirement("hooks.http")
@pytest.mark.parametrize(
    ("status", "body", "more"),
    [
        ("500 Oops", json.dumps(DENY), ()),
        ("200 OK", "words", ()),
        ("302 Found", "", ("location: http://127.0.0.1:1/",)),
    ],
)
async def test_anything_but_an_answer_is_a_failure(
    tmp_path: Path, status: str, body: str, more: tuple[str, ...]
) -> None:
    async with server(status, body, *more) as asked:
        told = await before(tmp_path, {"type": "http", "url": asked.url})

    assert told.decision is None
    assert [report.outcome for report in told.reports] == ["error"]


@requirement("hooks.http-limits")
async def test_only_allowed_variables_are_filled_into_headers(tmp_path: Path) -> None:
    handler = {"type": "http", "headers": {"x-a": "$HOME", "x-b": "${PATH}!"}, "allowedEnvVars": ["HOME"]}
    async with server("200 OK", "") as asked:
        await before(tmp_path, {**handler, "url": asked.url})
    assert (asked.headers["x-a"], asked.headers["x-b"]) == ("/nowhere", "!")

    async with server("200 OK", "") as asked:
        await before(tmp_path, {**handler, "url": asked.url}, httpHookAllowedEnvVars=[])
    assert asked.headers["x-a"] == ""


@requirement("hooks.http-limits")
async def test_an_address_that_is_not_on_the_list_is_not_posted_to(tmp_path: Path) -> None:
    async with server("200 OK", json.dumps(DENY)) as asked:
        told = await before(tmp_path, {"type": "http", "url": asked.url}, allowedHttpHookUrls=["https://ok.test/*"])

    assert told.decision is None
    assert asked.body == {}


@requirement("hooks.mcp")
async def test_the_text_of_an_mcp_tool_is_the_answer(tmp_path: Path) -> None:
    called: list[object] = []

    async def call(name: str, tool: str, given: Mapping[str, object]) -> str:
        called.append((name, tool, given))
        return json.dumps(DENY)

    handler = {
        "type": "mcp_tool",
        "server": "db",
        "tool": "check",
        "input": {"line": "run ${tool_input.command}", "none": "${a.b}", "deep": ["${cwd}"]},
    }
    told = await before(tmp_path, handler, HookServices(call_tool=call))

    assert isinstance(told.decision, Deny)
    filled = {"line": "run echo hi", "none": "", "deep": [str(tmp_path)]}
    assert called == [("db", "check", filled)]


@requirement("hooks.mcp")
async def test_an_mcp_tool_that_fails_stops_nothing(tmp_path: Path) -> None:
    async def call(name: str, tool: str, given: Mapping[str, object]) -> str:
        raise ToolError("it broke")

    told = await before(tmp_path, {"type": "mcp_tool", "server": "db", "tool": "check"}, HookServices(call_tool=call))

    assert [(one.outcome, one.text) for one in told.reports] == [("error", "Failed to run: it broke")]


class Mute(Exception):  # noqa: N818 - it has no words
    def __str__(self) -> str:
        raise RuntimeError("no words")


@requirement("hooks.mute")
@pytest.mark.parametrize(
    "handler",
    [{"type": "mcp_tool", "server": "db", "tool": "check"}, {"type": "prompt", "prompt": "Fine?"}],
    ids=["mcp_tool", "prompt"],
)
async def test_whoever_is_asked_may_fail_without_words(tmp_path: Path, handler: dict[str, object]) -> None:
    async def call(name: str, tool: str, given: Mapping[str, object]) -> str:
        raise Mute

    async def ask(_prompt: str, _model: str | None) -> str:
        raise Mute

    told = await before(tmp_path, handler, HookServices(call_tool=call, ask_model=ask))

    assert told.decision is None
    assert [one.outcome for one in told.reports] == ["error"]


@requirement("hooks.prompt")
@pytest.mark.parametrize(
    ("verdict", "refused", "stop"),
    [
        ('{"ok": true}', False, None),
        ('Well: {"ok": false, "reason": "risky"}', True, "risky"),
        ("no idea", False, None),
    ],
)
async def test_a_model_can_be_asked_whether_a_call_may_run(
    tmp_path: Path, verdict: str, refused: bool, stop: str | None
) -> None:
    asked: list[str] = []

    async def ask(prompt: str, _model: str | None) -> str:
        asked.append(prompt)
        return verdict

    handler = {"type": "prompt", "prompt": "Is this fine? $ARGUMENTS"}
    told = await before(tmp_path, handler, HookServices(ask_model=ask))

    assert isinstance(told.decision, Deny) is refused
    assert told.stop == stop
    assert '"command":"echo hi"' in asked[0]


@requirement("hooks.prompt")
async def test_a_models_no_can_leave_the_turn_going(tmp_path: Path) -> None:
    async def ask(_prompt: str, _model: str | None) -> str:
        return '{"ok": false, "reason": "risky"}'

    handler = {"type": "prompt", "prompt": "Fine?", "continueOnBlock": True}
    told = await before(tmp_path, handler, HookServices(ask_model=ask))

    assert told.decision == Deny("risky", "hook")
    assert told.stop is None
