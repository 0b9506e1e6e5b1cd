"""A LangGraph node that replaces `ToolNode`: toolspan runs the calls.

    async with Session(cwd=".", tools=coding_tools()) as session:
        tools = ToolspanNode(session)
        model = ChatAnthropic(...).bind_tools(tools.schemas())
        graph.add_node("tools", tools)

Needs the extra `langgraph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import anyio
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from typing_extensions import override

from toolspan.errors import ToolspanError
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import unparsed_input
from toolspan.runtime.tool import Input
from toolspan.session import Session
from toolspan.session.single_calls import SingleCallRunner

NodeOutput = dict[str, list[ToolMessage]] | list[ToolMessage]


@dataclass(frozen=True, slots=True)
class _GraphCall:
    id: str
    tool: str
    arguments: Input


class ToolspanNode(Runnable[object, NodeOutput]):
    """A LangGraph node that runs a graph's tool calls in an entered session or runner."""

    def __init__(self, host: Session | Runner, *, messages_key: str = "messages") -> None:
        """Use the tools of `host`. `messages_key` is the state key that holds the messages."""
        self._call_runner = SingleCallRunner(host)
        self._messages_key = messages_key

    def schemas(self) -> list[dict[str, object]]:
        """Return the tool schemas in the format that `bind_tools` accepts."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
            }
            for tool in self._call_runner.runner.runner_context.tools
            if tool.enabled
        ]

    @override
    def invoke(self, input: object, config: RunnableConfig | None = None, **kwargs: object) -> NodeOutput:
        """Raise an error, because tools need an event loop. Use `ainvoke` instead.

        Raises:
            ToolspanError: always.
        """
        raise ToolspanError("toolspan runs tools in an event loop: use `ainvoke` or `astream`")

    @override
    async def ainvoke(self, input: object, config: RunnableConfig | None = None, **kwargs: object) -> NodeOutput:
        """Run the calls that have no result yet and return their results.

        Raises:
            ToolspanError: the state contains no messages.
        """
        calls = list(self._open_calls(input))
        results: list[ToolMessage | None] = [None] * len(calls)

        async def run(place: int, call: _GraphCall) -> None:
            try:
                answer = await self._call_runner.run_call(call.tool, call.arguments, call_id=call.id or None)
            except ToolspanError:  # some models omit ids or repeat them
                answer = await self._call_runner.run_call(call.tool, call.arguments)
            blocks = answer.all_blocks()
            texts = [str(block["text"]) for block in blocks if block.get("type") == "text"]
            single_text = len(texts) == len(blocks) == 1
            results[place] = ToolMessage(
                content=texts[0] if single_text else [_langchain_block(block) for block in blocks],
                name=call.tool,
                tool_call_id=call.id or answer.finished.call_id,
                status="error" if answer.is_error else "success",
                artifact=answer.finished.structured,
            )

        async with anyio.create_task_group() as group:
            for place, call in enumerate(calls):
                group.start_soon(run, place, call)
        messages = [message for message in results if message is not None]
        return messages if isinstance(input, list) else {self._messages_key: messages}

    def _open_calls(self, state: object) -> Iterator[_GraphCall]:
        """Yield the calls to run: those passed by `Send`, or those in the last message."""
        messages = self._state_messages(state)
        if messages and all(isinstance(item, Mapping) for item in messages):
            yield from (_parse_call(item) for item in messages if isinstance(item, Mapping))
            return
        done: set[str] = set()
        for message in reversed(messages):
            if isinstance(message, ToolMessage):
                done.add(message.tool_call_id)
            if isinstance(message, AIMessage):
                calls = (*message.tool_calls, *message.invalid_tool_calls)
                yield from (_parse_call(item) for item in calls if item.get("id") is None or item["id"] not in done)
                return
        raise ToolspanError("the state contains no message of a model, so there is nothing to run")

    def _state_messages(self, state: object) -> Sequence[object]:
        match state:
            case list():
                return state
            case {"type": "tool_call"}:
                return [state]
            case {"tool_call": Mapping() as call}:  # the format that `Send` passes
                return [call]
            case Mapping():
                messages = state.get(self._messages_key)
            case _:
                messages = getattr(state, self._messages_key, None)
        if not isinstance(messages, list):
            raise ToolspanError(f"the state contains no list of messages under {self._messages_key!r}")
        return messages


def _parse_call(call: Mapping[str, object]) -> _GraphCall:
    value = call.get("args")
    arguments: Input = value if isinstance(value, Mapping) else unparsed_input(str(value))
    return _GraphCall(str(call.get("id") or ""), str(call.get("name") or ""), arguments)


def _langchain_block(block: Mapping[str, object]) -> dict[object, object]:
    match block:
        case {"type": "image" | "document" as kind, "source": {"media_type": mime, "data": data}}:
            block_type = "image" if kind == "image" else "file"
            return {"type": block_type, "base64": data, "mime_type": mime}
        case _:
            return dict[object, object](block.items())
