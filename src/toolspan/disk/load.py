"""The bytes of a file, read without surprises.

In: a path and how much may be read. Out: bytes with their digest and the file's stamp, or a
`ToolError`. Never waits for a pipe or a device, and looks at the size before it reads: a sparse
file of a terabyte costs nothing. Blocking; tools call it in a worker thread.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolspan.disk.faults import fault
from toolspan.disk.words import clean, size_text
from toolspan.errors import ToolError

CHUNK = 1 << 20
LARGEST = 1 << 30
"""What is ever read of one file, to count its lines or to change it."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Stamp:
    """How a file looked from outside when it was read: cheap to compare, easy to outwit."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        """The stamp in what `stat` tells."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file's whole content."""

    data: bytes
    digest: str
    stamp: Stamp


class Fingerprint:
    """The digest of bytes that come in pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self._hash.update(data)

    def text(self) -> str:
        """The digest of all pieces so far."""
        return self._hash.hexdigest()


def fingerprint(data: bytes) -> str:
    """The digest of a whole content."""
    whole = Fingerprint()
    whole.add(data)
    return whole.text()


def look(path: Path) -> os.stat_result | None:
    """What is at the path, links followed; None when there is nothing.

    Raises:
        ToolError: it cannot be told, say for a folder that may not be entered.
    """
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            return None
        raise fault(error, "stat", path) from error


def is_plain(found: os.stat_result) -> bool:
    """Whether reading it ends: a regular file, or the device that is always empty."""
    return stat.S_ISREG(found.st_mode) or _is_null(found)


def _is_null(found: os.stat_result) -> bool:
    if not stat.S_ISCHR(found.st_mode):
        return False
    try:
        return found.st_rdev == Path(os.devnull).stat().st_rdev
    except OSError:
        return False


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The file, open for reading; only plain files are let through.

    Raises:
        ToolError: it is missing, no plain file, or may not be read.
    """
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise fault(error, "open", path) from error
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise fault(IsADirectoryError(errno.EISDIR, ""), "read", path)
        if not is_plain(found):
            raise ToolError(f"{clean(str(path))} is not a regular file", kind="invalid_input")
        yield descriptor
    except OSError as error:
        raise fault(error, "read", path) from error
    finally:
        os.close(descriptor)


def load(path: Path, most: int = LARGEST) -> Loaded:
    """The whole content.

    Raises:
        ToolError: it cannot be read, or has more than `most` bytes.
    """
    with opened(path) as descriptor:
        before = os.fstat(descriptor)
        data = b"".join(pieces(descriptor, path, most))
    return Loaded(data, fingerprint(data), Stamp.of(before))


def pieces(descriptor: int, path: Path, most: int, chunk: int = CHUNK) -> Iterator[bytes]:
    """What an open file holds, piece by piece.

    Raises:
        ToolError: it has more than `most` bytes.
    """
    size = os.fstat(descriptor).st_size
    if size > most:
        raise _too_large(path, size, most)
    size = 0
    while piece := os.read(descriptor, chunk):
        size += len(piece)
        if size > most:  # it grows, or is of a kind that does not tell its size
            raise _too_large(path, size, most)
        yield piece


def _too_large(path: Path, size: int, most: int) -> ToolError:
    return ToolError(
        f"{clean(str(path))} is too large to be read: it has {size_text(size)},"
        f" the most is {size_text(most)}",
        kind="too_large",
    )
