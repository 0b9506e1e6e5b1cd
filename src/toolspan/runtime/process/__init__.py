"""Child processes: start them, capture their output, terminate them with everything they started.

Start at `supervisor.py` (who owns children), then `spawn.py` (starting one), `tree.py` (which processes belong to it)
and `kill.py` (how they are terminated).
"""

from __future__ import annotations

from toolspan.runtime.process.kill import TerminationError
from toolspan.runtime.process.output import Capture, Spill
from toolspan.runtime.process.platform import ProcessPlatform, become_subreaper, find_survivors, is_subreaper
from toolspan.runtime.process.spawn import Command, ExitStatus, StartError
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
