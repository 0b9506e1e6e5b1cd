"""HTTP clients for the transports of remote servers: bounded messages, and failures that become error responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2
from mcp.types import PARSE_ERROR

from toolspan.integrations.mcp_client.protocol import CONNECTION_CLOSED, FETCH_FAILED, LOGIN_FAILED, LoginError

MAX_MESSAGE_BYTES = 1 << 26
"""The maximum size of a message in bytes. A longer line of a local server ends the stream."""
INVALID_ANSWER = "Invalid answer from the server"
_TOO_LARGE = f"{INVALID_ANSWER}: it is compressed, or larger than 64 MB"


class TooLargeError(httpx2.TransportError):
    """Raised if a message is larger than allowed."""


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of a response, which ends with an error if one message in it is too large."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int, *, has_events: bool) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._has_events = has_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        async for chunk in self._stream:
            size += len(chunk)
            # An empty line ends an event. It may begin in the chunk before.
            if self._has_events and any(end in last + chunk for end in (b"\n\n", b"\n\r\n", b"\r\r")):
                size = len(chunk)
            last = chunk[-2:]
            if size > self._max_bytes:
                raise TooLargeError(_TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def limit_response(response: httpx2.Response, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Make reading the body of a response fail if a message in it is too large.

    A compressed body is refused, because it could be small and still fill the memory.

    Raises:
        TooLargeError: the body is compressed.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise TooLargeError(_TOO_LARGE)
    has_events = "text/event-stream" in response.headers.get("content-type", "")
    stream = cast("httpx2.AsyncByteStream", response.stream)
    response.stream = _LimitedStream(stream, max_bytes, has_events=has_events)


class _LimitedClient(httpx2.AsyncClient):
    """An HTTP client that reads messages up to the size that a local server may send."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: object) -> httpx2.Response:
        """Send a request. Reading the body of the response fails if a message in it is too large."""
        request.headers["accept-encoding"] = "identity"
        response = await super().send(request, stream=True, **options)  # type: ignore[arg-type]
        try:
            limit_response(response)
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class PerMessageClient(_LimitedClient):
    """An HTTP client for streamable HTTP, where every message has its own connection."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request. If the connection breaks during the response, return an error response."""
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            content_type = str(response.headers.get("content-type", "")).lower()
            if request.method == "POST" and content_type.startswith("application/json"):
                await response.aread()  # the SDK resumes a broken event stream
        except LoginError as error:
            return _error_response(request, LOGIN_FAILED, str(error))
        except TooLargeError:
            if request.method != "POST":
                raise
            return _error_response(request, PARSE_ERROR, _TOO_LARGE)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise  # the server is unreachable, so the connection must be opened again
        except httpx2.TransportError:
            if request.method != "POST":
                raise
            return _error_response(request, CONNECTION_CLOSED, FETCH_FAILED)
        return response


def _error_response(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(502, json=body, request=request)


class SseClient(_LimitedClient):
    """An HTTP client for legacy SSE, where responses arrive on another connection."""

    on_failure: Callable[[str | None], None] | None = None
    """Called when a message could not be delivered, with the reason if there is one to show."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request and report a message that could not be delivered."""
        arrived, reason = False, None
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            if request.method == "POST":
                await response.aread()
            arrived = request.method != "POST" or response.is_success
        except LoginError as error:
            reason = str(error)
            raise
        finally:
            if not arrived and self.on_failure is not None and request.method == "POST":
                self.on_failure(reason)
        return response
