"""Recorded calls, run again in a copy of their project, and compared.

`Replay` does it; the command line is `toolspan replay`. Nothing outside the copy is written by the
tools that are run here; what commands do (`bash=True`) is theirs.
"""

from __future__ import annotations

from toolspan.integrations.replay.compare import ReplayDifference, ReplayOutcome
from toolspan.integrations.replay.plan import ReplayLimits
from toolspan.integrations.replay.replay import Replay, ReplaySummary
from toolspan.integrations.replay.scratch import ScratchProject, open_scratch

__all__ = [
    "Replay",
    "ReplayDifference",
    "ReplayLimits",
    "ReplayOutcome",
    "ReplaySummary",
    "ScratchProject",
    "open_scratch",
]
