"""Open files and folders by a path whose links are already resolved.

Permission is decided on a resolved path. A background command may replace a folder in it with a link afterwards, so
nothing is resolved a second time: each part is opened relative to the descriptor of its folder, without following
links, and from then on only descriptors are used.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.tools.files.paths import replace_surrogates, wrap_os_error

_PATH_ONLY = getattr(os, "O_PATH", 0)
_FOLDER_FLAGS = _PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(folder: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder without following links. With `make`, create it and its parents.

    Raise ToolError if the folder is missing or cannot be entered or created, or part of the path is a link.
    """
    try:
        descriptor = _walk(folder.parts[1:], make=make)
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
    *folders, name = str(path).strip("/").split("/")
    if not name or [*folders, name][0] == "proc":
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        folder = _walk(folders)
        try:
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        if flags & _PATH_ONLY and stat.S_ISLNK(os.fstat(descriptor).st_mode):  # it opens the link itself
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return descriptor
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and any(map(os.path.islink, (path, *path.parents))):
            message = f"Refusing to open {path}: a part of this path became a link after permission was checked."
            raise ToolError(replace_surrogates(message), kind="permission_os") from error
        raise


def _walk(names: Sequence[str], *, make: bool = False) -> int:
    """Open a folder by the names on its way from the root."""
    descriptor = os.open("/", _FOLDER_FLAGS)
    for at, name in enumerate(names, 1):
        try:
            if make:
                child = _open_or_make_child(descriptor, name, Path("/", *names[:at]))
            else:
                child = _open_child(descriptor, name)
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
