"""The settings for a process that runs calls as a client does: loaded, checked for trust and merged.

Start at `load_host_settings`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolspan.errors import ToolError, ToolspanError
from toolspan.integrations.mcp_client import McpServers
from toolspan.integrations.mcp_client.arguments import prepare_arguments
from toolspan.integrations.mcp_client.config import mcp_tool_name
from toolspan.integrations.mcp_client.protocol import McpError
from toolspan.integrations.mcp_client.server import McpCall
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.hooks.events import HookRunner, NoHooks
from toolspan.runtime.hooks.handlers import CallTool
from toolspan.runtime.hooks.load import HookServices, load_hooks
from toolspan.runtime.permissions.modes import Mode, parse_default_mode
from toolspan.runtime.permissions.rules import Rules, rules_from_settings
from toolspan.runtime.profiles import Profile
from toolspan.runtime.sandbox.settings import SandboxLayer
from toolspan.runtime.settings import (
    SCOPES,
    MergedSettings,
    Scope,
    SettingsPaths,
    TrustRequest,
    TrustStore,
    build_trust_request,
    default_trust_path,
    load_layers,
    merge_settings,
)
from toolspan.runtime.settings.load import CommandSpec, load_json, parse_frontmatter_hooks, unknown_keys
from toolspan.runtime.settings.scopes import PROJECT_SCOPES, FrontmatterKind, with_frontmatter_hooks
from toolspan.session.agent import HookModelAccess

_RULE_ORIGINS: Mapping[Scope, str] = {
    "managed": "policySettings",
    "command_line": "flagSettings",
    "local": "localSettings",
    "project": "projectSettings",
    "user": "userSettings",
}
SETTING_SOURCES = ("user", "project", "local")
FrontmatterHookFactory = Callable[[FrontmatterKind, object, Path], HookRunner]
"""A function that returns the hooks in a file's frontmatter. Raises `ToolspanError` if they are invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """Options for running hooks."""

    compose: Compose = "parallel"
    fail_closed: bool = False
    person: bool = False
    model_access: HookModelAccess | None = None


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The merged settings. Settings of an untrusted project that could run code are omitted."""

    merged_settings: MergedSettings
    settings_paths: SettingsPaths
    project_servers: Mapping[str, object]
    agent_folders: Sequence[Path] = ()
    """Folders with agent definitions. The project's folder is included only if it is trusted."""
    is_trusted: bool = False
    """True if the user has accepted everything that the project brings. Otherwise, its skills are not used."""
    warn: Callable[[str], None] = lambda _: None

    @property
    def default_mode(self) -> Mode:
        """The default permission mode in the settings."""
        return parse_default_mode(self.merged_settings.permissions.default_mode)

    def check_mode(self, mode: Mode) -> None:
        """Check that the settings allow a permission mode."""
        off = self.merged_settings.permissions.disable_bypass_permissions_mode
        if mode == "bypassPermissions" and off == "disable":
            raise ToolspanError("the settings disable the permission mode bypassPermissions")

    def permission_rules(self, client_profile: Profile) -> Rules:
        """Return the permission rules from all settings files."""
        only = self.merged_settings.switches.allow_managed_permission_rules_only
        rules = Rules()
        for layer in self.merged_settings.layers:
            if only and layer.scope != "managed":
                continue
            project = self.settings_paths.project
            project_file = project / ".claude" / "settings.json"
            is_project_file = project_file.exists() and layer.path.samefile(project_file)
            origin = "project" if layer.scope == "command_line" and is_project_file else layer.scope
            # The base folder for rule paths with a leading slash. An administrator's rules are about the project.
            is_about_project = origin in PROJECT_SCOPES or origin == "managed"
            anchor = project if is_about_project else layer.path.absolute().parent
            rules += rules_from_settings(
                layer.settings.permissions, _RULE_ORIGINS[origin], anchor, client_profile.refusals
            )
        return rules

    def sandbox_layers(self) -> Iterator[SandboxLayer]:
        """Yield the sandbox settings of all files, highest precedence first."""
        for layer in self.merged_settings.layers:
            is_project = layer.scope in PROJECT_SCOPES
            folder = self.settings_paths.project if is_project else layer.path.absolute().parent
            yield SandboxLayer(layer.settings.sandbox, folder, layer.scope == "managed", is_project)

    @property
    def requires_sandbox(self) -> bool:
        """True if the administrator has enabled the sandbox."""
        return any(layer.is_managed and layer.settings.enabled for layer in self.sandbox_layers())

    @property
    def hook_commands(self) -> tuple[str, ...]:
        """The command lines of all hooks."""
        handlers = [handler for scoped in self.merged_settings.hooks for handler in scoped.group.hooks]
        return tuple(
            " ".join((handler.command, *(handler.args or ())))
            for handler in handlers
            if isinstance(handler, CommandSpec)
        )

    def server_commands(self, more: Path | Mapping[str, object] | None) -> tuple[str, ...]:
        """Return the command lines of the MCP servers that run outside the sandbox."""
        config = self.mcp_server_config(more)
        servers = (load_json(config) if isinstance(config, Path) else config).get("mcpServers")
        specs = [spec for spec in (servers.values() if isinstance(servers, dict) else ()) if isinstance(spec, dict)]
        return tuple(
            shlex.join(map(str, [spec["command"], *(spec.get("args") or ())])) for spec in specs if "command" in spec
        )

    def make_hooks(self, client_profile: Profile, servers: McpServers, options: HookOptions) -> HookRunner:
        """Return the hooks from all settings files."""
        return self._build_hooks(self.merged_settings, client_profile, servers, options)

    def hook_factory(
        self, client_profile: Profile, servers: McpServers, options: HookOptions
    ) -> FrontmatterHookFactory:
        """Return the factory for hooks defined in frontmatter."""

        def make_frontmatter_hooks(head: FrontmatterKind, block: object, path: Path) -> HookRunner:
            return self._build_hooks(
                with_frontmatter_hooks(self.merged_settings, block, path, head), client_profile, servers, options
            )

        return make_frontmatter_hooks

    def _build_hooks(
        self, merged: MergedSettings, client_profile: Profile, servers: McpServers, options: HookOptions
    ) -> HookRunner:
        if options.person:  # PermissionRequest hooks then run in every client version
            client_profile = replace(client_profile, hooks=replace(client_profile.hooks, asks_permission_headless=True))
        access = options.model_access
        services = HookServices(call_tool=mcp_tool_caller(servers))
        if access is not None:
            services = replace(services, ask_model=access.ask_model, ask_agent=access.ask_agent)
        loaded = load_hooks(
            merged, client_profile, services=services, compose=options.compose, fail_closed=options.fail_closed
        )
        for note in loaded.notes:
            self.warn(note)
        return NoHooks() if loaded.hooks.is_empty else loaded.hooks

    def mcp_server_config(self, more: Path | Mapping[str, object] | None) -> Path | Mapping[str, object]:
        """Return the MCP servers to connect to: those in `more` and those of a trusted project."""
        off = self.merged_settings.switches.disabled_mcpjson_servers or ()
        enabled_servers = {name: spec for name, spec in self.project_servers.items() if name not in off}
        if not enabled_servers:
            return more or {"mcpServers": {}}
        named_servers = (load_json(more) if isinstance(more, Path) else more or {}).get("mcpServers")
        return {"mcpServers": {**enabled_servers, **(named_servers if isinstance(named_servers, dict) else {})}}


def load_host_settings(
    project: Path, settings_file: Path | None, sources: Collection[str], warn: Callable[[str], None]
) -> HostSettings:
    """Load the project and user settings. `warn` is told about ignored and unknown settings."""
    places = SettingsPaths.for_project(project.absolute())
    requested = set(sources)
    if unknown := sorted(requested - set(SETTING_SOURCES)):
        raise ToolspanError(f"{unknown[0]!r} is not a source of settings; use {', '.join(SETTING_SOURCES)}")
    scopes = frozenset(scope for scope in SCOPES if scope not in SETTING_SOURCES or scope in requested)
    project_scopes = scopes & PROJECT_SCOPES
    # Trust covers all settings files of a project together.
    layers = load_layers(places, named=settings_file, scopes=scopes | PROJECT_SCOPES if project_scopes else scopes)
    request = build_trust_request(places, layers) if project_scopes else TrustRequest(places.project, {})
    trusted = bool(request) and TrustStore(default_trust_path()).is_trusted(request)
    used = [layer for layer in layers if layer.scope == "command_line" or layer.scope in scopes]
    for line in (line for layer in used for line in unknown_keys(layer.raw, str(layer.path))):
        warn(line)
    merged = merge_settings(used, trusted=trusted)
    named_file = settings_file and os.path.relpath(settings_file, places.project)
    ignored = {name: keys for name, keys in request.requested_settings.items() if name != named_file}
    if (ignored or request.instruction_files) and not trusted:
        items = [f"{name} ({', '.join(keys)})" for name, keys in ignored.items()]
        items += [f"{name} (instructions)" for name in request.instruction_files]
        warn(
            f"{places.project}: ignoring what this untrusted folder brings:"
            f" {', '.join(items)} (run `toolspan trust` to accept it)"
        )
    folders = [places.user / "agents"] if "user" in scopes else []
    folders += [places.agents_folder] if "project" in scopes and trusted else []
    servers = request.mcp_servers if trusted else {}
    return HostSettings(merged, places, servers, folders, trusted, warn)


def mcp_tool_caller(servers: McpServers) -> CallTool:
    """Return a function that hooks use to call tools on connected servers."""

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
        content = answer.get("content")
        blocks = content if isinstance(content, list) else []
        text = "\n".join(str(block["text"]) for block in blocks if isinstance(block.get("text"), str))
        if answer.get("isError") is True:
            raise ToolError(text or "the tool failed")
        return text

    return call_tool


def load_skill_hooks(make_hooks: FrontmatterHookFactory, frontmatter: str, path: Path) -> HookRunner | None:
    """Return the hooks in a skill's frontmatter, or None if there are none."""
    block = parse_frontmatter_hooks(frontmatter)
    return None if block is None else make_hooks("skill", block, path)
