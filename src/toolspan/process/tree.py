"""Which processes belong to a command.

In: what is known of the command and one look at the process table. Out: its processes.
Reads the environments of a few processes through the table; signals nobody. Read `Tree.members`.

A process belongs to the command when one of these holds; the first three survive a lost parent,
the last three a lost environment:

- the command's mark is in its environment;
- its session is one that a process of the command opened: sessions cannot be entered from
  outside, and every command starts in one of its own;
- it was seen to belong before;
- a process of the command is its parent.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, field

from toolspan.process.table import Identity, Process, Table


@dataclass
class Tree:
    """What is known of the processes of one command, or of several."""

    since: float
    """When the first of them started; none of its processes can be older."""
    roots: set[int] = field(default_factory=set)
    """Processes we started and have not collected: nobody else can have their numbers."""
    loose: set[int] = field(default_factory=set)
    """Groups of roots that were collected while somebody else was still in the group: as long as
    somebody is, nobody else can have the number."""
    parts: set[str] = field(default_factory=set)
    """The parts of the mark that were given to them."""
    seen: set[Identity] = field(default_factory=set)
    """Processes found to belong at the last look."""
    asked: set[Identity] = field(default_factory=set)
    """Processes that were asked to end; asking twice means something else to some programs."""

    def remember(self, other: "Tree") -> None:
        """Know whom the other one left; their marks must be among ours."""
        self.since = min(self.since, other.since)
        self.seen |= other.seen
        self.loose |= other.loose

    def collected(self, root: int, table: Table) -> None:
        """This root was taken out of the process table; remember whom it left."""
        if group_exists(root):
            self.members(table)
            self.loose.add(root)
        self.roots.discard(root)

    def add(self, other: "Tree") -> None:
        """Know what the other one knows."""
        self.remember(other)
        self.roots |= other.roots
        self.parts |= other.parts
        self.asked |= other.asked

    def members(self, table: Table) -> list[Process]:
        """All its processes now, the dead that are not collected included; remembers them."""
        look = table.look().values()
        young = [one for one in look if one.started >= self.since]
        found = _closed({one for one in young if self._is_known(one)}, young)
        others = (one for one in young if one not in found and not one.dead)
        marked = {one for one in others if not self.parts.isdisjoint(table.parts(one.pid))}
        found = _closed(found | marked, young)
        self.seen = {one.identity for one in found}
        # Somebody else lives in a group of that number: ours came to its end.
        self.loose -= {one.group for one in look if one not in found and not one.dead}
        return sorted(found)

    def living(self, table: Table) -> list[Process]:
        """Its processes that still run."""
        return [one for one in self.members(table) if not one.dead]

    def _is_known(self, one: Process) -> bool:
        return one.session in self.roots or one.pid in self.roots or one.identity in self.seen


def group_exists(group: int) -> bool:
    """Is anybody, dead or alive, in the group of this number?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is there, only not ours to signal
        return True
    return True


def _closed(found: set[Process], look: Collection[Process]) -> set[Process]:
    """These, all in their sessions, all they started, and so on."""
    ours = {0, os.getsid(0)}
    size = -1
    while size != len(found):
        size = len(found)
        pids = {one.pid for one in found}
        sessions = {one.session for one in found} - ours
        found = found | {one for one in look if one.session in sessions or one.parent in pids}
    return {one for one in found if one.pid != os.getpid()}
