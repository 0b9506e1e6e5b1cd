"""Load and check one settings file. Error messages name the file and the key.

Start at `load_settings`. Unknown keys are ignored. Keys of the client that toolspan does not use are checked as the
client checks them, because it ignores a whole file with an invalid value. A hook handler that cannot be parsed is an
error, because ignoring it would silently drop a safeguard. `scopes.py` finds the files and merges them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolspan.errors import SourceError, ToolspanError
from toolspan.runtime.settings.extend import extend_list
from toolspan.runtime.settings.sandbox import SandboxSettings

_T = TypeVar("_T")
_DEFAULT_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto", "manual")
"""The values of `defaultMode` that the client accepts. `manual` means `default`; toolspan does not support `auto`."""
_DISABLING_KEYS = ("disableBypassPermissionsMode", "disableAutoMode")
_CLIENT_KEYS: Mapping[str, Sequence[str]] = {
    "a string": (
        "$schema", "apiKeyHelper", "autoUpdatesChannel", "awsAuthRefresh", "awsCredentialExport", "defaultShell",
        "language", "model", "otelHeadersHelper", "outputStyle", "plansDirectory",
    ),
    "a boolean": (
        "alwaysThinkingEnabled", "autoMemoryEnabled", "fastMode", "includeCoAuthoredBy", "prefersReducedMotion",
        "respectGitignore", "showTurnDuration", "skipDangerousModePermissionPrompt", "spinnerTipsEnabled",
        "terminalProgressBarEnabled", "verbose",
    ),
    "a number": ("cleanupPeriodDays", "feedbackSurveyRate"),
    "a list": ("availableModels", "claudeMdExcludes", "companyAnnouncements"),
    "an object": (
        "attribution", "autoMode", "enabledPlugins", "fileSuggestion", "modelOverrides", "spinnerVerbs", "statusLine",
        "worktree",
    ),
}  # fmt: skip
"""Keys of the client, by type. If one has another type, the client ignores the whole file, with its allow rules."""


class _AttributionValue(Struct, rename="camel"):
    commit: str | UnsetType = UNSET
    pr: str | UnsetType = UNSET
    session_url: bool | UnsetType = UNSET


class _CommandValue(Struct):
    type: Literal["command"]
    command: str
    padding: float | UnsetType = UNSET


class _ClientValues(Struct, rename="camel"):
    """Keys of the client for which it checks more than the type. toolspan does not use them."""

    agent: str | UnsetType = UNSET
    attribution: _AttributionValue | UnsetType = UNSET
    auto_updates_channel: Literal["latest", "stable", "rc"] | UnsetType = UNSET
    available_models: list[str] | UnsetType = UNSET
    claude_md_excludes: list[str] | UnsetType = UNSET
    cleanup_period_days: Annotated[float, Meta(ge=1, multiple_of=1)] | UnsetType = UNSET
    company_announcements: list[str] | UnsetType = UNSET
    enabled_plugins: dict[str, bool | list[str]] | UnsetType = UNSET
    file_suggestion: _CommandValue | UnsetType = UNSET
    force_login_org: str | list[str] | UnsetType = field(default=UNSET, name="forceLoginOrgUUID")
    minimum_version: str | UnsetType = UNSET
    skip_web_fetch_preflight: bool | UnsetType = UNSET
    status_line: _CommandValue | UnsetType = UNSET
    strict_known_marketplaces: list[object] | UnsetType = UNSET


_CLIENT_VALUES = {item.encode_name: item.type for item in msgspec.structs.fields(_ClientValues)}


CLIENT_KEYS = frozenset(key for keys in _CLIENT_KEYS.values() for key in keys) | _CLIENT_VALUES.keys()
"""The keys of the client that are only checked."""


class SettingsError(ToolspanError):
    """Raised if a settings file contains an invalid value. The message contains the file and the key."""


class PermissionSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `permissions` block."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: str | None = None
    disable_auto_mode: str | None = None


class _BaseSpec(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    if_: str | None = field(default=None, name="if")  # a permission rule; the handler runs only for calls that match it
    timeout: float | None = None  # the timeout in seconds
    status_message: str | None = None
    once: bool = False
    on_failure: Literal["continue", "block"] = "continue"
    """With "block", a handler that fails or times out blocks the call that it guards."""


class CommandSpec(_BaseSpec, frozen=True, kw_only=True, tag="command"):
    """A handler that is a command line, or a program with arguments."""

    command: str
    args: tuple[str, ...] | None = None
    """The arguments. If set, even to an empty tuple, the program runs without a shell."""
    async_: bool = field(default=False, name="async")
    async_rewake: bool = False
    shell: str | None = None
    sandbox: bool = False
    """True to run the command inside the session's sandbox."""


class HttpSpec(_BaseSpec, frozen=True, kw_only=True, tag="http"):
    """A handler that receives its input by HTTP POST."""

    url: str
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()


class McpSpec(_BaseSpec, frozen=True, kw_only=True, tag="mcp_tool"):
    """A handler that calls a tool on a connected MCP server."""

    server: str
    tool: str
    input: dict[str, object] = {}


class PromptSpec(_BaseSpec, frozen=True, kw_only=True, tag="prompt"):
    """A handler that asks a model."""

    prompt: str
    model: str | None = None
    continue_on_block: bool = False


class AgentSpec(_BaseSpec, frozen=True, kw_only=True, tag="agent"):
    """A handler that asks a model with tools."""

    prompt: str
    model: str | None = None


HandlerSpec = CommandSpec | HttpSpec | McpSpec | PromptSpec | AgentSpec


class HandlerGroup(Struct, frozen=True):
    """Handlers that share a matcher."""

    hooks: tuple[HandlerSpec, ...]
    matcher: str = ""


class Switches(Struct, frozen=True, kw_only=True, rename="camel"):
    """Top-level settings with a single value, which is None if the file does not set it."""

    disable_all_hooks: bool | None = None
    allow_managed_hooks_only: bool | None = None
    allow_managed_permission_rules_only: bool | None = None
    allowed_http_hook_urls: tuple[str, ...] | None = None
    http_hook_allowed_env_vars: tuple[str, ...] | None = None
    enable_all_project_mcp_servers: bool | None = None
    enabled_mcpjson_servers: tuple[str, ...] | None = None
    disabled_mcpjson_servers: tuple[str, ...] | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """The checked content of a settings file."""

    permissions: PermissionSettings = PermissionSettings()
    hooks: dict[str, tuple[HandlerGroup, ...]] = {}
    env: dict[str, str] = {}
    sandbox: SandboxSettings = SandboxSettings()
    switches: Switches = Switches()


def load_settings(path: Path) -> Settings:
    """Load a settings file.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: a key has an invalid value.
    """
    return parse_settings(load_json(path), str(path))


def load_json(path: Path) -> Mapping[str, object]:
    """Load the JSON object in a file. An empty file is an empty object.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    try:
        value = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf").strip() or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path}: expected an object, not {json_type_name(value)}")
    return value


def parse_settings(raw: Mapping[str, object], where: str) -> Settings:
    """Check decoded settings. `where` identifies the file in error messages.

    Raises:
        SettingsError: a key has an invalid value.
    """
    permissions = raw.get("permissions", {})
    if isinstance(permissions, Mapping) and permissions.get("defaultMode", "default") not in _DEFAULT_MODES:
        # The client ignores the allow rules in such a file.
        raise SettingsError(f"{where}: `permissions.defaultMode` must be one of {', '.join(_DEFAULT_MODES[:5])}")
    for expected_type, keys in _CLIENT_KEYS.items():
        for key in raw.keys() & keys:
            if json_type_name(raw[key]) != expected_type:
                raise SettingsError(f"{where}: `{key}` must be {expected_type}, not {json_type_name(raw[key])}")
    for key in raw.keys() & _CLIENT_VALUES.keys():
        _convert(raw[key], _CLIENT_VALUES[key], where, key)
    for key in _DISABLING_KEYS:
        if isinstance(permissions, Mapping) and permissions.get(key, "disable") != "disable":
            raise SettingsError(f'{where}: `permissions.{key}` must be "disable", or missing')
    env = _convert(raw.get("env", {}), dict, where, "env")
    for key, value in env.items():
        if isinstance(value, bool | int | float):  # recorded as JSON shows it
            env[key] = str(value).lower() if isinstance(value, bool) else str(value)
    switches = {item.encode_name: item for item in msgspec.structs.fields(Switches)}
    null_switch = next((key for key in switches if raw.get(key, ...) is None), None)
    if null_switch is not None:
        raise SettingsError(f"{where}: `{null_switch}` must not be null")
    return Settings(
        permissions=_convert(permissions, PermissionSettings, where, "permissions"),
        hooks=parse_hooks(raw.get("hooks", {}), where),
        env=_convert(env, dict[str, str], where, "env"),
        sandbox=_convert(raw.get("sandbox", {}), SandboxSettings, where, "sandbox"),
        switches=Switches(
            **{
                switches[key].name: _convert(value, switches[key].type, where, key)
                for key, value in raw.items()
                if key in switches
            }
        ),
    )


def parse_hooks(block: object, where: str) -> dict[str, tuple[HandlerGroup, ...]]:
    """Check a decoded `hooks` block and return its handler groups by hook point.

    Raises:
        SettingsError: the block contains something that is not a handler.
    """
    if not isinstance(block, Mapping):
        raise SettingsError(f"{where}: `hooks` must be an object of lists, not {json_type_name(block)}")
    groups_by_point: dict[str, tuple[HandlerGroup, ...]] = {}
    for point, groups in block.items():
        key = f"hooks.{point}"
        if not isinstance(groups, list):
            raise SettingsError(f"{where}: `{key}` must be a list of groups, not {json_type_name(groups)}")
        groups_by_point[str(point)] = tuple(
            _convert(group, HandlerGroup, where, f"{key}[{index}]") for index, group in enumerate(groups)
        )
    return groups_by_point


def unknown_keys(raw: Mapping[str, object], where: str) -> list[str]:
    """Return a warning for each unknown key under `permissions` and `sandbox`, because such a limit has no effect."""
    blocks: dict[str, type[Struct]] = {"permissions": PermissionSettings, "sandbox": SandboxSettings}
    return [
        f"{where}: ignoring the unknown key `{key}`; valid keys are {', '.join(valid_keys)}"
        for name, kind in blocks.items()
        for key, valid_keys in _unknown_fields(raw.get(name), kind, name)
    ]


def _unknown_fields(block: object, kind: type[Struct], path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each unknown key in a block and its nested blocks, with the valid keys."""
    fields = {item.encode_name: item.type for item in msgspec.structs.fields(kind)}
    for key, value in block.items() if isinstance(block, Mapping) else ():
        if key not in fields:
            yield f"{path}.{key}", list(fields)
        elif isinstance(fields[key], type) and issubclass(fields[key], Struct):
            yield from _unknown_fields(value, fields[key], f"{path}.{key}")


def object_at(mapping: Mapping[str, object], key: str, where: object) -> dict[str, object]:
    """Return a copy of the object at `key`, or an empty object if the key is missing.

    Raises:
        SettingsError: the value is not an object.
    """
    block = mapping.get(key, {})
    if not isinstance(block, Mapping):
        raise SettingsError(f"{where}: `{key}` must be an object, not {json_type_name(block)}")
    return dict(block)


def json_type_name(value: object) -> str:
    """Return the name of a value's JSON type with its article, for messages."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _convert(value: object, kind: type[_T], where: str, key: str) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise SettingsError(f"{where}: `{key}{path.rstrip('`')}`: {message}") from error


_DEFAULT_FILE_MODE = 0o600


def add_permissions(
    path: Path, *, allow: Sequence[str] = (), folders: Sequence[str] = (), within: Path | None = None
) -> bool:
    """Add allow rules and working folders, or return False if all of them are already present.

    A missing file is created. With `within`, a symbolic link must not lead outside that folder.

    Raises:
        SourceError: the file cannot be read or written, is not a JSON object, or is outside `within`.
        SettingsError: `permissions`, or one of the two fields in it that would be extended, has the wrong type.
    """
    target = Path(os.path.realpath(path))
    if within is not None and not target.is_relative_to(os.path.realpath(within)):
        raise SourceError(f"{path}: this link leads to {target}, outside the project")
    with exclusive_access(target):
        before = read_settings_text(target)
        after = extend_permissions(before, path, allow=allow, folders=folders)
        if after == before:
            return False
        replace_bytes(target, after.encode(errors="surrogatepass"))
    return True


def read_settings_text(path: Path) -> str:
    """Return the JSON text of a settings file; empty if there is no file.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
    """
    if not path.exists():
        return ""
    load_json(path)
    with path.open(encoding="utf-8-sig", newline="") as file:  # keeps the line ends
        return file.read()


def extend_permissions(text: str, path: Path, *, allow: Sequence[str] = (), folders: Sequence[str] = ()) -> str:
    """Return the text of a settings file with allow rules and working folders that are not in it yet.

    All other text stays as it is.

    Raises:
        SettingsError: `permissions`, or one of the two fields in it that would be extended, has the wrong type.
    """
    settings = msgspec.json.decode(text, type=dict[str, object]) if text.strip() else {}
    block = object_at(settings, "permissions", path)
    for key, entries in {"allow": allow, "additionalDirectories": folders}.items():
        before = block.get(key, [])
        if not isinstance(before, list):
            raise SettingsError(f"{path}: `permissions.{key}` must be a list, not {json_type_name(before)}")
        if new := [entry for entry in dict.fromkeys(entries) if entry not in before]:
            text = extend_list(text, ("permissions", key), new)
    return text


@contextmanager
def exclusive_access(path: Path, mode: int = 0o777) -> Iterator[None]:
    """Hold a lock on a file's folder, creating the folder if it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # some file systems have no locks; there the last writer wins
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace_json(path: Path, value: Mapping[str, object]) -> None:
    """Atomically replace a file with a JSON object, keeping its mode.

    Raises:
        SourceError: the file cannot be written; it is unchanged.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    replace_bytes(path, text.encode(errors="surrogatepass"))


def replace_bytes(path: Path, data: bytes) -> None:
    """Atomically replace the content of a file, keeping its mode.

    Raises:
        SourceError: the file cannot be written; it is unchanged.
    """
    name = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) if path.exists() else _DEFAULT_FILE_MODE)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise SourceError(f"{path}: {error.strerror or error}") from error


class JsonStore:
    """A file outside all projects with named entries, which only the user can read. Several processes may use it."""

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self._key = key

    def read(self) -> Mapping[str, object]:
        """Return the entries.

        Raises:
            SourceError: the file cannot be read.
        """
        if not self.path.exists():
            return {}
        entries = load_json(self.path).get(self._key)
        if not isinstance(entries, dict):
            raise SourceError(f"{self.path}: expected an object whose key `{self._key}` is an object")
        return entries

    @contextmanager
    def change(self) -> Iterator[dict[str, object]]:
        """Yield the entries, and write them at the end if they have changed.

        Raises:
            SourceError: the file cannot be read or written; it is unchanged.
        """
        with exclusive_access(self.path, 0o700):
            before = self.read()
            entries = dict(before)
            yield entries
            if entries != before:
                if self.path.exists():
                    self.path.chmod(0o600)  # the new file keeps the mode of the old one
                replace_json(self.path, {self._key: entries})


_FRONTMATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_HOOKS_KEY = re.compile(r"""(["']?)hooks\1[ \t]*:""")
_PLAIN_FIELD = re.compile(r"""^([A-Za-z][\w-]*)[ \t]*:[ \t]+(?!["'\[{|>#])(.+(?:\n[ \t]+.*)*)""", re.MULTILINE)


def split_frontmatter(text: str) -> tuple[str, str] | None:
    """Split a file into its frontmatter and its body, or return None if it has no frontmatter."""
    match = _FRONTMATTER.match(text)
    return None if match is None else (match[1], match[2])


def parse_frontmatter_fields(head: str) -> dict[str, object]:
    """Parse the fields in the frontmatter other than `hooks`. Every scalar is a string.

    Raises:
        ValueError: a line cannot be parsed; the message contains its number in the file.
    """
    import yaml

    fields_head, _ = _split_hooks_block(head)
    # BaseLoader builds only strings, lists and dicts, so that a name such as `on` or `1.0` stays a string.
    try:
        fields = yaml.load(fields_head, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        # Many files have values such as `description: Use when: …` or `tools: *`, which need quotes in YAML.
        try:
            fields = yaml.load(_PLAIN_FIELD.sub(_quote_field, fields_head), Loader=yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError) as error:
            number, line = _locate_error(error, fields_head.split("\n"))
            raise ValueError(f"line {number + 2} cannot be parsed: {line!r}") from error
    if fields is not None and not isinstance(fields, dict):
        raise ValueError(f"line 2 cannot be parsed: {fields_head.strip()[:60]!r}")
    if fields and "hooks" in fields:  # in a form that `parse_frontmatter_hooks` does not recognise
        raise ValueError("`hooks` cannot be parsed: it must be one block at the start of a line")
    return {str(key): value for key, value in (fields or {}).items()}


def parse_frontmatter_hooks(head: str) -> object | None:
    """Parse the `hooks` block in the frontmatter into JSON values, or return None if there is none.

    Only the block itself is parsed, because other fields in real files are often not valid YAML.

    Raises:
        SettingsError: the block cannot be parsed. Ignoring it would silently drop a safeguard.
    """
    import yaml

    _, block = _split_hooks_block(head)
    if block is None:
        return None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(block)):
            raise SettingsError("hooks: cannot be parsed: aliases are not allowed")  # they can expand exponentially
        hooks = _to_json(yaml.safe_load(block)["hooks"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError) as error:
        _, line = _locate_error(error, block.split("\n"))
        raise SettingsError(f"hooks: cannot be parsed: {line!r}") from error
    if isinstance(hooks, str):  # YAML reads stray words as a multi-line string
        raise SettingsError(f"hooks: cannot be parsed: {hooks[:60]!r}")
    return hooks


def _split_hooks_block(head: str) -> tuple[str, str | None]:
    """Return the frontmatter with blank lines in place of the `hooks` block, and the block itself if there is one."""
    lines = head.splitlines()
    start = next((number for number, line in enumerate(lines) if _HOOKS_KEY.match(line)), None)
    if start is None:
        return "\n".join(lines), None
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t#-"):
        end += 1
    rest = [*lines[:start], *[""] * (end - start), *lines[end:]]
    return "\n".join(rest), "\n".join(lines[start:end])


def _quote_field(match: re.Match[str]) -> str:
    """Quote a field's value on one line, and append blank lines to keep the number of lines."""
    value = re.split(r"\s#", match[2], maxsplit=1)[0]
    return f"{match[1]}: {json.dumps(' '.join(value.split()), ensure_ascii=False)}" + "\n" * match[2].count("\n")


def _locate_error(error: Exception, lines: Sequence[str]) -> tuple[int, str]:
    """Return the index and the beginning of the line that a parser rejected."""
    mark = getattr(error, "problem_mark", None)
    number = min(mark.line if mark is not None else 0, len(lines) - 1)
    return number, lines[number].strip()[:60]


def _to_json(value: object) -> object:
    match value:
        case dict():
            return {str(key): _to_json(item) for key, item in value.items()}
        case list():
            return [_to_json(item) for item in value]
        case str():
            return value.rstrip("\n")  # the newline that ends a `|` or `>` block is not part of a command
        case None | bool() | int() | float():
            return value
        case _:  # dates and other types that JSON lacks
            return str(value)
