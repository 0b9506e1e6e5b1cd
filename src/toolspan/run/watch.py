"""Signs of life of running calls: progress, heartbeats, and word of those that take long.

In: jobs and the news their tools have. Out: events, at most ten a second for a call, its last news
always. Knows how long tools usually take (`expect.py`); owns no task: `batch.py` looks when it
waits.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from toolspan.model.live import LiveEvent, Progressed, Slow
from toolspan.run.desk import Job
from toolspan.run.expect import expected_seconds

HEARTBEAT = 30.0
"""Seconds between signs of life of a running call."""
PAUSE = 0.1
"""At most so often is a call's progress passed on."""


class Watch:
    """Tells of running calls."""

    def __init__(self, emit: Callable[[LiveEvent], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock

    def progress(self, job: Job, kind: str, data: Mapping[str, object]) -> None:
        """Pass news on; if others came just before, the latest waits for its turn or the end."""
        now = self._clock()
        news = Progressed(call_id=job.call.id, kind=kind, data=data, at=now)
        if now - job.told < PAUSE:
            job.news = news
            return
        job.told, job.news = now, None
        self._emit(news)

    def next_look(self, jobs: Iterable[Job]) -> float:
        """In how many seconds one of the calls is to be looked at."""
        due = min((_due(job) for job in jobs), default=math.inf)
        return max(0.01, due - self._clock())

    def look(self, jobs: Iterable[Job]) -> None:
        """Tell of the calls that it is time to tell of."""
        now = self._clock()
        for job in jobs:
            if _due(job) <= now:
                self._tell(job, now)

    def _tell(self, job: Job, now: float) -> None:
        started = _start(job)
        expected = expected_seconds(job.call.tool)
        if expected and not job.slow_told and now - started >= expected:
            job.slow_told = True
            slow = Slow(call_id=job.call.id, tool=job.call.tool, expected_s=expected, at=now)
            self._emit(slow)
        if job.news is not None:
            job.told, news, job.news = now, job.news, None
            self._emit(news)
        elif now - max(job.told, started) >= HEARTBEAT:
            job.told = now
            data = {"elapsed_s": round(now - started, 1)}
            self._emit(Progressed(call_id=job.call.id, kind="heartbeat", data=data, at=now))


def _due(job: Job) -> float:
    """When a running call is to be looked at next."""
    if job.news is not None:
        return job.told + PAUSE
    beat = max(job.told, _start(job)) + HEARTBEAT
    expected = expected_seconds(job.call.tool)
    return min(beat, _start(job) + expected) if expected and not job.slow_told else beat


def _start(job: Job) -> float:
    return job.started if job.started is not None else job.requested
