"""`/api/live`: running sessions and open questions as server-sent events.

An event is sent when something changes: a transcript, the status that a client publishes, a question, or the end of a
process. Nothing is polled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolspan.web.answers import Answers
from toolspan.web.questions import Questions
from toolspan.web.worker import Question


class _Process(msgspec.Struct):
    """The fields of a live session that name its process."""

    pid: int | None = None
    status: str = ""


class Live:
    """The streams of all open pages."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._question_count = 0
        self.questions = Questions(self._on_question, lambda: answers.wait_for(lambda: False))
        self._watched_processes: dict[int, int] = {}
        """File descriptors of processes, by process id."""

    def routes(self) -> list[Route]:
        """Return the routes of live data."""
        return [Route("/api/live", self.stream), *self.questions.routes()]

    def _on_question(self) -> None:
        self._question_count += 1
        self._answers.wake()

    async def stream(self, _: Request) -> Response:
        """Send `sessions`, the rows of `sessions --live`, and `questions`, now and after each change."""
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=8)
        tasks = [asyncio.create_task(self._send_questions(queue)), asyncio.create_task(self._send_sessions(queue))]
        self.questions.pages += 1
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self.questions.pages -= 1
            for task in tasks:
                task.cancel()

    async def _send_questions(self, queue: asyncio.Queue[str | None]) -> None:
        while True:
            count = self._question_count
            await queue.put(f"event: questions\ndata: {self.questions.encode().decode()}\n\n")
            if not await self._answers.wait_for(lambda seen=count: self._question_count != seen):  # type: ignore[misc]
                await queue.put(None)
                return

    async def _send_sessions(self, queue: asyncio.Queue[str | None]) -> None:
        question = Question("sessions", ("--live",), self._answers.roots)
        while True:
            version = self._answers.live_version
            answer = await self._answers.ask(question, live=True)
            self._watch_processes(answer.rows)
            data = b"[" + b",".join(map(bytes, answer.rows)) + b"]"
            await queue.put(f"id: {version[0]}\nevent: sessions\ndata: {data.decode()}\n\n")
            if not await self._answers.wait_for(lambda seen=version: self._answers.live_version != seen):  # type: ignore[misc]
                return

    def _watch_processes(self, rows: tuple[msgspec.Raw, ...]) -> None:
        """Notice the end of each live process, where the system can tell (Linux)."""
        if not hasattr(os, "pidfd_open"):
            return
        processes = (msgspec.json.decode(row, type=_Process) for row in rows)
        alive = {process.pid for process in processes if process.pid is not None and process.status != "dead"}
        for pid in alive - set(self._watched_processes):
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                self._watched_processes[pid] = descriptor
                asyncio.get_running_loop().add_reader(descriptor, self._on_process_end, pid)
        for pid in set(self._watched_processes) - alive:
            self._forget_process(pid)

    def _on_process_end(self, pid: int) -> None:
        self._forget_process(pid)
        self._answers.count_status_change()

    def _forget_process(self, pid: int) -> None:
        descriptor = self._watched_processes.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
