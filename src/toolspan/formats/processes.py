"""Recognise a recorded process, so that another one with a reused id is not taken for it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

_START_TIME_FIELD = 19
"""Index of the start time in /proc/PID/stat, counted from the field after the process name."""


def host_name() -> str:
    """Return the name of this host, which `TOOLSPAN_HOST` overrides."""
    return os.environ.get("TOOLSPAN_HOST") or socket.gethostname()


def process_start(pid: int) -> str | None:
    """Return the start time of a process in the operating system's unit; None if it is not running or a zombie."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()  # the name may contain spaces
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[_START_TIME_FIELD].decode()
    import psutil  # type: ignore[unreachable]  # perf: rarely needed, and takes 20 ms

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except (psutil.Error, OverflowError, ValueError):  # no process has such an id
        return None


def is_running(pid: int, started: str | None = None) -> bool:
    """Return whether a process is running. On Linux, `started` is compared to detect a reused process id."""
    current = process_start(pid)
    return current is not None and (started is None or sys.platform != "linux" or current == started)
