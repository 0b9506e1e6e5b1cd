"""One server and its successive connections.

Every call ends with a result or an McpError, at its deadline at the latest. A call is sent twice
only if the server reported an unknown session, which means that it did not run the call.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.abc

from toolspan.integrations.mcp_client.config import RemoteServer, ServerSpec
from toolspan.integrations.mcp_client.connection import McpToolListing
from toolspan.integrations.mcp_client.protocol import CONNECTION_CLOSED, McpError, McpErrorKind, exception_text
from toolspan.runtime.profiles import McpValues

if TYPE_CHECKING:
    from toolspan.integrations.mcp_client.connection import ConnectionSetup, McpConnection, ProgressHandler


ServerState = Literal["new", "connected", "lost", "failed", "closed"]
_MAX_TIMES = 1_000
_MAX_STDERR_CHARS = 4_000


@dataclass(slots=True)
class Health:
    """The state and counters of one server."""

    state: ServerState = "new"
    reason: str | None = None
    """The reason the server is not connected."""
    protocol: str | None = None
    """The negotiated protocol revision."""
    calls: int = 0
    errors: Counter[McpErrorKind] = field(default_factory=Counter)
    """Failed calls by kind; `tool` counts errors that the tool itself reported."""
    restarts: int = 0
    garbage_lines: int = 0
    """The number of output lines that are not messages."""
    rejected_tools: list[str] = field(default_factory=list)
    """Tools that are not offered, with the reason for each."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_TIMES))
    """Durations of the most recent answered calls, in seconds."""
    stderr_tail: str = ""
    """The last part of the process's standard error."""

    @property
    def timeouts(self) -> int:
        """The number of calls that timed out."""
        return self.errors["timeout"]

    @property
    def p95(self) -> float | None:
        """The 95th percentile of response times in seconds, or None before the first response."""
        ordered = sorted(self.times)
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, -(-len(ordered) * 95 // 100) - 1)]

    def keep_stderr(self, text: str) -> None:
        """Append to `stderr_tail`."""
        self.stderr_tail = text[-_MAX_STDERR_CHARS:]


_MAX_TRIES = 3
_FIRST_RETRY_PAUSE = 0.25
"""The pause in seconds before the first retry of a remote server. It doubles with each retry."""
_REASON_WAIT_SECONDS = 1.0
"""The number of seconds to wait for the reason a connection broke."""
_SESSION_TERMINATED = (-32_600, "Session terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTimeouts:
    """Timeouts in seconds."""

    connect: float
    call: float
    idle_local: float | None = None
    idle_remote: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCall:
    """One call to a server's tool."""

    tool: str
    arguments: Mapping[str, object]
    call_id: str
    progress: ProgressHandler
    timeout: float | None = None
    """The timeout in seconds, or None for the server's timeout."""


class McpServer:
    """A server that is connected, and reconnected as needed."""

    def __init__(
        self, spec: ServerSpec, values: McpValues, timeouts: McpTimeouts, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.spec = spec
        self.health = Health()
        self.listed_tools: tuple[McpToolListing, ...] = ()
        self.has_resources = False
        self._values = values
        self._timeouts = timeouts
        self._on_change = on_change
        self._lock = anyio.Lock()
        self._connection: McpConnection | None = None
        self._setup: ConnectionSetup | None = None
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.spec.name

    @property
    def call_timeout(self) -> float:
        """The timeout for one call, in seconds."""
        return self.spec.timeout or self._timeouts.call

    async def start(self, setup: ConnectionSetup, group: anyio.abc.TaskGroup) -> None:
        """Connect for the first time. Problems are reported in `health`."""
        self._setup, self._group = setup, group
        try:
            await self._ensure_connected()
        except McpError:
            return

    async def close(self) -> None:
        """Close the connection and wait until it is closed."""
        self.health.state, self._group = "closed", None
        if self._connection is not None:
            self._connection.close()
            await self._connection.ended.wait()

    async def call_tool(self, call: McpCall) -> Mapping[str, object]:
        """Call a tool and return the raw result.

        Raises:
            McpError: the call has no result.
        """
        self.health.calls += 1
        began = time.monotonic()
        try:
            answer = await self._call_with_deadline(call)
        except McpError as error:
            self.health.errors[error.kind] += 1
            raise
        self.health.times.append(time.monotonic() - began)
        if answer.get("isError") is True:
            self.health.errors["tool"] += 1
        return answer

    async def list_resources(self) -> list[Mapping[str, object]]:
        """Return the server's resources.

        Raises:
            McpError: the server did not answer.
        """
        with self._call_scope() as scope:
            return await (await self._ensure_connected()).list_resources()
        raise self._timeout_error(scope, "resources/list")

    async def read_resource(self, uri: str) -> Mapping[str, object]:
        """Return the content of a resource.

        Raises:
            McpError: the server did not answer.
        """
        with self._call_scope() as scope:
            return await (await self._ensure_connected()).read_resource(uri)
        raise self._timeout_error(scope, "resources/read")

    async def refresh_tools(self) -> None:
        """Fetch the list of tools again."""
        connection = self._connection
        if connection is None or connection.is_lost:
            return
        try:
            with anyio.fail_after(self._timeouts.connect):
                self.listed_tools = tuple(await connection.list_tools())
        except (McpError, TimeoutError):
            return  # keep the known tools
        self._on_change()

    async def _call_with_deadline(self, call: McpCall) -> Mapping[str, object]:
        seconds = call.timeout or self.call_timeout
        idle = self._idle_timeout()
        end = anyio.current_time() + seconds
        scope = anyio.CancelScope(deadline=min(end, anyio.current_time() + idle))

        def extend_deadline(done: float, total: float | None, message: str | None) -> None:
            scope.deadline = min(end, anyio.current_time() + idle)
            call.progress(done, total, message)

        with scope:
            return await self._send_call(call, extend_deadline)
        if not scope.cancelled_caught:
            raise McpError("closed", "Connection closed", CONNECTION_CLOSED)
        waited = seconds if anyio.current_time() >= end else idle
        raise McpError("timeout", f"no answer within {waited:g} s", seconds=waited)

    async def _send_call(self, call: McpCall, on_progress: ProgressHandler) -> Mapping[str, object]:
        connection = await self._ensure_connected()
        try:
            return await connection.call_tool(call.tool, call.arguments, call.call_id, on_progress)
        except McpError as error:
            if (error.code, error.message) == _SESSION_TERMINATED:
                connection.close()
                again = await self._ensure_connected()
                return await again.call_tool(call.tool, call.arguments, call.call_id, on_progress)
            if error.kind == "closed" and connection.is_lost:
                await self._handle_broken(connection)
            raise

    async def _handle_broken(self, connection: McpConnection) -> None:
        """Record why a connection broke, if the reason arrives soon enough."""
        self.health.state = "lost"
        if isinstance(self.spec, RemoteServer):
            with anyio.move_on_after(_REASON_WAIT_SECONDS):
                await connection.ended.wait()
            if connection.reason is not None:
                self.health.reason = connection.reason
                raise McpError("closed", "fetch failed")

    async def _ensure_connected(self) -> McpConnection:
        """Return the open connection, or open a new one."""
        async with self._lock:
            if self._connection is not None and not self._connection.is_lost:
                return self._connection
            if self._connection is not None:
                self.health.state = "lost"
                if not self._values.restarts:
                    raise McpError("not_connected", self._values.not_connected)
                self.health.restarts += 1
            return await self._open_connection()

    async def _open_connection(self) -> McpConnection:
        tries = _MAX_TRIES if isinstance(self.spec, RemoteServer) else 1
        for tries_remaining in reversed(range(tries)):
            try:
                return await self._try_connect()
            except TimeoutError:
                raise self._connect_error(f"no answer within {self._timeouts.connect:g} s") from None
            except Exception as error:  # any transport exception means that the server is unavailable
                if not tries_remaining or not _is_transient(error):
                    raise self._connect_error(exception_text(error)) from error
            await anyio.sleep(_FIRST_RETRY_PAUSE * 2 ** (tries - tries_remaining - 1))
        raise self._connect_error("no connection")

    async def _try_connect(self) -> McpConnection:
        from toolspan.integrations.mcp_client.connection import McpConnection
        from toolspan.integrations.mcp_client.stdio import StdioCallbacks

        if self._group is None or self._setup is None:
            raise McpError("not_connected", self._values.not_connected)
        connection = McpConnection(StdioCallbacks(self._count_garbage, self.health.keep_stderr), self.refresh_tools)
        try:
            with anyio.fail_after(self._timeouts.connect):
                await self._group.start(connection.stay_connected, self.spec, self._setup)
                self.listed_tools = tuple(await connection.list_tools())
        except BaseException:
            connection.close()
            raise
        again, self._connection = self._connection is not None, connection
        self.has_resources = connection.has_resources
        self.health.state, self.health.reason = "connected", None
        self.health.protocol = connection.protocol
        if again:
            self._on_change()
        return connection

    def _connect_error(self, reason: str) -> McpError:
        stderr_line = self.health.stderr_tail.strip().rpartition("\n")[2]
        if stderr_line:
            reason = f"{reason} (it said: {stderr_line})"
        self.health.state, self.health.reason = "failed", reason
        return McpError("connect", f"Cannot connect to the MCP server {self.name!r}: {reason}")

    def _count_garbage(self) -> None:
        self.health.garbage_lines += 1

    def _idle_timeout(self) -> float:
        remote = isinstance(self.spec, RemoteServer)
        limit = self._timeouts.idle_remote if remote else self._timeouts.idle_local
        return limit or float("inf")

    def _call_scope(self) -> anyio.CancelScope:
        return anyio.move_on_after(self.call_timeout)

    def _timeout_error(self, scope: anyio.CancelScope, what: str) -> McpError:
        if scope.cancelled_caught:
            waited = self.call_timeout
            return McpError("timeout", f"no answer to {what} within {waited:g} s", seconds=waited)
        return McpError("closed", "Connection closed", CONNECTION_CLOSED)


def _is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed because the network failed rather than the server refusing."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return type(error).__name__ in ("ConnectError", "ReadError", "RemoteProtocolError")
