"""Which process has a file open, and which still is the one it was.

In: paths, or a process number. Out: process numbers. Looks only at processes that this user may
look at; what cannot be seen is not told.
"""

import os
import sys
from collections.abc import Iterable, Iterator

import psutil


def holders(paths: Iterable[str]) -> dict[str, int]:
    """The processes that have some of these files open, by file; our own is none of them."""
    wanted = {os.path.realpath(path): path for path in paths}
    found: dict[str, int] = {}
    for pid, held in _open_files() if wanted else ():
        path = wanted.get(held)
        if path is not None and pid != os.getpid():
            found.setdefault(path, pid)
    return found


def _open_files() -> Iterator[tuple[int, str]]:
    if sys.platform != "linux":
        for process in psutil.process_iter():
            try:
                yield from ((process.pid, one.path) for one in process.open_files())
            except (psutil.Error, OSError):
                continue
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - quicker, as in procfs.py
        if name.isdigit():
            yield from ((int(name), held) for held in _links(f"/proc/{name}/fd"))


def _links(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except OSError:
            continue


def is_running(pid: int, started: str | None = None) -> bool:
    """Whether this very process runs; `started` is what Linux tells of its beginning."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
    except (psutil.Error, OverflowError, ValueError):  # no process has such a number
        return False
    if started is None or sys.platform != "linux":
        return True
    from toolspan.process.procfs import ProcFs

    seen = ProcFs().one(pid)
    return seen is not None and str(int(seen.started)) == started
