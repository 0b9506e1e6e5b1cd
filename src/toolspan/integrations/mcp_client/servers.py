"""MCP servers as a toolset.

    async with McpServers(Path(".mcp.json")) as servers:
        async with Session(tools=[*coding_tools(), *servers.tools()]) as session: ...

Entering the context connects all servers concurrently, each within the connect timeout. Unreachable servers are
omitted and reported in `health`. Leaving the context ends all connections and processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

from toolspan.errors import NotFound, ToolError, ToolspanError
from toolspan.integrations.mcp_client.arguments import InputCheck, prepare_arguments
from toolspan.integrations.mcp_client.config import RemoteServer, load_servers, mcp_tool_name, read_servers
from toolspan.integrations.mcp_client.elicitation import Elicitor, FireHook
from toolspan.integrations.mcp_client.logins import Login, LoginPrompt, LoginStore, default_login_path, login_key
from toolspan.integrations.mcp_client.protocol import ConnectionSetup, Health, McpError, Negotiation
from toolspan.integrations.mcp_client.server import McpCall, McpServer, McpTimeouts
from toolspan.integrations.mcp_client.tools import error_text, resource_tools, server_tools, to_tool_failure
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.schema.check import type_name
from toolspan.runtime.schema.issues import Issue, issue_json
from toolspan.runtime.tool import Toolset
from toolspan.types.decision import Allow, Ask, Deny

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

McpConfig = Path | str | Mapping[str, object]
"""The path of a configuration file, or its content."""
_CLOSE_SECONDS = 5.0
"""The number of seconds that servers have to exit before they are terminated."""
_CONNECT_TIMEOUT = 30.0
_EVALUATION_ERROR = "MCP error -32603: failed to evaluate permission"
_CALL_TIMEOUT = 600.0
"""The timeout of a call in seconds, unless the server or the environment sets another. Clients wait a day."""


class McpServers:
    """The configured servers, which are connected while the context is open."""

    def __init__(
        self,
        config: McpConfig,
        *,
        profile: Profile | None = None,
        cwd: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        sandbox: ActiveSandbox | None = None,
        validate: InputCheck = "none",
    ) -> None:
        """Read the configuration. No server starts before the context is entered.

        `environment` provides `${VAR}`, the timeouts (`MCP_TIMEOUT`, `MCP_TOOL_TIMEOUT`), the limit of results
        (`MAX_MCP_OUTPUT_TOKENS`) and the variables that processes inherit. With `validate="strict"`, inputs are
        checked against the servers' schemas.

        Raises:
            BadServers: the configuration is invalid.
        """
        self.profile = profile or named_profile()
        self.on_change: Callable[[], None] | None = None
        """A callback for changes to a server's tools. `tools()` then returns the new ones."""
        self._environment = dict(os.environ if environment is None else environment)
        self._cwd = Path(cwd).expanduser().resolve()
        self._input_check = validate
        self._sandbox = sandbox
        self._stack: AsyncExitStack | None = None
        legacy = self._environment.get("MCP_PROTOCOL_NEGOTIATION") == "legacy"
        self._negotiation: Negotiation | None = "legacy" if legacy else None
        values = self.profile.mcp
        idle = _read_milliseconds(self._environment, "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT")
        timeouts = McpTimeouts(
            connect=_read_milliseconds(self._environment, "MCP_TIMEOUT") or _CONNECT_TIMEOUT,
            call=_read_milliseconds(self._environment, "MCP_TOOL_TIMEOUT") or _CALL_TIMEOUT,
            idle_local=values.idle_local if idle is None else idle,
            idle_remote=values.idle_remote if idle is None else idle,
        )
        if isinstance(config, Mapping):
            specs = read_servers(config, self._environment)
        else:
            specs = load_servers(Path(config), self._environment)
        self._timeouts = timeouts
        self._elicitor = Elicitor(self._cwd)
        self._servers = {
            spec.name: McpServer(spec, values, timeouts, self._notify_change, self._elicitor) for spec in specs
        }

    async def __aenter__(self) -> Self:
        if not self._servers:
            return self
        async with AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(ProcessSupervisor())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            stack.push_async_callback(self._close_servers)
            setup = ConnectionSetup(
                cwd=self._cwd,
                environment=self._environment,
                supervisor=supervisor,
                sandbox=self._sandbox,
                negotiation=self._negotiation,
            )
            async with anyio.create_task_group() as starting:
                for server in self._servers.values():
                    starting.start_soon(server.start, setup, group)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.__aexit__(None, None, None)  # a task group would wrap an exception raised in the block

    def let_servers_ask(self, approver: Approver | None, fire_hook: FireHook | None = None) -> None:
        """Let servers ask the user for input during calls, through `approver`; None to cancel such requests.

        The approver gets a request of the tool `AskUserQuestion` with `elicitation` in its input, and returns `Allow`
        with `answers` in the input, or `Deny`. `fire_hook` runs the hooks `Elicitation` and `ElicitationResult`.
        """
        self._elicitor.approver, self._elicitor.fire_hook = approver, fire_hook

    async def login(self, name: str, prompt: LoginPrompt) -> Login | None:
        """Let the user log in at a server, and store the login for later processes.

        Returns None, and stores nothing, if the server does not ask for a login. The secret of a configured client
        may also be in the variable `MCP_CLIENT_SECRET`.

        Raises:
            NotFound: no server that is reached over HTTP has this name.
            ToolspanError: the server is unreachable, or the login failed. An earlier login is kept.
        """
        spec = self._find_remote(name)
        store = LoginStore(default_login_path(self._environment))
        before = store.read(login_key(spec))
        secret = self._environment.get("MCP_CLIENT_SECRET")
        if secret and spec.oauth.client_id and not spec.oauth.client_secret:
            spec = replace(spec, oauth=replace(spec.oauth, client_secret=secret))
        timeouts = replace(self._timeouts, connect=self._timeouts.connect + prompt.timeout)
        server = McpServer(spec, self.profile.mcp, timeouts)
        async with ProcessSupervisor() as supervisor, anyio.create_task_group() as group:
            setup = ConnectionSetup(
                cwd=self._cwd,
                environment=self._environment,
                supervisor=supervisor,
                negotiation=self._negotiation,
                login=prompt,
            )
            await server.start(setup, group)
            failure = None if server.health.state == "connected" else server.health.reason
            await server.close()
            group.cancel_scope.cancel()
        if failure is not None:
            raise ToolspanError(f"MCP server {name!r}: {failure}")
        login = store.read(login_key(spec))
        return None if login == before else login

    async def logout(self, name: str) -> bool | None:
        """Remove the login at a server, and ask the server to revoke it.

        Returns whether the server has revoked it; None if there was no login.

        Raises:
            NotFound: no server that is reached over HTTP has this name.
            SourceError: the file with the logins cannot be changed.
        """
        spec = self._find_remote(name)
        store = LoginStore(default_login_path(self._environment))
        if store.read(login_key(spec)) is None:
            return None
        from toolspan.integrations.mcp_client.oauth import ServerLogin  # imports the SDK

        is_revoked = await ServerLogin(spec, store).revoke()
        store.remove(login_key(spec))
        return is_revoked

    def _find_remote(self, name: str) -> RemoteServer:
        server = self._servers.get(name)
        if server is None:
            raise NotFound(f"no MCP server is called {name!r}; configured servers: {', '.join(self.names) or 'none'}")
        if not isinstance(server.spec, RemoteServer):
            raise NotFound(f"the MCP server {name!r} is a local program, which needs no login")
        return server.spec

    @property
    def names(self) -> tuple[str, ...]:
        """The server names, in configuration order."""
        return tuple(self._servers)

    @property
    def health(self) -> Mapping[str, Health]:
        """The current health of each server, by name."""
        return {name: server.health for name, server in self._servers.items()}

    def tools(self) -> Toolset:
        """Return the tools of all connected servers, plus the resource tools if any server has resources."""
        tools = [
            tool
            for server in self._servers.values()
            for tool in server_tools(server, self.profile, self._input_check, self._environment)
        ]
        by_name = {tool.name: tool for tool in reversed(tools)}  # two servers may have the same tool name
        return Toolset([*reversed(by_name.values()), *resource_tools(self._servers, self.profile)])

    def find(self, name: str) -> tuple[McpServer, str] | None:
        """Return the server that offers a tool and its own name for that tool, or None if there is none."""
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


def _read_milliseconds(environment: Mapping[str, str], name: str) -> float | None:
    """Read a variable in milliseconds and return seconds, or None if it is missing or invalid."""
    try:
        return max(0.0, int(environment[name]) / 1e3)
    except (KeyError, ValueError):
        return None


def prompt_tool_approver(servers: McpServers, name: str, profile: Profile, *, timeout: float | None = None) -> Approver:
    """Return an approver that calls the tool `name`. `timeout` (in seconds) overrides the profile's timeout.

    Raises:
        NotFound: no connected server has the tool.
    """
    entry = servers.find(name)
    if entry is None:
        names = ", ".join(tool for tool in servers.tools().names if tool.startswith("mcp__"))
        raise NotFound(f"No MCP tool is called {name!r}; available tools: {names or 'none'}")
    server, tool = entry
    seconds = timeout or profile.mcp.approval_timeout

    async def approve(permission_request: PermissionRequest, _ask: Ask) -> Allow | Deny:
        call = McpCall(
            tool=tool,
            arguments={
                "tool_name": permission_request.tool,
                "input": prepare_arguments(permission_request.input),
                "tool_use_id": permission_request.call.id,
            },
            call_id=permission_request.call.id,
            progress=lambda _done, _total, _message: None,
            timeout=seconds,
        )
        try:
            answer = await server.call_tool(call)
        except McpError as error:
            message = to_tool_failure(error, server, tool, profile.messages).text
            has_messages = profile.mcp.approval_timeout is not None
            if has_messages and error.kind == "timeout" and seconds is not None:
                minutes, rest = divmod(round(seconds), 60)
                duration = f"{minutes}m{rest}s" if minutes else f"{rest}s"
                message = f"{_EVALUATION_ERROR}: request timed out after {duration}"
            elif has_messages and error.kind in ("closed", "not_connected"):
                message = error.message if error.code is None else f"{_EVALUATION_ERROR}: no response received"
            raise ToolError(message) from error
        return _parse_decision(answer, profile)

    return approve


def _parse_decision(answer: Mapping[str, object], profile: Profile) -> Allow | Deny:
    content = answer.get("content")
    blocks = [item for item in content if isinstance(item, Mapping)] if isinstance(content, list) else []
    if answer.get("isError") is True:
        raise ToolError(error_text(blocks, profile.mcp) or "the permission tool failed")
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    response = None
    with suppress(ValueError, RecursionError):
        response = json.loads(str(texts[0]) if texts else "")
    issue = _response_issue(response, profile)
    if issue is not None or not isinstance(response, Mapping):
        if not profile.mcp.strict_approval:
            return Deny("The permission prompt tool returned an invalid permission result.", "config")
        raise ToolError(issue_json([issue] if issue else [], profile.issues))
    if response["behavior"] == "allow":
        new_input = response.get("updatedInput")
        return Allow(None, "user_temporary", new_input if isinstance(new_input, Mapping) else None)
    stop = response.get("interrupt") is True
    if stop and not profile.mcp.strict_approval:
        return Deny(None, "user_reject", stop)
    return Deny(str(response["message"]), "config", stop)


def _response_issue(response: object, profile: Profile) -> Issue | None:
    if not isinstance(response, Mapping):
        wrong = Issue("type", (), "", "object", type_name(response))
        return _union_issue((wrong,), (wrong,))
    record = "object" if profile.issues.validator == "zod 3" else "record"
    allow = _literal_issues(response, "allow")
    new_input = response.get("updatedInput")
    if not isinstance(new_input, Mapping) and (new_input is not None or profile.mcp.strict_approval):
        received_type = type_name(new_input) if "updatedInput" in response else "undefined"
        allow += (Issue("type", ("updatedInput",), "", record, received_type),)
    deny = _literal_issues(response, "deny")
    if not isinstance(response.get("message"), str):
        received_type = type_name(response["message"]) if "message" in response else "undefined"
        deny += (Issue("type", ("message",), "", "string", received_type),)
    return _union_issue(allow, deny) if allow and deny else None


def _union_issue(allow: tuple[Issue, ...], deny: tuple[Issue, ...]) -> Issue:
    return Issue("union", (), "Invalid input", detail={"branches": (allow, deny)})


def _literal_issues(response: Mapping[str, object], literal: str) -> tuple[Issue, ...]:
    if response.get("behavior") == literal:
        return ()
    detail = {"values": (literal,), "value": response.get("behavior"), "literal": True}
    return (Issue("value", ("behavior",), "", received=type_name(response.get("behavior")), detail=detail),)
