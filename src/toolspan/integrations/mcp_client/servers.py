"""MCP servers as a toolset.

    async with McpServers(Path(".mcp.json")) as servers:
        async with Session(tools=[*coding_tools(), *servers.tools()]) as session: ...

Entering the context connects all servers concurrently, each within the connect timeout. Unreachable servers are left
out and reported in `health`. Leaving the context ends all connections and processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

from toolspan.integrations.mcp_client.config import ServerSpec, load_servers, mcp_tool_name, read_servers
from toolspan.integrations.mcp_client.server import Health, McpServer, McpTimeouts
from toolspan.integrations.mcp_client.tools import InputCheck, resource_tools, server_tools
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import McpValues, Profile
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.tool import Toolset

if TYPE_CHECKING:
    from toolspan.integrations.mcp_client.connection import Negotiation


McpConfig = Path | str | Mapping[str, object]
"""The path of a configuration file, or its content."""
_CLOSE_SECONDS = 5.0
"""The seconds that servers have to exit before they are terminated."""


class McpServers:
    """The servers of a configuration, connected while the context is open."""

    def __init__(
        self,
        config: McpConfig,
        *,
        profile: Profile | None = None,
        cwd: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        validate: InputCheck = "none",
    ) -> None:
        """Read the configuration; no server starts before the context is entered.

        `environment` provides `${VAR}`, the timeouts (`MCP_TIMEOUT`, `MCP_TOOL_TIMEOUT`) and the variables that
        processes inherit. With `validate="strict"`, inputs are checked against the servers' schemas.

        Raises:
            BadServers: the configuration is invalid.
        """
        self.profile = profile or named_profile()
        self.on_change: Callable[[], None] | None = None
        """Called when a server's tools have changed; `tools()` returns the new ones."""
        self._environment = dict(os.environ if environment is None else environment)
        self._cwd = Path(cwd).expanduser().resolve()
        self._input_check = validate
        self._negotiation = _read_negotiation(self._environment)
        self._stack: AsyncExitStack | None = None
        timeouts = _read_timeouts(self._environment, self.profile.mcp)
        self._servers = {
            spec.name: McpServer(spec, self.profile.mcp, timeouts, self._notify_change)
            for spec in _load_specs(config, self._environment)
        }

    async def __aenter__(self) -> Self:
        if not self._servers:
            return self
        from toolspan.integrations.mcp_client.connection import ConnectionSetup

        async with AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(ProcessSupervisor())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            stack.push_async_callback(self._close_servers)
            setup = ConnectionSetup(
                cwd=self._cwd, environment=self._environment, supervisor=supervisor, negotiation=self._negotiation
            )
            async with anyio.create_task_group() as starting:
                for server in self._servers.values():
                    starting.start_soon(server.start, setup, group)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.__aexit__(None, None, None)  # a task group would wrap the exception of the block

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers, in the order of the configuration."""
        return tuple(self._servers)

    @property
    def health(self) -> Mapping[str, Health]:
        """The live health of each server, by name."""
        return {name: server.health for name, server in self._servers.items()}

    def tools(self) -> Toolset:
        """Return the tools of all connected servers, and the resource tools if any server has resources."""
        tools = [
            tool for server in self._servers.values() for tool in server_tools(server, self.profile, self._input_check)
        ]
        by_name = {tool.name: tool for tool in reversed(tools)}  # two servers may have the same tool name
        return Toolset([*reversed(by_name.values()), *resource_tools(self._servers, self.profile)])

    def find(self, name: str) -> tuple[McpServer, str] | None:
        """Return the server of a tool and the server's name for the tool, or None."""
        for server in self._servers.values():
            for listing in server.listed_tools:
                if mcp_tool_name(server.name, listing.name) == name:
                    return server, listing.name
        return None

    def _notify_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def _close_servers(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            async with anyio.create_task_group() as ending:
                for server in self._servers.values():
                    ending.start_soon(server.close)


def _load_specs(config: McpConfig, environment: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    if isinstance(config, Mapping):
        return read_servers(config, environment)
    return load_servers(Path(config), environment)


def _read_negotiation(environment: Mapping[str, str]) -> Negotiation | None:
    return "legacy" if environment.get("MCP_PROTOCOL_NEGOTIATION") == "legacy" else None


def _read_timeouts(environment: Mapping[str, str], values: McpValues) -> McpTimeouts:
    idle = _read_milliseconds(environment, "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT")
    return McpTimeouts(
        connect=_read_milliseconds(environment, "MCP_TIMEOUT") or values.connect_timeout,
        call=_read_milliseconds(environment, "MCP_TOOL_TIMEOUT") or values.call_timeout,
        idle_local=values.idle_local if idle is None else idle,
        idle_remote=values.idle_remote if idle is None else idle,
    )


def _read_milliseconds(environment: Mapping[str, str], name: str) -> float | None:
    """Read a variable in milliseconds and return seconds; None if it is missing or invalid."""
    try:
        return max(0.0, int(environment[name]) / 1e3)
    except (KeyError, ValueError):
        return None
