"""What is asked about files, and what is read for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import Struct
from rich.text import Text

from toolspan.analysis.file_history.archive import (
    FileArchive,
    FileTotals,
    FileTotalsCollector,
    archive_about,
    archives_by_project,
    change_row,
    diff_of_change,
    known_text,
)
from toolspan.analysis.file_history.changes import FileChange
from toolspan.analysis.file_history.content import (
    Absent,
    CallSide,
    Confidence,
    Disagreement,
    FileExcerpt,
    RecoveredContent,
)
from toolspan.analysis.file_history.events import FailedChange
from toolspan.analysis.file_history.shell_writes import is_within, path_ends_with, printable_path
from toolspan.cli.output import (
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
from toolspan.cli.select import (
    CallFilter,
    current_folder,
    filter_by_project,
    filter_options,
    find_session_files,
    is_folder,
    limit_note,
    limit_option,
    locate_files,
    make_filter,
    require_session,
)
from toolspan.errors import Ambiguous, NotFound
from toolspan.formats.detect import detect_dialect
from toolspan.formats.source import source_for_path
from toolspan.reading.discovery import TranscriptFile
from toolspan.reading.history import match_prefix, short_id
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from rich.console import Console


class FilesOptions(NamedTuple):
    """What is asked for."""

    path: str | None
    call_filter: CallFilter
    limit: int
    as_json: bool
    full_diff: bool


def accepts_change(call_filter: CallFilter, change: FileChange | FailedChange) -> bool:
    """Whether a change is wanted; files were chosen by client and project before."""
    if isinstance(change, FailedChange):
        state, error = change.state, change.error_kind or ""
    else:
        state, error = "succeeded", ""
    at = parse_timestamp(change.at)
    return (
        (not call_filter.tool or change.tool.casefold() in call_filter.tool)
        and (not call_filter.state or state in call_filter.state)
        and (not call_filter.error or error in call_filter.error)
        and (call_filter.session is None or (change.session or "").startswith(call_filter.session))
        and (call_filter.agent is None or (change.agent or "").startswith(call_filter.agent))
        and (call_filter.since is None or (at is not None and at >= call_filter.since))
        and (call_filter.until is None or (at is not None and at < call_filter.until))
    )


def read_archives(files: Sequence[TranscriptFile]) -> Iterator[FileArchive]:
    """What is known of the files of each session; a transcript that cannot be read is told of."""
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        yield from archives_by_project(files, advance, _warn_unreadable)


def find_archive(files: Sequence[TranscriptFile], word: str) -> tuple[FileArchive, str]:
    """All that is known of the file a word means.

    Raises:
        NotFound: no call changed it, or several such files were changed.
    """
    name = PurePath(word.replace("\\", "/")).name
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        archive = archive_about(files, name, lambda path: path_ends_with(path, name), advance, _warn_unreadable)
    return archive, archive.find_path(word, str(current_folder()))


def _warn_unreadable(message: str) -> None:
    """Tell of a transcript that could not be read."""
    warn(message)


_CONFIDENCE_STYLES: dict[Confidence, str] = {
    "exact": "green",
    "derived": "green",
    "doubtful": "yellow",
    "partial": "yellow",
    "unknown": "red",
}


class ContentRow(Struct, frozen=True, kw_only=True):
    """A content, for programs."""

    path: str
    call: str
    side: CallSide
    confidence: Confidence
    reasons: tuple[str, ...]
    exists: bool | None
    """Whether there was a file; null where nobody knows."""
    content: str | None
    parts: tuple[FileExcerpt, ...]
    disagreements: tuple[Disagreement, ...]


class ContentPoint(NamedTuple):
    """Before or after which call."""

    call: str
    side: CallSide


def resolve_point(archive: FileArchive, path: str, before: str | None, after: str | None) -> ContentPoint:
    """The time that is meant; without a call, after the last change.

    Raises:
        NotFound: no call has that name, or more than one.
        click.UsageError: both sides are asked for.
    """
    if before is not None and after is not None:
        raise click.UsageError("--before and --after: one of them")
    call_prefix = before if before is not None else after
    changes = archive.changes_to(path)
    if call_prefix is None:
        if not changes:
            raise NotFound(f"no call that changed {printable_path(path)} succeeded")
        return ContentPoint(changes[-1].call, "after")
    changing_calls = list(dict.fromkeys(change.call for change in changes))
    try:
        call = match_prefix(call_prefix, changing_calls, "call that changed the file")
    except Ambiguous:
        raise
    except NotFound:
        call = match_prefix(call_prefix, archive.calls, "call", hint=short_id)
    return ContentPoint(call, "before" if before is not None else "after")


def print_content(
    files: Sequence[TranscriptFile], options: FilesOptions, before: str | None, after: str | None
) -> None:
    """What a file held before or after a call, and how sure that is."""
    if options.path is None:
        raise click.UsageError("--content, --before and --after need the path of a file")
    archive, path = find_archive(files, options.path)
    point = resolve_point(archive, path, before, after)
    recovered = archive.content(path, point.call, point.side)
    if options.as_json:
        print_json(_content_row(archive, path, point, recovered))
        return
    print_reasons(make_console(stderr=True), confidence_line(path, point, recovered), recovered)
    if not isinstance(recovered.content, Absent):
        click.echo(_terminal_safe(known_text(recovered)), nl=False)


def _terminal_safe(text: str) -> str:
    """A text for a terminal; for a pipe it is left as it is."""
    if sys.stdout.isatty():
        return "\n".join(plain_lines(text))
    return text.encode("utf-8", "replace").decode()


def confidence_line(path: str, point: ContentPoint, recovered: RecoveredContent) -> Text:
    """What was found and how sure it is, in one line."""
    line = Text(plain_line(f"{path} {point.side} {point.call}", 1_000) + ": ")
    line.append(recovered.confidence, style=f"bold {_CONFIDENCE_STYLES[recovered.confidence]}")
    if isinstance(recovered.content, Absent):
        line.append(", there was no such file")
    return line


def print_reasons(out: Console, heading: Text, recovered: RecoveredContent) -> None:
    """A heading, and below it why what was found is as sure as it is."""
    out.print(heading, soft_wrap=True)
    for reason in recovered.reasons:
        out.print(Text(f"  {plain_line(reason, 400)}", style="dim"), soft_wrap=True)


def _content_row(archive: FileArchive, path: str, point: ContentPoint, recovered: RecoveredContent) -> ContentRow:
    absent = isinstance(recovered.content, Absent)
    is_known = recovered.content is not None or bool(recovered.parts)
    return ContentRow(
        path=path,
        call=point.call,
        side=point.side,
        confidence=recovered.confidence,
        reasons=recovered.reasons,
        exists=not absent if is_known else None,
        content=recovered.content if isinstance(recovered.content, str) else None,
        parts=recovered.parts,
        disagreements=tuple(archive.timeline_of(path).disagreements),
    )


_MAX_DIFF_LINES = 60


def print_history(files: Sequence[TranscriptFile], options: FilesOptions) -> None:
    """Each change of a file with its diff."""
    archive, path = find_archive(files, options.path or "")
    changes = [entry for entry in archive.changes_to(path) if accepts_change(options.call_filter, entry)]
    attempts = [
        entry for entry in archive.failed_changes if entry.path == path and accepts_change(options.call_filter, entry)
    ]
    if options.as_json:
        for change in changes[-options.limit :]:  # all of them, when it is 0
            print_json(change_row(archive, change))
        return
    out = make_console()
    visible_changes = changes[-options.limit :] if options.limit else changes
    for line in _history_lines(archive, path, visible_changes, options, out.width):
        out.print(line, soft_wrap=True)
    more = limit_note(len(visible_changes), len(changes))
    failed = f"; {format_count(len(attempts), 'further call')} did not succeed" if attempts else ""
    out.print(f"{format_count(len(changes), 'change')}{more}{failed}", highlight=False)
    for disagreement in archive.timeline_of(path).disagreements:
        out.print(_disagreement_line(disagreement, out.width), soft_wrap=True)


def _history_lines(
    archive: FileArchive, path: str, changes: Sequence[FileChange], options: FilesOptions, width: int
) -> Iterator[Text]:
    yield Text(plain_line(path, 2_000), style="bold")
    for change in changes:
        yield Text()
        yield _change_headline(change, width)
        yield from diff_lines(diff_of_change(archive, change), 0 if options.full_diff else _MAX_DIFF_LINES)
    yield Text()


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
        line.append(" (not wholly recorded)", style="yellow")
    line.truncate(max(width, 60), overflow="ellipsis")
    return line


def diff_lines(diff: str, max_lines: int) -> Iterator[Text]:
    """A diff in its colours, at most so many lines of it; 0 for all."""
    lines = plain_lines(diff.rstrip("\n")) if diff else []
    for line in lines[: max_lines or None]:
        yield diff_line(line[:2_000])
    if max_lines and len(lines) > max_lines:
        yield Text(f"… {format_count(len(lines) - max_lines, 'more line')} (--diff: all)", style="dim")


def _disagreement_line(disagreement: Disagreement, width: int) -> Text:
    call = f"before {short_id(disagreement.call)[:12]} " if disagreement.call else ""
    return Text(f"! {call}{plain_line(disagreement.words, max(width * 2, 160))}", style="yellow")


def print_totals(files: Sequence[TranscriptFile], options: FilesOptions) -> None:
    """Every file that was changed, the last one last."""
    folder = str(Path(options.path).resolve()) if options.path else None
    tally = FileTotalsCollector()
    for archive in read_archives(files):
        for change in archive.changes_and_failures:
            if accepts_change(options.call_filter, change) and (folder is None or is_within(change.path, folder)):
                tally.add(change)
    rows = tally.rows()
    if options.as_json:
        for row in rows[-options.limit :]:  # all of them, when it is 0
            print_json(row)
        return
    _print_totals_rows(rows, options.limit)


def _print_totals_rows(rows: Sequence[FileTotals], limit: int) -> None:
    out = make_console()
    visible_rows = rows[-limit:] if limit else rows
    wide = out.width >= 100
    columns = ["file", "changes", "lines", "errors", "last"] + ["by"] * wide
    listing = make_table(*columns, right=("changes", "errors"), cut=("file",))
    for row in visible_rows:
        cells = _totals_cells(row, out.width)
        listing.add_row(*(cells[column] for column in columns))
    if visible_rows:
        out.print(listing)
    more = limit_note(len(visible_rows), len(rows))
    added, removed = sum(row.added for row in rows), sum(row.removed for row in rows)
    out.print(f"{format_count(len(rows), 'file')}, +{added:,} −{removed:,} lines{more}")


def _totals_cells(row: FileTotals, width: int) -> dict[str, str]:
    mark = "" if row.known else " ?"
    lines = f"[green]+{row.added:,}[/] [red]−{row.removed:,}[/]{mark}" if row.changes else ""
    sessions = format_count(len(row.sessions), "session") if len(row.sessions) != 1 else row.sessions[0][:8]
    agents = f" ↳ {len(row.agents)}" if row.agents else ""
    fate = " (new)" if row.created else ""
    fate = " (deleted)" if row.deleted else fate
    path_width = max(width - (60 if width >= 100 else 48), 20)
    return {
        "file": escape_markup(_keep_path_end(_shorten_path(row.path), path_width - len(fate))) + f"[dim]{fate}[/]",
        "changes": str(row.changes),
        "lines": lines,
        "errors": f"[red]{row.errors}[/]" if row.errors else "",
        "last": format_time(parse_timestamp(row.last))[: 16 if width >= 100 else 10],
        "by": escape_markup(sessions + agents),
    }


def _shorten_path(path: str) -> str:
    """A path as short as it is still clear: below the current folder, or below the home."""
    for folder, sign in ((current_folder(), ""), (Path.home(), "~/")):
        if is_within(path, str(folder)) and path != str(folder):
            return sign + str(PurePath(path).relative_to(folder))
    return path


def _keep_path_end(path: str, width: int) -> str:
    return path if len(path) <= width else "…" + path[-(width - 1) :]


_TRANSCRIPT_SUFFIXES = (".jsonl", ".jsonl.zst")


@click.command("files")
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION|PATH]...")
@click.option("--path", help="The file, or the folder, whose changes are asked for.")
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--diff", "with_diff", is_flag=True, help="The diff of every change, in full length.")
@click.option("--content", is_flag=True, help="What the file held; with --before or --after.")
@click.option("--before", metavar="CALL", help="Its content right before this call.")
@click.option("--after", metavar="CALL", help="Its content right after this call.")
@limit_option(40, "Rows")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
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
    limit: int,
    as_json: bool,
    **filter_values: Any,
) -> None:
    """What calls did to files.

    Without a path: every file that was changed, with lines added and removed, the last one last.
    With the path of a file, or its last parts: each change of it with its diff. With --content:
    what it held before or after a call, and how sure that is.
    """
    call_filter = make_filter(filter_values)
    transcripts, path = _split_names(names, path)
    options = FilesOptions(path, call_filter, limit, as_json, with_diff)
    files, _ = locate_files(transcripts, last=last)
    if call_filter.dialect is not None:
        files = [file for file in files if detect_dialect(source_for_path(file.path)) == call_filter.dialect]
    require_session(call_filter.session, files)
    files = filter_by_project(call_filter.project, files)
    if content or before or after:
        print_content(files, options, before, after)
    elif path is None or is_folder(path):
        print_totals(files, options)
    else:
        print_history(files, options)


def _split_names(names: Sequence[str], path: str | None) -> tuple[list[str], str | None]:
    """Which words name transcripts, and which one a file that was changed.

    Raises:
        Ambiguous: several paths are named.
    """
    paths = [name for name in names if not _is_transcript_name(name)]
    if path is not None:
        paths.append(path)
    if len(paths) > 1:
        raise Ambiguous(f"{' and '.join(paths)}: files tells of one path at a time")
    return [name for name in names if _is_transcript_name(name)], paths[0] if paths else None


def _is_transcript_name(name: str) -> bool:
    if name.endswith(_TRANSCRIPT_SUFFIXES) or is_folder(name):
        return True
    if "/" in name or "." in name:
        return False
    try:
        find_session_files(name)
    except Ambiguous:
        return True
    except NotFound:
        return False
    return True
