"""Child processes: start them, capture their output, and terminate them with all their descendants.

Start at `supervisor.py` (the owner of child processes), then `spawn.py` (starting), `tree.py` (finding descendants)
and `kill.py` (terminating).
"""

from __future__ import annotations

from toolspan.runtime.process.kill import TerminationError
from toolspan.runtime.process.output import Capture, Spill
from toolspan.runtime.process.spawn import Command, ExitStatus, StartError
from toolspan.runtime.process.supervisor import GRACE, ChildProcess, ProcessSupervisor, start_process
from toolspan.runtime.process.tree import ProcessPlatform, become_subreaper, find_survivors, is_subreaper

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
