"""What goes wrong between us and a server, in our words.

In: whatever an SDK or its transport raised. Out: a `ModelFailed` that says whether to ask again.
The SDKs' errors are of one make and are read by their attributes, so that none need be imported.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import httpx
import httpx2

from toolspan.llm.model import ModelFailed, failed_status

_STATUSES: Mapping[str, int] = {
    "authentication_error": 401,
    "insufficient_quota": 403,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
}
"""The status an error would have had, if it had not come in the middle of a stream."""
_FINE = 200

T = TypeVar("T")


@contextmanager
def faults(sdk_error: type[Exception]) -> Iterator[None]:
    """What is raised inside comes out as `ModelFailed`, if it is about the server.

    Raises:
        ModelFailed: instead of the SDK's and the transport's own errors.
    """
    try:
        yield
    except sdk_error as error:
        raise _failure(error) from error
    except (httpx.HTTPError, httpx2.HTTPError, json.JSONDecodeError, OSError) as error:
        raise _lost(error) from error


async def next_event(stream: AsyncIterator[T], sdk_error: type[Exception]) -> T | None:
    """What a reply brings next; None at its end.

    Raises:
        ModelFailed: it broke off.
    """
    with faults(sdk_error):
        return await anext(stream, None)


def _failure(error: Exception) -> ModelFailed:
    status = getattr(error, "status_code", None)
    kind, message = _body(getattr(error, "body", None))
    message = message or str(getattr(error, "message", "") or error)
    if isinstance(status, int) and status != _FINE:
        if kind == "insufficient_quota":  # told as a rate limit, but waiting does not help
            return ModelFailed(message, kind=kind, status=status)
        return failed_status(status, message, kind=kind, headers=_headers(error))
    if kind is None and error.__cause__ is not None:
        return _lost(error.__cause__)
    if kind is None and getattr(error, "request", None) is not None:
        return ModelFailed(message, kind="connection", retry=True)
    if kind is None:  # the SDK itself is not content: no key, a wrong address
        return ModelFailed(message, kind="setup")
    return failed_status(_STATUSES.get(kind, 500), message, kind=kind)


def _lost(error: BaseException) -> ModelFailed:
    words = str(error) or type(error).__name__
    told = f"no connection to the model{_place(error)}: {words}"
    return ModelFailed(told, kind="connection", retry=True)


def _place(error: BaseException) -> str:
    """Which server was asked, where the transport knows."""
    try:
        url = error.request.url  # type: ignore[attr-defined]  # the transports' errors have it
        return f" at {url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    except (AttributeError, RuntimeError):
        return ""


def _body(body: object) -> tuple[str | None, str | None]:
    """The kind and the words of an error's body."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    match inner:
        case {"code": "insufficient_quota" as kind, "message": str(message)}:
            return kind, message
        case {"type": str(kind), "message": str(message)}:
            return kind, message
        case {"message": str(message)}:
            return "api_error", message
        case str(message) if message:
            return "api_error", message
        case _:
            return None, None


def _headers(error: Exception) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}
