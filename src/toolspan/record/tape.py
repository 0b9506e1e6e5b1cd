r"""The file at the end: lines go in whole, and what the disk does is told, never raised.

In: finished lines. Out: a growing file, whole lines in each `write()` on a descriptor that appends,
so that two writers never mix within a line. A line that could only be written in part is finished
if the disk lets us; if not, the next one begins with `\n`, so that one line is lost and not two.
Knows nothing of what lines say. Read `Tape.write` first.
"""

import errno
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from toolspan.record.claim import Owner, claim

OnFailure = Callable[[str], None]
"""Is told why a line could not be kept. Must not raise."""

_ABOVE = 3
"""So many folders above a transcript may have been made with it: projects, the project's, …"""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOCTTY", 0)


class Tape:
    """A file that only grows. Made when the first line comes, for its owner's eyes only."""

    def __init__(self, path: Path, on_failure: OnFailure) -> None:
        self.path = path
        self._on_failure = on_failure
        self._file: int | None = None
        self._torn = False
        """The file ends within a line."""
        self._owner: Owner | None = None
        self._nameless = False
        """The file is new: its name is not known to be on the disk."""

    def ready(self) -> bool:
        """Open the file if it is not; False when it was removed and begins anew."""
        if self._file is not None and os.fstat(self._file).st_nlink:
            return True
        removed = self._file is not None
        self.close()
        if removed:
            self._on_failure("the file was removed; what was written to it is lost")
        try:
            self._file = self._open()
        except OSError as error:
            self._on_failure(_told(error))
        return not removed

    @property
    def owner(self) -> Owner | None:
        """Who else writes to the file; known once it is open."""
        return self._owner

    def write(self, lines: Sequence[bytes], *, sync: bool = False) -> int:
        """Append lines, newlines included; how many of them are in the file, whole."""
        file = self._file
        if file is None:
            return 0
        data = b"".join(lines)
        written = self._append(file, b"\n" + data) - 1 if self._torn else self._append(file, data)
        kept = len(lines) if written == len(data) else _whole(lines, written)
        if sync and kept:
            self._sync(file)
        return kept

    def close(self) -> None:
        """Let the file go; a later line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        make_folder(self.path.parent)
        file = os.open(self.path, _FLAGS, 0o600)
        size = os.fstat(file).st_size
        self._nameless = not size
        self._owner = claim(file)
        self._torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        return file

    def _append(self, file: int, data: bytes) -> int:
        """How many bytes are in the file."""
        written = 0
        try:
            written = os.write(file, data)
            if written == len(data):
                self._torn = False
                return written
            while written < len(data):
                written += _write_some(file, data[written:])
        except OSError as error:
            self._on_failure(_told(error))
        if written:
            self._torn = not data.endswith(b"\n", 0, written)
        return written

    def _sync(self, file: int) -> None:
        try:
            os.fsync(file)
            if self._nameless:
                self._nameless = False
                force_folder(self.path.parent)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # what cannot be synced: pipes, …
                self._on_failure(_told(error))


def force_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder, and those of the folders above it.

    A file's content is of no use when its name is lost; folders above may be as new as the file.

    Raises:
        OSError: the disk does not let us.
    """
    for place in (folder, *folder.parents[:_ABOVE]):
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
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


def _whole(lines: Sequence[bytes], written: int) -> int:
    """How many lines so many bytes hold; the newline of the last may be missing."""
    ends = itertools.accumulate(map(len, lines))
    return sum(written >= end - 1 for end in ends)


def _write_some(file: int, data: bytes) -> int:
    written = os.write(file, data)
    if not written:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return written


def _told(error: OSError) -> str:
    return error.strerror or str(error)
