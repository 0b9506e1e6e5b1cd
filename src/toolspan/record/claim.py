"""One writer for a transcript: who has it, and is that still so?

In: an open file. Out: nothing, and the file is ours until it is closed; or who has it. The lock is
the system's own, on the file itself: it ends with its process, so none is ever left behind, and
clients, which know nothing of it, are not disturbed. Where the system has no such locks, nobody is
ever in the way.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

if sys.platform != "win32":
    import fcntl

_LOCKS = Path("/proc/locks")
_INODE = 5
"""The word of a line that ends in the file's number; before it stands the process."""


class Owner(NamedTuple):
    """A process that has a file."""

    pid: int | None
    """None when the system does not tell."""

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid}"


def claim(file: int) -> Owner | None:
    """Take an open file for this process; who has it, when that is another one."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _holder(os.fstat(file))
        return None if pid == os.getpid() else Owner(pid)
    except OSError:  # a file system without locks
        return None
    return None


def _holder(found: os.stat_result) -> int | None:
    """Whose lock it is; lines are `1: FLOCK  ADVISORY  WRITE 4711 08:01:393217 0 EOF`."""
    end = f":{found.st_ino}"  # some file systems show another device there than to `stat`
    try:
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    pids = {
        int(words[4])
        for words in map(str.split, lines)
        if len(words) > _INODE and words[1] == "FLOCK" and words[_INODE].endswith(end)
    }
    return pids.pop() if len(pids) == 1 and min(pids) > 0 else None
