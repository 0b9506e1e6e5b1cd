"""Which copies of files a client kept, as its transcript tells.

In: one line of a transcript. Out: the `Backup`s it speaks of. A client that can rewind keeps each
file it is about to change as `file-history/<session>/<name>`; the lines here say which name holds
which file, as it was when. Does not open the copies. Read `backups_in` first.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

MARK = b'"file-history-'
"""What every such line has in it, to pass over the others quickly."""


class Backup(Struct, frozen=True, kw_only=True):
    """A file as it was at one time."""

    path: str
    """As the client wrote it: absolute, or relative to its working folder."""
    name: str | None
    """The copy's name; None: there was no such file."""
    at: str


class _Kept(Struct, frozen=True, kw_only=True, rename="camel"):
    backup_file_name: str | None = None
    backup_time: str = ""


class _Snapshot(Struct, frozen=True, kw_only=True, rename="camel"):
    tracked_file_backups: dict[str, _Kept] = field(default_factory=dict)


class _Line(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    snapshot: _Snapshot | None = None
    tracking_path: str | None = None
    backup: _Kept | None = None


_decoder = msgspec.json.Decoder(_Line)


def backups_in(line: bytes) -> Iterator[Backup]:
    """The backups a line tells of; none for lines of other kinds, or of an odd shape."""
    if MARK not in line:
        return
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if found.type == "file-history-snapshot" and found.snapshot:
        for path, kept in found.snapshot.tracked_file_backups.items():
            yield Backup(path=path, name=kept.backup_file_name, at=kept.backup_time)
    elif found.type == "file-history-delta" and found.tracking_path and found.backup:
        kept = found.backup
        yield Backup(path=found.tracking_path, name=kept.backup_file_name, at=kept.backup_time)
