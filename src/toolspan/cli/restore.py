"""`toolspan restore`: a file as it was before or after a call."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.text import Text

from toolspan.analysis.file_history.content import RecoveredContent
from toolspan.analysis.file_history.shell_writes import absolute_path, is_within, printable_path
from toolspan.cli.files import confidence_line, diff_lines, find_archive, print_reasons, resolve_point
from toolspan.cli.output import make_console, plain_line, print_json
from toolspan.cli.restore_file import CannotRestore, RestorePlan, carry_out, check_confidence, plan_restore
from toolspan.cli.select import current_folder, is_folder, locate_files
from toolspan.errors import ToolspanError
from toolspan.tools.files.paths import resolve_path

_MAX_DIFF_LINES = 120
_ACTION_LABELS = {"write": "write", "create": "create", "delete": "DELETE", "nothing": "leave"}


@click.command("restore")
@click.argument("file")
@click.argument("names", nargs=-1, metavar="[TRANSCRIPT|FOLDER|SESSION]...")
@click.option("--before", metavar="CALL", help="As it was right before this call.")
@click.option("--after", metavar="CALL", help="As it was right after this call.")
@click.option("--output", metavar="PATH", help="Write it there instead; `-` prints it.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also when the content is doubtful.")
@click.option("--no-backup", is_flag=True, help="Do not keep what is there now.")
@click.option("--diff", "full", is_flag=True, help="The diff in full length.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --yes or --dry-run.")
def command(
    file: str, names: tuple[str, ...], *, before: str | None, after: str | None, output: str | None, **flags: bool
) -> None:
    """Give a file the content it had before or after a call.

    Without a call: as it was after the last change that any call made to it. The difference to what
    is on disk is shown first, with how sure the content is; then it is asked for. A file that did
    not exist then is deleted. What is there now is kept beside it as NAME.before-restore.

    The file is named by its path, or by the last parts of it; transcripts as in other commands,
    without any: all of this user's.
    """
    files, _ = locate_files(names)
    archive, path = find_archive(files, file)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    heading = confidence_line(path, point, recovered)
    if output == "-":
        _print_content(recovered, heading, force=flags["force"])
        return
    target = resolve_path(output, current_folder(), str(Path.home())) if output else Path(path)
    if flags["yes"] and not output:
        _check_named_exactly(file, path)
    _check_target(target)
    check_confidence(recovered, force=flags["force"] or flags["dry_run"], elsewhere=output is not None)
    plan = plan_restore(target, recovered)
    _confirm_and_restore(plan, recovered, heading, flags)


def _check_named_exactly(word: str, path: str) -> None:
    """Without a question, only a file is written that was named whole or is near.

    A transcript may come from anywhere, and name any path that ends in what was typed.

    Raises:
        CannotRestore: the file is elsewhere.
    """
    here = str(current_folder())
    if path not in (word, absolute_path(word, here)) and not is_within(path, here):
        raise CannotRestore(f"{printable_path(path)}: name it by its whole path, or leave out --yes")


def _check_target(target: Path) -> None:
    """Only a file is written to, and one whose folder is known.

    Raises:
        CannotRestore: it is something else.
    """
    name = printable_path(str(target))
    if not target.is_absolute():
        raise CannotRestore(f"{name}: the folder it is in is not known; name a place with --output")
    if is_folder(str(target)):
        raise CannotRestore(f"{name}: that is a folder; name a file in it with --output")


def _print_content(recovered: RecoveredContent, heading: Text, *, force: bool) -> None:
    from toolspan.analysis.file_history.archive import known_text

    check_confidence(recovered, force=force, elsewhere=True)
    make_console(stderr=True).print(heading, soft_wrap=True)
    if isinstance(recovered.content, str) or recovered.parts:
        sys.stdout.buffer.write(known_text(recovered).encode("utf-8", "surrogateescape"))


def _confirm_and_restore(plan: RestorePlan, recovered: RecoveredContent, heading: Text, flags: dict[str, bool]) -> None:
    """Show what would be done, ask, and do it."""
    as_json = flags["as_json"]
    if not as_json:
        _print_plan(plan, recovered, heading, full=flags["full"])
    should_restore = plan.action != "nothing" and not flags["dry_run"]
    if should_restore and not flags["yes"]:
        _confirm_plan(plan, as_json=as_json)
    backup = carry_out(plan, backup=not flags["no_backup"]) if should_restore else None
    if as_json:
        print_json(_restore_row(plan, recovered, backup, done=should_restore))
    elif should_restore:
        note = f", what was there is {plain_line(backup.name, 300)}" if backup else ""
        make_console().print(Text(f"done: {plain_line(str(plan.path), 1_000)}{note}"), soft_wrap=True)


def _print_plan(plan: RestorePlan, recovered: RecoveredContent, heading: Text, *, full: bool) -> None:
    out = make_console()
    print_reasons(out, heading, recovered)
    if plan.action == "nothing":
        out.print(Text(f"{plain_line(str(plan.path), 1_000)} is so already"), soft_wrap=True)
    for line in diff_lines(plan.diff, 0 if full else _MAX_DIFF_LINES):
        out.print(line, soft_wrap=True)


def _confirm_plan(plan: RestorePlan, *, as_json: bool) -> None:
    """Ask a person.

    Raises:
        CannotRestore: there is nobody to ask, or the answer is no.
    """
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CannotRestore("nobody can be asked here; add --yes to do it, or --dry-run to look")
    question = f"{_ACTION_LABELS[plan.action]} {plain_line(str(plan.path), 1_000)}?"
    if not click.confirm(question, default=False):
        raise ToolspanError("nothing was changed")


def _restore_row(
    plan: RestorePlan, recovered: RecoveredContent, backup: Path | None, *, done: bool
) -> dict[str, object]:
    return {
        "path": str(plan.path),
        "action": plan.action,
        "done": done,
        "confidence": recovered.confidence,
        "reasons": recovered.reasons,
        "diff": plan.diff,
        "kept": str(backup) if backup else None,
    }
