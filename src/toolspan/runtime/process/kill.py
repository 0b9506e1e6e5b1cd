"""Terminate a process tree: SIGTERM first, SIGKILL after the grace period.

`kill_tree` waits until the processes have ended, never for a fixed time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.process.tree import ProcessIdentity, ProcessInfo, ProcessPlatform, ProcessTree, is_alive

_POLL_INTERVAL = 0.005


class TerminationError(ToolspanError):
    """Raised if processes cannot be terminated, because they belong to another user or are stuck in the kernel."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(f"These processes could not be ended: {', '.join(map(str, pids))}")
        self.pids = tuple(pids)


async def kill_tree(tree: ProcessTree, platform: ProcessPlatform, grace: float) -> None:
    """Terminate all processes in the tree and return when none is left.

    Raises:
        TerminationError: some processes still exist `platform.kill_timeout` seconds after SIGKILL.
    """
    with _TreeKiller(tree, platform) as killer:
        if not (
            await killer.signal_until_gone(signal.SIGTERM, grace)
            or await killer.signal_until_gone(signal.SIGKILL, platform.kill_timeout)
        ):
            members = tree.find_members(platform.table)
            raise TerminationError([process.pid for process in members if not process.is_zombie])


class _TreeKiller:
    """The processes of a tree, held by pidfd while they are terminated."""

    def __init__(self, tree: ProcessTree, platform: ProcessPlatform) -> None:
        self._tree = tree
        self._platform = platform
        self._pidfds: dict[ProcessIdentity, int] = {}
        self._zombies: list[ProcessInfo] = []

    def __enter__(self) -> _TreeKiller:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._zombies:
            if process.parent == os.getpid() and process.pid not in self._tree.roots:  # an orphan, reparented to us
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        for descriptor in self._pidfds.values():
            os.close(descriptor)

    async def signal_until_gone(self, number: signal.Signals, seconds: float) -> bool:
        """Signal all members, including new ones, and return whether all ended in time."""
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
            except OSError:  # gone, or too many descriptors: poll instead
                continue
            if is_alive(self._platform.table, process.identity):  # the pid has not been reused
                self._pidfds[process.identity] = descriptor
            else:
                os.close(descriptor)

    def _signal_all(self, living: Sequence[ProcessInfo], number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._send_signal(living, frozenset(), number)
            return
        # Signal each process once, and spare processes started by a signalled one, which may need them for its cleanup.
        signaled = [process for process in living if process.identity in self._tree.signaled]
        pids = {process.pid for process in signaled}
        fresh = [process for process in living if process.pid not in pids and process.parent not in pids]
        self._send_signal(fresh, {process.group for process in signaled}, number)
        self._tree.signaled.update(process.identity for process in fresh)
        for process in fresh:
            self._signal_process(process, signal.SIGCONT)  # a stopped process cannot react

    def _send_signal(
        self, targets: Sequence[ProcessInfo], excluded_groups: Collection[int], number: signal.Signals
    ) -> None:
        """Signal whole groups where possible, and other processes one by one.

        Signalling a whole group leaves no gap in which a member could fork and escape. A group lies
        within one session, so all of it belongs to the tree.
        """
        groups = {process.group for process in targets} - {0, os.getpgid(0), *excluded_groups}
        for group in groups:
            with suppress(OSError):  # gone or not permitted; the next scan shows which
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
        """Kill group members that no scan has found.

        A process that forks and exits faster than a scan may be missed by every scan. The last scan
        found no live process in these groups, so the signal can reach only such processes.
        """
        for group in self._tree.roots | self._tree.orphaned_groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        self._tree.orphaned_groups.clear()
