"""From a path as a model wrote it to a place on disk.

In: the text, the current folder, the home folder. Out: an absolute path; links are not followed,
so that texts name what was asked for. Also: which file may have been meant by one that is missing.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from toolspan.errors import ToolError
from toolspan.types.error_kinds import ErrorKind

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SIZE_STEP = 1024
_SIZE_UNITS = ("KB", "MB", "GB", "TB")


def replace_surrogates(text: str) -> str:
    """The text without halves of characters, which no transcript can hold.

    They come from names with bytes that are no UTF-8, and from careless JSON.
    """
    return _LONE_SURROGATE.sub("\ufffd", text)


def format_size(count: int) -> str:
    """A number of bytes for people: `584.9KB`."""
    if count < _SIZE_STEP:
        return f"{count} bytes"
    power = min(int(math.log(count, _SIZE_STEP)), len(_SIZE_UNITS))
    return f"{count / _SIZE_STEP**power:.1f}".removesuffix(".0") + _SIZE_UNITS[power - 1]


def number_lines(lines: Iterable[str], first: int, style: Literal["tab", "arrow"]) -> str:
    """Lines with their numbers before them."""
    if style == "tab":
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, first))


def resolve_path(path: str, cwd: Path, home: str | None = None) -> Path:
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
            f"The path {replace_surrogates(path)!r} has half a character in it", kind="invalid_input"
        ) from None
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return Path(os.path.normpath(cwd / path))


def real_path(path: Path) -> Path:
    """What the path leads to when links are followed, as far as they can be."""
    return Path(os.path.realpath(path))


def lock_name(path: str) -> str:
    """One name for a file, however an absolute path spells it; for locks.

    Raises:
        ValueError: the path is not absolute, so its file is not known here.
    """
    if not Path(path).is_absolute():
        raise ValueError(path)
    return str(real_path(Path(path)))


def suggest_sibling(path: Path) -> str | None:
    """The name of a file beside a missing one that differs only in what follows the stem."""
    return min(_same_stem(path), default=None)


def _same_stem(path: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name != path.name and Path(entry.name).stem == path.stem:
                yield replace_surrogates(entry.name)


_OS_MESSAGES = {
    errno.EACCES: "permission denied",
    errno.EBUSY: "resource busy or locked",
    errno.EDQUOT: "disk quota exceeded",
    errno.EEXIST: "file already exists",
    errno.EFBIG: "file too large",
    errno.EIO: "i/o error",
    errno.EISDIR: "illegal operation on a directory",
    errno.ELOOP: "too many symbolic links encountered",
    errno.EMFILE: "too many open files",
    errno.ENAMETOOLONG: "name too long",
    errno.ENOENT: "no such file or directory",
    errno.ENOSPC: "no space left on device",
    errno.ENOTDIR: "not a directory",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "read-only file system",
    errno.ETXTBSY: "text file is busy",
}
_OS_ERROR_KINDS: dict[int, ErrorKind] = {
    errno.EACCES: "permission_os",
    errno.EPERM: "permission_os",
    errno.EROFS: "permission_os",
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EISDIR: "is_directory",
}


def os_error_message(error: OSError, operation: str, path: str | os.PathLike[str]) -> ToolError:
    """The error as a client tells it: `EACCES: permission denied, open '/x'`."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "EUNKNOWN")
    message = _OS_MESSAGES.get(number) or os.strerror(number).lower()
    path_text = replace_surrogates(os.fspath(path))
    return ToolError(f"{name}: {message}, {operation} '{path_text}'", kind=_OS_ERROR_KINDS.get(number))
