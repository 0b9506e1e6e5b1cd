"""Close connections that do not send the whole header of a request in time, for which uvicorn has no setting.

Without a limit, one program could open all the connections that the system allows, and send nothing.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEADER_SECONDS = 10.0
Address = tuple[str, int]


class HeaderTimers:
    """The timers of the connections that wait for a header, by the address of the client."""

    def __init__(self) -> None:
        self._timers: dict[Address, asyncio.TimerHandle] = {}
        self._requests: dict[Address, int] = {}
        """The number of requests that are being answered."""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application that stops the timer of a connection while a request is answered."""

        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            client = scope.get("client")
            if client is None:
                await app(scope, receive, send)
                return
            address = (client[0], client[1])
            self.stop(address)
            self._requests[address] = self._requests.get(address, 0) + 1
            try:
                await app(scope, receive, send)
            finally:
                self._requests[address] -= 1
                if not self._requests[address]:
                    del self._requests[address]

        return wrapped

    def make_protocol(self) -> type[asyncio.Protocol]:
        """Return uvicorn's protocol with timers."""
        timers = self

        class TimedProtocol(H11Protocol):
            """An HTTP connection that is closed if a header takes too long."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                self._peer: Address = transport.get_extra_info("peername")[:2]
                timers.start(self._peer, transport)
                super().connection_made(transport)

            def data_received(self, data: bytes) -> None:
                timers.start(self._peer, self.transport)
                super().data_received(data)

            def connection_lost(self, exc: Exception | None) -> None:
                timers.stop(self._peer)
                super().connection_lost(exc)

        return TimedProtocol

    def start(self, address: Address, transport: asyncio.Transport) -> None:
        """Start the timer of a connection, unless it runs or a request is being answered."""
        if address not in self._timers and address not in self._requests:
            self._timers[address] = asyncio.get_running_loop().call_later(_HEADER_SECONDS, transport.abort)

    def stop(self, address: Address) -> None:
        """Stop the timer of a connection."""
        timer = self._timers.pop(address, None)
        if timer is not None:
            timer.cancel()
