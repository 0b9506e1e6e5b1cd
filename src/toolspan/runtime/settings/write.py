"""What a person wants kept: added to a settings file, and nothing else in it is changed.

In: a file, rules and folders. Out: the file, swapped whole, or an error that names it and leaves
it as it was. Writers take turns, so that none loses what another one adds. Read `grant` first.
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
from toolspan.runtime.settings.hooks_block import SettingsError, json_type_name, object_at
from toolspan.runtime.settings.load import load_json

_DEFAULT_FILE_MODE = 0o600


def add_permissions(
    path: Path, *, allow: Sequence[str] = (), folders: Sequence[str] = (), within: Path | None = None
) -> bool:
    """Add rules that allow, and folders to work in; False when all of it is there already.

    The file is made if it is not there. With `within`, no link may lead it out of that folder.

    Raises:
        SourceError: the file cannot be read or written, is no JSON object, or lies elsewhere.
        BadSetting: what is to be added to is not a list.
    """
    target = Path(os.path.realpath(path))
    if within is not None and not target.is_relative_to(os.path.realpath(within)):
        raise SourceError(f"{path}: leads to {target}, outside of the project")
    with exclusive_access(target):
        settings = dict(load_json(target)) if target.exists() else {}
        block = object_at(settings, "permissions", path)
        updated = {**block, **_added_entries(block, "allow", allow, path)}
        updated |= _added_entries(block, "additionalDirectories", folders, path)
        if updated == block:
            return False
        replace_json(target, {**settings, "permissions": updated})
    return True


def _added_entries(block: Mapping[str, object], key: str, texts: Sequence[str], path: Path) -> dict[str, object]:
    before = block.get(key, [])
    if not isinstance(before, list):
        raise SettingsError(f"{path}: `permissions.{key}` is a list, not {json_type_name(before)}")
    new = [text for text in dict.fromkeys(texts) if text not in before]
    return {key: [*before, *new]} if new else {}


@contextmanager
def exclusive_access(path: Path) -> Iterator[None]:
    """Nobody else who asks for a turn writes in this folder meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # some file systems know no locks; then who is last wins
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace_json(path: Path, value: Mapping[str, object]) -> None:
    """Put a JSON object in the place of a file, whole; its mode stays.

    Raises:
        SourceError: it cannot be written; then the file is as it was.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    replace_bytes(path, text.encode(errors="surrogatepass"))


def replace_bytes(path: Path, data: bytes) -> None:
    """Put bytes in the place of a file, whole; its mode stays.

    Raises:
        SourceError: it cannot be written; then the file is as it was.
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
