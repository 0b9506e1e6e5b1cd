"""One connection to a server: made, used by many calls at once, lost or closed.

In: where the server is. Out: a `Link` whose methods are the requests we send. A link never comes
back; `server.py` makes a new one. The only module, with `stdio.py` and `misfit.py`, that knows the
SDK: it is imported when the first server is connected, because the SDK takes a second to load.
"""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, Protocol, Self

import anyio
import anyio.abc
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientRequestContext
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, FileUrl, ValidationError

from mcp import Client, MCPError, types
from toolspan.mcp.config import Local, Remote, ServerSpec
from toolspan.mcp.fault import CONNECTION_CLOSED, Fault, words
from toolspan.mcp.listing import Listed
from toolspan.mcp.misfit import UNREADABLE, understood, unreadable
from toolspan.mcp.naming import plain
from toolspan.mcp.stdio import Ears, stdio_streams
from toolspan.mcp.web import BROKEN, Apart, Telling
from toolspan.process import Command, Custody

Negotiation = Literal["legacy", "auto"]
"""Shake hands as all servers can, or ask first whether the newest revision is known."""
Progress = Callable[[float, float | None, str | None], None]

_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a process gets of our environment; everything else may be a secret."""
_MOST_PAGES = 100
_WAITING = 1_024
"""Messages that may wait for a server that does not take them: a cancelled call waits for none."""
_HTTP_TIMEOUT = 30.0
_LARGEST_INLINE = 500_000
_INLINE_KEY = "anthropic/maxResultSizeChars"
_CALL_KEY = "claudecode/toolUseId"


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """Where connections are made from."""

    cwd: Path
    environment: Mapping[str, str]
    custody: Custody
    negotiation: Negotiation | None = None
    """None: as it is usual for the kind of server."""


class _Reading(Protocol):
    """The SDK's stream of what comes from a server."""

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Writing(Protocol):
    """The SDK's stream of what goes to a server."""

    async def send(self, item: SessionMessage, /) -> None: ...


class _Raw(BaseModel):
    """A result as it came; the SDK has checked that it fits the protocol."""

    model_config = ConfigDict(extra="allow")


class Link:
    """A connection, from the first word to the last."""

    def __init__(self, ears: Ears, changed: Callable[[], Awaitable[None]]) -> None:
        self.ears = ears
        self.changed = changed
        self.done = anyio.Event()
        """The server cannot be heard any more, or is not wanted any more."""
        self.over = anyio.Event()
        """Nothing is left of the connection."""
        self.reason: str | None = None
        """What broke it, when that is known."""
        self._client: Client | None = None

    async def hold(
        self,
        spec: ServerSpec,
        station: Station,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, say so, and stay connected until it is over; raises only while connecting."""
        try:
            async with self._connect(spec, station) as client:
                self._client = client
                task_status.started()
                await self.done.wait()
        except Exception as error:  # any fault of a transport ends just this link
            if self._client is None:
                raise
            self.reason = words(error)
        finally:
            self.done.set()
            self.over.set()

    def close(self) -> None:
        """Let it end."""
        self.done.set()

    @property
    def lost(self) -> bool:
        """Whether a request would not reach the server any more."""
        return self.done.is_set()

    @property
    def protocol(self) -> str | None:
        """The revision that was agreed on."""
        return self._client.protocol_version if self._client else None

    @property
    def has_resources(self) -> bool:
        """Whether the server says it has resources."""
        return self._client is not None and self._client.server_capabilities.resources is not None

    # Requests

    async def tools(self) -> list[Listed]:
        """The server's tools; empty when it has none.

        Raises:
            Fault: it did not answer as it should.
        """
        if self._client is None or self._client.server_capabilities.tools is None:
            return []
        listed: list[Listed] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            with self._faults():
                page = await self._client.session.list_tools(params=params)
            listed += [_listed(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return listed

    async def call(
        self, tool: str, arguments: Mapping[str, object], call_id: str, progress: Progress
    ) -> Mapping[str, object]:
        """The result of a call, as the server gave it.

        Raises:
            Fault: there is none.
        """
        meta: types.RequestParamsMeta = {_CALL_KEY: call_id}  # type: ignore[misc] # a free key
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta)
        return await self._ask(types.CallToolRequest(params=params), progress)

    async def resources(self) -> list[Mapping[str, object]]:
        """The server's resources, as it lists them.

        Raises:
            Fault: it did not answer as it should.
        """
        listed: list[Mapping[str, object]] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._ask(types.ListResourcesRequest(params=params))
            found = page.get("resources")
            listed += found if isinstance(found, list) else []
            following = page.get("nextCursor")
            if not isinstance(following, str) or not following:
                break
            cursor = following
        return listed

    async def read(self, uri: str) -> Mapping[str, object]:
        """What stands at an address of the server.

        Raises:
            Fault: it did not answer as it should.
        """
        params = types.ReadResourceRequestParams(uri=uri)
        return await self._ask(types.ReadResourceRequest(params=params))

    # Inside

    async def _ask(
        self, request: types.ClientRequest, on_progress: Progress | None = None
    ) -> Mapping[str, object]:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, total, message)

        if self._client is None:
            raise Fault("not_connected", "Not connected")
        with self._faults():
            raw = await self._client.session.send_request(
                request, _Raw, progress_callback=tell if on_progress else None
            )
        return raw.model_extra or {}

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Exceptions of the SDK as faults."""
        try:
            yield
        except MCPError as error:
            if (error.code, error.message) == (CONNECTION_CLOSED, BROKEN):
                raise Fault("closed", BROKEN) from error
            if error.code == CONNECTION_CLOSED and self.lost:
                raise Fault("closed", error.message, error.code) from error
            if (wrong := unreadable(error.code, error.message)) is not None:
                raise Fault("unreadable", wrong) from error
            raise Fault("protocol", error.message, error.code) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise Fault("unreadable", f"{UNREADABLE}: {where}: {first['msg']}") from error

    def _connect(self, spec: ServerSpec, station: Station) -> Client:
        async def take(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                await self.changed()

        async def roots(context: ClientRequestContext) -> types.ListRootsResult:  # noqa: ARG001
            folder = types.Root(uri=FileUrl(station.cwd.as_uri()), name=station.cwd.name)
            return types.ListRootsResult(roots=[folder])

        local = isinstance(spec, Local)
        modern = isinstance(spec, Remote) and spec.wire == "http"
        return Client(
            self._streams(spec, station),
            mode=station.negotiation or ("auto" if modern else "legacy"),
            message_handler=take,
            list_roots_callback=roots if local else None,
            client_info=types.Implementation(name="toolspan", version=_version()),
            cache=None,
        )

    @asynccontextmanager
    async def _streams(
        self, spec: ServerSpec, station: Station
    ) -> AsyncIterator[tuple["_Tap", MemoryObjectSendStream[SessionMessage]]]:
        """The transport's streams, with a queue before the one that may be stuck."""
        queue, said = anyio.create_memory_object_stream[SessionMessage](_WAITING)
        async with (
            queue,
            said,
            self._transport(spec, station) as (read, write),
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._pass_on, said, write)
            try:
                yield _Tap(read, self.done), queue
            finally:
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _transport(
        self, spec: ServerSpec, station: Station
    ) -> AsyncIterator[tuple[_Reading, _Writing]]:
        """The streams of messages from and to a server."""
        match spec:
            case Local():
                command = _command(spec, station)
                async with stdio_streams(command, station.custody, self.ears) as streams:
                    yield streams
            case Remote(wire="sse"):
                headers = dict(spec.headers)
                sse = sse_client(
                    spec.url, headers, _HTTP_TIMEOUT, httpx_client_factory=self._telling
                )
                async with sse as streams:
                    yield streams
            case Remote():
                limits = httpx2.Timeout(_HTTP_TIMEOUT, read=None)  # a call has its own deadline
                async with (
                    Apart(headers=dict(spec.headers), timeout=limits) as client,
                    streamable_http_client(spec.url, http_client=client) as streams,
                ):
                    yield streams

    def _telling(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        client = Telling(headers=headers, timeout=timeout, auth=auth)
        client.failed = self.close
        return client

    async def _pass_on(
        self, said: MemoryObjectReceiveStream[SessionMessage], write: _Writing
    ) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for message in said:
                await write.send(message)


class _Tap:
    """A stream of messages that tells when it ends, and tells those whom a bad message is for."""

    def __init__(self, stream: _Reading, ended: anyio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        try:
            heard = await self._stream.receive()
            return understood(heard) if isinstance(heard, Exception) else heard
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended.set()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await self.aclose()


def _command(spec: Local, station: Station) -> Command:
    environment = {
        name: station.environment[name] for name in _INHERITED if name in station.environment
    }
    environment |= {"CLAUDE_PROJECT_DIR": str(station.cwd)} | dict(spec.env)
    return Command(
        argv=[_program(spec.command, environment), *spec.args],
        cwd=station.cwd,
        env=environment,
        mark=f"mcp-{plain(spec.name)}",
    )


def _program(command: str, environment: Mapping[str, str]) -> str:
    """The program as the server's own PATH finds it."""
    return shutil.which(command, path=environment.get("PATH")) or command


def _listed(tool: types.Tool) -> Listed:
    hints = tool.annotations
    limit = (tool.meta or {}).get(_INLINE_KEY)
    known = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    return Listed(
        name=tool.name,
        description=tool.description or "",
        input_schema=tool.input_schema,
        read_only=hints.read_only_hint if hints else None,
        inline_limit=min(limit, _LARGEST_INLINE) if known and isinstance(limit, int) else None,
    )


def _version() -> str:
    try:
        return version("toolspan")
    except PackageNotFoundError:
        return "0"
