"""`/api/live`: running sessions and open questions as server-sent events, and `/api/questions`.

An event is sent when something changes: a transcript, the status that a client publishes, a question, or the end of a
process. Nothing is polled. A program that runs calls posts a question to `/api/questions` and waits for the response;
the page shows it and posts the answer to `/api/questions/ID`. A question ends when it is answered, when its time is
over, or when the program closes the connection. Start at `Live`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from toolspan.integrations.web_approver import AlwaysOffer, GrantScope, PageAnswer, PermissionQuestion
from toolspan.types.decision import RequestedFile
from toolspan.types.visible_text import Fold, Pieces, TextRow, split_invisible, wrap_text
from toolspan.web.answers import Answers, Position
from toolspan.web.questions import Question
from toolspan.web.requests import wait_for_disconnect

_MAX_BODY = 16 << 20
_CARD_COLUMNS = 120
_CARD_ROWS = 30
"""The number of rows that a card shows at first; the user must open the others before allowing the call."""
_MAX_OPEN = 200
_HEARTBEAT_SECONDS = 20.0


class FileCard(msgspec.Struct, frozen=True):
    """A file on a card."""

    path: Pieces
    link: Pieces | None
    is_outside: bool
    is_new: bool

    @classmethod
    def of(cls, file: RequestedFile) -> FileCard:
        """Return the texts of a file."""
        link = None if file.link is None else split_invisible(file.link)
        return cls(split_invisible(file.path), link, file.is_outside, file.is_new)


class Size(msgspec.Struct, frozen=True):
    """The number of lines of a text, and of added and removed ones if it is a diff."""

    lines: int
    added: int
    removed: int


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a question as the page shows them: in pieces, of which the odd ones are escapes."""

    tool: Pieces
    files: tuple[FileCard, ...]
    rows: list[TextRow]
    fold: Fold
    size: Size
    why: Pieces
    cwd: Pieces
    allows: tuple[Pieces, ...]
    scopes: Mapping[GrantScope, Pieces]

    @classmethod
    def of(cls, question: PermissionQuestion) -> Card:
        """Return the card of a question. All texts may come from the model."""
        always = question.always or AlwaysOffer(allows=(), scopes={})
        rows = wrap_text(question.text, _CARD_COLUMNS, is_diff=question.is_diff)
        lines = [row.kind for row in rows if not row.continues]
        return cls(
            tool=split_invisible(question.tool),
            files=tuple(map(FileCard.of, question.files)),
            rows=rows,
            fold=Fold.of(len(rows), _CARD_ROWS),
            size=Size(len(lines), lines.count("added"), lines.count("removed")),
            why=split_invisible(question.why or ""),
            cwd=split_invisible(question.cwd or ""),
            allows=tuple(map(split_invisible, always.allows)),
            scopes={scope: split_invisible(label) for scope, label in always.scopes.items()},
        )


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for an answer, as sent to the page."""

    id: str
    asked: float
    """The time of the question, in seconds since the epoch."""
    question: PermissionQuestion
    card: Card


class Questions:
    """The open questions."""

    def __init__(
        self, on_change: Callable[[], None], wait_for_stop: Callable[[], Coroutine[None, None, object]]
    ) -> None:  # fmt: skip
        """Create an empty list. `on_change` is called if it changes; `wait_for_stop` returns when the server stops."""
        self.pages = 0
        """The number of open pages."""
        self._on_change = on_change
        self._wait_for_stop = wait_for_stop
        self._numbers = itertools.count(1)
        self._open: dict[str, tuple[OpenQuestion, asyncio.Future[PageAnswer]]] = {}

    def routes(self) -> list[Route]:
        """Return the routes below `/api/questions`."""
        return [
            Route("/api/questions", self.list_questions, methods=["GET"]),
            Route("/api/questions", self.ask, methods=["POST"]),
            Route("/api/questions/{id}", self.answer, methods=["POST"]),
        ]

    def encode(self) -> bytes:
        """Return the open questions as a JSON array, the oldest first."""
        return msgspec.json.encode([question for question, _ in self._open.values()])

    async def list_questions(self, _: Request) -> Response:
        """Answer with the open questions."""
        return Response(self.encode(), media_type="application/json")

    async def ask(self, request: Request) -> Response:
        """Add a question and wait until it ends. The response is the answer, or null if there is none."""
        try:
            question = msgspec.json.decode(await _read_body(request), type=PermissionQuestion)
        except (msgspec.MsgspecError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        if len(self._open) >= _MAX_OPEN:
            return JSONResponse({"error": "too many open questions"}, 429)
        if question.needs_page and not self.pages:
            return Response(b"null", media_type="application/json")
        name = str(next(self._numbers))
        answer: asyncio.Future[PageAnswer] = asyncio.get_running_loop().create_future()
        entry = OpenQuestion(id=name, asked=time.time(), question=question, card=Card.of(question))
        self._open[name] = (entry, answer)
        self._on_change()
        ends: list[asyncio.Future[Any]] = [
            asyncio.create_task(wait_for_disconnect(request.receive)), asyncio.create_task(self._wait_for_stop())
        ]  # fmt: skip
        try:
            waits: list[asyncio.Future[Any]] = [answer, *ends]
            await asyncio.wait(waits, timeout=question.seconds, return_when=asyncio.FIRST_COMPLETED)
            return Response(
                msgspec.json.encode(answer.result() if answer.done() else None), media_type="application/json"
            )
        finally:
            for end in ends:
                end.cancel()
            answer.cancel()
            del self._open[name]
            self._on_change()

    async def answer(self, request: Request) -> Response:
        """Accept the answer to an open question."""
        try:
            reply = msgspec.json.decode(await _read_body(request), type=PageAnswer)
        except (msgspec.MsgspecError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        entry = self._open.get(request.path_params["id"])
        if entry is None or entry[1].done():
            return JSONResponse({"error": "this question is no longer open"}, 404)
        entry[1].set_result(reply)
        return Response(json.dumps({"answered": True}), media_type="application/json")


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise ValueError("the question is too large")
    return bytes(body)


class _Process(msgspec.Struct):
    """The process id and status in a row of `sessions --live`."""

    pid: int | None = None
    status: str = ""


class _PageStream:
    """The events for one page, and the position up to which they have been sent."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self.queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=8)

    async def put(self, event: str, data: bytes) -> None:
        """Send an event. Its id is the position from which the browser continues after a lost connection."""
        await self.queue.put(f"id: {self.position}\nevent: {event}\ndata: {data.decode()}\n\n")

    async def get(self) -> str | None:
        """Return the next event, or a comment after a while, so that the page notices a lost connection."""
        try:
            return await asyncio.wait_for(self.queue.get(), _HEARTBEAT_SECONDS)
        except TimeoutError:
            return ": no change\n\n"


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

    async def stream(self, request: Request) -> Response:
        """Send `sessions`, the rows of `sessions --live`, and `questions`, now and after each change.

        The event `changed` has the ids of the sessions whose files changed, or null if they are no longer known, and
        `outdated` says that all answers may have changed. The first ones include all changes since the position in the
        request: that of the page, or that of its last event before the connection was lost.
        """
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        position = Position.parse(after) or self._answers.position
        if position.run != self._answers.run_id:  # everything may have changed since that run
            position = Position(self._answers.run_id, -1, -1)
        return StreamingResponse(self._events(_PageStream(position)), media_type="text/event-stream")

    async def _events(self, stream: _PageStream) -> AsyncIterator[str]:
        senders = (self._send_questions, self._send_changes, self._send_outdated, self._send_sessions)
        tasks = [asyncio.create_task(send(stream)) for send in senders]
        self.questions.pages += 1
        try:
            while (event := await stream.get()) is not None:
                yield event
        finally:
            self.questions.pages -= 1
            for task in tasks:
                task.cancel()

    async def _send_questions(self, stream: _PageStream) -> None:
        while True:
            count = self._question_count
            await stream.put("questions", self.questions.encode())
            if not await self._answers.wait_for(lambda seen=count: self._question_count != seen):  # type: ignore[misc]
                await stream.queue.put(None)
                return

    async def _send_changes(self, stream: _PageStream) -> None:
        answers = self._answers
        while await answers.wait_for(lambda: answers.file_changes != stream.position.file_changes):
            sessions = answers.sessions_changed_since(stream.position.file_changes)
            stream.position = stream.position._replace(file_changes=answers.file_changes)
            await stream.put("changed", msgspec.json.encode(sessions))

    async def _send_outdated(self, stream: _PageStream) -> None:
        answers = self._answers
        while await answers.wait_for(lambda: answers.change != stream.position.change):
            stream.position = stream.position._replace(change=answers.change)
            await stream.put("outdated", b"null")

    async def _send_sessions(self, stream: _PageStream) -> None:
        question = Question("sessions", (("live", "1"),), self._answers.roots)
        while True:
            version = self._answers.live_version
            answer = await self._answers.ask(question, live=True)
            self._watch_processes(answer.rows)
            await stream.put("sessions", answer.json.replace(b"\n", b""))  # an event is one line
            if not await self._answers.wait_for(lambda seen=version: self._answers.live_version != seen):  # type: ignore[misc]
                return

    def _watch_processes(self, rows: Sequence[bytes]) -> None:
        """Watch for the end of each live process, on systems that support it (Linux)."""
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
