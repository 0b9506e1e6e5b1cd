"""A model's reply, whoever sent it: an SDK's object or plain JSON.

In: a whole reply. Out: a plain message, and its calls in a batch. Replies that stream are heard
in `hearing.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

import anyio
import msgspec

from toolspan.errors import BadCall
from toolspan.runtime.batch import Batch
from toolspan.runtime.pending_call import PendingCall, parse_tool_use
from toolspan.runtime.runner import Runner
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

ReplyBlock = dict[str, object]


class ReadyBlocks(NamedTuple):
    """Blocks whose time has come."""

    blocks: list[ReplyBlock]
    is_end: bool = False
    """Nothing comes after them."""


class PartialReply:
    """A reply, as far as it is there."""

    def __init__(self, *, starts_early: bool) -> None:
        """Take whether calls start while the message still streams."""
        self.head: dict[str, object] = {"id": _new_message_id(), "role": "assistant", "stop_reason": None}
        """The message without its content."""
        self.request_id: str | None = None
        self.blocks: list[ReplyBlock] = []
        """The blocks that count: written down, and started if they are calls."""
        self._starts_early = starts_early
        self._pending: list[ReplyBlock] = []
        self._partial_text: list[str] = []
        """What came of a text that is not complete."""

    @property
    def has_calls(self) -> bool:
        """Whether a call of it counts."""
        return any(block["type"] == "tool_use" for block in self.blocks)

    @property
    def is_cut(self) -> bool:
        """Whether it ended because it got too long."""
        return self.head["stop_reason"] == "max_tokens"

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end."""
        return self.head["stop_reason"] is not None

    def add_event(self, event: ModelEvent) -> ReadyBlocks | None:
        """Take in an event; the blocks whose time has come by it."""
        match event:
            case ReplyBegan():
                self._begin_message(event)
            case BlockDone():
                self._add_block(event.block)
            case Usage():
                previous = self.head.get("usage")
                usage = previous if isinstance(previous, Mapping) else {}
                self.head["usage"] = {**usage, **event.tokens}
            case ReplyStopped():
                return self._finish_message(event)
            case Retrying():
                self._pending, self._partial_text = [], []
            case TextDelta():
                self._partial_text.append(event.text)
                return self._release_calls()
            case ThinkingDelta() | CallBegan() | InputDelta():
                return self._release_calls()
        return None

    def break_off(self) -> ReadyBlocks:
        """The stream has failed: whole calls count, what came after the last of them does not."""
        calls = [n for n, block in enumerate(self._pending, 1) if block["type"] == "tool_use"]
        return self._release_blocks(self._pending[: calls[-1]] if calls else [])

    def interrupt(self) -> ReadyBlocks:
        """Somebody has heard enough: what was said stays, calls that were not started do not."""
        texts = [block for block in self._pending if block["type"] == "text"]
        if "".join(self._partial_text).strip():
            texts.append({"type": "text", "text": "".join(self._partial_text)})
        return self._release_blocks(texts)

    def _begin_message(self, event: ReplyBegan) -> None:
        self.head = {"id": event.message_id or _new_message_id(), "role": "assistant", "stop_reason": None}
        self.head["model"] = event.model
        self.request_id = event.request_id

    def _add_block(self, block: ReplyBlock) -> None:
        self._partial_text = []
        if not is_blank(block):
            self._pending.append(dict(block))

    def _release_calls(self) -> ReadyBlocks | None:
        """Another block begins: a call before it need not wait for the end of the message."""
        if self._starts_early and any(block["type"] == "tool_use" for block in self._pending):
            return self._release_blocks(self._pending)
        return None

    def _finish_message(self, event: ReplyStopped) -> ReadyBlocks:
        self.head["stop_reason"] = event.reason
        if event.details is not None:
            self.head["stop_details"] = event.details
        return self._release_blocks(self._pending, is_end=True)

    def _release_blocks(self, blocks: list[ReplyBlock], *, is_end: bool = False) -> ReadyBlocks:
        self._pending, self._partial_text = [], []
        return ReadyBlocks(blocks, is_end)


def is_blank(block: ReplyBlock) -> bool:
    """Whether it is a text that says nothing; no server takes one back."""
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def sendable_blocks(blocks: list[ReplyBlock]) -> list[ReplyBlock]:
    """Blocks as a server takes them back: no unsigned thinking, none at the end."""
    sendable = [block for block in blocks if block.get("type") != "thinking" or block.get("signature")]
    while sendable and sendable[-1].get("type") in ("thinking", "redacted_thinking"):
        sendable.pop()
    return sendable


def _new_message_id() -> str:
    return f"msg_{uuid.uuid4().hex[:24]}"


class SdkMessage(Protocol):
    """An SDK's message: pydantic models have this."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, object]:
        """The message as plain values."""
        ...


_JSON_TYPES = frozenset({str, dict, list, bool, int, float})
Reply = Mapping[str, object] | SdkMessage
"""An assistant message of the Messages API."""


def normalize_reply(reply: Reply) -> dict[str, object]:
    """The message as plain values, its content a list of blocks.

    Raises:
        BadCall: it is no assistant message.
    """
    if isinstance(reply, (dict, Mapping)):  # an abstract class alone is slow to ask
        message = dict(reply)
    elif hasattr(reply, "model_dump"):
        message = reply.model_dump(mode="json", exclude_none=True)
    else:
        raise BadCall(f"a reply is an assistant message, not {type(reply).__name__}")
    inner = message.get("message")
    if message.get("type") == "assistant" and isinstance(inner, Mapping):
        message = dict(inner)
    if message.get("role", "assistant") != "assistant":
        raise BadCall(f"a reply has the role assistant, not {message.get('role')!r}")
    message["role"] = "assistant"
    message["content"] = _normalize_content(message.get("content"))
    return message


def _normalize_content(content: object) -> list[dict[str, object]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise BadCall("a reply has its content as a text or a list of blocks")
    blocks = []
    for number, block in enumerate(content):
        if not isinstance(block, (dict, Mapping)) or not isinstance(block.get("type"), str):
            raise BadCall(f"block {number} of the reply is no object with a type")
        blocks.append(_normalize_block(block))
    return blocks


class AcceptedReply(NamedTuple):
    """What of a reply counts."""

    blocks: list[dict[str, object]]
    pending_calls: list[PendingCall]
    """Its calls, to be run."""


def accept_reply(message: dict[str, object], batch: Batch) -> AcceptedReply:
    """The reply without what says nothing, and without calls whose id was there before.

    Raises:
        BadCall: one of its calls cannot be answered; none is accepted.
    """
    blocks = message["content"]
    if not isinstance(blocks, list):
        raise BadCall("a reply has its content as a list of blocks")
    parsed_calls = [parse_tool_use(block) if block["type"] == "tool_use" else None for block in blocks]
    truncated_block = blocks[-1] if blocks and message.get("stop_reason") == "max_tokens" else None
    accepted_blocks: list[dict[str, object]] = []
    pending_calls: list[PendingCall] = []
    for block, call in zip(blocks, parsed_calls, strict=True):
        if call is None:
            if not is_blank(block):
                accepted_blocks.append(block)
            continue
        pending_call = batch.accept(call, truncated=block is truncated_block)
        if pending_call is not None:
            pending_calls.append(pending_call)
            block["input"] = pending_call.body_store.arguments_
            accepted_blocks.append(block)
    message["content"] = accepted_blocks
    return AcceptedReply(accepted_blocks, pending_calls)


def _normalize_block(block: Mapping[str, object]) -> dict[str, object]:
    """A block without what servers send but do not take back."""
    if _JSON_TYPES.issuperset(map(type, block.values())):  # as nearly always
        return dict(block)
    return {
        key: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        for key, value in block.items()
        if value is not None
    }


class ReplyRecorder(Protocol):
    """Writes down what is heard."""

    def record_block(self, reply: PartialReply, block: ReplyBlock, *, last: bool) -> None:
        """A block counts; if it is a call, it is started after this."""
        ...

    def record_retry(self, retry: Retrying) -> None:
        """The reply begins anew."""
        ...


class StreamedReply:
    """One reply."""

    def __init__(self, runner: Runner, recorder: ReplyRecorder) -> None:
        self.partial = PartialReply(starts_early=runner.runner_context.profile.availability.starts_while_streaming)
        self.batch: Batch | None = None
        """There once a call was asked for: only then its message is known for good."""
        self.failure: ModelFailed | None = None
        """Why the reply broke off after some of its calls."""
        self._runner = runner
        self._recorder = recorder
        self._scope = anyio.CancelScope()
        self._stack = AsyncExitStack()

    async def run(self, events: AsyncIterable[ModelEvent]) -> None:
        """Take the reply in and run its calls.

        Raises:
            ModelFailed: it broke off before any call was complete.
        """
        async with self._stack:
            await self._read_events(events)
            if self.batch is not None:
                await self.batch.drain()

    def interrupt(self) -> None:
        """Hear no more of it."""
        self._scope.cancel()

    async def _read_events(self, events: AsyncIterable[ModelEvent]) -> None:
        with self._scope:
            try:
                async for event in events:
                    if isinstance(event, Retrying):
                        self._recorder.record_retry(event)
                    await self._start_blocks(self.partial.add_event(event))
                if not self.partial.is_complete:
                    raise interrupted_stream_failure()
            except ModelFailed as failure:
                await self._start_blocks(self.partial.break_off())
                if not self.partial.has_calls:
                    raise
                self.failure = failure
        if self._scope.cancelled_caught:
            await self._start_blocks(self.partial.interrupt())

    async def _start_blocks(self, ready: ReadyBlocks | None) -> None:
        """Have blocks written down, then start those that are calls."""
        if ready is None:
            return
        for number, block in enumerate(ready.blocks, 1):
            last = ready.is_end and number == len(ready.blocks)
            if block["type"] == "tool_use":
                await self._start_call(block, last=last)
            else:
                self._record_block(block, last=last)

    async def _start_call(self, block: ReplyBlock, *, last: bool) -> None:
        call = parse_tool_use(block)
        if self.batch is None:
            open_batch = self._runner.batch(self.partial.head)
            self.batch = await self._stack.enter_async_context(open_batch)
        job = self.batch.accept(call, truncated=last and self.partial.is_cut)
        if job is not None:
            block["input"] = job.body_store.arguments_
            self._record_block(block, last=last)
            self.batch.enqueue(job)
            self.batch.start()

    def _record_block(self, block: ReplyBlock, *, last: bool) -> None:
        self.partial.blocks.append(block)
        self._recorder.record_block(self.partial, block, last=last)


Wait = Callable[[], Awaitable[None]]


async def wait_first(*waits: Wait) -> None:
    """Wait until one of several waits is over; the others are ended."""
    async with anyio.create_task_group() as group:
        for wait in waits:
            group.start_soon(_cancel_after, wait, group.cancel_scope)


async def _cancel_after(wait: Wait, scope: anyio.CancelScope) -> None:
    await wait()
    scope.cancel()
