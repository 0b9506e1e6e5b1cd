"""The JSON API: one route per question, answered like the command of the same name with `--json`.

`docs/ui.md` lists the routes. A response is a JSON array of rows, or one object. The query parameters are the options
of the command. Each is checked against `_ROUTES`, and nothing else in a request reaches a question. Ids contain no
slash, and workers run in an empty folder, so that no name in a request can be a path. The header
`X-Toolspan-Warnings` has the warnings as a JSON array.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolspan.archive.sources import is_folder
from toolspan.errors import SourceError
from toolspan.formats.registry import all_formats
from toolspan.formats.source import to_path
from toolspan.reading.discovery import default_roots
from toolspan.web.answers import Answers
from toolspan.web.doctor import DoctorRoutes
from toolspan.web.files import FileRoutes
from toolspan.web.live import Live
from toolspan.web.muted import muted_routes
from toolspan.web.notes import note_routes
from toolspan.web.questions import Answer, Question
from toolspan.web.requests import ApiError, Params, check_id, read_id, read_params, respond

_SESSION_FILTERS = ("project", "client", "model", "client_version", "since", "until", "about")
_CALL_FILTERS = ("tool", "kind", "program", "state", "error", *_SESSION_FILTERS, "session", "agent")
_REQUEST_FILTERS = (*_SESSION_FILTERS, "session", "agent")


_ROUTES: dict[str, tuple[str, ...]] = {
    "overview": ("since",),
    "sessions": (*_SESSION_FILTERS, "live", "sort", "limit"),
    "agents": (*_SESSION_FILTERS, "session", "sort", "limit"),
    "calls": (*_CALL_FILTERS, "group", "commands", "sort", "limit"),
    "errors": (*_CALL_FILTERS, "by", "recovered", "sort", "limit"),
    "prompts": (*_CALL_FILTERS, "sort", "limit"),
    "denials": (*_CALL_FILTERS, "every", "sort", "limit"),
    "hooks": (*_CALL_FILTERS, "runs", "point", "sort", "limit"),
    "risky": (*_CALL_FILTERS, "risk", "sort", "limit"),
    "digest": _SESSION_FILTERS,
    "disk": (*_SESSION_FILTERS, "session", "by", "sort", "limit"),
    "stats": (*_CALL_FILTERS, "mcp", "by", "sort", "limit"),
    "time": (*_CALL_FILTERS, "limit"),
    "flows": (*_CALL_FILTERS, "chain", "length", "every", "limit"),
    "usage": (*_REQUEST_FILTERS, "tool", "by", "context", "sort", "limit"),
    "doctor": (),
}
"""The query parameters of the questions about all transcripts, which are passed on."""


def api_routes(answers: Answers) -> list[Route]:
    """Return the routes below `/api/`."""
    api = _Api(answers)
    simple = [Route(f"/api/{name}", api.question_endpoint(name, options)) for name, options in _ROUTES.items()]
    return [
        *simple,
        Route("/api/search", api.search),
        Route("/api/session/{id}", api.session),
        Route("/api/session/{id}/timeline", api.timeline),
        Route("/api/session/{id}/copies", api.copies),
        Route("/api/call/{id}", api.call),
        Route("/api/call/{id}/why", api.why),
        Route("/api/call/{id}/records", api.call_records),
        Route("/api/compare", api.compare),
        Route("/api/places", _list_places),
        *muted_routes(),
        *note_routes(),
        *FileRoutes(answers, _CALL_FILTERS).routes(),
        *DoctorRoutes(answers, api.find_files).routes(),
        *Live(answers).routes(),
    ]


def _list_places(_: Request) -> Response:
    """Answer with the folders in which clients keep transcripts, and whether they exist."""
    places = [(form.name, root) for form in all_formats() for root in form.roots()]
    return JSONResponse([{"client": name, "path": str(root), "exists": root.exists()} for name, root in places])


def _user_folders() -> tuple[str, ...]:
    """Return the folders of the user's transcripts, for `doctor`, which checks one session if nothing is named."""
    try:
        return tuple(map(str, default_roots()))
    except SourceError as error:
        raise ApiError(404, str(error)) from None


class _Api:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def question_endpoint(self, name: str, options: Sequence[str]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            self._answers.check_sources()
            params = read_params(request, options, besides=("fields",))
            fields = tuple(filter(None, request.query_params.get("fields", "").split(",")))
            roots = self._answers.roots or (_user_folders() if name == "doctor" else ())
            answer = await self._answers.ask(Question(name, tuple(params), roots, fields))
            return respond(request, answer)

        return endpoint

    async def search(self, request: Request) -> Response:
        words = request.query_params.get("q", "").split()
        if not words:
            return JSONResponse([])
        options = ("in", "regex", "ignore_case", "case_sensitive", "limit", *_CALL_FILTERS)
        params = read_params(request, options, besides=("q",))
        question = Question("search", (("q", " ".join(words)), *params), self._answers.roots)
        return respond(request, await self._answers.ask(question))

    async def session(self, request: Request) -> Response:
        session = read_id(request)
        answer = await self._show("session", session, read_params(request, ("thinking",)))
        return respond(request, answer)

    async def timeline(self, request: Request) -> Response:
        session = read_id(request)
        params = read_params(request, ("message", "part", "file"), besides=("after",))
        numbers = [request.query_params.get(name, "0") for name in ("message", "part")]
        if not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
            raise ApiError(400, "message and part must be numbers")
        version = request.query_params.get("after")
        if version is None and not params and self._is_live(session):
            version = ""  # keep the timeline, because the page will soon request changes
        if version is None:
            return respond(request, await self._show("timeline", session, params))
        if not re.fullmatch("[0-9a-f-]{0,40}", version):
            raise ApiError(400, "after must be the version of an earlier answer")

        async def ask_changes(question: Question) -> Answer:
            return await self._answers.ask_changes(question, version)

        return respond(request, await self._show("timeline", session, [], ask=ask_changes))

    async def copies(self, request: Request) -> Response:
        params = (("session", read_id(request)),)
        return respond(request, await self._answers.ask(Question("copies", params, self._answers.roots)))

    def _is_live(self, session: str) -> bool:
        answer = self._answers.last_answer(Question("sessions", (("live", "1"),), self._answers.roots))
        rows = () if answer is None else answer.rows
        return any(msgspec.json.decode(row, type=_LiveSession).id == session for row in rows)

    async def _show(
        self,
        name: str,
        session: str,
        params: Params,
        ask: Callable[[Question], Awaitable[Answer]] | None = None,
    ) -> Answer:
        """Ask a question about a session, in each of the served folders until one has it."""
        ask = ask or self._answers.ask
        answer = Answer(error=f"no session {session!r}", status=404)
        folders = [root for root in self._answers.roots if is_folder(root)]
        searches: list[tuple[str, ...]] = [(folder,) for folder in folders] if self._answers.roots else [()]
        for names in searches:
            answer = await ask(Question(name, (*params, ("session", session)), names))
            if answer.status != 404:
                return answer
        if len(folders) < len(self._answers.roots):
            return await ask(Question(name, tuple(params), ((await self.find_files(session))[0],)))
        return answer

    async def call(self, request: Request) -> Response:
        return await self._call(request, "call")

    async def call_records(self, request: Request) -> Response:
        return await self._call(request, "call_records")

    async def _call(self, request: Request, name: str) -> Response:
        call = read_id(request)
        params = tuple(read_params(request, ("session",)))
        roots = self._answers.roots
        if any(to_path(root).is_file() for root in roots):
            params = ()
        answer = Answer(error=f"no call {call!r}", status=404)
        if params and (file := await self._last_file(request.query_params["session"])):
            # perf: with 5,000 sessions, finding the files takes longer than reading the call
            answer = await self._answers.ask(Question(name, (), (call, file)))
            if answer.status == 200:
                return respond(request, answer)
        for names in [(root,) for root in roots] if params and roots else [roots]:  # `session` is for one folder
            answer = await self._answers.ask(Question(name, params, (call, *names)))
            if answer.status != 404:
                break
        return respond(request, answer)

    async def why(self, request: Request) -> Response:
        call = read_id(request)
        return respond(request, await self._answers.ask(Question("why", (), (call, *self._answers.roots))))

    async def compare(self, request: Request) -> Response:
        params = read_params(request, _CALL_FILTERS, besides=("a", "b"))
        sessions = [check_id(request.query_params.get(side, "")) for side in ("a", "b")]
        roots = self._answers.roots
        folders = [root for root in roots if is_folder(root)]
        if len(folders) < len(roots):  # a session in a served file is identified by the path of the file
            files = [(await self.find_files(session))[0] for session in sessions]
            sessions = [file if file in roots else session for session, file in zip(sessions, files, strict=True)]
        names = (*sessions, *folders)
        return respond(request, await self._answers.ask(Question("compare", tuple(params), names)))

    async def find_files(self, session: str) -> list[str]:
        """Return the files of a session, its own transcript first.

        Raises:
            ApiError: the served transcripts contain no such session (404).
        """
        files = _files_of(session, await self._answers.ask(self._files_question))
        if files is None:
            raise ApiError(404, f"no session {session!r}")
        return files

    @property
    def _files_question(self) -> Question:
        return Question("sessions", (), self._answers.roots, ("id", "session_ids", "files"))

    async def _last_file(self, session: str) -> str | None:
        """Return the file of a session if, according to the last answer, it is the only one and it still exists."""
        question = self._files_question
        answer = self._answers.last_answer(question) or await self._answers.ask(question)
        files = _files_of(session, answer)
        return files[0] if files is not None and len(files) == 1 and to_path(files[0]).is_file() else None


def _files_of(session: str, answer: Answer) -> list[str] | None:
    for row in answer.rows:
        if session.encode() in row:
            found = msgspec.json.decode(row, type=_SessionFiles)
            if found.id == session or session in found.session_ids:
                return found.files
    return None


class _LiveSession(msgspec.Struct):
    """The id in a row of `sessions --live`."""

    id: str


class _SessionFiles(msgspec.Struct):
    """The ids and files in a row of `sessions`."""

    id: str
    session_ids: list[str]
    files: list[str]
