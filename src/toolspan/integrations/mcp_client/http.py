"""HTTP clients for remote servers that report a failed message and keep the connection.

In the SDK's transports, a failed message ends the whole connection or is ignored.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx2

from toolspan.integrations.mcp_client.protocol import CONNECTION_CLOSED

FETCH_FAILED = "fetch failed"
"""The client's text for a broken connection."""
_FAILURE_BODY = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": FETCH_FAILED}}


class PerMessageClient(httpx2.AsyncClient):
    """A client for streamable HTTP, where every message has its own connection."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request; if the connection breaks during the response, return an error response."""
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            if request.method == "POST" and _is_json(response):
                await response.aread()  # the SDK resumes a broken event stream
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise  # the server is unreachable, so the connection must be opened again
        except httpx2.TransportError:
            if request.method != "POST":
                raise
            return httpx2.Response(502, json=_FAILURE_BODY, request=request)
        return response


class SseClient(httpx2.AsyncClient):
    """A client for legacy SSE, where responses arrive on another connection."""

    on_failure: Callable[[], None] | None = None

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request, and report a message that was not delivered."""
        arrived = False
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            arrived = request.method != "POST" or response.is_success
        finally:
            if not arrived and self.on_failure is not None and request.method == "POST":
                self.on_failure()
        return response


def _is_json(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")
