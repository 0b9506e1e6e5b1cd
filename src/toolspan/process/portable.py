"""The process table of any other system, as psutil tells it.

Slower than /proc, and of other people's processes it may tell less: what is not told is left out.
"""

import os
from collections.abc import Mapping

import psutil

from toolspan.process.marks import VARIABLE, parts_of
from toolspan.process.table import Process


class PsutilTable:
    """The processes psutil lists."""

    def look(self) -> Mapping[int, Process]:
        """Every process that can be seen, by number."""
        found = (_seen(process) for process in psutil.process_iter())
        return {process.pid: process for process in found if process is not None}

    def one(self, pid: int) -> Process | None:
        """This process, or None when there is none of that number."""
        try:
            return _seen(psutil.Process(pid))
        except psutil.Error:
            return None

    def parts(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        try:
            value = psutil.Process(pid).environ().get(VARIABLE)
        except (psutil.Error, OSError):
            return frozenset()
        return parts_of(f"{VARIABLE}={value}".encode()) if value else frozenset()


def _seen(process: psutil.Process) -> Process | None:
    try:
        with process.oneshot():
            return Process(
                pid=process.pid,
                parent=process.ppid(),
                group=os.getpgid(process.pid),
                session=os.getsid(process.pid),
                started=process.create_time(),
                dead=process.status() == psutil.STATUS_ZOMBIE,
            )
    except (psutil.Error, OSError):
        return None
