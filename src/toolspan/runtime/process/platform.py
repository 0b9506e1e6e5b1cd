"""The process management features of this machine.

Linux has all of them. On other systems, processes are listed with psutil, and exits are detected by polling.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from toolspan.runtime.process.tree import ProcessTable, ProcFs, PsutilTable, find_tagged

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class ProcessPlatform:
    """The process table and features in use."""

    table: ProcessTable
    has_pidfd: bool
    """True to hold processes by descriptor, so that signals cannot reach a reused pid and exits need no polling."""
    kill_timeout: float = 5.0
    """The seconds within which a killed process must end; one stuck in the kernel may take longer."""

    @classmethod
    def detect(cls) -> ProcessPlatform:
        """Return the best platform that this machine supports."""
        return cls(_select_table(), _has_pidfd())

    @property
    def limitations(self) -> list[str]:
        """Sentences on features that work less well here than on a current Linux."""
        missing = []
        if not self.has_pidfd:
            missing.append("No pidfd: toolspan polls for the end of processes every few milliseconds.")
        if not _has_procfs():
            missing.append("No /proc: the environment of some processes cannot be searched for the tag.")
        if sys.platform != "linux":
            missing.append("No subreaper: the system reaps the orphans of a command.")
        return missing


def become_subreaper() -> bool:
    """Have orphaned descendants reparented to this process; return False if that is not possible.

    Only for toolspan's own command-line processes: a library must not change which process reaps the children of its
    program.
    """
    return sys.platform == "linux" and _call_prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1)) == 0


def is_subreaper() -> bool:
    """Return whether orphaned descendants are reparented to this process."""
    if sys.platform != "linux":
        return False
    value = ctypes.c_int(0)
    return _call_prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value)) == 0 and value.value == 1


def find_survivors(tag: str) -> list[int]:
    """Return the pids of all running processes that carry this tag."""
    return find_tagged(_select_table(), tag)


def _select_table() -> ProcessTable:
    return ProcFs() if _has_procfs() else PsutilTable()


def _has_procfs() -> bool:
    return sys.platform == "linux" and Path(f"/proc/{os.getpid()}/stat").exists()


def _has_pidfd() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        # Old kernels and some sandboxes lack the call; other errors are temporary.
        return error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL)
    return True


def _call_prctl(option: int, argument: object) -> int:
    zero = ctypes.c_ulong(0)
    result: int = ctypes.CDLL(None, use_errno=True).prctl(option, argument, zero, zero, zero)
    return result
