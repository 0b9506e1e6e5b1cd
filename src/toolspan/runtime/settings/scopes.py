"""Where settings are found, and who put them there.

In: a project folder, a home folder, and perhaps a file named on the command line. Out: layers, the
strongest first. A file that was named is loaded once, even if the project has it too, and counts as
the command line's. Whether the project is trusted is not asked here, see `trust.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from toolspan.runtime.settings.hooks_block import HandlerGroup, parse_hooks
from toolspan.runtime.settings.load import PermissionSettings, Settings, Switches, load_json, parse_settings

Scope = Literal["managed", "command_line", "local", "project", "user"]
"""Where settings come from."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The strongest first."""
PROJECT_SCOPES: frozenset[Scope] = frozenset({"project", "local"})
"""What comes with a folder, and so from whoever made it."""

_MANAGED_FOLDER = Path("/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code")


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """One settings file."""

    scope: Scope
    path: Path
    settings: Settings
    raw: Mapping[str, object]
    """All of it, as it was decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPaths:
    """Where to look."""

    project: Path
    user: Path
    """The folder of the client's own settings."""
    managed: Path = _MANAGED_FOLDER
    """Where an administrator puts them."""

    @classmethod
    def for_project(cls, project: Path, environment: Mapping[str, str] | None = None) -> SettingsPaths:
        """The usual places of a project and of whoever runs us."""
        env = os.environ if environment is None else environment
        chosen = env.get("CLAUDE_CONFIG_DIR")
        home = Path(env.get("HOME") or Path.home())
        return cls(project=project, user=Path(chosen) if chosen else home / ".claude")

    def is_project_file(self, path: Path) -> bool:
        """Whether a file is one of the project's own settings, however it was found."""
        folder = self.project / ".claude"
        return any(
            candidate.exists() and path.exists() and candidate.samefile(path)
            for candidate in (folder / "settings.json", folder / "settings.local.json")
        )

    @property
    def agents_folder(self) -> Path:
        """The project's own agents, one file each."""
        return self.project / ".claude" / "agents"

    @property
    def skills_folder(self) -> Path:
        """The project's own skills, one folder each."""
        return self.project / ".claude" / "skills"

    @property
    def mcp_file(self) -> Path:
        """The project's own servers."""
        return self.project / ".mcp.json"

    @property
    def local_file(self) -> Path:
        """What a person wants of this project."""
        return self.project / ".claude" / "settings.local.json"

    @property
    def user_file(self) -> Path:
        """What a person wants of every project."""
        return self.user / "settings.json"


def load_layers(
    paths: SettingsPaths, *, named: Path | None = None, scopes: Collection[Scope] = SCOPES
) -> tuple[SettingsLayer, ...]:
    """Every settings file there is, the strongest first; `named` is always among them.

    Raises:
        SourceError: one cannot be read, or is no JSON object.
        BadSetting: one has a value of the wrong kind.
    """
    return tuple(
        _load_layer(scope, path)
        for scope, path in _settings_files(paths, named)
        if scope == "command_line" or scope in scopes
    )


def _settings_files(paths: SettingsPaths, named: Path | None) -> Iterator[tuple[Scope, Path]]:
    for path in _managed_files(paths.managed):
        yield "managed", path
    if named is not None:
        yield "command_line", named
    folder = paths.project / ".claude"
    scoped_files: tuple[tuple[Scope, Path], ...] = (
        ("local", paths.local_file),
        ("project", folder / "settings.json"),
        ("user", paths.user_file),
    )
    for scope, path in scoped_files:
        if path.is_file() and not (named and named.exists() and path.samefile(named)):
            yield scope, path


def _managed_files(folder: Path) -> Iterator[Path]:
    """The administrator's file, and what stands beside it; later ones are stronger."""
    more = folder / "managed-settings.d"
    if more.is_dir():
        yield from sorted(more.glob("*.json"), reverse=True)
    if (folder / "managed-settings.json").is_file():
        yield folder / "managed-settings.json"


def _load_layer(scope: Scope, path: Path) -> SettingsLayer:
    raw = load_json(path)
    return SettingsLayer(scope, path, parse_settings(raw, str(path)), raw)


FrontmatterKind = Literal["agent", "skill"]
"""Whose file begins with handlers."""


@dataclass(frozen=True, slots=True)
class ScopedGroup:
    """Handlers with a matcher at a point, and who put them there."""

    point: str
    group: HandlerGroup
    scope: Scope | FrontmatterKind
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSettings:
    """The settings a session runs under."""

    permissions: PermissionSettings
    """Rules of all layers, the strongest first."""
    hooks: tuple[ScopedGroup, ...]
    env: Mapping[str, str]
    switches: Switches
    layers: tuple[SettingsLayer, ...] = ()
    """As far as they count."""
    untrusted_files: tuple[Path, ...] = ()
    """Files of the project that want something for which it is not trusted."""


def merge_settings(layers: Iterable[SettingsLayer], *, trusted: bool) -> MergedSettings:
    """The settings of all layers, the strongest first."""
    all_layers = tuple(layers)
    effective = tuple(layer if trusted else _restrict_untrusted(layer) for layer in all_layers)
    untrusted_files = tuple(
        was.path for was, now in zip(all_layers, effective, strict=True) if was.settings != now.settings
    )
    switches = _merge_switches(effective)
    env: dict[str, str] = {}
    for layer in reversed(effective):
        env |= layer.settings.env
    return MergedSettings(
        permissions=_merge_permissions(effective, switches),
        hooks=_merge_hooks(effective, switches),
        env=env,
        switches=switches,
        layers=effective,
        untrusted_files=untrusted_files,
    )


def with_frontmatter_hooks(merged: MergedSettings, block: object, path: Path, kind: FrontmatterKind) -> MergedSettings:
    """The same settings with the handlers in the head of a file, and no others.

    An agent's turn ends as that of an agent below: its `Stop` is `SubagentStop`.

    Raises:
        BadSetting: something in the block is no handler.
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


def _restrict_untrusted(layer: SettingsLayer) -> SettingsLayer:
    """Without what could make something run, or be allowed."""
    if layer.scope not in PROJECT_SCOPES:
        return layer
    rules = layer.settings.permissions
    restricted = Settings(permissions=PermissionSettings(ask=rules.ask, deny=rules.deny))
    return replace(layer, settings=restricted)


def _merge_permissions(layers: tuple[SettingsLayer, ...], switches: Switches) -> PermissionSettings:
    only = switches.allow_managed_permission_rules_only
    blocks = [layer.settings.permissions for layer in layers if not only or layer.scope == "managed"]
    every = [layer.settings.permissions for layer in layers]
    return PermissionSettings(
        allow=tuple(rule for block in blocks for rule in block.allow),
        ask=tuple(rule for block in blocks for rule in block.ask),
        deny=tuple(rule for block in blocks for rule in block.deny),
        additional_directories=tuple(d for block in every for d in block.additional_directories),
        default_mode=next((b.default_mode for b in every if b.default_mode), None),
        disable_bypass_permissions_mode=next(
            (b.disable_bypass_permissions_mode for b in every if b.disable_bypass_permissions_mode), None
        ),
        disable_auto_mode=next((b.disable_auto_mode for b in every if b.disable_auto_mode), None),
    )


def _merge_switches(layers: tuple[SettingsLayer, ...]) -> Switches:
    """The strongest layer's value of each; lists of allowed things add up."""
    merged: dict[str, object] = {}
    for layer in reversed(layers):
        for key, value in msgspec.to_builtins(layer.settings.switches).items():
            managed_only = key.startswith("allowManaged")
            if value is None or (managed_only and layer.scope != "managed"):
                continue
            before = merged.get(key)
            merged[key] = [*value, *before] if isinstance(before, list) else value
    return msgspec.convert(merged, Switches)


def _merge_hooks(layers: tuple[SettingsLayer, ...], switches: Switches) -> tuple[ScopedGroup, ...]:
    groups: list[ScopedGroup] = []
    off = _are_hooks_disabled(layers)
    for layer in layers:
        managed = layer.scope == "managed"
        if not managed and (off or switches.allow_managed_hooks_only):
            continue
        if managed and layer.settings.switches.disable_all_hooks:
            continue
        for point, point_groups in layer.settings.hooks.items():
            groups += [ScopedGroup(point, group, layer.scope, layer.path) for group in point_groups]
    return tuple(groups)


def _are_hooks_disabled(layers: tuple[SettingsLayer, ...]) -> bool:
    """Whether all handlers but an administrator's are switched off."""
    values = (layer.settings.switches.disable_all_hooks for layer in layers)
    return bool(next((value for value in values if value is not None), None))
