"""The processes of this machine, as one look at them gives.

In: nothing, or a process id. Out: `Process` values and the marks in their environments.
Which system call or library tells them is known to `procfs.py` and `portable.py` only.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from toolspan.process.marks import carries


class Identity(NamedTuple):
    """One process for all time: its number may be used again, its number and start may not."""

    pid: int
    started: float


class Process(NamedTuple):
    """What one look tells of a process."""

    pid: int
    parent: int
    group: int
    session: int
    """0 when it is not known."""
    started: float
    """In the table's own unit; good for comparing within one table only."""
    dead: bool
    """It has ended and only waits to be collected by its parent."""

    @property
    def identity(self) -> Identity:
        """Its number and start."""
        return Identity(self.pid, self.started)


class Table(Protocol):
    """Who runs on this machine. May block for milliseconds; never raises for one that vanished."""

    def look(self) -> Mapping[int, Process]:
        """Every process that can be seen, by number."""
        ...

    def one(self, pid: int) -> Process | None:
        """This process, or None when there is none of that number."""
        ...

    def parts(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        ...


def alive(table: Table, identity: Identity) -> bool:
    """Does this very process still run?"""
    now = table.one(identity.pid)
    return now is not None and now.identity == identity and not now.dead


def with_mark(table: Table, mark: str) -> list[int]:
    """The numbers of the living processes that carry this mark, in order."""
    look = table.look().values()
    return sorted(one.pid for one in look if not one.dead and carries(table.parts(one.pid), mark))
