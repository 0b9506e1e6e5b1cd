"""Paths as transcripts write them, brought into one form without looking at any disk.

In: a path and the folder it is relative to, of this system or of another one. Out: a path that is
equal for equal files, as far as words can tell: links are not known here.
"""

import ntpath
import posixpath
import re

_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def whole(path: str, folder: str | None) -> str:
    """The path from the root, without `.` and `..`; as it is where the folder is not known."""
    style = ntpath if _DRIVE.match(path) or _DRIVE.match(folder or "") else posixpath
    if folder and not path.startswith("~"):
        path = style.join(folder, path)
    return style.normpath(path) if path else path


def within(path: str, folder: str) -> bool:
    """Whether a path is the folder or below it."""
    bare = folder.rstrip("/\\")
    return path == bare or path.startswith((bare + "/", bare + "\\"))


def ends_with(path: str, tail: str) -> bool:
    """Whether the last parts of a path are these."""
    return path == tail or path.endswith(("/" + tail, "\\" + tail))


def spelled(path: str) -> str:
    """A path for a message: one that would play tricks on a terminal is shown as a literal."""
    return path if path.isprintable() else ascii(path)
