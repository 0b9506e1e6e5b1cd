"""Workers that keep the timeline of a session in memory between requests.

A worker is asked for the changes since a version, over the connection on which it was started, and ends with that
connection. At most two are kept, each for ten minutes after its last request.
"""

from __future__ import annotations

import asyncio
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

_MAX_WORKERS = 2
_IDLE_SECONDS = 600.0


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
        idle = [name for name, other in self._workers.items() if other is not worker and not other.lock.locked()]
        for name in idle[: max(0, len(self._workers) - _MAX_WORKERS)]:
            self._drop(name, self._workers[name])
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
        return answer

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
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

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
