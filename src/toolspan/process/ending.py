"""End a tree of processes and come back when nothing of it is left.

In: a `Tree`. Out: nothing, or `NotEnded`. First everybody is asked (TERM), after the grace nobody
is (KILL). Waits for the end of processes, never for a fixed time. Knows nothing of their output.
Read `end_tree` first.
"""

import os
import signal
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import anyio

from toolspan.errors import ToolspanError
from toolspan.process.system import System
from toolspan.process.table import Identity, Process, alive
from toolspan.process.tree import Tree

_POLL = 0.005


class NotEnded(ToolspanError):  # noqa: N818 - reads as a sentence where it is caught
    """Processes are left that cannot be ended: not ours to signal, or stuck in the kernel."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(f"These processes could not be ended: {', '.join(map(str, pids))}")
        self.pids = tuple(pids)


async def end_tree(tree: Tree, system: System, grace: float) -> None:
    """End all processes of the tree; returns when none is left.

    Raises:
        NotEnded: some are still there `system.patience` seconds after they were killed.
    """
    with _Grip(tree, system) as grip:
        if not (
            await grip.gone_after(signal.SIGTERM, grace)
            or await grip.gone_after(signal.SIGKILL, system.patience)
        ):
            raise NotEnded([one.pid for one in tree.living(system.table)])


class _Grip:
    """Holds the processes of a tree by descriptor while they are being ended."""

    def __init__(self, tree: Tree, system: System) -> None:
        self._tree = tree
        self._system = system
        self._held: dict[Identity, int] = {}
        self._dead: list[Process] = []

    def __enter__(self) -> "_Grip":
        return self

    def __exit__(self, *_: object) -> None:
        self._collect()
        for descriptor in self._held.values():
            os.close(descriptor)

    async def gone_after(self, number: signal.Signals, seconds: float) -> bool:
        """Signal all, those that turn up meanwhile too; True when none is left in time."""
        with anyio.move_on_after(seconds):
            while living := self._living():
                self._hold(living)
                self._signal_all(living, number)
                await self._until_gone(living)
            self._kill_unseen()
            return True
        return False

    def _living(self) -> list[Process]:
        members = self._tree.members(self._system.table)
        self._dead = [one for one in members if one.dead]
        return [one for one in members if not one.dead]

    def _hold(self, living: Iterable[Process]) -> None:
        if not self._system.pidfd:
            return
        for one in living:
            if one.identity in self._held:
                continue
            try:
                descriptor = os.pidfd_open(one.pid)
            except OSError:  # gone, or too many descriptors: then it is polled for
                continue
            if alive(self._system.table, one.identity):  # the number was not given away meanwhile
                self._held[one.identity] = descriptor
            else:
                os.close(descriptor)

    def _signal_all(self, living: Sequence[Process], number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._send(living, frozenset(), number)
            return
        fresh = self._not_asked(living)
        asked = {one.group for one in living if one.identity in self._tree.asked}
        self._send(fresh, asked, number)
        self._tree.asked.update(one.identity for one in fresh)
        for one in fresh:
            self._signal(one, signal.SIGCONT)  # a stopped process cannot obey

    def _not_asked(self, living: Sequence[Process]) -> list[Process]:
        """Who is to be asked; what one who was asked starts, it may need for cleaning up."""
        asked = {one.pid for one in living if one.identity in self._tree.asked}
        return [one for one in living if one.pid not in asked and one.parent not in asked]

    def _send(
        self, to: Sequence[Process], but_not: Collection[int], number: signal.Signals
    ) -> None:
        """Signal these: whole groups where that is possible, else one by one.

        A whole group at once leaves no gap in which one of them could fork and get away. A group
        is of one session, so all of it belongs to the tree, and a look ago it had a living member.
        """
        groups = {one.group for one in to} - {0, os.getpgid(0), *but_not}
        for group in groups:
            with suppress(OSError):  # gone, or not ours to signal: the next look tells
                os.killpg(group, number)
        for one in to:
            if one.group not in groups:
                self._signal(one, number)

    def _signal(self, one: Process, number: signal.Signals) -> None:
        descriptor = self._held.get(one.identity)
        with suppress(OSError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)
            elif alive(self._system.table, one.identity):
                os.kill(one.pid, number)

    async def _until_gone(self, living: Iterable[Process]) -> None:
        for one in living:
            descriptor = self._held.get(one.identity)
            if descriptor is not None:
                await anyio.wait_readable(descriptor)
                continue
            while alive(self._system.table, one.identity):
                await anyio.sleep(_POLL)

    def _kill_unseen(self) -> None:
        """Kill who is in our groups and was not seen.

        Who forks and leaves faster than one can look is in every look either not born yet or dead
        already. Nobody was seen alive in these groups, so it can hit only such ones.
        """
        for group in self._tree.roots | self._tree.loose:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        self._tree.loose.clear()

    def _collect(self) -> None:
        """Collect orphans that came to us; whoever has another parent is not ours to wait for."""
        for one in self._dead:
            if one.parent == os.getpid() and one.pid not in self._tree.roots:
                with suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)
