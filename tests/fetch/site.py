"""A small site on this machine, for tests that fetch pages."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream

from toolspan.testing.http11 import GONE, Connection, Request, Response

Answer = Response | Callable[[Request], Response]


@dataclass
class Site:
    """What is served, and what was asked."""

    pages: Mapping[str, Answer]
    port: int = 0
    asked: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            connection = Connection(stream)
            try:
                async for request in connection.requests():
                    self.asked.append(request)
                    answer = self.pages.get(request.path, Response(status=404, body=b"none"))
                    response = answer if isinstance(answer, Response) else answer(request)
                    await connection.send(response, request)
            except GONE:
                return


@asynccontextmanager
async def site(pages: Mapping[str, Answer]) -> AsyncIterator[Site]:
    made = Site(pages)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    made.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, made.serve)
        with anyio.fail_after(20):
            yield made
        group.cancel_scope.cancel()


def html(text: str) -> Response:
    return Response(status=200, body=text.encode(), content_type="text/html; charset=utf-8")


def to(place: str, status: int = 302) -> Response:
    return Response(status=status, body=b"", headers={"location": place})
