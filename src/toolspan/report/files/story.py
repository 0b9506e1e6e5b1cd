"""Changes as rows and as diffs: what is printed about files.

In: an archive and its changes. Out: rows without contents, diffs as text. Read `diff_of_change`.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolspan.patch import Change, unified
from toolspan.patch.envelope import Update
from toolspan.patch.make import make
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.change import FileChange
from toolspan.report.files.content import Part, Recovered
from toolspan.report.files.effect import Absent, Content, Edited, Effect, Fitted, MovedHere, Unclear
from toolspan.report.files.told import ChangeKind


class ChangeRow(Struct, frozen=True, kw_only=True):
    """One change in one row; `toolspan files PATH --json` prints exactly these fields."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    session: str | None
    agent: str | None
    file: str
    """The transcript, and the line of the result in it."""
    line: int
    added: int | None
    removed: int | None
    complete: bool
    moved_from: str | None
    moved_to: str | None
    diff: str


def row_of(archive: FileArchive, change: FileChange) -> ChangeRow:
    """The row of a change."""
    return ChangeRow(
        path=change.path,
        kind=change.kind,
        call=change.call,
        tool=change.tool,
        at=change.at,
        session=change.session,
        agent=change.agent,
        file=change.place.file,
        line=change.place.line,
        added=change.added,
        removed=change.removed,
        complete=change.complete,
        moved_from=change.moved_from,
        moved_to=change.moved_to,
        diff=diff_of_change(archive, change),
    )


def diff_of_change(archive: FileArchive, change: FileChange) -> str:
    """What a change did, as a diff; without line numbers where nobody knows them."""
    word: Change = {"created": "create", "deleted": "delete"}.get(change.kind, "update")  # type: ignore[assignment]
    if change.moved_to is not None:
        return unified((), change.moved_to, old_path=change.path)
    if change.hunks:
        return unified(change.hunks, change.path, change=word)
    before = archive.content(change.moved_from or change.path, change.call, "before").content
    after = archive.content(change.path, change.call, "after").content
    if before is not None and after is not None:
        return diff_between(before, after, change.path, old_path=change.moved_from)
    return "".join(f"{line}\n" for line in shown(change.effect))


def diff_between(before: Content, after: Content, path: str, old_path: str | None = None) -> str:
    """What leads from one content to another."""
    if isinstance(before, Absent):
        hunks = make("", "" if isinstance(after, Absent) else after)
        return "" if isinstance(after, Absent) else unified(hunks, path, change="create")
    if isinstance(after, Absent):
        return unified(make(before, ""), path, change="delete")
    return unified(make(before, after), path, old_path=old_path)


def shown(effect: Effect) -> Iterator[str]:
    """What was asked for, where its place in the file is not known."""
    match effect:
        case Fitted(section=section) | MovedHere(change=Fitted(section=section)):
            yield from _chunks(section)
        case Edited(edits=edits):
            for edit in edits:
                yield "@@ place not known @@"
                yield from (f"-{line}" for line in (edit.old_string or "").split("\n"))
                yield from (f"+{line}" for line in (edit.new_string or "").split("\n"))
        case Unclear(reason=reason):
            yield f"({reason})"
        case _:
            return


def _chunks(section: Update) -> Iterator[str]:
    for chunk in section.chunks:
        yield " ".join(("@@", *chunk.contexts, "@@ place not known @@"))
        yield from chunk.lines


def known_lines(found: Recovered) -> str:
    """The text, or what is known of it with the gaps named."""
    if isinstance(found.content, str):
        return found.content
    lines: list[str] = []
    at = 1
    for part in _merged(found.parts):
        if part.start > at:
            lines.append(f"… lines {at}-{part.start - 1} are not known …")
        lines += part.lines
        at = part.start + len(part.lines)
    return "".join(f"{line}\n" for line in lines)


def _merged(parts: Sequence[Part]) -> Iterator[Part]:
    """Parts in order, each line once."""
    at = 1
    for part in sorted(parts, key=lambda one: one.start):
        skip = max(at - part.start, 0)
        if skip < len(part.lines):
            yield Part(start=part.start + skip, lines=part.lines[skip:])
            at = part.start + len(part.lines)
