"""Add permissions to a settings file without changing anything else in it.

Files are replaced atomically, and a lock on the folder keeps concurrent writers from losing each
other's changes.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.runtime.settings.load import SettingsError, json_type_name, load_json, object_at

_DEFAULT_FILE_MODE = 0o600


def add_permissions(
    path: Path, *, allow: Sequence[str] = (), folders: Sequence[str] = (), within: Path | None = None
) -> bool:
    """Add allow rules and working folders; return False if all of them are already present.

    A missing file is created. With `within`, a symbolic link must not lead out of that folder.

    Raises:
        SourceError: the file cannot be read or written, is not a JSON object, or is outside `within`.
        SettingsError: the list to extend is not a list.
    """
    target = Path(os.path.realpath(path))
    if within is not None and not target.is_relative_to(os.path.realpath(within)):
        raise SourceError(f"{path}: this link leads to {target}, outside the project")
    with exclusive_access(target):
        settings = dict(load_json(target)) if target.exists() else {}
        block = object_at(settings, "permissions", path)
        updated = {**block, **_added_entries(block, "allow", allow, path)}
        updated |= _added_entries(block, "additionalDirectories", folders, path)
        if updated == block:
            return False
        replace_json(target, {**settings, "permissions": updated})
    return True


def _added_entries(block: Mapping[str, object], key: str, entries: Sequence[str], path: Path) -> dict[str, object]:
    before = block.get(key, [])
    if not isinstance(before, list):
        raise SettingsError(f"{path}: `permissions.{key}` must be a list, not {json_type_name(before)}")
    new = [entry for entry in dict.fromkeys(entries) if entry not in before]
    return {key: [*before, *new]} if new else {}


@contextmanager
def exclusive_access(path: Path) -> Iterator[None]:
    """Hold a lock on the folder of a file, creating the folder if it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
            os.fchmod(file.fileno(), _file_mode(path))
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise SourceError(f"{path}: {error.strerror or error}") from error


def _file_mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return _DEFAULT_FILE_MODE
