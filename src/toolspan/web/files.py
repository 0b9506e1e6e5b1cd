"""Routes about files: the history of one file, its contents, the
difference of two points, who wrote its lines, and restoring it.

A path in a request is used only if a call in the served transcripts changed the file at that path, so that a request
cannot access any other file.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolspan.web.answers import Answers
from toolspan.web.questions import Question
from toolspan.web.requests import ApiError, check_id, read_body, read_params, respond


class _Row(msgspec.Struct):
    path: str


class _RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    call: str
    side: str = "after"
    dry_run: bool = True
    force: bool = False


class FileRoutes:
    """The routes about files."""

    def __init__(self, answers: Answers, filters: Sequence[str]) -> None:
        """Create the routes. `filters` are the query parameters that filter the list."""
        self._answers = answers
        self._filters = tuple(filters)

    def routes(self) -> list[Route]:
        """Return the routes below `/api/file`."""
        return [
            Route("/api/files", self.list_files),
            Route("/api/file", self.history),
            Route("/api/file/diff", self.difference),
            Route("/api/file/blame", self.blame),
            Route("/api/file/restore", self.restore, methods=["POST"]),
        ]

    async def list_files(self, request: Request) -> Response:
        """Answer with the rows of `files`, for all files or those below a folder."""
        self._answers.check_sources()
        params = read_params(request, (*self._filters, "sort", "limit"), besides=("fields", "path"))
        fields = tuple(filter(None, request.query_params.get("fields", "").split(",")))
        folder = request.query_params.get("path")
        if folder is not None:
            paths = await self._changed_paths()
            if not any(path == folder or path.startswith(folder.rstrip("/") + "/") for path in paths):
                raise ApiError(404, f"no call changed a file below {folder}")
            params.append(("path", folder))
        return respond(request, await self._answers.ask(Question("files", tuple(params), self._answers.roots, fields)))

    async def history(self, request: Request) -> Response:
        """Answer with the object of `files PATH --contents`."""
        path = await self._check_path(request.query_params.get("path", ""))
        question = Question("file_contents", (("path", path),), self._answers.roots)
        return respond(request, await self._answers.ask(question))

    async def difference(self, request: Request) -> Response:
        """Answer with the object of `files PATH --between FROM TO`."""
        path = await self._check_path(request.query_params.get("path", ""))
        ends = [_check_point(request.query_params.get(name, "")) for name in ("from", "to")]
        params = (("path", path), ("from", ends[0]), ("to", ends[1]))
        question = Question("file_difference", params, self._answers.roots)
        return respond(request, await self._answers.ask(question))

    async def blame(self, request: Request) -> Response:
        """Answer with the lines of a file at a point, each with the call, session and prompt that wrote it."""
        path = await self._check_path(request.query_params.get("path", ""))
        at = _check_point(request.query_params.get("at", ""))
        question = Question("file_blame", (("path", path), ("at", at)), self._answers.roots)
        return respond(request, await self._answers.ask(question))

    async def restore(self, request: Request) -> Response:
        """Restore a file as `restore` does. With `dry_run`, only answer with the changes."""
        body = await read_body(request, _RestoreRequest)
        path = await self._check_path(body.path)
        if body.side not in ("before", "after"):
            raise ApiError(400, "side must be `before` or `after`")
        params = [(body.side, check_id(body.call))]
        params += [(name, "1") for name in ("dry_run", "force") if getattr(body, name)]
        question = Question("restore", tuple(params), (path, *self._answers.roots))
        return respond(request, await self._answers.run(question, changes=not body.dry_run))

    async def _check_path(self, path: str) -> str:
        if path not in await self._changed_paths():
            raise ApiError(404, f"no call in these transcripts changed {path[:400]!r}")
        return path

    async def _changed_paths(self) -> set[str]:
        # perf: the list of files asks the same question, so its answer is often cached
        answer = await self._answers.ask(Question("files", (("limit", "0"),), self._answers.roots))
        return {msgspec.json.decode(row, type=_Row).path for row in answer.rows}


def _check_point(point: str) -> str:
    prefix = "before:" if point.startswith("before:") else ""
    return prefix + check_id(point.removeprefix(prefix))
