"""Replace or delete a file, completely or not at all.

`atomic_replace` writes the new content to a temporary file, syncs it and renames it, so that a full
disk or a crash never leaves a partial file and readers never see one. Mode, owner and attributes
are preserved. A symbolic link is kept and its target is replaced. If a file has several hard links,
only one is replaced.

Links are resolved once, at the start. From then on all operations use the folder's descriptor, so
that a link created later cannot redirect the write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from toolspan.errors import ToolError
from toolspan.tools.files.opening import open_folder
from toolspan.tools.files.paths import replace_surrogates, wrap_os_error
from toolspan.tools.files.safe_read import FileVersion

_TEMPORARY_NAME = re.compile(r"\.toolspan-(?P<pid>\d{1,9})-[0-9a-f]{16}")
_MAX_WRITE_SECONDS = 60.0
"""The age at which a temporary file without a lock is stale even if a process with its pid exists."""


def fsync_folder(folder: int) -> None:
    """Make renames in a folder durable, if the file system supports that."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


MODIFIED_MESSAGE = "File has been unexpectedly modified. Read it again before attempting to write it."
_DISK_ERRORS = frozenset({errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
_RENAME_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS})
"""Rename errors after which the file is written in place: the folder does not accept new files, or the file is a
mount point.
"""


def atomic_replace(
    path: Path,
    data: bytes,
    expected: FileVersion | None,
    known_target: Path | None = None,
    *,
    replaces_link: bool = False,
) -> FileVersion:
    """Replace the content of a file, creating missing folders.

    Args:
        path: The file. Links are followed.
        data: The complete new content.
        expected: The version that was read, or None if the file did not exist.
        known_target: The resolved target of the path, if known. Links are then not followed.
        replaces_link: True to replace the target itself if it is a link.

    Raises:
        ToolError: the file cannot be written or does not match `expected`. Nothing has changed.
    """
    try:
        resolved = os.path.realpath(path, strict=True)
    except FileNotFoundError:
        resolved = os.path.realpath(path)
    except OSError as error:
        if not replaces_link:
            raise wrap_os_error(error, "open", path) from error
        resolved = str(path)
    target = known_target or Path(resolved)
    with open_folder(target.parent, make=expected is None) as folder:
        file = _FileInFolder(folder, target, replaces_link)
        current = file.check_unchanged(expected)
        try:
            version = _replace_by_rename(file, data, current, expected)
        except OSError as error:
            if current is None or error.errno not in _RENAME_REFUSED:
                operation = "write" if error.errno in _DISK_ERRORS else "open"
                raise wrap_os_error(error, operation, path) from error
            version = _write_in_place(file, data)
        fsync_folder(folder)
    return version


class _FileInFolder(NamedTuple):
    """A file, identified by its name and its folder's descriptor. The rest of the path is for error messages."""

    folder: int
    path: Path
    replaces_link: bool = False
    """True to treat a link in place of the file as absent."""

    def check_unchanged(self, expected: FileVersion | None) -> os.stat_result | None:
        try:
            stat_result = os.stat(self.path.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            stat_result = None
        except OSError as error:
            raise wrap_os_error(error, "stat", self.path) from error
        if stat_result is not None and self.replaces_link and stat.S_ISLNK(stat_result.st_mode):
            stat_result = None
        if stat_result is not None and not stat.S_ISREG(stat_result.st_mode):
            raise ToolError(f"{replace_surrogates(str(self.path))} is not a regular file", kind="invalid_input")
        if (None if stat_result is None else FileVersion.from_stat(stat_result)) != expected:
            raise ToolError(MODIFIED_MESSAGE, kind="stale_file")
        return stat_result

    @contextmanager
    def open(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self.path.name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _replace_by_rename(
    file: _FileInFolder, data: bytes, current: os.stat_result | None, expected: FileVersion | None
) -> FileVersion:
    folder, name = file.folder, file.path.name
    temporary = f".toolspan-{os.getpid()}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(descriptor, data)
        if current is not None:
            _copy_attributes(descriptor, file, current)
        os.fsync(descriptor)
        file.check_unchanged(expected)  # the file may have changed while the new content was being written
        if current is None and not file.replaces_link:
            _rename_without_overwriting(temporary, name, folder)
        else:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return FileVersion.from_stat(os.fstat(descriptor))
    except FileExistsError:
        raise ToolError(MODIFIED_MESSAGE, kind="stale_file") from None
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents. Raise ToolError if a folder cannot be created. The message contains its path."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise wrap_os_error(error, "mkdir", path) from error


def remove_stale_temporaries(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder. Never raises.

    A file is stale if no process holds its lock and the process in its name has ended. The pid may have been reused,
    so it protects only a file that is being created.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _TEMPORARY_NAME.fullmatch(entry.name)]
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            _remove_if_stale(folder / name)


def _remove_if_stale(path: Path) -> None:
    status, match = path.lstat(), _TEMPORARY_NAME.fullmatch(path.name)
    if match is None or not stat.S_ISREG(status.st_mode):
        return
    if psutil.pid_exists(int(match["pid"])) and time.time() - status.st_mtime < _MAX_WRITE_SECONDS:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if another process holds the lock
        path.unlink()
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy_attributes(descriptor: int, file: _FileInFolder, current: os.stat_result) -> None:
    """Copy the old file's owner, mode and attributes, the owner first because changing it clears mode bits."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (current.st_uid, current.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, current.st_uid, current.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(current.st_mode))
    if hasattr(os, "listxattr"):
        with suppress(OSError), file.open(os.O_RDONLY) as old:
            for name in os.listxattr(old):
                os.setxattr(descriptor, name, os.getxattr(old, name))


def _write_in_place(file: _FileInFolder, data: bytes) -> FileVersion:
    """Overwrite the content, restoring the old content if that fails."""
    try:
        with file.open(os.O_RDONLY) as reading, os.fdopen(os.dup(reading), "rb") as stream:
            old = stream.read()
        with file.open(os.O_WRONLY) as descriptor:
            try:
                _overwrite_content(descriptor, data)
            except OSError as error:
                with suppress(OSError):
                    _overwrite_content(descriptor, old)
                raise wrap_os_error(error, "write", file.path) from error
            return FileVersion.from_stat(os.fstat(descriptor))
    except OSError as error:
        raise wrap_os_error(error, "open", file.path) from error


def _overwrite_content(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def safe_delete(path: Path, expected: FileVersion, backup_name: str | None) -> None:
    """Delete a file, or rename it.

    Args:
        path: The file, without links in the path.
        expected: The version that was read.
        backup_name: The new name in the same folder, or None to delete the file.

    Raises:
        ToolError: the file cannot be deleted or does not match `expected`. Nothing has changed.
    """
    with open_folder(path.parent) as folder:
        try:
            stat_result = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(stat_result.st_mode):
                raise ToolError(f"{replace_surrogates(str(path))} is a link; remove it yourself", kind="invalid_input")
            if FileVersion.from_stat(stat_result) != expected:
                raise ToolError(f"{replace_surrogates(str(path))} changed in the meantime", kind="stale_file")
            if backup_name is None:
                os.unlink(path.name, dir_fd=folder)
            else:
                _rename_without_overwriting(path.name, backup_name, folder)
        except OSError as error:
            raise wrap_os_error(error, "remove", path) from error
        fsync_folder(folder)


def _rename_without_overwriting(name: str, new_name: str, folder: int) -> None:
    try:
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
