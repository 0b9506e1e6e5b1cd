"""One settings file, checked: errors name the file and the key.

In: the path of a JSON file. Out: `Settings`. Knows the permission block; what it does not know is
kept by name, so that the caller can say what is not honoured.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError


class Permissions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The `permissions` block."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    """What a settings file asks for."""

    permissions: Permissions = Permissions()
    hooks: dict[str, object] = {}
    env: dict[str, str] = {}


def load(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        SourceError: it cannot be read, is no JSON, or a key has a value of the wrong kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(data or b"{}", type=Settings)
    except msgspec.MsgspecError as error:
        raise SourceError(f"{path}: {error}") from error
