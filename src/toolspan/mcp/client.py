"""MCP servers as a toolset.

    async with McpServers(Path(".mcp.json")) as servers:
        async with Session(tools=[*coding_tools(), *servers.tools()]) as session: ...

In: a configuration. Out: tools, resources, and how each server does. Entering connects all servers
at once and waits for each, at most the connect timeout; one that cannot be reached is left out and
told of in `health`. Leaving ends everything that was started.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

from toolspan.mcp.config import ServerSpec, load_servers, read_servers
from toolspan.mcp.health import Health
from toolspan.mcp.naming import tool_name
from toolspan.mcp.resources import resource_tools
from toolspan.mcp.server import Patience, Server
from toolspan.mcp.tools import Check, server_tools
from toolspan.process import Custody
from toolspan.profile import McpValues, Profile
from toolspan.profile import profile as named_profile
from toolspan.run.toolset import Toolset

if TYPE_CHECKING:
    from toolspan.mcp.link import Negotiation

Config = Path | str | Mapping[str, object]
"""A file, or what would stand in it."""
_GOODBYE = 5.0
"""Seconds that servers get to end before they are cut off."""


class McpServers:
    """The servers of a configuration, connected while the block lasts."""

    def __init__(
        self,
        config: Config,
        *,
        profile: Profile | None = None,
        cwd: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        validate: Check = "none",
    ) -> None:
        """Read the configuration; nothing is started before the servers are entered.

        `environment` is where `${VAR}`, the timeouts (`MCP_TIMEOUT`, `MCP_TOOL_TIMEOUT`) and a
        process's few inherited variables come from. With `validate="strict"` inputs are held
        against the servers' schemas before they are sent.

        Raises:
            BadServers: the configuration cannot be used.
        """
        self.profile = profile or named_profile()
        self.on_change: Callable[[], None] | None = None
        """Called when a server says that its tools have changed; `tools()` gives the new ones."""
        self._environment = dict(os.environ if environment is None else environment)
        self._cwd = Path(cwd).expanduser().resolve()
        self._check = validate
        self._negotiation = _negotiation(self._environment)
        self._stack: AsyncExitStack | None = None
        patience = _patience(self._environment, self.profile.mcp)
        self._servers = {
            spec.name: Server(spec, self.profile.mcp, patience, self._changed)
            for spec in _specs(config, self._environment)
        }

    async def __aenter__(self) -> Self:
        if not self._servers:
            return self
        from toolspan.mcp.link import Station

        async with AsyncExitStack() as stack:
            custody = await stack.enter_async_context(Custody())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            stack.push_async_callback(self._close)
            station = Station(
                cwd=self._cwd,
                environment=self._environment,
                custody=custody,
                negotiation=self._negotiation,
            )
            async with anyio.create_task_group() as starting:
                for server in self._servers.values():
                    starting.start_soon(server.start, station, group)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.__aexit__(None, None, None)  # a group would wrap what the block raised

    # What there is

    @property
    def names(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""
        return tuple(self._servers)

    @property
    def health(self) -> Mapping[str, Health]:
        """How each server does, by name; the numbers go on changing."""
        return {name: server.health for name, server in self._servers.items()}

    def tools(self) -> Toolset:
        """The tools of all connected servers, and those for resources if any server has some."""
        tools = [
            tool
            for server in self._servers.values()
            for tool in server_tools(server, self.profile, self._check)
        ]
        known = {tool.name: tool for tool in reversed(tools)}  # two servers may look the same
        return Toolset([*reversed(known.values()), *resource_tools(self._servers, self.profile)])

    def find(self, name: str) -> tuple[Server, str] | None:
        """The server and its own name of a tool; None when nobody has it."""
        for server in self._servers.values():
            for listed in server.listed:
                if tool_name(server.name, listed.name) == name:
                    return server, listed.name
        return None

    # Inside

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def _close(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True):
            async with anyio.create_task_group() as ending:
                for server in self._servers.values():
                    ending.start_soon(server.close)


def _specs(config: Config, environment: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    if isinstance(config, Mapping):
        return read_servers(config, environment)
    return load_servers(Path(config), environment)


def _negotiation(environment: Mapping[str, str]) -> "Negotiation | None":
    return "legacy" if environment.get("MCP_PROTOCOL_NEGOTIATION") == "legacy" else None


def _patience(environment: Mapping[str, str], values: McpValues) -> Patience:
    idle = _milliseconds(environment, "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT")
    return Patience(
        connect=_milliseconds(environment, "MCP_TIMEOUT") or values.connect_timeout,
        call=_milliseconds(environment, "MCP_TOOL_TIMEOUT") or values.call_timeout,
        idle_local=values.idle_local if idle is None else idle,
        idle_remote=values.idle_remote if idle is None else idle,
    )


def _milliseconds(environment: Mapping[str, str], name: str) -> float | None:
    """A number of milliseconds in seconds; None when there is none, as clients take it."""
    try:
        return max(0.0, int(environment[name]) / 1e3)
    except (KeyError, ValueError):
        return None
