"""`toolspan repair`: a damaged session made anew beside itself, and how to go on with it."""

import shlex
from collections import Counter
from pathlib import Path

import click
import msgspec

from toolspan.cli.output import console, count, escape, print_json, table
from toolspan.cli.select import complete_session, locate, newest_here
from toolspan.errors import Ambiguous, NotFound, ToolspanError
from toolspan.repair import Change, Repaired, repair
from toolspan.wire.paths import config_dir, project_name

_SHOWN = 40
"""So many changes are listed one by one."""


@click.command("repair")
@click.argument("name", required=False, metavar="[SESSION|FILE]", shell_complete=complete_session)
@click.option("--dry-run", is_flag=True, help="Say what would be changed, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(name: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Make a sound copy of a damaged session; the original is left as it is.

    Without a name: the newest session of the current folder. The copy has an id of its own, in the
    same project folder: records are saved from damaged lines, each call has its one result, each
    line hangs on one that is there. A call without a result is answered with what is known of it;
    nothing is run again.
    """
    path = _session(name)
    try:
        done = repair(path, write=not dry_run)
    except OSError as error:
        raise ToolspanError(f"{path}: {error.strerror or error}") from error
    if as_json:
        print_json(_row(done))
    else:
        _print(done, dry_run=dry_run)


def _session(name: str | None) -> Path:
    if name is None:
        newest = newest_here()
        if newest is None:
            raise NotFound("no session of this folder; name a file or a session")
        return newest.path
    files = locate((name,), strangers=True)[0]
    found = [file.path for file in files if file.name.role != "agent"] or [Path(name)]
    if len(found) > 1:
        raise Ambiguous(f"{name}: {len(found)} sessions; name one of them")
    return found[0]


def _row(done: Repaired) -> dict[str, object]:
    return {
        "original": str(done.original),
        "session_id": done.session_id,
        "file": str(done.path) if done.path else None,
        "cwd": done.cwd,
        "records": done.kept,
        "changes": [msgspec.to_builtins(change) for change in done.changes],
        "put_into": str(place) if (place := _place(done)) else None,
        "resume": _commands(done),
    }


def _commands(done: Repaired) -> list[str]:
    """How to go on: with the client, and with us."""
    if done.session_id is None or (done.cwd is None and not _is_ours(done)):
        return []
    there = f"cd {shlex.quote(done.cwd)} && " if done.cwd else ""
    programs = ("claude", "toolspan run")
    return [f"{there}{program} --resume {done.session_id}" for program in programs]


def _place(done: Repaired) -> Path | None:
    """Where the new session has to lie to be found; None when it does, or nobody knows."""
    if done.path is None or done.cwd is None or _is_ours(done):
        return None
    return config_dir() / "projects" / project_name(done.cwd)


def _is_ours(done: Repaired) -> bool:
    """Whether it lies in the client's own folder."""
    return done.original.absolute().is_relative_to((config_dir() / "projects").absolute())


def _print(done: Repaired, *, dry_run: bool) -> None:
    out = console()
    out.print(f"[bold]{escape(str(done.original))}[/]")
    if not done.changes:
        out.print("  nothing to repair")
        return
    _print_changes(done.changes)
    if dry_run:
        out.print("  nothing was written (--dry-run)", style="dim")
        return
    out.print(f"  {count(done.kept, 'record')} in the new session, {done.session_id}")
    out.print(f"  [dim]{escape(str(done.path))}[/]", soft_wrap=True)
    place = _place(done)
    if place is not None:
        out.print("\nPut it first, with the folder of the same name, where clients look for it:")
        out.print(f"  {escape(str(place))}", soft_wrap=True)
    if commands := _commands(done):
        out.print("\nGo on with it:")
    for line in commands:
        out.print(f"  {escape(line)}", soft_wrap=True)


def _print_changes(changes: list[Change]) -> None:
    listing = table("changed", "line", "times", "what was done", right=("line", "times"))
    for change in changes[:_SHOWN]:
        line = str(change.line) if change.line else ""
        listing.add_row(change.code, line, str(change.count), escape(change.words))
    console().print(listing)
    rest = Counter(change.code for change in changes[_SHOWN:])
    if rest:
        told = ", ".join(f"{code} {times}" for code, times in rest.most_common())
        console().print(f"  and {count(rest.total(), 'more change')}: {told}", style="dim")
