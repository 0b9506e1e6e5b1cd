"""Custody of child processes: start them, hear them, end them with everything they started.

Start at `custody.py` (who owns children), then `child.py` (one child's life), `tree.py` (which
processes are its own) and `ending.py` (how they are ended).
"""

from __future__ import annotations

from toolspan.runtime.process.command import Command, StartError
from toolspan.runtime.process.kill import TerminationError
from toolspan.runtime.process.output import Capture, Spill
from toolspan.runtime.process.platform import ProcessPlatform, become_subreaper, find_survivors, is_subreaper
from toolspan.runtime.process.spawn import ExitStatus
from toolspan.runtime.process.supervisor import GRACE, ChildProcess, ProcessSupervisor, start_process

__all__ = [
    "GRACE",
    "Capture",
    "ChildProcess",
    "Command",
    "ExitStatus",
    "ProcessPlatform",
    "ProcessSupervisor",
    "Spill",
    "StartError",
    "TerminationError",
    "become_subreaper",
    "find_survivors",
    "is_subreaper",
    "start_process",
]
