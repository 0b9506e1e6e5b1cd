"""A pydantic-ai toolset that runs its calls with toolspan.

    async with Session(cwd=".", tools=coding_tools()) as session:
        agent = Agent("anthropic:...", toolsets=[ToolspanToolset(session)])
        await agent.run("Why does the build fail?")

Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from pydantic_ai import BinaryContent, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import override

from toolspan.errors import ToolspanError
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import unparsed_input
from toolspan.runtime.tool import Input
from toolspan.session import Session
from toolspan.session.single_calls import SingleCallResult, SingleCallRunner

_ANY_INPUT = SchemaValidator(core_schema.any_schema())
"""A validator that accepts everything, because toolspan validates inputs itself."""


class ToolspanToolset(AbstractToolset[AgentDepsT]):
    """A pydantic-ai toolset that contains the tools of an entered session or runner."""

    def __init__(self, host: Session | Runner, *, id: str | None = "toolspan") -> None:
        """Use the tools of `host`. `id` distinguishes toolsets in durable runs."""
        self._call_runner = SingleCallRunner(host)
        self._id = id

    @property
    @override
    def id(self) -> str | None:
        """The id that distinguishes toolsets in durable runs."""
        return self._id

    @override
    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the current tools."""
        definitions = [
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.input_schema))
            for tool in self._call_runner.runner.runner_context.tools
            if tool.enabled
        ]
        return {
            definition.name: ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANY_INPUT)
            for definition in definitions
        }

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, object], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> object:
        """Run a call.

        Raises:
            ToolFailed: the call was refused or failed. The model sees the reason.
        """
        value: object = tool_args  # not validated by pydantic-ai
        arguments: Input = value if isinstance(value, Mapping) else unparsed_input(str(value))
        try:
            answer = await self._call_runner.run_call(name, arguments, call_id=ctx.tool_call_id)
        except ToolspanError:  # some models omit ids or repeat them
            answer = await self._call_runner.run_call(name, arguments)
        content = list(_return_content(answer))
        if answer.is_error:
            raise ToolFailed("\n".join(item for item in content if isinstance(item, str)))
        returned = content[0] if len(content) == 1 else content
        return ToolReturn(return_value=returned, metadata={"toolspan": answer.finished.span})


def _return_content(answer: SingleCallResult) -> Iterator[str | BinaryContent]:
    for block in answer.all_blocks():
        match block:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"source": {"media_type": str(kind), "data": str(data)}}:
                yield BinaryContent(data=base64.b64decode(data), media_type=kind)
            case _:
                yield f"[a block of type {block.get('type')}, which cannot be shown here]"
