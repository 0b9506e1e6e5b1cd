"""The closed set of call states."""

from __future__ import annotations

from typing import Literal, get_args

State = Literal[
    "requested", "awaiting_permission", "running", "succeeded", "failed", "denied", "blocked_by_hook",
    "cancelled", "interrupted", "timed_out", "never_answered", "orphan_result",
]  # fmt: skip
"""The state of a call. Calls in the first three states have not ended; these occur only in running sessions."""

STATES: tuple[State, ...] = get_args(State)
OPEN_STATES: frozenset[State] = frozenset({"requested", "awaiting_permission", "running"})
UNSUCCESSFUL_STATES: frozenset[State] = frozenset(STATES) - OPEN_STATES - {"succeeded", "orphan_result"}
"""The states of calls that ended in any way other than success. An orphan result is not a call."""

STATE_MEANINGS: dict[State, str] = {
    "requested": "requested; nothing has happened yet",
    "awaiting_permission": "waits for permission",
    "running": "started, no result yet",
    "succeeded": "ran and reported no error",
    "failed": "ran and reported an error, or was refused as invalid",
    "denied": "refused by a user, rule, mode, classifier or limit",
    "blocked_by_hook": "refused by a hook",
    "cancelled": "never started, because something else ended it",
    "interrupted": "started, or may have, and was aborted by the user or host",
    "timed_out": "ended by a timer",
    "never_answered": "the transcript ends without a result",
    "orphan_result": "a result whose request is not in the transcript",
}

STATE_SYMBOLS: dict[State, str] = {
    "succeeded": "✓", "failed": "✗", "denied": "⊘", "blocked_by_hook": "⊘", "cancelled": "○", "interrupted": "■",
    "timed_out": "◷", "never_answered": "?", "orphan_result": "¿",
    "requested": "…", "awaiting_permission": "…", "running": "▸",
}  # fmt: skip
"""A symbol for each state, for lists of calls."""
