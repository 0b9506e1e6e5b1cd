"""Recorded calls, run again in a copy of their project, and compared.

`Replay` does it; the command line is `toolspan replay`. Nothing outside the copy is written by the
tools that are run here; what commands do (`bash=True`) is theirs.
"""

from toolspan.replay.outcome import Difference, Outcome
from toolspan.replay.plan import Limits
from toolspan.replay.replay import Replay, Summary
from toolspan.replay.scratch import Scratch, open_scratch

__all__ = ["Difference", "Limits", "Outcome", "Replay", "Scratch", "Summary", "open_scratch"]
