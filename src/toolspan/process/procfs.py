"""The process table of Linux, read from /proc.

One small read per process: a look at a few hundred takes a few milliseconds.
"""

import os
from collections.abc import Mapping

from toolspan.process.marks import parts_of
from toolspan.process.table import Process

_STAT_BYTES = 1024
_ENVIRONMENT_CHUNK = 1 << 17
# Places in /proc/PID/stat, counted behind the name in parentheses; see proc(5).
_STATE, _PARENT, _GROUP, _SESSION, _THREADS, _STARTED = 0, 1, 2, 3, 17, 19


class ProcFs:
    """The processes listed in /proc."""

    def look(self) -> Mapping[int, Process]:
        """Every process that can be seen, by number."""
        found = (self.one(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - three times as fast
        return {process.pid: process for process in found if process is not None}

    def one(self, pid: int) -> Process | None:
        """This process, or None when there is none of that number."""
        try:
            text = _read(f"/proc/{pid}/stat", _STAT_BYTES)
        except OSError:
            return None
        # The name may hold spaces and parentheses; the last one closes it.
        field = text[text.rfind(b")") + 2 :].split()
        return Process(
            pid=pid,
            parent=int(field[_PARENT]),
            group=int(field[_GROUP]),
            session=int(field[_SESSION]),
            started=int(field[_STARTED]),
            # A process whose first thread ended looks like a zombie while its others still run.
            dead=field[_STATE] in b"ZX" and int(field[_THREADS]) <= 1,
        )

    def parts(self, pid: int) -> frozenset[str]:
        """The parts of the mark in its environment; empty when it has none or may not be read."""
        try:
            return parts_of(_read(f"/proc/{pid}/environ", _ENVIRONMENT_CHUNK))
        except OSError:
            return frozenset()


def _read(path: str, chunk: int) -> bytes:
    """The whole file; `open` would cost more than the read does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, chunk)
        while len(text) % chunk == 0 and (more := os.read(descriptor, chunk)):
            text += more
        return text
    finally:
        os.close(descriptor)
