r"""The file at the end: lines go in whole, and what the disk does is told, never raised.

In: finished lines. Out: a growing file, whole lines in each `write()` on a descriptor that appends,
so that two writers never mix within a line. A line that could only be written in part is finished
if the disk lets us; if not, the next one begins with `\n`, so that one line is lost and not two.
Knows nothing of what lines say. Read `Tape.write` first.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

if sys.platform != "win32":
    import fcntl

_LOCKS = Path("/proc/locks")
_INODE_FIELD = 5
"""The word of a line that ends in the file's number; before it stands the process."""


class LockOwner(NamedTuple):
    """A process that has a file."""

    pid: int | None
    """None when the system does not tell."""

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid}"


def lock_file(file: int) -> LockOwner | None:
    """Take an open file for this process; who has it, when that is another one."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _lock_holder(os.fstat(file))
        return None if pid == os.getpid() else LockOwner(pid)
    except OSError:  # a file system without locks
        return None
    return None


def _lock_holder(file_stat: os.stat_result) -> int | None:
    """Whose lock it is; lines are `1: FLOCK  ADVISORY  WRITE 4711 08:01:393217 0 EOF`."""
    end = f":{file_stat.st_ino}"  # some file systems show another device there than to `stat`
    try:
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    pids = {
        int(fields[4])
        for fields in map(str.split, lines)
        if len(fields) > _INODE_FIELD and fields[1] == "FLOCK" and fields[_INODE_FIELD].endswith(end)
    }
    return pids.pop() if len(pids) == 1 and min(pids) > 0 else None


OnWriteFailure = Callable[[str], None]
"""Is told why a line could not be kept. Must not raise."""

_SYNCED_PARENTS = 3
"""So many folders above a transcript may have been made with it: projects, the project's, …"""
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOCTTY", 0)


class TranscriptWriter:
    """A file that only grows. Made when the first line comes, for its owner's eyes only."""

    def __init__(self, path: Path, on_failure: OnWriteFailure) -> None:
        self.path = path
        self._on_failure = on_failure
        self._descriptor: int | None = None
        self._ends_mid_line = False
        """The file ends within a line."""
        self._owner: LockOwner | None = None
        self._is_new = False
        """The file is new: its name is not known to be on the disk."""

    def ensure_open(self) -> bool:
        """Open the file if it is not; False when it was removed and begins anew."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink:
            return True
        removed = self._descriptor is not None
        self.close()
        if removed:
            self._on_failure("the file was removed; what was written to it is lost")
        try:
            self._descriptor = self._open_file()
        except OSError as error:
            self._on_failure(_os_error_text(error))
        return not removed

    @property
    def owner(self) -> LockOwner | None:
        """Who else writes to the file; known once it is open."""
        return self._owner

    def write_lines(self, lines: Sequence[bytes], *, sync: bool = False) -> int:
        """Append lines, newlines included; how many of them are in the file, whole."""
        file = self._descriptor
        if file is None:
            return 0
        data = b"".join(lines)
        written = self._append_bytes(file, b"\n" + data) - 1 if self._ends_mid_line else self._append_bytes(file, data)
        written_lines = len(lines) if written == len(data) else _count_whole_lines(lines, written)
        if sync and written_lines:
            self._sync_file(file)
        return written_lines

    def close(self) -> None:
        """Let the file go; a later line opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open_file(self) -> int:
        make_folder(self.path.parent)
        file = os.open(self.path, _OPEN_FLAGS, 0o600)
        size = os.fstat(file).st_size
        self._is_new = not size
        self._owner = lock_file(file)
        self._ends_mid_line = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        return file

    def _append_bytes(self, file: int, data: bytes) -> int:
        """How many bytes are in the file."""
        written = 0
        try:
            written = os.write(file, data)
            if written == len(data):
                self._ends_mid_line = False
                return written
            while written < len(data):
                written += _write_some(file, data[written:])
        except OSError as error:
            self._on_failure(_os_error_text(error))
        if written:
            self._ends_mid_line = not data.endswith(b"\n", 0, written)
        return written

    def _sync_file(self, file: int) -> None:
        try:
            os.fsync(file)
            if self._is_new:
                self._is_new = False
                sync_folder(self.path.parent)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # what cannot be synced: pipes, …
                self._on_failure(_os_error_text(error))


def sync_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder, and those of the folders above it.

    A file's content is of no use when its name is lost; folders above may be as new as the file.

    Raises:
        OSError: the disk does not let us.
    """
    for parent in (folder, *folder.parents[:_SYNCED_PARENTS]):
        descriptor = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each for its owner only.

    Raises:
        OSError: the disk does not let us.
    """
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _count_whole_lines(lines: Sequence[bytes], written: int) -> int:
    """How many lines so many bytes hold; the newline of the last may be missing."""
    ends = itertools.accumulate(map(len, lines))
    return sum(written >= end - 1 for end in ends)


def _write_some(file: int, data: bytes) -> int:
    written = os.write(file, data)
    if not written:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return written


def _os_error_text(error: OSError) -> str:
    return error.strerror or str(error)
