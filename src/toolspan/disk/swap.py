"""A file's content replaced: all of it or nothing.

In: a path, bytes, and how the file looked when the bytes were made. The new content is written
beside the file, forced to disk and renamed over it, so that a full disk, a crash or a reader never
meets half of it. Mode, owner and attributes stay; a link stays a link, its target changes. A file
with several hard links is split from the others, as every such replacement does.

Links are followed once, at the beginning. From then on everything goes through the descriptor of
the folder (`folder.py`), so that nobody can lead a write elsewhere by putting a link in the way.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from toolspan.disk.faults import fault
from toolspan.disk.folder import force, opened
from toolspan.disk.load import Stamp
from toolspan.disk.words import clean
from toolspan.errors import ToolError

_CHANGED = "File has been unexpectedly modified. Read it again before attempting to write it."
_BY_RENAME = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS})
"""A folder that takes no new file, or a file that is mounted: then it is written where it is."""


def swap(path: Path, data: bytes, expected: Stamp | None, end: Path | None = None) -> Stamp:
    """Give the file this content; missing folders are made.

    Args:
        path: The file; links are followed.
        data: All of its new content.
        expected: How it looked when it was read; None: there was no file.
        end: What the path is known to lead to: nothing is followed any more.

    Raises:
        ToolError: it could not be written, or is not what was expected; nothing has changed.
    """
    found = _target(path)
    target = end or found
    with opened(target.parent, make=expected is None) as folder:
        file = _File(folder, target)
        current = _checked(file, expected)
        try:
            stamp = _renamed(file, data, current, expected)
        except OSError as error:
            if current is None or error.errno not in _BY_RENAME:
                raise fault(error, "write", path) from error
            stamp = _in_place(file, data)
        force(folder)
    return stamp


class _File(NamedTuple):
    """A file by its folder's descriptor and its own name."""

    folder: int
    path: Path
    """For texts only."""

    @property
    def name(self) -> str:
        return self.path.name


def make_folders(folder: Path) -> None:
    """Make a folder and those above it.

    Raises:
        ToolError: one could not be made; its name is in the text.
    """
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for one in reversed(missing):
        try:
            one.mkdir(exist_ok=True)
        except OSError as error:
            raise fault(error, "mkdir", one) from error


def _target(path: Path) -> Path:
    """What a link leads to, so that the link itself is not replaced."""
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise fault(error, "open", path) from error


def _checked(file: _File, expected: Stamp | None) -> os.stat_result | None:
    try:
        found = os.stat(file.name, dir_fd=file.folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise fault(error, "stat", file.path) from error
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{clean(str(file.path))} is not a regular file", kind="invalid_input")
    if (None if found is None else Stamp.of(found)) != expected:
        raise ToolError(_CHANGED, kind="stale_file")
    return found


def _renamed(
    file: _File, data: bytes, current: os.stat_result | None, expected: Stamp | None
) -> Stamp:
    folder = file.folder
    with _beside(folder) as (temporary, descriptor):
        _write_all(descriptor, data)
        if current is not None:
            _dress(descriptor, file, current)
        os.fsync(descriptor)
        _checked(file, expected)  # writing took time; somebody may have been faster
        if current is None:
            _put_new(temporary, file)
        else:
            os.replace(temporary, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        return Stamp.of(os.fstat(descriptor))


@contextmanager
def _beside(folder: int) -> Iterator[tuple[str, int]]:
    """A new file in the folder, gone at the end unless it was renamed."""
    temporary = f".toolspan-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        yield temporary, descriptor
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _put_new(temporary: str, file: _File) -> None:
    """Give the new file its name, unless somebody else took it in the meantime."""
    folder = file.folder
    try:
        os.link(temporary, file.name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise ToolError(_CHANGED, kind="stale_file") from None
    except OSError:  # a file system without links
        os.replace(temporary, file.name, src_dir_fd=folder, dst_dir_fd=folder)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _dress(descriptor: int, file: _File, current: os.stat_result) -> None:
    """Owner, mode and attributes of the old file; owner first, since changing it clears bits."""
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (current.st_uid, current.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, current.st_uid, current.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(current.st_mode))
    if hasattr(os, "listxattr"):
        with suppress(OSError), _existing(file, os.O_RDONLY) as old:
            for name in os.listxattr(old):
                os.setxattr(descriptor, name, os.getxattr(old, name))


@contextmanager
def _existing(file: _File, flags: int) -> Iterator[int]:
    descriptor = os.open(file.name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=file.folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _in_place(file: _File, data: bytes) -> Stamp:
    """Write over the content; when that fails, put the old one back."""
    try:
        with _existing(file, os.O_RDONLY) as reading, os.fdopen(os.dup(reading), "rb") as stream:
            old = stream.read()
        with _existing(file, os.O_WRONLY) as descriptor:
            _overwrite_or_restore(descriptor, data, old, file)
            return Stamp.of(os.fstat(descriptor))
    except OSError as error:
        raise fault(error, "open", file.path) from error


def _overwrite_or_restore(descriptor: int, data: bytes, old: bytes, file: _File) -> None:
    try:
        _overwrite(descriptor, data)
    except OSError as error:
        with suppress(OSError):
            _overwrite(descriptor, old)
        raise fault(error, "write", file.path) from error


def _overwrite(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)
