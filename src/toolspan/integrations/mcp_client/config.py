"""Parse server configurations such as `.mcp.json`.

`${VAR}` and `${VAR:-default}` are expanded. Errors name the file, the server and the key. This module opens no
connections.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from toolspan.errors import ToolspanError
from toolspan.types.tool_kinds import sanitize_name

HttpTransportKind = Literal["http", "sse"]
_TRANSPORTS: Mapping[object, HttpTransportKind] = {"http": "http", "streamable-http": "http", "sse": "sse"}
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_LAST_PORT = 65_535
_SHORTEST_TIMEOUT_MS = 1_000
"""The minimum `timeout` in milliseconds. Clients ignore shorter timeouts."""


class BadServers(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """Raised if a server configuration is invalid. The message names the file, the server and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that runs as a child process."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """The timeout for one call, in seconds."""
    sandbox: bool = False
    """True to run the server inside the session's sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthOptions:
    """The `oauth` settings of a remote server. The defaults discover everything and register a client."""

    client_id: str | None = None
    """The id of a client that is already registered."""
    client_secret: str | None = None
    scopes: str | None = None
    """The scopes to request, separated by spaces; None for those that the server names."""
    callback_port: int = 0
    """The port on which the browser returns after a login; 0 for any free port."""
    metadata_url: str | None = None
    """The address of the authorization server's metadata; None to discover it."""
    issuer: str | None = None
    """The authorization server for `client_credentials`, which gets the secret."""
    uses_client_credentials: bool = False
    """True for a login with the client's own id and secret, for which nobody is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """A server at a URL."""

    name: str
    url: str
    transport: HttpTransportKind = "http"
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth: OAuthOptions = field(default_factory=OAuthOptions)
    timeout: float | None = None
    """The timeout for one call, in seconds."""


ServerSpec = LocalServer | RemoteServer


def load_servers(path: Path, environment: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """Load the servers configured in a file. Raise BadServers if the file cannot be read or is invalid."""
    try:
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadServers(f"{path}: {error}") from error
    return read_servers(config, environment, source=str(path))


def read_servers(
    config: object, environment: Mapping[str, str], *, source: str = "mcpServers"
) -> tuple[ServerSpec, ...]:
    """Return the servers defined in `config`. Error messages refer to it as `source`.

    Raise BadServers if the configuration is invalid.
    """
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    if not isinstance(servers, Mapping):
        raise BadServers(f"{source}: expected an object whose key `mcpServers` is an object")
    return tuple(
        _parse_server(_ServerEntry(f"{source}: server {name!r}", entry, environment), str(name))
        for name, entry in servers.items()
    )


class _ServerEntry:
    def __init__(self, where: str, entry: object, environment: Mapping[str, str]) -> None:
        if not isinstance(entry, Mapping):
            raise BadServers(f"{where}: expected an object, not {_describe_type(entry)}")
        self._where = where
        self.raw = entry
        self._environment = environment

    def make_error(self, key: str, what: str) -> BadServers:
        return BadServers(f"{self._where}: `{key}` {what}")

    def read_text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str) or not value:
            raise self.make_error(key, f"must be a non-empty string, not {_describe_type(value)}")
        return self._expand_variables(key, value)

    def read_texts(self, key: str) -> tuple[str, ...]:
        value = self.raw.get(key, [])
        if not isinstance(value, list | tuple):
            raise self.make_error(key, f"must be a list of strings, not {_describe_type(value)}")
        return tuple(self._expand_variables(f"{key}[{position}]", text) for position, text in enumerate(value))

    def read_text_mapping(self, key: str) -> dict[str, str]:
        value = self.raw.get(key, {})
        if not isinstance(value, Mapping):
            raise self.make_error(key, f"must be an object of strings, not {_describe_type(value)}")
        return {str(name): self._expand_variables(f"{key}.{name}", text) for name, text in value.items()}

    def read_flag(self, key: str) -> bool:
        value = self.raw.get(key, False)
        if not isinstance(value, bool):
            raise self.make_error(key, f"must be true or false, not {_describe_type(value)}")
        return value

    def read_timeout(self) -> float | None:
        for key in ("timeout", "request_timeout_ms"):
            value = self.raw.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.make_error(key, f"must be a number of milliseconds, not {_describe_type(value)}")
            if value >= _SHORTEST_TIMEOUT_MS:
                return value / 1e3
        return None

    def read_oauth(self) -> OAuthOptions:
        options = self.raw.get("oauth")
        if options is None:
            return OAuthOptions()
        entry = _ServerEntry(f"{self._where}: `oauth`", options, self._environment)

        def read_optional(key: str) -> str | None:
            return entry.read_text(key) if entry.raw.get(key) is not None else None

        port = entry.raw.get("callbackPort", 0)
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _LAST_PORT:
            raise entry.make_error("callbackPort", f"must be a port number, not {port!r}")
        grant = entry.raw.get("grantType", "authorization_code")
        if grant not in ("authorization_code", "client_credentials"):
            raise entry.make_error("grantType", f"must be authorization_code or client_credentials, not {grant!r}")
        result = OAuthOptions(
            client_id=read_optional("clientId"),
            client_secret=read_optional("clientSecret"),
            scopes=read_optional("scopes"),
            callback_port=port,
            metadata_url=read_optional("authServerMetadataUrl"),
            issuer=read_optional("issuer"),
            uses_client_credentials=grant == "client_credentials",
        )
        for key, url in (("authServerMetadataUrl", result.metadata_url), ("issuer", result.issuer)):
            if url is not None and not is_safe_url(url):
                raise entry.make_error(key, f"must begin with https://, not {url[:40]!r}")
        if result.uses_client_credentials and not (result.client_id and result.client_secret and result.issuer):
            raise entry.make_error("grantType", "client_credentials needs `clientId`, `clientSecret` and `issuer`")
        return result

    def _expand_variables(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.make_error(key, f"must be a string, not {_describe_type(value)}")

        def expand(match: re.Match[str]) -> str:
            text: str | None = self._environment.get(match["name"], match["default"])
            if text is None:
                raise self.make_error(key, f"needs the environment variable {match['name']}, which is not set")
            return text

        return _VARIABLE.sub(expand, value)


def _parse_server(entry: _ServerEntry, name: str) -> ServerSpec:
    if not name:
        raise entry.make_error("name", "must not be empty")
    kind = entry.raw.get("type")
    if kind is None and "command" not in entry.raw and "url" not in entry.raw:
        raise entry.make_error("command", "is missing; a local server needs `command`, a remote one `url`")
    if kind is None:
        kind = "stdio" if "command" in entry.raw else "http"
    if kind == "stdio":
        return LocalServer(
            name=name,
            command=entry.read_text("command"),
            args=entry.read_texts("args"),
            env=entry.read_text_mapping("env"),
            timeout=entry.read_timeout(),
            sandbox=entry.read_flag("sandbox"),
        )
    transport = _TRANSPORTS.get(kind) if isinstance(kind, str) else None
    if transport is None:
        raise entry.make_error("type", f"must be stdio, http or sse, not {kind!r}")
    url = entry.read_text("url")
    if not url.startswith(("http://", "https://")):
        raise entry.make_error("url", f"must begin with http:// or https://, not {url[:40]!r}")
    return RemoteServer(
        name=name,
        url=url,
        transport=transport,
        headers=entry.read_text_mapping("headers"),
        oauth=entry.read_oauth(),
        timeout=entry.read_timeout(),
    )


def is_loopback_url(url: str) -> bool:
    """Return whether an address is on this machine."""
    try:
        return urlsplit(url).hostname in _LOOPBACK_HOSTS
    except ValueError:
        return False


def is_safe_url(url: str) -> bool:
    """Return whether secrets may be sent to an address: over https, or to a server on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_url(url)))


def _describe_type(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case str():
            return "a text" if value else "an empty one"
        case int() | float():
            return "a number"
        case Mapping():
            return "an object"
        case _:
            return "a list"


MAX_NAME_CHARS = 64
_HASH_CHARS = 8


def mcp_tool_name(server: str, tool: str) -> str:
    """Return the name under which the model sees a server's tool. Long names are truncated and end with a hash."""
    name = f"mcp__{sanitize_name(server)}__{sanitize_name(tool)}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    tag = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{tag}"
