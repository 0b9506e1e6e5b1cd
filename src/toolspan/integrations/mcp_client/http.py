"""HTTP to servers elsewhere, in which a message that fails is told, and costs no other.

In: requests of the SDK's transports, which let one that fails take the whole connection along, or
take no notice of it. Out: answers; in place of one that broke off, an answer that says so.
"""

from __future__ import annotations

from collections.abc import Callable

import httpx2

from toolspan.integrations.mcp_client.protocol import CONNECTION_CLOSED

FETCH_FAILED = "fetch failed"
"""What a call is told whose connection broke; the client's own words."""
_FAILURE_BODY = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": FETCH_FAILED}}


class PerMessageClient(httpx2.AsyncClient):
    """For streamable HTTP, where every message has a connection of its own."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request; one that got through and has no whole answer is answered here."""
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            if request.method == "POST" and _is_json(response):
                await response.aread()  # a stream of events may break off: the SDK resumes it
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise  # nobody is there: the whole connection is to be made anew
        except httpx2.TransportError:
            if request.method != "POST":
                raise
            return httpx2.Response(502, json=_FAILURE_BODY, request=request)
        return response


class SseClient(httpx2.AsyncClient):
    """For legacy SSE, where answers come elsewhere: after a message that fails, none may come."""

    on_failure: Callable[[], None] | None = None

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request, and tell of a message that did not arrive."""
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
