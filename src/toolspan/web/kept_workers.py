"""Workers that keep the timeline of a session in memory between requests.

The server requests the changes since a version over the connection with which it started the worker. The worker ends
when that connection is closed: ten minutes after its last request, or if there are more than eight workers, or if
their answers together are too large. A worker with a request in the last minute, whose page is open, is never ended in
favour of another. Instead, the newest worker ends after its answer, so that open pages do not end each other's workers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from toolspan.web.questions import Answer, Question
from toolspan.web.worker import (
    FRAME_HEAD,
    WorkerRequest,
    ask_worker,
    decode_answer,
    encode_frame,
    frame_length,
)

_MAX_WORKERS = 8
_MAX_BYTES = 12 << 20
"""The limit for the largest answers of all workers together, a measure of their memory (about 45,000 calls)."""
_IDLE_SECONDS = 600.0
_ACTIVE_SECONDS = 60.0


class KeptWorkers:
    """The workers that keep running between requests, one for each question."""

    def __init__(self, address: str) -> None:
        """Start workers at `address`, the socket of `start_workers`."""
        self._address = address
        self._workers: OrderedDict[Question, _Worker] = OrderedDict()
        self._numbers = itertools.count(1)

    async def ask(self, question: Question, version: str) -> Answer:
        """Return the changes since a version from the worker for this question, which is started if needed."""
        worker = self._workers.get(question)
        if worker is None:
            worker = self._workers[question] = _Worker(f"{self._address}-{next(self._numbers)}")
        self._workers.move_to_end(question)
        try:
            async with worker.lock:
                answer = await worker.ask(self._address, question, version)
                worker.size = max(worker.size, sum(memoryview(row).nbytes for row in answer.rows))
        except (asyncio.IncompleteReadError, OSError):
            self._drop(question, worker)
            return Answer(error="the worker ended without an answer", status=500)
        if answer.error is not None:
            self._drop(question, worker)
        else:
            worker.expire_later(lambda: self._drop(question, worker))
            self._limit(question, worker)
        return answer

    def _limit(self, question: Question, newest: _Worker) -> None:
        """End workers until the limits are met: those without an open page, oldest first, and then the newest one."""
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

    async def answer_other(self, other: Question) -> Answer | None:
        """Return the answer to another question from a worker that has already read the files, or None.

        perf: any other worker would read a growing session of 100 MB again, or keep it in memory a second time.
        """
        if other.name == "usage":  # the page requests it together with the timeline, which is still being read
            for _, worker in self._find_readers(other):
                async with worker.lock:
                    pass
        entries = [entry for entry in self._find_readers(other) if entry[1].size]
        if not entries:
            return None
        worker = max((worker for _, worker in entries), key=lambda worker: worker.size)
        try:
            return await ask_worker(worker.address, WorkerRequest(other))
        except (asyncio.IncompleteReadError, OSError):  # it has ended
            return None

    def covers(self, other: Question) -> bool:
        """Return whether a worker has files that a question reads in memory."""
        return bool(self._find_readers(other))

    def _find_readers(self, other: Question) -> list[tuple[Question, _Worker]]:
        if (other.name, other.params) == ("sessions", (("live", "1"),)):
            return list(self._workers.items())
        if other.name != "usage" or other.get("session") is None:
            return []
        return [entry for entry in self._workers.items() if entry[0].get("session") == other.get("session")]

    def holds(self, question: Question) -> bool:
        """Return whether a worker for this question is running."""
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

    def __init__(self, address: str) -> None:
        """Create a worker that will also answer commands at the socket `address`. `ask` starts it."""
        self.address = address
        self.lock = asyncio.Lock()
        self.size = 0
        """The size of its largest answer in bytes. The first answer contains the whole timeline."""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = 0.0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """True if there has been no request in the last minute."""
        return not self.lock.locked() and time.monotonic() - self._asked_at > _ACTIVE_SECONDS

    async def ask(self, address: str, question: Question, version: str) -> Answer:
        """Send a version to the worker, which is started first if needed, and return the changes since then.

        Raises:
            OSError, asyncio.IncompleteReadError: the worker has ended.
        """
        if self._is_closed:
            raise OSError("the worker was replaced by others")
        if self._streams is None:
            reader, writer = self._streams = await asyncio.open_unix_connection(address)
            writer.write(encode_frame(msgspec.msgpack.encode(WorkerRequest(question, stays_at=self.address))))
        reader, writer = self._streams
        writer.write(encode_frame(version.encode()))
        length = frame_length(await reader.readexactly(FRAME_HEAD))
        self._asked_at = time.monotonic()
        return decode_answer(await reader.readexactly(length))

    def expire_later(self, drop: Callable[[], None]) -> None:
        """Call `drop` after ten minutes, unless this method is called again."""
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
        Path(self.address).unlink(missing_ok=True)
