"""A pydantic-ai agent with toolspan tools and a scripted model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.integrations.adapters.loop import CallReport, CallRequest, Picture
from toolspan import Runner, Session
from toolspan.integrations.pydantic_ai import ToolspanToolset

_FAILED = {"success": False, "failed": True}


def script(*turns: Sequence[CallRequest]) -> FunctionModel:
    left = list(turns)

    def say(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(item.tool, item.given, item.id) for item in left.pop(0)])

    return FunctionModel(say)


def report(part: ToolReturnPart) -> CallReport:
    content = part.content
    if isinstance(content, BinaryContent):
        displayed: str | Picture = Picture(content.media_type, content.data)
    else:
        assert isinstance(content, str)
        displayed = content
    return CallReport(part.tool_call_id, _FAILED[part.outcome], displayed)


async def results(host: Session | Runner, /, *turns: Sequence[CallRequest]) -> list[CallReport]:
    agent = Agent(script(*turns), toolsets=[ToolspanToolset(host)])
    ran = await agent.run("go")
    assert ran.output == "done"
    parts = [part for message in ran.all_messages() for part in message.parts]
    return [report(part) for part in parts if isinstance(part, ToolReturnPart)]
