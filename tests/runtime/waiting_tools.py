"""Tools that wait, and hosts that are cancelled.

A tool signals that it has started and waits until the test releases it, or forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import pytest

from toolspan.runtime.context import ToolContext
from toolspan.runtime.tool import Tool, tool


class Held:
    """A tool that signals its start and waits until it is released or cancelled."""

    def __init__(self, name: str, *, concurrent: bool = False, partial: Callable[[], str] | None = None) -> None:
        self.inside, self.go_on = anyio.Event(), anyio.Event()
        self.tool = self._make(name, concurrent, partial)

    def _make(self, name: str, concurrent: bool, partial: Callable[[], str] | None) -> Tool:
        @tool(name=name, concurrent=concurrent)
        async def hold(ctx: ToolContext) -> str:
            """Wait until released."""
            ctx.partial = partial
            self.inside.set()
            await self.go_on.wait()
            return name

        return hold


def meeting() -> Tool:
    inside = 0
    met = anyio.Event()

    @tool(concurrent=True)
    async def meet() -> str:
        """Wait for the other call."""
        nonlocal inside
        inside += 1
        if inside == 2:
            met.set()
        await met.wait()
        return "met"

    return meet


async def gone(way: str, host: Callable[[], Coroutine[None, None, None]], once: anyio.Event) -> None:
    """Run a host and end it once something has happened: its task, or the scope around it."""
    if way == "task":
        task = asyncio.create_task(host())
        await once.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(host)
            await once.wait()
            group.cancel_scope.cancel()


class Interruptible(Protocol):
    """A session, or an agent."""

    def interrupt(self) -> None: ...


@asynccontextmanager
async def interrupting(whom: Interruptible, once: anyio.Event) -> AsyncIterator[None]:
    """Cancel a task after an event."""

    async def stop() -> None:
        await once.wait()
        whom.interrupt()

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        yield
