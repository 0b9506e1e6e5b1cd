"""Planned changes to files of a client: shown as a diff first, and undone byte for byte.

The original file is backed up outside the client's folder. Start at `SettingsChange`.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.runtime.settings.load import exclusive_access, json_type_name, replace_bytes, replace_json
from toolspan.runtime.settings.trust import default_trust_path

JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A planned change to a settings file."""

    path: Path
    """The file, with symbolic links resolved."""
    before: bytes | None
    """The current content, or None if the file does not exist."""
    after: bytes | None
    original: bytes | None = None
    is_exact: bool = True
    """True if uninstalling restores the original bytes. False if the file has changed since the installation."""

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff_lines(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        old, new = ((data or b"").decode(errors="replace").splitlines() for data in (self.before, self.after))
        yield from difflib.unified_diff(old, new, str(self.path), str(self.path), lineterm="")

    def apply(self, *, installs: bool) -> None:
        """Apply the change to the file.

        Raises:
            SourceError: the file cannot be written, or it changed since the plan was made.
        """
        with exclusive_access(self.path):
            if read_file(self.path) != self.before:
                raise SourceError(f"{self.path}: the file changed in the meantime and was left unchanged; try again")
            backup_path = _backup_path(self.path)
            if installs:
                backup_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                original = None if self.original is None else base64.b64encode(self.original).decode()
                digest = hashlib.sha256(self.after or b"").hexdigest()
                record = {"path": str(self.path), "kept": original, "exact": self.is_exact, "digest": digest}
                replace_json(backup_path, record)
            if self.after is None:
                self.path.unlink()
            else:
                replace_bytes(self.path, self.after)
            if not installs:
                backup_path.unlink(missing_ok=True)


Edit = Callable[[bytes | None], bytes | None]
"""A function that returns the new content of a file; None stands for a file that does not exist."""


def plan_edit(path: Path, add: Edit, remove: Edit) -> SettingsChange:
    """Plan an edit that adds something, and that `remove` undoes. The plan is empty if it is already there."""
    target = Path(os.path.realpath(path))
    before = read_file(target)
    after = add(before)
    if after == before:
        return SettingsChange(target, before, before)
    backup = read_backup(target, before)
    if backup is not None:
        return SettingsChange(target, before, after, backup[0])
    is_exact = remove(before) == before  # else, it is there, and the original is unknown
    return SettingsChange(target, before, after, before if is_exact else None, is_exact)


def plan_removal(path: Path, remove: Edit) -> SettingsChange:
    """Plan the removal of what an edit added, restoring the original file if it has not changed since."""
    target = Path(os.path.realpath(path))
    before = read_file(target)
    backup = read_backup(target, before)
    if backup is not None:
        return SettingsChange(target, before, backup[0])
    after = remove(before)
    return SettingsChange(target, before, after, is_exact=after == before)


def program_command() -> list[str]:
    """Return the command that starts this program from any folder."""
    program = Path(sys.argv[0])
    if program.name.startswith("toolspan") and program.is_file():
        return [str(program.absolute())]
    return [sys.executable, "-m", "toolspan"]


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if it does not exist.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def parse_settings(path: Path, data: bytes | None) -> JsonObject:
    """Parse a settings file, rejecting content that would be lost if it were rewritten."""
    if data is None or not data.strip():
        return {}

    def reject_duplicate_keys(pairs: Sequence[tuple[str, object]]) -> JsonObject:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise ValueError("a key occurs twice")
        return mapping

    try:
        settings = json.loads(data.decode(), object_pairs_hook=reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the file is not JSON and was left unchanged: {error}") from error
    if not isinstance(settings, dict):
        raise SourceError(f"{path}: expected an object, not {json_type_name(settings)}")
    return settings


def encode_settings(value: JsonObject, template: bytes | None) -> bytes:
    """Encode settings with the indentation of the file that they replace."""
    old = (template or b"").decode(errors="replace")
    first = re.search(r"\n([ \t]+)\S", old)
    lines = old.splitlines()
    indent: str | int | None = first[1] if first else None if len(lines) == 1 else 2
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    ending = "" if old and not old.endswith("\n") else "\n"
    return (text + ending).encode(errors="surrogatepass")


def _backup_path(path: Path) -> Path:
    """Return the path of the backup, which is outside all projects and the client's folder."""
    name = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:24]
    return default_trust_path().with_name("hooks") / f"{name}.json"


def read_backup(path: Path, data: bytes | None) -> tuple[bytes | None] | None:
    """Return the original content if toolspan was the last to change the file, or None if it is unknown."""
    backup = read_file(_backup_path(path))
    if backup is None or data is None:
        return None
    try:
        record = json.loads(backup)
        original = record["kept"]
        if record["digest"] != hashlib.sha256(data).hexdigest() or record["exact"] is not True:
            return None
        return (None if original is None else base64.b64decode(original),)
    except (ValueError, KeyError, TypeError):
        return None
