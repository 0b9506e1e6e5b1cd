"""A toolset for pydantic-ai whose calls toolspan runs.

    async with Session(cwd=".", tools=coding_tools()) as session:
        agent = Agent("anthropic:...", toolsets=[ToolspanToolset(session)])
        await agent.run("Why does the build fail?")

In: the calls of an agent's run, as many at once as it likes. Out: one result each, which the model
reads: an error or a refusal is a failed result and breaks nothing off. Needs pydantic-ai 2.
"""

import base64
from collections.abc import Iterator, Mapping

from pydantic_ai import BinaryContent, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import override

from toolspan.errors import ToolspanError
from toolspan.run.runner import Runner
from toolspan.run.tool import Input, Tool
from toolspan.schema.explain import unparsed
from toolspan.session import Session
from toolspan.session.lane import Answer, Lane

_ANYTHING = SchemaValidator(core_schema.any_schema())
"""Inputs are held against their schema by toolspan, which has words for what is wrong."""


class ToolspanToolset(AbstractToolset[AgentDepsT]):
    """The tools of a session, or of a runner, that is entered."""

    def __init__(self, host: Session | Runner, *, id: str | None = "toolspan") -> None:
        """Take whose tools they are; `id` tells toolsets apart where runs are kept."""
        self._lane = Lane(host)
        self._id = id

    @property
    @override
    def id(self) -> str | None:
        """Its name among toolsets."""
        return self._id

    @override
    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools there are now."""
        tools = (one for one in self._lane.runner.desk.tools if one.enabled)
        return {one.name: self._offered(one) for one in tools}

    def _offered(self, tool: Tool) -> ToolsetTool[AgentDepsT]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.input_schema),
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING
        )

    @override
    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, object],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> object:
        """Run a call.

        Raises:
            ToolFailed: it was refused or failed; the model reads why.
        """
        answer = await self._answer(name, tool_args, ctx.tool_call_id)
        content = list(_content(answer))
        if answer.is_error:
            raise ToolFailed("\n".join(one for one in content if isinstance(one, str)))
        value = content[0] if len(content) == 1 else content
        return ToolReturn(return_value=value, metadata={"toolspan": answer.finished.span})

    async def _answer(self, name: str, given: object, call_id: str | None) -> Answer:
        read: Input = given if isinstance(given, Mapping) else unparsed(str(given))
        try:
            return await self._lane.call(name, read, call_id=call_id)
        except ToolspanError:  # some models give no ids of their own, or the same ones again
            return await self._lane.call(name, read)


def _content(answer: Answer) -> Iterator[str | BinaryContent]:
    for block in answer.blocks():
        match block:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"source": {"media_type": str(kind), "data": str(data)}}:
                yield BinaryContent(data=base64.b64decode(data), media_type=kind)
            case _:
                yield f"[a block of type {block.get('type')}, which cannot be shown here]"
