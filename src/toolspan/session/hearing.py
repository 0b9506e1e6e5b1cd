"""Hearing a reply while it streams: its calls are started before it ends.

In: the events of a model. Out: a reply that counts and a batch in which every call of it has its
result, however the stream ended. What is written down is the session's business (`Keeper`). Read
`Hearing.hear` first.
"""

from collections.abc import AsyncIterable
from contextlib import AsyncExitStack
from typing import Protocol

import anyio

from toolspan.llm.model import ModelEvent, ModelFailed, Retrying, broken_off
from toolspan.run.batch import Batch
from toolspan.run.blocks import read_block
from toolspan.run.runner import Runner
from toolspan.session.incoming import Block, Incoming, Ready


class Keeper(Protocol):
    """Writes down what is heard."""

    def keep_block(self, incoming: Incoming, block: Block, *, last: bool) -> None:
        """A block counts; if it is a call, it is started after this."""
        ...

    def keep_retry(self, retry: Retrying) -> None:
        """The reply begins anew."""
        ...


class Hearing:
    """One reply."""

    def __init__(self, runner: Runner, keeper: Keeper) -> None:
        self.incoming = Incoming(early=runner.desk.profile.offer.starts_while_streaming)
        self.batch: Batch | None = None
        """There once a call was asked for: only then its message is known for good."""
        self.broken: ModelFailed | None = None
        """Why the reply broke off after some of its calls."""
        self._runner = runner
        self._keeper = keeper
        self._scope = anyio.CancelScope()
        self._stack = AsyncExitStack()

    async def hear(self, events: AsyncIterable[ModelEvent]) -> None:
        """Take the reply in and run its calls.

        Raises:
            ModelFailed: it broke off before any call was complete.
        """
        async with self._stack:
            await self._listen(events)
            if self.batch is not None:
                await self.batch.drain()

    def interrupt(self) -> None:
        """Hear no more of it."""
        self._scope.cancel()

    async def _listen(self, events: AsyncIterable[ModelEvent]) -> None:
        with self._scope:
            try:
                async for event in events:
                    if isinstance(event, Retrying):
                        self._keeper.keep_retry(event)
                    await self._start(self.incoming.take(event))
                if not self.incoming.is_whole:
                    raise broken_off()
            except ModelFailed as failure:
                await self._start(self.incoming.break_off())
                if not self.incoming.asks:
                    raise
                self.broken = failure
        if self._scope.cancelled_caught:
            await self._start(self.incoming.interrupt())

    async def _start(self, ready: Ready | None) -> None:
        """Have blocks written down, then start those that are calls."""
        if ready is None:
            return
        for number, block in enumerate(ready.blocks, 1):
            last = ready.is_end and number == len(ready.blocks)
            if block["type"] == "tool_use":
                await self._start_call(block, last=last)
            else:
                self._keep(block, last=last)

    async def _start_call(self, block: Block, *, last: bool) -> None:
        asked = read_block(block)
        if self.batch is None:
            opened = self._runner.batch(self.incoming.head)
            self.batch = await self._stack.enter_async_context(opened)
        job = self.batch.accept(asked, cut=last and self.incoming.is_cut)
        if job is not None:
            block["input"] = job.shelf.arguments_
            self._keep(block, last=last)
            self.batch.enqueue(job)
            self.batch.start()

    def _keep(self, block: Block, *, last: bool) -> None:
        self.incoming.kept.append(block)
        self._keeper.keep_block(self.incoming, block, last=last)
