"""Handlers that are HTTP requests, MCP tools, models or agents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from tests.runtime.hooks.hook_sessions import at, hooks, run_agent, tool_event
from toolspan.errors import ToolError
from toolspan.runtime.hooks.events import PreToolDecision
from toolspan.runtime.hooks.load import HookServices
from toolspan.testing import say, use
from toolspan.types.decision import Deny

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fork_server")]

DENY = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}


class Posted:
    def __init__(self) -> None:
        self.url = ""
        self.headers: dict[str, str] = {}
        self.body: dict[str, object] = {}


@asynccontextmanager
async def server(status: str, body: str, *more: str) -> AsyncIterator[Posted]:
    request = Posted()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, rest = data.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            request.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
            while len(rest) < int(request.headers["content-length"]):
                rest += await stream.receive()
            request.body = json.loads(rest)
            sent = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *more, "", body]
            await stream.send("\r\n".join(sent).encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    request.url = f"http://127.0.0.1:{port}/hook"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield request
        group.cancel_scope.cancel()


async def before(
    tmp_path: Path, handler: Mapping[str, object], services: HookServices | None = None, **settings: object
) -> PreToolDecision:
    block = at("PreToolUse", handler)
    async with hooks(tmp_path, block, services=services, settings=settings) as arguments:
        return await arguments.run_pre_tool_use(tool_event("Bash", tmp_path, command="echo hi"))


async def test_http_handler_posts_the_input_and_returns_the_body(tmp_path: Path) -> None:
    async with server("200 OK", json.dumps(DENY)) as request:
        decision = await before(tmp_path, {"type": "http", "url": request.url})

    assert isinstance(decision.decision, Deny)
    assert request.body["tool_input"] == {"command": "echo hi"}
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "body", "more"),
    [
        ("500 Oops", json.dumps(DENY), ()),
        ("200 OK", "words", ()),
        ("302 Found", "", ("location: http://127.0.0.1:1/",)),
    ],
)
async def test_response_that_is_not_json_is_a_failure(
    tmp_path: Path, status: str, body: str, more: tuple[str, ...]
) -> None:
    async with server(status, body, *more) as request:
        decision = await before(tmp_path, {"type": "http", "url": request.url})

    assert decision.decision is None
    assert [report.outcome for report in decision.reports] == ["error"]


async def test_only_allowed_variables_are_expanded_in_headers(tmp_path: Path) -> None:
    handler = {"type": "http", "headers": {"x-a": "$HOME", "x-b": "${PATH}!"}, "allowedEnvVars": ["HOME"]}
    async with server("200 OK", "") as request:
        await before(tmp_path, {**handler, "url": request.url})
    assert (request.headers["x-a"], request.headers["x-b"]) == ("/nowhere", "!")

    async with server("200 OK", "") as request:
        await before(tmp_path, {**handler, "url": request.url}, httpHookAllowedEnvVars=[])
    assert request.headers["x-a"] == ""


async def test_url_that_is_not_allowed_is_not_posted_to(tmp_path: Path) -> None:
    async with server("200 OK", json.dumps(DENY)) as request:
        decision = await before(
            tmp_path, {"type": "http", "url": request.url}, allowedHttpHookUrls=["https://ok.test/*"]
        )

    assert decision.decision is None
    assert request.body == {}


async def test_text_of_an_mcp_tool_is_the_output(tmp_path: Path) -> None:
    calls: list[object] = []

    async def call(name: str, tool: str, arguments: Mapping[str, object]) -> str:
        calls.append((name, tool, arguments))
        return json.dumps(DENY)

    handler = {
        "type": "mcp_tool",
        "server": "db",
        "tool": "check",
        "input": {"line": "run ${tool_input.command}", "none": "${a.b}", "deep": ["${cwd}"]},
    }
    decision = await before(tmp_path, handler, HookServices(call_tool=call))

    assert isinstance(decision.decision, Deny)
    filled = {"line": "run echo hi", "none": "", "deep": [str(tmp_path)]}
    assert calls == [("db", "check", filled)]


async def test_failing_mcp_tool_blocks_nothing(tmp_path: Path) -> None:
    async def call(name: str, tool: str, arguments: Mapping[str, object]) -> str:
        raise ToolError("it broke")

    decision = await before(
        tmp_path, {"type": "mcp_tool", "server": "db", "tool": "check"}, HookServices(call_tool=call)
    )

    assert [(report.outcome, report.text) for report in decision.reports] == [("error", "Failed to run: it broke")]


class Mute(Exception):  # noqa: N818 - it has no words
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "handler",
    [{"type": "mcp_tool", "server": "db", "tool": "check"}, {"type": "prompt", "prompt": "Fine?"}],
    ids=["mcp_tool", "prompt"],
)
async def test_model_or_tool_that_fails_without_a_message_is_reported(
    tmp_path: Path, handler: dict[str, object]
) -> None:
    async def call(name: str, tool: str, arguments: Mapping[str, object]) -> str:
        raise Mute

    async def ask(_prompt: str, _model: str | None) -> str:
        raise Mute

    decision = await before(tmp_path, handler, HookServices(call_tool=call, ask_model=ask))

    assert decision.decision is None
    assert [report.outcome for report in decision.reports] == ["error"]


@pytest.mark.parametrize(
    ("verdict", "refused", "stop"),
    [
        ('{"ok": true}', False, None),
        ('Well: {"ok": false, "reason": "risky"}', True, "risky"),
        ("no idea", False, None),
    ],
)
async def test_model_can_decide_whether_a_call_may_run(
    tmp_path: Path, verdict: str, refused: bool, stop: str | None
) -> None:
    request: list[str] = []

    async def ask(prompt: str, _model: str | None) -> str:
        request.append(prompt)
        return verdict

    handler = {"type": "prompt", "prompt": "Is this fine? $ARGUMENTS"}
    decision = await before(tmp_path, handler, HookServices(ask_model=ask))

    assert isinstance(decision.decision, Deny) is refused
    assert decision.stop == stop
    assert '"command":"echo hi"' in request[0]


async def test_refusal_of_a_model_can_let_the_turn_continue(tmp_path: Path) -> None:
    async def ask(_prompt: str, _model: str | None) -> str:
        return '{"ok": false, "reason": "risky"}'

    handler = {"type": "prompt", "prompt": "Fine?", "continueOnBlock": True}
    decision = await before(tmp_path, handler, HookServices(ask_model=ask))

    assert decision.decision == Deny("risky", "hook")
    assert decision.stop is None


def run(folder: Path, kind: str, script: object) -> tuple[list[dict[str, object]], str]:
    (folder / "work").mkdir()
    (folder / "work" / "rules.txt").write_text("no touching\n", encoding="utf-8")
    handler = {"type": kind, "prompt": "May this be? $ARGUMENTS", "continueOnBlock": True}
    block = {"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]}
    (folder / "s.json").write_text(json.dumps({"hooks": block}), encoding="utf-8")
    payload = ("--setting-sources", "", "--output-format", "stream-json")
    result = run_agent(folder, script, "--settings", "../s.json", *payload)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, result.stderr
    results = [
        block
        for row in rows
        if row["type"] == "user"
        for block in row["message"]["content"]
        if block["type"] == "tool_result"
    ]
    return results, str(rows[-1]["result"])


def test_prompt_hook_uses_the_model_of_the_run(tmp_path: Path) -> None:
    no = say('{"ok": false, "reason": "not today"}')
    yes = say('Of course: {"ok": true}')
    script = [
        [use("Bash", command="touch a")], no, [use("Bash", command="echo b")], yes, say("Done."),
    ]  # fmt: skip
    (first, second), last = run(tmp_path, "prompt", script)

    assert first["content"] == "PreToolUse:Bash hook error: not today"
    assert (second["content"], last) == ("b", "Done.")
    assert not (tmp_path / "work" / "a").exists()


def test_agent_hook_can_read_files_but_not_change_them(tmp_path: Path) -> None:
    script = [
        [use("Bash", command="touch a")],
        [use("Read", file_path="rules.txt"), use("Write", file_path="b", content="x")],
        say('{"ok": false, "reason": "the rules forbid it"}'),
        say("Done."),
    ]
    (result,), last = run(tmp_path, "agent", script)

    assert (result["content"], last) == ("PreToolUse:Bash hook error: the rules forbid it", "Done.")
    assert sorted(item.name for item in (tmp_path / "work").iterdir()) == ["rules.txt"]
