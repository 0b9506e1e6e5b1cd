"""Hooks: user code that runs around calls and sessions, and can decide, change or comment on them.

Start at `events.py` (hook points and responses). `callbacks.py` runs Python functions;
`configured.py` runs the handlers from settings files, which `load.py` builds.
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
