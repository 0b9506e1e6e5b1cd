"""End a tree of processes and come back when nothing of it is left.

In: a `Tree`. Out: nothing, or `NotEnded`. First everybody is asked (TERM), after the grace nobody
is (KILL). Waits for the end of processes, never for a fixed time. Knows nothing of their output.
Read `end_tree` first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.process.platform import ProcessPlatform
from toolspan.runtime.process.tree import ProcessIdentity, ProcessInfo, ProcessTree, is_alive

_POLL_INTERVAL = 0.005


class TerminationError(ToolspanError):
    """Processes are left that cannot be ended: not ours to signal, or stuck in the kernel."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(f"These processes could not be ended: {', '.join(map(str, pids))}")
        self.pids = tuple(pids)


async def kill_tree(tree: ProcessTree, platform: ProcessPlatform, grace: float) -> None:
    """End all processes of the tree; returns when none is left.

    Raises:
        NotEnded: some are still there `system.patience` seconds after they were killed.
    """
    with _TreeKiller(tree, platform) as killer:
        if not (
            await killer.signal_until_gone(signal.SIGTERM, grace)
            or await killer.signal_until_gone(signal.SIGKILL, platform.kill_timeout)
        ):
            raise TerminationError([process.pid for process in tree.find_living(platform.table)])


class _TreeKiller:
    """Holds the processes of a tree by descriptor while they are being ended."""

    def __init__(self, tree: ProcessTree, platform: ProcessPlatform) -> None:
        self._tree = tree
        self._platform = platform
        self._pidfds: dict[ProcessIdentity, int] = {}
        self._zombies: list[ProcessInfo] = []

    def __enter__(self) -> _TreeKiller:
        return self

    def __exit__(self, *_: object) -> None:
        self._reap_orphans()
        for descriptor in self._pidfds.values():
            os.close(descriptor)

    async def signal_until_gone(self, number: signal.Signals, seconds: float) -> bool:
        """Signal all, those that turn up meanwhile too; True when none is left in time."""
        with anyio.move_on_after(seconds):
            while living := self._find_living():
                self._open_pidfds(living)
                self._signal_all(living, number)
                await self._wait_until_gone(living)
            self._kill_unseen()
            return True
        return False

    def _find_living(self) -> list[ProcessInfo]:
        members = self._tree.find_members(self._platform.table)
        self._zombies = [process for process in members if process.is_zombie]
        return [process for process in members if not process.is_zombie]

    def _open_pidfds(self, living: Iterable[ProcessInfo]) -> None:
        if not self._platform.has_pidfd:
            return
        for process in living:
            if process.identity in self._pidfds:
                continue
            try:
                descriptor = os.pidfd_open(process.pid)
            except OSError:  # gone, or too many descriptors: then it is polled for
                continue
            if is_alive(self._platform.table, process.identity):  # the number was not given away meanwhile
                self._pidfds[process.identity] = descriptor
            else:
                os.close(descriptor)

    def _signal_all(self, living: Sequence[ProcessInfo], number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._send_signal(living, frozenset(), number)
            return
        fresh = self._select_unsignaled(living)
        signaled_groups = {process.group for process in living if process.identity in self._tree.signaled}
        self._send_signal(fresh, signaled_groups, number)
        self._tree.signaled.update(process.identity for process in fresh)
        for process in fresh:
            self._signal_process(process, signal.SIGCONT)  # a stopped process cannot obey

    def _select_unsignaled(self, living: Sequence[ProcessInfo]) -> list[ProcessInfo]:
        """Who is to be asked; what one who was asked starts, it may need for cleaning up."""
        signaled_pids = {process.pid for process in living if process.identity in self._tree.signaled}
        return [
            process for process in living if process.pid not in signaled_pids and process.parent not in signaled_pids
        ]

    def _send_signal(
        self, targets: Sequence[ProcessInfo], excluded_groups: Collection[int], number: signal.Signals
    ) -> None:
        """Signal these: whole groups where that is possible, else one by one.

        A whole group at once leaves no gap in which one of them could fork and get away. A group
        is of one session, so all of it belongs to the tree, and a look ago it had a living member.
        """
        groups = {process.group for process in targets} - {0, os.getpgid(0), *excluded_groups}
        for group in groups:
            with suppress(OSError):  # gone, or not ours to signal: the next look tells
                os.killpg(group, number)
        for process in targets:
            if process.group not in groups:
                self._signal_process(process, number)

    def _signal_process(self, process: ProcessInfo, number: signal.Signals) -> None:
        descriptor = self._pidfds.get(process.identity)
        with suppress(OSError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)
            elif is_alive(self._platform.table, process.identity):
                os.kill(process.pid, number)

    async def _wait_until_gone(self, living: Iterable[ProcessInfo]) -> None:
        for process in living:
            descriptor = self._pidfds.get(process.identity)
            if descriptor is not None:
                await anyio.wait_readable(descriptor)
                continue
            while is_alive(self._platform.table, process.identity):
                await anyio.sleep(_POLL_INTERVAL)

    def _kill_unseen(self) -> None:
        """Kill who is in our groups and was not seen.

        Who forks and leaves faster than one can look is in every look either not born yet or dead
        already. Nobody was seen alive in these groups, so it can hit only such ones.
        """
        for group in self._tree.roots | self._tree.orphaned_groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        self._tree.orphaned_groups.clear()

    def _reap_orphans(self) -> None:
        """Collect orphans that came to us; whoever has another parent is not ours to wait for."""
        for process in self._zombies:
            if process.parent == os.getpid() and process.pid not in self._tree.roots:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
