"""What this machine offers for the custody of processes.

In: nothing. Out: a `System`, the process table and the abilities the rest of the package works
with, and the two questions a command line asks: become the subreaper, who survived.
Linux has it all; elsewhere processes are found through psutil and their end is polled for.
"""

import ctypes
import errno
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from toolspan.process.table import Table, with_mark

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class System:
    """The process table and the abilities in use."""

    table: Table
    pidfd: bool
    """Processes are held by descriptor: a signal cannot hit a later owner of the number, and the
    end of a process is told instead of polled for."""

    patience: float = 5.0
    """Seconds until a killed process must be gone; one that hangs in the kernel may take longer."""

    @classmethod
    def here(cls) -> "System":
        """The best this machine has."""
        return cls(_table(), _has_pidfd())

    @property
    def shortcomings(self) -> list[str]:
        """What works less well here than on a current Linux, one sentence each."""
        missing = []
        if not self.pidfd:
            missing.append("No pidfd: the end of a process is polled for, every few milliseconds.")
        if not _has_procfs():
            missing.append("No /proc: environments of some processes cannot be read for the mark.")
        if sys.platform != "linux":
            missing.append("No subreaper: orphans of a command are collected by the system.")
        return missing


def become_subreaper() -> bool:
    """Make orphaned descendants come to this process; False where that is not possible.

    For command-line processes of our own only: a library must not change who collects the
    children of the program it is used in.
    """
    return sys.platform == "linux" and _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def is_subreaper() -> bool:
    """Do orphaned descendants come to this process?"""
    if sys.platform != "linux":
        return False
    answer = ctypes.c_int(0)
    return _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer)) == 0 and answer.value == 1


def survivors(mark: str) -> list[int]:
    """The numbers of all living processes that carry this mark."""
    return with_mark(_table(), mark)


def _table() -> Table:
    if _has_procfs():
        from toolspan.process.procfs import ProcFs

        return ProcFs()
    from toolspan.process.portable import PsutilTable  # psutil takes a while to import

    return PsutilTable()


def _has_procfs() -> bool:
    return sys.platform == "linux" and Path(f"/proc/{os.getpid()}/stat").exists()


def _has_pidfd() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as problem:
        # Old kernels and some sandboxes do not have the call; anything else is a passing trouble.
        return problem.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL)
    return True


def _prctl(option: int, argument: object) -> int:
    zero = ctypes.c_ulong(0)
    done: int = ctypes.CDLL(None, use_errno=True).prctl(option, argument, zero, zero, zero)
    return done
