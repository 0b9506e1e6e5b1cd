"""The worker processes of the server.

Workers are started from a small process that has imported the archive, so that starting one is fast and they share
memory. Each answers one question at a time. Questions about the archive go to the first worker that is free. One more
worker keeps the timelines of open pages, which must not wait for other questions. Start at `WorkerPool.ask`.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from msgspec.structs import replace

from toolspan.reading.parallel import count_cores
from toolspan.web.questions import Answer, Question, Share, WorkerRequest

_WORKER_MODULE = "toolspan.web.worker"
_MIN_WORKERS = 2
_IDLE_POLL_SECONDS = 1.0
_TOO_LONG = (
    "stopped after {:g} seconds of work; limit the question to a shorter period or a simpler search, or use --timeout"
)


def _run_worker(connection: Connection) -> None:
    """Run a worker in a new process. The server itself does not import what the workers need."""
    from toolspan.web.worker import run_worker

    run_worker(connection)


class WorkerPool:
    """The workers of one server."""

    def __init__(self) -> None:
        """Create workers that are started by `start`, or by their first question."""
        has_fork_server = "forkserver" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if has_fork_server else "spawn")
        context.set_forkserver_preload([_WORKER_MODULE])
        self._workers = [_Worker(context) for _ in range(max(_MIN_WORKERS, count_cores()))]
        self._timeline_worker = _Worker(context)
        self._timelines: set[str | None] = set()
        """The sessions whose timelines the last worker may keep."""
        self._adding_facts: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start all workers in the background. Call it in a folder without Python modules, which it would import."""
        threading.Thread(target=self._start_workers, daemon=True).start()

    def _start_workers(self) -> None:
        for worker in (*self._workers, self._timeline_worker):
            worker.start()

    async def ask(self, question: Question, growing: tuple[str, ...] = (), *, seconds: float | None = None) -> Answer:
        """Return the answer to a question. `growing` are the large files that are growing.

        If many files must be read first, all workers read a share of them into the cache. Computing the answer then
        ends after `seconds` with an error. If this is cancelled, the workers stop, too.
        """
        answer = await self._ask_worker(WorkerRequest(question, growing, seconds=seconds))
        if not answer.is_unread:
            return answer
        self._workers[-1].interrupt()
        count = len(self._workers)
        shares = [worker.ask(WorkerRequest(question, share=Share(n, count))) for n, worker in enumerate(self._workers)]
        await asyncio.gather(*shares)
        answer = await self._ask_worker(WorkerRequest(question, growing, share=Share(0, 1), seconds=seconds))
        if self._adding_facts is None or self._adding_facts.done():
            self._adding_facts = asyncio.create_task(self._add_facts(question))
        return answer

    async def _add_facts(self, question: Question) -> None:
        """Make an idle worker add the facts that other questions need to the cache."""
        worker = self._workers[-1]
        while worker.is_busy:
            await asyncio.sleep(_IDLE_POLL_SECONDS)
        await worker.ask(WorkerRequest(question, adds_facts=True))

    async def _ask_worker(self, request: WorkerRequest) -> Answer:
        if self._is_about_timelines(request.question):  # perf: that worker has read the session, and keeps it in memory
            return await asyncio.shield(self._timeline_worker.ask(request))
        is_free = not request.growing  # growing files are kept in one worker only
        workers = self._workers if is_free else self._workers[:1]
        return await next((worker for worker in workers if not worker.is_busy), workers[0]).ask(request)

    async def ask_changes(self, question: Question, version: str) -> Answer:
        """Return the changes of a timeline since a version."""
        self._timelines.add(question.get("session"))
        answer = await self._timeline_worker.ask(WorkerRequest(question, version=version))
        if answer.error is not None:
            self._timelines.discard(question.get("session"))
        return answer

    def _is_about_timelines(self, question: Question) -> bool:
        if (question.name, question.params) == ("sessions", (("live", "1"),)):
            return bool(self._timelines)
        return question.name == "usage" and question.get("session") in self._timelines

    def close(self) -> None:
        """End all workers, also those that are answering a question."""
        for worker in (*self._workers, self._timeline_worker):
            worker.close()


class _Worker:
    """A worker process. If it ends, the next question starts another one."""

    def __init__(self, context: BaseContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._starting = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._request: WorkerRequest | None = None
        self._killed: BaseProcess | None = None
        """The process that was killed last. It may be alive for a moment, and may have answered."""
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """True if the worker is answering a question."""
        return self._lock.locked()

    async def ask(self, request: WorkerRequest) -> Answer:
        """Return the answer to a request, after the answers to earlier ones.

        The process ends if this is cancelled, or if it uses more CPU time than the request allows.
        """
        async with self._lock:
            self._request = request
            exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, request))
            try:
                return await asyncio.shield(exchange)
            finally:
                while not exchange.done():  # the connection is used until then
                    self._kill()
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait((exchange,))
                self._request = None

    def _kill(self) -> None:
        with self._starting:  # a process that is just being started cannot be killed
            if self._process is not None:
                self._process.kill()
                self._killed = self._process

    def interrupt(self) -> None:
        """End the process if it is adding facts to the cache. What it has stored stays there."""
        if self._request is not None and self._request.adds_facts:
            self._kill()

    def _exchange(self, request: WorkerRequest) -> Answer:
        try:
            connection = self.start()
            connection.send(request)
            body = connection.recv_bytes()
            answer: Answer
            answer, is_used_up = connection.recv()
            if is_used_up:
                self._end()
                threading.Thread(target=self.start, daemon=True).start()
            return replace(answer, body=body)
        except (EOFError, OSError):  # it was killed
            process = self._process
            self._end()
            if process is not None and hasattr(signal, "SIGPROF") and process.exitcode == -signal.SIGPROF:
                return Answer(error=_TOO_LONG.format(request.seconds), status=503)
            return Answer(error="the worker ended without an answer", status=500)

    def start(self) -> Connection:
        """Start the process unless it runs, and return the connection to it.

        Raises:
            OSError: the process cannot be started, or the worker was closed.
        """
        with self._starting:
            if self._is_closed:
                raise OSError("the server is stopping")
            if self._process is not None and (self._process is self._killed or not self._process.is_alive()):
                self._process = self._connection = None
            if self._connection is None:
                self._connection, other = self._context.Pipe()
                # a daemon: it must not start further processes
                self._process = self._context.Process(target=_run_worker, args=(other,), daemon=True)  # type: ignore[attr-defined]
                self._process.start()
                other.close()
            return self._connection

    def _end(self) -> None:
        with self._starting:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if process is not None and connection is not None:
            process.kill()
            process.join()
            connection.close()

    def close(self) -> None:
        """End the process. A pending request gets an error."""
        self._is_closed = True
        self._kill()
