"""Decide whether the settings in a project folder may run programs or allow calls.

`build_trust_request` collects the settings that need trust from a project's settings files (see `keys.py`),
`.mcp.json`, agents and skills. A folder is trusted while their digest equals the one that the user
accepted; a single changed hook revokes the trust. Scripts that a command runs, and instructions for the model, are not
part of the digest.
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
from toolspan.runtime.settings.instructions import project_instruction_files
from toolspan.runtime.settings.keys import split_untrusted
from toolspan.runtime.settings.load import (
    JsonStore,
    SettingsError,
    load_json,
    parse_frontmatter_hooks,
    split_frontmatter,
)
from toolspan.runtime.settings.scopes import PROJECT_SCOPES, SettingsLayer, SettingsPaths, load_layers

_MAX_DEFINITION_BYTES = 1 << 20
"""The maximum size of an agent or a skill; larger ones are not used."""
_MAX_LINE_LENGTH = 1_000
_DEFINITION_KINDS = ("agent", "skill")
_HANDLER_TARGETS = {"command": "command", "http": "url", "prompt": "prompt", "agent": "prompt"}
"""The field of a hook handler that is shown first, by type."""


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """The settings in a project folder that need trust."""

    project: Path
    requested_settings: Mapping[str, Mapping[str, object]]
    """The settings that can run a program or allow a call, keyed by file."""
    instruction_files: tuple[str, ...] = ()
    """Files with instructions for the model. They need trust, but a trusted folder may change them."""

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
        return bool(self.requested_settings or self.instruction_files)

    def format_lines(self, max_lines: int | None = None) -> Iterator[str]:
        """Yield lines that show the settings to the user, at most `max_lines` of each agent and skill."""
        for name, settings in self.requested_settings.items():
            for key, value in settings.items():
                yield f"{name}: {key}"
                lines = list(_format_setting(key, value))
                shown = lines[: max_lines if key in _DEFINITION_KINDS else None]
                yield from (f"    {line}" for line in shown)
                if len(shown) < len(lines):
                    yield f"    ... {len(lines) - len(shown)} more lines; read them in {self.project / name}"
        yield from (f"{name}: instructions for the model" for name in self.instruction_files)


def build_trust_request(paths: SettingsPaths, layers: Iterable[SettingsLayer]) -> TrustRequest:
    """Collect all settings in a project's files that need trust.

    Raises:
        SourceError: the project's `.mcp.json` cannot be read.
    """
    requested_settings: dict[str, Mapping[str, object]] = {}
    for layer in layers:
        if layer.scope not in PROJECT_SCOPES and not paths.is_project_file(layer.path):
            continue
        if requested := split_untrusted(layer.raw).needs_trust:
            requested_settings[os.path.relpath(layer.path, paths.project)] = requested
    if paths.mcp_file.is_file():
        servers = load_json(paths.mcp_file).get("mcpServers")
        if servers:
            requested_settings[paths.mcp_file.name] = {"mcpServers": servers}
    files = {"agent": paths.agents_folder.rglob("*.md"), "skill": paths.skills_folder.glob("*/SKILL.md")}
    for kind in _DEFINITION_KINDS:
        for path in filter(Path.is_file, sorted(files[kind])):
            requested_settings[os.path.relpath(path, paths.project)] = _read_definition(kind, path)
    instructions = project_instruction_files(paths.project)
    names = tuple(os.path.relpath(path, paths.project) for path in instructions)
    return TrustRequest(paths.project, requested_settings, names)


def _read_definition(kind: str, path: Path) -> dict[str, object]:
    """Return the hooks and the text of an agent or a skill, or the reason why it cannot be used."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_DEFINITION_BYTES + 1)
    except OSError as error:
        return {f"unreadable {kind}": error.strerror}
    if len(data) > _MAX_DEFINITION_BYTES:
        return {f"unused {kind}": "larger than 1 MiB"}
    text = data.decode("utf-8", "replace")
    definition: dict[str, object] = {kind: text}
    if text.encode() != data:
        definition["sha256"] = hashlib.sha256(data).hexdigest()
    try:
        parts = split_frontmatter(text)
        hooks = parse_frontmatter_hooks(parts[0]) if parts is not None else None
    except SettingsError as error:
        hooks = str(error)
    return definition if hooks is None else {"hooks": hooks, **definition}


def _format_setting(key: str, value: object) -> Iterator[str]:
    if key == "hooks" and isinstance(value, Mapping):
        for point, groups in value.items():
            for group in groups if isinstance(groups, list) else [groups]:
                yield from _format_hook_group(str(point), group)
    elif key in _DEFINITION_KINDS:
        # Only the lines of a text are printed as lines, so that no other value can imitate an entry.
        yield from (f"| {_shorten(line)}" for line in str(value).removesuffix("\n").split("\n"))
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
        shown = dict(handler)
        kind = shown.pop("type", None)
        target = shown.pop(_HANDLER_TARGETS.get(str(kind), ""), "")
        args = shown.pop("args", [])
        words = [target, *args] if isinstance(args, list) else [target, args]
        yield f"{point} {matcher} [{kind}] {' '.join(map(str, words))}".rstrip()
        yield from (f"    {key}: {json.dumps(value)}" for key, value in shown.items())


def _shorten(line: str) -> str:
    dropped = len(line) - _MAX_LINE_LENGTH
    return line if dropped <= 0 else f"{line[:_MAX_LINE_LENGTH]} ... {dropped} more characters"


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
        self._store = JsonStore(path, "folders")

    def is_trusted(self, request: TrustRequest) -> bool:
        """Return whether the request is empty or has been accepted in exactly this form.

        If the store cannot be read, no folder is trusted.
        """
        if not request:
            return True
        try:
            entry = self._store.read().get(_folder_key(request.project))
        except SourceError:
            return False
        return isinstance(entry, Mapping) and entry.get("digest") == request.digest

    def accept(self, request: TrustRequest) -> None:
        """Trust the folder for as long as its request does not change.

        Raises:
            SourceError: the store cannot be read or written.
        """
        entry = {"digest": request.digest, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        with self._store.change() as folders:
            folders[_folder_key(request.project)] = entry

    def revoke(self, project: Path) -> bool:
        """Stop trusting a folder, or return False if it was not trusted.

        Raises:
            SourceError: the store cannot be read or written.
        """
        with self._store.change() as folders:
            return folders.pop(_folder_key(project), None) is not None

    def list_folders(self) -> Sequence[str]:
        """Return all trusted folders.

        Raises:
            SourceError: the store cannot be read.
        """
        return sorted(self._store.read())


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
