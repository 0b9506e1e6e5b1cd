"""What this machine offers for the custody of processes.

In: nothing. Out: a `System`, the process table and the abilities the rest of the package works
with, and the two questions a command line asks: become the subreaper, who survived.
Linux has it all; elsewhere processes are found through psutil and their end is polled for.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolspan.runtime.process.tree import ProcessIdentity, ProcessInfo, ProcessTable, find_tagged

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class ProcessPlatform:
    """The process table and the abilities in use."""

    table: ProcessTable
    has_pidfd: bool
    """Processes are held by descriptor: a signal cannot hit a later owner of the number, and the
    end of a process is told instead of polled for."""

    kill_timeout: float = 5.0
    """Seconds until a killed process must be gone; one that hangs in the kernel may take longer."""

    @classmethod
    def detect(cls) -> ProcessPlatform:
        """The best this machine has."""
        return cls(_select_table(), _has_pidfd())

    @property
    def limitations(self) -> list[str]:
        """What works less well here than on a current Linux, one sentence each."""
        missing = []
        if not self.has_pidfd:
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
    return sys.platform == "linux" and _call_prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def is_subreaper() -> bool:
    """Do orphaned descendants come to this process?"""
    if sys.platform != "linux":
        return False
    answer = ctypes.c_int(0)
    return _call_prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer)) == 0 and answer.value == 1


def find_survivors(tag: str) -> list[int]:
    """The numbers of all living processes that carry this mark."""
    return find_tagged(_select_table(), tag)


def _select_table() -> ProcessTable:
    if _has_procfs():
        from toolspan.runtime.process.tree import ProcFs

        return ProcFs()
    from toolspan.runtime.process.tree import PsutilTable

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


def _call_prctl(option: int, argument: object) -> int:
    zero = ctypes.c_ulong(0)
    done: int = ctypes.CDLL(None, use_errno=True).prctl(option, argument, zero, zero, zero)
    return done


class OrphanReaper:
    """The orphans we wait for, each by a descriptor."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pidfds: dict[ProcessIdentity, int] = {}

    def watch(self, processes: Iterable[ProcessInfo]) -> None:
        """Collect these when they end."""
        for process in processes:
            if process.identity in self._pidfds:
                continue
            with suppress(OSError):  # ended already, or too many descriptors: `end` collects it
                self._pidfds[process.identity] = os.pidfd_open(process.pid)
                self._loop.add_reader(self._pidfds[process.identity], self._reap, process.identity)

    def close(self) -> None:
        """Stop waiting, after collecting who has ended."""
        for identity in list(self._pidfds):
            self._reap(identity)

    def _reap(self, identity: ProcessIdentity) -> None:
        descriptor = self._pidfds.pop(identity)
        self._loop.remove_reader(descriptor)
        with suppress(ChildProcessError):  # its parent still lives, or it was collected already
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
        os.close(descriptor)
