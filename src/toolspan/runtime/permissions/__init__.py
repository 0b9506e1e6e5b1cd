"""May this call run? Rules and modes have opinions, `decide` weighs them, an approver answers.

Start at `decide.py`; `rules.py` and `modes.py` are the opinions, `line.py` judges command lines.
"""

from __future__ import annotations

from toolspan.runtime.permissions.decide import Approver, Policy, decide
from toolspan.runtime.permissions.modes import MODES, Mode, Permissions, PolicyStack, mode_policy
from toolspan.runtime.permissions.rules import Rules

__all__ = ["MODES", "Approver", "Mode", "Permissions", "Policy", "PolicyStack", "Rules", "decide", "mode_policy"]
