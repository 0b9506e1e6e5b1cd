"""`toolspan files PATH`: the changes of one file."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from toolspan.cli.draw import diff_line, joined, plain_line, plain_lines
from toolspan.cli.files.asked import Wish, about, takes
from toolspan.cli.output import clock, console, count, print_json
from toolspan.cli.select import limit_note
from toolspan.model.span import moment
from toolspan.read.discover import FoundFile
from toolspan.read.history import short_id
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.change import FileChange
from toolspan.report.files.content import Disagreement
from toolspan.report.files.story import diff_of_change, row_of

_SHOWN_DIFF = 60


def print_history(files: Sequence[FoundFile], wish: Wish) -> None:
    """Each change of a file with its diff."""
    archive, path = about(files, wish.path or "")
    changes = [one for one in archive.changes_to(path) if takes(wish.keep, one)]
    attempts = [one for one in archive.attempts if one.path == path and takes(wish.keep, one)]
    if wish.as_json:
        for change in changes[-wish.limit :]:  # all of them, when it is 0
            print_json(row_of(archive, change))
        return
    out = console()
    shown = changes[-wish.limit :] if wish.limit else changes
    for line in _history(archive, path, shown, wish, out.width):
        out.print(line, soft_wrap=True)
    more = limit_note(len(shown), len(changes))
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
