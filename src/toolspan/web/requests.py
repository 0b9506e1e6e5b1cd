"""Parse the requests to the API, and create its responses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolspan.web.questions import FLAGS, Answer

_ID = re.compile(r"[A-Za-z0-9#][A-Za-z0-9_.:-]{0,199}")
_MAX_BODY = 1 << 20
T = TypeVar("T")


class ApiError(Exception):
    """An error response with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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


def respond(answer: Answer, *, single: bool = False) -> Response:
    """Return an answer as JSON."""
    if answer.error is not None:
        return JSONResponse({"error": answer.error}, answer.status)
    rows = [memoryview(row) for row in answer.rows]  # perf: not copied
    body = (rows[0] if rows else b"null") if single else b"[" + b",\n".join(rows) + b"]"
    response = Response(body, media_type="application/json")
    if answer.warnings:
        response.headers["X-Toolspan-Warnings"] = json.dumps(answer.warnings)
    return response


async def respond_to_error(_: Request, error: Exception) -> Response:
    """Return an `ApiError` as JSON."""
    assert isinstance(error, ApiError)
    return JSONResponse({"error": str(error)}, error.status)


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
