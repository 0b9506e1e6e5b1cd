"""One settings file, checked: errors name the file and the key.

In: the path of a JSON file. Out: `Settings`. Keys it does not know are left alone: they belong to
the client. Where files are is known to `scopes.py`, what several say together to `merge.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.settings.handlers import Group, convert, kind_of, read_hooks


class Permissions(Struct, frozen=True, kw_only=True, rename="camel"):
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

    permissions: Permissions = Permissions()
    hooks: dict[str, tuple[Group, ...]] = {}
    env: dict[str, str] = {}
    switches: Switches = Switches()


def load(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        SourceError: it cannot be read, or is no JSON object.
        BadSetting: a key has a value of the wrong kind.
    """
    return read_settings(load_json(path), str(path))


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
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf").strip() or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path}: expected an object, not {kind_of(found)}")
    return found


def read_settings(found: Mapping[str, object], where: str) -> Settings:
    """Decoded settings; `where` is the file, for messages.

    Raises:
        BadSetting: a key has a value of the wrong kind.
    """
    env = {k: _as_text(v) for k, v in convert(found.get("env", {}), dict, where, "env").items()}
    return Settings(
        permissions=convert(found.get("permissions", {}), Permissions, where, "permissions"),
        hooks=read_hooks(found.get("hooks", {}), where),
        env=convert(env, dict[str, str], where, "env"),
        switches=_switches(found, where),
    )


def unknown_keys(found: Mapping[str, object], where: str) -> list[str]:
    """A line for each key under `permissions` that is none: a rule under it would not hold."""
    block = found.get("permissions")
    known = [field.encode_name for field in msgspec.structs.fields(Permissions)]
    given = block if isinstance(block, Mapping) else {}
    return [
        f"{where}: `permissions.{key}` is not known, and not used; there are {', '.join(known)}"
        for key in given
        if key not in known
    ]


def _switches(found: Mapping[str, object], where: str) -> Switches:
    fields = {field.encode_name: field for field in msgspec.structs.fields(Switches)}
    given = {
        fields[key].name: convert(value, fields[key].type, where, key)
        for key, value in found.items()
        if key in fields
    }
    return Switches(**given)


def _as_text(value: object) -> object:
    """Numbers and booleans in `env` are what a shell would make of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
