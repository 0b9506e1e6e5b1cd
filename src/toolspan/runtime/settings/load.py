"""One settings file, checked: errors name the file and the key.

In: the path of a JSON file. Out: `Settings`. Keys it does not know are left alone: they belong to
the client. Where files are is known to `scopes.py`, what several say together to `merge.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.runtime.settings.hooks_block import HandlerGroup, convert_value, json_type_name, parse_hooks


class PermissionSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `permissions` block."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    disable_bypass_permissions_mode: str | None = None
    disable_auto_mode: str | None = None


class Switches(Struct, frozen=True, kw_only=True, rename="camel"):
    """Single values; None where a file does not say."""

    disable_all_hooks: bool | None = None
    allow_managed_hooks_only: bool | None = None
    allow_managed_permission_rules_only: bool | None = None
    allowed_http_hook_urls: tuple[str, ...] | None = None
    http_hook_allowed_env_vars: tuple[str, ...] | None = None
    enable_all_project_mcp_servers: bool | None = None
    enabled_mcpjson_servers: tuple[str, ...] | None = None
    disabled_mcpjson_servers: tuple[str, ...] | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """What a settings file asks for."""

    permissions: PermissionSettings = PermissionSettings()
    hooks: dict[str, tuple[HandlerGroup, ...]] = {}
    env: dict[str, str] = {}
    switches: Switches = Switches()


def load_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        SourceError: it cannot be read, or is no JSON object.
        BadSetting: a key has a value of the wrong kind.
    """
    return parse_settings(load_json(path), str(path))


def load_json(path: Path) -> Mapping[str, object]:
    """The JSON object of a file; an empty file is an empty object.

    Raises:
        SourceError: it cannot be read, or is none.
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
    """Decoded settings; `where` is the file, for messages.

    Raises:
        BadSetting: a key has a value of the wrong kind.
    """
    env = {k: _env_value_text(v) for k, v in convert_value(raw.get("env", {}), dict, where, "env").items()}
    return Settings(
        permissions=convert_value(raw.get("permissions", {}), PermissionSettings, where, "permissions"),
        hooks=parse_hooks(raw.get("hooks", {}), where),
        env=convert_value(env, dict[str, str], where, "env"),
        switches=_parse_switches(raw, where),
    )


def unknown_keys(raw: Mapping[str, object], where: str) -> list[str]:
    """A line for each key under `permissions` that is none: a rule under it would not hold."""
    block = raw.get("permissions")
    valid_keys = [field.encode_name for field in msgspec.structs.fields(PermissionSettings)]
    permissions = block if isinstance(block, Mapping) else {}
    return [
        f"{where}: `permissions.{key}` is not known, and not used; there are {', '.join(valid_keys)}"
        for key in permissions
        if key not in valid_keys
    ]


def _parse_switches(raw: Mapping[str, object], where: str) -> Switches:
    fields = {field.encode_name: field for field in msgspec.structs.fields(Switches)}
    values = {
        fields[key].name: convert_value(value, fields[key].type, where, key)
        for key, value in raw.items()
        if key in fields
    }
    return Switches(**values)


def _env_value_text(value: object) -> object:
    """Numbers and booleans in `env` are what a shell would make of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
