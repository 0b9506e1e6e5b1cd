"""User code around a call: where it is called, and what its answers mean together.

`points.py` has the values that go in and out, `callbacks.py` handlers that are functions.
"""

from toolspan.hooks.callbacks import Hooks
from toolspan.hooks.points import After, Before, Firing, NoHooks, Report

__all__ = ["After", "Before", "Firing", "Hooks", "NoHooks", "Report"]
