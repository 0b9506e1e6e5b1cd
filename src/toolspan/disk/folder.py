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
def opened(folder: Path) -> Iterator[int]:
    """The descriptor of a folder.

    Raises:
        ToolError: it is not there, may not be entered, or a link is in the way.
    """
    try:
        descriptor = _walked(folder)
    except OSError as error:
        raise fault(error, "open", folder) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _walked(folder: Path) -> int:
    here = os.open(folder.anchor, _STEP)
    for name in folder.parts[1:]:
        try:
            there = os.open(name, _STEP, dir_fd=here)
        finally:
            os.close(here)
        here = there
    return here


def force(folder: int) -> None:
    """Make what was renamed in it last; where folders cannot be forced, it lasts soon."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
