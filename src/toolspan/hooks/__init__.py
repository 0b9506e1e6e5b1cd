"""User code around a call and a session: where it is called, and what its answers mean together.

`points.py` has the values that go in and out. `callbacks.py` are handlers that are functions,
`fire.py` those of settings files, made by `make.py`; `joined.py` puts both together.
"""

from toolspan.hooks.callbacks import Hooks
from toolspan.hooks.joined import joined
from toolspan.hooks.points import After, Before, Firing, NoHooks, Occasion, Report

__all__ = ["After", "Before", "Firing", "Hooks", "NoHooks", "Occasion", "Report", "joined"]
