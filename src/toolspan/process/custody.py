"""Custody: nothing that was started is left behind.

In: commands. Out: children. Leaving the custody, by whatever way, ends all of them and all
processes they left, in one sweep. Does not know what the commands are for.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Self

import anyio
import anyio.lowlevel

from toolspan.process.child import GRACE, Child
from toolspan.process.command import Command
from toolspan.process.ending import NotEnded, end_tree
from toolspan.process.marks import new_part
from toolspan.process.orphans import Orphans
from toolspan.process.system import System, is_subreaper
from toolspan.process.tree import Tree


class Custody:
    """The owner of all children of one runner."""

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._system = System.here()
        self._children: list[Child] = []
        self._part = new_part("custody")
        self._over = Tree(since=float("inf"), parts={self._part})
        """What children that are over may have left."""
        self._orphans: Orphans | None = None
        self._open = False

    async def __aenter__(self) -> Self:
        self._orphans = Orphans() if self._system.pidfd and is_subreaper() else None
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        with anyio.CancelScope(shield=True):
            try:
                await self._end_all()
            finally:
                if self._orphans is not None:
                    self._orphans.close()

    async def start(self, command: Command) -> Child:
        """Start a command; it is ended when the custody is left, if not before.

        Raises:
            StartError: it cannot be started; nothing is left of it.
            RuntimeError: the custody is not entered, or left already.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._open:
            raise RuntimeError("a custody starts commands only inside its `async with`")
        self._forget_those_over()
        child = Child(command, self._system, [self._part], self._collected)
        self._children.append(child)
        return child

    @asynccontextmanager
    async def running(self, command: Command, grace: float | None = None) -> AsyncIterator[Child]:
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
            await self._end_shielded(child, grace)
            raise
        if child.exit is None:
            await self._end_shielded(child, grace)

    async def _end_shielded(self, child: Child, grace: float | None) -> None:
        with anyio.CancelScope(shield=True):
            await child.end(self._grace if grace is None else grace)

    async def _end_all(self) -> None:
        tree = self._over
        for child in self._children:
            tree.add(child.tree)
        if tree.since == float("inf"):  # nothing was ever started
            return
        with ExitStack() as held:
            for child in self._children:
                held.enter_context(child.held())
            try:
                await end_tree(tree, self._system, self._grace)
            except NotEnded:
                for child in self._children:
                    child.abandon()
                raise
            for child in self._children:
                await child.close()

    def _collected(self, child: Child) -> None:
        if self._orphans is not None:
            self._orphans.watch(child.tree.members(self._system.table))

    def _forget_those_over(self) -> None:
        for child in self._children:
            if child.over:
                self._over.remember(child.tree)
        self._children = [child for child in self._children if not child.over]
