"""Give a file the content it had before. `plan_restore` decides what to do, `carry_out` does it.

Line ends, encoding and byte order mark stay those of the file on disk, because transcripts only
contain plain text. The old content is kept as a backup unless the caller declines it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.archive import diff_between, known_text
from toolspan.analysis.file_history.content import ABSENT, Absent, FileContent, RecoveredContent
from toolspan.analysis.file_history.shell_writes import printable_path
from toolspan.errors import ToolError, ToolspanError
from toolspan.tools.files.atomic_replace import atomic_replace, safe_delete
from toolspan.tools.files.safe_read import FileVersion, LoadedFile, read_file, stat_path
from toolspan.tools.files.text import Codec, decode_text, encode_text, match_newlines

RestoreAction = Literal["write", "create", "delete", "nothing"]

BACKUP_SUFFIX = ".before-restore"
"""Suffix of backups; a number follows if the name is taken."""


class CannotRestore(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """The content is not known well enough, or the target is unsuitable."""


class RestorePlan(Struct, frozen=True, kw_only=True):
    """The effect of a restore on one file."""

    path: Path
    action: RestoreAction
    data: bytes | None
    """The new content; None to delete the file."""
    diff: str
    stamp: FileVersion | None
    """The version on disk that was compared; None if there was no file."""
    mode: int
    old: bytes


def check_confidence(recovered: RecoveredContent, *, force: bool, elsewhere: bool) -> None:
    """Refuse a content with too little confidence.

    Raises:
        CannotRestore: the message says what the user can do about it.
    """
    reasons = "; ".join(recovered.reasons)
    if recovered.confidence == "unknown":
        raise CannotRestore(f"the content at that time is not known: {reasons}")
    if recovered.confidence == "partial" and not (force and elsewhere):
        raise CannotRestore(f"only parts of the content are known ({reasons}); --force with --output writes them")
    if recovered.confidence == "doubtful" and not force:
        raise CannotRestore(f"the content is doubtful ({reasons}); use --force to restore it anyway")


def plan_restore(path: Path, recovered: RecoveredContent) -> RestorePlan:
    """Compare the recovered content with the file on disk.

    Raises:
        CannotRestore: the folder does not exist, or the content cannot be encoded.
        ToolError: the file cannot be read.
    """
    status = stat_path(path)
    if status is None and not path.parent.is_dir():
        folder = printable_path(str(path.parent))
        raise CannotRestore(f"{folder}: no such folder; create it, or choose another place with --output")
    current = read_file(path) if status is not None else None
    content: FileContent = ABSENT if isinstance(recovered.content, Absent) else known_text(recovered)
    data = _encode_content(content, current)
    return RestorePlan(
        path=path,
        action=_choose_action(current, data),
        data=data,
        diff=diff_between(_current_content(current), content if data is None else _decode_text(data), str(path)),
        stamp=current.version if current else None,
        mode=status.st_mode if status else 0o644,
        old=current.data if current else b"",
    )


def carry_out(plan: RestorePlan, *, backup: bool) -> Path | None:
    """Write or delete the file and return the path of the backup.

    Raises:
        ToolError: it failed; the file is unchanged.
    """
    if plan.action == "nothing":
        return None
    backup_path = _free_backup_path(plan.path) if backup and plan.stamp is not None else None
    if plan.data is not None:
        _write_with_backup(plan, plan.data, backup_path)
    elif plan.stamp is not None:
        safe_delete(plan.path, plan.stamp, backup_path.name if backup_path else None)
    return backup_path


def _write_with_backup(plan: RestorePlan, data: bytes, backup_path: Path | None) -> None:
    """Write the backup first, so that the old content exists at any time."""
    if backup_path is None:
        atomic_replace(plan.path, data, plan.stamp)
        return
    atomic_replace(backup_path, plan.old, None)
    try:
        with suppress(OSError):
            backup_path.chmod(plan.mode & 0o777)
        atomic_replace(plan.path, data, plan.stamp)
    except ToolError:
        with suppress(OSError):
            backup_path.unlink()
        raise


def _choose_action(current: LoadedFile | None, data: bytes | None) -> RestoreAction:
    if current is None:
        return "nothing" if data is None else "create"
    if data is None:
        return "delete"
    return "nothing" if current.data == data else "write"


def _encode_content(content: FileContent, current: LoadedFile | None) -> bytes | None:
    if isinstance(content, Absent):
        return None
    try:
        if current is None:
            return encode_text(content, Codec("utf-8"))
        old = decode_text(current.data)
        return encode_text(match_newlines(old, content), old.codec)
    except UnicodeEncodeError as error:
        raise CannotRestore(f"the content has half a surrogate pair at {error.start} and cannot be encoded") from error


def _current_content(current: LoadedFile | None) -> FileContent:
    return ABSENT if current is None else _decode_text(current.data)


def _decode_text(data: bytes) -> str:
    return decode_text(data).printable


def _free_backup_path(path: Path) -> Path:
    target = Path(os.path.realpath(path))
    name = target.with_name(target.name + BACKUP_SUFFIX)
    number = 1
    while os.path.lexists(name):
        number += 1
        name = target.with_name(f"{target.name}{BACKUP_SUFFIX}-{number}")
    return name
