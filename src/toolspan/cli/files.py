"""`toolspan files`: file changes made by calls: totals, the history of one file, and its content at a call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from toolspan.analysis.file_history.archive import FileTotals
from toolspan.analysis.file_history.content import Confidence
from toolspan.analysis.file_history.shell_writes import is_within
from toolspan.archive.archive import Archive
from toolspan.archive.files import (
    SORT_ALIASES,
    SORT_COLUMNS,
    ChangedFiles,
    ChangeRow,
    ContentPoint,
    FileContentAnswer,
    FileDifference,
    FileHistory,
    known_content,
)
from toolspan.archive.filters import Filter
from toolspan.archive.sources import current_folder, is_folder, split_transcripts
from toolspan.archive.words import format_count, join_parts, plain_line, plain_lines
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    TargetCell,
    diff_lines,
    escape_markup,
    format_time,
    make_console,
    make_table,
    print_json,
    warn,
)
from toolspan.errors import Ambiguous
from toolspan.reading.history import short_id

if TYPE_CHECKING:
    from rich.console import Console


_MAX_DIFF_LINES = 60
_WIDE = 100
_CONFIDENCE_STYLES: dict[Confidence, str] = {
    "exact": "green",
    "derived": "green",
    "doubtful": "yellow",
    "partial": "yellow",
    "unknown": "red",
}


@click.command("files")
@click.argument("names", nargs=-1, callback=select.fetch_stores, metavar="[FILE|FOLDER|SESSION|PATH]...")
@click.option("--path", help="Show changes to this file, or to files below this folder.")
@select.last_option
@click.option("--diff", "with_diff", is_flag=True, help="Do not shorten diffs.")
@click.option("--content", is_flag=True, help="Print the content of the file; see --before and --after.")
@click.option("--before", metavar="CALL", help="Print its content just before this call.")
@click.option("--after", metavar="CALL", help="Print its content just after this call.")
@click.option(
    "--contents",
    is_flag=True,
    help="With --json: one row with its content before the first change and after each change.",
)
@click.option(
    "--between",
    nargs=2,
    metavar="CALL CALL",
    help="Print the difference between its contents after two calls; before:CALL is just before a call.",
)
@lists.limit_option(40, "rows")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    names: tuple[str, ...], *, path: str | None, last: bool, as_json: bool, call_filter: Filter, **options: Any
) -> None:
    """Show what calls did to files.

    Without a path, lists every changed file with the lines added and removed, newest last.
    With the path of a file, or the end of its path, shows each change with its diff. With --content,
    prints the content before or after a call, and how certain it is.
    """
    transcripts, paths = split_transcripts(names)
    paths += [] if path is None else [path]
    if len(paths) > 1:
        raise Ambiguous(f"{' and '.join(paths)}: name one path at a time")
    path = paths[0] if paths else None
    archive = Archive(*transcripts, last=last, reporter=select.REPORTER)
    try:
        _show_files(archive, path, call_filter, as_json=as_json, **options)
    except Ambiguous as error:
        rows = archive.files(call_filter, name=path, sort="changes")
        if as_json or not rows:
            raise
        warn(error)
        _print_totals(rows, archive.names, "changes")
        click.get_current_context().exit(2)


def _show_files(
    archive: Archive, path: str | None, call_filter: Filter, *, content: bool, contents: bool, before: str | None,
    after: str | None, between: tuple[str, str] | None, with_diff: bool, limit: int, sort: str | None, as_json: bool,
) -> None:  # fmt: skip
    max_lines = 0 if with_diff else _MAX_DIFF_LINES
    if path is None and (contents or between or content or before or after):
        raise click.UsageError("--content, --contents, --before, --after and --between need the path of a file")
    if path is None or (is_folder(path) and not (contents or between or content or before or after)):
        rows = archive.files(call_filter, folder=path, sort=sort, limit=limit)
        print_json(*rows) if as_json else _print_totals(rows, archive.names, sort)
    elif contents:
        if not as_json:
            raise click.UsageError("--contents needs --json")
        print_json(archive.file_contents(path, call_filter))
    elif between:
        difference = archive.file_difference(path, *between, call_filter)
        print_json(difference) if as_json else _print_difference(difference, max_lines)
    elif content or before or after:
        answer = archive.file_content(path, call_filter, before=before, after=after)
        print_json(answer) if as_json else _print_content(answer)
    else:
        history = archive.file_history(path, call_filter, limit=limit)
        print_json(*history) if as_json else _print_history(history, max_lines)


def _print_content(answer: FileContentAnswer) -> None:
    is_absent = answer.exists is False
    point = ContentPoint(answer.call, answer.side)
    heading = confidence_line(answer.path, point, answer.confidence, is_absent=is_absent)
    print_reasons(make_console(stderr=True), heading, answer.reasons)
    if is_absent:
        return
    text = known_content(answer)
    is_terminal = sys.stdout.isatty()  # a terminal gets no control characters
    click.echo("\n".join(plain_lines(text)) if is_terminal else text.encode("utf-8", "replace").decode(), nl=False)


def _print_difference(difference: FileDifference, max_lines: int) -> None:
    out = make_console()
    for point in (difference.start, difference.end):
        at = ContentPoint(point.call, point.side)
        heading = confidence_line(difference.path, at, point.confidence, is_absent=not point.exists)
        print_reasons(out, heading, point.reasons)
    for line in diff_lines(difference.diff, max_lines):
        out.print(line, soft_wrap=True)


def confidence_line(path: str, point: ContentPoint, confidence: Confidence, *, is_absent: bool) -> Text:
    """Return one line that states the file, the point in time and how certain the content is."""
    line = Text(plain_line(f"{path} {point.side} {point.call}", 1_000) + ": ")
    line.append(confidence, style=f"bold {_CONFIDENCE_STYLES[confidence]}")
    return line.append(", the file did not exist" if is_absent else "")


def print_reasons(out: Console, heading: Text, reasons: Sequence[str]) -> None:
    """Print a heading followed by the reasons for the confidence."""
    out.print(heading, soft_wrap=True)
    for reason in reasons:
        out.print(Text(f"  {plain_line(reason, 400)}", style="dim"), soft_wrap=True)


def _print_history(history: FileHistory, max_lines: int) -> None:
    out = make_console()
    lines = [Text(plain_line(history.path, 2_000), style="bold")]
    for change in history:
        lines += [Text(), _change_headline(change, out.width), *diff_lines(change.diff, max_lines)]
    for line in (*lines, Text()):
        out.print(line, soft_wrap=True)
    more = lists.limit_note(len(history), history.total)
    verb = "was" if history.attempts == 1 else "were"
    attempts = f"; {format_count(history.attempts, 'further call')} {verb} unsuccessful" if history.attempts else ""
    out.print(f"{format_count(history.total, 'change')}{more}{attempts}", highlight=False)
    for disagreement in history.disagreements:
        call = f"before {short_id(disagreement.call)[:12]} " if disagreement.call else ""
        words = plain_line(disagreement.words, max(out.width * 2, 160))
        out.print(Text(f"! {call}{words}", style="yellow"), soft_wrap=True)


def _change_headline(change: ChangeRow, width: int) -> Text:
    line = Text()
    line.append(f"{format_time(change.at)}  ", style="dim")
    line.append(f"{change.kind:8} ", style="bold")
    if change.added is not None:
        line.append(f"+{change.added} ", style="green").append(f"−{change.removed} ", style="red")
    moved = change.moved_from or change.moved_to
    way = f"{'from' if change.moved_from else 'to'} {moved}" if moved else None
    who = join_parts(way, change.tool, change.call, (change.session or "")[:8], change.agent)
    line.append(plain_line(who, 400), style="dim")
    if not change.complete:
        line.append(" (incompletely recorded)", style="yellow")
    line.truncate(max(width, 60), overflow="ellipsis")
    return line


def _print_totals(rows: ChangedFiles, names: Sequence[str], sort: str | None) -> None:
    out = make_console()
    columns = ["file", "changes", "lines", "unsuccessful", "last"] + ["by"] * (out.width >= _WIDE)
    table = make_table(*columns, right=("changes", "unsuccessful"), cut=("file",))
    for row in rows:
        cells = _totals_cells(row, out.width)
        table.add_row(*(cells[column] for column in columns))
    if rows:
        out.print(table)
    more = lists.limit_note(len(rows), rows.total, "first" if sort else "last")
    out.print(f"{format_count(rows.total, 'file')}, +{rows.added:,} −{rows.removed:,} lines{more}")
    if rows.unchanged:
        out.print(f"[dim]Only unsuccessful calls would have changed {format_count(rows.unchanged, 'more file')}.[/]")
    if rows:
        hints = ("files PATHS --path FILE", "shows its changes"), ("restore FILE PATHS", "gets it back")
        lists.print_hints(names, *hints)


def _totals_cells(row: FileTotals, width: int) -> dict[str, str | TargetCell]:
    path = row.path
    for folder, prefix in ((current_folder(), ""), (Path.home(), "~/")):
        if is_within(path, str(folder)) and path != str(folder):
            path = prefix + str(PurePath(path).relative_to(folder))
            break
    note = " (deleted)" if row.last_kind == "deleted" else " (new)" if row.created else ""
    mark = "" if row.known else " ?"
    sessions = format_count(len(row.sessions), "session") if len(row.sessions) != 1 else row.sessions[0][:8]
    agents = f" ↳ {len(row.agents)}" if row.agents else ""
    return {
        "file": TargetCell(path, note),
        "changes": str(row.changes),
        "lines": f"[green]+{row.added:,}[/] [red]−{row.removed:,}[/]{mark}" if row.changes else "",
        "unsuccessful": f"[red]{row.unsuccessful}[/]" if row.unsuccessful else "",
        "last": format_time(row.last)[: 16 if width >= _WIDE else 10],
        "by": escape_markup(sessions + agents),
    }
