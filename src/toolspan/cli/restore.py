"""`toolspan restore`: write a file as it was before or after a call."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct
from rich.text import Text

from toolspan.analysis.file_history.archive import diff_between, known_text
from toolspan.analysis.file_history.content import ABSENT, Absent, FileContent, RecoveredContent
from toolspan.analysis.file_history.shell_writes import absolute_path, is_within, printable_path
from toolspan.archive.files import find_archive, resolve_point
from toolspan.archive.words import plain_line
from toolspan.cli.files import confidence_line, diff_lines, print_reasons
from toolspan.cli.output import make_console, print_json
from toolspan.cli.select import REPORTER, current_folder, is_folder, locate_files
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


_MAX_DIFF_LINES = 120
_ACTION_LABELS = {"write": "write", "create": "create", "delete": "DELETE", "nothing": "leave"}


@click.command("restore")
@click.argument("file")
@click.argument("names", nargs=-1, metavar="[TRANSCRIPT|FOLDER|SESSION]...")
@click.option("--before", metavar="CALL", help="Restore the content just before this call.")
@click.option("--after", metavar="CALL", help="Restore the content just after this call.")
@click.option("--output", metavar="PATH", help="Write to this path instead; `-` for standard output.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Restore even if the content is doubtful.")
@click.option("--no-backup", is_flag=True, help="Do not keep a copy of the current file.")
@click.option("--diff", "full", is_flag=True, help="Do not shorten the diff.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes or --dry-run.")
def command(
    file: str, names: tuple[str, ...], *, before: str | None, after: str | None, output: str | None, **flags: bool
) -> None:
    """Restore a file as it was before or after a call.

    Without a call, the file is restored as it was after the last change by any call. You see the
    difference to the current file and how certain the content is, and are asked to confirm. A file
    that did not exist at that time is deleted. The current file is kept as NAME.before-restore.

    Name the file by its path, or by the end of its path. You may also name the transcripts to
    read; by default, all of yours are read.
    """
    files, _ = locate_files(names)
    archive, path = find_archive(files, file, REPORTER)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    is_absent = isinstance(recovered.content, Absent)
    heading = confidence_line(path, point, recovered.confidence, is_absent=is_absent)
    if output == "-":
        check_confidence(recovered, force=flags["force"], elsewhere=True)
        make_console(stderr=True).print(heading, soft_wrap=True)
        if isinstance(recovered.content, str) or recovered.parts:
            sys.stdout.buffer.write(known_text(recovered).encode("utf-8", "surrogateescape"))
        return
    here = current_folder()
    target = resolve_path(output, here, str(Path.home())) if output else Path(path)
    is_named_exactly = path in (file, absolute_path(file, str(here))) or is_within(path, str(here))
    if flags["yes"] and not output and not is_named_exactly:
        # A transcript from an untrusted source may contain any path that ends with the user's input.
        raise CannotRestore(
            f"{printable_path(path)}: outside the current folder; name it by its full path, or leave out --yes"
        )
    if not target.is_absolute():
        raise CannotRestore(f"{printable_path(str(target))}: its folder is unknown; name a target with --output")
    if is_folder(str(target)):
        raise CannotRestore(f"{printable_path(str(target))}: is a folder; name a file in it with --output")
    check_links(target, here)
    check_confidence(recovered, force=flags["force"] or flags["dry_run"], elsewhere=output is not None)
    plan = plan_restore(target, recovered, dry_run=flags["dry_run"])
    _confirm_and_restore(plan, recovered, heading, flags)


def _confirm_and_restore(plan: RestorePlan, recovered: RecoveredContent, heading: Text, flags: dict[str, bool]) -> None:
    as_json = flags["as_json"]
    out = make_console()
    name = plain_line(str(plan.path), 1_000)
    if not as_json:
        print_reasons(out, heading, recovered.reasons)
        if plan.action == "nothing":
            out.print(Text(f"{name} already has this content"), soft_wrap=True)
        for line in diff_lines(plan.diff, 0 if flags["full"] else _MAX_DIFF_LINES):
            out.print(line, soft_wrap=True)
        if plan.action == "create" and not plan.path.parent.is_dir():
            out.print(Text(f"{plain_line(str(plan.path.parent), 1_000)}: no such folder; create it before you restore"))
    should_restore = plan.action != "nothing" and not flags["dry_run"]
    if should_restore and not flags["yes"]:
        if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise CannotRestore(
                "cannot ask for confirmation without a terminal; add --yes to restore, or --dry-run to look"
            )
        if not click.confirm(f"{_ACTION_LABELS[plan.action]} {name}?", default=False):
            raise ToolspanError("nothing was changed")
    backup = carry_out(plan, backup=not flags["no_backup"]) if should_restore else None
    if as_json:
        print_json({
            "path": str(plan.path),
            "action": plan.action,
            "done": should_restore,
            "confidence": recovered.confidence,
            "reasons": recovered.reasons,
            "diff": plan.diff,
            "kept": str(backup) if backup else None,
        })  # fmt: skip
    elif should_restore:
        note = f"; the previous file is kept as {plain_line(backup.name, 300)}" if backup else ""
        out.print(Text(f"restored {name}{note}"), soft_wrap=True)
