"""Run recorded calls again in a copy of their project, or decide on them again under other permissions.

Start at `Replay`; the command is `toolspan replay`. Replayed tools never write outside the copy,
but commands (`bash=True`) can. `CallDecider` and `suggest_rules` run nothing; they belong to `toolspan policy`.
"""

from __future__ import annotations

from toolspan.replay.decisions import CallDecider, DecidedCall
from toolspan.replay.plan import ReplayDifference, ReplayLimits, ReplayOutcome
from toolspan.replay.replay import Replay, ReplaySummary
from toolspan.replay.scratch import ScratchProject, open_scratch
from toolspan.replay.source import read_session
from toolspan.replay.suggest import RuleSuggestion, SuggestedRules, suggest_rules

__all__ = [
    "CallDecider",
    "DecidedCall",
    "Replay",
    "ReplayDifference",
    "ReplayLimits",
    "ReplayOutcome",
    "ReplaySummary",
    "RuleSuggestion",
    "ScratchProject",
    "SuggestedRules",
    "open_scratch",
    "read_session",
    "suggest_rules",
]
