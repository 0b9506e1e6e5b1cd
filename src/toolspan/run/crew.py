"""The tasks in which the calls of a batch are run beside each other.

In: what is to be run. Out: nothing; whoever gives it learns of its end in their own way. A task of
a task group costs three times as much as a plain one, mostly for a scope of its own, and calls have
no use for that: they are ended one by one, through their rooms. So on asyncio these are plain
tasks; elsewhere, and for faults that nobody expects, there is the group.
"""

import asyncio
from collections.abc import Callable, Coroutine

import anyio.abc

Run = Callable[[], Coroutine[object, object, None]]


class Crew:
    """Tasks that end by themselves: nothing but their calls keeps them."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []
        """A loop alone would not keep them."""

    def start(self, run: Run) -> None:
        """Have something run beside everything else; nobody tells it to end."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another backend
            self._group.start_soon(run)
            return
        self._tasks.append(loop.create_task(self._guarded(run)))

    def start_late(self, run: Run, seconds: float) -> Callable[[], None]:
        """The same in so many seconds; gives what keeps it from that."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another backend
            self._group.start_soon(run)
            return _do_nothing
        return loop.call_later(seconds, self.start, run).cancel

    async def _guarded(self, run: Run) -> None:
        try:
            await run()
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - our own fault: it ends the runner
            self._group.start_soon(_raise, error)


def _do_nothing() -> None:
    """It has begun."""


async def _raise(error: BaseException) -> None:
    raise error
