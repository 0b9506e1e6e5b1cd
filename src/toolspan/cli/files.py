"""`toolspan files`: file changes made by calls: totals, the history of one file, and its content at a call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.text import Text

from toolspan.analysis.file_history.archive import (
    FileArchive,
    FileTotals,
    FileTotalsCollector,
    RecordedChange,
    archive_about,
    change_row,
    changes_by_project,
    diff_between,
    diff_of_change,
    known_text,
)
from toolspan.analysis.file_history.changes import FileChange
from toolspan.analysis.file_history.content import Absent, CallSide, Confidence, FileContent, RecoveredContent
from toolspan.analysis.file_history.events import FailedChange
from toolspan.analysis.file_history.shell_writes import is_within, path_ends_with, printable_path
from toolspan.cli import lists, select
from toolspan.cli.filters import CallFilter, filter_options
from toolspan.cli.output import (
    TargetCell,
    diff_line,
    escape_markup,
    format_count,
    format_time,
    join_parts,
    make_console,
    make_table,
    plain_line,
    plain_lines,
    print_json,
    progress_bar,
    warn,
)
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.registry import detect_dialect
from toolspan.formats.source import is_remote, source_for_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import match_prefix, short_id
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from rich.console import Console


_TRANSCRIPT_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")
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
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION|PATH]...")
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
@lists.sort_option("file", "changes", "lines", "removed", "errors", "first", "last",
                   file="path", path="path", lines="added", added="added")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@filter_options
def command(
    names: tuple[str, ...],
    *,
    path: str | None,
    last: bool,
    with_diff: bool,
    content: bool,
    before: str | None,
    after: str | None,
    contents: bool,
    between: tuple[str, str] | None,
    limit: int,
    sort: lists.SortOrder | None,
    as_json: bool,
    call_filter: CallFilter,
) -> None:
    """Show what calls did to files.

    Without a path, lists every changed file with the lines added and removed, newest last.
    With the path of a file, or the end of its path, shows each change with its diff. With --content,
    prints the content before or after a call, and how certain it is.
    """
    transcripts = [name for name in names if _is_transcript_name(name)]
    paths = [name for name in names if name not in transcripts] + ([] if path is None else [path])
    if len(paths) > 1:
        raise Ambiguous(f"{' and '.join(paths)}: name one path at a time")
    path = paths[0] if paths else None
    options = _FilesOptions(path, call_filter, limit, as_json, with_diff, sort, transcripts)
    files, _ = select.locate_files(transcripts, last=last)
    if call_filter.dialect is not None:
        files = [file for file in files if detect_dialect(source_for_path(file.path)) == call_filter.dialect]
    select.require_session(call_filter.session, files)
    in_project = select.filter_by_project(call_filter.project, files)
    if files and not in_project:
        summaries = select.scan_with_cache([file.path for file in files])
        select.check_project(call_filter.project, [(summary.file, summary.info) for summary in summaries])
    files = in_project
    if contents or between:
        _print_contents_or_difference(files, options, between)
    elif content or before or after:
        _print_content(files, options, before, after)
    elif path is None or select.is_folder(path):
        _print_totals(files, options)
    else:
        _print_history(files, path, options)


def _is_transcript_name(name: str) -> bool:
    if name.endswith(_TRANSCRIPT_SUFFIXES) or is_remote(name) or select.is_folder(name):
        return True
    if "/" in name or "." in name:
        return False
    try:
        select.find_session_files(name)
    except Ambiguous:
        return True
    except NotFound:
        return False
    return True


class _FilesOptions(NamedTuple):
    path: str | None
    call_filter: CallFilter
    limit: int
    as_json: bool
    full_diff: bool
    sort: lists.SortOrder | None
    names: Sequence[str]


def _accepts_change(call_filter: CallFilter, change: FileChange | FailedChange | RecordedChange) -> bool:
    """Return whether the filter accepts a change whose client and project have already been checked."""
    state, error = "succeeded", ""
    requested = change.at if isinstance(change, FailedChange) else change.requested
    if not isinstance(change, FileChange):
        state, error = change.state, change.error_kind or ""
    return (
        (not call_filter.tool or call_filter.accepts_tool(change.tool))
        and (not call_filter.state or state in call_filter.state)
        and (not call_filter.error or error in call_filter.error)
        and (call_filter.session is None or (change.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (change.agent or "").startswith(call_filter.agent))
        and call_filter.accepts_time(requested or change.at)
    )


def find_archive(files: Sequence[TranscriptFile], path: str) -> tuple[FileArchive, str]:
    """Return an archive with the file whose path is `path` or ends with it, and the file's full path."""
    name = PurePath(path.replace("\\", "/")).name
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        archive = archive_about(files, name, lambda changed: path_ends_with(changed, name), advance, warn)
    return archive, archive.find_path(path, str(select.current_folder()))


class ContentPoint(NamedTuple):
    """A point in time: before or after a call."""

    call: str
    side: CallSide


def resolve_point(archive: FileArchive, path: str, before: str | None, after: str | None) -> ContentPoint:
    """Return the point that the options select. The default is after the last change."""
    if before is not None and after is not None:
        raise click.UsageError("use either --before or --after")
    call_prefix = after if before is None else before
    side: CallSide = "after" if before is None else "before"
    changes = archive.changes_to(path)
    if call_prefix is None:
        if not changes:
            raise NotFound(f"no successful call changed {printable_path(path)}")
        return ContentPoint(changes[-1].call, "after")
    changing_calls = list(dict.fromkeys(change.call for change in changes))
    try:
        call = match_prefix(call_prefix, changing_calls, "call that changed the file")
    except Ambiguous:
        raise
    except NotFound:
        call = match_prefix(call_prefix, archive.calls, "call", hint=short_id)
    return ContentPoint(call, side)


def _print_content(
    files: Sequence[TranscriptFile], options: _FilesOptions, before: str | None, after: str | None
) -> None:
    if options.path is None:
        raise click.UsageError("--content, --before and --after need the path of a file")
    archive, path = find_archive(files, options.path)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    is_absent = isinstance(recovered.content, Absent)
    if options.as_json:
        row = _content_row(point, recovered)
        print_json({"path": path, **row, "disagreements": tuple(archive.timeline_of(path).disagreements)})
        return
    print_reasons(make_console(stderr=True), confidence_line(path, point, recovered), recovered)
    if not is_absent:
        text = known_text(recovered)
        is_terminal = sys.stdout.isatty()  # a terminal gets no control characters
        click.echo("\n".join(plain_lines(text)) if is_terminal else text.encode("utf-8", "replace").decode(), nl=False)


def _content_row(point: ContentPoint, recovered: RecoveredContent) -> dict[str, object]:
    is_known = recovered.content is not None or bool(recovered.parts)
    return {
        "call": point.call,
        "side": point.side,
        "confidence": recovered.confidence,
        "reasons": recovered.reasons,
        "exists": not isinstance(recovered.content, Absent) if is_known else None,
        "content": recovered.content if isinstance(recovered.content, str) else None,
        "parts": recovered.parts,
    }


def _print_contents_or_difference(
    files: Sequence[TranscriptFile], options: _FilesOptions, between: tuple[str, str] | None
) -> None:
    if options.path is None:
        raise click.UsageError("--contents and --between need the path of a file")
    archive, path = find_archive(files, options.path)
    if between is None:
        if not options.as_json:
            raise click.UsageError("--contents needs --json")
        calls = list(dict.fromkeys(change.call for change in archive.changes_to(path)))
        points = [ContentPoint(call, "before") for call in calls[:1]] + [ContentPoint(call, "after") for call in calls]
        rows = [_content_row(point, archive.content(path, point.call, point.side)) for point in points]
        changes = [change_row(archive, change) for change in archive.changes_to(path)]
        print_json({"path": path, "changes": changes, "points": rows,
                    "disagreements": tuple(archive.timeline_of(path).disagreements)})  # fmt: skip
        return
    ends = [resolve_point(archive, path, *_point_options(name)) for name in between]
    recovered = [archive.content(path, point.call, point.side) for point in ends]
    sides: list[FileContent] = [
        item.content if isinstance(item.content, Absent) else known_text(item) for item in recovered
    ]
    diff = diff_between(sides[0], sides[1], path)
    if options.as_json:
        heads = [{"call": point.call, "side": point.side, "confidence": item.confidence, "reasons": item.reasons}
                 for point, item in zip(ends, recovered, strict=True)]  # fmt: skip
        print_json({"path": path, "from": heads[0], "to": heads[1], "diff": diff})
        return
    out = make_console()
    for point, item in zip(ends, recovered, strict=True):
        print_reasons(out, confidence_line(path, point, item), item)
    for line in diff_lines(diff, 0 if options.full_diff else _MAX_DIFF_LINES):
        out.print(line, soft_wrap=True)


def _point_options(name: str) -> tuple[str | None, str | None]:
    """Return the values of --before and --after for a point such as `CALL` or `before:CALL`."""
    return (name.removeprefix("before:"), None) if name.startswith("before:") else (None, name)


def confidence_line(path: str, point: ContentPoint, recovered: RecoveredContent) -> Text:
    """Return one line that states the file, the point in time and how certain the content is."""
    line = Text(plain_line(f"{path} {point.side} {point.call}", 1_000) + ": ")
    line.append(recovered.confidence, style=f"bold {_CONFIDENCE_STYLES[recovered.confidence]}")
    if isinstance(recovered.content, Absent):
        line.append(", the file did not exist")
    return line


def print_reasons(out: Console, heading: Text, recovered: RecoveredContent) -> None:
    """Print a heading followed by the reasons for the confidence."""
    out.print(heading, soft_wrap=True)
    for reason in recovered.reasons:
        out.print(Text(f"  {plain_line(reason, 400)}", style="dim"), soft_wrap=True)


def _print_history(files: Sequence[TranscriptFile], name: str, options: _FilesOptions) -> None:
    archive, path = find_archive(files, name)
    changes = [change for change in archive.changes_to(path) if _accepts_change(options.call_filter, change)]
    visible_changes = changes[-options.limit :]  # all of them if the limit is 0
    if options.as_json:
        print_json(*(change_row(archive, change) for change in visible_changes))
        return
    out = make_console()
    lines = [Text(plain_line(path, 2_000), style="bold")]
    for change in visible_changes:
        diff = diff_lines(diff_of_change(archive, change), 0 if options.full_diff else _MAX_DIFF_LINES)
        lines += [Text(), _change_headline(change, out.width), *diff]
    for line in (*lines, Text()):
        out.print(line, soft_wrap=True)
    attempts = sum(
        change.path == path and _accepts_change(options.call_filter, change) for change in archive.failed_changes
    )
    more = lists.limit_note(len(visible_changes), len(changes))
    failed = f"; {format_count(attempts, 'further call')} failed" if attempts else ""
    out.print(f"{format_count(len(changes), 'change')}{more}{failed}", highlight=False)
    for disagreement in archive.timeline_of(path).disagreements:
        call = f"before {short_id(disagreement.call)[:12]} " if disagreement.call else ""
        words = plain_line(disagreement.words, max(out.width * 2, 160))
        out.print(Text(f"! {call}{words}", style="yellow"), soft_wrap=True)


def _change_headline(change: FileChange, width: int) -> Text:
    line = Text()
    line.append(f"{format_time(parse_timestamp(change.at))}  ", style="dim")
    line.append(f"{change.kind:8} ", style="bold")
    if change.added is not None:
        line.append(f"+{change.added} ", style="green").append(f"−{change.removed} ", style="red")
    moved = change.moved_from or change.moved_to
    way = f"{'from' if change.moved_from else 'to'} {moved}" if moved else None
    who = join_parts(way, change.tool, change.call, (change.session or "")[:8], change.agent)
    line.append(plain_line(who, 400), style="dim")
    if not change.is_complete:
        line.append(" (incompletely recorded)", style="yellow")
    line.truncate(max(width, 60), overflow="ellipsis")
    return line


def diff_lines(diff: str, max_lines: int) -> Iterator[Text]:
    """Yield the coloured lines of a diff, at most `max_lines` unless it is 0."""
    lines = plain_lines(diff.rstrip("\n")) if diff else []
    for line in lines[: max_lines or None]:
        yield diff_line(line[:2_000])
    if max_lines and len(lines) > max_lines:
        yield Text(f"… {format_count(len(lines) - max_lines, 'more line')} (--diff: all)", style="dim")


def _print_totals(files: Sequence[TranscriptFile], options: _FilesOptions) -> None:
    folder = str(Path(options.path).resolve()) if options.path else None
    totals = FileTotalsCollector()
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        is_large = sum(file.size for file in files) >= select.MIN_CACHED_BYTES
        is_cached = is_large or any(is_remote(file.path) for file in files)
        for changes in changes_by_project(files, advance, warn, cached=is_cached):
            for change in changes:
                if _accepts_change(options.call_filter, change) and (folder is None or is_within(change.path, folder)):
                    totals.add(change)
    all_rows = totals.rows()
    selects_failures = options.call_filter.state or options.call_filter.error
    rows = all_rows if selects_failures else [row for row in all_rows if row.changes]
    if not all_rows:
        select.explain_nothing(options.call_filter, [file.path for file in files])
    if options.sort is not None:
        rows = options.sort.sort(rows, getattr)
    visible_rows = lists.limit_rows(rows, options.limit, options.sort)
    if options.as_json:
        print_json(*visible_rows)
        return
    out = make_console()
    columns = ["file", "changes", "lines", "errors", "last"] + ["by"] * (out.width >= _WIDE)
    table = make_table(*columns, right=("changes", "errors"), cut=("file",))
    for row in visible_rows:
        cells = _totals_cells(row, out.width)
        table.add_row(*(cells[column] for column in columns))
    if visible_rows:
        out.print(table)
    more = lists.limit_note(len(visible_rows), len(rows), "first" if options.sort else "last")
    added, removed = sum(row.added for row in rows), sum(row.removed for row in rows)
    out.print(f"{format_count(len(rows), 'file')}, +{added:,} −{removed:,} lines{more}")
    if unchanged := len(all_rows) - len(rows):
        out.print(f"[dim]Calls failed to change {format_count(unchanged, 'more file')}.[/]")
    if rows:
        lists.print_hints(
            options.names, ("files PATHS --path FILE", "shows its changes"), ("restore FILE PATHS", "gets it back")
        )


def _totals_cells(row: FileTotals, width: int) -> dict[str, str | TargetCell]:
    path = row.path
    for folder, prefix in ((select.current_folder(), ""), (Path.home(), "~/")):
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
        "errors": f"[red]{row.errors}[/]" if row.errors else "",
        "last": format_time(parse_timestamp(row.last))[: 16 if width >= _WIDE else 10],
        "by": escape_markup(sessions + agents),
    }
