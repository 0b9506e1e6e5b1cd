"""How far a call got: the closed set of states and what each one means."""

from __future__ import annotations

from typing import Literal, get_args

State = Literal[
    "requested",
    "awaiting_permission",
    "running",
    "succeeded",
    "failed",
    "denied",
    "blocked_by_hook",
    "cancelled",
    "interrupted",
    "timed_out",
    "never_answered",
    "orphan_result",
]
"""How far a call got. The first three are open: only a session that goes on has them."""

STATES: tuple[State, ...] = get_args(State)
"""Every state."""
OPEN_STATES: frozenset[State] = frozenset({"requested", "awaiting_permission", "running"})
"""Those of calls that have not ended."""

STATE_MEANINGS: dict[State, str] = {
    "requested": "asked for; nothing has happened yet",
    "awaiting_permission": "waits for somebody's consent",
    "running": "started, no result yet",
    "succeeded": "ran and reported no error",
    "failed": "ran and reported an error, or was refused as invalid",
    "denied": "a person, rule, mode or classifier said no",
    "blocked_by_hook": "a hook said no",
    "cancelled": "never started, because something else ended it",
    "interrupted": "started, or may have, and was aborted by the user or host",
    "timed_out": "ended by a timer",
    "never_answered": "the transcript ends without a result",
    "orphan_result": "a result whose request is not in the transcript",
}
"""What each state means, in a few words."""

STATE_SYMBOLS: dict[State, str] = {
    "succeeded": "✓",
    "failed": "✗",
    "denied": "⊘",
    "blocked_by_hook": "⊘",
    "cancelled": "○",
    "interrupted": "■",
    "timed_out": "◷",
    "never_answered": "?",
    "orphan_result": "¿",
    "requested": "…",
    "awaiting_permission": "…",
    "running": "▸",
}
"""One character for each state, wherever calls are shown as lines."""
