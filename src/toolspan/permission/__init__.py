"""May this call run? Rules and modes have opinions, `decide` weighs them, an approver answers.

Start at `decide.py`.
"""

from toolspan.permission.decide import Approver, Policy, decide
from toolspan.permission.modes import MODES, Mode, mode_policy
from toolspan.permission.rules import Rules

__all__ = ["MODES", "Approver", "Mode", "Policy", "Rules", "decide", "mode_policy"]
