"""Work that goes on in the background of a session.

In: commands that were started there, or moved there. Out: a `Task` for each, found by its id until
the session ends, and all of them ended then; `Tasks.news` gives those that ended by themselves and
that nobody was told of yet, `notice` says it. What started a task is not known here.
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
from toolspan.profile import TaskValues

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
    told: bool = False
    """The conversation knows that it has ended."""

    @property
    def status(self) -> Status:
        """Whether it runs, and how it ended."""
        if self.child.exit is None:
            return "running"
        if self.stopped:
            return "killed"
        return "completed" if self.child.exit.code == 0 else "failed"

    @property
    def exit_code(self) -> int | None:
        """The number a shell would show for its end; None while it runs."""
        return None if self.child.exit is None else self.child.exit.status

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


def notice(task: Task, values: TaskValues) -> str:
    """What the model is told when a task has ended by itself."""
    lines = (
        "<task-notification>",
        f"<task-id>{task.id}</task-id>",
        f"<tool-use-id>{task.call_id}</tool-use-id>",
        f"<output-file>{task.path}</output-file>",
        f"<status>{task.status}</status>",
        f"<summary>{_summary(task)}</summary>",
        "</task-notification>",
    )
    return "\n".join(lines) + values.notice_tail.format(path=task.path)


def _summary(task: Task) -> str:
    name = f'Background command "{task.description or task.command}"'
    match task.status:
        case "completed":
            return f"{name} completed (exit code {task.exit_code})"
        case "failed":
            return f"{name} failed with exit code {task.exit_code}"
        case "killed":
            return f"{name} was stopped"
        case "running":
            return f"{name} is running"


class Tasks:
    """The tasks of one session."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def __iter__(self) -> Iterator[Task]:
        """In the order in which they came."""
        return iter(tuple(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, task_id: str) -> Task | None:
        """The task of this name, running or not."""
        return self._tasks.get(task_id)

    def add(self, task: Task) -> None:
        """Look after it from now on."""
        self._tasks[task.id] = task

    def forget(self, task_id: str) -> None:
        """Nobody asks for it any more; it has to have ended."""
        self._tasks.pop(task_id, None)

    @property
    def running(self) -> tuple[Task, ...]:
        """Those that have not ended."""
        return tuple(task for task in self if task.status == "running")

    def news(self) -> tuple[Task, ...]:
        """Those that ended by themselves since the last time; each is given once."""
        ended = tuple(
            task for task in self if task.status in ("completed", "failed") and not task.told
        )
        for task in ended:
            task.told = True
        return ended

    async def wait(self) -> None:
        """Wait until one that runs has ended; with none running, return at once."""
        running = self.running
        if not running:
            return
        async with anyio.create_task_group() as group:
            for task in running:
                group.start_soon(_first_to_end, task, group.cancel_scope)

    async def end(self) -> None:
        """Stop what still runs; what cannot be ended is left to the custody."""
        async with anyio.create_task_group() as group:
            for task in self:
                group.start_soon(_stop, task)


async def _first_to_end(task: Task, scope: anyio.CancelScope) -> None:
    with suppress(NotEnded):
        await task.wait()
    scope.cancel()


async def _stop(task: Task) -> None:
    with suppress(NotEnded):
        await task.stop()
