"""As much HTTP/1.1 as a server for tests needs.

In: a byte stream from a client. Out: its requests, one after the other (with a length, in chunks,
after `Expect`, on a kept connection), and back the answers, whole or in chunks. Knows nothing of
what is asked. Read `Connection.request` first.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    DelimiterNotFound,
    IncompleteRead,
    move_on_after,
)
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

GONE = (BrokenResourceError, ClosedResourceError, IncompleteRead)
"""What is raised when the other side has left."""

_LONGEST_HEAD = 65_536
_LONGEST_BODY = 32 * 1024 * 1024
_PATIENCE = 2
"""Seconds to wait for a client to stop talking."""
_PHRASES = {529: "Overloaded"}


class Malformed(Exception):  # noqa: N818 - reads as a noun where it is caught
    """What came is not a request that can be read; the connection cannot go on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; header names are in lower case."""

    method: str
    path: str
    """Without its query."""
    headers: Mapping[str, str]
    body: bytes = b""
    version: str = "HTTP/1.1"

    @property
    def keeps_alive(self) -> bool:
        """Whether the client means to ask again."""
        wish = self.headers.get("connection", "").lower()
        return wish == "keep-alive" if self.version == "HTTP/1.0" else wish != "close"


@dataclass(frozen=True, kw_only=True)
class Response:
    """One answer, whole or in pieces."""

    status: int
    body: bytes | Iterable[bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Connection:
    """One client."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._reader = BufferedByteReceiveStream(stream)

    async def requests(self) -> AsyncIterator[Request]:
        """Requests until the client leaves or wants no more.

        Raises:
            Malformed: what came cannot be read.
        """
        while True:
            try:
                request = await self.request()
            except GONE:
                return
            yield request
            if not request.keeps_alive:
                return

    async def request(self) -> Request:
        """The next request."""
        head = await self._until(b"\r\n\r\n", "The head of the request is too long")
        first, *lines = head.decode("latin-1").lstrip("\r\n").split("\r\n")
        match first.split(" "):
            case [method, target, "HTTP/1.0" | "HTTP/1.1" as version]:
                headers = dict(_header(line) for line in lines)
            case _:
                raise Malformed(400, f"Expected an HTTP/1.1 request line, not {first[:80]!r}")
        if headers.get("expect", "").lower() == "100-continue":
            await self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(
            method=method,
            path=target.partition("?")[0],
            headers=headers,
            body=await self._body(headers),
            version=version,
        )

    async def send(self, response: Response, request: Request | None = None) -> None:
        """Answer a request; None stands for one that could not be read."""
        kept = request is not None and request.keeps_alive
        chunked = request is not None and request.version == "HTTP/1.1"
        headers = {"content-type": response.content_type, **response.headers}
        if isinstance(response.body, bytes):
            headers["content-length"] = str(len(response.body))
        elif chunked:
            headers["transfer-encoding"] = "chunked"
        if not kept:
            headers["connection"] = "close"
        await self._stream.send(_head(response.status, headers))
        if request is None or request.method != "HEAD":
            await self._send_body(response.body, in_chunks=chunked)

    async def end(self) -> None:
        """Leave in a way that the last answer arrives: bytes left unread would revoke it."""
        await self._stream.send_eof()
        with move_on_after(_PATIENCE):
            async for _ in self._stream:
                pass

    async def _send_body(self, body: bytes | Iterable[bytes], *, in_chunks: bool) -> None:
        if isinstance(body, bytes):
            await self._stream.send(body)
            return
        for piece in body:
            await self._stream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if in_chunks else piece)
        if in_chunks:
            await self._stream.send(b"0\r\n\r\n")

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._chunks()
        length = _number(headers.get("content-length", "0"), 10)
        return await self._reader.receive_exactly(length) if length else b""

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := _number((await self._line()).partition(";")[0].strip(), 16):
            _within_limit(len(body) + size)
            body += await self._reader.receive_exactly(size)
            await self._line()
        while await self._line():
            pass  # trailers
        return bytes(body)

    async def _line(self) -> str:
        return (await self._until(b"\r\n", "A line of the request is too long")).decode("latin-1")

    async def _until(self, end: bytes, otherwise: str) -> bytes:
        try:
            return await self._reader.receive_until(end, _LONGEST_HEAD)
        except DelimiterNotFound as error:
            raise Malformed(431, otherwise) from error


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise Malformed(400, f"Expected a header, not {line[:80]!r}")
    return name.strip().lower(), value.strip()


def _number(text: str, base: int) -> int:
    if not text.isascii() or not text.isalnum():
        raise Malformed(400, f"Expected the length of the body, not {text[:80]!r}")
    try:
        return _within_limit(int(text, base))
    except ValueError as error:
        raise Malformed(400, f"Expected the length of the body, not {text[:80]!r}") from error


def _within_limit(length: int) -> int:
    if length > _LONGEST_BODY:
        raise Malformed(413, "Request exceeds the maximum size")
    return length


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    known = status in HTTPStatus.__members__.values()
    phrase = HTTPStatus(status).phrase if known else _PHRASES.get(status, "")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
