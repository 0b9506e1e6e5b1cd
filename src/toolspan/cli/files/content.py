"""`toolspan files PATH --content`: what one file held, and how sure that is."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec import Struct
from rich.text import Text

from toolspan.cli.draw import plain_line, plain_lines
from toolspan.cli.files.asked import Wish, about
from toolspan.cli.output import console, print_json
from toolspan.errors import Ambiguous, NotFound
from toolspan.read.discover import FoundFile
from toolspan.read.history import pick, short_id
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.content import Confidence, Disagreement, Part, Recovered, Side
from toolspan.report.files.effect import Absent
from toolspan.report.files.place import spelled
from toolspan.report.files.story import known_lines

if TYPE_CHECKING:
    from rich.console import Console

_STYLE: dict[Confidence, str] = {
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


def print_content(
    files: Sequence[FoundFile], wish: Wish, before: str | None, after: str | None
) -> None:
    """What a file held before or after a call, and how sure that is."""
    if wish.path is None:
        raise click.UsageError("--content, --before and --after need the path of a file")
    archive, path = about(files, wish.path)
    when = moment_of(archive, path, before, after)
    found = archive.content(path, when.call, when.side)
    if wish.as_json:
        print_json(_content_row(archive, path, when, found))
        return
    print_reasons(console(stderr=True), confidence_line(path, when, found), found)
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
    line.append(found.confidence, style=f"bold {_STYLE[found.confidence]}")
    if isinstance(found.content, Absent):
        line.append(", there was no such file")
    return line


def print_reasons(out: "Console", heading: Text, found: Recovered) -> None:
    """A heading, and below it why what was found is as sure as it is."""
    out.print(heading, soft_wrap=True)
    for reason in found.reasons:
        out.print(Text(f"  {plain_line(reason, 400)}", style="dim"), soft_wrap=True)


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
