"""Models behind the chat completions API, through the official SDK.

In: a request in the words of the Messages API. Out: the reply's events in the same words;
`openai_words.py` translates. Nearly every local server speaks this API (`base_url`), most of them
with an accent: ids that are missing or repeated and calls that all have the index 0 are understood.
The SDK is an extra: it is imported when a model is made. Read `OpenAIModel.stream` first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import msgspec

from toolspan.llm.blocks import call_block, call_id, call_ids, tool_name
from toolspan.llm.faults import faults, next_event
from toolspan.llm.history import Block
from toolspan.llm.model import (
    Began,
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    Request,
    Stopped,
    Stream,
    TextDelta,
    ThinkingDelta,
    Usage,
    broken_off,
)
from toolspan.llm.openai_words import chat_messages, chat_tools, tokens_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import (
        ChatCompletionChunk,
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
    )
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAIModel:
    """A model of the chat completions API."""

    def __init__(
        self, name: str, *, base_url: str | None = None, api_key: str | None = None
    ) -> None:
        """Without address and key, `OPENAI_BASE_URL` and `OPENAI_API_KEY` count.

        Raises:
            ImportError: the package `openai` is not installed.
        """
        import openai

        self.name = name
        self._error = openai.OpenAIError
        self._unset = openai.omit
        self._client: AsyncOpenAI = openai.AsyncOpenAI(
            api_key=api_key, base_url=base_url, max_retries=0
        )
        # OpenAI's own models refuse the old word, local servers do not all know the new one.
        self._is_own = "api.openai.com" in str(self._client.base_url)

    async def stream(self, request: Request) -> Stream:
        """The reply as it comes.

        Raises:
            ModelFailed: there is none, or it broke off.
        """
        most, unset = request.max_tokens, self._unset
        tools = cast("list[ChatCompletionFunctionToolParam]", chat_tools(request.tools))
        with faults(self._error):
            chunks = await self._client.chat.completions.create(
                model=request.model or self.name,
                messages=cast("list[ChatCompletionMessageParam]", chat_messages(request)),
                tools=tools or unset,
                max_completion_tokens=most if self._is_own else unset,
                max_tokens=unset if self._is_own else most,
                stream_options={"include_usage": True},
                stream=True,
            )
        reader = _Reader(set(call_ids(request.messages)), chunks.response.headers)
        async with chunks:
            while (chunk := await next_event(chunks, self._error)) is not None:
                for told in reader.read(chunk):
                    yield told
        if reader.reason is None:
            raise broken_off()
        for told in reader.end():
            yield told

    async def close(self) -> None:
        """Let its connections go."""
        await self._client.close()


@dataclass(slots=True)
class _Call:
    """A call that still comes in."""

    index: int
    id: str
    sent_id: str
    """As the server named it."""
    name: str
    pieces: list[str] = field(default_factory=list)


class _Reader:
    """Puts a stream's blocks together."""

    def __init__(self, taken: set[str], headers: object) -> None:
        self.reason: str | None = None
        get = getattr(headers, "get", None)
        self._request_id = str(get("x-request-id") or "") if get else ""
        self._taken = taken
        self._begun = False
        self._text: list[str] = []
        self._call: _Call | None = None
        self._refused = False
        self._asked = False

    def read(self, chunk: "ChatCompletionChunk") -> Iterator[ModelEvent]:
        """What a chunk of the API means."""
        if not self._begun:
            self._begun = True
            message_id = call_id(chunk.id or None, ())
            yield Began(message_id, chunk.model or "unknown", self._request_id or None)
        if chunk.usage is not None:
            yield Usage(tokens_of(chunk.usage.model_dump(mode="json", exclude_none=True)))
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is not None:
                yield from self._delta(choice.delta)
            if choice.finish_reason is not None:
                self.reason = choice.finish_reason

    def end(self) -> Iterator[ModelEvent]:
        """What the end of the stream means."""
        yield from self._close()
        reason = _REASONS.get(self.reason or "", "end_turn")
        if self._refused:
            reason = "refusal"
        elif reason == "end_turn" and self._asked:  # some servers say `stop` after calls, too
            reason = "tool_use"
        yield Stopped(reason)

    def _delta(self, delta: "ChoiceDelta") -> Iterator[ModelEvent]:
        thought = (delta.model_extra or {}).get("reasoning_content")
        if isinstance(thought, str) and thought:
            yield ThinkingDelta(thought)
        self._refused = self._refused or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                yield from self._close_call()
                self._text.append(text)
                yield TextDelta(text)
        for part in delta.tool_calls or ():
            yield from self._part(part)

    def _part(self, part: "ChoiceDeltaToolCall") -> Iterator[ModelEvent]:
        call = self._call
        other = call is not None and bool(part.id) and part.id != call.sent_id
        if call is None or part.index != call.index or other:
            yield from self._close()
            name = tool_name(part.function.name if part.function else None)
            made = call_id(part.id, self._taken)
            self._taken.add(made)
            self._call = call = _Call(part.index, made, part.id or "", name)
            yield CallBegan(call.id, call.name)
        piece = _piece(part.function.arguments if part.function else None)
        if piece:
            call.pieces.append(piece)
            yield InputDelta(call.id, piece)

    def _close(self) -> Iterator[ModelEvent]:
        """End the block that is open."""
        text, self._text = "".join(self._text), []
        if text:
            block: Block = {"type": "text", "text": text}
            yield BlockDone(block)
        yield from self._close_call()

    def _close_call(self) -> Iterator[ModelEvent]:
        call, self._call = self._call, None
        if call is not None:
            self._asked = True
            yield BlockDone(call_block(call.id, call.name, "".join(call.pieces)))


def _piece(arguments: object) -> str:
    """A piece of a call's arguments; some servers send them as the object that they are."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()
