"""`toolspan restore`: write a file as it was before or after a call."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from toolspan.analysis.file_history.archive import known_text
from toolspan.analysis.file_history.content import Absent
from toolspan.archive.archive import Archive
from toolspan.archive.words import plain_line
from toolspan.cli.files import confidence_line, print_reasons
from toolspan.cli.output import diff_lines, make_console, print_json
from toolspan.cli.select import REPORTER, fetch_stores
from toolspan.errors import ToolspanError
from toolspan.integrations.restore import (
    CannotRestore,
    RecordedFile,
    RestorePlan,
    carry_out,
    check_confidence,
    describe_restore,
    find_recorded_file,
    prepare_restore,
)

_MAX_DIFF_LINES = 120
_ACTION_LABELS = {"write": "write", "create": "create", "delete": "DELETE", "nothing": "leave"}


@click.command("restore")
@click.argument("file")
@click.argument("names", nargs=-1, callback=fetch_stores, metavar="[TRANSCRIPT|FOLDER|SESSION]...")
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
    recorded = find_recorded_file(Archive(*names, reporter=REPORTER), file, before=before, after=after)
    recovered = recorded.recovered
    is_absent = isinstance(recovered.content, Absent)
    heading = confidence_line(recorded.path, recorded.point, recovered.confidence, is_absent=is_absent)
    force, dry_run = flags["force"], flags["dry_run"]
    if output == "-":
        check_confidence(recovered, force=force, elsewhere=True)
        make_console(stderr=True).print(heading, soft_wrap=True)
        if isinstance(recovered.content, str) or recovered.parts:
            sys.stdout.buffer.write(known_text(recovered).encode("utf-8", "surrogateescape"))
        return
    plan = prepare_restore(file, recorded, output=output, is_confirmed=flags["yes"], force=force, dry_run=dry_run)
    _confirm_and_restore(plan, recorded, heading, flags)


def _confirm_and_restore(plan: RestorePlan, recorded: RecordedFile, heading: Text, flags: dict[str, bool]) -> None:
    as_json = flags["as_json"]
    out = make_console()
    name = plain_line(str(plan.target), 1_000)
    if plan.target != plan.path:
        name += f" (through the link {plain_line(str(plan.path), 1_000)})"
    if not as_json:
        print_reasons(out, heading, recorded.recovered.reasons)
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
        print_json(describe_restore(plan, recorded, done=should_restore, backup=backup))
    elif should_restore:
        note = f"; the previous file is kept as {plain_line(backup.name, 300)}" if backup else ""
        out.print(Text(f"restored {name}{note}"), soft_wrap=True)
