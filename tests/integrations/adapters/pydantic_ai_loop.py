"""A pydantic-ai agent with toolspan tools and a scripted model."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.integrations.adapters.loop import LONG, Asked, Picture, Told
from toolspan import Runner, Session
from toolspan.integrations.pydantic_ai import ToolspanToolset

_FAILED = {"success": False, "failed": True}


def script(*turns: Sequence[Asked]) -> FunctionModel:
    left = list(turns)

    def say(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(one.tool, one.given, one.id) for one in left.pop(0)])

    return FunctionModel(say)


def told(part: ToolReturnPart) -> Told:
    content = part.content
    if isinstance(content, BinaryContent):
        shown: str | Picture = Picture(content.media_type, content.data)
    else:
        assert isinstance(content, str)
        shown = content
    return Told(part.tool_call_id, _FAILED[part.outcome], shown)


async def results(host: Session | Runner, /, *turns: Sequence[Asked]) -> list[Told]:
    agent = Agent(script(*turns), toolsets=[ToolspanToolset(host)])
    with anyio.fail_after(LONG):
        ran = await agent.run("go")
    assert ran.output == "done"
    parts = [part for message in ran.all_messages() for part in message.parts]
    return [told(part) for part in parts if isinstance(part, ToolReturnPart)]
