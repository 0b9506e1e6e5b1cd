"""Models that use the chat completions API through the official SDK.

Requests and events are translated to and from the Messages API. Nearly every local server offers
this API (`base_url`), with deviations that are tolerated: missing or repeated call ids, and the
index 0 for all calls. The SDK is an optional dependency and is imported when a model is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import msgspec

from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    ModelRequest,
    ModelStream,
    ReplyBegan,
    ReplyStopped,
    TextDelta,
    ThinkingDelta,
    Usage,
    interrupted_stream_failure,
    read_next_event,
    translate_errors,
)
from toolspan.session.models.history import (
    Block,
    Message,
    iter_call_ids,
    message_blocks,
    parse_call_input,
    sanitize_tool_name,
    text_with_placeholders,
    unique_call_id,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionChunk, ChatCompletionFunctionToolParam, ChatCompletionMessageParam
    from openai.types.chat.chat_completion_chunk import ChoiceDelta


ChatMessage = dict[str, object]


def to_chat_messages(request: ModelRequest) -> list[ChatMessage]:
    """Translate the messages in a request, with the system prompt first."""
    messages: list[ChatMessage] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += _assistant_messages(message) if message["role"] == "assistant" else _user_messages(message)
    return messages


def _assistant_messages(message: Message) -> list[ChatMessage]:
    blocks = message_blocks(message)
    text = "".join(str(block["text"]) for block in blocks if block.get("type") == "text")
    calls: list[ChatMessage] = []
    for block in blocks:
        if block.get("type") == "tool_use":
            arguments = msgspec.json.encode(block.get("input")).decode()
            function = {"name": block["name"], "arguments": arguments}
            calls.append({"id": block["id"], "type": "function", "function": function})
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _user_messages(message: Message) -> Iterator[ChatMessage]:
    """Yield one message for each result, followed by one for everything else."""
    parts: list[ChatMessage] = []
    for block in message_blocks(message):
        match block:
            case {"type": "tool_result", "tool_use_id": call_id}:
                prefix = "Error: " if block.get("is_error") is True else ""
                content = prefix + text_with_placeholders(block.get("content"))
                yield {"role": "tool", "tool_call_id": call_id, "content": content}
            case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
                parts.append({"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}})
            case {"type": "image", "source": {"type": "url", "url": url}}:
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case _:
                parts.append({"type": "text", "text": text_with_placeholders([dict(block)])})
    if parts and all(part["type"] == "text" for part in parts):
        yield {"role": "user", "content": "\n\n".join(str(part["text"]) for part in parts)}
    elif parts:
        yield {"role": "user", "content": parts}


def to_chat_tools(tools: Sequence[Mapping[str, object]]) -> list[ChatMessage]:
    """Translate tools to functions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool.get("input_schema", {"type": "object"}),
            },
        }
        for tool in tools
    ]


def normalize_token_counts(usage: Mapping[str, object]) -> dict[str, object]:
    """Translate token counts, counting tokens read from a cache separately."""
    details = usage.get("prompt_tokens_details")
    cached = _int_or_zero(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
    return {
        "input_tokens": max(0, _int_or_zero(usage.get("prompt_tokens")) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _int_or_zero(usage.get("completion_tokens")),
    }


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0


_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAIModel:
    """A model accessed through the chat completions API."""

    def __init__(self, name: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """Create a model. By default, the SDK reads the address and key from the environment (`OPENAI_…`).

        Raises:
            ImportError: the package `openai` is not installed.
        """
        import openai

        self.name = name
        self._sdk_error = openai.OpenAIError
        self._omit = openai.omit
        self._client: AsyncOpenAI = openai.AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0)
        # OpenAI rejects the old name of the token limit; some local servers do not support the new one.
        self._is_openai_server = "api.openai.com" in str(self._client.base_url)

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply, translating the API's chunks."""
        max_tokens, unset = request.max_tokens, self._omit
        tools = cast("list[ChatCompletionFunctionToolParam]", to_chat_tools(request.tools))
        with translate_errors(self._sdk_error):
            chunks = await self._client.chat.completions.create(
                model=request.model or self.name,
                messages=cast("list[ChatCompletionMessageParam]", to_chat_messages(request)),
                tools=tools or unset,
                max_completion_tokens=max_tokens if self._is_openai_server else unset,
                max_tokens=unset if self._is_openai_server else max_tokens,
                stream_options={"include_usage": True},
                stream=True,
            )
        reader = _OpenAIStreamReader(set(iter_call_ids(request.messages)), chunks.response.headers)
        async with chunks:
            while (chunk := await read_next_event(chunks, self._sdk_error)) is not None:
                for event in reader.read_chunk(chunk):
                    yield event
        if reader.finish_reason is None:
            raise interrupted_stream_failure()
        for event in reader.finish_stream():
            yield event

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


@dataclass(slots=True)
class _StreamedCall:
    """A call that is still being streamed."""

    index: int
    id: str
    sent_id: str
    """The id that the server sent, before it was made unique."""
    name: str
    pieces: list[str] = field(default_factory=list)


class _OpenAIStreamReader:
    """A reader that translates stream chunks and assembles blocks from them."""

    def __init__(self, used_ids: set[str], headers: object) -> None:
        self.finish_reason: str | None = None
        get = getattr(headers, "get", None)
        self._request_id = str(get("x-request-id") or "") if get else ""
        self._used_ids = used_ids
        self._has_begun = False
        self._text: list[str] = []
        self._call: _StreamedCall | None = None
        self._is_refusal = False
        self._has_calls = False

    def read_chunk(self, chunk: ChatCompletionChunk) -> Iterator[ModelEvent]:
        """Translate an API chunk."""
        if not self._has_begun:
            self._has_begun = True
            message_id = unique_call_id(chunk.id or None, ())
            yield ReplyBegan(message_id, chunk.model or "unknown", self._request_id or None)
        if chunk.usage is not None:
            yield Usage(normalize_token_counts(chunk.usage.model_dump(mode="json", exclude_none=True)))
        for choice in (chunk.choices or ())[:1]:
            if choice.delta is not None:
                yield from self._read_delta(choice.delta)
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason

    def finish_stream(self) -> Iterator[ModelEvent]:
        """Yield the events that end the stream."""
        yield from self._close_block()
        reason = _STOP_REASONS.get(self.finish_reason or "", "end_turn")
        if self._is_refusal:
            reason = "refusal"
        elif reason == "end_turn" and self._has_calls:  # some servers send `stop` even after calls
            reason = "tool_use"
        yield ReplyStopped(reason)

    def _read_delta(self, delta: ChoiceDelta) -> Iterator[ModelEvent]:
        thought = (delta.model_extra or {}).get("reasoning_content")
        if isinstance(thought, str) and thought:
            yield ThinkingDelta(thought)
        self._is_refusal = self._is_refusal or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                yield from self._close_call()
                self._text.append(text)
                yield TextDelta(text)
        for part in delta.tool_calls or ():
            function, call = part.function, self._call
            is_other_call = call is not None and bool(part.id) and part.id != call.sent_id
            if call is None or part.index != call.index or is_other_call:
                yield from self._close_block()
                new_id = unique_call_id(part.id, self._used_ids)
                self._used_ids.add(new_id)
                name = sanitize_tool_name(function.name if function else None)
                self._call = call = _StreamedCall(part.index, new_id, part.id or "", name)
                yield CallBegan(call.id, call.name)
            piece: object = (function.arguments if function else None) or ""
            if not isinstance(piece, str):  # some servers send an object
                piece = msgspec.json.encode(piece).decode()
            if piece:
                call.pieces.append(piece)
                yield InputDelta(call.id, piece)

    def _close_block(self) -> Iterator[ModelEvent]:
        """Complete the current block."""
        text, self._text = "".join(self._text), []
        if text:
            block: Block = {"type": "text", "text": text}
            yield BlockDone(block)
        yield from self._close_call()

    def _close_call(self) -> Iterator[ModelEvent]:
        call, self._call = self._call, None
        if call is not None:
            self._has_calls = True
            arguments = parse_call_input("".join(call.pieces))
            yield BlockDone({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
