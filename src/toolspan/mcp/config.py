"""Which servers there are: from a mapping such as `.mcp.json` holds to one value per server.

In: `{"mcpServers": {name: {...}}}` and the environment for `${VAR}` and `${VAR:-default}`. Out: a
`Local` or a `Remote` for each name. What is wrong is told at once, with file, server and key;
nothing is connected here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.errors import ToolspanError

Wire = Literal["http", "sse"]
_WIRES: Mapping[object, Wire] = {"http": "http", "streamable-http": "http", "sse": "sse"}
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")
_SHORTEST_TIMEOUT_MS = 1_000
"""Clients ignore a `timeout` below it."""


class BadServers(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """A configuration of servers cannot be used; the message names file, server and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A server that is started as a process and spoken to through its pipes."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds for one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server that listens at an address."""

    name: str
    url: str
    wire: Wire = "http"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """Seconds for one call."""


ServerSpec = Local | Remote


def load_servers(path: Path, environment: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """The servers of a file.

    Raises:
        BadServers: it cannot be read, or is no such configuration.
    """
    try:
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadServers(f"{path}: {error}") from error
    return read_servers(config, environment, source=str(path))


def read_servers(
    config: object, environment: Mapping[str, str], *, source: str = "mcpServers"
) -> tuple[ServerSpec, ...]:
    """The servers of a configuration; `source` is what messages call it.

    Raises:
        BadServers: it is none.
    """
    servers = config.get("mcpServers") if isinstance(config, Mapping) else None
    if not isinstance(servers, Mapping):
        raise BadServers(f"{source}: expected an object with the key `mcpServers`, an object")
    return tuple(
        _server(_Entry(f"{source}: server {name!r}", entry, environment), str(name))
        for name, entry in servers.items()
    )


class _Entry:
    """One server's part of a configuration, read key by key."""

    def __init__(self, where: str, entry: object, environment: Mapping[str, str]) -> None:
        if not isinstance(entry, Mapping):
            raise BadServers(f"{where}: expected an object, not {_kind(entry)}")
        self._where = where
        self._entry = entry
        self._environment = environment

    def __contains__(self, key: str) -> bool:
        return key in self._entry

    def raw(self, key: str) -> object:
        return self._entry.get(key)

    def fault(self, key: str, what: str) -> BadServers:
        return BadServers(f"{self._where}: `{key}` {what}")

    def text(self, key: str) -> str:
        value = self._entry.get(key)
        if not isinstance(value, str) or not value:
            raise self.fault(key, f"is a text that is not empty, not {_kind(value)}")
        return self._expand(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._entry.get(key, [])
        if not isinstance(value, list | tuple):
            raise self.fault(key, f"is a list of texts, not {_kind(value)}")
        return tuple(self._expand(f"{key}[{position}]", one) for position, one in enumerate(value))

    def named_texts(self, key: str) -> dict[str, str]:
        value = self._entry.get(key, {})
        if not isinstance(value, Mapping):
            raise self.fault(key, f"is an object of texts, not {_kind(value)}")
        return {str(name): self._expand(f"{key}.{name}", one) for name, one in value.items()}

    def seconds(self) -> float | None:
        for key in ("timeout", "request_timeout_ms"):
            value = self._entry.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.fault(key, f"is a number of milliseconds, not {_kind(value)}")
            if value >= _SHORTEST_TIMEOUT_MS:
                return value / 1e3
        return None

    def _expand(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.fault(key, f"is a text, not {_kind(value)}")
        return "".join(self._parts(key, value))

    def _parts(self, key: str, text: str) -> Iterator[str]:
        end = 0
        for found in _VARIABLE.finditer(text):
            yield text[end : found.start()]
            yield self._variable(key, found)
            end = found.end()
        yield text[end:]

    def _variable(self, key: str, found: re.Match[str]) -> str:
        value = self._environment.get(found["name"])
        if value is None:
            value = found["default"]
        if value is None:
            raise self.fault(key, f"needs the environment variable {found['name']}, which is unset")
        return value


def _server(entry: _Entry, name: str) -> ServerSpec:
    if not name:
        raise entry.fault("name", "is empty")
    kind = entry.raw("type")
    if kind is None and "command" not in entry and "url" not in entry:
        raise entry.fault("command", "is needed for a server to start, or `url` for one to call")
    if kind is None:
        kind = "stdio" if "command" in entry else "http"
    if kind == "stdio":
        return Local(
            name=name,
            command=entry.text("command"),
            args=entry.texts("args"),
            env=entry.named_texts("env"),
            timeout=entry.seconds(),
        )
    wire = _WIRES.get(kind) if isinstance(kind, str) else None
    if wire is None:
        raise entry.fault("type", f"is stdio, http or sse, not {kind!r}")
    return Remote(
        name=name,
        url=_address(entry),
        wire=wire,
        headers=entry.named_texts("headers"),
        timeout=entry.seconds(),
    )


def _address(entry: _Entry) -> str:
    url = entry.text("url")
    if not url.startswith(("http://", "https://")):
        raise entry.fault("url", f"begins with http:// or https://, not {url[:40]!r}")
    return url


def _kind(value: object) -> str:
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
