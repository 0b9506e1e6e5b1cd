"""The toolspan tool node in a LangGraph graph."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.integrations.adapters.langgraph_loop import block
from tests.integrations.adapters.loop import LONG, call
from tests.requirement import requirement
from toolspan import Permissions, Session, ToolspanError
from toolspan.integrations.langgraph import ToolspanNode


@requirement("adapters.one-result")
@pytest.mark.anyio
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
        with anyio.fail_after(LONG):
            result = await ToolspanNode(session).ainvoke([request, done])
    assert isinstance(result, list)
    ended = [("b", "success"), ("n", "error"), ("c", "error")]
    assert [(item.tool_call_id, item.status) for item in result] == ended
    assert "No such tool available: Nothing" in result[1].content
    assert not (tmp_path / "again").exists()


@requirement("adapters.faults")
@pytest.mark.anyio
@pytest.mark.parametrize("state", [{}, {"messages": []}, {"messages": [HumanMessage("x")]}, 7])
async def test_state_without_calls_is_an_error(tmp_path: Path, state: object) -> None:
    async with Session(permissions=Permissions.allow_all(), cwd=tmp_path, transcript=None) as session:
        node = ToolspanNode(session)
        assert "Bash" in str(node.schemas())
        with pytest.raises(ToolspanError):
            await node.ainvoke(state)
        with pytest.raises(ToolspanError, match="ainvoke"):
            node.invoke({"messages": []})
