"""Load and check one settings file; errors name the file and the key.

Start at `load_settings`. Unknown keys are ignored, because they belong to the client. A hook handler that cannot be
parsed is an error, because ignoring it would silently drop a safeguard. `scopes.py` finds the files and merges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct, field

from toolspan.errors import SourceError, ToolspanError

_T = TypeVar("_T")

OnFailure = Literal["continue", "block"]


class SettingsError(ToolspanError):
    """Raised if a settings file contains an invalid value; the message names the file and the key."""


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
    if_: str | None = field(default=None, name="if")
    """A permission rule; the handler runs only for calls that match it."""
    timeout: float | None = None
    """The timeout in seconds."""
    status_message: str | None = None
    once: bool = False
    on_failure: OnFailure = "continue"
    """With "block", a handler that fails or times out blocks the call it guards."""


class CommandSpec(_BaseSpec, frozen=True, kw_only=True, tag="command"):
    """A handler that is a command line, or a program with arguments."""

    command: str
    args: tuple[str, ...] | None = None
    """The arguments; if set, even if empty, the program runs without a shell."""
    async_: bool = field(default=False, name="async")
    async_rewake: bool = False
    shell: str | None = None


class HttpSpec(_BaseSpec, frozen=True, kw_only=True, tag="http"):
    """A handler that receives its input by HTTP POST."""

    url: str
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()


class McpSpec(_BaseSpec, frozen=True, kw_only=True, tag="mcp_tool"):
    """A handler that is a tool of a connected MCP server."""

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
    """Top-level settings with a single value; None if the file does not set them."""

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
    switches: Switches = Switches()


def load_settings(path: Path) -> Settings:
    """Load a settings file.

    Raises:
        SourceError: the file cannot be read or is not a JSON object.
        SettingsError: a key has an invalid value.
    """
    return parse_settings(load_json(path), str(path))


def load_json(path: Path) -> Mapping[str, object]:
    """Load the JSON object in a file; an empty file is an empty object.

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
    """Check decoded settings; `where` names the file in messages.

    Raises:
        SettingsError: a key has an invalid value.
    """
    env = {key: _env_text(value) for key, value in _convert(raw.get("env", {}), dict, where, "env").items()}
    switches = {item.encode_name: item for item in msgspec.structs.fields(Switches)}
    return Settings(
        permissions=_convert(raw.get("permissions", {}), PermissionSettings, where, "permissions"),
        hooks=parse_hooks(raw.get("hooks", {}), where),
        env=_convert(env, dict[str, str], where, "env"),
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
    """Return a warning for each unknown key under `permissions`, because a misspelled rule list has no effect."""
    block = raw.get("permissions")
    valid_keys = [item.encode_name for item in msgspec.structs.fields(PermissionSettings)]
    return [
        f"{where}: ignoring the unknown key `permissions.{key}`; valid keys are {', '.join(valid_keys)}"
        for key in (block if isinstance(block, Mapping) else {})
        if key not in valid_keys
    ]


def object_at(mapping: Mapping[str, object], key: str, where: object) -> dict[str, object]:
    """Return a copy of the object at a key, or an empty one if the key is missing.

    Raises:
        SettingsError: the value is not an object.
    """
    block = mapping.get(key, {})
    if not isinstance(block, Mapping):
        raise SettingsError(f"{where}: `{key}` must be an object, not {json_type_name(block)}")
    return dict(block)


def json_type_name(value: object) -> str:
    """Return the name of a JSON type with its article, for messages."""
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


def _env_text(value: object) -> object:
    """Convert numbers and booleans in `env` to text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
