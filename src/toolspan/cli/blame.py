"""`toolspan blame`: which call and prompt wrote each line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from toolspan.archive.archive import Archive
from toolspan.archive.blame import Blame, BlamedLine
from toolspan.archive.words import join_parts, plain_line, plain_lines
from toolspan.cli.output import escape_markup, format_time, make_console, print_json
from toolspan.cli.select import REPORTER
from toolspan.errors import ToolspanError
from toolspan.integrations.git_blame import (
    NOTES_REF,
    add_note,
    blame_commit,
    blame_file,
    find_repository,
    head_commit,
    trace_record,
)

_RANGE = re.compile(r"(.+?):(\d+)(?:-(\d+))?")


@click.command("blame")
@click.argument("target", metavar="FILE[:LINE[-LINE]]|COMMIT")
@click.argument("names", nargs=-1, metavar="[PATH|SESSION]...")
@click.option("--trace", is_flag=True, help="Print an Agent Trace record.")
@click.option("--notes", is_flag=True, help="Store the Agent Trace record of a commit as a git note.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(target: str, names: tuple[str, ...], *, trace: bool, notes: bool, as_json: bool) -> None:
    """Show which call wrote each line of a file, and for which prompt.

    For a commit, shows the lines that it added. A line is attributed if the recorded contents of
    the file show which call added it. `likely` marks lines that were reformatted since, or of which
    only the text matches. All other lines were written by hand, or it is unknown by whom; if git
    has them, their commit and author are shown.

    git is only asked, and runs without hooks, filters and downloads. PATH and SESSION limit the
    transcripts that are read.
    """
    archive = Archive(*names, reporter=REPORTER)
    path, lines = _parse_target(target)
    if path is None:
        blames = blame_commit(archive, target, Path.cwd())
        root = find_repository(Path.cwd())
    else:
        blames = [_select(blame_file(archive, path), lines)]
        root = find_repository(path.absolute().parent)
    if notes:
        _add_note(target, blames, root if path is None else None)
    elif trace:
        if path is None:
            revision = blames[0][0].commit if blames else None
        else:
            revision = None if root is None else head_commit(root)
        print_json(trace_record(blames, root, revision))
    elif as_json:
        for blame in blames:
            print_json(*({"path": blame.path, **row} for row in blame.to_dicts()))
    else:
        for blame in blames:
            _print_blame(blame, with_path=path is None or len(blames) > 1)
        if not blames:
            click.echo(f"{target} added no lines of text.")


def _add_note(target: str, blames: Sequence[Blame], root: Path | None) -> None:
    if root is None:
        raise click.UsageError("--notes needs a commit")
    commit = blames[0][0].commit if blames else None
    if commit is None:
        raise ToolspanError(f"{target}: it added no text, so there is nothing to note")
    add_note(root, commit, trace_record(blames, root, commit))
    click.echo(f"Noted {commit[:12]} in refs/notes/{NOTES_REF}; `git notes --ref={NOTES_REF} show {commit[:12]}`")


def _parse_target(target: str) -> tuple[Path | None, tuple[int, int] | None]:
    """Return the file and its lines; no file if the target is a commit."""
    match = None if Path(target).exists() else _RANGE.fullmatch(target)
    path = Path(match[1] if match else target)
    is_path = path.exists() or "/" in target or path.suffix != ""
    if not is_path or path.is_dir():
        return None, None
    return path, (int(match[2]), int(match[3] or match[2])) if match else None


def _select(blame: Blame, lines: tuple[int, int] | None) -> Blame:
    if lines is None:
        return blame
    rows = [row for row in blame if lines[0] <= row.line <= lines[1]]
    if not rows:
        raise click.UsageError(f"{blame.path} has {len(blame)} lines")
    return Blame(blame.path, rows, blame.recorded_paths)


def _print_blame(blame: Blame, *, with_path: bool) -> None:
    out = make_console()
    if with_path:
        out.print(f"[bold]{escape_markup(plain_line(blame.path, 400))}[/]")
    width = len(str(blame[-1].line)) if blame else 1
    for key, run in groupby(blame, lambda row: (row.call, row.certainty, row.commit if row.call is None else None)):
        rows = list(run)
        style = "cyan" if key[0] else "dim"
        out.print(f"[{style}]{escape_markup(_describe(rows[0]))}[/]", soft_wrap=True)
        for row in rows:
            line = f"  [dim]{row.line:>{width}}[/]  {escape_markup(plain_lines(row.text)[0])}"
            out.print(line, soft_wrap=True, highlight=False)
    share = f"{blame.attributed:,} of {len(blame):,} lines are from recorded calls"
    sessions = len({row.session for row in blame if row.call})
    out.print(join_parts(share, f"{sessions} session{'s' if sessions != 1 else ''}" if sessions else None))


def _describe(row: BlamedLine) -> str:
    """Return one line about who wrote a line."""
    if row.call is None:
        if row.commit is None:
            return "by hand or unknown"
        return f"by hand or unknown · commit {row.commit[:10]} by {plain_line(row.author, 60)}"
    prompt = f"“{plain_line(row.prompt, 100)}”" if row.prompt else None
    agent = f"subagent {row.agent}" if row.agent else None
    likely = "likely" if row.certainty == "likely" else None
    return join_parts(format_time(row.at), row.call, (row.session or "")[:13], row.model, agent, likely, prompt)
