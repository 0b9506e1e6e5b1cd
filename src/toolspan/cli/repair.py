"""`toolspan repair`: make a repaired copy of a damaged session, and show how to resume it."""

from __future__ import annotations

from collections import Counter

import click

from toolspan.archive.doctor import RepairAnswer, repair_session
from toolspan.archive.sources import locate_files
from toolspan.archive.words import format_count
from toolspan.cli.output import escape_markup, make_console, make_table, print_json
from toolspan.cli.sample import default_session
from toolspan.cli.select import REPORTER, complete_session
from toolspan.errors import Ambiguous
from toolspan.formats.source import to_path

_MAX_CHANGES = 40


@click.command("repair")
@click.argument("name", required=False, metavar="[SESSION|FILE]", shell_complete=complete_session)
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Make a repaired copy of a damaged session; the original is not changed.

    Without a name, the newest session of the current folder is repaired. The copy gets a new id in
    the same project folder. Records are recovered from damaged lines, each call gets exactly one
    result, and each record gets an existing parent. A call without a result gets a placeholder
    result; nothing is run again.
    """
    if name is None:
        path = default_session().path
    else:
        files = locate_files((name,), allow_unknown=True, reporter=REPORTER)[0]
        paths = [file.path for file in files if file.name.role != "agent"] or [to_path(name)]
        if len(paths) > 1:
            raise Ambiguous(f"{name}: {len(paths)} sessions; name one of them")
        path = paths[0]
    answer = repair_session(path, dry_run=dry_run)
    if as_json:
        print_json(answer)
    else:
        _print_repair(answer, dry_run=dry_run)


def _print_repair(repaired: RepairAnswer, *, dry_run: bool) -> None:
    out = make_console()
    out.print(f"[bold]{escape_markup(repaired.original)}[/]")
    if not repaired.changes:
        out.print("  nothing to repair")
        return
    table = make_table("changed", "line", "times", "change", right=("line", "times"))
    for change in repaired.changes[:_MAX_CHANGES]:
        line = str(change.line) if change.line else ""
        table.add_row(change.code, line, str(change.count), escape_markup(change.words))
    out.print(table)
    if rest := Counter(change.code for change in repaired.changes[_MAX_CHANGES:]):
        summary = ", ".join(f"{code} {times}" for code, times in rest.most_common())
        out.print(f"  and {format_count(rest.total(), 'more change')}: {summary}", style="dim")
    if dry_run:
        out.print("  nothing was written (--dry-run)", style="dim")
        return
    out.print(f"  {format_count(repaired.records, 'record')} in the new session, {repaired.session_id}")
    out.print(f"  [dim]{escape_markup(str(repaired.file))}[/]", soft_wrap=True)
    if repaired.put_into is not None:
        out.print("\nFirst move the copy, and the folder of the same name, to where clients look for it:")
        out.print(f"  {escape_markup(repaired.put_into)}", soft_wrap=True)
    if commands := repaired.resume:
        out.print("\nTo resume it:")
    for line in commands:
        out.print(f"  {escape_markup(line)}", soft_wrap=True)
