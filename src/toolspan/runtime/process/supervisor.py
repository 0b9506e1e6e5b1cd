"""Custody: nothing that was started is left behind.

In: commands. Out: children. Leaving the custody, by whatever way, ends all of them and all
processes they left, in one sweep. Does not know what the commands are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Self

import anyio
import anyio.lowlevel

from toolspan.runtime.process.command import Command, StartError
from toolspan.runtime.process.kill import TerminationError, kill_tree
from toolspan.runtime.process.output import Capture, PipeReader, PipeWriter
from toolspan.runtime.process.platform import OrphanReaper, ProcessPlatform, is_subreaper
from toolspan.runtime.process.spawn import ExitStatus, ExitWatcher, SpawnedProcess, spawn_process
from toolspan.runtime.process.tree import ProcessTree, new_tag

QUIET_SECONDS = 0.1
"""Seconds without output after which an orphan that holds a pipe open is not waited for."""
MAX_DRAIN_SECONDS = 1.0
"""The same for an orphan that never stops writing."""


class ChildOutput:
    """Both streams of a child."""

    def __init__(self, command: Command) -> None:
        self.stdout = Capture(command.memory_limit, command.spill)
        self.stderr = Capture(command.memory_limit, None if command.merge_streams else command.spill)
        self._on_output = command.on_output
        self._stdin_data = command.stdin
        self._bulk = command.bulk
        self._readers: list[PipeReader] = []
        self._feeder: PipeWriter | None = None

    def attach(self, spawned: SpawnedProcess) -> None:
        """Take in what comes out of these pipes, and feed the child."""
        if spawned.stdout is not None:
            self._readers.append(
                PipeReader(spawned.stdout, lambda data: self._handle_data(self.stdout, data), bulk=self._bulk)
            )
        if spawned.stderr is not None:
            self._readers.append(PipeReader(spawned.stderr, lambda data: self._handle_data(self.stderr, data)))
        if spawned.stdin is not None and isinstance(self._stdin_data, bytes):
            self._feeder = PipeWriter(spawned.stdin, self._stdin_data)

    @property
    def is_open(self) -> bool:
        """Can anything still come?"""
        return any(not pipe.finished.is_set() for pipe in self._readers)

    async def drain(self) -> None:
        """Wait for the end of both pipes, but not for somebody who just holds one open."""
        latest = anyio.current_time() + MAX_DRAIN_SECONDS
        while self.is_open:
            before = self._total_bytes()
            with anyio.move_on_after(QUIET_SECONDS):
                for pipe in self._readers:
                    await pipe.finished.wait()
            if self._total_bytes() == before or anyio.current_time() > latest:
                break
        for pipe in self._readers:
            pipe.read_waiting()  # a busy loop may not have come to it

    def finish(self) -> None:
        """What comes from now on is read and dropped: an orphan must not break on a closed pipe."""
        self._on_output = None
        self.stdout.finish()
        self.stderr.finish()

    def close(self) -> None:
        """Stop listening and feeding."""
        self.finish()
        for pipe in self._readers:
            pipe.close()
        if self._feeder is not None:
            self._feeder.close()

    def discard(self) -> None:
        """The child was never started: take back what was made for it."""
        self.stdout.discard()
        self.stderr.discard()

    def _handle_data(self, capture: Capture, data: bytes) -> None:
        capture.add(data)
        if self._on_output is not None:
            self._on_output(data)

    def _total_bytes(self) -> int:
        return self.stdout.total + self.stderr.total


GRACE = 2.0
"""Seconds between asking a process to end and killing it."""


class ChildProcess:
    """A command that was started, with all the processes it started itself."""

    def __init__(
        self,
        command: Command,
        platform: ProcessPlatform,
        owner: Sequence[str] = (),
        on_reaped: Callable[[ChildProcess], None] = lambda _child: None,
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
        tag = new_tag(command.tag)
        self._leave_orphans = command.leave_orphans
        self._platform = platform
        self._on_reaped = on_reaped
        self._output = ChildOutput(command)
        spawned = self._spawn_command(command, [*owner, tag])
        self.pid = spawned.pid
        """Of the command's own process; its group and session have the same number."""
        info = platform.table.get_process(self.pid)
        self.tree = ProcessTree(since=info.started if info else 0, roots={self.pid}, tags={tag})
        self._exit_watcher = ExitWatcher(self.pid, pidfd=platform.has_pidfd, on_reaped=self._handle_reaped)
        self._output.attach(spawned)

    @property
    def stdout(self) -> Capture:
        """What it printed; both streams, in their true order, when they are merged."""
        return self._output.stdout

    @property
    def stderr(self) -> Capture:
        """What it printed as errors; stays empty when the streams are merged."""
        return self._output.stderr

    @property
    def exit(self) -> ExitStatus | None:
        """How its own process ended, once it has."""
        return self._exit_watcher.exit

    @property
    def exit_code(self) -> int | None:
        """The number a shell would show for its end; None while it runs."""
        return None if self.exit is None else self.exit.status

    async def wait(self) -> ExitStatus:
        """Wait until its own process has ended and its output is in.

        An orphan that holds a pipe open delays this by `output.QUIET` seconds at most, unless it
        keeps writing. Cancelling it changes nothing for the child.

        Raises:
            NotEnded: orphans were not to be left, and could not be ended.
        """
        await self._exit_watcher.exited.wait()
        await self._output.drain()
        if not self._leave_orphans:
            return await self.terminate()
        self._output.finish()
        return self._exit_or_unknown()

    async def terminate(self, grace: float = GRACE) -> ExitStatus:
        """End all its processes: ask, kill after the grace; returns when nothing is left.

        What was printed until then is kept. Call it in a shielded scope when the reason is a
        cancellation; `Custody.running` does. May be called at any time, more than once and by
        several tasks: the shortest grace wins.

        Raises:
            NotEnded: some processes are not ours to signal or are stuck in the kernel.
        """
        with self.hold_pid():
            await kill_tree(self.tree, self._platform, grace)
            await self.close()
        return self._exit_or_unknown()

    @contextmanager
    def hold_pid(self) -> Iterator[None]:
        """Keep its number, group and session from being used again meanwhile."""
        with self._exit_watcher.hold_pid():
            yield

    @property
    def is_finished(self) -> bool:
        """Its own process has ended and nothing can be printed any more."""
        return self.exit is not None and not self._output.is_open

    async def close(self) -> None:
        """Take in the last output once nothing of it runs any more."""
        await self._exit_watcher.exited.wait()
        await self._output.drain()
        self._output.close()

    def abandon(self) -> None:
        """Stop listening to processes that cannot be ended."""
        self._output.close()

    def _spawn_command(self, command: Command, tags: Sequence[str]) -> SpawnedProcess:
        try:
            return spawn_process(command, tags)
        except StartError:
            self._output.discard()
            raise

    def _exit_or_unknown(self) -> ExitStatus:
        return self._exit_watcher.exit or ExitStatus(None, None)

    def _handle_reaped(self) -> None:
        self.tree.mark_reaped(self.pid, self._platform.table)
        self._on_reaped(self)


async def start_process(command: Command, platform: ProcessPlatform | None = None) -> ChildProcess:
    """Start a command that the caller looks after, and ends.

    Raises:
        StartError: it cannot be started; nothing is left of it.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    return ChildProcess(command, platform or ProcessPlatform.detect())


class ProcessSupervisor:
    """The owner of all children of one runner."""

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._platform = ProcessPlatform.detect()
        self._children: list[ChildProcess] = []
        self._tag = new_tag("custody")
        self._finished_tree = ProcessTree(since=float("inf"), tags={self._tag})
        """What children that are over may have left."""
        self._orphans: OrphanReaper | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._orphans = OrphanReaper() if self._platform.has_pidfd and is_subreaper() else None
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        with anyio.CancelScope(shield=True):
            try:
                await self._terminate_all()
            finally:
                if self._orphans is not None:
                    self._orphans.close()

    async def start(self, command: Command) -> ChildProcess:
        """Start a command; it is ended when the custody is left, if not before.

        Raises:
            StartError: it cannot be started; nothing is left of it.
            RuntimeError: the custody is not entered, or left already.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._is_open:
            raise RuntimeError("a custody starts commands only inside its `async with`")
        self._forget_finished()
        child = ChildProcess(command, self._platform, [self._tag], self._handle_reaped)
        self._children.append(child)
        return child

    @asynccontextmanager
    async def running_child(self, command: Command, grace: float | None = None) -> AsyncIterator[ChildProcess]:
        """Start a command and end it when the block is left before it ended.

        After an exception or a cancellation its orphans are ended too; after a normal end they
        are left until the custody is.

        Raises:
            StartError: it cannot be started; nothing is left of it.
        """
        child = await self.start(command)
        try:
            yield child
        except BaseException:
            await self._terminate_shielded(child, grace)
            raise
        if child.exit is None:
            await self._terminate_shielded(child, grace)

    async def _terminate_shielded(self, child: ChildProcess, grace: float | None) -> None:
        with anyio.CancelScope(shield=True):
            await child.terminate(self._grace if grace is None else grace)

    async def _terminate_all(self) -> None:
        tree = self._finished_tree
        for child in self._children:
            tree.merge(child.tree)
        if tree.since == float("inf"):  # nothing was ever started
            return
        with ExitStack() as holds:
            for child in self._children:
                holds.enter_context(child.hold_pid())
            try:
                await kill_tree(tree, self._platform, self._grace)
            except TerminationError:
                for child in self._children:
                    child.abandon()
                raise
            for child in self._children:
                await child.close()

    def _handle_reaped(self, child: ChildProcess) -> None:
        if self._orphans is not None:
            self._orphans.watch(child.tree.find_members(self._platform.table))

    def _forget_finished(self) -> None:
        for child in self._children:
            if child.is_finished:
                self._finished_tree.add_leftovers(child.tree)
        self._children = [child for child in self._children if not child.is_finished]
