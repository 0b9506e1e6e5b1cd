"""One server and its successive connections.

Every call ends with a result or an McpError, at its deadline at the latest. A call is sent twice
only if the server reported an unknown session, which means that it did not run the call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.abc

from toolspan.integrations.mcp_client.config import RemoteServer, ServerSpec
from toolspan.integrations.mcp_client.elicitation import Elicitation, ElicitationAnswer, Elicitor
from toolspan.integrations.mcp_client.protocol import (
    ConnectionSetup,
    Health,
    McpError,
    McpToolListing,
    ProgressHandler,
    first_exception,
)
from toolspan.runtime.profiles import McpValues

if TYPE_CHECKING:
    from toolspan.integrations.mcp_client.connection import McpConnection


_Answer = TypeVar("_Answer")
_MAX_TRIES = 3
_FIRST_RETRY_PAUSE = 0.25
"""The pause in seconds before the first retry of a remote server. It doubles with each retry."""
_REASON_WAIT_SECONDS = 1.0
_SESSION_TERMINATED = (-32_600, "Session terminated")
_TRANSIENT_ERRORS = frozenset({"ConnectError", "ReadError", "RemoteProtocolError"})
"""Exceptions of the HTTP client that indicate a network failure, not a refusal by the server."""


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


class _CallTimer:
    """The time limits of one call, which pause while the user is asked."""

    def __init__(self, seconds: float, idle: float) -> None:
        self._end = anyio.current_time() + seconds
        self._idle = idle
        self._pauses = 0
        self._paused_at = 0.0
        self.scope = anyio.CancelScope()
        self.extend()

    @property
    def is_over(self) -> bool:
        """True if the call has used all its time."""
        return anyio.current_time() >= self._end

    def extend(self) -> None:
        """Begin the time without progress again."""
        if not self._pauses:
            self.scope.deadline = min(self._end, anyio.current_time() + self._idle)

    def pause(self) -> None:
        """Stop the time."""
        if not self._pauses:
            self._paused_at = anyio.current_time()
            self.scope.deadline = float("inf")
        self._pauses += 1

    def resume(self) -> None:
        """Continue the time."""
        self._pauses -= 1
        if not self._pauses:
            self._end += anyio.current_time() - self._paused_at
            self.extend()


class McpServer:
    """A server that is connected, and reconnected as needed."""

    def __init__(
        self,
        spec: ServerSpec,
        values: McpValues,
        timeouts: McpTimeouts,
        on_change: Callable[[], None] = lambda: None,
        elicitor: Elicitor | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.call_timeout = spec.timeout or timeouts.call
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
        self._elicitor = elicitor
        self._timers: set[_CallTimer] = set()
        self._questions: set[anyio.CancelScope] = set()

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
        """Call a tool and return the raw result. Raise McpError if the call has no result."""
        self.health.calls += 1
        seconds = call.timeout or self.call_timeout
        remote = isinstance(self.spec, RemoteServer)
        idle = (self._timeouts.idle_remote if remote else self._timeouts.idle_local) or float("inf")
        began = time.monotonic()
        timer = _CallTimer(seconds, idle)

        def extend_deadline(done: float, total: float | None, message: str | None) -> None:
            timer.extend()
            call.progress(done, total, message)

        answer: Mapping[str, object] = {}
        self._timers.add(timer)
        try:
            with timer.scope:
                answer = await self._send_call(call, extend_deadline)
            if timer.scope.cancelled_caught:
                waited = seconds if timer.is_over else idle
                raise McpError("timeout", f"no answer within {waited:g} s", seconds=waited)
        except McpError as error:
            self.health.errors[error.kind] += 1
            raise
        finally:
            self._timers.discard(timer)
            if not self._timers:  # nothing needs the answers any more
                for question in self._questions:
                    question.cancel()
        self.health.times.append(time.monotonic() - began)
        if answer.get("isError") is True:
            self.health.errors["tool"] += 1
        return answer

    async def _elicit(self, elicitation: Elicitation) -> ElicitationAnswer:
        """Ask the user on behalf of the server while one of its calls runs. The time does not count for its calls."""
        if self._elicitor is None or not self._timers:
            return ElicitationAnswer("cancel")
        paused = list(self._timers)
        for timer in paused:
            timer.pause()
        answer = ElicitationAnswer("cancel")
        try:
            with anyio.CancelScope() as question:
                self._questions.add(question)
                answer = await self._elicitor.ask(elicitation)
        finally:
            self._questions.discard(question)
            for timer in paused:
                timer.resume()
        return answer

    async def list_resources(self) -> list[Mapping[str, object]]:
        """Return the server's resources. Raise McpError if the server did not answer."""
        return await self._request("resources/list", lambda connection: connection.list_resources())

    async def read_resource(self, uri: str) -> Mapping[str, object]:
        """Return the content of a resource. Raise McpError if the server did not answer."""
        return await self._request("resources/read", lambda connection: connection.read_resource(uri))

    async def _request(self, what: str, send: Callable[[McpConnection], Awaitable[_Answer]]) -> _Answer:
        with anyio.move_on_after(self.call_timeout):
            return await send(await self._ensure_connected())
        message = f"no answer to {what} within {self.call_timeout:g} s"
        raise McpError("timeout", message, seconds=self.call_timeout)

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
                self.health.state = "lost"
                if isinstance(self.spec, RemoteServer):
                    with anyio.move_on_after(_REASON_WAIT_SECONDS):
                        await connection.ended.wait()
                    if connection.reason is not None:
                        self.health.reason = connection.reason
                        raise McpError("closed", "fetch failed") from error
            raise

    async def _ensure_connected(self) -> McpConnection:
        async with self._lock:
            if self._connection is not None and not self._connection.is_lost:
                return self._connection
            if self._connection is not None:
                self.health.state = "lost"
                if not self._values.restarts:
                    raise McpError("not_connected", "Not connected")
                self.health.restarts += 1
            tries = _MAX_TRIES if isinstance(self.spec, RemoteServer) else 1
            for tries_remaining in reversed(range(tries)):
                try:
                    return await self._try_connect()
                except TimeoutError:
                    raise self._connect_error(f"no answer within {self._timeouts.connect:g} s") from None
                except Exception as error:  # any transport exception means that the server is unavailable
                    cause = first_exception(error)
                    if not tries_remaining or type(cause).__name__ not in _TRANSIENT_ERRORS:
                        raise self._connect_error(str(cause) or type(cause).__name__) from error
                await anyio.sleep(_FIRST_RETRY_PAUSE * 2 ** (tries - tries_remaining - 1))
            raise self._connect_error("no connection")

    async def _try_connect(self) -> McpConnection:
        # The SDK takes a second to load, so it is imported only when a connection is opened.
        from toolspan.integrations.mcp_client.connection import McpConnection

        if self._group is None or self._setup is None:
            raise McpError("not_connected", "Not connected")
        connection = McpConnection(self.health, self.refresh_tools, self._elicit)
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
            reason = f"{reason} (its last error output: {stderr_line})"
        self.health.state, self.health.reason = "failed", reason
        return McpError("connect", f"Cannot connect to the MCP server {self.name!r}: {reason}")
