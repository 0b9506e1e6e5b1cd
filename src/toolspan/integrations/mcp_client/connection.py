"""One connection to a server, shared by concurrent calls.

A connection is never reopened; `server.py` creates a new one. The SDK is imported here, when the
first connection is opened, because it takes a second to load.
"""

from __future__ import annotations

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
from mcp import Client, MCPError, types
from mcp.client.session import ClientRequestContext
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, FileUrl, ValidationError

from toolspan.integrations.mcp_client.config import LocalServer, RemoteServer, ServerSpec, sanitize_name
from toolspan.integrations.mcp_client.protocol import (
    CONNECTION_CLOSED,
    INVALID_ANSWER,
    McpError,
    exception_text,
    recover_message,
    unreadable_reason,
)
from toolspan.integrations.mcp_client.stdio import StdioCallbacks, stdio_streams
from toolspan.runtime.process import Command, ProcessSupervisor

FETCH_FAILED = "fetch failed"
"""The client's error message for a broken connection."""
_FAILURE_BODY = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": FETCH_FAILED}}


class PerMessageClient(httpx2.AsyncClient):
    """An HTTP client for streamable HTTP, where every message has its own connection."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request. If the connection breaks during the response, return an error response."""
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
    """An HTTP client for legacy SSE, where responses arrive on another connection."""

    on_failure: Callable[[], None] | None = None

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request and report a message that could not be delivered."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolListing:
    """A tool as listed by its server."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    read_only: bool | None
    """The server's read-only hint, or None if there is none."""
    inline_limit: int | None = None
    """The maximum number of result characters that the server wants to keep in the conversation."""


Negotiation = Literal["legacy", "auto"]
"""The handshake: `legacy`, which every server supports, or `auto`, which probes for the newest revision."""
ProgressHandler = Callable[[float, float | None, str | None], None]

_INHERITED_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The environment variables that a server process inherits. Others may contain secrets."""
_MAX_PAGES = 100
_QUEUE_SIZE = 1_024
"""The maximum number of messages queued for a server that does not read them."""
_HTTP_TIMEOUT = 30.0
_MAX_INLINE_CHARS = 500_000
_INLINE_KEY = "anthropic/maxResultSizeChars"
_CALL_KEY = "claudecode/toolUseId"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSetup:
    """Settings for new connections."""

    cwd: Path
    environment: Mapping[str, str]
    supervisor: ProcessSupervisor
    negotiation: Negotiation | None = None
    """The handshake, or None for the default for this kind of server."""


class _ReadStream(Protocol):
    """The SDK's stream of messages from a server."""

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _WriteStream(Protocol):
    """The SDK's stream of messages to a server."""

    async def send(self, item: SessionMessage, /) -> None: ...


class _RawResult(BaseModel):
    """A result as received. The SDK has validated only its envelope."""

    model_config = ConfigDict(extra="allow")


class McpConnection:
    """One connection to a server, from handshake to close."""

    def __init__(self, callbacks: StdioCallbacks, on_tools_changed: Callable[[], Awaitable[None]]) -> None:
        self.callbacks = callbacks
        self.on_tools_changed = on_tools_changed
        self.closing = anyio.Event()
        """Set when the server is unreachable or the connection is about to close."""
        self.ended = anyio.Event()
        """Set when the connection is completely closed."""
        self.reason: str | None = None
        """The reason the connection broke, if known."""
        self._client: Client | None = None

    async def stay_connected(
        self,
        spec: ServerSpec,
        setup: ConnectionSetup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report readiness, and stay connected until closed. Raises only while connecting."""
        try:
            async with self._make_client(spec, setup) as client:
                self._client = client
                task_status.started()
                await self.closing.wait()
        except Exception as error:  # a transport failure affects only this connection
            if self._client is None:
                raise
            self.reason = exception_text(error)
        finally:
            self.closing.set()
            self.ended.set()

    def close(self) -> None:
        """Request that the connection be closed."""
        self.closing.set()

    @property
    def is_lost(self) -> bool:
        """True if a request would not reach the server."""
        return self.closing.is_set()

    @property
    def protocol(self) -> str | None:
        """The negotiated protocol revision."""
        return self._client.protocol_version if self._client else None

    @property
    def has_resources(self) -> bool:
        """True if the server supports resources."""
        return self._client is not None and self._client.server_capabilities.resources is not None

    async def list_tools(self) -> list[McpToolListing]:
        """Return the tools that the server lists.

        Raises:
            McpError: the server did not answer correctly.
        """
        if self._client is None or self._client.server_capabilities.tools is None:
            return []
        listing: list[McpToolListing] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            with self._translate_errors():
                page = await self._client.session.list_tools(params=params)
            listing += [_parse_listing(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return listing

    async def call_tool(
        self, tool: str, arguments: Mapping[str, object], call_id: str, progress: ProgressHandler
    ) -> Mapping[str, object]:
        """Call a tool and return the raw result.

        Raises:
            McpError: the call has no result.
        """
        meta: types.RequestParamsMeta = {_CALL_KEY: call_id}  # type: ignore[misc] # a free key
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta)
        return await self._send_request(types.CallToolRequest(params=params), progress)

    async def list_resources(self) -> list[Mapping[str, object]]:
        """Return the server's resources.

        Raises:
            McpError: the server did not answer correctly.
        """
        listing: list[Mapping[str, object]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._send_request(types.ListResourcesRequest(params=params))
            page_resources = page.get("resources")
            listing += page_resources if isinstance(page_resources, list) else []
            next_cursor = page.get("nextCursor")
            if not isinstance(next_cursor, str) or not next_cursor:
                break
            cursor = next_cursor
        return listing

    async def read_resource(self, uri: str) -> Mapping[str, object]:
        """Return the content of a resource.

        Raises:
            McpError: the server did not answer correctly.
        """
        params = types.ReadResourceRequestParams(uri=uri)
        return await self._send_request(types.ReadResourceRequest(params=params))

    async def _send_request(
        self, request: types.ClientRequest, on_progress: ProgressHandler | None = None
    ) -> Mapping[str, object]:
        async def forward_progress(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, total, message)

        if self._client is None:
            raise McpError("not_connected", "Not connected")
        with self._translate_errors():
            raw = await self._client.session.send_request(
                request, _RawResult, progress_callback=forward_progress if on_progress else None
            )
        return raw.model_extra or {}

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert SDK exceptions to `McpError`."""
        try:
            yield
        except MCPError as error:
            if (error.code, error.message) == (CONNECTION_CLOSED, FETCH_FAILED):
                raise McpError("closed", FETCH_FAILED) from error
            if error.code == CONNECTION_CLOSED and self.is_lost:
                raise McpError("closed", error.message, error.code) from error
            if (reason := unreadable_reason(error.code, error.message)) is not None:
                raise McpError("unreadable", reason) from error
            raise McpError("protocol", error.message, error.code) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise McpError("unreadable", f"{INVALID_ANSWER}: {where}: {first['msg']}") from error

    def _make_client(self, spec: ServerSpec, setup: ConnectionSetup) -> Client:
        async def handle_message(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                await self.on_tools_changed()

        async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:  # noqa: ARG001
            folder = types.Root(uri=FileUrl(setup.cwd.as_uri()), name=setup.cwd.name)
            return types.ListRootsResult(roots=[folder])

        local = isinstance(spec, LocalServer)
        modern = isinstance(spec, RemoteServer) and spec.transport == "http"
        return Client(
            self._open_streams(spec, setup),
            mode=setup.negotiation or ("auto" if modern else "legacy"),
            message_handler=handle_message,
            list_roots_callback=list_roots if local else None,
            client_info=types.Implementation(name="toolspan", version=_package_version()),
            cache=None,
        )

    @asynccontextmanager
    async def _open_streams(
        self, spec: ServerSpec, setup: ConnectionSetup
    ) -> AsyncIterator[tuple[_WatchedStream, MemoryObjectSendStream[SessionMessage]]]:
        """Open the transport's streams, with a queue in front of the write stream, which may block."""
        queue, outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE_SIZE)
        async with (
            queue,
            outgoing,
            self._open_transport(spec, setup) as (read, write),
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._forward_messages, outgoing, write)
            try:
                yield _WatchedStream(read, self.closing), queue
            finally:
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_transport(
        self, spec: ServerSpec, setup: ConnectionSetup
    ) -> AsyncIterator[tuple[_ReadStream, _WriteStream]]:
        """Open the message streams to and from a server."""
        match spec:
            case LocalServer():
                command = _server_command(spec, setup)
                async with stdio_streams(command, setup.supervisor, self.callbacks) as streams:
                    yield streams
            case RemoteServer(transport="sse"):
                headers = dict(spec.headers)
                sse = sse_client(spec.url, headers, _HTTP_TIMEOUT, httpx_client_factory=self._make_sse_client)
                async with sse as streams:
                    yield streams
            case RemoteServer():
                limits = httpx2.Timeout(_HTTP_TIMEOUT, read=None)  # each call has its own deadline
                async with (
                    PerMessageClient(headers=dict(spec.headers), timeout=limits) as client,
                    streamable_http_client(spec.url, http_client=client) as streams,
                ):
                    yield streams

    def _make_sse_client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        client = SseClient(headers=headers, timeout=timeout, auth=auth)
        client.on_failure = self.close
        return client

    async def _forward_messages(self, outgoing: MemoryObjectReceiveStream[SessionMessage], write: _WriteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for message in outgoing:
                await write.send(message)


class _WatchedStream:
    """A message stream that reports its end and routes invalid messages to the calls they answer."""

    def __init__(self, stream: _ReadStream, ended: anyio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> SessionMessage | Exception:
        try:
            message = await self._stream.receive()
            return recover_message(message) if isinstance(message, Exception) else message
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


def _server_command(spec: LocalServer, setup: ConnectionSetup) -> Command:
    environment = {name: setup.environment[name] for name in _INHERITED_VARIABLES if name in setup.environment}
    environment |= {"CLAUDE_PROJECT_DIR": str(setup.cwd)} | dict(spec.env)
    return Command(
        argv=[_find_program(spec.command, environment), *spec.args],
        cwd=setup.cwd,
        env=environment,
        tag=f"mcp-{sanitize_name(spec.name)}",
    )


def _find_program(command: str, environment: Mapping[str, str]) -> str:
    """Return the path of the program, found using the server's `PATH`."""
    return shutil.which(command, path=environment.get("PATH")) or command


def _parse_listing(tool: types.Tool) -> McpToolListing:
    hints = tool.annotations
    limit = (tool.meta or {}).get(_INLINE_KEY)
    has_limit = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    return McpToolListing(
        name=tool.name,
        description=tool.description or "",
        input_schema=tool.input_schema,
        read_only=hints.read_only_hint if hints else None,
        inline_limit=min(limit, _MAX_INLINE_CHARS) if has_limit and isinstance(limit, int) else None,
    )


def _package_version() -> str:
    try:
        return version("toolspan")
    except PackageNotFoundError:
        return "0"
