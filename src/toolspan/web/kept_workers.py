"""Workers that keep the timeline of a session in memory between requests.

A worker is asked for the changes since a version, over the connection on which it was started, and ends with that
connection. Workers stay for ten minutes after their last request, at most eight, and only as many as hold little enough
rows. One that was asked in the last minute, because its page is open, is never replaced: a worker that would be too
many ends with its answer, so that several open pages do not end each other's workers in turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from toolspan.web.worker import (
    FRAME_HEAD,
    Answer,
    Question,
    WorkerRequest,
    decode_answer,
    encode_frame,
    frame_length,
)

_MAX_WORKERS = 8
_MAX_BYTES = 12 << 20
"""The answers of all workers together, which grow with their memory: 12 MB stand for about 45,000 calls."""
_IDLE_SECONDS = 600.0
_ACTIVE_SECONDS = 60.0


class KeptWorkers:
    """The workers that stay, by their question."""

    def __init__(self, address: str) -> None:
        """Start workers at `address`, the socket of `start_workers`."""
        self._address = address
        self._workers: OrderedDict[Question, _Worker] = OrderedDict()

    async def ask(self, question: Question, version: str) -> Answer:
        """Return what changed since a version, from the worker for this question, which is started if needed."""
        worker = self._workers.get(question)
        if worker is None:
            worker = self._workers[question] = _Worker()
        self._workers.move_to_end(question)
        try:
            async with worker.lock:
                answer = await worker.ask(self._address, question, version)
        except (asyncio.IncompleteReadError, OSError):
            self._drop(question, worker)
            return Answer(error="the command ended without an answer", status=500)
        if answer.error is not None:
            self._drop(question, worker)
        else:
            worker.expire_later(lambda: self._drop(question, worker))
            self._limit(question, worker)
        return answer

    def _limit(self, question: Question, newest: _Worker) -> None:
        """End the workers that are too many: those without an open page, the oldest first, or else the newest."""
        others = [(name, worker) for name, worker in self._workers.items() if worker is not newest]
        for name, worker in others:
            if self._are_few():
                return
            if worker.is_idle:
                self._drop(name, worker)
        if others and not self._are_few() and not newest.lock.locked():
            self._drop(question, newest)

    def _are_few(self) -> bool:
        sizes = [worker.size for worker in self._workers.values()]
        return len(sizes) <= _MAX_WORKERS and sum(sizes) <= _MAX_BYTES

    def holds(self, question: Question) -> bool:
        """Return whether a worker for this question runs."""
        return question in self._workers

    def close(self) -> None:
        """End all workers."""
        for question, worker in list(self._workers.items()):
            self._drop(question, worker)

    def _drop(self, question: Question, worker: _Worker) -> None:
        if self._workers.get(question) is worker:
            del self._workers[question]
        worker.close()


class _Worker:
    """The connection to one worker."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.size = 0
        """The bytes of its largest answer, which is the whole timeline at first."""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = 0.0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """True if no page has asked for some time."""
        return not self.lock.locked() and time.monotonic() - self._asked_at > _ACTIVE_SECONDS

    async def ask(self, address: str, question: Question, version: str) -> Answer:
        """Send a version and return the answer."""
        if self._is_closed:
            raise OSError("the worker was replaced by others")
        if self._streams is None:
            reader, writer = self._streams = await asyncio.open_unix_connection(address)
            writer.write(encode_frame(msgspec.msgpack.encode(WorkerRequest(question, stays=True))))
        reader, writer = self._streams
        writer.write(encode_frame(version.encode()))
        length = frame_length(await reader.readexactly(FRAME_HEAD))
        self._asked_at = time.monotonic()
        self.size = max(self.size, length)
        return decode_answer(await reader.readexactly(length))

    def expire_later(self, drop: Callable[[], None]) -> None:
        """Call `drop` after some time without a question."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, drop)

    def close(self) -> None:
        """End the worker."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._streams is not None:
            self._streams[1].close()
