"""Models that use the Messages API through the official SDK.

`base_url` selects another server with that API. The SDK's own retries are disabled, because
`retry.py` handles them. The SDK is an optional dependency and is imported when a model is created.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

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
    parse_call_input,
    sanitize_tool_name,
    unique_call_id,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import (
        MessageParam,
        MetadataParam,
        RawContentBlockDelta,
        RawMessageStreamEvent,
        TextBlockParam,
        ToolUnionParam,
    )


_CACHE_CONTROL = {"cache_control": {"type": "ephemeral"}}
_CACHEABLE_TYPES = ("text", "tool_result", "image", "document")
_CALL_TYPES = ("tool_use", "server_tool_use", "mcp_tool_use")


class AnthropicModel:
    """A model accessed through the Messages API."""

    def __init__(self, name: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """Create a model. By default, the SDK reads the address and key from the environment (`ANTHROPIC_…`).

        Raises:
            ImportError: the package `anthropic` is not installed.
        """
        import anthropic

        self.name = name
        self._sdk_error = anthropic.AnthropicError
        self._omit = anthropic.omit
        self._client: AsyncAnthropic = anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url, max_retries=0)

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply, translating the API's events."""
        system = [{"type": "text", "text": request.system, **_CACHE_CONTROL}] if request.system else []
        with translate_errors(self._sdk_error):
            events = await self._client.messages.create(
                model=request.model or self.name,
                max_tokens=request.max_tokens,
                messages=cast("list[MessageParam]", _mark_for_cache(request.messages)),
                system=cast("list[TextBlockParam]", system) or self._omit,
                tools=cast("list[ToolUnionParam]", list(request.tools)) or self._omit,
                metadata=cast("MetadataParam", dict(request.metadata)) or self._omit,
                stream=True,
            )
        used_ids = set(iter_call_ids(request.messages))
        reader = _AnthropicStreamReader(used_ids, events.response.headers.get("request-id"))
        async with events:
            while (event := await read_next_event(events, self._sdk_error)) is not None:
                for model_event in reader.read_event(event):
                    yield model_event
        if not reader.is_stopped:
            raise interrupted_stream_failure()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class _AnthropicStreamReader:
    """A reader that translates stream events and assembles blocks from them."""

    def __init__(self, used_ids: set[str], request_id: str | None) -> None:
        self.is_stopped = False
        self._used_ids = used_ids
        self._request_id = request_id
        self._block: Block = {}
        self._pieces: defaultdict[str, list[str]] = defaultdict(list)
        """The deltas received for each text field of the current block."""

    def read_event(self, event: RawMessageStreamEvent) -> Iterator[ModelEvent]:
        """Translate an API event."""
        match event.type:
            case "message_start":
                yield ReplyBegan(event.message.id, event.message.model, self._request_id)
                yield Usage(_dump_model(event.message.usage))
            case "content_block_start":
                self._block = block = _dump_model(event.content_block)
                self._pieces.clear()
                if block["type"] == "tool_use":
                    call_id = unique_call_id(str(block["id"]), self._used_ids)
                    self._used_ids.add(call_id)
                    block |= {"id": call_id, "name": sanitize_tool_name(str(block["name"]))}
                    yield CallBegan(call_id, str(block["name"]))
            case "content_block_delta":
                yield from self._add_delta(event.delta)
            case "content_block_stop":
                input_json = "".join(self._pieces.pop("input", ()))
                for field, texts in self._pieces.items():
                    self._block[field] = "".join((str(self._block.get(field, "")), *texts))
                has_input = isinstance(self._block.get("input"), dict)
                if self._block.get("type") in _CALL_TYPES and (input_json or not has_input):
                    self._block["input"] = parse_call_input(input_json)
                yield BlockDone(self._block)
            case "message_delta":
                yield Usage(_dump_model(event.usage))
                delta = _dump_model(event.delta)
                details = delta.get("stop_details")
                if event.delta.stop_reason is not None:
                    self.is_stopped = True
                    yield ReplyStopped(event.delta.stop_reason, details if isinstance(details, dict) else None)
            case "message_stop":
                return

    def _add_delta(self, delta: RawContentBlockDelta) -> Iterator[ModelEvent]:
        block = self._block
        match delta.type:
            case "text_delta":
                self._pieces["text"].append(delta.text)
                yield TextDelta(delta.text)
            case "thinking_delta":
                self._pieces["thinking"].append(delta.thinking)
                yield ThinkingDelta(delta.thinking)
            case "signature_delta":
                self._pieces["signature"].append(delta.signature)
            case "input_json_delta":
                self._pieces["input"].append(delta.partial_json)
                if block.get("type") == "tool_use":
                    yield InputDelta(str(block["id"]), delta.partial_json)
            case "citations_delta":
                citations = block.get("citations")
                if not isinstance(citations, list):
                    block["citations"] = citations = []
                citations.append(_dump_model(delta.citation))


def _dump_model(value: object) -> dict[str, object]:
    dump = getattr(value, "model_dump", None)
    dumped = dump(mode="json", exclude_none=True) if dump is not None else None
    return dumped if isinstance(dumped, dict) else {}


def _mark_for_cache(messages: Sequence[Message]) -> list[Message]:
    """Mark the last message so that the next request finds everything up to it in the cache."""
    marked = [dict(message) for message in messages]
    match marked[-1].get("content") if marked else None:
        case [*before, dict(last)] if last.get("type") in _CACHEABLE_TYPES:
            marked[-1]["content"] = [*before, {**last, **_CACHE_CONTROL}]
    return marked
