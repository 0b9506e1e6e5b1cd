"""`toolspan files`: what calls did to files; the history of one file; its content at any time."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import click
from msgspec import Struct
from rich.text import Text

from toolspan.cli.output import (
    clock,
    console,
    count,
    escape,
    print_json,
    progress,
    table,
)
from toolspan.cli.render import diff_line, joined, plain_line, plain_lines
from toolspan.cli.select import (
    Filter,
    current_folder,
    filters,
    limited,
    locate,
    session_files,
    wanted_filter,
)
from toolspan.errors import Ambiguous, NotFound
from toolspan.model.span import moment
from toolspan.read.discover import FoundFile
from toolspan.read.history import pick, short_id
from toolspan.report.files.archive import FileArchive, FileTotals, Tally
from toolspan.report.files.change import FileChange
from toolspan.report.files.content import Confidence, Disagreement, Part, Recovered, Side
from toolspan.report.files.effect import Absent
from toolspan.report.files.gather import archive_about, archives
from toolspan.report.files.place import ends_with, spelled, within
from toolspan.report.files.story import diff_of_change, known_lines, row_of
from toolspan.report.files.walk import Attempt

_SHOWN_DIFF = 60
_TRANSCRIPTS = (".jsonl", ".jsonl.zst")
STYLE: dict[Confidence, str] = {
    "exact": "green",
    "derived": "green",
    "doubtful": "yellow",
    "partial": "yellow",
    "unknown": "red",
}


@click.command("files")
@click.argument("names", nargs=-1, metavar="[FILE|FOLDER|SESSION|PATH]...")
@click.option("--path", help="The file, or the folder, whose changes are asked for.")
@click.option("--last", is_flag=True, help="The session written to last.")
@click.option("--diff", "with_diff", is_flag=True, help="The diff of every change, in full length.")
@click.option("--content", is_flag=True, help="What the file held; with --before or --after.")
@click.option("--before", metavar="CALL", help="Its content right before this call.")
@click.option("--after", metavar="CALL", help="Its content right after this call.")
@limited(40, "Rows")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
@filters
def command(  # noqa: PLR0913 - one per option
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
    **wanted: Any,
) -> None:
    """What calls did to files.

    Without a path: every file that was changed, with lines added and removed, the last one last.
    With the path of a file, or its last parts: each change of it with its diff. With --content:
    what it held before or after a call, and how sure that is.
    """
    keep = wanted_filter(wanted)
    transcripts, path = _told_apart(names, path)
    wish = Wish(path, keep, limit, as_json, with_diff)
    files, _ = locate(transcripts, last=last)
    if content or before or after:
        _print_content(files, wish, before, after)
    elif path is None or _is_folder(path):
        _print_totals(files, wish)
    else:
        _print_history(files, wish)


class Wish(NamedTuple):
    """What is asked for."""

    path: str | None
    keep: Filter
    limit: int
    as_json: bool
    diff: bool


def _told_apart(names: Sequence[str], path: str | None) -> tuple[list[str], str | None]:
    """Which words name transcripts, and which one a file that was changed.

    Raises:
        Ambiguous: several paths are named.
    """
    paths = [name for name in names if not _names_transcripts(name)]
    if path is not None:
        paths.append(path)
    if len(paths) > 1:
        raise Ambiguous(f"{' and '.join(paths)}: files tells of one path at a time")
    return [name for name in names if _names_transcripts(name)], paths[0] if paths else None


def _names_transcripts(name: str) -> bool:
    if name.endswith(_TRANSCRIPTS) or _is_folder(name):
        return True
    if "/" in name or "." in name:
        return False
    try:
        session_files(name)
    except Ambiguous:
        return True
    except NotFound:
        return False
    return True


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def complain(words: str) -> None:
    """Tell of a transcript that could not be read."""
    click.echo(f"toolspan: {words}", err=True)


def takes(keep: Filter, one: FileChange | Attempt) -> bool:
    """Whether a change is wanted."""
    if isinstance(one, Attempt):
        state, error = one.state, one.error_kind or ""
    else:
        state, error = "succeeded", ""
    at = moment(one.at)
    return (
        (not keep.tool or one.tool.casefold() in keep.tool)
        and (not keep.state or state in keep.state)
        and (not keep.error or error in keep.error)
        and (keep.session is None or (one.session or "").startswith(keep.session))
        and (keep.agent is None or (one.agent or "").startswith(keep.agent))
        and (keep.project is None or keep.project in one.path)
        and (keep.since is None or (at is not None and at >= keep.since))
        and (keep.until is None or (at is not None and at < keep.until))
    )


# All files


def _print_totals(files: Sequence[FoundFile], wish: Wish) -> None:
    folder = str(Path(wish.path).resolve()) if wish.path else None
    tally = Tally()
    with progress(sum(file.size for file in files), "reading") as advance:
        for archive in archives(files, advance, complain):
            for one in archive.touches:
                if takes(wish.keep, one) and (folder is None or within(one.path, folder)):
                    tally.add(one)
    rows = tally.rows()
    if wish.as_json:
        for row in rows:
            print_json(row)
        return
    _print_rows(rows, wish.limit)


def _print_rows(rows: Sequence[FileTotals], limit: int) -> None:
    out = console()
    shown = rows[-limit:] if limit else rows
    wide = out.width >= 100
    columns = ["file", "changes", "lines", "errors", "last"] + ["by"] * wide
    listing = table(*columns, right=("changes", "errors"), cut=("file",))
    for row in shown:
        cells = _cells(row, out.width)
        listing.add_row(*(cells[column] for column in columns))
    if shown:
        out.print(listing)
    hidden = len(rows) - len(shown)
    more = f", the last {len(shown)} shown (--limit 0: all)" if hidden else ""
    added, removed = sum(row.added for row in rows), sum(row.removed for row in rows)
    out.print(f"{count(len(rows), 'file')}, +{added:,} −{removed:,} lines{more}")


def _cells(row: FileTotals, width: int) -> dict[str, str]:
    mark = "" if row.known else " ?"
    lines = f"[green]+{row.added:,}[/] [red]−{row.removed:,}[/]{mark}" if row.changes else ""
    sessions = (
        count(len(row.sessions), "session") if len(row.sessions) != 1 else row.sessions[0][:8]
    )
    agents = f" ↳ {len(row.agents)}" if row.agents else ""
    fate = " (new)" if row.created else ""
    fate = " (deleted)" if row.deleted else fate
    room = max(width - (60 if width >= 100 else 48), 20)
    return {
        "file": escape(_tail(shortened(row.path), room - len(fate))) + f"[dim]{fate}[/]",
        "changes": str(row.changes),
        "lines": lines,
        "errors": f"[red]{row.errors}[/]" if row.errors else "",
        "last": clock(moment(row.last))[: 16 if width >= 100 else 10],
        "by": escape(sessions + agents),
    }


def shortened(path: str) -> str:
    """A path as short as it is still clear: below the current folder, or below the home."""
    for folder, sign in ((current_folder(), ""), (Path.home(), "~/")):
        if within(path, str(folder)) and path != str(folder):
            return sign + str(PurePath(path).relative_to(folder))
    return path


def _tail(path: str, room: int) -> str:
    return path if len(path) <= room else "…" + path[-(room - 1) :]


# One file


def about(files: Sequence[FoundFile], word: str) -> tuple[FileArchive, str]:
    """All that is known of the file a word means.

    Raises:
        NotFound: no call changed it, or several such files were changed.
    """
    name = PurePath(word.replace("\\", "/")).name
    with progress(sum(file.size for file in files), "reading") as advance:
        found = archive_about(files, name, lambda path: ends_with(path, name), advance, complain)
    return found, found.find(word, str(current_folder()))


def _print_history(files: Sequence[FoundFile], wish: Wish) -> None:
    archive, path = about(files, wish.path or "")
    changes = [one for one in archive.changes_to(path) if takes(wish.keep, one)]
    attempts = [one for one in archive.attempts if one.path == path and takes(wish.keep, one)]
    if wish.as_json:
        for change in changes:
            print_json(row_of(archive, change))
        return
    out = console()
    shown = changes[-wish.limit :] if wish.limit else changes
    for line in _history(archive, path, shown, wish, out.width):
        out.print(line, soft_wrap=True)
    hidden = len(changes) - len(shown)
    more = f", the last {len(shown)} shown (--limit 0: all)" if hidden else ""
    failed = f"; {count(len(attempts), 'further call')} did not succeed" if attempts else ""
    out.print(f"{count(len(changes), 'change')}{more}{failed}", highlight=False)
    for disagreement in archive.life(path).disagreements:
        out.print(_disagreement(disagreement, out.width), soft_wrap=True)


def _history(
    archive: FileArchive, path: str, changes: Sequence[FileChange], wish: Wish, width: int
) -> Iterator[Text]:
    yield Text(plain_line(path, 2_000), style="bold")
    for change in changes:
        yield Text()
        yield _headline(change, width)
        yield from diff_lines(diff_of_change(archive, change), 0 if wish.diff else _SHOWN_DIFF)
    yield Text()


def _headline(change: FileChange, width: int) -> Text:
    line = Text()
    line.append(f"{clock(moment(change.at))}  ", style="dim")
    line.append(f"{change.kind:8} ", style="bold")
    if change.added is not None:
        line.append(f"+{change.added} ", style="green").append(f"−{change.removed} ", style="red")
    moved = change.moved_from or change.moved_to
    way = f"{'from' if change.moved_from else 'to'} {moved}" if moved else None
    who = joined(way, change.tool, change.call, (change.session or "")[:8], change.agent)
    line.append(plain_line(who, 400), style="dim")
    if not change.complete:
        line.append(" (not wholly recorded)", style="yellow")
    line.truncate(max(width, 60), overflow="ellipsis")
    return line


def diff_lines(diff: str, most: int) -> Iterator[Text]:
    """A diff in its colours, at most so many lines of it; 0 for all."""
    lines = plain_lines(diff.rstrip("\n")) if diff else []
    for line in lines[: most or None]:
        yield diff_line(line[:2_000])
    if most and len(lines) > most:
        yield Text(f"… {count(len(lines) - most, 'more line')} (--diff: all)", style="dim")


def _disagreement(found: Disagreement, width: int) -> Text:
    call = f"before {short_id(found.call)[:12]} " if found.call else ""
    return Text(f"! {call}{plain_line(found.words, max(width * 2, 160))}", style="yellow")


# Its content


class ContentRow(Struct, frozen=True, kw_only=True):
    """A content, for programs."""

    path: str
    call: str
    side: Side
    confidence: Confidence
    reasons: tuple[str, ...]
    exists: bool | None
    """Whether there was a file; null where nobody knows."""
    content: str | None
    parts: tuple[Part, ...]
    disagreements: tuple[Disagreement, ...]


class Moment(NamedTuple):
    """Before or after which call."""

    call: str
    side: Side


def moment_of(archive: FileArchive, path: str, before: str | None, after: str | None) -> Moment:
    """The time that is meant; without a call, after the last change.

    Raises:
        NotFound: no call has that name, or more than one.
        click.UsageError: both sides are asked for.
    """
    if before is not None and after is not None:
        raise click.UsageError("--before and --after: one of them")
    word = before if before is not None else after
    changes = archive.changes_to(path)
    if word is None:
        if not changes:
            raise NotFound(f"no call that changed {spelled(path)} succeeded")
        return Moment(changes[-1].call, "after")
    own = list(dict.fromkeys(change.call for change in changes))
    try:
        call = pick(word, own, "call that changed the file")
    except Ambiguous:
        raise
    except NotFound:
        call = pick(word, archive.calls, "call", hint=short_id)
    return Moment(call, "before" if before is not None else "after")


def _print_content(
    files: Sequence[FoundFile], wish: Wish, before: str | None, after: str | None
) -> None:
    if wish.path is None:
        raise click.UsageError("--content, --before and --after need the path of a file")
    archive, path = about(files, wish.path)
    when = moment_of(archive, path, before, after)
    found = archive.content(path, when.call, when.side)
    if wish.as_json:
        print_json(_content_row(archive, path, when, found))
        return
    told = console(stderr=True)
    told.print(confidence_line(path, when, found), soft_wrap=True)
    for reason in found.reasons:
        told.print(Text(f"  {plain_line(reason, 400)}", style="dim"), soft_wrap=True)
    if not isinstance(found.content, Absent):
        click.echo(_safe(known_lines(found)), nl=False)


def _safe(text: str) -> str:
    """A text for a terminal; for a pipe it is left as it is."""
    if sys.stdout.isatty():
        return "\n".join(plain_lines(text))
    return text.encode("utf-8", "replace").decode()


def confidence_line(path: str, when: Moment, found: Recovered) -> Text:
    """What was found and how sure it is, in one line."""
    line = Text(plain_line(f"{path} {when.side} {when.call}", 1_000) + ": ")
    line.append(found.confidence, style=f"bold {STYLE[found.confidence]}")
    if isinstance(found.content, Absent):
        line.append(", there was no such file")
    return line


def _content_row(archive: FileArchive, path: str, when: Moment, found: Recovered) -> ContentRow:
    absent = isinstance(found.content, Absent)
    known = found.content is not None or bool(found.parts)
    return ContentRow(
        path=path,
        call=when.call,
        side=when.side,
        confidence=found.confidence,
        reasons=found.reasons,
        exists=not absent if known else None,
        content=found.content if isinstance(found.content, str) else None,
        parts=found.parts,
        disagreements=tuple(archive.life(path).disagreements),
    )
