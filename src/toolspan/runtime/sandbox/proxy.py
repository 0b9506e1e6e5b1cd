"""The HTTP proxy through which sandboxed commands reach the network.

`NetworkProxy` serves CONNECT and plain HTTP requests that carry the session's secret. Each request passes
`_find_route`: the host must be allowed by a rule or by the approver, it is resolved once, all its addresses must be
permitted, and the proxy connects to one of these addresses. Clients follow a redirect with a new request, which is
checked like the first.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import quote

import h11

from toolspan.runtime.addresses import HostResolver, resolve_host
from toolspan.runtime.sandbox.domains import DEFAULT_PORTS, DomainRules, normalize_host
from toolspan.runtime.sandbox.settings import Sandbox

AskDomain = Callable[[str, int], Awaitable[bool]]
"""A function that decides whether commands may connect to a host and port that no rule mentions."""
RefusalReason = Literal["denied by a rule", "not allowed", "declined", "private address", "not a valid host"]
_CHUNK = 1 << 16
_LINGER_SECONDS = 1.0
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"expect", b"host", b"http2-settings"}
)
"""Headers that are not forwarded, in addition to `proxy-*` and those listed in `Connection`."""


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Limits for the connections of a proxy. Times are in seconds."""

    max_head_bytes: int = 1 << 16
    max_connections: int = 256
    connect_timeout: float = 15.0
    idle_timeout: float = 300.0
    """The time after which a connection without traffic in either direction is closed."""


@dataclass(frozen=True, slots=True)
class RefusedAddress:
    """A connection that the proxy refused."""

    host: str
    port: int
    reason: RefusalReason
    at: float
    """The time on the clock of `time.monotonic`."""
    user: str = ""
    """The user name in the request's credentials."""
    address: str | None = None
    """The forbidden address, if the host was resolved."""

    @property
    def message(self) -> str:
        """A sentence for the model and the user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        resolved = f" ({self.address})" if self.address and self.address != self.host else ""
        return f"The sandbox refused a connection to {host}:{self.port}{resolved}: {self.reason}."


class _RequestError(Exception):
    """Raised if a request cannot be served. The client receives the status and the message."""

    def __init__(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = [*headers]


class _Target(NamedTuple):
    """The host and port of a request, and the path for the server."""

    host: str
    port: int
    path: bytes
    authority: bytes


class NetworkProxy:
    """A proxy that applies a sandbox's domain rules to one session's requests.

    `ask` decides about hosts that no rule mentions, once per host; without it they are refused. `on_refused` is
    called in the event loop for each refused connection; it must not block or raise.

    Raises:
        ValueError: a domain rule of the sandbox is not valid.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        ask: AskDomain | None = None,
        on_refused: Callable[[RefusedAddress], None] | None = None,
        resolver: HostResolver = resolve_host,
        limits: ProxyLimits | None = None,
    ) -> None:
        self.rules = DomainRules(
            sandbox.allowed_domains, sandbox.denied_domains, allow_local_addresses=sandbox.allow_local_addresses
        )
        self.port = 0
        self._upstream_port = sandbox.http_proxy_port
        self._secret = secrets.token_urlsafe(24)
        self._ask = ask if sandbox.ask_for_domains else None
        self._on_refused = on_refused
        self._resolver = resolver
        self._limits = limits or ProxyLimits()
        self._answers: dict[tuple[str, int], asyncio.Future[bool]] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    # Serving

    async def start(self, listener: socket.socket | None = None) -> None:
        """Accept connections from a listening socket, or from a new one on this machine's loopback."""
        listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=self._limits.max_head_bytes)

    async def aclose(self) -> None:
        """Close the listening socket and all connections."""
        if self._server is not None:
            self._server.close()
        tasks: list[asyncio.Future[bool] | asyncio.Task[None]] = [*self._connections, *self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def environment(self, *, user: str = "toolspan") -> dict[str, str]:
        """Return the environment variables that select the proxy. `user` identifies the caller in `RefusedAddress`.

        Connections to the loopback address that a command sees bypass the proxy.
        """
        credentials = "" if self._upstream_port else f"{quote(user, safe='')}:{self._secret}@"
        url = f"http://{credentials}127.0.0.1:{self.port}"
        variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url)
        variables["NO_PROXY"] = "localhost,127.0.0.1,::1"
        return variables | {name.lower(): value for name, value in variables.items()} | {"NODE_USE_ENV_PROXY": "1"}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # perf: asyncio does not do this for a socket it did not create; each small response would wait for 40 ms.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _ClientConnection(reader, writer, self._limits)
        try:
            if len(self._connections) >= self._limits.max_connections:
                await connection.respond(503, "Too many connections.")
                return
            self._connections.add(task)
            if self._upstream_port:
                async with self._connect(("127.0.0.1",), self._upstream_port) as (server_reader, server_writer):
                    await connection.forward_bytes(server_reader, server_writer)
            else:
                await self._serve(connection)
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.CancelledError):
            pass  # the connection is closed; cancellation comes only from `aclose`
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, connection: _ClientConnection) -> None:
        while True:
            try:
                request = await connection.read_request()
                if request is None:
                    return
                user = self._authenticate(request)
                target = _parse_target(request)
                addresses = await self._find_route(target.host, target.port, user)
                async with self._connect(addresses, target.port) as (server_reader, server_writer):
                    if request.method == b"CONNECT":
                        await connection.tunnel(server_reader, server_writer)
                        return
                    try:
                        await _Exchange(connection, server_reader, server_writer).run(request, target)
                    except OSError as error:
                        status = 504 if isinstance(error, TimeoutError) else 502
                        raise _RequestError(status, f"The connection to {target.host} failed: {error}") from error
            except _RequestError as error:
                await connection.respond(error.status, str(error), error.headers)
            except h11.RemoteProtocolError as error:
                await connection.respond(error.error_status_hint, f"Invalid request: {error}.")
            if not connection.start_next_request():
                await connection.linger()
                return

    def _authenticate(self, request: h11.Request) -> str:
        """Return the user name in the request's credentials.

        Raises:
            _RequestError: the secret is missing or wrong.
        """
        values = [value for name, value in request.headers if name == b"proxy-authorization"]
        scheme, _, encoded = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        try:
            user, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except binascii.Error:
            user = password = b""
        if scheme.lower() != b"basic" or not secrets.compare_digest(password, self._secret.encode()):
            challenge = [("Proxy-Authenticate", 'Basic realm="toolspan"')]
            raise _RequestError(407, "The proxy needs the credentials in HTTPS_PROXY.", challenge)
        return user.decode("utf-8", "replace")

    # Decisions

    async def _find_route(self, text: str, port: int, user: str) -> tuple[str, ...]:
        """Return the addresses to connect to. The host is resolved only after it is allowed.

        Otherwise the lookup itself could send data to a foreign name server.
        """
        host, address = text, None
        reason: RefusalReason
        try:
            host = normalize_host(text)
        except ValueError:
            reason = "not a valid host"
        else:
            is_address = ":" in host or host.rpartition(".")[2].isdigit()
            objection = await self._check_host(host, port, is_address=is_address)
            if objection is None:
                addresses = (host,) if is_address else await self._resolve(host, port)
                address = next((text for text in addresses if not self.rules.permits_address(text, port)), None)
                if address is None:
                    return addresses
            reason = objection or "private address"
        refused = RefusedAddress(host, port, reason, time.monotonic(), user, address)
        if self._on_refused is not None:
            self._on_refused(refused)
        raise _RequestError(403, refused.message)

    async def _check_host(self, host: str, port: int, *, is_address: bool) -> RefusalReason | None:
        """Return the reason why a host is refused, or None if a rule or the approver allows it."""
        decision = self.rules.decide(host, port)
        if decision == "deny":
            return "denied by a rule"
        if is_address and not self.rules.permits_address(host, port):
            return "private address"
        if decision == "allow":
            return None
        if self._ask is None:
            return "not allowed"
        key = (host, 0 if port in DEFAULT_PORTS else port)
        if key not in self._answers:
            self._answers[key] = asyncio.ensure_future(self._ask(host, port))
        # Requests for the same host wait for one answer. A client that disconnects must not cancel the question.
        return None if await asyncio.shield(self._answers[key]) else "declined"

    async def _resolve(self, host: str, port: int) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(self._limits.connect_timeout):
                return await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise _RequestError(502, f"The address of {host} cannot be found: {error}") from error

    @asynccontextmanager
    async def _connect(
        self, addresses: tuple[str, ...], port: int
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to the first address that accepts. Addresses are numeric, so nothing is resolved again."""
        problem: OSError | None = None
        for address in addresses:
            try:
                async with asyncio.timeout(self._limits.connect_timeout):
                    reader, writer = await asyncio.open_connection(address, port)
                break
            except OSError as error:  # TimeoutError is one
                problem = error
        else:
            raise _RequestError(502, f"Cannot connect: {problem or 'the host has no address'}")
        try:
            yield reader, writer
        finally:
            writer.close()


class _ClientConnection:
    """A client's connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ProxyLimits) -> None:
        self.protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_head_bytes)
        self.idle_timeout = limits.idle_timeout
        self._reader = reader
        self._writer = writer

    async def next_event(self) -> h11.Event | None:
        """Wait for the client's next event and return it, or return None if the client must wait for a response."""
        while True:
            event = self.protocol.next_event()
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                return None
            if self.protocol.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self.protocol.receive_data(await self._reader.read(_CHUNK))

    async def read_request(self) -> h11.Request | None:
        """Return the next request, or None at the end of the connection."""
        async with asyncio.timeout(self.idle_timeout):
            event = await self.next_event()
        return event if isinstance(event, h11.Request) else None

    async def send(self, event: h11.Event) -> None:
        """Send an event to the client."""
        self._writer.write(self.protocol.send(event) or b"")
        await self._writer.drain()

    async def respond(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Send a short response, unless one has begun, and close the connection after it."""
        if self.protocol.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        body = f"{message}\n".encode("utf-8", "replace")
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        await self.send(h11.Response(status_code=status, headers=[*fields, *headers, ("Connection", "close")]))
        with suppress(h11.LocalProtocolError):  # a response to HEAD has no body
            await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    def start_next_request(self) -> bool:
        """Prepare for another request. Return False if the connection cannot carry one."""
        if self.protocol.our_state is not h11.DONE or self.protocol.their_state is not h11.DONE:
            return False
        self.protocol.start_next_cycle()
        return True

    async def linger(self) -> None:
        """Discard further data from the client, because closing immediately could destroy the response in transit."""
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._reader.read(_CHUNK):
                    pass

    async def tunnel(self, server_reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter) -> None:
        """Accept a CONNECT request and forward the bytes that follow."""
        await self.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        early, _ = self.protocol.trailing_data
        server_writer.write(early)
        await self.forward_bytes(server_reader, server_writer)

    async def forward_bytes(self, server_reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter) -> None:
        """Forward bytes in both directions until both ends have finished."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.idle_timeout) as idle, asyncio.TaskGroup() as tasks:

            async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with suppress(OSError):
                    while data := await reader.read(_CHUNK):
                        idle.reschedule(loop.time() + self.idle_timeout)
                        writer.write(data)
                        await writer.drain()
                with suppress(OSError, RuntimeError):  # the other direction may have closed it
                    writer.write_eof()

            tasks.create_task(forward(self._reader, server_writer))
            tasks.create_task(forward(server_reader, self._writer))


class _Exchange:
    """One plain HTTP request and its response, forwarded between a client and a server.

    Both messages are parsed and serialized again, so that bytes that the two ends would frame differently are not
    forwarded.
    """

    def __init__(self, client: _ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client = client
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT)

    async def run(self, request: h11.Request, target: _Target) -> None:
        """Forward the request and its body while the response arrives."""
        headers = [(b"Host", target.authority), *_forwarded_headers(request.headers), (b"Connection", b"close")]
        async with asyncio.timeout(self._client.idle_timeout) as self._idle:
            await self._send(h11.Request(method=request.method, target=target.path, headers=headers))
            upload = asyncio.ensure_future(self._forward_body())
            download = asyncio.ensure_future(self._forward_response())
            try:
                await asyncio.wait({upload, download}, return_when=asyncio.FIRST_COMPLETED)
                if not download.done():
                    upload.result()  # raises if the client has disconnected
                await download
            finally:
                upload.cancel()
                download.cancel()
                await asyncio.gather(upload, download, return_exceptions=True)

    async def _send(self, event: h11.Event) -> None:
        self._idle.reschedule(asyncio.get_running_loop().time() + self._client.idle_timeout)
        self._writer.write(self._protocol.send(event) or b"")
        await self._writer.drain()

    async def _forward_body(self) -> None:
        while isinstance(event := await self._client.next_event(), h11.Data):
            try:
                await self._send(h11.Data(data=bytes(event.data)))
            except OSError:
                return  # the server may have answered before the end
        if isinstance(event, h11.EndOfMessage):
            await self._send(h11.EndOfMessage())  # without trailers

    async def _forward_response(self) -> None:
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                raise _RequestError(502, f"The server sent an invalid response: {error}.") from error
            match event:
                case h11.Response():
                    headers = _forwarded_headers(event.headers)
                    await self._client.send(
                        h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                    )
                case h11.Data():
                    await self._client.send(h11.Data(data=bytes(event.data)))
                case h11.EndOfMessage():
                    await self._client.send(h11.EndOfMessage())
                    return
                case h11.InformationalResponse():
                    pass
                case h11.NEED_DATA:
                    data = await self._reader.read(_CHUNK)
                    self._idle.reschedule(asyncio.get_running_loop().time() + self._client.idle_timeout)
                    self._protocol.receive_data(data)
                case _:
                    raise _RequestError(502, "The server closed the connection without a response.")


def _parse_target(request: h11.Request) -> _Target:
    """Return the target of a CONNECT request or of a request with an absolute address.

    Raises:
        _RequestError: the target has another form.
    """
    if request.method == b"CONNECT":
        authority, path, default_port = request.target, b"", ""
    else:
        scheme, separator, rest = request.target.partition(b"://")
        if not separator or scheme.lower() != b"http":
            raise _RequestError(400, "Only CONNECT and absolute http:// addresses are served.")
        end = next((index for index, byte in enumerate(rest) if byte in b"/?#"), len(rest))
        authority, path = rest[:end], rest[end:].partition(b"#")[0]
        path = path if path.startswith(b"/") else b"/" + path
        default_port = "80"
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            raise _RequestError(400, "A request has either Content-Length or Transfer-Encoding.")
    text = authority.decode("utf-8", "replace")
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, digits = text, default_port
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536
    if not host or not is_port or "@" in host or (":" in host and not is_bracketed):
        raise _RequestError(400, f"{text!r} is not a host and a port.")
    return _Target(host, int(digits), path, authority)


def _forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers for the other end, without those for a single connection."""
    fields = [(name, value) for name, value in headers if not name.startswith(b"proxy-")]
    dropped = set(_HOP_BY_HOP)
    for name, value in fields:
        if name == b"connection":
            dropped.update(option.strip().lower() for option in value.split(b","))
    # Framing headers are forwarded even if `Connection` lists them. A server may send both.
    dropped -= {b"content-length", b"transfer-encoding"}
    if any(name == b"transfer-encoding" for name, _ in fields):
        dropped.add(b"content-length")
    return [(name, value) for name, value in fields if name not in dropped]
