"""The way into a runner that nobody entered: it is entered for as long as batches are open.

In: batches that come and go. Out: a runner that is entered, in a task of its own: whoever brings
the first batch may be cancelled, and that must not end the batches of others. Read `Door.come_in`
first.
"""

import asyncio
from contextlib import AbstractAsyncContextManager

from toolspan.run.insist import insist


class Door:
    """Enters a runner for the first batch, and leaves it after the last."""

    def __init__(self, runner: AbstractAsyncContextManager[object]) -> None:
        self._runner = runner
        self._inside = 0
        self._keeper: asyncio.Task[None] | None = None
        """Has entered the runner, and leaves it."""
        self._opened: asyncio.Future[None] | None = None
        self._last = asyncio.Event()
        """Nobody is inside any more."""

    @property
    def is_held(self) -> bool:
        """Whether the runner is entered through here."""
        return self._keeper is not None

    async def come_in(self) -> None:
        """The runner is entered when this returns; `go_out` follows, whatever happens."""
        while self._keeper is not None and self._last.is_set():  # it closes just now
            await asyncio.wait({self._keeper})
        self._inside += 1
        try:
            await asyncio.shield(self._opened or self._open())
        except BaseException:
            await self.go_out()
            raise

    async def go_out(self) -> None:
        """One batch less; after the last one the runner is left."""
        self._inside -= 1
        keeper = self._keeper
        if self._inside or keeper is None:
            return
        self._last.set()
        await insist(lambda: asyncio.wait({keeper}), keeper.done)
        keeper.result()

    def _open(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self._last = asyncio.Event()
        self._opened = opened = loop.create_future()
        self._keeper = loop.create_task(self._keep(opened))
        return opened

    async def _keep(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._runner:
                opened.set_result(None)
                await self._last.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)  # whoever wants to come in has it
        finally:
            self._keeper = self._opened = None
