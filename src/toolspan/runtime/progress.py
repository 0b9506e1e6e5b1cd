"""Signs of life of running calls: progress, heartbeats, and word of those that take long.

In: jobs and the news their tools have. Out: events, at most ten a second for a call, its last news
always. Knows how long tools usually take (`expect.py`); owns no task: `batch.py` looks when it
waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from toolspan.runtime.pending_call import PendingCall
from toolspan.types.events import LiveEvent, Progressed, Slow

_IMMEDIATE_SECONDS = 2.0
_FAST_SECONDS = 5.0

_SLOW_AFTER_SECONDS: dict[str, float] = {
    "Glob": _FAST_SECONDS,
    "Grep": _FAST_SECONDS,
    "LS": _IMMEDIATE_SECONDS,
    "Read": _IMMEDIATE_SECONDS,
    "TodoRead": _IMMEDIATE_SECONDS,
    "TodoWrite": _IMMEDIATE_SECONDS,
    "Edit": _FAST_SECONDS,
    "MultiEdit": _FAST_SECONDS,
    "NotebookEdit": _FAST_SECONDS,
    "Write": _FAST_SECONDS,
    "WebFetch": 30.0,
    "WebSearch": 30.0,
}


def expected_seconds(tool: str) -> float | None:
    """After how many seconds a call of this tool is slow; None where anything is usual."""
    return _SLOW_AFTER_SECONDS.get(tool)


HEARTBEAT_SECONDS = 30.0
"""Seconds between signs of life of a running call."""
PROGRESS_INTERVAL = 0.1
"""At most so often is a call's progress passed on."""


class ProgressReporter:
    """Tells of running calls."""

    def __init__(self, emit: Callable[[LiveEvent], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock

    def report_progress(self, pending: PendingCall, kind: str, data: Mapping[str, object]) -> None:
        """Pass news on; if others came just before, the latest waits for its turn or the end."""
        now = self._clock()
        event = Progressed(call_id=pending.call.id, kind=kind, data=data, at=now)
        if now - pending.progress_sent_at < PROGRESS_INTERVAL:
            pending.held_progress = event
            return
        pending.progress_sent_at, pending.held_progress = now, None
        self._emit(event)

    def seconds_until_due(self, pending_calls: Iterable[PendingCall]) -> float:
        """In how many seconds one of the calls is to be looked at."""
        due = min((_next_due(pending) for pending in pending_calls), default=math.inf)
        return max(0.01, due - self._clock())

    def report_due_calls(self, pending_calls: Iterable[PendingCall]) -> None:
        """Tell of the calls that it is time to tell of."""
        now = self._clock()
        for pending in pending_calls:
            if _next_due(pending) <= now:
                self._report_call(pending, now)

    def _report_call(self, pending: PendingCall, now: float) -> None:
        started = _start_time(pending)
        expected = expected_seconds(pending.call.tool)
        if expected and not pending.slow_reported and now - started >= expected:
            pending.slow_reported = True
            slow = Slow(call_id=pending.call.id, tool=pending.call.tool, expected_s=expected, at=now)
            self._emit(slow)
        if pending.held_progress is not None:
            pending.progress_sent_at, event, pending.held_progress = (now, pending.held_progress, None)
            self._emit(event)
        elif now - max(pending.progress_sent_at, started) >= HEARTBEAT_SECONDS:
            pending.progress_sent_at = now
            data = {"elapsed_s": round(now - started, 1)}
            self._emit(Progressed(call_id=pending.call.id, kind="heartbeat", data=data, at=now))


def _next_due(pending: PendingCall) -> float:
    """When a running call is to be looked at next."""
    if pending.held_progress is not None:
        return pending.progress_sent_at + PROGRESS_INTERVAL
    beat = max(pending.progress_sent_at, _start_time(pending)) + HEARTBEAT_SECONDS
    expected = expected_seconds(pending.call.tool)
    return min(beat, _start_time(pending) + expected) if expected and not pending.slow_reported else beat


def _start_time(pending: PendingCall) -> float:
    return pending.started_at if pending.started_at is not None else pending.requested_at
