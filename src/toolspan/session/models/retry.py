"""Model wrappers: retries, valid call ids, and no exceptions other than `ModelFailed`.

`RetryingModel` retries after rate limits, overloads, server errors, lost connections and timeouts. The pauses grow, or
are as long as the server requests. A stream is not retried after a complete call, because the call may be running.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio

from toolspan.session.models.base import (
    BlockDone,
    CallBegan,
    InputDelta,
    Model,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStream,
    Retrying,
)
from toolspan.session.models.history import (
    Block,
    Message,
    iter_call_ids,
    sanitize_tool_name,
    text_with_placeholders,
    unique_call_id,
)

_MAX_ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """The number of retries and the pauses between them."""

    retries: int = 8
    initial_delay_s: float = 0.5
    max_delay_s: float = 30.0
    max_retry_after_s: float = 300.0
    """The longest pause, in seconds, to accept from the server. If it requests a longer one, give up."""
    idle_timeout_s: float = 300.0
    """The number of seconds without an event after which a stream is considered failed."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    jitter: Callable[[], float] = field(default=random.random)

    def retry_delay(self, failure: ModelFailed, attempt: int) -> float | None:
        """Return the seconds to wait before retry number `attempt`, or None to give up."""
        if not failure.retry or attempt > self.retries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max_retry_after_s else None
        delay: float = min(self.max_delay_s, self.initial_delay_s * 2 ** (attempt - 1))
        return delay * (0.75 + self.jitter() / 4)


class RetryingModel:
    """A model that retries failed requests."""

    def __init__(self, model: Model, options: RetryOptions | None = None) -> None:
        self._model = model
        self._options = options or RetryOptions()

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply from the first attempt that succeeds."""
        for attempt in range(1, self._options.retries + 2):
            has_call = False
            try:
                async with aclosing(self._model.stream(request)) as events:
                    while (event := await self._next_event(events)) is not None:
                        has_call |= isinstance(event, BlockDone) and event.block.get("type") == "tool_use"
                        yield event
                return
            except ModelFailed as failure:
                delay = None if has_call else self._options.retry_delay(failure, attempt)
                if delay is None:
                    raise
                last_failure = failure
            yield Retrying(last_failure, attempt, self._options.retries, delay)
            await self._options.sleep(delay)

    async def close(self) -> None:
        """Close the wrapped model's connections."""
        await self._model.close()

    async def _next_event(self, events: ModelStream) -> ModelEvent | None:
        """Return the next event, or None at the end."""
        try:
            with anyio.fail_after(self._options.idle_timeout_s):
                return await anext(events, None)
        except TimeoutError as error:
            message = f"the model sent nothing for {self._options.idle_timeout_s:g} seconds"
            raise ModelFailed(message, kind="timeout", retry=True) from error


async def safe_stream(model: Model, request: ModelRequest) -> ModelStream:
    """Stream a reply and raise only `ModelFailed`, even if the model has bugs."""
    try:
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                if isinstance(event, BlockDone) and not isinstance(event.block.get("type"), str):
                    raise ModelFailed("the model implementation failed: a block without a type", kind="fault")
                yield event
    except ModelFailed:
        raise
    except Exception as error:
        description = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_ERROR_LENGTH]
        raise ModelFailed(f"the model implementation failed: {description}", kind="fault") from error


async def read_text(stream: ModelStream) -> str:
    """Return the text of a complete reply."""
    blocks: list[Block] = []
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, BlockDone) and event.block["type"] == "text":
                blocks.append(event.block)
            elif isinstance(event, Retrying):
                blocks.clear()
    return text_with_placeholders(blocks)


async def repair_tool_calls(stream: ModelStream, messages: Iterable[Message]) -> ModelStream:
    """Stream a reply with valid and unique call ids and valid tool names."""
    used_ids = set(iter_call_ids(messages))
    open_calls: dict[str, str] = {}  # the new ids of incomplete calls, by the id that the model sent

    def assign_id(sent_id: str) -> str:
        new_id = unique_call_id(sent_id, used_ids)
        used_ids.add(new_id)
        return new_id

    async with aclosing(stream) as events:
        async for event in events:
            match event:
                case CallBegan(sent_id, tool) if sent_id and tool:
                    open_calls[sent_id] = new_id = assign_id(sent_id)
                    yield CallBegan(new_id, sanitize_tool_name(tool))
                case InputDelta(sent_id, text) if sent_id in open_calls:
                    yield InputDelta(open_calls[sent_id], text)
                case BlockDone({"type": "tool_use", "id": str(sent_id), "name": str(tool)} as block) if (
                    sent_id and tool
                ):
                    new_id = open_calls.pop(sent_id, "") or assign_id(sent_id)
                    yield BlockDone({**block, "id": new_id, "name": sanitize_tool_name(tool)})
                case _:
                    if isinstance(event, Retrying):
                        used_ids -= set(open_calls.values())
                        open_calls.clear()
                    yield event
