"""Install and remove toolspan's hooks in a client's settings file.

Changes are planned first and can be shown as a diff. The original file is backed up, so uninstalling restores it byte
for byte unless it has changed since.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.runtime.settings.load import (
    SettingsError,
    exclusive_access,
    json_type_name,
    object_at,
    replace_bytes,
    replace_json,
)
from toolspan.runtime.settings.trust import default_trust_path

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
_OUR_COMMAND = re.compile(r"\btoolspan\b.* hook (?:record|approve)\b")
_HOOK_TIMEOUT = 5
APPROVE_SECONDS = 60
"""The number of seconds that the client waits for an answer on the page before it shows its own dialog."""
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A planned change to a settings file."""

    path: Path
    """The file, with symbolic links resolved."""
    before: bytes | None
    """The current content, or None if the file does not exist."""
    after: bytes | None
    original: bytes | None = None
    is_exact: bool = True
    """True if uninstalling restores the original bytes. False if the file has changed since the installation."""

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        old, new = ((data or b"").decode(errors="replace").splitlines() for data in (self.before, self.after))
        yield from difflib.unified_diff(old, new, str(self.path), str(self.path), lineterm="")

    def apply(self, *, installs: bool) -> None:
        """Apply the change to the file.

        Raises:
            SourceError: the file cannot be written, or it changed since the plan was made.
        """
        with exclusive_access(self.path):
            if _read_file(self.path) != self.before:
                raise SourceError(f"{self.path}: the file changed in the meantime and was left unchanged; try again")
            backup_path = _backup_path(self.path)
            if installs:
                backup_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                original = None if self.original is None else base64.b64encode(self.original).decode()
                digest = hashlib.sha256(self.after or b"").hexdigest()
                record = {"path": str(self.path), "kept": original, "exact": self.is_exact, "digest": digest}
                replace_json(backup_path, record)
            if self.after is None:
                self.path.unlink()
            else:
                replace_bytes(self.path, self.after)
            if not installs:
                backup_path.unlink(missing_ok=True)


def events_for(version: VersionTuple | None) -> tuple[str, ...]:
    """Return the events that a client version supports, or those that all versions support if it is None."""
    client_version = version or min(EVENT_MIN_VERSIONS.values())
    return tuple(event for event, since in EVENT_MIN_VERSIONS.items() if since <= client_version)


def plan_install(
    path: Path, command: str, events: Sequence[str], *, approve_command: str | None = None
) -> SettingsChange:
    """Plan the installation of toolspan's hooks. The plan is empty if they are already installed.

    `approve_command` answers permission requests; without it, no hook decides anything.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    target = Path(os.path.realpath(path))
    before = _read_file(target)
    settings = _parse_settings(target, before)
    current_hooks = object_at(settings, "hooks", path)
    others = _remove_our_hooks(current_hooks, path)
    hooks = dict(others)
    for event in events:
        handlers = [{"type": "command", "command": command, "timeout": _HOOK_TIMEOUT}]
        if event == "PermissionRequest" and approve_command is not None:
            handlers.append({"type": "command", "command": approve_command, "timeout": APPROVE_SECONDS + _HOOK_TIMEOUT})
        groups = hooks.get(event)
        hooks[event] = [*(groups if isinstance(groups, list) else ()), {"hooks": handlers}]
    if json.dumps(current_hooks, sort_keys=True) == json.dumps(hooks, sort_keys=True):
        return SettingsChange(target, before, before)
    backup = _read_backup(target, before)
    ours = backup is not None or current_hooks != others
    original = backup[0] if backup is not None else None if ours else before
    is_exact = backup is not None or not ours
    return SettingsChange(target, before, _encode_settings({**settings, "hooks": hooks}, before), original, is_exact)


def plan_uninstall(path: Path) -> SettingsChange:
    """Plan the removal of toolspan's hooks, restoring the original file if it has not changed since.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    target = Path(os.path.realpath(path))
    before = _read_file(target)
    backup = _read_backup(target, before)
    if backup is not None:
        return SettingsChange(target, before, backup[0])
    settings = _parse_settings(target, before)
    hooks = object_at(settings, "hooks", path)
    remaining = _remove_our_hooks(hooks, path)
    if remaining == hooks:
        return SettingsChange(target, before, before)
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    after = _encode_settings({**settings, "hooks": remaining} if remaining else rest, before)
    return SettingsChange(target, before, after, is_exact=False)


def installed_hooks(path: Path) -> Mapping[str, Sequence[str]]:
    """Return the commands of toolspan's installed hooks by event.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: its hooks are invalid.
    """
    commands: dict[str, list[str]] = {}
    for event, groups in object_at(_parse_settings(path, _read_file(path)), "hooks", path).items():
        for group in groups if isinstance(groups, list) else ():
            for handler in _group_handlers(group):
                if is_toolspan_handler(handler):
                    commands.setdefault(event, []).append(str(handler["command"]))
    return commands


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


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def _parse_settings(path: Path, data: bytes | None) -> JsonObject:
    """Parse a settings file, rejecting content that would be lost if it were rewritten."""
    if data is None or not data.strip():
        return {}

    def reject_duplicate_keys(pairs: Sequence[tuple[str, object]]) -> JsonObject:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise ValueError("a key occurs twice")
        return mapping

    try:
        settings = json.loads(data.decode(), object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the file is not JSON and was left unchanged: {error}") from error
    if not isinstance(settings, dict):
        raise SourceError(f"{path}: expected an object, not {json_type_name(settings)}")
    return settings


def _encode_settings(value: JsonObject, template: bytes | None) -> bytes:
    old = (template or b"").decode(errors="replace")
    first = re.search(r"\n([ \t]+)\S", old)
    lines = old.splitlines()
    indent: str | int | None = first[1] if first else None if len(lines) == 1 else 2
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    ending = "" if old and not old.endswith("\n") else "\n"
    return (text + ending).encode(errors="surrogatepass")


def _backup_path(path: Path) -> Path:
    """Return the path of the backup, which is outside all projects and the client's folder."""
    name = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:24]
    return default_trust_path().with_name("hooks") / f"{name}.json"


def _read_backup(path: Path, data: bytes | None) -> tuple[bytes | None] | None:
    """Return the original content if toolspan was the last to change the file, or None if it is unknown."""
    backup = _read_file(_backup_path(path))
    if backup is None or data is None:
        return None
    try:
        record = json.loads(backup)
        original = record["kept"]
        if record["digest"] != hashlib.sha256(data).hexdigest() or record["exact"] is not True:
            return None
        return (None if original is None else base64.b64decode(original),)
    except (ValueError, KeyError, TypeError):
        return None
