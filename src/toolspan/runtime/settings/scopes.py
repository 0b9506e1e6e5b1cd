"""Find the settings files in all scopes and merge them.

Start at `load_layers`, which returns one layer per file, highest precedence first, and
`merge_settings`. `trust.py` decides whether a project's files are trusted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from toolspan.runtime.settings.keys import split_untrusted
from toolspan.runtime.settings.load import (
    HandlerGroup,
    PermissionSettings,
    Settings,
    Switches,
    load_json,
    parse_hooks,
    parse_settings,
)

Scope = Literal["managed", "command_line", "local", "project", "user"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""All scopes, highest precedence first."""
PROJECT_SCOPES: frozenset[Scope] = frozenset({"project", "local"})
"""Scopes whose files come with a project folder and therefore need trust."""

_PERSONAL_MODES = frozenset({"auto", "bypassPermissions"})
"""Default modes for which the client uses `default` in the files of a project."""
_MANAGED_FOLDER = Path("/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code")


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """One settings file and its content."""

    scope: Scope
    path: Path
    settings: Settings
    raw: Mapping[str, object]  # the decoded content, including unknown keys
    is_project_file: bool = False
    """True if the file belongs to the project, even if it was also named on the command line."""
    is_trusted: bool = True
    """False if `settings` contains only the restrictions in a file of an untrusted project."""

    @property
    def default_mode(self) -> str | None:
        """The default permission mode; `default` in place of one that a project cannot set.

        As in the client, such a mode still takes precedence over that of a file with a lower rank.
        """
        mode = self.settings.permissions.default_mode
        return "default" if self.is_project_file and mode in _PERSONAL_MODES else mode


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPaths:
    """The locations of settings files."""

    project: Path
    user: Path  # the client's configuration folder
    managed: Path = _MANAGED_FOLDER  # the administrator's folder

    @classmethod
    def for_project(cls, project: Path, environment: Mapping[str, str] | None = None) -> SettingsPaths:
        """Return the usual locations for a project and the current user."""
        env = os.environ if environment is None else environment
        config = env.get("CLAUDE_CONFIG_DIR")
        home = Path(env.get("HOME") or Path.home())
        return cls(project=project, user=Path(config) if config else home / ".claude")

    def is_project_file(self, path: Path) -> bool:
        """Return whether a path, with links resolved, leads to one of the project's settings files."""
        folder = self.project / ".claude"
        return any(
            candidate.exists() and path.exists() and candidate.samefile(path)
            for candidate in (folder / "settings.json", folder / "settings.local.json")
        )

    @property
    def agents_folder(self) -> Path:
        """The folder with the project's agents, one file each."""
        return self.project / ".claude" / "agents"

    @property
    def skills_folder(self) -> Path:
        """The folder with the project's skills, one folder each."""
        return self.project / ".claude" / "skills"

    @property
    def mcp_file(self) -> Path:
        """The configuration file for the project's MCP servers."""
        return self.project / ".mcp.json"

    @property
    def local_file(self) -> Path:
        """The file with the user's own settings for this project."""
        return self.project / ".claude" / "settings.local.json"

    @property
    def user_file(self) -> Path:
        """The file with the user's settings for all projects."""
        return self.user / "settings.json"


def load_layers(
    paths: SettingsPaths, *, named: Path | None = None, scopes: Collection[Scope] = SCOPES
) -> tuple[SettingsLayer, ...]:
    """Load the settings files in these scopes, highest precedence first.

    `named` is the file from the command line. It is always loaded, and only once even if it belongs
    to the project.

    Raises:
        SourceError: a file cannot be read or is not a JSON object.
        SettingsError: a file has an invalid value.
    """
    drop_ins = sorted((paths.managed / "managed-settings.d").glob("*.json"), reverse=True)
    managed_file = paths.managed / "managed-settings.json"
    files: list[tuple[Scope, Path]] = [("managed", path) for path in drop_ins]
    if managed_file.is_file():
        files.append(("managed", managed_file))
    if named is not None:
        files.append(("command_line", named))
    scoped_files: tuple[tuple[Scope, Path], ...] = (
        ("local", paths.local_file),
        ("project", paths.project / ".claude" / "settings.json"),
        ("user", paths.user_file),
    )
    for scope, path in scoped_files:
        if path.is_file() and not (named and named.exists() and path.samefile(named)):
            files.append((scope, path))
    layers = []
    for scope, path in files:
        if scope == "command_line" or scope in scopes:
            raw = load_json(path)
            is_named = scope == "command_line" and paths.is_project_file(path)
            is_project_file = is_named or scope in PROJECT_SCOPES
            layers.append(SettingsLayer(scope, path, parse_settings(raw, str(path)), raw, is_project_file))
    return tuple(layers)


FrontmatterKind = Literal["agent", "skill"]
"""The kinds of files whose frontmatter may contain hooks."""


@dataclass(frozen=True, slots=True)
class ScopedGroup:
    """A group of hook handlers at a hook point, with its origin."""

    point: str
    group: HandlerGroup
    scope: Scope | FrontmatterKind
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSettings:
    """The settings that apply to a session."""

    permissions: PermissionSettings  # the rules from all layers, highest precedence first
    hooks: tuple[ScopedGroup, ...]
    env: Mapping[str, str]
    switches: Switches
    layers: tuple[SettingsLayer, ...] = ()
    """The layers, without the settings that need trust if the project is untrusted."""
    untrusted_keys: Mapping[Path, Mapping[str, object]] = field(default_factory=dict)
    """The settings of each project file that were ignored because the project is not trusted."""

    @property
    def is_limited_by_project(self) -> bool:
        """True if files of an untrusted project restrict the session."""
        return any(not layer.is_trusted and layer.settings != Settings() for layer in self.layers)

    @property
    def is_sandbox_trusted(self) -> bool:
        """True if the sandbox is enabled by a file other than those of an untrusted project."""
        values = (layer.settings.sandbox.enabled for layer in self.layers if layer.is_trusted)
        return bool(next((value for value in values if value is not None), False))


def merge_settings(layers: Iterable[SettingsLayer], *, trusted: bool) -> MergedSettings:
    """Merge layers, highest precedence first. If `trusted` is False, project files may only restrict."""
    effective = list(layers)
    untrusted_keys: dict[Path, Mapping[str, object]] = {}
    for index, layer in enumerate(effective):
        if trusted or layer.scope not in PROJECT_SCOPES:
            continue
        divided = split_untrusted(layer.raw)
        restrictions = parse_settings(divided.restrictions, str(layer.path))
        effective[index] = replace(layer, settings=restrictions, is_trusted=False)
        if divided.needs_trust:
            untrusted_keys[layer.path] = divided.needs_trust
    switches = _merge_switches(effective)
    env: dict[str, str] = {}
    for layer in reversed(effective):
        env |= layer.settings.env
    return MergedSettings(
        permissions=_merge_permissions(effective, switches),
        hooks=_merge_hooks(effective, switches),
        env=env,
        switches=switches,
        layers=tuple(effective),
        untrusted_keys=untrusted_keys,
    )


def with_frontmatter_hooks(merged: MergedSettings, block: object, path: Path, kind: FrontmatterKind) -> MergedSettings:
    """Return the settings with their hooks replaced by those in a file's frontmatter.

    An agent's turn ends as a subagent's turn, so its `Stop` becomes `SubagentStop`.

    Raises:
        SettingsError: the block contains something that is not a handler.
    """
    groups_by_point = parse_hooks(block, str(path))
    switches = merged.switches
    if switches.disable_all_hooks or switches.allow_managed_hooks_only:
        return replace(merged, hooks=())
    renamed_points = {"Stop": "SubagentStop"} if kind == "agent" else {}
    groups = tuple(
        ScopedGroup(renamed_points.get(point, point), group, kind, path)
        for point, point_groups in groups_by_point.items()
        for group in point_groups
    )
    return replace(merged, hooks=groups)


def _merge_permissions(layers: Sequence[SettingsLayer], switches: Switches) -> PermissionSettings:
    managed_only = switches.allow_managed_permission_rules_only
    rules = [layer.settings.permissions for layer in layers if not managed_only or layer.scope == "managed"]
    blocks = [layer.settings.permissions for layer in layers]
    return PermissionSettings(
        allow=tuple(rule for block in rules for rule in block.allow),
        ask=tuple(rule for block in rules for rule in block.ask),
        deny=tuple(rule for block in rules for rule in block.deny),
        additional_directories=tuple(d for block in blocks for d in block.additional_directories),
        default_mode=next(filter(None, (layer.default_mode for layer in layers)), None),
        disable_bypass_permissions_mode=next(
            filter(None, (block.disable_bypass_permissions_mode for block in blocks)), None
        ),
        disable_auto_mode=next(filter(None, (block.disable_auto_mode for block in blocks)), None),
    )


def _merge_switches(layers: Sequence[SettingsLayer]) -> Switches:
    """For each switch, use the value from the layer with the highest precedence. Lists are concatenated."""
    merged: dict[str, object] = {}
    for layer in reversed(layers):
        for key, value in msgspec.to_builtins(layer.settings.switches).items():
            if value is None or (key.startswith("allowManaged") and layer.scope != "managed"):
                continue
            before = merged.get(key)
            merged[key] = [*value, *before] if isinstance(before, list) else value
    return msgspec.convert(merged, Switches)


def _merge_hooks(layers: Sequence[SettingsLayer], switches: Switches) -> tuple[ScopedGroup, ...]:
    groups: list[ScopedGroup] = []
    disable_values = (layer.settings.switches.disable_all_hooks for layer in layers)
    disabled = next((value for value in disable_values if value is not None), False)
    for layer in layers:
        managed = layer.scope == "managed"
        if not managed and (disabled or switches.allow_managed_hooks_only):
            continue
        if managed and layer.settings.switches.disable_all_hooks:
            continue
        for point, point_groups in layer.settings.hooks.items():
            groups += [ScopedGroup(point, group, layer.scope, layer.path) for group in point_groups]
    return tuple(groups)
