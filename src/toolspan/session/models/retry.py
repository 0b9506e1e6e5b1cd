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
    ReplyStopped,
    Retrying,
)
from toolspan.session.models.history import Message, iter_call_ids, sanitize_tool_name, unique_call_id

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
        """Stream the reply from the first attempt that succeeds.

        Raises:
            ModelFailed: all attempts failed, or one failed after a complete call.
        """
        for attempt in range(1, self._options.retries + 2):
            has_call = False
            try:
                async with aclosing(self._model.stream(request)) as events:
                    while (event := await self._next_event(events)) is not None:
                        has_call = has_call or _is_call(event)
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


async def complete_reply(model: Model, request: ModelRequest) -> tuple[list[BlockDone], ReplyStopped]:
    """Return the blocks and the stop event of a complete reply.

    Raises:
        ModelFailed: the model did not reply.
    """
    blocks: list[BlockDone] = []
    stopped = ReplyStopped("end_turn")
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            match event:
                case BlockDone():
                    blocks.append(event)
                case ReplyStopped():
                    stopped = event
                case Retrying():
                    blocks.clear()
                case _:
                    pass
    return blocks, stopped


def _is_call(event: ModelEvent) -> bool:
    return isinstance(event, BlockDone) and event.block.get("type") == "tool_use"


class SafeModel:
    """A model that raises only `ModelFailed`, even if the wrapped model has bugs."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply.

        Raises:
            ModelFailed: the reply failed, before or after it began.
        """
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    _check_block(event)
                    yield event
        except ModelFailed:
            raise
        except Exception as error:
            description = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_ERROR_LENGTH]
            raise ModelFailed(f"the model implementation failed: {description}", kind="fault") from error

    async def close(self) -> None:
        """Close the wrapped model's connections."""
        await self._model.close()


def _check_block(event: ModelEvent) -> None:
    if isinstance(event, BlockDone) and not isinstance(event.block.get("type"), str):
        raise ModelFailed("the model implementation failed: a block without a type", kind="fault")


async def repair_tool_calls(model: Model, request: ModelRequest) -> ModelStream:
    """Stream a reply with valid and unique call ids and valid tool names.

    Raises:
        ModelFailed: the reply failed, before or after it began.
    """
    repair = _CallIdRepair(request.messages)
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            yield repair.repair_event(event)


class _CallIdRepair:
    """A filter that replaces invalid call ids and tool names in the events of one reply."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used_ids = set(iter_call_ids(messages))
        self._open_calls: dict[str, str] = {}
        """The new ids of incomplete calls, by the id that the model sent."""

    def repair_event(self, event: ModelEvent) -> ModelEvent:
        """Return the event with valid ids and names."""
        match event:
            case CallBegan(sent_id, tool) if sent_id and tool:
                self._open_calls[sent_id] = new_id = self._assign_id(sent_id)
                return CallBegan(new_id, sanitize_tool_name(tool))
            case InputDelta(sent_id, text) if sent_id in self._open_calls:
                return InputDelta(self._open_calls[sent_id], text)
            case BlockDone({"type": "tool_use", "id": str(sent_id), "name": str(tool)} as block) if sent_id and tool:
                new_id = self._open_calls.pop(sent_id, "") or self._assign_id(sent_id)
                return BlockDone({**block, "id": new_id, "name": sanitize_tool_name(tool)})
            case Retrying():
                self._used_ids -= set(self._open_calls.values())
                self._open_calls.clear()
            case _:
                pass
        return event

    def _assign_id(self, sent_id: str) -> str:
        new_id = unique_call_id(sent_id, self._used_ids)
        self._used_ids.add(new_id)
        return new_id
