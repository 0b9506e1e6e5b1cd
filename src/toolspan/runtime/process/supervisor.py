"""Own child processes, so that none outlives the session that started it.

Leaving a `ProcessSupervisor` terminates all its children and every process they left behind. A `ChildProcess` is a
started command with its output and its process tree.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Self

import anyio
import anyio.lowlevel

from toolspan.runtime.process.kill import TerminationError, kill_tree
from toolspan.runtime.process.output import Capture, PipeReader, PipeWriter
from toolspan.runtime.process.spawn import Command, ExitStatus, StartError, spawn_process
from toolspan.runtime.process.tree import (
    ProcessIdentity,
    ProcessInfo,
    ProcessPlatform,
    ProcessTree,
    is_subreaper,
    new_tag,
)

GRACE = 2.0
"""The seconds between SIGTERM and SIGKILL."""
QUIET_SECONDS = 0.1
"""The seconds without output after which `wait` ignores an orphan that keeps a pipe open."""
MAX_DRAIN_SECONDS = 1.0
"""The seconds after which `wait` ignores an orphan that never stops writing."""


_open_supervisors: weakref.WeakSet[ProcessSupervisor] = weakref.WeakSet()
_spawned_pids: set[int] = set()
"""The children of this process that it has started and not reaped. A subreaper's other children are orphans."""


class ProcessSupervisor:
    """The owner of all child processes of one runner.

    In a subreaper, it also finds daemons that changed their session and cleared their environment. Only toolspan's
    own commands are subreapers; in other programs, init adopts such daemons, and they are not found.
    """

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._platform = ProcessPlatform.detect()
        self._children: list[ChildProcess] = []
        self.tag = new_tag("custody")
        """The tag in the environment of all processes that are started here."""
        self._finished_tree = ProcessTree(since=float("inf"), tags={self.tag})
        """Processes that finished children may have left behind."""
        self._orphans: _OrphanReaper | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._orphans = _OrphanReaper() if self._platform.has_pidfd and is_subreaper() else None
        self._is_open = True
        _open_supervisors.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        _open_supervisors.discard(self)
        tree = self._finished_tree
        for child in self._children:
            tree.merge(child.tree)
        own = self._platform.table.get_process(os.getpid())
        if own is not None and is_subreaper() and not _open_supervisors:  # all adopted orphans are its own
            tree.since = min(tree.since, own.started)
            tree.spawned = _spawned_pids
        if tree.since == float("inf"):  # nothing was ever started
            return
        with anyio.CancelScope(shield=True), ExitStack() as holds:
            for child in self._children:
                holds.enter_context(child.hold_pid())
            try:
                await kill_tree(tree, self._platform, self._grace)
                for child in self._children:
                    await child.close()
            except TerminationError:
                for child in self._children:
                    child.abandon()
                raise
            finally:
                if self._orphans is not None:
                    self._orphans.close()

    async def start(self, command: Command) -> ChildProcess:
        """Start a command. It is terminated when the supervisor is closed, if not before.

        Raises:
            StartError: the command cannot be started; none of its processes is running.
            RuntimeError: the supervisor has not been entered, or is already closed.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._is_open:
            raise RuntimeError("a ProcessSupervisor starts commands only inside its `async with`")
        for child in self._children:
            if child.is_finished:
                self._finished_tree.add_leftovers(child.tree)
        self._children = [child for child in self._children if not child.is_finished]
        child = ChildProcess(command, self._platform, [self.tag], self._watch_orphans if self._orphans else None)
        child.owns_adopted = partial(self._owns_adopted, child)
        self._children.append(child)
        await _complete_start(command, child)
        return child

    @asynccontextmanager
    async def running_child(self, command: Command, grace: float | None = None) -> AsyncIterator[ChildProcess]:
        """Start a command, and terminate it if it is still running at the end of the block.

        After an exception or a cancellation, its orphans are terminated as well. Otherwise they run
        until the supervisor is closed.

        Raises:
            StartError: the command cannot be started; none of its processes is running.
        """
        child = await self.start(command)
        failed = True
        try:
            yield child
            failed = False
        finally:
            if failed or child.exit is None:
                with anyio.CancelScope(shield=True):
                    await child.terminate(self._grace if grace is None else grace)

    def _owns_adopted(self, child: ChildProcess) -> bool:
        """Return whether an orphan that appeared since this command started must be its own."""
        running = [other for owner in _open_supervisors for other in owner._children if not other.is_finished]
        return is_subreaper() and all(other is child for other in running)

    def _watch_orphans(self, child: ChildProcess) -> None:
        if self._orphans is not None:
            self._orphans.watch(child.tree.find_members(self._platform.table))


async def start_process(command: Command, platform: ProcessPlatform | None = None) -> ChildProcess:
    """Start a command that the caller must terminate.

    Raises:
        StartError: the command cannot be started; none of its processes is running.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    child = ChildProcess(command, platform or ProcessPlatform.detect())
    await _complete_start(command, child)
    return child


async def _complete_start(command: Command, child: ChildProcess) -> None:
    if command.on_start is None:
        return
    try:
        await command.on_start()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await child.terminate(0)
        raise


class ChildProcess:
    """A started command with its output, its exit status and all its descendants."""

    def __init__(
        self,
        command: Command,
        platform: ProcessPlatform,
        owner_tags: Sequence[str] = (),
        on_reaped: Callable[[ChildProcess], None] | None = None,
    ) -> None:
        """Start the command. Use `start_process` or `ProcessSupervisor.start` instead of calling this directly.

        `on_reaped` is called once, in the event loop, after the command's own process was reaped;
        at that point, `tree.last_members` contains the processes it left behind.

        Raises:
            StartError: the command cannot be started; none of its processes is running.
            RuntimeError: no asyncio loop is running.
        """
        self._loop = asyncio.get_running_loop()  # raises under another backend, before anything is started
        tag = new_tag(command.tag)
        self.stdout = Capture(command.memory_limit, command.spill)
        """The captured stdout, or both streams in order if they are merged."""
        self.stderr = Capture(command.memory_limit, None if command.merge_streams else command.spill)
        self.exit: ExitStatus | None = None
        """The exit status of the command's own process; None while it is running."""
        self._exited = anyio.Event()
        self._exit_callbacks: list[Callable[[], None]] = []
        self._leave_orphans = command.leave_orphans
        self._has_pid_namespace = command.has_pid_namespace
        self._platform = platform
        self._on_reaped = on_reaped
        self._on_output = command.on_output
        self._on_error_output = command.on_error_output or command.on_output
        self._hold_count = 0
        self._reaped = False
        self.owns_adopted: Callable[[], bool] = lambda: False
        """A function that returns whether an orphan that this process has adopted must come from this command."""
        try:
            spawned = spawn_process(command, [*owner_tags, tag])
        except StartError:
            self.stdout.discard()
            self.stderr.discard()
            raise
        _spawned_pids.add(spawned.pid)
        self.pid = spawned.pid
        """The process id, which is also the id of the command's process group and session."""
        info = platform.table.get_process(self.pid)
        self.tree = ProcessTree(since=info.started if info else 0, roots={self.pid}, tags={tag})
        self._pidfd: int | None = None
        if platform.has_pidfd:
            with suppress(OSError):  # too many descriptors: wait in a thread instead
                self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._handle_exit)
        else:
            threading.Thread(target=self._wait_in_thread, name=f"exit-of-{self.pid}", daemon=True).start()
        self._readers: list[PipeReader] = []
        self._writer: PipeWriter | None = None
        if spawned.stdout is not None:
            self._readers.append(PipeReader(spawned.stdout, partial(self._add_output, self.stdout), bulk=command.bulk))
        if spawned.stderr is not None:
            self._readers.append(PipeReader(spawned.stderr, partial(self._add_output, self.stderr)))
        if spawned.stdin is not None and isinstance(command.stdin, bytes):
            self._writer = PipeWriter(spawned.stdin, command.stdin)

    @property
    def exit_code(self) -> int | None:
        """The status that a shell would report; None while the process is running."""
        return None if self.exit is None else self.exit.status

    @property
    def is_finished(self) -> bool:
        """True if the command's own process has ended and no more output can arrive."""
        return self.exit is not None and all(reader.finished.is_set() for reader in self._readers)

    def call_at_exit(self, callback: Callable[[], None]) -> None:
        """Call a function when the command's own process has ended and its output was read; now if it already has."""
        if self.exit is None:
            self._exit_callbacks.append(callback)
        else:
            callback()

    async def wait(self) -> ExitStatus:
        """Wait until the command's own process has ended and its output is complete.

        An orphan that keeps a pipe open delays this by at most `QUIET_SECONDS`, or
        `MAX_DRAIN_SECONDS` if it keeps writing. Cancelling the wait does not affect the child.

        Raises:
            TerminationError: the command must not leave orphans, and some could not be terminated.
        """
        await self._exited.wait()
        await self._drain_output()
        if not self._leave_orphans:
            return await self.terminate()
        self._finish_output()
        return self.exit or ExitStatus(None, None)

    async def terminate(self, grace: float = GRACE) -> ExitStatus:
        """Terminate all processes of the command, with SIGKILL after the grace period, and return when
        none is left.

        Output up to that point is kept. Shield the call when handling a cancellation, as
        `running_child` does. It may be called at any time, repeatedly and by several tasks; the
        shortest grace period applies.

        Raises:
            TerminationError: some processes belong to another user or are stuck in the kernel.
        """
        with self.hold_pid():
            self.tree.spawned = _spawned_pids if self.owns_adopted() else None
            await kill_tree(self.tree, self._platform, grace)
            await self.close()
        return self.exit or ExitStatus(None, None)

    @contextmanager
    def hold_pid(self) -> Iterator[None]:
        """Keep the process from being reaped inside the block, so that its pid, group and session are not reused."""
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            self._reap()

    async def close(self) -> None:
        """Read the remaining output after all processes have ended."""
        await self._exited.wait()
        await self._drain_output()
        self.abandon()

    def abandon(self) -> None:
        """Stop reading output from processes that cannot be terminated."""
        self._finish_output()
        for reader in self._readers:
            reader.close()
        if self._writer is not None:
            self._writer.close()

    async def _drain_output(self) -> None:
        """Wait until both pipes are closed, but not for an orphan that keeps one open without writing."""
        latest = anyio.current_time() + MAX_DRAIN_SECONDS
        while not self.is_finished:
            before = self.stdout.total + self.stderr.total
            with anyio.move_on_after(QUIET_SECONDS):
                for reader in self._readers:
                    await reader.finished.wait()
            if self.stdout.total + self.stderr.total == before or anyio.current_time() > latest:
                break
        for reader in self._readers:
            reader.read_waiting()  # a busy event loop may not have read it yet

    def _finish_output(self) -> None:
        """Discard further output, but keep reading it, so that orphans do not fail on a closed pipe."""
        self._on_output = self._on_error_output = None
        self.stdout.finish()
        self.stderr.finish()

    def _add_output(self, capture: Capture, data: bytes) -> None:
        capture.add(data)
        callback = self._on_error_output if capture is self.stderr else self._on_output
        if callback is not None:
            callback(data)

    def _handle_exit(self, status: ExitStatus | None = None) -> None:
        """Store the exit status and reap the process. Without a `status`, read it first."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.exit = status or ExitStatus(None, None)
        if status is None:
            with suppress(ChildProcessError):
                info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                if info is not None and info.si_code == os.CLD_EXITED:
                    self.exit = ExitStatus(info.si_status, None)
                elif info is not None:
                    self.exit = ExitStatus(None, info.si_status)
        self._reap()
        if self._exit_callbacks:
            for reader in self._readers:
                reader.read_waiting()
            for callback in self._exit_callbacks:
                callback()
        self._exited.set()

    def _wait_in_thread(self) -> None:
        status = ExitStatus(None, None)
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # negative for a signal
            status = ExitStatus(code, None) if code >= 0 else ExitStatus(None, -code)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._handle_exit, status)

    def _reap(self) -> None:
        if self.exit is None or self._hold_count or self._reaped:
            return
        self._reaped = True
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        _spawned_pids.discard(self.pid)
        if self._has_pid_namespace:
            self.tree.roots.discard(self.pid)
        else:
            self.tree.mark_reaped(self.pid, self._platform.table)
        if self._on_reaped is not None:
            self._on_reaped(self)


class _OrphanReaper:
    """A reaper for orphans that were reparented to this process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pidfds: dict[ProcessIdentity, int] = {}

    def watch(self, processes: Iterable[ProcessInfo]) -> None:
        """Reap these processes as soon as they end."""
        for process in processes:
            if process.identity in self._pidfds:
                continue
            with suppress(OSError):  # already ended, or too many descriptors: `kill_tree` reaps it
                self._pidfds[process.identity] = os.pidfd_open(process.pid)
                self._loop.add_reader(self._pidfds[process.identity], self._reap, process.identity)

    def close(self) -> None:
        """Reap the processes that have ended, and stop watching the others."""
        for identity in list(self._pidfds):
            self._reap(identity)

    def _reap(self, identity: ProcessIdentity) -> None:
        descriptor = self._pidfds.pop(identity)
        self._loop.remove_reader(descriptor)
        with suppress(ChildProcessError):  # its parent is still alive, or it was already reaped
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
        os.close(descriptor)
