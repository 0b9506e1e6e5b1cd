"""Waiting that nobody can cut short.

In: how to wait, and what for. Out: nothing; whoever wanted this task to end meanwhile gets their
will afterwards. A scope's cancellation stops at a shield; a task's own passes every shield, once
each time somebody asks for it.
"""

from collections.abc import Awaitable, Callable

import anyio


async def insist(wait: Callable[[], Awaitable[object]], until: Callable[[], bool]) -> None:
    """Wait until something is so, however often this task is told to end."""
    wish: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not until():
            try:
                await wait()
            except anyio.get_cancelled_exc_class() as error:
                wish = error
    if wish is not None:
        raise wish
