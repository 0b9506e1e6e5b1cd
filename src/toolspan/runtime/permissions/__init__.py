"""Permission decisions: rules, modes and your own policies allow, ask or deny; an approver answers questions.

Start at `Permissions` in `modes.py`; `decide.py` combines the decisions of policies. `rules.py` matches rules,
`commands.py` checks command lines, and `paths.py` checks the files that they access.
"""

from __future__ import annotations

from toolspan.runtime.permissions.decide import Approver, Policy, decide
from toolspan.runtime.permissions.modes import MODES, Mode, Permissions, PolicyStack, mode_policy
from toolspan.runtime.permissions.rules import Rules

__all__ = ["MODES", "Approver", "Mode", "Permissions", "Policy", "PolicyStack", "Rules", "decide", "mode_policy"]
