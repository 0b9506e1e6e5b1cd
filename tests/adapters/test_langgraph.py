"""Toolspan in the place of LangGraph's own tool node, with a scripted model."""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from PIL import Image

import toolspan
from tests.requirement import requirement
from toolspan import Rules, Session, ToolspanError, coding_tools, tool

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from toolspan.adapters.langgraph import ToolspanNode

LONG = 30


def call(tool: str, call_id: str | None, **given: object) -> dict[str, object]:
    return {"name": tool, "args": given, "id": call_id, "type": "tool_call"}


async def results(
    host: Session | toolspan.Runner, *turns: Sequence[dict[str, object]]
) -> list[ToolMessage]:
    """The results in a graph whose model asks for these calls, a turn each."""
    left = list(turns)

    async def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        assert state["messages"]
        calls = list(left.pop(0)) if left else []
        return {"messages": [AIMessage(content="" if calls else "done", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolspanNode(host))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    with anyio.fail_after(LONG):
        state = await graph.compile().ainvoke({"messages": [HumanMessage("go")]})
    assert state["messages"][-1].content == "done"
    return [one for one in state["messages"] if isinstance(one, ToolMessage)]


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
    assert [(one.tool_call_id, one.status) for one in found] == [
        ("slow", "success"),
        ("n", "error"),
        ("r", "success"),
        ("w", "error"),
        ("r", "success"),
    ]
    assert found[0].content == "late"
    assert "No such tool available: Nothing" in found[1].content
    assert len(toolspan.read(transcript).spans) == 5


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_calls_whose_input_is_no_json_are_answered_and_answered_ones_are_not_run_again(
    tmp_path: Path,
) -> None:
    asked = AIMessage(
        content="",
        tool_calls=[call("Bash", "a", command="touch again"), call("Bash", "b", command="echo b")],
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


@requirement("adapters.denied")
@pytest.mark.anyio
async def test_a_refusal_reaches_the_model_as_a_result(tmp_path: Path) -> None:
    rules = Rules(deny=["Bash(touch:*)"])
    async with Session(cwd=tmp_path, transcript=None, policies=[rules]) as session:
        (found,) = await results(session, [call("Bash", "b", command="touch made")])
    assert found.status == "error"
    assert "has been denied" in found.content
    assert not (tmp_path / "made").exists()


@requirement("adapters.faults")
@pytest.mark.anyio
async def test_a_tool_that_raises_does_not_break_the_loop(tmp_path: Path) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise KeyError("gone")

    async with Session(cwd=tmp_path, transcript=None, tools=[broken]) as session:
        (found,) = await results(session, [call("broken", "b")])
    assert (found.status, "gone" in found.content) == ("error", True)


@requirement("adapters.parallel")
@pytest.mark.anyio
async def test_calls_that_may_overlap_do(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    @tool(concurrent=True)
    async def meet() -> str:
        """Wait for the other."""
        await both.wait()
        return "met"

    async with Session(cwd=tmp_path, transcript=None, tools=[meet]) as session:
        found = await results(session, [call("meet", "1"), call("meet", "2")])
    assert [one.content for one in found] == ["met", "met"]


@requirement("adapters.one-result")
@pytest.mark.anyio
async def test_pictures_are_pictures_and_a_runner_will_do(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    (tmp_path / "a.png").write_bytes(picture.getvalue())
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
