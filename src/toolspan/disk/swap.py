"""A file's content replaced: all of it or nothing.

In: a path, bytes, and how the file looked when the bytes were made. The new content is written
beside the file, forced to disk and renamed over it, so that a full disk, a crash or a reader never
meets half of it. Mode, owner and attributes stay; a link stays a link, its target changes. A file
with several hard links is split from the others, as every such replacement does.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolspan.disk.faults import fault
from toolspan.disk.load import Stamp
from toolspan.disk.words import clean
from toolspan.errors import ToolError

_CHANGED = "File has been unexpectedly modified. Read it again before attempting to write it."
_BY_RENAME = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS})
"""A folder that takes no new file, or a file that is mounted: then it is written where it is."""


def swap(path: Path, data: bytes, expected: Stamp | None) -> Stamp:
    """Give the file this content; missing folders are made.

    Args:
        path: The file; links are followed.
        data: All of its new content.
        expected: How it looked when it was read; None: there was no file.

    Raises:
        ToolError: it could not be written, or is not what was expected; nothing has changed.
    """
    target = _target(path)
    if expected is None:
        make_folders(target.parent)
    current = _checked(target, expected)
    try:
        stamp = _renamed(target, data, current, expected)
    except OSError as error:
        if current is None or error.errno not in _BY_RENAME:
            raise fault(error, "write", path) from error
        stamp = _in_place(target, data)
    _force(target.parent)
    return stamp


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


def _checked(target: Path, expected: Stamp | None) -> os.stat_result | None:
    try:
        found = target.stat()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise fault(error, "stat", target) from error
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{clean(str(target))} is not a regular file", kind="invalid_input")
    if (None if found is None else Stamp.of(found)) != expected:
        raise ToolError(_CHANGED, kind="stale_file")
    return found


def _renamed(
    target: Path, data: bytes, current: os.stat_result | None, expected: Stamp | None
) -> Stamp:
    with _beside(target) as (temporary, descriptor):
        _write_all(descriptor, data)
        if current is not None:
            _dress(descriptor, target, current)
        os.fsync(descriptor)
        _checked(target, expected)  # writing took time; somebody may have been faster
        if current is None:
            _put_new(temporary, target)
        else:
            temporary.replace(target)
        return Stamp.of(os.fstat(descriptor))


@contextmanager
def _beside(target: Path) -> Iterator[tuple[Path, int]]:
    """A new file in the same folder, gone at the end unless it was renamed."""
    temporary = target.parent / f".toolspan-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o666)
    try:
        yield temporary, descriptor
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            temporary.unlink()


def _put_new(temporary: Path, target: Path) -> None:
    """Give the new file its name, unless somebody else took it in the meantime."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise ToolError(_CHANGED, kind="stale_file") from None
    except OSError:  # a file system without links
        temporary.replace(target)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _dress(descriptor: int, target: Path, current: os.stat_result) -> None:
    """Owner, mode and attributes of the old file; owner first, since changing it clears bits."""
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (current.st_uid, current.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, current.st_uid, current.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(current.st_mode))
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(target):
                os.setxattr(descriptor, name, os.getxattr(target, name))


def _in_place(target: Path, data: bytes) -> Stamp:
    """Write over the content; when that fails, put the old one back."""
    try:
        old = target.read_bytes()
        descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise fault(error, "open", target) from error
    try:
        try:
            _overwrite(descriptor, data)
        except OSError as error:
            with suppress(OSError):
                _overwrite(descriptor, old)
            raise fault(error, "write", target) from error
        return Stamp.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def _force(folder: Path) -> None:
    """Make a rename last; where folders cannot be forced, it lasts soon."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
