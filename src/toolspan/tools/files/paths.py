"""Resolve the paths that models write, and format names, sizes, lines and OS errors as clients do."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from toolspan.errors import ToolError
from toolspan.types.error_kinds import ErrorKind

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SIZE_STEP = 1024
_SIZE_UNITS = ("KB", "MB", "GB", "TB")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which a transcript cannot contain, with U+FFFD.

    They come from file names that are not UTF-8 and from invalid JSON escapes.
    """
    return _LONE_SURROGATE.sub("\ufffd", text)


def format_size(count: int) -> str:
    """Format a number of bytes for display, such as `584.9KB`."""
    if count < _SIZE_STEP:
        return f"{count} bytes"
    power = min(int(math.log(count, _SIZE_STEP)), len(_SIZE_UNITS))
    return f"{count / _SIZE_STEP**power:.1f}".removesuffix(".0") + _SIZE_UNITS[power - 1]


def number_lines(lines: Iterable[str], first: int, style: Literal["tab", "arrow"]) -> str:
    """Prefix each line with its number."""
    if style == "tab":
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, first))


def resolve_path(path: str, cwd: Path, home: str | None = None) -> Path:
    """Return the absolute path without following links.

    If `home` is set, `~` is expanded. `..` is resolved by name, as permission rules do. An empty path is the current
    folder.

    Raise ToolError if `path` is not a valid path.
    """
    if "\0" in path:
        raise ToolError("The path contains a null character. Remove it and try again.", kind="invalid_input")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(
            f"The path {replace_surrogates(path)!r} contains an incomplete Unicode character", kind="invalid_input"
        ) from None
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return Path(os.path.normpath(cwd / path))


def real_path(path: Path) -> Path:
    """Resolve the links in a path as far as possible."""
    return Path(os.path.realpath(path))


def lock_name(path: str) -> str:
    """Return the canonical name of an absolute path, for use in locks. Raise ValueError if the path is not absolute."""
    if not Path(path).is_absolute():
        raise ValueError(path)
    return str(real_path(Path(path)))


def suggest_sibling(path: str, *, sort: bool) -> str | None:
    """Return the first file in the same folder with the stem of the missing file.

    For a path that is not normalized, this may be the file itself.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    itself = os.path.normpath(path) != path
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(folder or "/")  # noqa: PTH208 - a Path loses dots in the folder
    if sort:
        names.sort()
    matches = (entry for entry in names if (itself or entry != name) and Path(entry).stem == Path(name).stem)
    return next(map(replace_surrogates, matches), None)


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


def wrap_os_error(error: OSError, operation: str, path: str | os.PathLike[str]) -> ToolError:
    """Return a ToolError with a Node.js-style message such as `EACCES: permission denied, open '/x'`."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "EUNKNOWN")
    message = _OS_MESSAGES.get(number) or os.strerror(number).lower()
    path_text = replace_surrogates(os.fspath(path))
    return ToolError(f"{name}: {message}, {operation} '{path_text}'", kind=_OS_ERROR_KINDS.get(number))
