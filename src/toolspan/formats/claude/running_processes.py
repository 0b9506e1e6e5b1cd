"""Read Claude Code's list of its running processes: one small file for each.

Malformed and incomplete files are skipped. A client removes its file when it exits; a killed client
leaves it behind.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.formats.base import RunningProcess

_MAX_FILE_SIZE = 1 << 16


class _ProcessFile(Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    session_id: str
    cwd: str | None = None
    version: str | None = None
    started_at: float | None = None
    proc_start: str | None = None
    status: str | None = None
    status_updated_at: float | None = None
    waiting_for: str | None = None


_PROCESS_DECODER = msgspec.json.Decoder(_ProcessFile)


def list_running_processes(config: Path) -> list[RunningProcess]:
    """Return the processes listed in the client's folder, sorted by process id."""
    try:
        names = sorted(entry.name for entry in (config / "sessions").iterdir())
    except OSError:
        return []
    entries = (_read_entry(config / "sessions" / name) for name in names if name.endswith(".json"))
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.pid)


def _read_entry(path: Path) -> RunningProcess | None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - it is open already
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            listed = _PROCESS_DECODER.decode(stream.read(_MAX_FILE_SIZE))
    except (OSError, RecursionError, ValueError, msgspec.MsgspecError):
        return None
    return RunningProcess(
        pid=listed.pid,
        session_id=listed.session_id,
        cwd=listed.cwd,
        version=listed.version,
        started_ms=listed.started_at,
        process_start=listed.proc_start,
        status=listed.status,
        status_ms=listed.status_updated_at,
        waiting_for=listed.waiting_for,
    )
