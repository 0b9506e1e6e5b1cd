"""Work that goes on in the background of a session.

In: commands that were started there, or moved there. Out: a `Task` for each, found by its id until
the session ends, and all of them ended then. What started a task, and what is told of it, is not
known here.
"""

import secrets
import string
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio

from toolspan.ids import CallId
from toolspan.process import Capture, Child, NotEnded

Status = Literal["running", "completed", "failed", "killed"]

_ALPHABET = string.ascii_lowercase + string.digits


def new_task_id() -> str:
    """A name nobody has yet: `b` and eight letters or digits."""
    return "b" + "".join(secrets.choice(_ALPHABET) for _ in range(8))


@dataclass(slots=True, kw_only=True)
class Task:
    """One command in the background."""

    id: str
    call_id: CallId
    command: str
    description: str | None
    child: Child
    printed: Capture
    """Both streams."""
    path: Path
    """The file its output goes to."""
    stopped: bool = False
    """Somebody ended it."""

    @property
    def status(self) -> Status:
        """Whether it runs, and how it ended."""
        if self.child.exit is None:
            return "running"
        if self.stopped:
            return "killed"
        return "completed" if self.child.exit.code == 0 else "failed"

    async def wait(self) -> None:
        """Wait until it has ended and its output is in the file."""
        await self.child.wait()
        self.printed.finish()

    async def stop(self) -> None:
        """End it with all its processes; one that has ended stays as it is.

        Raises:
            NotEnded: some of them are not ours to signal or are stuck in the kernel.
        """
        self.stopped = self.stopped or self.child.exit is None
        try:
            await self.child.end()
        finally:
            self.printed.finish()


class Tasks:
    """The tasks of one session."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def __iter__(self) -> Iterator[Task]:
        """In the order in which they came."""
        return iter(tuple(self._tasks.values()))

    def get(self, task_id: str) -> Task | None:
        """The task of this name, running or not."""
        return self._tasks.get(task_id)

    def add(self, task: Task) -> None:
        """Look after it from now on."""
        self._tasks[task.id] = task

    async def end(self) -> None:
        """Stop what still runs; what cannot be ended is left to the custody."""
        async with anyio.create_task_group() as group:
            for task in self:
                group.start_soon(_stop, task)


async def _stop(task: Task) -> None:
    with suppress(NotEnded):
        await task.stop()
