"""Exceptions without a message, and replies with odd blocks, ids and names, leave a valid history."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fork_server import run_toolspan
from toolspan import Hooks, Permissions, Runner, Session, ToolError, read, tool
from toolspan.runtime.hooks.events import PreToolDecision
from toolspan.runtime.tool import Tool, ToolFailure
from toolspan.session.models.base import BlockDone, ModelEvent, ReplyStopped
from toolspan.session.resume import load_history
from toolspan.testing import check_history
from toolspan.types.decision import Deny
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio


class OddTextError(Exception):
    """An exception whose text is user code."""

    def __init__(self, text: Callable[[], Any]) -> None:
        super().__init__()
        self._text = text

    def __str__(self) -> str:
        return self._text()  # type: ignore[no-any-return]


def raise_error(kind: type[BaseException]) -> Any:
    raise kind


EXCEPTIONS = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
ENDING = (KeyboardInterrupt, BaseExceptionGroup)


def make_exception(kind: type[BaseException], text: str | None) -> BaseException:
    if issubclass(kind, BaseExceptionGroup):
        return kind(text or "", [ValueError()])
    if issubclass(kind, UnicodeDecodeError):
        return kind("utf-8", b"", 0, 1, text or "")
    if issubclass(kind, UnicodeEncodeError):
        return kind("utf-8", "", 0, 1, text or "")
    if issubclass(kind, UnicodeTranslateError):
        return kind("", 0, 1, text or "")
    return kind() if text is None else kind(text)


TEXTS = st.none() | st.text(alphabet=" \t\n\u00a0\ud800\x00x")
ODD_TEXTS: list[Callable[[], Any]] = [
    lambda: "", lambda: " \n", lambda: None, lambda: raise_error(ValueError), lambda: raise_error(SystemExit),
]  # fmt: skip
FAULTS = st.one_of(
    st.builds(make_exception, st.sampled_from([kind for kind in EXCEPTIONS if kind not in ENDING]), TEXTS),
    st.builds(OddTextError, st.sampled_from(ODD_TEXTS)),
    st.builds(ToolError, st.text(alphabet=" \nx")),
    st.just(type("", (Exception,), {})()),
)
VALUES = st.one_of(
    st.builds(ToolFailure, st.text(alphabet=" \n\ud800x")),
    st.text(alphabet=" \nx"),
    st.none() | st.booleans() | st.floats() | st.binary() | st.just(object()),
    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(alphabet=" x")})),
)


def failing_tool(fault: BaseException | None, value: object) -> Tool:
    @tool
    async def odd() -> Any:
        """Fail, or return something odd."""
        if fault is not None:
            raise fault
        return value

    return odd


def use(call_id: object, name: object = "odd") -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


async def run_reply(tools: list[Tool], *blocks: dict[str, object], **options: Any) -> list[dict[str, object]]:
    options.setdefault("transcript", None)
    async with Session(tools=tools, permissions=Permissions.allow_all(), **options) as session:
        session.say("go")
        await session.run({"role": "assistant", "content": list(blocks)})
        return session.messages


def results(messages: list[dict[str, object]]) -> list[dict[str, Any]]:
    blocks = [block for message in messages for block in message["content"]]  # type: ignore[attr-defined]
    return [block for block in blocks if block["type"] == "tool_result"]


@given(fault=FAULTS)
def test_whatever_a_tool_raises_becomes_a_text(fault: BaseException) -> None:
    messages = anyio.run(run_reply, [failing_tool(fault, None)], use("a"))

    assert check_history(messages) == []
    [result] = results(messages)
    assert result["is_error"]
    assert result["content"].strip()


@given(value=VALUES)
def test_whatever_a_tool_returns_leaves_a_valid_history(value: object) -> None:
    assert check_history(anyio.run(run_reply, [failing_tool(None, value)], use("a"))) == []


@pytest.mark.parametrize("fault", [TimeoutError(), ConnectionResetError(), OSError(), ToolError("")])
async def test_exception_without_a_message_is_named(fault: Exception) -> None:
    [result] = await Runner([failing_tool(fault, None)]).run([use("a")])

    expected = "The tool failed without a message." if isinstance(fault, ToolError) else type(fault).__name__
    assert result.text == expected


@pytest.mark.parametrize("reason", ["", " ", "\n"])
async def test_refusal_of_a_hook_without_a_reason_has_a_text(reason: str) -> None:
    hooks = Hooks()

    @hooks.pre_tool_use("odd")
    def refuse(call: Call) -> PreToolDecision:
        return PreToolDecision(decision=Deny(reason, "permission_hook"))

    messages = await run_reply([failing_tool(None, "x")], use("a"), hooks=hooks)

    assert check_history(messages) == []
    assert results(messages)[0]["content"].strip()


@pytest.mark.parametrize("content", ["", " \n", [], None])
def test_empty_error_is_a_problem_of_a_history(content: object) -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [result]},
    ]

    assert "content cannot be empty if `is_error` is true" in check_history(messages)[0]


async def test_recorded_empty_error_is_resumed_with_a_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    await run_reply([failing_tool(ValueError("xyz"), None)], use("a"), transcript=path)
    path.write_text(path.read_text(encoding="utf-8").replace("ValueError: xyz", ""), encoding="utf-8")

    [result] = results(load_history(path))

    assert result["content"] == "The tool failed without a message."


@pytest.mark.parametrize("name", ["", None, 5, "  "])
async def test_call_without_a_name_and_its_neighbours_get_results(name: object) -> None:
    blocks = [use("a"), use("b", name), use("c")]
    [first, second, third] = await Runner([failing_tool(None, "x")]).run(blocks)

    assert (first.text, third.text) == ("x", "x")
    assert second.is_error
    assert "No such tool available" in second.text


BLOCKS: list[dict[str, object]] = [
    use("b", ""),
    use("b", None),
    {"type": "tool_use", "id": "b", "input": {}},
    use("b", "not a tool!"),
    use("b", "x" * 300),
    use("toolu:1/ü"),
    use("a b"),
    {"type": "tool_result", "tool_use_id": "a", "content": "made up"},
    {"type": "text", "text": " "},
]


async def stream(*blocks: dict[str, object]) -> Any:
    events: list[ModelEvent] = [*map(BlockDone, blocks), ReplyStopped("tool_use")]
    for event in events:
        yield event


@pytest.mark.parametrize("block", BLOCKS, ids=json.dumps)
@pytest.mark.parametrize("streamed", [False, True])
async def test_odd_block_leaves_a_valid_history_and_a_result_for_every_call(
    block: dict[str, object], streamed: bool, tmp_path: Path
) -> None:
    path, blocks = tmp_path / "t.jsonl", [use("a"), dict(block), use("c")]
    tools = [failing_tool(None, "x")]
    async with Session(tools=tools, permissions=Permissions.allow_all(), transcript=path) as session:
        session.say("go")
        await session.run(stream(*blocks) if streamed else {"role": "assistant", "content": blocks})
        messages = session.messages

    count = 3 if block["type"] == "tool_use" else 2
    assert check_history(messages) == []
    assert len(results(messages)) == count
    assert results(load_history(path)) == results(messages)
    assert len([span for span in read(path).spans if span.result is not None]) == count


async def test_odd_id_is_recognised_when_the_session_is_resumed(tmp_path: Path) -> None:
    path, tools = tmp_path / "t.jsonl", [failing_tool(None, "x")]
    await run_reply(tools, use("a b"), use("a_b"), use("a/b"), transcript=path)

    messages = await run_reply(tools, use("a b"), transcript=path)

    assert len(results(messages)) == 3
    assert check_history(messages) == []


@pytest.mark.usefixtures("fork_server")
def test_exec_answers_with_the_ids_that_were_sent(tmp_path: Path) -> None:
    blocks = [use("a:1", "Read"), use("b", ""), {"type": "tool_use", "id": "c", "input": {}}]
    line = json.dumps({"type": "assistant", "message": {"role": "assistant", "content": blocks}})

    done = run_toolspan("exec", "--transcript", "none", stdin=line, cwd=tmp_path)

    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert [row["tool_use_id"] for row in rows if row["type"] == "result"] == ["a:1", "b", "c"]
