"""`toolspan repair`: make a repaired copy of a damaged session, and show how to resume it."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import click
import msgspec

from toolspan.archive.words import format_count
from toolspan.cli.output import (
    escape_markup,
    make_console,
    make_table,
    print_json,
)
from toolspan.cli.select import complete_session, locate_files, newest_session_here
from toolspan.errors import Ambiguous, ToolspanError
from toolspan.formats.base import RepairResult
from toolspan.formats.claude.paths import config_dir, project_name
from toolspan.formats.source import to_path
from toolspan.reading.diagnostics import repair

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
        path = newest_session_here().path
    else:
        files = locate_files((name,), allow_unknown=True)[0]
        paths = [file.path for file in files if file.name.role != "agent"] or [to_path(name)]
        if len(paths) > 1:
            raise Ambiguous(f"{name}: {len(paths)} sessions; name one of them")
        path = paths[0]
    try:
        result = repair(path, write=not dry_run)
    except OSError as error:
        raise ToolspanError(f"{path}: {error.strerror or error}") from error
    if as_json:
        print_json({
            "original": str(result.original),
            "session_id": result.session_id,
            "file": str(result.path) if result.path else None,
            "cwd": result.cwd,
            "records": result.record_count,
            "changes": [msgspec.to_builtins(change) for change in result.changes],
            "put_into": str(folder) if (folder := _target_folder(result)) else None,
            "resume": _resume_commands(result),
        })  # fmt: skip
    else:
        _print_repair(result, dry_run=dry_run)


def _resume_commands(repaired: RepairResult) -> list[str]:
    if repaired.session_id is None or (repaired.cwd is None and not _is_in_client_folder(repaired)):
        return []
    prefix = f"cd {shlex.quote(repaired.cwd)} && " if repaired.cwd else ""
    programs = ("claude", "toolspan run")
    return [f"{prefix}{program} --resume {repaired.session_id}" for program in programs]


def _target_folder(repaired: RepairResult) -> Path | None:
    """Return the folder to move the copy to so that clients find it, or None if it is already there or unknown."""
    if repaired.path is None or repaired.cwd is None or _is_in_client_folder(repaired):
        return None
    return config_dir() / "projects" / project_name(repaired.cwd)


def _is_in_client_folder(repaired: RepairResult) -> bool:
    return repaired.original.absolute().is_relative_to((config_dir() / "projects").absolute())


def _print_repair(repaired: RepairResult, *, dry_run: bool) -> None:
    out = make_console()
    out.print(f"[bold]{escape_markup(str(repaired.original))}[/]")
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
    out.print(f"  {format_count(repaired.record_count, 'record')} in the new session, {repaired.session_id}")
    out.print(f"  [dim]{escape_markup(str(repaired.path))}[/]", soft_wrap=True)
    folder = _target_folder(repaired)
    if folder is not None:
        out.print("\nFirst move the copy, and the folder of the same name, to where clients look for it:")
        out.print(f"  {escape_markup(str(folder))}", soft_wrap=True)
    if commands := _resume_commands(repaired):
        out.print("\nTo resume it:")
    for line in commands:
        out.print(f"  {escape_markup(line)}", soft_wrap=True)
