"""A complete or streamed reply from the model, and the batch of its calls.

`normalize_reply` and `accept_reply` handle a complete message, as an SDK object or plain JSON.
`StreamedReply` starts the calls of a streamed reply while it arrives.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import anyio
import msgspec

from toolspan.errors import BadCall
from toolspan.runtime.batch import Batch
from toolspan.runtime.pending_call import PendingCall, parse_tool_use
from toolspan.runtime.runner import Runner, check_message_shape
from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    ModelEvent,
    ModelFailed,
    ReplyBegan,
    ReplyStopped,
    Retrying,
    TextDelta,
    ThinkingDelta,
    Usage,
    interrupted_stream_failure,
)
from toolspan.session.models.history import TOOL_NAME, Block, sanitize_tool_name, valid_call_id
from toolspan.types.ids import CallId

if TYPE_CHECKING:
    from toolspan.session.conversation import Conversation

_JSON_TYPES = frozenset({str, dict, list, bool, int, float})


class SdkMessage(Protocol):
    """An SDK message, which is a pydantic model."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        """Return the message as plain values."""
        ...


Reply = Mapping[str, object] | SdkMessage
"""An assistant message in Messages API format."""


class ReadyBlocks(NamedTuple):
    """Blocks of a streamed reply that can now be recorded and started."""

    blocks: list[Block]
    is_end: bool = False
    """True if the reply ends with these blocks."""


class PartialReply:
    """The part of a streamed reply that has been received so far."""

    def __init__(self, *, starts_early: bool) -> None:
        """Create an empty reply. With `starts_early`, calls may start while the message is streaming."""
        self.head: dict[str, object] = {"id": _new_message_id(), "role": "assistant", "stop_reason": None}
        """The message without its content."""
        self.request_id: str | None = None
        self.blocks: list[Block] = []
        """The accepted blocks, which have been recorded and, if they are calls, started."""
        self._starts_early = starts_early
        self._pending: list[Block] = []
        self._partial_text: list[str] = []

    @property
    def has_calls(self) -> bool:
        """True if a call was accepted."""
        return any(block["type"] == "tool_use" for block in self.blocks)

    def add_event(self, event: ModelEvent) -> ReadyBlocks | None:
        """Add a stream event and return the blocks that can be started now."""
        match event:
            case ReplyBegan():
                self.head = {"id": event.message_id or _new_message_id(), "role": "assistant", "stop_reason": None}
                self.head["model"] = event.model
                self.request_id = event.request_id
            case BlockDone():
                self._partial_text = []
                if is_sendable(event.block):
                    self._pending.append(normalize_call(dict(event.block)))
            case Usage():
                previous = self.head.get("usage")
                usage = previous if isinstance(previous, Mapping) else {}
                self.head["usage"] = {**usage, **event.tokens}
            case ReplyStopped():
                self.head["stop_reason"] = event.reason
                if event.details is not None:
                    self.head["stop_details"] = event.details
                return self._release_blocks(self._pending, is_end=True)
            case Retrying():
                self._pending, self._partial_text = [], []
            case TextDelta() | ThinkingDelta() | CallBegan() | InputDelta():
                if isinstance(event, TextDelta):
                    self._partial_text.append(event.text)
                # Complete calls may start early, when another block begins.
                if self._starts_early and any(block["type"] == "tool_use" for block in self._pending):
                    return self._release_blocks(self._pending)
        return None

    def break_off(self) -> ReadyBlocks:
        """Return the blocks of a failed stream up to its last complete call, dropping the rest."""
        calls = [n for n, block in enumerate(self._pending, 1) if block["type"] == "tool_use"]
        return self._release_blocks(self._pending[: calls[-1]] if calls else [])

    def interrupt(self) -> ReadyBlocks:
        """Return the text blocks of an interrupted stream, dropping calls that have not started."""
        texts = [block for block in self._pending if block["type"] == "text"]
        if "".join(self._partial_text).strip():
            texts.append({"type": "text", "text": "".join(self._partial_text)})
        return self._release_blocks(texts)

    def _release_blocks(self, blocks: list[Block], *, is_end: bool = False) -> ReadyBlocks:
        self._pending, self._partial_text = [], []
        return ReadyBlocks(blocks, is_end)


def is_blank(block: Block) -> bool:
    """Return whether a block is an empty text block, which the API does not accept."""
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def is_sendable(block: Block) -> bool:
    """Return whether the API accepts a block in a reply. Models have sent empty texts and results of their own."""
    return block["type"] != "tool_result" and not is_blank(block)


def normalize_call(block: Block) -> Block:
    """Give a call an id and a name that the API accepts, if it has others. Other blocks are unchanged."""
    if block["type"] == "tool_use":
        call_id, name = block.get("id"), block.get("name")
        if isinstance(call_id, str) and call_id:
            block["id"] = valid_call_id(call_id)
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            block["name"] = sanitize_tool_name(name if isinstance(name, str) else None)
    return block


def sendable_blocks(blocks: list[Block]) -> list[Block]:
    """Drop thinking blocks that the API would not accept: unsigned ones and those at the end."""
    sendable = [block for block in blocks if block.get("type") != "thinking" or block.get("signature")]
    while sendable and sendable[-1].get("type") in ("thinking", "redacted_thinking"):
        sendable.pop()
    return sendable


def _new_message_id() -> str:
    return f"msg_{uuid.uuid4().hex[:24]}"


def normalize_reply(reply: Reply) -> dict[str, object]:
    """Return a reply as plain values, with its content as a list of blocks.

    Raises:
        BadCall: the reply is not an assistant message.
        ForeignReply: the reply has the shape of an OpenAI API.
    """
    if isinstance(reply, (dict, Mapping)):  # perf: checking the abstract class alone is slow
        message = dict(reply)
    elif hasattr(reply, "model_dump"):
        message = reply.model_dump(mode="json", exclude_none=True)
    else:
        raise BadCall(f"a reply must be an assistant message, not {type(reply).__name__}")
    check_message_shape(message)
    if message.get("type") == "tool_use":
        message = {"role": "assistant", "content": [message]}
    inner = message.get("message")
    if message.get("type") == "assistant" and isinstance(inner, Mapping):
        message = dict(inner)
    if message.get("role", "assistant") != "assistant":
        raise BadCall(f"a reply must have the role assistant, not {message.get('role')!r}")
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise BadCall(
            'a reply must be an assistant message, {"role": "assistant", "content": [...]}, or a tool_use block'
        )
    for number, block in enumerate(content):
        if not isinstance(block, (dict, Mapping)) or not isinstance(block.get("type"), str):
            raise BadCall(f"block {number} of the reply is not an object with a type")
    blocks = [
        dict(block)
        if _JSON_TYPES.issuperset(map(type, block.values()))  # the usual case
        else {
            key: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
            for key, value in block.items()
            if value is not None  # the API sends null fields, but does not accept them
        }
        for block in content
    ]
    return {**message, "role": "assistant", "content": blocks}


def accept_reply(message: dict[str, object], batch: Batch) -> tuple[list[Block], list[PendingCall], list[CallId]]:
    """Accept the blocks of a reply that the API accepts, except calls whose id was used before.

    Return the accepted blocks, the calls among them, and the ids that were used before.
    """
    blocks = [normalize_call(block) for block in cast("list[Block]", message["content"])]
    parsed_calls = [parse_tool_use(block) if block["type"] == "tool_use" else None for block in blocks]
    truncated_block = blocks[-1] if blocks and message.get("stop_reason") == "max_tokens" else None
    accepted_blocks: list[Block] = []
    pending_calls: list[PendingCall] = []
    repeated_ids: list[CallId] = []
    for block, call in zip(blocks, parsed_calls, strict=True):
        if call is not None:
            pending_call = batch.accept(call, truncated=block is truncated_block)
            if pending_call is None:
                repeated_ids.append(call.id)
                continue
            pending_calls.append(pending_call)
            block["input"] = pending_call.body_store.arguments_
        elif not is_sendable(block):
            continue
        accepted_blocks.append(block)
    message["content"] = accepted_blocks
    return accepted_blocks, pending_calls, repeated_ids


class StreamedReply:
    """A streamed reply that is read while its calls run."""

    def __init__(self, runner: Runner, conversation: Conversation) -> None:
        self.partial = PartialReply(starts_early=runner.runner_context.profile.availability.starts_while_streaming)
        self.batch: Batch | None = None
        """The batch, opened with the first call, because the message id is not final before that."""
        self.failure: ModelFailed | None = None
        """The error that ended the stream after some calls were complete."""
        self._runner = runner
        self._conversation = conversation
        self._scope = anyio.CancelScope()
        self._stack = AsyncExitStack()

    async def run(self, events: AsyncIterable[ModelEvent]) -> None:
        """Read the stream and run its calls."""
        async with self._stack:
            with self._scope:
                try:
                    async for event in events:
                        if isinstance(event, Retrying):
                            self._conversation.record_failure(event.failure, event)
                        await self._start_blocks(self.partial.add_event(event))
                    if self.partial.head["stop_reason"] is None:
                        raise interrupted_stream_failure()
                except ModelFailed as failure:
                    await self._start_blocks(self.partial.break_off())
                    if not self.partial.has_calls:
                        raise
                    self.failure = failure
            if self._scope.cancelled_caught:
                await self._start_blocks(self.partial.interrupt())
            if self.batch is not None:
                await self.batch.drain()

    def interrupt(self) -> None:
        """Stop reading the stream."""
        self._scope.cancel()

    async def _start_blocks(self, ready: ReadyBlocks | None) -> None:
        """Record blocks and start the calls among them."""
        blocks = ready.blocks if ready else []
        for number, block in enumerate(blocks, 1):
            last = ready is not None and ready.is_end and number == len(blocks)
            pending_call = None
            if block["type"] == "tool_use":
                call = parse_tool_use(block)
                if self.batch is None:
                    self.batch = await self._stack.enter_async_context(self._runner.batch(self.partial.head))
                is_cut = last and self.partial.head["stop_reason"] == "max_tokens"
                pending_call = self.batch.accept(call, truncated=is_cut)
                if pending_call is None:
                    continue
                block["input"] = pending_call.body_store.arguments_
            self.partial.blocks.append(block)
            self._conversation.record_block(self.partial, block, last=last)
            if self.batch is not None and pending_call is not None:  # a call starts only after it has been recorded
                self.batch.enqueue(pending_call)
                self.batch.start()
