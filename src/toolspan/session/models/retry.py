"""A model that is asked again when it fails.

In: a model. Out: the same model, whose streams begin anew after rate limits, overloads, server
errors, lost connections and silence, with growing pauses, or after the pause the server asks for.
A stream that has brought a whole call is not begun anew: the call may be running. Read `stream`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio

from toolspan.session.models.base import (
    BlockDone,
    Model,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelStream,
    ReplyStopped,
    Retrying,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """How often and how long."""

    retries: int = 8
    initial_delay_s: float = 0.5
    max_delay_s: float = 30.0
    max_retry_after_s: float = 300.0
    """A server that wants us to wait longer has said no."""
    idle_timeout_s: float = 300.0
    """How long a stream may bring nothing."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    jitter: Callable[[], float] = field(default=random.random)

    def retry_delay(self, failure: ModelFailed, attempt: int) -> float | None:
        """Seconds before this attempt, counted from 1; None when there is none."""
        if not failure.retry or attempt > self.retries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.max_retry_after_s else None
        delay: float = min(self.max_delay_s, self.initial_delay_s * 2 ** (attempt - 1))
        return delay * (0.75 + self.jitter() / 4)


class RetryingModel:
    """A model with patience."""

    def __init__(self, model: Model, options: RetryOptions | None = None) -> None:
        self._model = model
        self._options = options or RetryOptions()

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    async def stream(self, request: ModelRequest) -> ModelStream:
        """The reply, from the first attempt that brings one.

        Raises:
            ModelFailed: none did, or it broke off after a call.
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
        """Let its connections go."""
        await self._model.close()

    async def _next_event(self, events: ModelStream) -> ModelEvent | None:
        """The next event; None at the end."""
        try:
            with anyio.fail_after(self._options.idle_timeout_s):
                return await anext(events, None)
        except TimeoutError as error:
            message = f"the model said nothing for {self._options.idle_timeout_s:g} seconds"
            raise ModelFailed(message, kind="timeout", retry=True) from error


async def complete_reply(model: Model, request: ModelRequest) -> tuple[list[BlockDone], ReplyStopped]:
    """A whole reply, for those who do not show it as it comes.

    Raises:
        ModelFailed: there is none.
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
