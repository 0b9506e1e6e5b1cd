"""Find the copies of files that Claude Code keeps for its rewind command.

Before it changes a file, the client copies it to `file-history/<session>/<name>`. Some transcript lines record
which name belongs to which file. This module parses those lines and does not open the copies.
Start at `parse_backups`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

BACKUP_MARK = b'"file-history-'
"""Occurs in every line about backups, so that other lines can be skipped quickly."""


class Backup(Struct, frozen=True, kw_only=True):
    """The state of a file at one time."""

    path: str
    """The path as recorded: absolute, or relative to the client's working folder."""
    name: str | None
    """The name of the copy; None if the file did not exist."""
    at: str


class _BackupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    backup_file_name: str | None = None
    backup_time: str = ""


class _BackupSnapshot(Struct, frozen=True, kw_only=True, rename="camel"):
    tracked_file_backups: dict[str, _BackupEntry] = field(default_factory=dict)


class _BackupLine(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    snapshot: _BackupSnapshot | None = None
    tracking_path: str | None = None
    backup: _BackupEntry | None = None


_line_decoder = msgspec.json.Decoder(_BackupLine)


def parse_backups(line: bytes) -> Iterator[Backup]:
    """Yield the backups that a line records; none for other or malformed lines."""
    if BACKUP_MARK not in line:
        return
    try:
        record = _line_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if record.type == "file-history-snapshot" and record.snapshot:
        for path, entry in record.snapshot.tracked_file_backups.items():
            yield Backup(path=path, name=entry.backup_file_name, at=entry.backup_time)
    elif record.type == "file-history-delta" and record.tracking_path and record.backup:
        entry = record.backup
        yield Backup(path=record.tracking_path, name=entry.backup_file_name, at=entry.backup_time)
