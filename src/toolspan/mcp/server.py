"""One server: connected, called, connected again.

In: calls, any number at once. Out: the server's answer, or a `Fault`; each call settles once, at
its deadline at the latest. A call is never sent twice, except when the server said that it did not
know the session and so cannot have run it. Knows nothing of texts and blocks; `tools.py` does.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from toolspan.mcp.config import Remote, ServerSpec
from toolspan.mcp.fault import CONNECTION_CLOSED, Fault, words
from toolspan.mcp.health import Health
from toolspan.mcp.listing import Listed
from toolspan.profile import McpValues

if TYPE_CHECKING:
    from toolspan.mcp.link import Link, Progress, Station

_TRIES = 3
_FIRST_PAUSE = 0.25
"""Seconds between the tries to reach a server elsewhere, doubled after each."""
_LINGER = 1.0
"""Seconds to wait for the reason why a connection broke."""
_STALE = (-32_600, "Session terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long is waited, in seconds."""

    connect: float
    call: float
    idle_local: float | None = None
    idle_remote: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call of a server's tool."""

    tool: str
    arguments: Mapping[str, object]
    call_id: str
    progress: "Progress"
    timeout: float | None = None
    """Seconds, where the server's usual ones do not hold."""


class Server:
    """One server, through all its connections."""

    def __init__(
        self,
        spec: ServerSpec,
        values: McpValues,
        patience: Patience,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.health = Health()
        self.listed: tuple[Listed, ...] = ()
        self.has_resources = False
        self._values = values
        self._patience = patience
        self._changed = changed
        self._lock = anyio.Lock()
        self._link: Link | None = None
        self._station: Station | None = None
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def name(self) -> str:
        """As the configuration calls it."""
        return self.spec.name

    @property
    def call_timeout(self) -> float:
        """Seconds for one call."""
        return self.spec.timeout or self._patience.call

    async def start(self, station: "Station", group: anyio.abc.TaskGroup) -> None:
        """Connect for the first time; what goes wrong is in `health`."""
        self._station, self._group = station, group
        try:
            await self._connected()
        except Fault:
            return

    async def close(self) -> None:
        """Let the connection end, and wait until nothing is left of it."""
        self.health.state, self._group = "closed", None
        if self._link is not None:
            self._link.close()
            await self._link.over.wait()

    # Requests

    async def call(self, asked: Asked) -> Mapping[str, object]:
        """The answer to a call.

        Raises:
            Fault: there is none.
        """
        self.health.calls += 1
        began = time.monotonic()
        try:
            answer = await self._answer(asked)
        except Fault as fault:
            self.health.errors[fault.kind] += 1
            raise
        self.health.times.append(time.monotonic() - began)
        if answer.get("isError") is True:
            self.health.errors["tool"] += 1
        return answer

    async def resources(self) -> list[Mapping[str, object]]:
        """What the server lists.

        Raises:
            Fault: it did not answer.
        """
        with self._limit() as scope:
            return await (await self._connected()).resources()
        raise self._late(scope, "resources/list")

    async def read(self, uri: str) -> Mapping[str, object]:
        """What stands at an address of the server.

        Raises:
            Fault: it did not answer.
        """
        with self._limit() as scope:
            return await (await self._connected()).read(uri)
        raise self._late(scope, "resources/read")

    async def relist(self) -> None:
        """Ask again what tools there are."""
        link = self._link
        if link is None or link.lost:
            return
        try:
            with anyio.fail_after(self._patience.connect):
                self.listed = tuple(await link.tools())
        except (Fault, TimeoutError):
            return  # the tools that were known stay
        self._changed()

    # Inside

    async def _answer(self, asked: Asked) -> Mapping[str, object]:
        seconds = asked.timeout or self.call_timeout
        idle = self._idle()
        end = anyio.current_time() + seconds
        scope = anyio.CancelScope(deadline=min(end, anyio.current_time() + idle))

        def hear(done: float, total: float | None, message: str | None) -> None:
            scope.deadline = min(end, anyio.current_time() + idle)
            asked.progress(done, total, message)

        with scope:
            return await self._send(asked, hear)
        if not scope.cancelled_caught:
            raise Fault("closed", "Connection closed", CONNECTION_CLOSED)
        waited = seconds if anyio.current_time() >= end else idle
        raise Fault("timeout", f"no answer within {waited:g} s", seconds=waited)

    async def _send(self, asked: Asked, hear: "Progress") -> Mapping[str, object]:
        link = await self._connected()
        try:
            return await link.call(asked.tool, asked.arguments, asked.call_id, hear)
        except Fault as fault:
            if (fault.code, fault.message) == _STALE:
                link.close()
                again = await self._connected()
                return await again.call(asked.tool, asked.arguments, asked.call_id, hear)
            if fault.kind == "closed" and link.lost:
                await self._broken(link)
            raise

    async def _broken(self, link: "Link") -> None:
        """Tell why a connection broke, as far as that can be known soon."""
        self.health.state = "lost"
        if isinstance(self.spec, Remote):
            with anyio.move_on_after(_LINGER):
                await link.over.wait()
            if link.reason is not None:
                self.health.reason = link.reason
                raise Fault("closed", "fetch failed")

    async def _connected(self) -> "Link":
        """The connection; a new one when there is none, or the old one broke."""
        async with self._lock:
            if self._link is not None and not self._link.lost:
                return self._link
            if self._link is not None:
                self.health.state = "lost"
                if not self._values.restarts:
                    raise Fault("not_connected", self._values.not_connected)
                self.health.restarts += 1
            return await self._open()

    async def _open(self) -> "Link":
        tries = _TRIES if isinstance(self.spec, Remote) else 1
        for left in reversed(range(tries)):
            try:
                return await self._try()
            except TimeoutError:
                raise self._failed(f"no answer within {self._patience.connect:g} s") from None
            except Exception as error:  # whatever a transport raises, the server is not there
                if not left or not _passing(error):
                    raise self._failed(words(error)) from error
            await anyio.sleep(_FIRST_PAUSE * 2 ** (tries - left - 1))
        raise self._failed("no connection")

    async def _try(self) -> "Link":
        from toolspan.mcp.link import Link
        from toolspan.mcp.stdio import Ears

        if self._group is None or self._station is None:
            raise Fault("not_connected", self._values.not_connected)
        link = Link(Ears(self._heard_garbage, self.health.keep_words), self.relist)
        try:
            with anyio.fail_after(self._patience.connect):
                await self._group.start(link.hold, self.spec, self._station)
                self.listed = tuple(await link.tools())
        except BaseException:
            link.close()
            raise
        again, self._link = self._link is not None, link
        self.has_resources = link.has_resources
        self.health.state, self.health.reason = "connected", None
        self.health.protocol = link.protocol
        if again:
            self._changed()
        return link

    def _failed(self, reason: str) -> Fault:
        said = self.health.last_words.strip().rpartition("\n")[2]
        if said:
            reason = f"{reason} (it said: {said})"
        self.health.state, self.health.reason = "failed", reason
        return Fault("connect", f"Cannot connect to the MCP server {self.name!r}: {reason}")

    def _heard_garbage(self) -> None:
        self.health.garbage += 1

    def _idle(self) -> float:
        remote = isinstance(self.spec, Remote)
        limit = self._patience.idle_remote if remote else self._patience.idle_local
        return limit or float("inf")

    def _limit(self) -> anyio.CancelScope:
        return anyio.move_on_after(self.call_timeout)

    def _late(self, scope: anyio.CancelScope, what: str) -> Fault:
        if scope.cancelled_caught:
            waited = self.call_timeout
            return Fault("timeout", f"no answer to {what} within {waited:g} s", seconds=waited)
        return Fault("closed", "Connection closed", CONNECTION_CLOSED)


def _passing(error: BaseException) -> bool:
    """Whether another try may succeed: the network failed, and nobody refused us."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return type(error).__name__ in ("ConnectError", "ReadError", "RemoteProtocolError")
