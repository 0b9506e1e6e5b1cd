"""The file changes of one call.

In: a span of either dialect and its working folder. Out: a `FileChange` for every file the call
changed, with the effect that leads from one content to the other. Only calls that took effect
change anything; what others may have done half is a doubt (`doubt.py`). Who tells of a change:
`by_editor.py`, `by_patch.py`, `by_command.py`. Read `changes_of`.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.hunk import Hunk
from toolspan.model.place import Place
from toolspan.model.span import Span
from toolspan.report.files.by_command import by_command
from toolspan.report.files.by_editor import by_editor
from toolspan.report.files.by_patch import PATCHERS, by_patch, holds_patch
from toolspan.report.files.effect import Content, Effect, Unclear
from toolspan.report.files.told import ChangeKind, Told


class FileChange(Struct, frozen=True, kw_only=True):
    """What one call did to one file."""

    path: str
    kind: ChangeKind
    call: str
    tool: str
    at: str | None
    """When it was done, as the client wrote it."""
    session: str | None
    agent: str | None
    place: Place
    """Where the result stands."""
    added: int | None
    """Lines; None where nobody knows."""
    removed: int | None
    hunks: tuple[Hunk, ...] = ()
    """What changed, with line numbers; none where the place of the lines is not known."""
    effect: Effect
    before: Content | None = None
    """The content before as the client recorded it; None: it did not."""
    moved_from: str | None = None
    moved_to: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the record tells all that was done to the file."""
        return not isinstance(self.effect, Unclear)


def changes_of(span: Span, cwd: str | None) -> list[FileChange]:
    """What a call changed; nothing for calls that did not succeed or change no files."""
    if span.state != "succeeded" or span.result is None:
        return []
    try:
        told = list(_told(span, cwd))
    except SourceError:
        return []
    return [_tied(one, span) for one in told]


def may_change(span: Span) -> bool:
    """Whether a call is of a tool that changes files by itself."""
    return span.call.kind in ("edit", "write", "shell") or span.tool in PATCHERS


def _tied(told: Told, span: Span) -> FileChange:
    assert span.result is not None
    added, removed = told.count if told.count is not None else (None, None)
    return FileChange(
        path=told.path,
        kind=told.kind,
        call=span.id,
        tool=span.tool,
        at=span.result.finished_at or span.call.requested_at,
        session=span.call.session_id,
        agent=span.call.agent_id,
        place=span.result.place,
        added=added,
        removed=removed,
        hunks=told.hunks,
        effect=told.effect,
        before=told.before,
        moved_from=told.moved_from,
        moved_to=told.moved_to,
    )


def _told(span: Span, cwd: str | None) -> Iterator[Told]:
    if holds_patch(span):
        return by_patch(span, cwd)
    if span.call.kind == "shell":
        return by_command(span, cwd)
    return by_editor(span, cwd)
