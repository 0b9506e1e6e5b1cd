"""Restore a file as it was before or after a call: `toolspan restore` and the page of a file.

Start at `prepare_restore`, then `carry_out`. The content comes from the recorded history, and the file is written as
the tools write files: never through a link out of the current folder, and never over a change that was not seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolspan.analysis.file_history.archive import diff_between, known_text
from toolspan.analysis.file_history.content import ABSENT, Absent, FileContent, RecoveredContent
from toolspan.analysis.file_history.shell_writes import absolute_path, is_within, printable_path
from toolspan.archive.archive import Archive
from toolspan.archive.files import ContentPoint, find_archive, resolve_point, select_files
from toolspan.archive.filters import Filter
from toolspan.archive.sources import current_folder, is_folder
from toolspan.errors import ToolError, ToolspanError
from toolspan.tools.files.atomic_replace import atomic_replace, safe_delete
from toolspan.tools.files.paths import resolve_path
from toolspan.tools.files.safe_read import FileVersion, LoadedFile, read_file, stat_path
from toolspan.tools.files.text import Codec, decode_text, encode_text, match_newlines

RestoreAction = Literal["write", "create", "delete", "nothing"]


BACKUP_SUFFIX = ".before-restore"
"""Suffix for backups. A number is added if the name is taken."""


class CannotRestore(ToolspanError):  # noqa: N818 - reads as a noun where it is caught
    """Raised if the content is too uncertain or the target is unsuitable."""


class RestorePlan(Struct, frozen=True, kw_only=True):
    """The planned effect of a restore on one file."""

    path: Path
    target: Path
    """The path with links resolved. Links that appear later are not followed."""
    action: RestoreAction
    data: bytes | None
    diff: str
    stamp: FileVersion | None
    mode: int
    old: bytes


def check_confidence(recovered: RecoveredContent, *, force: bool, elsewhere: bool) -> None:
    """Check that the confidence in the content is high enough to restore it."""
    reasons = "; ".join(recovered.reasons)
    if recovered.confidence == "unknown":
        raise CannotRestore(f"the content at that time is not known: {reasons}")
    if recovered.confidence == "partial" and not (force and elsewhere):
        raise CannotRestore(f"only parts of the content are known ({reasons}); --force with --output writes them")
    if recovered.confidence == "doubtful" and not force:
        raise CannotRestore(f"the content is doubtful ({reasons}); use --force to restore it anyway")


def check_links(path: Path, here: Path) -> None:
    """Check that no link in the path leads out of the current folder or, elsewhere, out of the folder with the link.

    Links in the root folder, such as `/tmp` on some systems, belong to the system.
    """
    is_here = path.is_relative_to(here)
    for link in filter(Path.is_symlink, (*reversed(path.parents), path)):
        folder = here if is_here else link.parent
        is_of_system = link.parent == link.parent.parent
        if not is_of_system and not Path(os.path.realpath(link)).is_relative_to(os.path.realpath(folder)):
            raise CannotRestore(
                f"{printable_path(str(link))}: is a link to {printable_path(str(link.readlink()))}, out of the folder"
                f" {printable_path(str(folder))}; name the file behind it with --output"
            )


def plan_restore(path: Path, recovered: RecoveredContent, *, dry_run: bool = False) -> RestorePlan:
    """Compare the recovered content with the file on disk. Its folder must exist, unless nothing will be written."""
    target = Path(os.path.realpath(path))
    status = stat_path(target)
    if status is None and not dry_run and not path.parent.is_dir():
        folder = printable_path(str(path.parent))
        raise CannotRestore(f"{folder}: no such folder; create it first")
    current = read_file(path, known_target=target) if status is not None else None
    data = None
    old_content: FileContent = decode_text(current.data).printable if current else ABSENT
    new_content: FileContent = ABSENT
    action: RestoreAction = "delete" if current else "nothing"
    if isinstance(recovered.content, Absent) and path.is_symlink():
        raise CannotRestore(f"{printable_path(str(path))}: is a link; remove it yourself")
    if not isinstance(recovered.content, Absent):
        data = _encode_content(known_text(recovered), current)
        new_content = decode_text(data).printable
        action = "create" if current is None else "nothing" if current.data == data else "write"
    return RestorePlan(
        path=path,
        target=target,
        action=action,
        data=data,
        diff=diff_between(old_content, new_content, str(path)),
        stamp=current.version if current else None,
        mode=status.st_mode if status else 0o644,
        old=current.data if current else b"",
    )


def carry_out(plan: RestorePlan, *, backup: bool) -> Path | None:
    """Write or delete the file and return the path of the backup, if one was made."""
    if plan.action == "nothing":
        return None
    backup_path = None
    if backup and plan.stamp is not None:
        target = plan.target
        names = (f"{target.name}{BACKUP_SUFFIX}{f'-{number}' if number > 1 else ''}" for number in count(1))
        backup_path = next(path for path in map(target.with_name, names) if not os.path.lexists(path))
    if plan.data is None:
        if plan.stamp is not None:
            safe_delete(plan.target, plan.stamp, backup_path.name if backup_path else None)
    elif backup_path is None:
        atomic_replace(plan.path, plan.data, plan.stamp, plan.target)
    else:  # the backup comes first, so that the old content is never lost
        atomic_replace(backup_path, plan.old, None, backup_path)
        try:
            with suppress(OSError):
                backup_path.chmod(plan.mode & 0o777)
            atomic_replace(plan.path, plan.data, plan.stamp, plan.target)
        except ToolError:
            with suppress(OSError):
                backup_path.unlink()
            raise
    return backup_path


def _encode_content(content: str, current: LoadedFile | None) -> bytes:
    try:
        if current is None:
            return encode_text(content, Codec("utf-8"))
        old = decode_text(current.data)
        return encode_text(match_newlines(old, content), old.codec)
    except UnicodeEncodeError as error:
        raise CannotRestore(f"the content has half a surrogate pair at {error.start} and cannot be encoded") from error


class RecordedFile(Struct, frozen=True, kw_only=True):
    """The recorded content of a file at one point."""

    path: str
    point: ContentPoint
    recovered: RecoveredContent


def find_recorded_file(archive: Archive, name: str, *, before: str | None, after: str | None) -> RecordedFile:
    """Return the content of a file before or after a call, by default after the last change by any call.

    `name` is the file's path or the end of it. Raises:
        NotFound: no call changed such a file.
    """
    engine = archive.file_engine
    files, path = find_archive(select_files(engine, Filter()), name, engine.reporter)
    point = resolve_point(files, path, before, after)
    return RecordedFile(path=path, point=point, recovered=files.content(path, point.call, point.side))


class RestoreAnswer(Struct, frozen=True, kw_only=True):
    """The effect of a restore, carried out or only planned."""

    path: str
    target: str
    """The file that the path leads to through links, which is the one that is written."""
    action: RestoreAction
    done: bool
    confidence: str
    reasons: tuple[str, ...]
    diff: str
    kept: str | None
    """The path of the backup."""


def prepare_restore(
    name: str,
    file: RecordedFile,
    *,
    output: str | None = None,
    is_confirmed: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> RestorePlan:
    """Return the plan to restore a file that the user named, at its own path or at `output`.

    `is_confirmed` is true if the user will not see the plan. Raises:
        CannotRestore: the content is too uncertain, or the target is unsuitable.
    """
    here = current_folder()
    target = resolve_path(output, here, str(Path.home())) if output else Path(file.path)
    is_named_exactly = file.path in (name, absolute_path(name, str(here))) or is_within(file.path, str(here))
    if is_confirmed and not output and not is_named_exactly:
        # A transcript from an untrusted source may contain any path that ends with the user's input.
        raise CannotRestore(
            f"{printable_path(file.path)}: outside the current folder; name it by its full path, or leave out --yes"
        )
    if not target.is_absolute():
        raise CannotRestore(f"{printable_path(str(target))}: its folder is unknown; name a target with --output")
    if is_folder(str(target)):
        raise CannotRestore(f"{printable_path(str(target))}: is a folder; name a file in it with --output")
    check_links(target, here)
    check_confidence(file.recovered, force=force or dry_run, elsewhere=output is not None)
    return plan_restore(target, file.recovered, dry_run=dry_run)


def describe_restore(plan: RestorePlan, file: RecordedFile, *, done: bool, backup: Path | None) -> RestoreAnswer:
    """Return the effect of a plan."""
    return RestoreAnswer(
        path=str(plan.path),
        target=str(plan.target),
        action=plan.action,
        done=done,
        confidence=file.recovered.confidence,
        reasons=file.recovered.reasons,
        diff=plan.diff,
        kept=str(backup) if backup else None,
    )
