"""Toolspan in the place of LangGraph's own tool node, with a scripted model."""

from pathlib import Path

import anyio
import pytest
from PIL import Image

import toolspan
from tests.adapters.loop import LONG, call
from tests.requirement import requirement
from toolspan import Session, ToolspanError, coding_tools

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.adapters.langgraph_loop import block, results
from toolspan.adapters.langgraph import ToolspanNode


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_every_call_gets_one_message_in_order_and_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n", encoding="utf-8")
    transcript = tmp_path / "s.jsonl"
    async with Session(cwd=tmp_path, transcript=transcript) as session:
        found = await results(
            session,
            [call("Bash", "slow", command="sleep 0.1; echo late"), call("Nothing", "n")],
            [call("Read", "r", file_path=str(tmp_path / "a.txt")), call("Bash", "w", cmd="x")],
            [call("Read", "r", file_path=str(tmp_path / "a.txt"))],
        )
    ended = [("slow", False), ("n", True), ("r", False), ("w", True), ("r", False)]
    assert [(one.id, one.failed) for one in found] == ended
    assert found[0].content == "late"
    assert "No such tool available: Nothing" in str(found[1].content)
    assert len(toolspan.read(transcript).spans) == 5


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_calls_whose_input_is_no_json_are_answered_and_answered_ones_are_not_run_again(
    tmp_path: Path,
) -> None:
    asked = AIMessage(
        content="",
        tool_calls=[
            block(call("Bash", "a", command="touch again")),
            block(call("Bash", "b", command="echo b")),
        ],
        invalid_tool_calls=[
            {
                "name": "Bash",
                "args": '{"command": ',
                "id": "c",
                "error": "cut",
                "type": "invalid_tool_call",
            }
        ],
    )
    done = ToolMessage("done before", tool_call_id="a")
    async with Session(cwd=tmp_path, transcript=None) as session:
        with anyio.fail_after(LONG):
            found = await ToolspanNode(session).ainvoke([asked, done])
    assert isinstance(found, list)
    assert [(one.tool_call_id, one.status) for one in found] == [("b", "success"), ("c", "error")]
    assert not (tmp_path / "again").exists()


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_pictures_are_pictures_and_a_runner_will_do(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    async with toolspan.Runner(coding_tools(), cwd=tmp_path) as runner:
        (found,) = await results(runner, [call("Read", "r", file_path=str(tmp_path / "a.png"))])
    assert isinstance(found.content, list)
    (image,) = found.content
    assert isinstance(image, dict)
    assert (image["type"], image["mime_type"]) == ("image", "image/png")


@requirement("adapters.faults")
@pytest.mark.anyio
@pytest.mark.parametrize("state", [{}, {"messages": []}, {"messages": [HumanMessage("x")]}, 7])
async def test_a_state_without_calls_is_told(tmp_path: Path, state: object) -> None:
    async with Session(cwd=tmp_path, transcript=None) as session:
        node = ToolspanNode(session)
        assert "Bash" in str(node.schemas())
        with pytest.raises(ToolspanError):
            await node.ainvoke(state)
        with pytest.raises(ToolspanError, match="ainvoke"):
            node.invoke({"messages": []})
