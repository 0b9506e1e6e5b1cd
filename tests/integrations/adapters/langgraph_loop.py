"""A LangGraph graph with the toolspan tool node and a scripted model."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from tests.integrations.adapters.loop import CallReport, CallRequest, Picture
from toolspan import Runner, Session
from toolspan.integrations.langgraph import ToolspanNode

_FAILED = {"success": False, "error": True}


def block(asked: CallRequest) -> dict[str, object]:
    return {"name": asked.tool, "args": asked.given, "id": asked.id, "type": "tool_call"}


def report(message: ToolMessage) -> CallReport:
    content = message.content
    if isinstance(content, str):
        return CallReport(message.tool_call_id, _FAILED[message.status], content)
    (displayed,) = content
    assert isinstance(displayed, dict)
    assert displayed["type"] == "image"
    picture = Picture(displayed["mime_type"], base64.b64decode(displayed["base64"]))
    return CallReport(message.tool_call_id, _FAILED[message.status], picture)


async def results(host: Session | Runner, /, *turns: Sequence[CallRequest]) -> list[CallReport]:
    left = list(turns)

    async def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        assert state["messages"]
        calls = [block(item) for item in left.pop(0)] if left else []
        return {"messages": [AIMessage(content="" if calls else "done", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolspanNode(host))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    state = await graph.compile().ainvoke({"messages": [HumanMessage("go")]})
    assert state["messages"][-1].content == "done"
    return [report(item) for item in state["messages"] if isinstance(item, ToolMessage)]
