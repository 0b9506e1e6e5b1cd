"""Recognise that a session is resumed in a folder with other files than it last saw.

A store has the session but not the files of its project. Start at `WorkspaceDigest.compute`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from toolspan.formats.evidence import RecordedWorkspace
from toolspan.formats.processes import host_name

MAX_FILES = 20_000
MAX_BYTES = 256 << 20
_LEFT_OUT = frozenset({".git"})
"""Folders whose content differs between clones of the same files."""
_CHUNK_BYTES = 1 << 20


class _TooLargeError(Exception):
    """The folder has more files or bytes than are read."""


class WorkspaceDigest:
    """The digest of a folder. A file that has not changed is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, int, bytes]] = {}
        self._bytes = 0
        self._is_too_large = False

    def compute(self) -> str | None:
        """Return the digest of the names, modes and contents of all files; None for a large folder."""
        if self._is_too_large:
            return None
        total = hashlib.blake2b(digest_size=16)
        known: dict[str, tuple[int, int, bytes]] = {}
        self._bytes = 0
        try:
            self._add_folder(str(self._folder), "", known, total)
        except _TooLargeError:
            self._is_too_large = True
            return None
        self._known = known
        return total.hexdigest()

    def _add_folder(
        self, path: str, name: str, known: dict[str, tuple[int, int, bytes]], total: hashlib.blake2b
    ) -> None:
        try:
            with os.scandir(path) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return
        for entry in listed:
            entry_name = f"{name}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT:
                    self._add_folder(entry.path, f"{entry_name}/", known, total)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(entry.path).encode(errors="surrogateescape")  # noqa: PTH115 - perf
                elif stat.S_ISREG(status.st_mode):
                    content = self._digest_file(entry.path, status)
                else:
                    continue
            except OSError:
                content = b"unreadable"
                status = os.stat_result((0,) * 10)
            known[entry.path] = (status.st_size, status.st_mtime_ns, content)
            self._bytes += status.st_size
            if len(known) > MAX_FILES or self._bytes > MAX_BYTES:
                raise _TooLargeError
            is_program = bool(status.st_mode & stat.S_IXUSR)
            header = f"{len(entry_name)} {entry_name} {int(is_program)} {len(content)} "
            total.update(header.encode(errors="surrogateescape") + content)

    def _digest_file(self, path: str, status: os.stat_result) -> bytes:
        known = self._known.get(path)
        if known is not None and known[:2] == (status.st_size, status.st_mtime_ns):
            return known[2]
        if status.st_size > MAX_BYTES:
            raise _TooLargeError
        digest = hashlib.blake2b(digest_size=16)
        with open(path, "rb") as file:  # noqa: PTH123 - perf
            while data := file.read(_CHUNK_BYTES):
                digest.update(data)
        return digest.digest()


def describe_difference(recorded: RecordedWorkspace | None, digest: str | None) -> str | None:
    """Return a message for the model if the folder differs from the one that another host last recorded."""
    if recorded is None or digest is None or recorded.digest == digest or recorded.host == host_name():
        return None
    at = datetime.fromtimestamp(recorded.at, UTC).isoformat(timespec="seconds")
    return (
        "<system-reminder>\nThis session was resumed on another host. The files in the project folder differ from"
        f" those that it last saw on {recorded.host} at {at}. Read files again before you rely on them."
        "\n</system-reminder>"
    )
