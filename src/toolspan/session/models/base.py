"""The `Model` protocol, which streams events in reply to a request.

Messages and blocks are those of the Messages API; clients for other APIs translate. A stream consists of `ReplyBegan`,
deltas and a `BlockDone` for each block, and `ReplyStopped` at the end; `Usage` may occur at any time. A stream that
ends in any other way raises `ModelFailed`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import httpx2

from toolspan.errors import ToolspanError
from toolspan.session.models.history import Block, Message

MAX_TOKENS = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a model."""

    messages: Sequence[Message]
    system: str = ""
    tools: Sequence[Mapping[str, object]] = ()
    max_tokens: int = MAX_TOKENS
    model: str | None = None
    """The name of another model on the same server."""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplyBegan:
    """The start of a reply. After `Retrying`, it replaces the previous one."""

    message_id: str
    model: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of a text block."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of a thinking block."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The start of a call."""

    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class InputDelta:
    """The next piece of a call's input, as JSON text."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """A complete block. The input of a call is always an object, even if the model sent something else."""

    block: Block


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts so far, by API field name. Later events update earlier ones."""

    tokens: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ReplyStopped:
    """The end of a complete reply."""

    reason: str
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Retrying:
    """A failed request that is being retried. Everything streamed so far is discarded."""

    failure: ModelFailed
    attempt: int
    max_retries: int
    wait_s: float


ModelEvent = (
    ReplyBegan | TextDelta | ThinkingDelta | CallBegan | InputDelta | BlockDone | Usage | ReplyStopped
    | Retrying
)  # fmt: skip

ModelStream = AsyncGenerator[ModelEvent, None]


class Model(Protocol):
    """A model that streams replies to requests."""

    @property
    def name(self) -> str:
        """The model's name on its server."""
        ...

    def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the reply to a request.

        Raises:
            ModelFailed: the reply failed, before or after it began.
        """
        ...

    async def close(self) -> None:
        """Close the model's connections."""
        ...


class ModelFailed(ToolspanError):  # noqa: N818 - the name of a fact, like the other events
    """Raised if a request fails, before or after its reply began."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "api_error",
        status: int | None = None,
        retry: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        """The API's error type, such as `overloaded_error`, or `connection`, `timeout`, …"""
        self.status = status
        self.retry = retry
        self.retry_after = retry_after
        """The number of seconds to wait before a retry, if the server specifies it."""

    @property
    def is_too_long(self) -> bool:
        """True if the conversation exceeds the model's context."""
        message = self.message.casefold()
        return self.status in (400, 413) and any(hint in message for hint in _TOO_LONG_HINTS)

    def describe(self) -> str:
        """Return a one-line description for users and transcripts."""
        status = f"{self.status} " if self.status else ""
        return f"API Error: {status}{self.message}"


def interrupted_stream_failure() -> ModelFailed:
    """Return the failure for a stream that ended before its reply was complete."""
    return ModelFailed("the connection ended in the middle of the reply", kind="connection", retry=True)


_TOO_LONG_HINTS = ("prompt is too long", "context length", "context_length", "context window",
             "maximum context", "too many tokens")  # fmt: skip

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 529})


def failure_from_status(
    status: int, message: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> ModelFailed:
    """Return the failure for an HTTP error, including whether to retry."""
    response_headers = headers or {}
    should_retry = response_headers.get("x-should-retry")
    retry = should_retry == "true" or (should_retry != "false" and (status in _RETRYABLE_STATUSES or status >= 500))
    retry_after = None
    for name, unit in (("retry-after", 1.0), ("retry-after-ms", 1000.0)):
        try:
            value = float(response_headers.get(name, ""))
        except ValueError:  # missing or a date, for which the default back-off applies
            continue
        if value >= 0:
            retry_after = value / unit
    return ModelFailed(message, kind=kind or "api_error", status=status, retry=retry, retry_after=retry_after)


_STATUS_BY_KIND: Mapping[str, int] = {
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
"""HTTP statuses for errors that arrive within a stream, whose own status is 200."""
_OK_STATUS = 200

EventT = TypeVar("EventT")


@contextmanager
def translate_errors(sdk_error: type[Exception]) -> Iterator[None]:
    """Translate errors raised by an SDK or its transport."""
    try:
        yield
    except sdk_error as error:
        raise _failure_from_error(error) from error
    except (httpx2.HTTPError, json.JSONDecodeError, OSError) as error:
        raise _connection_failure(error) from error


async def read_next_event(stream: AsyncIterator[EventT], sdk_error: type[Exception]) -> EventT | None:
    """Return the next event in a stream, or None at its end."""
    with translate_errors(sdk_error):
        return await anext(stream, None)


def _failure_from_error(error: Exception) -> ModelFailed:
    status = getattr(error, "status_code", None)
    kind, message = _parse_error_body(getattr(error, "body", None))
    message = message or str(getattr(error, "message", "") or error)
    if isinstance(status, int) and status != _OK_STATUS:
        if kind == "insufficient_quota":  # sent as a rate limit, but waiting does not help
            return ModelFailed(message, kind=kind, status=status)
        headers = getattr(getattr(error, "response", None), "headers", None)
        return failure_from_status(
            status, message, kind=kind, headers=headers if isinstance(headers, Mapping) else None
        )
    if kind is not None:
        return failure_from_status(_STATUS_BY_KIND.get(kind, 500), message, kind=kind)
    if error.__cause__ is not None:
        return _connection_failure(error.__cause__)
    if getattr(error, "request", None) is not None:
        return ModelFailed(message, kind="connection", retry=True)
    return ModelFailed(message, kind="setup")  # an error in the SDK itself: a missing key, an invalid address


def _connection_failure(error: BaseException) -> ModelFailed:
    try:
        url = error.request.url  # type: ignore[attr-defined]  # the transports' errors have it
        address = f" at {url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    except (AttributeError, RuntimeError):
        address = ""
    message = f"no connection to the model{address}: {str(error) or type(error).__name__}"
    return ModelFailed(message, kind="connection", retry=True)


def _parse_error_body(body: object) -> tuple[str | None, str | None]:
    """Return the error type and message from an error body."""
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
