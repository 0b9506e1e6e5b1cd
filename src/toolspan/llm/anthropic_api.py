"""Models behind the Messages API, through the official SDK.

In: a request. Out: the reply's events, as the API streams them. Any server that speaks the API will
do (`base_url`). Retries are not the SDK's business here, they are `patient.py`'s. The SDK is an
extra: it is imported when a model is made. Read `AnthropicModel.stream` first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from toolspan.llm.blocks import call_id, call_ids, parsed, tool_name
from toolspan.llm.faults import faults, next_event
from toolspan.llm.history import Block, Message
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

_CACHED = {"cache_control": {"type": "ephemeral"}}
_MARKED = ("text", "tool_result", "image", "document")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class AnthropicModel:
    """A model of the Messages API."""

    def __init__(
        self, name: str, *, base_url: str | None = None, api_key: str | None = None
    ) -> None:
        """Without address and key, the SDK takes those of the environment (`ANTHROPIC_…`).

        Raises:
            ImportError: the package `anthropic` is not installed.
        """
        import anthropic

        self.name = name
        self._error = anthropic.AnthropicError
        self._unset = anthropic.omit
        self._client: AsyncAnthropic = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, max_retries=0
        )

    async def stream(self, request: Request) -> Stream:
        """The reply as it comes.

        Raises:
            ModelFailed: there is none, or it broke off.
        """
        with faults(self._error):
            events = await self._client.messages.create(
                model=request.model or self.name,
                max_tokens=request.max_tokens,
                messages=cast("list[MessageParam]", _cached(request.messages)),
                system=cast("list[TextBlockParam]", _system(request.system)) or self._unset,
                tools=cast("list[ToolUnionParam]", list(request.tools)) or self._unset,
                metadata=cast("MetadataParam", dict(request.metadata)) or self._unset,
                stream=True,
            )
        taken = set(call_ids(request.messages))
        reader = _Reader(taken, events.response.headers.get("request-id"))
        async with events:
            while (event := await next_event(events, self._error)) is not None:
                for told in reader.read(event):
                    yield told
        if not reader.stopped:
            raise broken_off()

    async def close(self) -> None:
        """Let its connections go."""
        await self._client.close()


class _Reader:
    """Puts a stream's blocks together."""

    def __init__(self, taken: set[str], request_id: str | None) -> None:
        self.stopped = False
        self._taken = taken
        self._request_id = request_id
        self._block: Block = {}
        self._pieces: dict[str, list[str]] = {}
        """What came of each of the block's texts; joined when the block is complete."""

    def read(self, event: "RawMessageStreamEvent") -> Iterator[ModelEvent]:
        """What an event of the API means."""
        match event.type:
            case "message_start":
                yield Began(event.message.id, event.message.model, self._request_id)
                yield Usage(_plain(event.message.usage))
            case "content_block_start":
                yield from self._begin(_plain(event.content_block))
            case "content_block_delta":
                yield from self._add(event.delta)
            case "content_block_stop":
                yield self._done()
            case "message_delta":
                yield Usage(_plain(event.usage))
                told = _plain(event.delta)
                details = told.get("stop_details")
                if event.delta.stop_reason is not None:
                    self.stopped = True
                    yield Stopped(
                        event.delta.stop_reason,
                        details if isinstance(details, dict) else None,
                    )
            case "message_stop":
                return

    def _begin(self, block: Block) -> Iterator[ModelEvent]:
        self._block, self._pieces = block, {}
        if block["type"] == "tool_use":
            made = call_id(str(block["id"]), self._taken)
            self._taken.add(made)
            block |= {"id": made, "name": tool_name(str(block["name"]))}
            yield CallBegan(made, str(block["name"]))

    def _add(self, delta: "RawContentBlockDelta") -> Iterator[ModelEvent]:
        block = self._block
        match delta.type:
            case "text_delta":
                self._keep("text", delta.text)
                yield TextDelta(delta.text)
            case "thinking_delta":
                self._keep("thinking", delta.thinking)
                yield ThinkingDelta(delta.thinking)
            case "signature_delta":
                self._keep("signature", delta.signature)
            case "input_json_delta":
                self._keep("input", delta.partial_json)
                if block.get("type") == "tool_use":
                    yield InputDelta(str(block["id"]), delta.partial_json)
            case "citations_delta":
                told = block.get("citations")
                if not isinstance(told, list):
                    block["citations"] = told = []
                told.append(_plain(delta.citation))

    def _keep(self, field: str, piece: str) -> None:
        self._pieces.setdefault(field, []).append(piece)

    def _done(self) -> ModelEvent:
        block, pieces = self._block, self._pieces
        given = "".join(pieces.pop("input", ()))
        for field, told in pieces.items():
            block[field] = "".join((str(block.get(field, "")), *told))
        if block.get("type") in _CALLS and (given or not isinstance(block.get("input"), dict)):
            block["input"] = parsed(given)
        return BlockDone(block)


def _plain(value: object) -> dict[str, object]:
    dump = getattr(value, "model_dump", None)
    found = dump(mode="json", exclude_none=True) if dump is not None else None
    return found if isinstance(found, dict) else {}


def _system(text: str) -> list[Mapping[str, object]]:
    return [{"type": "text", "text": text, **_CACHED}] if text else []


def _cached(messages: Sequence[Message]) -> list[Message]:
    """The messages, the last one marked: the next request finds all before it in the cache."""
    marked = [dict(message) for message in messages]
    content = marked[-1].get("content") if marked else None
    match content:
        case [*before, dict(last)] if last.get("type") in _MARKED:
            marked[-1]["content"] = [*before, {**last, **_CACHED}]
        case _:
            pass
    return marked
