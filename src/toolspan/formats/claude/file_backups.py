"""Which copies of files a client kept, as its transcript tells.

In: one line of a transcript. Out: the `Backup`s it speaks of. A client that can rewind keeps each
file it is about to change as `file-history/<session>/<name>`; the lines here say which name holds
which file, as it was when. Does not open the copies. Read `backups_in` first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

BACKUP_MARK = b'"file-history-'
"""What every such line has in it, to pass over the others quickly."""


class Backup(Struct, frozen=True, kw_only=True):
    """A file as it was at one time."""

    path: str
    """As the client wrote it: absolute, or relative to its working folder."""
    name: str | None
    """The copy's name; None: there was no such file."""
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
    """The backups a line tells of; none for lines of other kinds, or of an odd shape."""
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
