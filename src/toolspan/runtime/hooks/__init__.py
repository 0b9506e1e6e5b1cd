"""User code around a call and a session: where it is called, and what its answers mean together.

`points.py` has the values that go in and out. `callbacks.py` are handlers that are functions,
`fire.py` those of settings files, made by `make.py`; `joined.py` puts both together.
"""

from __future__ import annotations

from toolspan.runtime.hooks.callbacks import Hooks
from toolspan.runtime.hooks.events import HookEffects, HookRunner, NoHooks, PreToolDecision, SessionHookEvent
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.types.events import HookReport

__all__ = [
    "HookEffects",
    "HookReport",
    "HookRunner",
    "Hooks",
    "NoHooks",
    "PreToolDecision",
    "SessionHookEvent",
    "combine_hooks",
]
