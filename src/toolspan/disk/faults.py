"""Errors of the operating system in the words that clients use.

In: an `OSError`, what was being done, to which path. Out: a `ToolError` to raise.
"""

import errno
import os

from toolspan.disk.words import clean
from toolspan.errors import ToolError
from toolspan.model.kind import ErrorKind

_WORDS = {
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
_KINDS: dict[int, ErrorKind] = {
    errno.EACCES: "permission_os",
    errno.EPERM: "permission_os",
    errno.EROFS: "permission_os",
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EISDIR: "is_directory",
}


def fault(error: OSError, doing: str, path: str | os.PathLike[str]) -> ToolError:
    """The error as a client tells it: `EACCES: permission denied, open '/x'`."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "EUNKNOWN")
    words = _WORDS.get(number) or os.strerror(number).lower()
    place = clean(os.fspath(path))
    return ToolError(f"{name}: {words}, {doing} '{place}'", kind=_KINDS.get(number))
