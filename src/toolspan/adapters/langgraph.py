"""A node for LangGraph in the place of its `ToolNode`: toolspan runs the calls.

    async with Session(cwd=".", tools=coding_tools()) as session:
        tools = ToolspanNode(session)
        model = ChatAnthropic(...).bind_tools(tools.schemas())
        graph.add_node("tools", tools)

In: a state with messages, or calls that were sent. Out: one `ToolMessage` for each call of the last
message, in the order they were asked for, also for calls whose input is no JSON; one that failed or
was refused has the status `error`. Only for graphs that are run with `ainvoke` or `astream`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import anyio
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from typing_extensions import override

from toolspan.errors import ToolspanError
from toolspan.run.runner import Runner
from toolspan.run.tool import Input
from toolspan.schema.explain import unparsed
from toolspan.session import Session
from toolspan.session.lane import Answer, Lane

Found = dict[str, list[ToolMessage]] | list[ToolMessage]


@dataclass(frozen=True, slots=True)
class _Call:
    id: str
    tool: str
    given: Input


class ToolspanNode(Runnable[object, Found]):
    """Runs the calls of a graph in a session, or in a runner, that is entered."""

    def __init__(self, host: Session | Runner, *, messages_key: str = "messages") -> None:
        """Take whose tools they are, and where in a state the messages stand."""
        self._lane = Lane(host)
        self._key = messages_key

    def schemas(self) -> list[dict[str, object]]:
        """The tools as `bind_tools` takes them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.input_schema),
                },
            }
            for tool in self._lane.runner.desk.tools
            if tool.enabled
        ]

    @override
    def invoke(
        self, input: object, config: RunnableConfig | None = None, **kwargs: object
    ) -> Found:
        """Nothing: tools are run by an event loop.

        Raises:
            ToolspanError: always.
        """
        raise ToolspanError("toolspan runs tools in an event loop: use `ainvoke` or `astream`")

    @override
    async def ainvoke(
        self, input: object, config: RunnableConfig | None = None, **kwargs: object
    ) -> Found:
        """The results of the calls that have none yet.

        Raises:
            ToolspanError: there is nothing like messages in the state.
        """
        calls = list(self._calls(input))
        found: list[ToolMessage | None] = [None] * len(calls)

        async def run(place: int, call: _Call) -> None:
            found[place] = _message(call, await self._answer(call))

        async with anyio.create_task_group() as group:
            for place, call in enumerate(calls):
                group.start_soon(run, place, call)
        messages = [one for one in found if one is not None]
        return messages if isinstance(input, list) else {self._key: messages}

    async def _answer(self, call: _Call) -> Answer:
        try:
            return await self._lane.call(call.tool, call.given, call_id=call.id or None)
        except ToolspanError:  # some models give no ids of their own, or the same ones again
            return await self._lane.call(call.tool, call.given)

    def _calls(self, state: object) -> Iterator[_Call]:
        """The calls to run: those that were sent, or those of the last message."""
        messages = self._messages(state)
        if messages and all(isinstance(one, Mapping) for one in messages):
            yield from (_read(one) for one in messages if isinstance(one, Mapping))
            return
        asked, after = _last(messages)
        done = {one.tool_call_id for one in after if isinstance(one, ToolMessage)}
        for one in (*asked.tool_calls, *asked.invalid_tool_calls):
            if one.get("id") is None or one["id"] not in done:
                yield _read(one)

    def _messages(self, state: object) -> Sequence[object]:
        match state:
            case list():
                return state
            case {"type": "tool_call"}:
                return [state]
            case {"tool_call": Mapping() as call}:  # as `Send` passes one on
                return [call]
            case Mapping():
                found = state.get(self._key)
            case _:
                found = getattr(state, self._key, None)
        if not isinstance(found, list):
            raise ToolspanError(f"the state has no list of messages under {self._key!r}")
        return found


def _last(messages: Sequence[object]) -> tuple[AIMessage, Sequence[object]]:
    """The last message of a model, and what stands after it."""
    for n in range(len(messages) - 1, -1, -1):
        one = messages[n]
        if isinstance(one, AIMessage):
            return one, messages[n + 1 :]
    raise ToolspanError("no message of a model in the state: nothing to run")


def _read(call: Mapping[str, object]) -> _Call:
    given = call.get("args")
    read: Input = given if isinstance(given, Mapping) else unparsed(str(given))
    return _Call(str(call.get("id") or ""), str(call.get("name") or ""), read)


def _message(call: _Call, answer: Answer) -> ToolMessage:
    blocks = answer.blocks()
    texts = [str(one["text"]) for one in blocks if one.get("type") == "text"]
    content: str | list[str | dict[object, object]] = (
        texts[0] if len(texts) == len(blocks) == 1 else [_block(one) for one in blocks]
    )
    return ToolMessage(
        content=content,
        name=call.tool,
        tool_call_id=call.id or answer.finished.call_id,
        status="error" if answer.is_error else "success",
        artifact=answer.finished.structured,
    )


def _block(block: Mapping[str, object]) -> dict[object, object]:
    """A block as langchain's messages have it."""
    match block:
        case {"type": "image" | "document" as kind, "source": {"media_type": mime, "data": data}}:
            shown = "image" if kind == "image" else "file"
            return {"type": shown, "base64": data, "mime_type": mime}
        case _:
            return dict[object, object](block.items())
