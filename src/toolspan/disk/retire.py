"""A file taken out of its place, so that nothing is there afterwards.

In: a path and how the file looked when that was decided. The file is renamed beside itself, or
removed when nobody wants it kept. A link is refused: it would be gone, and its target still there.
"""

import os
import stat
from pathlib import Path

from toolspan.disk.faults import fault
from toolspan.disk.folder import force, opened
from toolspan.disk.load import Stamp
from toolspan.disk.words import clean
from toolspan.errors import ToolError


def retire(path: Path, expected: Stamp, kept_as: str | None) -> None:
    """Take a file away.

    Args:
        path: The file.
        expected: How it looked when it was read.
        kept_as: Its new name in the same folder; None: it is removed.

    Raises:
        ToolError: it could not be done, or the file is not what was expected; nothing has changed.
    """
    with opened(Path(os.path.realpath(path.parent))) as folder:
        try:
            _check(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False), expected)
            if kept_as is None:
                os.unlink(path.name, dir_fd=folder)
            else:
                _rename(path.name, kept_as, folder)
        except OSError as error:
            raise fault(error, "remove", path) from error
        force(folder)


def _rename(name: str, kept_as: str, folder: int) -> None:
    """By a link first, so that a file that has the new name is not replaced."""
    try:
        os.link(name, kept_as, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.rename(name, kept_as, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _check(path: Path, found: os.stat_result, expected: Stamp) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise ToolError(f"{clean(str(path))} is a link; remove it yourself", kind="invalid_input")
    if Stamp.of(found) != expected:
        raise ToolError(f"{clean(str(path))} changed in the meantime", kind="stale_file")
