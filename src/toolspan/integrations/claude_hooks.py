"""Install and remove toolspan's hooks in the settings file of Claude Code, or in the file with the hooks of Codex.

Changes are planned first, and uninstalling restores the file byte for byte unless it has changed since; see
`settings_change.py`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.formats.registry import all_formats, recorded_format
from toolspan.formats.side_files import HOOK_LOG_NAME
from toolspan.integrations.settings_change import (
    JsonObject,
    SettingsChange,
    encode_settings,
    parse_settings,
    plan_edit,
    plan_removal,
    program_command,
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
_EVENTS = {"approve": "PermissionRequest", "guard": "PreToolUse", "known-errors": "PostToolUseFailure"}
"""The hooks that are installed only if asked for, and the event of each."""
_CLIENT_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_VERSION_TIMEOUT_SECONDS = 10
_HOOK_TIMEOUT = 5
APPROVE_SECONDS = 60
"""The number of seconds that the client waits for an answer on the page before it shows its own dialog."""


def parse_version(text: str) -> VersionTuple | None:
    """Return a client version, or None if the text is not one."""
    match = _CLIENT_VERSION.fullmatch(text)
    return None if match is None else tuple(map(int, match.groups()))


def installed_version() -> VersionTuple | None:
    """Return the version of `claude` on the PATH, or None if it cannot be found out."""
    program = shutil.which("claude")
    if program is None:
        return None
    try:
        process = subprocess.run(
            [program, "--version"], capture_output=True, timeout=_VERSION_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _CLIENT_VERSION.match(process.stdout.decode(errors="replace"))
    return None if match is None else parse_version(match[0])


def count_recorded_sessions() -> int:
    """Return the number of sessions in which the hooks have recorded something."""
    with suppress(OSError):
        return sum(1 for root in recorded_format().roots() for _ in root.glob(f"*/*/{HOOK_LOG_NAME}"))
    return 0


def events_for(version: VersionTuple | None) -> tuple[str, ...]:
    """Return the events that a client version supports, or those that all versions support if it is None."""
    client_version = version or min(EVENT_MIN_VERSIONS.values())
    return tuple(event for event, since in EVENT_MIN_VERSIONS.items() if since <= client_version)


def hook_command(name: str) -> str:
    """Return the shell command of a hook. It uses an absolute path and always succeeds."""
    return f"{shlex.join([*program_command(), 'hook', name])} 2>/dev/null || true"


def plan_install(path: Path, command: str | None, events: Sequence[str], *names: str) -> SettingsChange:
    """Plan the installation of toolspan's hooks. The plan is empty if they are already installed.

    `command` records waits for permission, which is of no use in Codex. `names` has further hooks: `approve` answers
    permission requests and `guard` stops calls at limits; without them, no hook decides anything. `keep` runs when a
    session ends, and `known-errors` after a call has failed.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    commands = {event: [] if command is None else [(command, _HOOK_TIMEOUT)] for event in events}
    for name, event in _EVENTS.items():
        if name in names and event in commands:
            seconds = APPROVE_SECONDS if name == "approve" else 0
            commands[event].append((hook_command(name), seconds + _HOOK_TIMEOUT))
    if "keep" in names:
        keep_command = f"({shlex.join(program_command())} keep --quiet >/dev/null 2>&1 &)"
        commands["SessionEnd"] = [(keep_command, _HOOK_TIMEOUT)]

    def add(data: bytes | None) -> bytes | None:
        settings, current = _parse_hooks(path, data)
        hooks = _remove_our_hooks(current, path)
        for event, entries in commands.items():
            handlers = [{"type": "command", "command": text, "timeout": seconds} for text, seconds in entries]
            groups = hooks.get(event)
            hooks[event] = [*(groups if isinstance(groups, list) else ()), {"hooks": handlers}]
        return data if hooks == current else encode_settings({**settings, "hooks": hooks}, data)

    return plan_edit(path, add, partial(_remove_from_settings, path))


def plan_uninstall(path: Path) -> SettingsChange:
    """Plan the removal of toolspan's hooks, restoring the original file if it has not changed since.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    return plan_removal(path, partial(_remove_from_settings, path))


def _parse_hooks(path: Path, data: bytes | None) -> tuple[JsonObject, JsonObject]:
    settings = parse_settings(path, data)
    return settings, object_at(settings, "hooks", path)


def _remove_from_settings(path: Path, data: bytes | None) -> bytes | None:
    settings, hooks = _parse_hooks(path, data)
    remaining = _remove_our_hooks(hooks, path)
    if remaining == hooks:
        return data
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    return encode_settings({**settings, "hooks": remaining} if remaining else rest, data)


def installed_hooks(path: Path) -> Mapping[str, Sequence[str]]:
    """Return the commands of toolspan's installed hooks by event.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    commands: dict[str, list[str]] = {}
    for event, groups in _parse_hooks(path, read_file(path))[1].items():
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
