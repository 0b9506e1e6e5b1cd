"""Waiting for the first of several things."""

from collections.abc import Awaitable, Callable

import anyio

Wait = Callable[[], Awaitable[None]]


async def first_of(*waits: Wait) -> None:
    """Wait until one of several waits is over; the others are ended."""
    async with anyio.create_task_group() as group:
        for wait in waits:
            group.start_soon(_until, wait, group.cancel_scope)


async def _until(wait: Wait, scope: anyio.CancelScope) -> None:
    await wait()
    scope.cancel()
