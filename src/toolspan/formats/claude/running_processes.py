"""The list that Claude Code keeps of its running processes: one small file for each.

In: the client's folder. Out: what each file says. A file that is none of these, or half written, is
passed over. The client removes its file when it ends; one that is killed leaves it behind.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from msgspec import Struct, field

_MAX_FILE_SIZE = 1 << 16


class RunningProcess(Struct, frozen=True, kw_only=True):
    """One process of the client, as it says of itself."""

    pid: int
    session_id: str = field(name="sessionId")
    cwd: str | None = None
    version: str | None = None
    started_ms: float | None = field(default=None, name="startedAt")
    process_start: str | None = field(default=None, name="procStart")
    """When the process began, in the system's own unit: tells it from a later one of its number."""
    status: str | None = None
    """`busy`, `waiting` or `idle`; older clients do not say."""
    status_ms: float | None = field(default=None, name="statusUpdatedAt")
    waiting_for: str | None = field(default=None, name="waitingFor")


_PROCESS_DECODER = msgspec.json.Decoder(RunningProcess)


def list_running_processes(config: Path) -> list[RunningProcess]:
    """The processes that the client's folder lists, by number."""
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
            return _PROCESS_DECODER.decode(stream.read(_MAX_FILE_SIZE))
    except (OSError, RecursionError, ValueError, msgspec.MsgspecError):
        return None
