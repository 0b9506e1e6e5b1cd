"""From a path as a model wrote it to a place on disk.

In: the text, the current folder, the home folder. Out: an absolute path; links are not followed,
so that texts name what was asked for. Also: which file may have been meant by one that is missing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolspan.disk.words import clean
from toolspan.errors import ToolError


def placed(path: str, cwd: Path, home: str | None = None) -> Path:
    """The absolute path; `~` is the home folder when one is given.

    Raises:
        ToolError: no file can have this name.
    """
    if not path:
        raise ToolError("The path is empty", kind="invalid_input")
    if "\0" in path:
        raise ToolError("The path has a null character in it, no file does", kind="invalid_input")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(
            f"The path {clean(path)!r} has half a character in it", kind="invalid_input"
        ) from None
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return Path(os.path.normpath(cwd / path))


def real(path: Path) -> Path:
    """What the path leads to when links are followed, as far as they can be."""
    return Path(os.path.realpath(path))


def lock_name(path: str) -> str:
    """One name for a file, however an absolute path spells it; for locks.

    Raises:
        ValueError: the path is not absolute, so its file is not known here.
    """
    if not Path(path).is_absolute():
        raise ValueError(path)
    return str(real(Path(path)))


def meant(path: Path) -> str | None:
    """The name of a file beside a missing one that differs only in what follows the stem."""
    return min(_same_stem(path), default=None)


def _same_stem(path: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name != path.name and Path(entry.name).stem == path.stem:
                yield clean(entry.name)
