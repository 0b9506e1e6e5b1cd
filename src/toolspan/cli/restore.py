"""`toolspan restore`: a file as it was before or after a call."""

import sys
from pathlib import Path

import click
from rich.text import Text

from toolspan.cli.draw import plain_line
from toolspan.cli.files.asked import about
from toolspan.cli.files.content import confidence_line, moment_of, print_reasons
from toolspan.cli.files.history import diff_lines
from toolspan.cli.output import console, print_json
from toolspan.cli.select import current_folder, is_folder, locate
from toolspan.disk.place import placed
from toolspan.errors import ToolspanError
from toolspan.report.files.content import Recovered
from toolspan.report.files.place import spelled, whole, within
from toolspan.report.files.restore import CannotRestore, Plan, carry_out, check, plan_for

_SHOWN = 120
_WORDS = {"write": "write", "create": "create", "delete": "DELETE", "nothing": "leave"}


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
    file: str,
    names: tuple[str, ...],
    *,
    before: str | None,
    after: str | None,
    output: str | None,
    **wishes: bool,
) -> None:
    """Give a file the content it had before or after a call.

    Without a call: as it was after the last change that any call made to it. The difference to what
    is on disk is shown first, with how sure the content is; then it is asked for. A file that did
    not exist then is deleted. What is there now is kept beside it as NAME.before-restore.

    The file is named by its path, or by the last parts of it; transcripts as in other commands,
    without any: all of this user's.
    """
    files, _ = locate(names)
    archive, path = about(files, file)
    when = moment_of(archive, path, before, after)
    found = archive.content(path, when.call, when.side)
    heading = confidence_line(path, when, found)
    if output == "-":
        _print(found, heading, force=wishes["force"])
        return
    target = placed(output, current_folder(), str(Path.home())) if output else Path(path)
    if wishes["yes"] and not output:
        _check_meant(file, path)
    _check_place(target)
    check(found, force=wishes["force"] or wishes["dry_run"], elsewhere=output is not None)
    plan = plan_for(target, found)
    _carry_out(plan, found, heading, wishes)


def _check_meant(word: str, path: str) -> None:
    """Without a question, only a file is written that was named whole or is near.

    A transcript may come from anywhere, and name any path that ends in what was typed.

    Raises:
        CannotRestore: the file is elsewhere.
    """
    here = str(current_folder())
    if path not in (word, whole(word, here)) and not within(path, here):
        raise CannotRestore(f"{spelled(path)}: name it by its whole path, or leave out --yes")


def _check_place(target: Path) -> None:
    """Only a file is written to, and one whose folder is known.

    Raises:
        CannotRestore: it is something else.
    """
    name = spelled(str(target))
    if not target.is_absolute():
        raise CannotRestore(f"{name}: the folder it is in is not known; name a place with --output")
    if is_folder(str(target)):
        raise CannotRestore(f"{name}: that is a folder; name a file in it with --output")


def _print(found: Recovered, heading: Text, *, force: bool) -> None:
    from toolspan.report.files.story import known_lines

    check(found, force=force, elsewhere=True)
    console(stderr=True).print(heading, soft_wrap=True)
    if isinstance(found.content, str) or found.parts:
        sys.stdout.buffer.write(known_lines(found).encode("utf-8", "surrogateescape"))


def _carry_out(plan: Plan, found: Recovered, heading: Text, wishes: dict[str, bool]) -> None:
    """Show what would be done, ask, and do it."""
    as_json = wishes["as_json"]
    if not as_json:
        _show(plan, found, heading, full=wishes["full"])
    asked = plan.action != "nothing" and not wishes["dry_run"]
    if asked and not wishes["yes"]:
        _ask(plan, as_json=as_json)
    kept = carry_out(plan, backup=not wishes["no_backup"]) if asked else None
    if as_json:
        print_json(_row(plan, found, kept, done=asked))
    elif asked:
        told = f", what was there is {plain_line(kept.name, 300)}" if kept else ""
        console().print(Text(f"done: {plain_line(str(plan.path), 1_000)}{told}"), soft_wrap=True)


def _show(plan: Plan, found: Recovered, heading: Text, *, full: bool) -> None:
    out = console()
    print_reasons(out, heading, found)
    if plan.action == "nothing":
        out.print(Text(f"{plain_line(str(plan.path), 1_000)} is so already"), soft_wrap=True)
    for line in diff_lines(plan.diff, 0 if full else _SHOWN):
        out.print(line, soft_wrap=True)


def _ask(plan: Plan, *, as_json: bool) -> None:
    """Ask a person.

    Raises:
        CannotRestore: there is nobody to ask, or the answer is no.
    """
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CannotRestore("nobody can be asked here; add --yes to do it, or --dry-run to look")
    question = f"{_WORDS[plan.action]} {plain_line(str(plan.path), 1_000)}?"
    if not click.confirm(question, default=False):
        raise ToolspanError("nothing was changed")


def _row(plan: Plan, found: Recovered, kept: Path | None, *, done: bool) -> dict[str, object]:
    return {
        "path": str(plan.path),
        "action": plan.action,
        "done": done,
        "confidence": found.confidence,
        "reasons": found.reasons,
        "diff": plan.diff,
        "kept": str(kept) if kept else None,
    }
