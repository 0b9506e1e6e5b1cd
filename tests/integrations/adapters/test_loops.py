"""Guarantees in the loops of all supported libraries."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import cast

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from PIL import Image

import toolspan
from tests.integrations.adapters.langgraph_loop import block
from tests.integrations.adapters.loop import Loop, Picture, call
from tests.runtime.waiting_tools import meeting
from toolspan import Permissions, Rules, Session, ToolspanError, coding_tools, tool
from toolspan.integrations.langgraph import ToolspanNode
from toolspan.runtime.permissions import PolicyStack

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["langgraph", "pydantic_ai"])
def results(request: pytest.FixtureRequest) -> Loop:
    return cast("Loop", importlib.import_module(f"tests.integrations.adapters.{request.param}_loop").results)


async def test_every_call_gets_one_result_in_order_and_is_recorded(results: Loop, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    transcript = tmp_path / "s.jsonl"
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript) as session:
        late, failed, file, odd, again, whole = await results(
            session,
            [call("Bash", "s", command="sleep 0.1; echo late"), call("Bash", "b", command="exit 3")],
            [call("Read", "r", file_path=str(tmp_path / "a.txt")), call("Bash", "w", cmd="x")],
            [call("Bash", "b", command="echo the same id")],
            [call("Read", "r", file_path=str(tmp_path / "a.txt"))],
        )
    assert [item.id for item in (late, failed, file, odd, again, whole)] == list("sbrwbr")
    assert (late.failed, late.content) == (False, "late")
    assert (failed.failed, "Exit code 3" in str(failed.content)) == (True, True)
    assert (file.failed, file.content) == (False, "1\thello\n2\t")
    assert (odd.failed, "InputValidationError" in str(odd.content)) == (True, True)
    assert (again.failed, whole.failed) == (False, False)
    states = [span.state for span in toolspan.read(transcript).spans]
    assert states == ["succeeded", "failed", "succeeded", "failed", "succeeded", "succeeded"]


async def test_images_are_passed_as_images_and_a_runner_is_accepted(results: Loop, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    async with toolspan.Runner(coding_tools(), cwd=tmp_path) as runner:
        (result,) = await results(runner, [call("Read", "r", file_path=str(tmp_path / "a.png"))])
    assert isinstance(result.content, Picture)
    assert result.content.media_type == "image/png"
    assert result.content.data.startswith(b"\x89PNG")


async def test_denial_reaches_the_model_as_a_result(results: Loop, tmp_path: Path) -> None:
    rules = Rules(deny=["Bash(touch:*)"])
    async with Session(cwd=tmp_path, transcript=None, permissions=PolicyStack((rules,))) as session:
        (result,) = await results(session, [call("Bash", "b", command="touch made")])
    assert result.failed
    assert "has been denied" in str(result.content)
    assert not (tmp_path / "made").exists()


async def test_raising_tool_does_not_break_the_loop(results: Loop, tmp_path: Path) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise KeyError("gone")

    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None, tools=[broken]) as session:
        (result,) = await results(session, [call("broken", "b")])
    assert result.failed
    assert "gone" in str(result.content)


async def test_concurrent_calls_overlap_and_others_wait(results: Loop, tmp_path: Path) -> None:
    inside: list[str] = []

    @tool
    async def alone(name: str) -> str:
        """Be the only one."""
        assert not inside
        inside.append(name)
        for _ in range(5):
            await asyncio.sleep(0)
        inside.remove(name)
        return name

    async with Session(
        permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None, tools=[meeting(), alone]
    ) as session:
        result = await results(
            session,
            [call("meet", "1"), call("meet", "2")],
            [call("alone", "3", name="a"), call("alone", "4", name="b")],
        )
    assert [item.content for item in result] == ["met", "met", "a", "b"]


async def test_cancelled_run_ends_and_records_its_calls(results: Loop, tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    async with (
        Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=transcript) as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(results, session, [call("Bash", "b", command="touch up; exec sleep 1000")])
        while not (tmp_path / "up").exists():
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert [span.state for span in toolspan.read(transcript).spans] == ["interrupted"]


async def test_invalid_json_input_is_answered_and_answered_calls_are_not_run_again(tmp_path: Path) -> None:
    request = AIMessage(
        content="",
        tool_calls=[
            block(call("Bash", "a", command="touch again")),
            block(call("Bash", "b", command="echo b")),
            block(call("Nothing", "n")),
        ],
        invalid_tool_calls=[
            {"name": "Bash", "args": '{"command": ', "id": "c", "error": "cut", "type": "invalid_tool_call"}
        ],
    )
    done = ToolMessage("done before", tool_call_id="a")
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        result = await ToolspanNode(session).ainvoke([request, done])
    assert isinstance(result, list)
    ended = [("b", "success"), ("n", "error"), ("c", "error")]
    assert [(item.tool_call_id, item.status) for item in result] == ended
    assert "No such tool available: Nothing" in result[1].content
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("state", [{}, {"messages": []}, {"messages": [HumanMessage("x")]}, 7])
async def test_state_without_calls_is_an_error(tmp_path: Path, state: object) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        node = ToolspanNode(session)
        assert "Bash" in str(node.schemas())
        with pytest.raises(ToolspanError):
            await node.ainvoke(state)
        with pytest.raises(ToolspanError, match="ainvoke"):
            node.invoke({"messages": []})
