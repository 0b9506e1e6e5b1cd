"""The file with the logins at MCP servers, and the settings of a login. This module does not import the SDK.

A login belongs to the address of a server and to its `oauth` settings, not to its name: a configuration that uses the
same name for another address, or names another authorization server, does not get the tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from toolspan.errors import SourceError
from toolspan.integrations.mcp_client.config import RemoteServer
from toolspan.runtime.settings import default_trust_path
from toolspan.runtime.settings.load import JsonStore


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens for a server, with what a later process needs to renew them."""

    url: str
    """The address of the server."""
    tokens: dict[str, object]
    client: dict[str, object]
    """The client as registered at the authorization server."""
    expires_at: float | None = None
    """When the access token expires, in seconds since the epoch."""
    metadata: dict[str, object] | None = None
    """The metadata of the authorization server."""
    resource: dict[str, object] | None = None
    """The metadata of the server as a protected resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPrompt:
    """The way to let the user log in."""

    show_url: Callable[[str], None]
    """Called with the address that the user must open in a browser."""
    read_redirect: Callable[[], Awaitable[str | None]] | None = None
    """Reads the address to which the browser was sent, if it runs on another machine."""
    scopes: str | None = None
    """The scopes to request; None for those of the configuration."""
    timeout: float = 300.0
    """The number of seconds to wait for the user."""


def default_login_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file with logins, which is outside all projects."""
    return default_trust_path(environment).with_name("mcp-logins.json")


def login_key(spec: RemoteServer) -> str:
    """Return the key of a server's login."""
    options = spec.oauth
    parts = (spec.url, options.client_id, options.metadata_url)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class LoginStore:
    """A file with logins that only the user can read. Several processes may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = JsonStore(path, "logins")

    def stamp(self) -> tuple[int, int, int] | None:
        """Return a value that changes with the file; None if there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def read(self, key: str) -> Login | None:
        """Return a login, or None if there is none.

        Raises:
            SourceError: the file cannot be read.
        """
        entry = self._store.read().get(key)
        try:
            return None if entry is None else msgspec.convert(entry, Login)
        except msgspec.ValidationError as error:
            raise SourceError(f"{self.path}: {error}") from error

    def write(self, key: str, login: Login) -> None:
        """Add or replace a login.

        Raises:
            SourceError: the file cannot be read or written; it is unchanged.
        """
        with self._store.change() as logins:
            logins[key] = msgspec.to_builtins(login)

    def remove(self, key: str) -> None:
        """Remove a login, if there is one.

        Raises:
            SourceError: the file cannot be read or written; it is unchanged.
        """
        with self._store.change() as logins:
            logins.pop(key, None)
