"""Parse the requests to the API, and create its responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from typing import TypeVar
from zoneinfo import available_timezones as read_timezones

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolspan.web.questions import FLAGS, Answer

_ID = re.compile(r"[A-Za-z0-9#][A-Za-z0-9_.:-]{0,199}")
_MAX_BODY = 1 << 20
T = TypeVar("T")


class ApiError(Exception):
    """An error response with a status, a message, and a code if the page must know the reason."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


Params = list[tuple[str, str]]


def read_params(request: Request, allowed: Sequence[str], besides: Sequence[str] = ()) -> Params:
    """Return the query as parameters of a question. Those in `besides` are left out.

    Raises:
        ApiError: the query has another parameter (400).
    """
    params = []
    for key, value in request.query_params.multi_items():
        name = "client" if key == "dialect" else key.replace("-", "_")
        if key in besides or key == "token":
            continue
        if name not in allowed:
            raise ApiError(400, f"unknown parameter {key!r}; use one of {', '.join((*besides, *allowed))}")
        if name in FLAGS:
            params += [(name, "1")] if value in ("1", "true", "") else []
        elif value:
            params.append((name, value))
    return params


def read_id(request: Request) -> str:
    """Return the id in the path of a request."""
    return check_id(request.path_params["id"])


def check_id(name: str) -> str:
    """Return `name` if it is a valid id; otherwise raise ApiError (400)."""
    if not _ID.fullmatch(name):
        raise ApiError(400, f"not an id: {name[:80]!r}")
    return name


def respond(request: Request, answer: Answer) -> Response:
    """Return an answer as JSON."""
    if answer.error is not None:
        return JSONResponse({"error": answer.error}, answer.status)
    is_sent_compressed = answer.is_compressed and "gzip" in request.headers.get("accept-encoding", "")
    body = answer.body if is_sent_compressed else answer.json
    response = Response(memoryview(body), media_type="application/json")  # perf: not copied
    if is_sent_compressed:
        response.headers["Content-Encoding"] = "gzip"
    if answer.warnings:
        response.headers["X-Toolspan-Warnings"] = json.dumps(answer.warnings)
    return response


async def respond_to_error(_: Request, error: Exception) -> Response:
    """Return an `ApiError` as JSON."""
    assert isinstance(error, ApiError)
    code = {} if error.code is None else {"code": error.code}
    return JSONResponse({"error": str(error), **code}, error.status)


available_timezones = cache(read_timezones)  # perf: it lists folders
_zone: ContextVar[str | None] = ContextVar("zone", default=None)


def read_zone() -> str | None:
    """Return the time zone of the page that sent this request, or None if it names none that is known."""
    return _zone.get()


class CancelAbandoned:
    """ASGI middleware that cancels a question when the browser that asked it is gone, or wants another answer.

    It also notes the time zone in the request for `read_zone`.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Streams and downloads notice themselves that they are abandoned."""
        is_question = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith("/api/")
        if not is_question or scope["path"].endswith(("/live", "/export")):
            await self._app(scope, receive, send)
            return
        zone = Headers(scope=scope).get("x-toolspan-zone")
        _zone.set(zone if zone in available_timezones() else None)
        answering = asyncio.ensure_future(self._app(scope, receive, send))
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request, body_type: type[T]) -> T:
    """Return the decoded body of a request."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MAX_BODY:
            raise ApiError(413, "the request is too large")
    try:
        return msgspec.json.decode(data, type=body_type)
    except msgspec.MsgspecError as error:
        raise ApiError(400, str(error)) from error
