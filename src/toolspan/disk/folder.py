"""A folder held by its descriptor, so that what happens in it happens there and nowhere else.

In: a path without links in it. Out: a descriptor. The way there is walked step by step, and a link
that somebody has put in the way since ends the walk: a name that was checked stays what it was.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolspan.disk.faults import fault

_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """The descriptor of a folder; if so asked, it and those above it are made.

    Raises:
        ToolError: it is not there, may not be entered or made, or a link is in the way.
    """
    try:
        descriptor = _walked(folder, make=make)
    except OSError as error:
        raise fault(error, "open", folder) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _walked(folder: Path, *, make: bool) -> int:
    here = os.open(folder.anchor, _STEP)
    for at, name in enumerate(folder.parts[1:], 2):
        try:
            there = _entered(here, name, Path(*folder.parts[:at])) if make else _step(here, name)
        finally:
            os.close(here)
        here = there
    return here


def _step(here: int, name: str) -> int:
    return os.open(name, _STEP, dir_fd=here)


def _entered(here: int, name: str, path: Path) -> int:
    """The next folder on the way, made when it is not there; `path` is for texts only."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return _step(here, name)
    try:
        os.mkdir(name, dir_fd=here)
    except FileExistsError as error:
        with suppress(NotADirectoryError):
            return _step(here, name)  # somebody else was faster
        raise fault(error, "mkdir", path) from error
    except OSError as error:
        raise fault(error, "mkdir", path) from error
    return _step(here, name)


def force(folder: int) -> None:
    """Make what was renamed in it last; where folders cannot be forced, it lasts soon."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
