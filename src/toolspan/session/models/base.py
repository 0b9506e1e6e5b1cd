"""A model, as the loop of an agent sees it: a request in, a stream of events out.

The values are those of the Messages API, whoever serves them; adapters translate. A stream is
`Began`, then deltas and a `BlockDone` for each block, `Usage` whenever it is told, and `Stopped` at
the end. A stream that ends otherwise raises `ModelFailed`. Read `Model` first.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import httpx
import httpx2

from toolspan.errors import ToolspanError
from toolspan.session.models.history import Block, Message

MAX_TOKENS = 16_000
"""How long a reply may get, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a model is asked."""

    messages: Sequence[Message]
    system: str = ""
    tools: Sequence[Mapping[str, object]] = ()
    max_tokens: int = MAX_TOKENS
    model: str | None = None
    """Another model than the adapter's own, by its name."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the server may know of who asks."""


@dataclass(frozen=True, slots=True)
class ReplyBegan:
    """A reply begins; one that comes after `Retrying` takes the place of what was there."""

    message_id: str
    model: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of a text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The model begins to ask for a tool."""

    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class InputDelta:
    """More of a call's input, as a piece of JSON text."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """A block is complete; a call's input is an object, whatever the model sent."""

    block: Block


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens so far, in the API's words; later ones add to and replace earlier ones."""

    tokens: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ReplyStopped:
    """The reply is complete."""

    reason: str
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed and is made anew: what this reply brought so far does not count."""

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
    """Gives replies."""

    @property
    def name(self) -> str:
        """What the server knows it by."""
        ...

    def stream(self, request: ModelRequest) -> ModelStream:
        """The reply to a request, as it comes.

        Raises:
            ModelFailed: there will be no reply, or no more of it.
        """
        ...

    async def close(self) -> None:
        """Let its connections go."""
        ...


class ModelFailed(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """A request got no reply, or only a part of one."""

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
        """The API's word for it: `overloaded_error`, `invalid_request_error`, `connection`, …"""
        self.status = status
        self.retry = retry
        """Whether it may go better the next time."""
        self.retry_after = retry_after
        """Seconds that the server wants us to wait."""

    @property
    def is_too_long(self) -> bool:
        """Whether the conversation does not fit into the model any more."""
        message = self.message.casefold()
        return self.status in (400, 413) and any(hint in message for hint in _TOO_LONG_HINTS)

    def describe(self) -> str:
        """One line for people and transcripts."""
        status = f"{self.status} " if self.status else ""
        return f"API Error: {status}{self.message}"


def interrupted_stream_failure() -> ModelFailed:
    """A stream that ended before its reply did."""
    return ModelFailed("the connection ended in the middle of the reply", kind="connection", retry=True)


_TOO_LONG_HINTS = ("prompt is too long", "context length", "context_length", "context window",
             "maximum context", "too many tokens")  # fmt: skip

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 529})


def failure_from_status(
    status: int, message: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> ModelFailed:
    """An answer that is an error, and whether to ask again."""
    response_headers = headers or {}
    should_retry = response_headers.get("x-should-retry")
    retry = should_retry == "true" or (should_retry != "false" and (status in _RETRYABLE_STATUSES or status >= 500))
    return ModelFailed(
        message, kind=kind or "api_error", status=status, retry=retry, retry_after=_parse_retry_after(response_headers)
    )


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """What a server says of when to come back; dates are left to our own back-off."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if value >= 0:
            return value / unit
    return None


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
"""The status an error would have had, if it had not come in the middle of a stream."""
_OK_STATUS = 200

EventT = TypeVar("EventT")


@contextmanager
def translate_errors(sdk_error: type[Exception]) -> Iterator[None]:
    """What is raised inside comes out as `ModelFailed`, if it is about the server.

    Raises:
        ModelFailed: instead of the SDK's and the transport's own errors.
    """
    try:
        yield
    except sdk_error as error:
        raise _failure_from_error(error) from error
    except (httpx.HTTPError, httpx2.HTTPError, json.JSONDecodeError, OSError) as error:
        raise _connection_failure(error) from error


async def read_next_event(stream: AsyncIterator[EventT], sdk_error: type[Exception]) -> EventT | None:
    """What a reply brings next; None at its end.

    Raises:
        ModelFailed: it broke off.
    """
    with translate_errors(sdk_error):
        return await anext(stream, None)


def _failure_from_error(error: Exception) -> ModelFailed:
    status = getattr(error, "status_code", None)
    kind, message = _parse_error_body(getattr(error, "body", None))
    message = message or str(getattr(error, "message", "") or error)
    if isinstance(status, int) and status != _OK_STATUS:
        if kind == "insufficient_quota":  # told as a rate limit, but waiting does not help
            return ModelFailed(message, kind=kind, status=status)
        return failure_from_status(status, message, kind=kind, headers=_response_headers(error))
    if kind is None and error.__cause__ is not None:
        return _connection_failure(error.__cause__)
    if kind is None and getattr(error, "request", None) is not None:
        return ModelFailed(message, kind="connection", retry=True)
    if kind is None:  # the SDK itself is not content: no key, a wrong address
        return ModelFailed(message, kind="setup")
    return failure_from_status(_STATUS_BY_KIND.get(kind, 500), message, kind=kind)


def _connection_failure(error: BaseException) -> ModelFailed:
    reason = str(error) or type(error).__name__
    message = f"no connection to the model{_server_address(error)}: {reason}"
    return ModelFailed(message, kind="connection", retry=True)


def _server_address(error: BaseException) -> str:
    """Which server was asked, where the transport knows."""
    try:
        url = error.request.url  # type: ignore[attr-defined]  # the transports' errors have it
        return f" at {url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    except (AttributeError, RuntimeError):
        return ""


def _parse_error_body(body: object) -> tuple[str | None, str | None]:
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


def _response_headers(error: Exception) -> Mapping[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return headers if isinstance(headers, Mapping) else {}
