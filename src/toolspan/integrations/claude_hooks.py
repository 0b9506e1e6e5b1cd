"""Install and remove toolspan's hooks in the settings file of Claude Code, or in the file with the hooks of Codex.

Changes are planned first, and uninstalling restores the file byte for byte unless it has changed since; see
`settings_change.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.formats.registry import all_formats
from toolspan.integrations.settings_change import (
    JsonObject,
    SettingsChange,
    encode_settings,
    parse_settings,
    read_backup,
    read_file,
)
from toolspan.runtime.settings.load import SettingsError, json_type_name, object_at
from toolspan.runtime.settings.scopes import SettingsPaths

VersionTuple = tuple[int, ...]
EVENT_MIN_VERSIONS: Mapping[str, VersionTuple] = {
    "PreToolUse": (2, 0, 45),
    "PermissionRequest": (2, 0, 45),
    "PostToolUse": (2, 0, 45),
    "PostToolUseFailure": (2, 1, 80),
    "PermissionDenied": (2, 1, 197),
    "Notification": (2, 0, 45),
    "Stop": (2, 0, 45),
}
"""The events that toolspan's hooks handle, and the first client version known to support each. A client that does
not support an event ignores the whole file, including permissions, so an event is omitted if the version is
uncertain.
"""
_OUR_COMMAND = re.compile(r"\btoolspan\b.* (?:hook (?:record|approve|guard|known-errors)|keep --quiet)\b")
_HOOK_TIMEOUT = 5
APPROVE_SECONDS = 60
"""The number of seconds that the client waits for an answer on the page before it shows its own dialog."""


def events_for(version: VersionTuple | None) -> tuple[str, ...]:
    """Return the events that a client version supports, or those that all versions support if it is None."""
    client_version = version or min(EVENT_MIN_VERSIONS.values())
    return tuple(event for event, since in EVENT_MIN_VERSIONS.items() if since <= client_version)


def plan_install(
    path: Path,
    command: str | None,
    events: Sequence[str],
    *,
    approve_command: str | None = None,
    guard_command: str | None = None,
    keep_command: str | None = None,
    known_errors_command: str | None = None,
) -> SettingsChange:
    """Plan the installation of toolspan's hooks. The plan is empty if they are already installed.

    `command` records waits for permission, which is of no use in Codex. `approve_command` answers permission requests,
    and `guard_command` stops calls at limits; without them, no hook decides anything. `keep_command` runs when a
    session ends, and `known_errors_command` after a call has failed.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    target = Path(os.path.realpath(path))
    before = read_file(target)
    settings = parse_settings(target, before)
    current_hooks = object_at(settings, "hooks", path)
    others = _remove_our_hooks(current_hooks, path)
    hooks = dict(others)
    for event in events:
        handlers: list[JsonObject] = []
        if command is not None:
            handlers.append({"type": "command", "command": command, "timeout": _HOOK_TIMEOUT})
        if event == "PermissionRequest" and approve_command is not None:
            handlers.append({"type": "command", "command": approve_command, "timeout": APPROVE_SECONDS + _HOOK_TIMEOUT})
        if event == "PreToolUse" and guard_command is not None:
            handlers.append({"type": "command", "command": guard_command, "timeout": _HOOK_TIMEOUT})
        if event == "PostToolUseFailure" and known_errors_command is not None:
            handlers.append({"type": "command", "command": known_errors_command, "timeout": _HOOK_TIMEOUT})
        _add_group(hooks, event, handlers)
    if keep_command is not None:
        _add_group(hooks, "SessionEnd", [{"type": "command", "command": keep_command, "timeout": _HOOK_TIMEOUT}])
    if json.dumps(current_hooks, sort_keys=True) == json.dumps(hooks, sort_keys=True):
        return SettingsChange(target, before, before)
    backup = read_backup(target, before)
    ours = backup is not None or current_hooks != others
    original = backup[0] if backup is not None else None if ours else before
    is_exact = backup is not None or not ours
    return SettingsChange(target, before, encode_settings({**settings, "hooks": hooks}, before), original, is_exact)


def _add_group(hooks: JsonObject, event: str, handlers: Sequence[JsonObject]) -> None:
    groups = hooks.get(event)
    hooks[event] = [*(groups if isinstance(groups, list) else ()), {"hooks": handlers}]


def plan_uninstall(path: Path) -> SettingsChange:
    """Plan the removal of toolspan's hooks, restoring the original file if it has not changed since.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    target = Path(os.path.realpath(path))
    before = read_file(target)
    backup = read_backup(target, before)
    if backup is not None:
        return SettingsChange(target, before, backup[0])
    settings = parse_settings(target, before)
    hooks = object_at(settings, "hooks", path)
    remaining = _remove_our_hooks(hooks, path)
    if remaining == hooks:
        return SettingsChange(target, before, before)
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    after = encode_settings({**settings, "hooks": remaining} if remaining else rest, before)
    return SettingsChange(target, before, after, is_exact=False)


def installed_hooks(path: Path) -> Mapping[str, Sequence[str]]:
    """Return the commands of toolspan's installed hooks by event.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    commands: dict[str, list[str]] = {}
    for event, groups in object_at(parse_settings(path, read_file(path)), "hooks", path).items():
        for group in groups if isinstance(groups, list) else ():
            for handler in _group_handlers(group):
                if is_toolspan_handler(handler):
                    commands.setdefault(event, []).append(str(handler["command"]))
    return commands


def is_guard_installed(project: Path) -> bool:
    """Return whether the hook that checks limits is in the user's settings of a client or in the local ones."""
    places = SettingsPaths.for_project(project)
    for path in (places.user_file, places.local_file, *other_hook_files().values()):
        with suppress(ToolspanError):
            if any(" hook guard" in command for command in installed_hooks(path).get("PreToolUse", ())):
                return True
    return False


def other_hook_files() -> Mapping[str, Path]:
    """Return the files with the user's hooks of other clients, which have the layout of Claude Code's settings."""
    paths = {client.name: client.hooks_path() for client in all_formats()}
    return {name: path for name, path in paths.items() if path is not None}


def is_toolspan_handler(handler: object) -> bool:
    """Return whether a handler was installed by toolspan."""
    command = handler.get("command") if isinstance(handler, Mapping) else None
    return isinstance(command, str) and _OUR_COMMAND.search(command) is not None


def _remove_our_hooks(hooks: JsonObject, path: Path) -> JsonObject:
    """Return `hooks` without toolspan's handlers and without objects that become empty."""
    remaining: JsonObject = {}
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise SettingsError(f"{path}: `hooks.{event}` must be a list, not {json_type_name(groups)}")
        other_groups: list[object] = []
        for group in groups:
            handlers = _group_handlers(group)
            others = [handler for handler in handlers if not is_toolspan_handler(handler)]
            if not isinstance(group, dict) or len(others) == len(handlers):
                other_groups.append(group)
            elif others:
                other_groups.append({**group, "hooks": others})
        if other_groups or not groups:
            remaining[event] = other_groups
    return remaining


def _group_handlers(group: object) -> Sequence[Mapping[str, object]]:
    handlers = group.get("hooks") if isinstance(group, Mapping) else None
    return [handler for handler in handlers if isinstance(handler, Mapping)] if isinstance(handlers, list) else []
