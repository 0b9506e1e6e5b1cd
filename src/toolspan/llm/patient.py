"""A model that is asked again when it fails.

In: a model. Out: the same model, whose streams begin anew after rate limits, overloads, server
errors, lost connections and silence, with growing pauses, or after the pause the server asks for.
A stream that has brought a whole call is not begun anew: the call may be running. Read `stream`.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio

from toolspan.llm.model import (
    BlockDone,
    Model,
    ModelEvent,
    ModelFailed,
    Request,
    Retrying,
    Stopped,
    Stream,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long."""

    retries: int = 8
    first_s: float = 0.5
    most_s: float = 30.0
    longest_wish_s: float = 300.0
    """A server that wants us to wait longer has said no."""
    silence_s: float = 300.0
    """How long a stream may bring nothing."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    jitter: Callable[[], float] = field(default=random.random)

    def wait(self, failure: ModelFailed, attempt: int) -> float | None:
        """Seconds before this attempt, counted from 1; None when there is none."""
        if not failure.retry or attempt > self.retries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest_wish_s else None
        grown: float = min(self.most_s, self.first_s * 2 ** (attempt - 1))
        return grown * (0.75 + self.jitter() / 4)


class Patient:
    """A model with patience."""

    def __init__(self, model: Model, patience: Patience | None = None) -> None:
        self._model = model
        self._patience = patience or Patience()

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    async def stream(self, request: Request) -> Stream:
        """The reply, from the first attempt that brings one.

        Raises:
            ModelFailed: none did, or it broke off after a call.
        """
        for attempt in range(1, self._patience.retries + 2):
            committed = False
            try:
                async with aclosing(self._model.stream(request)) as events:
                    while (event := await self._next(events)) is not None:
                        committed = committed or _is_call(event)
                        yield event
                return
            except ModelFailed as failure:
                wait = None if committed else self._patience.wait(failure, attempt)
                if wait is None:
                    raise
                told = failure
            yield Retrying(told, attempt, self._patience.retries, wait)
            await self._patience.sleep(wait)

    async def close(self) -> None:
        """Let its connections go."""
        await self._model.close()

    async def _next(self, events: Stream) -> ModelEvent | None:
        """The next event; None at the end."""
        try:
            with anyio.fail_after(self._patience.silence_s):
                return await anext(events, None)
        except TimeoutError as error:
            message = f"the model said nothing for {self._patience.silence_s:g} seconds"
            raise ModelFailed(message, kind="timeout", retry=True) from error


async def complete(model: Model, request: Request) -> tuple[list[BlockDone], Stopped]:
    """A whole reply, for those who do not show it as it comes.

    Raises:
        ModelFailed: there is none.
    """
    blocks: list[BlockDone] = []
    stopped = Stopped("end_turn")
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            match event:
                case BlockDone():
                    blocks.append(event)
                case Stopped():
                    stopped = event
                case Retrying():
                    blocks.clear()
                case _:
                    pass
    return blocks, stopped


def _is_call(event: ModelEvent) -> bool:
    return isinstance(event, BlockDone) and event.block.get("type") == "tool_use"
