"""The settings a command runs under: found, trusted or not, merged; what is not used is told.

In: what the command line says of settings. Out: rules, hooks, variables and servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from toolspan.cli.output import warn
from toolspan.errors import ToolError, ToolspanError
from toolspan.integrations.mcp_client import McpServers
from toolspan.integrations.mcp_client.config import mcp_tool_name
from toolspan.integrations.mcp_client.protocol import McpError
from toolspan.integrations.mcp_client.server import McpCall
from toolspan.integrations.mcp_client.tools import prepare_arguments
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.hooks.events import HookRunner, NoHooks
from toolspan.runtime.hooks.handlers import CallTool
from toolspan.runtime.hooks.load import HookServices, load_hooks
from toolspan.runtime.permissions.modes import MODES, Mode
from toolspan.runtime.permissions.rules import Rules, rules_from_settings
from toolspan.runtime.profiles import VERSIONS, Profile, profile
from toolspan.runtime.settings import (
    SCOPES,
    MergedSettings,
    Scope,
    SettingsLayer,
    SettingsPaths,
    TrustRequest,
    TrustStore,
    build_trust_request,
    default_trust_path,
    load_layers,
    merge_settings,
)
from toolspan.runtime.settings.frontmatter import parse_frontmatter_hooks
from toolspan.runtime.settings.load import load_json, unknown_keys
from toolspan.runtime.settings.scopes import PROJECT_SCOPES, FrontmatterKind, with_frontmatter_hooks
from toolspan.session.agent import HookModelAccess
from toolspan.types.tool_kinds import ToolKind, tools_of_kinds

_RULE_ORIGINS: Mapping[Scope, str] = {
    "managed": "policySettings",
    "command_line": "flagSettings",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
}
SETTING_SOURCES = ("user", "project", "local")
FrontmatterHookFactory = Callable[[FrontmatterKind, object, Path], HookRunner]
"""Makes handlers of the hooks in the head of an agent's or a skill's file.

Raises:
    ToolspanError: they are none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """How hooks are to be run."""

    compose: Compose = "parallel"
    fail_closed: bool = False
    person: bool = False
    """Somebody is there to be asked."""
    model_access: HookModelAccess | None = None
    """A model is there to be asked."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings, as far as they count."""

    merged_settings: MergedSettings
    settings_paths: SettingsPaths
    project_servers: Mapping[str, object]
    """MCP servers of a project that is trusted."""
    agent_folders: Sequence[Path] = ()
    """Where agents are described; the project's only if it is trusted."""
    is_trusted: bool = False
    """Whether the project is."""

    @property
    def default_mode(self) -> Mode:
        """What happens to calls nobody speaks of.

        Raises:
            ToolspanError: the settings name a mode that is none.
        """
        mode_name = self.merged_settings.permissions.default_mode or "default"
        for mode in MODES:
            if mode == mode_name:
                return mode
        raise ToolspanError(f"permissions.defaultMode is {mode_name!r}; there are {', '.join(MODES)}")

    def check_mode(self, mode: Mode) -> None:
        """Say so if the mode may not be used.

        Raises:
            ToolspanError: it may not.
        """
        off = self.merged_settings.permissions.disable_bypass_permissions_mode
        if mode == "bypassPermissions" and off == "disable":
            raise ToolspanError("settings have switched the mode bypassPermissions off")

    def permission_rules(self, client_profile: Profile) -> Rules:
        """The permission rules of all files."""
        only = self.merged_settings.switches.allow_managed_permission_rules_only
        rules = Rules()
        for layer in self.merged_settings.layers:
            if not only or layer.scope == "managed":
                block = layer.settings.permissions
                rules += rules_from_settings(
                    block, self._rule_origin(layer), self._path_anchor(layer), client_profile.refusals
                )
        return rules

    def make_hooks(self, client_profile: Profile, servers: McpServers, options: HookOptions) -> HookRunner:
        """The handlers of all files."""
        return self._build_hooks(self.merged_settings, client_profile, servers, options)

    def hook_factory(
        self, client_profile: Profile, servers: McpServers, options: HookOptions
    ) -> FrontmatterHookFactory:
        """Makes handlers of the hooks in the head of a file."""

        def make_frontmatter_hooks(head: FrontmatterKind, block: object, path: Path) -> HookRunner:
            return self._build_hooks(
                with_frontmatter_hooks(self.merged_settings, block, path, head), client_profile, servers, options
            )

        return make_frontmatter_hooks

    def is_trusted_path(self, path: Path) -> bool:
        """Whether what could run something is used of a file: not of an untrusted project's."""
        project_folder = self.settings_paths.project / ".claude"
        return self.is_trusted or not path.absolute().is_relative_to(project_folder)

    def _build_hooks(
        self, merged: MergedSettings, client_profile: Profile, servers: McpServers, options: HookOptions
    ) -> HookRunner:
        if options.person:  # then questions of consent are fired in every client version
            client_profile = replace(client_profile, hooks=replace(client_profile.hooks, asks_permission_headless=True))
        loaded = load_hooks(
            merged,
            client_profile,
            services=_hook_services(servers, options.model_access),
            compose=options.compose,
            fail_closed=options.fail_closed,
        )
        for note in loaded.notes:
            warn(note)
        return NoHooks() if loaded.hooks.is_empty else loaded.hooks

    def mcp_server_config(self, config_path: Path | None) -> Path | dict[str, object]:
        """Which MCP servers to connect to: those that were named, and a trusted project's own.

        Raises:
            SourceError: a file of servers cannot be read.
        """
        off = self.merged_settings.switches.disabled_mcpjson_servers or ()
        enabled_servers = {name: spec for name, spec in self.project_servers.items() if name not in off}
        if not enabled_servers:
            return config_path or {"mcpServers": {}}
        named_servers = load_json(config_path).get("mcpServers") if config_path else {}
        return {"mcpServers": {**enabled_servers, **(named_servers if isinstance(named_servers, dict) else {})}}

    def _rule_origin(self, layer: SettingsLayer) -> str:
        project_file = self.settings_paths.project / ".claude" / "settings.json"
        if layer.scope == "command_line" and project_file.exists() and layer.path.samefile(project_file):
            return _RULE_ORIGINS["project"]
        return _RULE_ORIGINS[layer.scope]

    def _path_anchor(self, layer: SettingsLayer) -> Path:
        """Where a path that begins with a slash begins."""
        if layer.scope in ("project", "local"):
            return self.settings_paths.project
        return layer.path.absolute().parent


def load_host_settings(project: Path, settings_file: Path | None, sources: str) -> HostSettings:
    """The settings of a project, and of whoever runs us; `sources` names the files to look for.

    Raises:
        SourceError: a file cannot be read.
        BadSetting: a file has a value of the wrong kind.
        ToolspanError: there is no such source.
    """
    places = SettingsPaths.for_project(project.absolute())
    scopes = _parse_scopes(sources)
    project_scopes = scopes & PROJECT_SCOPES
    # What a person accepts is all of a project's files: they are judged together.
    layers = load_layers(places, named=settings_file, scopes=scopes | PROJECT_SCOPES if project_scopes else scopes)
    claim = build_trust_request(places, layers) if project_scopes else TrustRequest(places.project, {})
    trusted = TrustStore(default_trust_path()).is_trusted(claim)
    used = [layer for layer in layers if layer.scope == "command_line" or layer.scope in scopes]
    for line in (line for layer in used for line in unknown_keys(layer.raw, str(layer.path))):
        warn(line)
    merged = merge_settings(used, trusted=trusted)
    withheld = list(merged.untrusted_files)
    withheld += [places.mcp_file] if claim.mcp_servers and not trusted else []
    withheld += [places.agents_folder] if project_scopes and places.agents_folder.is_dir() and not trusted else []
    for path in withheld:
        warn(f"{path}: the folder is not trusted, so what could run something is not used; see `toolspan trust`")
    folders = [places.user / "agents"] if "user" in scopes else []
    folders += [places.agents_folder] if "project" in scopes and trusted else []
    return HostSettings(merged, places, claim.mcp_servers if trusted else {}, folders, trusted)


def _parse_scopes(sources: str) -> frozenset[Scope]:
    requested = {source.strip() for source in sources.split(",") if source.strip()}
    unknown = sorted(requested - set(SETTING_SOURCES))
    if unknown:
        raise ToolspanError(f"{unknown[0]!r} is no source of settings: {', '.join(SETTING_SOURCES)}")
    return frozenset(scope for scope in SCOPES if scope not in SETTING_SOURCES or scope in requested)


def _hook_services(servers: McpServers, model_access: HookModelAccess | None) -> HookServices:
    if model_access is None:
        return HookServices(call_tool=mcp_tool_caller(servers))
    return HookServices(
        call_tool=mcp_tool_caller(servers), ask_model=model_access.ask_model, ask_agent=model_access.ask_agent
    )


def mcp_tool_caller(servers: McpServers) -> CallTool:
    """Calls a tool of a connected server for a handler."""

    async def call_tool(server: str, tool: str, arguments: Mapping[str, object]) -> str:
        match = servers.find(mcp_tool_name(server, tool))
        if match is None:
            raise ToolError(f"no connected MCP server {server!r} has a tool {tool!r}")
        request = McpCall(
            tool=match[1],
            arguments=prepare_arguments(arguments),
            call_id=f"hook-{server}-{tool}",
            progress=lambda _done, _total, _message: None,
            timeout=None,
        )
        try:
            answer = await match[0].call_tool(request)
        except McpError as fault:
            raise ToolError(fault.message) from fault
        text = _join_text_blocks(answer.get("content"))
        if answer.get("isError") is True:
            raise ToolError(text or "the tool failed")
        return text

    return call_tool


def _join_text_blocks(content: object) -> str:
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block.get("text"), str))


_TOOL_KINDS: tuple[ToolKind, ...] = (
    "shell", "read", "edit", "write", "search", "web", "agent", "plan", "question",
)  # fmt: skip
_RULE_ONLY_NAMES = frozenset({"Cd", "EndConversation"})
"""Names that rules may hold though no model calls them."""


def unknown_tool_warnings(names: Iterable[str], more: Iterable[str] = ()) -> Iterator[str]:
    """A line for each name that no tool of any client has; `more` are further names there are."""
    available = frozenset(more)
    for name in dict.fromkeys(names):
        if name not in available and not set(name) & set("*_") and name not in _known_tool_names():
            yield f"there is no tool {name!r}{_suggest_name(name, available | _known_tool_names())}"


def rule_warnings(rules: Rules, more: Iterable[str] = ()) -> Iterator[str]:
    """A line for each rule about a tool that there is not, and for each that does too little."""
    extra_names = tuple(more)
    for rule in (*rules.deny, *rules.ask, *rules.allow):
        where = f" ({rule.origin})" if rule.origin else ""
        yield from (f"the rule {rule.text}{where}: {line}" for line in unknown_tool_warnings([rule.tool], extra_names))
    yield from (f"the rule {line}" for line in rules.warnings)


@cache
def _known_tool_names() -> frozenset[str]:
    names = tools_of_kinds(*_TOOL_KINDS) | _RULE_ONLY_NAMES
    for version in VERSIONS:
        offer = profile(version).availability
        names |= offer.tools | offer.optional_tools | frozenset(offer.aliases)
    return names


def _suggest_name(name: str, candidates: Iterable[str]) -> str:
    import difflib

    by_case = {
        candidate.lower(): candidate for candidate in sorted(candidates, reverse=True)
    }  # capitals last, and first
    close = difflib.get_close_matches(name.lower(), by_case, n=1)
    return f"; is it {by_case[close[0]]}?" if close else ""


@dataclass(frozen=True, slots=True)
class SkillHooks:
    """Makes handlers of the hooks of skills."""

    settings: HostSettings
    make_hooks: FrontmatterHookFactory

    def __call__(self, head: str, path: Path) -> HookRunner | None:
        """The handlers in a head, if there are any that count.

        Raises:
            ToolspanError: they cannot be used.
        """
        block = parse_frontmatter_hooks(head)
        if block is None:
            return None
        if self.settings.is_trusted_path(path):
            return self.make_hooks("skill", block, path)
        warn(f"{path}: the folder is not trusted; its hooks are left out")
        return None
