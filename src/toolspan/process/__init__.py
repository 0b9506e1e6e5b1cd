"""Custody of child processes: start them, hear them, end them with everything they started.

Start at `custody.py` (who owns children), then `child.py` (one child's life), `tree.py` (which
processes are its own) and `ending.py` (how they are ended).
"""

from toolspan.process.capture import Capture, Spill
from toolspan.process.child import GRACE, Child, start
from toolspan.process.command import Command, StartError
from toolspan.process.custody import Custody
from toolspan.process.ending import NotEnded
from toolspan.process.exits import Exit
from toolspan.process.system import System, become_subreaper, is_subreaper, survivors

__all__ = [
    "GRACE",
    "Capture",
    "Child",
    "Command",
    "Custody",
    "Exit",
    "NotEnded",
    "Spill",
    "StartError",
    "System",
    "become_subreaper",
    "is_subreaper",
    "start",
    "survivors",
]
