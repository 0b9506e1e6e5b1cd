"""Routes that repair or share one session."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from toolspan.web.answers import Answers
from toolspan.web.questions import Question
from toolspan.web.requests import ApiError, read_body, read_id, read_params, respond

_FORMATS = {
    "html": ("html", "text/html"),
    "json": ("jsonl", "application/x-ndjson"),
    "csv": ("csv", "text/csv"),
    "markdown": ("md", "text/markdown"),
    "perfetto": ("perfetto.json", "application/json"),
    "otlp": ("otlp.jsonl", "application/x-ndjson"),
    "atif": ("atif.json", "application/json"),
}
"""The export formats, each with its file extension and media type."""
FindFiles = Callable[[str], Awaitable[list[str]]]


class _RepairRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: bool = True


class DoctorRoutes:
    """The routes that repair and share sessions."""

    def __init__(self, answers: Answers, find_files: FindFiles) -> None:
        """Create the routes. `find_files` returns the files of a session by its id."""
        self._answers = answers
        self._find_files = find_files
        self._numbers = itertools.count(1)

    def routes(self) -> list[Route]:
        """Return the routes of one session."""
        return [
            Route("/api/session/{id}/doctor", self.findings),
            Route("/api/session/{id}/repair", self.repair, methods=["POST"]),
            Route("/api/session/{id}/redaction", self.redaction),
            Route("/api/session/{id}/export", self.export),
        ]

    async def findings(self, request: Request) -> Response:
        """Answer with the rows of `doctor` for the files of a session."""
        files = await self._find_files(read_id(request))
        return respond(request, await self._answers.ask(Question("doctor", (), tuple(files))))

    async def repair(self, request: Request) -> Response:
        """Write a repaired copy as `repair` does. With `dry_run`, only answer with the changes."""
        body = await read_body(request, _RepairRequest)
        files = await self._find_files(read_id(request))
        params = (("dry_run", "1"),) if body.dry_run else ()
        answer = await self._answers.run(Question("repair", params, (files[0],)), changes=not body.dry_run)
        return respond(request, answer)

    async def redaction(self, request: Request) -> Response:
        """Answer with every replacement that `export --redact` makes."""
        files = await self._find_files(read_id(request))
        return respond(request, await self._answers.ask(Question("redaction", (), tuple(files))))

    async def export(self, request: Request) -> Response:
        """Answer with the file that `export`, or `show --html`, writes."""
        session = read_id(request)
        params = read_params(request, ("redact", "skeleton"), besides=("format",))
        form = request.query_params.get("format", "html")
        if form not in _FORMATS:
            raise ApiError(400, f"unknown format {form!r}; use one of {', '.join(_FORMATS)}")
        files = await self._find_files(session)
        ending, media_type = _FORMATS[form]
        path = self._answers.scratch / f"export-{next(self._numbers)}"
        names = files[:1] if form == "html" else files
        question = Question("export", (*params, ("format", form), ("output", str(path))), tuple(names))
        answer = await self._answers.run(question, changes=False)
        if answer.error is not None:
            path.unlink(missing_ok=True)
            return respond(request, answer)
        name = f"{session}{'-redacted' if params else ''}.{ending}"
        return FileResponse(path, media_type=media_type, filename=name, background=BackgroundTask(path.unlink))
