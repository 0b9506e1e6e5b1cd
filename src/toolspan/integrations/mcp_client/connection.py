"""One connection to a server, shared by concurrent calls. This module imports the SDK.

A connection is never reopened; `server.py` creates a new one. Messages that violate the protocol are routed to the
calls that they answer, so that these fail immediately instead of timing out.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, Self

import anyio
import anyio.abc
import anyio.lowlevel
import httpx2
from anyio.streams.memory import MemoryObjectSendStream
from mcp import Client, MCPError, types
from mcp.client.session import ClientRequestContext
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import BaseModel, ConfigDict, FileUrl, ValidationError

from toolspan.integrations.mcp_client.config import LocalServer, RemoteServer, ServerSpec
from toolspan.integrations.mcp_client.elicitation import Elicitation, ElicitationAnswer
from toolspan.integrations.mcp_client.http import INVALID_ANSWER, MAX_MESSAGE_BYTES, PerMessageClient, SseClient
from toolspan.integrations.mcp_client.logins import LoginStore, default_login_path
from toolspan.integrations.mcp_client.oauth import open_login
from toolspan.integrations.mcp_client.protocol import (
    CONNECTION_CLOSED,
    FETCH_FAILED,
    LOGIN_FAILED,
    URL_ELICITATION_REQUIRED,
    ConnectionSetup,
    Health,
    McpError,
    McpToolListing,
    ProgressHandler,
    first_exception,
    replace_lone_surrogates,
)
from toolspan.runtime.process import Command, ProcessSupervisor, TerminationError
from toolspan.types.tool_kinds import sanitize_name

_SDK_PARSE_FAILURES = ("Failed to parse JSON response", "Failed to parse SSE message")
"""Prefixes of the SDK's error messages for an invalid response."""
_INHERITED_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The environment variables that a server process inherits. Others may contain secrets."""
_MAX_PAGES = 100
_MAX_ROUNDS = 10
"""The number of times that a server may ask for input before it answers a call."""
_QUEUE_SIZE = 1_024
"""The maximum number of messages queued for a server that does not read them."""
_HTTP_TIMEOUT = 30.0
_MAX_INLINE_CHARS = 500_000
_INLINE_KEY = "anthropic/maxResultSizeChars"
_CALL_KEY = "claudecode/toolUseId"
_CHUNK_BYTES = 1 << 16
_EXIT_SECONDS = 0.5
"""The number of seconds that a server process has to exit after its stdin is closed."""
_GRACE_SECONDS = 1.0
"""The number of seconds between SIGTERM and SIGKILL."""
_MAX_STDERR_CHARS = 4_000


class _ReadStream(Protocol):
    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _WriteStream(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class _RawResult(BaseModel):
    """A result as received. The SDK has validated only its envelope."""

    model_config = ConfigDict(extra="allow")


class McpConnection:
    """One connection to a server, from handshake to close."""

    def __init__(
        self,
        health: Health,
        on_tools_changed: Callable[[], Awaitable[None]],
        on_elicitation: Callable[[Elicitation], Awaitable[ElicitationAnswer]],
    ) -> None:
        self.closing = anyio.Event()
        """Set when the server is unreachable or the connection is about to close."""
        self.ended = anyio.Event()
        """Set when the connection is completely closed."""
        self.reason: str | None = None
        self._health = health
        self._on_tools_changed = on_tools_changed
        self._on_elicitation = on_elicitation
        self._client: Client | None = None
        self._name = ""

    async def stay_connected(
        self,
        spec: ServerSpec,
        setup: ConnectionSetup,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report readiness, and stay connected until closed. Raises only while connecting."""
        self._name = spec.name
        try:
            async with self._make_client(spec, setup) as client:
                self._client = client
                task_status.started()
                await self.closing.wait()
        except Exception as error:  # a transport failure affects only this connection
            if self._client is None:
                raise
            cause = first_exception(error)
            self.reason = str(cause) or type(cause).__name__
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
        """Return the tools that the server lists. Raise McpError if the server did not answer correctly."""
        if self._client is None or self._client.server_capabilities.tools is None:
            return []
        listing: list[McpToolListing] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            with self._translate_errors():
                page = await self._client.session.list_tools(params=params)
            for tool in page.tools:
                limit = (tool.meta or {}).get(_INLINE_KEY)
                has_limit = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
                listing.append(
                    McpToolListing(
                        name=tool.name,
                        description=tool.description or "",
                        input_schema=tool.input_schema,
                        read_only=tool.annotations.read_only_hint if tool.annotations else None,
                        inline_limit=min(limit, _MAX_INLINE_CHARS) if has_limit and isinstance(limit, int) else None,
                    )
                )
            cursor = page.next_cursor
            if not cursor:
                break
        return listing

    async def call_tool(
        self, tool: str, arguments: Mapping[str, object], call_id: str, progress: ProgressHandler
    ) -> Mapping[str, object]:
        """Call a tool and return the raw result. Raise McpError if the call has no result."""
        meta: types.RequestParamsMeta = {_CALL_KEY: call_id}  # type: ignore[misc] # a free key
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta)
        for _ in range(_MAX_ROUNDS):
            try:
                answer = await self._send_request(types.CallToolRequest(params=params), progress)
            except McpError as error:
                if error.code != URL_ELICITATION_REQUIRED or not await self._open_urls(error.data):
                    raise
                continue
            if answer.get("resultType") != "input_required":
                return answer
            responses, state = await self._respond(answer)
            params = params.model_copy(update={"input_responses": responses, "request_state": state})
        raise McpError("protocol", f"the server asked for input more than {_MAX_ROUNDS} times")

    async def _open_urls(self, data: object) -> bool:
        """Ask the user to open the addresses that a call needs. Return whether they have opened all of them."""
        try:
            required = types.ElicitationRequiredErrorData.model_validate(data)
        except ValidationError:
            return False
        for params in required.elicitations:
            if (await self._elicit(params)).action != "accept":
                return False
        return bool(required.elicitations)

    async def _respond(self, answer: Mapping[str, object]) -> tuple[types.InputResponses, str | None]:
        """Return the responses to the requests in an incomplete result, and its state."""
        with self._translate_errors():
            incomplete = types.InputRequiredResult.model_validate(answer)
        responses: types.InputResponses = {}
        for name, request in (incomplete.input_requests or {}).items():
            if isinstance(request, types.ElicitRequest):
                responses[name] = await self._elicit(request.params)
            elif isinstance(request, types.ListRootsRequest):
                responses[name] = types.ListRootsResult(roots=[])
            else:
                raise McpError("protocol", "the server asks for a reply of the model, which is not supported")
        return responses, incomplete.request_state

    async def _elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Ask the user for input."""
        elicitation = Elicitation(server=self._name, message=params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            elicitation = replace(elicitation, url=params.url, id=params.elicitation_id)
        else:
            elicitation = replace(elicitation, schema=params.requested_schema)
        answer = await self._on_elicitation(elicitation)
        return types.ElicitResult.model_validate({"action": answer.action, "content": answer.content})

    async def list_resources(self) -> list[Mapping[str, object]]:
        """Return the server's resources. Raise McpError if the server did not answer correctly."""
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
        """Return the content of a resource. Raise McpError if the server did not answer correctly."""
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
        try:
            yield
        except MCPError as error:
            if (error.code, error.message) == (CONNECTION_CLOSED, FETCH_FAILED):
                raise McpError("closed", FETCH_FAILED) from error
            if error.code == LOGIN_FAILED:
                raise McpError("login", error.message) from error
            if error.code == CONNECTION_CLOSED and self.is_lost:
                raise McpError("closed", error.message, error.code) from error
            if error.code == PARSE_ERROR and error.message.startswith(_SDK_PARSE_FAILURES):
                # The rest of the message is everything that the SDK has tried to parse.
                raise McpError("unreadable", f"{INVALID_ANSWER}: it is not an MCP message") from error
            if error.code == PARSE_ERROR and error.message.startswith(INVALID_ANSWER):
                raise McpError("unreadable", error.message) from error
            raise McpError("protocol", error.message, error.code, data=error.error.data) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise McpError("unreadable", f"{INVALID_ANSWER}: {where}: {first['msg']}") from error

    def _make_client(self, spec: ServerSpec, setup: ConnectionSetup) -> Client:
        async def handle_message(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                await self._on_tools_changed()

        async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:  # noqa: ARG001
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(setup.cwd.as_uri()))])

        async def elicit(
            context: ClientRequestContext,  # noqa: ARG001
            params: types.ElicitRequestParams,
        ) -> types.ElicitResult:
            return await self._elicit(params)

        try:
            package_version = version("toolspan")
        except PackageNotFoundError:
            package_version = "0"
        modern = isinstance(spec, RemoteServer) and spec.transport == "http"
        return Client(
            self._open_streams(spec, setup),
            mode=setup.negotiation or ("auto" if modern else "legacy"),
            message_handler=handle_message,
            list_roots_callback=list_roots if isinstance(spec, LocalServer) else None,
            elicitation_callback=elicit,
            client_info=types.Implementation(name="toolspan", version=package_version),
            cache=None,
        )

    @asynccontextmanager
    async def _open_streams(
        self, spec: ServerSpec, setup: ConnectionSetup
    ) -> AsyncIterator[tuple[_WatchedStream, MemoryObjectSendStream[SessionMessage]]]:
        """Open the transport's streams, with a queue in front of the write stream, which may block."""
        queue, outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE_SIZE)
        tool_calls: set[int | str] = set()

        async def forward_messages(write: _WriteStream) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for message in outgoing:
                    if isinstance(message.message, JSONRPCRequest) and message.message.method == "tools/call":
                        tool_calls.add(message.message.id)
                    await write.send(message)

        async with (
            queue,
            outgoing,
            self._open_transport(spec, setup) as (read, write),
            anyio.create_task_group() as group,
        ):
            group.start_soon(forward_messages, write)
            try:
                yield _WatchedStream(read, self.closing, tool_calls), queue
            finally:
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_transport(
        self, spec: ServerSpec, setup: ConnectionSetup
    ) -> AsyncIterator[tuple[_ReadStream, _WriteStream]]:
        match spec:
            case LocalServer():
                names = [name for name in _INHERITED_VARIABLES if name in setup.environment]
                environment = {name: setup.environment[name] for name in names}
                environment |= {"CLAUDE_PROJECT_DIR": str(setup.cwd)} | dict(spec.env)
                program = shutil.which(spec.command, path=environment.get("PATH")) or spec.command
                command = Command(
                    argv=[program, *spec.args],
                    cwd=setup.cwd,
                    env=environment,
                    tag=f"mcp-{sanitize_name(spec.name)}",
                )
                async with AsyncExitStack() as stack:
                    if spec.sandbox:
                        from toolspan.runtime.sandbox.active import wrap_requested  # few servers need it

                        command = await stack.enter_async_context(wrap_requested(command, setup.sandbox, setup.cwd))
                    opening = _stdio_streams(command, setup.supervisor, self._health)
                    yield await stack.enter_async_context(opening)
            case RemoteServer():
                store = LoginStore(default_login_path(setup.environment))
                async with (
                    open_login(spec, store, setup.login) as auth,
                    self._open_remote(spec, auth) as streams,
                ):
                    yield streams

    @asynccontextmanager
    async def _open_remote(
        self, spec: RemoteServer, auth: httpx2.Auth | None
    ) -> AsyncIterator[tuple[_ReadStream, _WriteStream]]:
        headers = dict(spec.headers)
        if spec.transport == "sse":
            factory = self._make_sse_client
            async with sse_client(spec.url, headers, _HTTP_TIMEOUT, httpx_client_factory=factory, auth=auth) as streams:
                yield streams
            return
        limits = httpx2.Timeout(_HTTP_TIMEOUT, read=None)  # each call has its own deadline
        async with (
            PerMessageClient(headers=headers, timeout=limits, auth=auth) as client,
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
        client.on_failure = self._report_undelivered
        return client

    def _report_undelivered(self, reason: str | None) -> None:
        self.reason = self.reason or reason
        self.close()


class _WatchedStream:
    """A message stream that reports its end and routes invalid messages to the calls they answer.

    Tool results without content get empty content, because clients accept such results and the SDK does not.
    """

    def __init__(self, stream: _ReadStream, ended: anyio.Event, tool_calls: set[int | str]) -> None:
        self._stream = stream
        self._ended = ended
        self._tool_calls = tool_calls

    async def receive(self) -> SessionMessage | Exception:
        try:
            message = await self._stream.receive()
            if isinstance(message, Exception):
                return _recover_message(message)
            response = message.message
            if isinstance(response, JSONRPCResponse) and response.id in self._tool_calls:
                self._tool_calls.discard(response.id)
                response.result.setdefault("content", [])
            return message
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


def _parse_message(text: bytes) -> JSONRPCMessage:
    """Parse a message. An invalid response becomes an error response to the same request.

    Raise ValueError if the text is not a message and answers no request.
    """
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        value, repaired = replace_lone_surrogates(text)
    try:
        return jsonrpc_message_adapter.validate_json(repaired, by_name=False)
    except ValidationError as error:
        request_id = value.get("id") if isinstance(value, dict) and "method" not in value else None
        if not isinstance(value, dict) or not isinstance(request_id, int | str) or isinstance(request_id, bool):
            raise
        reason = "it is not an MCP message"
        message_type = "JSONRPCError" if "error" in value else "JSONRPCResponse"
        for detail in error.errors(include_url=False, include_input=False):
            kind, *where = detail["loc"]
            if kind == message_type:
                reason = f"{'.'.join(str(step) for step in where)}: {detail['msg']}"
                break
        error_data = ErrorData(code=PARSE_ERROR, message=f"{INVALID_ANSWER}: {reason}")
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error_data)


def _recover_message(error: Exception) -> SessionMessage | Exception:
    """Return the message that caused a transport's parse error, or the error itself if there is none."""
    for detail in error.errors(include_url=False) if isinstance(error, ValidationError) else ():
        rejected: object = detail["input"]
        if detail["type"] == "json_invalid" and isinstance(rejected, str):
            text = rejected.encode("utf-8", "surrogatepass")
        elif detail["type"] == "missing" and detail["loc"][-1] == "method":  # the whole message has no method
            text = json.dumps(rejected).encode()
        else:
            continue
        try:
            return SessionMessage(_parse_message(text))
        except ValueError:
            return error
    return error


# Servers as child processes, with one message per line on stdin and stdout


@asynccontextmanager
async def _stdio_streams(
    command: Command, supervisor: ProcessSupervisor, health: Health
) -> AsyncIterator[tuple[_ReadStream, _WriteStream]]:
    """Start the server, yield its message streams, and stop it and its children on exit.

    A line that is too long, a closed pipe or an exited process ends the stream. Raise StartError if the server cannot
    be started.
    """
    with ExitStack() as ours:
        with ExitStack() as theirs:
            source, stdin = os.pipe()
            theirs.callback(os.close, source)
            writer = ours.enter_context(_StdinWriter(stdin))
            stdout, sink = os.pipe()
            theirs.callback(os.close, sink)
            ours.callback(os.close, stdout)
            os.set_blocking(stdout, False)
            child = await supervisor.start(replace(command, stdin=source, stdout=sink))
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        reader = _StdoutReader(stdout, incoming, health)

        async def write_messages() -> None:
            with writer:
                async for message in outgoing:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    if not await writer.write(line.encode() + b"\n"):
                        reader.finish()
                        return

        async def wait_for_exit() -> None:  # a child process of the server may keep the pipe open
            await child.wait()
            reader.finish()

        async with incoming, outgoing, read, write, anyio.create_task_group() as group:
            group.start_soon(reader.run)
            group.start_soon(write_messages)
            group.start_soon(wait_for_exit)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    read.close()  # remaining output is discarded, so that the process can exit
                    write.close()
                    with anyio.move_on_after(_EXIT_SECONDS):
                        await child.wait()
                    with suppress(TerminationError):  # the supervisor retries and reports the error
                        await child.terminate(_GRACE_SECONDS)
                health.stderr_tail = child.stderr.text[-_MAX_STDERR_CHARS:]
                group.cancel_scope.cancel()


class _StdinWriter:
    """The server's stdin. Closing it asks the server to exit."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    async def write(self, data: bytes) -> bool:
        """Write all bytes, or return False if the server closed its stdin."""
        remaining = memoryview(data)
        while remaining and self._descriptor is not None:
            try:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._descriptor)
            except OSError:
                return False
        return not remaining


class _StdoutReader:
    """Reader that parses messages from a pipe until the pipe is closed."""

    def __init__(
        self, descriptor: int, incoming: MemoryObjectSendStream[SessionMessage | Exception], health: Health
    ) -> None:
        self._descriptor = descriptor
        self._incoming = incoming
        self._health = health
        self._is_ending = False
        self._wait_scope: anyio.CancelScope | None = None

    def finish(self) -> None:
        """Read the bytes remaining in the pipe and stop."""
        self._is_ending = True
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    async def run(self) -> None:
        buffer = bytearray()
        with self._incoming:
            while data := await self._read_chunk():
                buffer += data
                if b"\n" in data:
                    *lines, last = bytes(buffer).split(b"\n")
                    buffer = bytearray(last)
                    for line in lines:
                        await self._handle_line(line)
                if len(buffer) > MAX_MESSAGE_BYTES:
                    return
                await anyio.lowlevel.checkpoint()

    async def _read_chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                if self._is_ending:
                    return b""
            except OSError:
                return b""
            with anyio.CancelScope() as self._wait_scope:
                await anyio.wait_readable(self._descriptor)
            self._wait_scope = None

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = _parse_message(line)
        except ValueError:
            self._health.garbage_lines += 1
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._incoming.send(SessionMessage(message))
