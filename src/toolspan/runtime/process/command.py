"""What to start, and what cannot be started.

In: nothing. Out: `Command`, the value every child is started from, and `StartError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.runtime.process.output import Spill


class StartError(ToolspanError):
    """A command could not be started; nothing of it runs."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"Cannot start {path}: {reason}")
        self.path = path
        """The program, or the folder it should have started in."""
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command, ready to be started."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment; the mark is added to it."""
    tag: str
    """Whose processes these are, a call id for example; `survivors` finds them by it."""
    merge_streams: bool = False
    """Both streams go into one pipe, in the order in which they were written: `Child.stdout`."""
    stdin: bytes | int = b""
    """Bytes to feed, or a descriptor of the caller's; nothing means /dev/null."""
    stdout: int | None = None
    """A descriptor of the caller's that takes its output; None: it is captured."""
    pass_fds: Sequence[int] = ()
    """Descriptors the command inherits besides its three."""
    on_output: Callable[[bytes], None] | None = None
    """Called in the event loop with every piece of either stream, until the child has ended or
    `wait` has returned. It must not block and must not raise."""
    memory_limit: int = 1 << 20
    """Bytes kept in memory of each stream, half of them from its start."""
    spill: Spill | None = None
    bulk: bool = False
    """It prints much, and nobody waits for single lines: its pipes are larger and are read less
    often."""
    leave_orphans: bool = True
    """Processes that outlive the command's own one run on until the custody ends; else `wait` ends
    them."""

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("a command has at least the name of a program")
        if self.memory_limit < 2:
            raise ValueError(f"memory_limit is at least 2, not {self.memory_limit}")
