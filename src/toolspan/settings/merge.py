"""What all settings say together.

In: layers, the strongest first, and whether the project is trusted. Out: one `Merged`. Lists of
rules add up, single values are the strongest layer's, handlers all run. From a project that is not
trusted only refusals are taken; what was left out is told. A pure function.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.settings.handlers import Group, read_hooks
from toolspan.settings.load import Permissions, Settings, Switches
from toolspan.settings.scopes import OF_THE_PROJECT, Layer, Scope

Head = Literal["agent", "skill"]
"""Whose file begins with handlers."""


@dataclass(frozen=True, slots=True)
class ScopedGroup:
    """Handlers with a matcher at a point, and who put them there."""

    point: str
    group: Group
    scope: Scope | Head
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The settings a session runs under."""

    permissions: Permissions
    """Rules of all layers, the strongest first."""
    hooks: tuple[ScopedGroup, ...]
    env: Mapping[str, str]
    switches: Switches
    layers: tuple[Layer, ...] = ()
    """As far as they count."""
    withheld: tuple[Path, ...] = ()
    """Files of the project that want something for which it is not trusted."""


def merge(layers: Iterable[Layer], *, trusted: bool) -> Merged:
    """The settings of all layers, the strongest first."""
    found = tuple(layers)
    kept = tuple(layer if trusted else _distrusted(layer) for layer in found)
    withheld = tuple(
        was.path for was, now in zip(found, kept, strict=True) if was.settings != now.settings
    )
    switches = _switches(kept)
    env: dict[str, str] = {}
    for layer in reversed(kept):
        env |= layer.settings.env
    return Merged(
        permissions=_permissions(kept, switches),
        hooks=_hooks(kept, switches),
        env=env,
        switches=switches,
        layers=kept,
        withheld=withheld,
    )


def of_head(merged: Merged, block: object, path: Path, head: Head) -> Merged:
    """The same settings with the handlers in the head of a file, and no others.

    An agent's turn ends as that of an agent below: its `Stop` is `SubagentStop`.

    Raises:
        BadSetting: something in the block is no handler.
    """
    found = read_hooks(block, str(path))
    switches = merged.switches
    if switches.disable_all_hooks or switches.allow_managed_hooks_only:
        return replace(merged, hooks=())
    named = {"Stop": "SubagentStop"} if head == "agent" else {}
    groups = tuple(
        ScopedGroup(named.get(point, point), group, head, path)
        for point, given in found.items()
        for group in given
    )
    return replace(merged, hooks=groups)


def _distrusted(layer: Layer) -> Layer:
    """Without what could make something run, or be allowed."""
    if layer.scope not in OF_THE_PROJECT:
        return layer
    rules = layer.settings.permissions
    left = Settings(permissions=Permissions(ask=rules.ask, deny=rules.deny))
    return replace(layer, settings=left)


def _permissions(layers: tuple[Layer, ...], switches: Switches) -> Permissions:
    only = switches.allow_managed_permission_rules_only
    blocks = [
        layer.settings.permissions for layer in layers if not only or layer.scope == "managed"
    ]
    every = [layer.settings.permissions for layer in layers]
    return Permissions(
        allow=tuple(rule for block in blocks for rule in block.allow),
        ask=tuple(rule for block in blocks for rule in block.ask),
        deny=tuple(rule for block in blocks for rule in block.deny),
        additional_directories=tuple(d for block in every for d in block.additional_directories),
        default_mode=next((b.default_mode for b in every if b.default_mode), None),
        disable_bypass_permissions_mode=next(
            (b.disable_bypass_permissions_mode for b in every if b.disable_bypass_permissions_mode),
            None,
        ),
        disable_auto_mode=next((b.disable_auto_mode for b in every if b.disable_auto_mode), None),
    )


def _switches(layers: tuple[Layer, ...]) -> Switches:
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


def _hooks(layers: tuple[Layer, ...], switches: Switches) -> tuple[ScopedGroup, ...]:
    groups: list[ScopedGroup] = []
    off = _hooks_off(layers)
    for layer in layers:
        managed = layer.scope == "managed"
        if not managed and (off or switches.allow_managed_hooks_only):
            continue
        if managed and layer.settings.switches.disable_all_hooks:
            continue
        for point, given in layer.settings.hooks.items():
            groups += [ScopedGroup(point, group, layer.scope, layer.path) for group in given]
    return tuple(groups)


def _hooks_off(layers: tuple[Layer, ...]) -> bool:
    """Whether all handlers but an administrator's are switched off."""
    said = (layer.settings.switches.disable_all_hooks for layer in layers)
    return bool(next((one for one in said if one is not None), None))
