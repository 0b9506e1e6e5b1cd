"""One command that runs: its end, its output, its processes.

In: a `Command`. Out: a `Child` to wait for or to end. Read `Child.wait` and `Child.end` first.
Needs asyncio underneath anyio: reading the output and noticing the end are callbacks of its loop,
so that they go on while the caller is cancelled. Who owns the child is known to `custody.py`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio.lowlevel

from toolspan.process.capture import Capture
from toolspan.process.command import Command, StartError
from toolspan.process.ending import end_tree
from toolspan.process.exits import Exit, Root
from toolspan.process.marks import new_part
from toolspan.process.output import Output
from toolspan.process.spawn import Spawned, spawn
from toolspan.process.system import System
from toolspan.process.tree import Tree

GRACE = 2.0
"""Seconds between asking a process to end and killing it."""


class Child:
    """A command that was started, with all the processes it started itself."""

    def __init__(
        self,
        command: Command,
        system: System,
        owner: Sequence[str] = (),
        on_collected: Callable[["Child"], None] = lambda _child: None,
    ) -> None:
        """Start it; callers use `start` or `Custody.start`.

        `owner` are the parts of the mark that its owner finds it by. `on_collected` is called in
        the loop, once, when its own process was taken out of the process table; who is left of
        its group is in `tree.seen` then.

        Raises:
            StartError: it cannot be started; nothing is left of it.
            RuntimeError: no asyncio loop runs.
        """
        asyncio.get_running_loop()  # raises under another backend, before anything is started
        part = new_part(command.mark)
        self._leave_orphans = command.leave_orphans
        self._system = system
        self._on_collected = on_collected
        self._output = Output(command)
        spawned = self._spawn(command, [*owner, part])
        self.pid = spawned.pid
        """Of the command's own process; its group and session have the same number."""
        born = system.table.one(self.pid)
        self.tree = Tree(since=born.started if born else 0, roots={self.pid}, parts={part})
        self._root = Root(self.pid, pidfd=system.pidfd, on_collected=self._collected)
        self._output.listen(spawned)

    @property
    def stdout(self) -> Capture:
        """What it printed; both streams, in their true order, when they are merged."""
        return self._output.stdout

    @property
    def stderr(self) -> Capture:
        """What it printed as errors; stays empty when the streams are merged."""
        return self._output.stderr

    @property
    def exit(self) -> Exit | None:
        """How its own process ended, once it has."""
        return self._root.exit

    @property
    def exit_code(self) -> int | None:
        """The number a shell would show for its end; None while it runs."""
        return None if self.exit is None else self.exit.status

    async def wait(self) -> Exit:
        """Wait until its own process has ended and its output is in.

        An orphan that holds a pipe open delays this by `output.QUIET` seconds at most, unless it
        keeps writing. Cancelling it changes nothing for the child.

        Raises:
            NotEnded: orphans were not to be left, and could not be ended.
        """
        await self._root.ended.wait()
        await self._output.drain()
        if not self._leave_orphans:
            return await self.end()
        self._output.finish()
        return self._told()

    async def end(self, grace: float = GRACE) -> Exit:
        """End all its processes: ask, kill after the grace; returns when nothing is left.

        What was printed until then is kept. Call it in a shielded scope when the reason is a
        cancellation; `Custody.running` does. May be called at any time, more than once and by
        several tasks: the shortest grace wins.

        Raises:
            NotEnded: some processes are not ours to signal or are stuck in the kernel.
        """
        with self.held():
            await end_tree(self.tree, self._system, grace)
            await self.close()
        return self._told()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep its number, group and session from being used again meanwhile."""
        with self._root.held():
            yield

    @property
    def over(self) -> bool:
        """Its own process has ended and nothing can be printed any more."""
        return self.exit is not None and not self._output.open

    async def close(self) -> None:
        """Take in the last output once nothing of it runs any more."""
        await self._root.ended.wait()
        await self._output.drain()
        self._output.close()

    def abandon(self) -> None:
        """Stop listening to processes that cannot be ended."""
        self._output.close()

    def _spawn(self, command: Command, parts: Sequence[str]) -> Spawned:
        try:
            return spawn(command, parts)
        except StartError:
            self._output.discard()
            raise

    def _told(self) -> Exit:
        return self._root.exit or Exit(None, None)

    def _collected(self) -> None:
        self.tree.collected(self.pid, self._system.table)
        self._on_collected(self)


async def start(command: Command, system: System | None = None) -> Child:
    """Start a command that the caller looks after, and ends.

    Raises:
        StartError: it cannot be started; nothing is left of it.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    return Child(command, system or System.here())
