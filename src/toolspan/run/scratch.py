"""Where a session without a record keeps what is too large for the conversation.

In: the system's folder for temporary files. Out: the path of a folder that is made when it is first
written to, below one that only its owner can enter. Results name files in it, which people and
models may read after the session has ended, so it is not removed then: folders that nothing was
written to for a week are, when a later session begins. Read `scratch_folder` first.
"""

import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

_KEPT_S = 7 * 24 * 3600.0
_PAUSE_S = 3600.0
"""How long nobody looks again for what can be removed."""
_MOST = 500
"""So many folders are removed at once; the next session goes on."""
_MARKER = ".swept"
_OURS = re.compile(r"[0-9a-f]{32}")


def scratch_folder() -> Path:
    """A folder of its own for one session; not made yet."""
    name = uuid.uuid4().hex
    place = Path(tempfile.gettempdir()).absolute()
    home = place / f"toolspan-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with suppress(OSError):  # who writes there tells why that cannot be
        if not _is_own(home):
            return place / f"toolspan-{name}"  # a name that nobody could have taken before
        _sweep(home)
    return home / name


def _is_own(home: Path) -> bool:
    """Make the folder for its owner only; False when it is somebody else's, or leads elsewhere."""
    with suppress(FileExistsError):
        home.mkdir(mode=0o700)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    if hasattr(os, "getuid"):
        if found.st_uid != os.getuid():
            return False
        if stat.S_IMODE(found.st_mode) & 0o077:
            home.chmod(0o700)
    return True


def _sweep(home: Path) -> None:
    """Remove what earlier sessions left, unless somebody has just done so.

    Raises:
        OSError: the disk does not let us.
    """
    now = time.time()
    marker = home / _MARKER
    if marker.exists() and abs(now - marker.stat().st_mtime) < _PAUSE_S:
        return
    marker.touch(mode=0o600)
    with os.scandir(home) as entries:
        old = [entry.path for entry in entries if _is_old(entry, now - _KEPT_S)]
    for path in old[:_MOST]:
        shutil.rmtree(path, ignore_errors=True)
    if len(old) > _MOST:
        marker.unlink(missing_ok=True)


def _is_old(entry: "os.DirEntry[str]", limit: float) -> bool:
    """Whether it is a session's folder, and nothing in it was written to since then."""
    if not _OURS.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    if entry.stat(follow_symlinks=False).st_mtime >= limit:
        return False
    return all(
        Path(folder, name).lstat().st_mtime < limit
        for folder, folders, files in os.walk(entry.path)
        for name in (*folders, *files)
    )
