"""How a command that runs calls is ended from outside: Ctrl-C, a closed terminal, a reader gone.

In: signals, and outputs that cannot be written. Out: calls that are interrupted, so that each still
gets its result, and the exit code. A second signal does not wait for them.
"""

import signal
from collections.abc import Callable
from typing import Protocol

import anyio
from anyio.abc import TaskStatus


class Work(Protocol):
    """A session, or an agent in one."""

    @property
    def is_busy(self) -> bool:
        """Whether there is something that can be interrupted."""
        ...

    def interrupt(self) -> None:
        """End what runs."""
        ...


class Stop:
    """Why the command ends early: the exit code, once something has set it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.code: int | None = None

    def with_code(self, code: int) -> None:
        """End what runs, and then the command."""
        self.code = self.code or code
        self._work.interrupt()

    def on_signal(self, number: int) -> bool:
        """Somebody wants us to end; whether nothing is left to wait for."""
        waits = self._work.is_busy and self.code is None
        self.with_code(128 + number)
        return not waits


async def watch_signals(
    on_signal: Callable[[int], bool], scope: anyio.CancelScope, *, task_status: TaskStatus[None]
) -> None:
    """Tell of every signal that asks us to end; where that says so, cancel the scope."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if on_signal(number):
                scope.cancel()
