"""Run recorded calls again in a copy of their project, and compare the results.

Start at `Replay`; the command is `toolspan replay`. Replayed tools never write outside the copy,
but commands (`bash=True`) can.
"""

from __future__ import annotations

from toolspan.replay.plan import ReplayDifference, ReplayLimits, ReplayOutcome
from toolspan.replay.replay import Replay, ReplaySummary
from toolspan.replay.scratch import ScratchProject, open_scratch

__all__ = [
    "Replay",
    "ReplayDifference",
    "ReplayLimits",
    "ReplayOutcome",
    "ReplaySummary",
    "ScratchProject",
    "open_scratch",
]
