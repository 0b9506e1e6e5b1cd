"""The settings a command runs under: found, trusted or not, merged; what is not used is told.

In: what the command line says of settings. Out: rules, hooks, variables and servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolspan.cli.output import complain
from toolspan.errors import ToolError, ToolspanError
from toolspan.hooks.fire import Compose
from toolspan.hooks.handlers.mcp_tool import CallTool
from toolspan.hooks.make import Means, hooks_of
from toolspan.hooks.points import Firing, NoHooks
from toolspan.mcp import McpServers
from toolspan.mcp.fault import Fault
from toolspan.mcp.naming import tool_name
from toolspan.mcp.server import Asked
from toolspan.mcp.tools import as_sent
from toolspan.permission import Rules
from toolspan.permission.modes import MODES, Mode
from toolspan.permission.source import rules_of
from toolspan.profile import Profile
from toolspan.session.mind import Mind
from toolspan.settings import (
    SCOPES,
    Claim,
    Layer,
    Merged,
    Places,
    Scope,
    TrustStore,
    claim_of,
    default_store,
    gather,
    merge,
)
from toolspan.settings.load import load_json, unknown_keys
from toolspan.settings.merge import Head, of_head
from toolspan.settings.scopes import OF_THE_PROJECT

_ORIGINS: Mapping[Scope, str] = {
    "managed": "policySettings",
    "command_line": "flagSettings",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
}
SOURCES = ("user", "project", "local")
MakeHeadHooks = Callable[[Head, object, Path], Firing]
"""Makes handlers of the hooks in the head of an agent's or a skill's file.

Raises:
    ToolspanError: they are none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWishes:
    """How hooks are to be run."""

    compose: Compose = "parallel"
    fail_closed: bool = False
    person: bool = False
    """Somebody is there to be asked."""
    mind: Mind | None = None
    """A model is there to be asked."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings, as far as they count."""

    merged: Merged
    places: Places
    own_servers: Mapping[str, object]
    """MCP servers of a project that is trusted."""
    agent_folders: Sequence[Path] = ()
    """Where agents are described; the project's only if it is trusted."""
    trusted: bool = False
    """Whether the project is."""

    @property
    def mode(self) -> Mode:
        """What happens to calls nobody speaks of.

        Raises:
            ToolspanError: the settings name a mode that is none.
        """
        wanted = self.merged.permissions.default_mode or "default"
        for mode in MODES:
            if mode == wanted:
                return mode
        raise ToolspanError(f"permissions.defaultMode is {wanted!r}; there are {', '.join(MODES)}")

    def check(self, mode: Mode) -> None:
        """Say so if the mode may not be used.

        Raises:
            ToolspanError: it may not.
        """
        off = self.merged.permissions.disable_bypass_permissions_mode
        if mode == "bypassPermissions" and off == "disable":
            raise ToolspanError("settings have switched the mode bypassPermissions off")

    def rules(self, chosen: Profile) -> Rules:
        """The permission rules of all files."""
        only = self.merged.switches.allow_managed_permission_rules_only
        rules = Rules()
        for layer in self.merged.layers:
            if not only or layer.scope == "managed":
                block = layer.settings.permissions
                rules += rules_of(block, self._origin(layer), self._anchor(layer), chosen.refusals)
        return rules

    def hooks(self, chosen: Profile, servers: McpServers, wishes: HookWishes) -> Firing:
        """The handlers of all files."""
        return self._made(self.merged, chosen, servers, wishes)

    def maker(self, chosen: Profile, servers: McpServers, wishes: HookWishes) -> MakeHeadHooks:
        """Makes handlers of the hooks in the head of a file."""

        def make(head: Head, block: object, path: Path) -> Firing:
            return self._made(of_head(self.merged, block, path, head), chosen, servers, wishes)

        return make

    def counts(self, path: Path) -> bool:
        """Whether what could run something is used of a file: not of an untrusted project's."""
        own = self.places.project / ".claude"
        return self.trusted or not path.absolute().is_relative_to(own)

    def _made(
        self, merged: Merged, chosen: Profile, servers: McpServers, wishes: HookWishes
    ) -> Firing:
        if wishes.person:  # then questions of consent are fired in every client version
            chosen = replace(chosen, hooks=replace(chosen.hooks, asks_permission_headless=True))
        made = hooks_of(
            merged,
            chosen,
            means=_means(servers, wishes.mind),
            compose=wishes.compose,
            fail_closed=wishes.fail_closed,
        )
        for note in made.notes:
            complain(note)
        return NoHooks() if made.hooks.silent else made.hooks

    def servers(self, named: Path | None) -> Path | dict[str, object]:
        """Which MCP servers to connect to: those that were named, and a trusted project's own.

        Raises:
            SourceError: a file of servers cannot be read.
        """
        off = self.merged.switches.disabled_mcpjson_servers or ()
        own = {name: spec for name, spec in self.own_servers.items() if name not in off}
        if not own:
            return named or {"mcpServers": {}}
        given = load_json(named).get("mcpServers") if named else {}
        return {"mcpServers": {**own, **(given if isinstance(given, dict) else {})}}

    def _origin(self, layer: Layer) -> str:
        own = self.places.project / ".claude" / "settings.json"
        if layer.scope == "command_line" and own.exists() and layer.path.samefile(own):
            return _ORIGINS["project"]
        return _ORIGINS[layer.scope]

    def _anchor(self, layer: Layer) -> Path:
        """Where a path that begins with a slash begins."""
        if layer.scope in ("project", "local"):
            return self.places.project
        return layer.path.absolute().parent


def host_settings(project: Path, named: Path | None, sources: str) -> HostSettings:
    """The settings of a project, and of whoever runs us; `sources` names the files to look for.

    Raises:
        SourceError: a file cannot be read.
        BadSetting: a file has a value of the wrong kind.
        ToolspanError: there is no such source.
    """
    places = Places.of(project.absolute())
    scopes = _scopes(sources)
    own = scopes & OF_THE_PROJECT
    # What a person accepts is all of a project's files: they are judged together.
    layers = gather(places, named=named, scopes=scopes | OF_THE_PROJECT if own else scopes)
    claim = claim_of(places, layers) if own else Claim(places.project, {})
    trusted = TrustStore(default_store()).trusts(claim)
    used = [layer for layer in layers if layer.scope == "command_line" or layer.scope in scopes]
    for line in (line for layer in used for line in unknown_keys(layer.raw, str(layer.path))):
        complain(line)
    merged = merge(used, trusted=trusted)
    held = list(merged.withheld)
    held += [places.mcp] if claim.servers and not trusted else []
    held += [places.agents] if own and places.agents.is_dir() and not trusted else []
    for path in held:
        complain(
            f"{path}: the folder is not trusted, so what could run something is not used;"
            " see `toolspan trust`"
        )
    folders = [places.user / "agents"] if "user" in scopes else []
    folders += [places.agents] if "project" in scopes and trusted else []
    return HostSettings(merged, places, claim.servers if trusted else {}, folders, trusted)


def _scopes(sources: str) -> frozenset[Scope]:
    wanted = {one.strip() for one in sources.split(",") if one.strip()}
    unknown = sorted(wanted - set(SOURCES))
    if unknown:
        raise ToolspanError(f"{unknown[0]!r} is no source of settings: {', '.join(SOURCES)}")
    return frozenset(scope for scope in SCOPES if scope not in SOURCES or scope in wanted)


def _means(servers: McpServers, mind: Mind | None) -> Means:
    if mind is None:
        return Means(call_tool=caller(servers))
    return Means(call_tool=caller(servers), ask_model=mind.ask, ask_agent=mind.ask_agent)


def caller(servers: McpServers) -> CallTool:
    """Calls a tool of a connected server for a handler."""

    async def call(server: str, tool: str, given: Mapping[str, object]) -> str:
        found = servers.find(tool_name(server, tool))
        if found is None:
            raise ToolError(f"no connected MCP server {server!r} has a tool {tool!r}")
        asked = Asked(
            tool=found[1],
            arguments=as_sent(given),
            call_id=f"hook-{server}-{tool}",
            progress=lambda _done, _total, _message: None,
            timeout=None,
        )
        try:
            answer = await found[0].call(asked)
        except Fault as fault:
            raise ToolError(fault.message) from fault
        text = _text(answer.get("content"))
        if answer.get("isError") is True:
            raise ToolError(text or "the tool failed")
        return text

    return call


def _text(content: object) -> str:
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(one["text"]) for one in blocks if isinstance(one.get("text"), str))
