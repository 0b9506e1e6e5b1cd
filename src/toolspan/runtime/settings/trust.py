"""Decide whether the settings in a project folder may run programs or allow calls.

`build_trust_request` collects the settings that need trust from a project's settings files,
`.mcp.json`, agents and skills. A folder is trusted while their digest equals the one that the user
accepted; a single changed hook revokes the trust. Rules that deny or ask need no trust. Scripts
that a command runs are not part of the digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.runtime.settings.load import (
    SettingsError,
    load_json,
    parse_frontmatter_hooks,
    replace_json,
    split_frontmatter,
)
from toolspan.runtime.settings.scopes import PROJECT_SCOPES, SettingsLayer, SettingsPaths, load_layers

_PERMISSION_GRANTS = ("allow", "additionalDirectories", "defaultMode")
_TRUSTED_KEYS = ("hooks", "env", "enableAllProjectMcpServers", "enabledMcpjsonServers")


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """The settings in a project folder that need trust."""

    project: Path
    requested_settings: Mapping[str, Mapping[str, object]]
    """The settings that can run a program or allow a call, keyed by file."""

    @property
    def mcp_servers(self) -> Mapping[str, object]:
        """The MCP servers that the project would start."""
        servers = self.requested_settings.get(".mcp.json", {}).get("mcpServers")
        return servers if isinstance(servers, Mapping) else {}

    @property
    def digest(self) -> str:
        """A hash of the settings, independent of key order and spacing."""
        encoded = json.dumps(self.requested_settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(encoded.encode()).hexdigest()

    def __bool__(self) -> bool:
        return bool(self.requested_settings)

    def format_lines(self) -> Iterator[str]:
        """Yield lines that show the settings to the user."""
        for name, settings in self.requested_settings.items():
            for key, value in settings.items():
                yield f"{name}: {key}"
                yield from (f"    {line}" for line in _format_setting(key, value))


def build_trust_request(paths: SettingsPaths, layers: Iterable[SettingsLayer]) -> TrustRequest:
    """Collect all settings in a project's files that need trust.

    Raises:
        SourceError: the project's `.mcp.json` cannot be read.
    """
    requested_settings: dict[str, Mapping[str, object]] = {}
    for layer in layers:
        if layer.scope not in PROJECT_SCOPES and not paths.is_project_file(layer.path):
            continue
        requested = {key: layer.raw[key] for key in _TRUSTED_KEYS if layer.raw.get(key)}
        permissions = layer.raw.get("permissions")
        if isinstance(permissions, Mapping):
            grants = {key: permissions[key] for key in _PERMISSION_GRANTS if permissions.get(key)}
            requested |= {f"permissions.{key}": value for key, value in grants.items()}
        sandbox = layer.settings.sandbox
        if sandbox != sandbox.restricted():
            requested["sandbox"] = layer.raw["sandbox"]
        if requested:
            requested_settings[os.path.relpath(layer.path, paths.project)] = requested
    if paths.mcp_file.is_file():
        servers = load_json(paths.mcp_file).get("mcpServers")
        if servers:
            requested_settings[paths.mcp_file.name] = {"mcpServers": servers}
    definitions = [(path, "agent") for path in sorted(paths.agents_folder.rglob("*.md"))]
    definitions += [(path, "skill") for path in sorted(paths.skills_folder.glob("*/SKILL.md"))]
    for path, kind in definitions:
        hooks = _frontmatter_hooks(path)
        if kind == "skill" and not hooks:
            continue
        try:
            fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            fingerprint = f"{error.strerror} at {time.time()}"  # different each time
        requested_settings[os.path.relpath(path, paths.project)] = {kind: fingerprint, **hooks}
    return TrustRequest(paths.project, requested_settings)


def _frontmatter_hooks(path: Path) -> dict[str, object]:
    """Return the hooks in a file's frontmatter for display, or the reason why they cannot be read."""
    try:
        parts = split_frontmatter(path.read_text(encoding="utf-8", errors="replace"))
        hooks = parse_frontmatter_hooks(parts[0]) if parts is not None else None
    except OSError as error:
        return {"hooks": f"cannot be read: {error.strerror}"}
    except SettingsError as error:
        return {"hooks": str(error)}
    return {} if hooks is None else {"hooks": hooks}


def _format_setting(key: str, value: object) -> Iterator[str]:
    if key == "hooks" and isinstance(value, Mapping):
        for point, groups in value.items():
            for group in groups if isinstance(groups, list) else [groups]:
                yield from _format_hook_group(str(point), group)
    elif isinstance(value, Mapping):
        yield from (f"{name}: {json.dumps(item)}" for name, item in value.items())
    elif isinstance(value, list):
        yield from (str(item) for item in value)
    else:
        yield str(value)


def _format_hook_group(point: str, group: object) -> Iterator[str]:
    handlers = group.get("hooks") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(handlers, list):
        yield f"{point} {json.dumps(group)}"
        return
    matcher = group.get("matcher") or "*"
    for handler in handlers:
        if not isinstance(handler, Mapping):
            yield f"{point} {matcher} {json.dumps(handler)}"
            continue
        target = handler.get("command") or handler.get("url") or handler.get("prompt") or json.dumps(handler)
        args = handler.get("args")
        arguments = args if isinstance(args, list) else ()
        yield f"{point} {matcher} [{handler.get('type')}] {' '.join((str(target), *map(str, arguments)))}"


def default_trust_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file with accepted digests, which is outside all projects."""
    env = os.environ if environment is None else environment
    state = env.get("XDG_STATE_HOME")
    home = Path(env.get("HOME") or Path.home())
    return (Path(state) if state else home / ".local" / "state") / "toolspan" / "trust.json"


class TrustStore:
    """A store of trusted folders, with the digests of their accepted requests."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_trusted(self, request: TrustRequest) -> bool:
        """Return whether the request is empty or has been accepted in exactly this form.

        If the store cannot be read, no folder is trusted.
        """
        if not request:
            return True
        try:
            entry = self._read_folders().get(_folder_key(request.project))
        except SourceError:
            return False
        return isinstance(entry, Mapping) and entry.get("digest") == request.digest

    def accept(self, request: TrustRequest) -> None:
        """Trust the folder for as long as its request does not change.

        Raises:
            SourceError: the store cannot be read or written.
        """
        entry = {"digest": request.digest, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self._write_folders({**self._read_folders(), _folder_key(request.project): entry})

    def revoke(self, project: Path) -> bool:
        """Stop trusting a folder, or return False if it was not trusted.

        Raises:
            SourceError: the store cannot be read or written.
        """
        folders = dict(self._read_folders())
        if folders.pop(_folder_key(project), None) is None:
            return False
        self._write_folders(folders)
        return True

    def list_folders(self) -> Sequence[str]:
        """Return all trusted folders.

        Raises:
            SourceError: the store cannot be read.
        """
        return sorted(self._read_folders())

    def _read_folders(self) -> Mapping[str, object]:
        if not self.path.exists():
            return {}
        folders = load_json(self.path).get("folders")
        if not isinstance(folders, dict):
            raise SourceError(f"{self.path}: expected an object whose key `folders` is an object")
        return folders

    def _write_folders(self, folders: Mapping[str, object]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from error
        replace_json(self.path, {"folders": folders})


def change_local_settings(paths: SettingsPaths, store: TrustStore, change: Callable[[], object]) -> bool:
    """Change the project's local settings on behalf of the user, and return whether the folder is
    trusted afterwards.

    A trusted folder stays trusted if `change` only adds permissions, but not after any other change.

    Raises:
        SourceError: a file cannot be read or written.
        SettingsError: a file has an invalid value.
    """
    before = _current_trust_request(paths)
    trusted = store.is_trusted(before)
    change()
    after = _current_trust_request(paths)
    if trusted and _without_grants(before) == _without_grants(after):
        store.accept(after)
    return store.is_trusted(after)


def _current_trust_request(paths: SettingsPaths) -> TrustRequest:
    return build_trust_request(paths, load_layers(paths, scopes=PROJECT_SCOPES))


def _without_grants(request: TrustRequest) -> Mapping[str, Mapping[str, object]]:
    """Return the requested settings without the permissions that the user may add to the local settings."""
    local = str(Path(".claude") / "settings.local.json")
    added = {"permissions.allow", "permissions.additionalDirectories"}
    remaining = {
        name: {k: v for k, v in settings.items() if name != local or k not in added}
        for name, settings in request.requested_settings.items()
    }
    return {name: settings for name, settings in remaining.items() if settings}


def _folder_key(project: Path) -> str:
    return str(project.resolve())
