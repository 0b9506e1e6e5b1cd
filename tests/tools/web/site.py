"""A web server on loopback for tests that fetch pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream

from toolspan.testing.model_server import DISCONNECTED, HttpConnection, HttpRequest, HttpResponse, MalformedRequest

Answer = HttpResponse | Callable[[HttpRequest], HttpResponse]


@dataclass
class Site:
    """A server with pages and the requests it received."""

    pages: Mapping[str, Answer]
    port: int = 0
    requests: list[HttpRequest] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            connection = HttpConnection(stream)
            try:
                async for request in connection.iter_requests():
                    self.requests.append(request)
                    page = self.pages.get(request.path, HttpResponse(status=404, body=b"none"))
                    response = page if isinstance(page, HttpResponse) else page(request)
                    await connection.send_response(response, request)
            except MalformedRequest:  # for example TLS
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except DISCONNECTED:
                return


@asynccontextmanager
async def site(pages: Mapping[str, Answer]) -> AsyncIterator[Site]:
    server = Site(pages)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()


def html(text: str) -> HttpResponse:
    return HttpResponse(status=200, body=text.encode(), content_type="text/html; charset=utf-8")


def to(location: str, status: int = 302) -> HttpResponse:
    return HttpResponse(status=status, body=b"", headers={"location": location})
