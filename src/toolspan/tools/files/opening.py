"""Open files and folders by a path whose links are already resolved.

Permission is decided on a resolved path. A background command may replace a folder in it with a link afterwards, so
nothing is resolved a second time: each part is opened relative to the descriptor of its folder, without following
links, and from then on only descriptors are used.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.tools.files.paths import replace_surrogates, wrap_os_error

_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(folder: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder without following links. With `make`, create it and its parents.

    Raise ToolError if the folder is missing or cannot be entered or created, or part of the path is a link.
    """
    try:
        descriptor = _walk(folder, make=make)
    except OSError as error:
        raise wrap_os_error(error, "open", folder) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_resolved(path: Path, flags: int) -> int:
    """Open an existing file or folder without following links. The caller closes the descriptor.

    The links in `/proc` differ between processes and cannot be resolved in advance, so they are followed.

    Raises:
        ToolError: part of the path is a link now.
        OSError: the file is missing or cannot be opened.
    """
    if path.parts[:2] == ("/", "proc") or path == path.parent:
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        folder = _walk(path.parent)
        try:
            descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # O_PATH opens the link itself
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return descriptor
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and any(map(os.path.islink, (path, *path.parents))):
            message = f"Refusing to open {path}: a part of this path became a link after permission was checked."
            raise ToolError(replace_surrogates(message), kind="permission_os") from error
        raise


def _walk(folder: Path, *, make: bool = False) -> int:
    descriptor = os.open(folder.anchor, _FOLDER_FLAGS)
    for at, name in enumerate(folder.parts[1:], 2):
        try:
            child = (
                _open_or_make_child(descriptor, name, Path(*folder.parts[:at]))
                if make
                else _open_child(descriptor, name)
            )
        finally:
            os.close(descriptor)
        descriptor = child
    return descriptor


def _open_child(parent: int, name: str) -> int:
    return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _open_or_make_child(parent: int, name: str, path: Path) -> int:
    with suppress(FileNotFoundError, NotADirectoryError):
        return _open_child(parent, name)
    try:
        os.mkdir(name, dir_fd=parent)
    except OSError as error:
        if isinstance(error, FileExistsError):  # another process created it, unless it is a file
            with suppress(NotADirectoryError):
                return _open_child(parent, name)
        raise wrap_os_error(error, "mkdir", path) from error
    return _open_child(parent, name)
