"""A change of a file as something tells it, not yet tied to its call.

In: contents, effects, hunks. Out: a `Told`, with the lines counted as far as anybody knows them.
"""

from typing import Literal

from msgspec import Struct

from toolspan.model.hunk import Hunk
from toolspan.patch import ChangeCount, PatchError, added_removed, problems
from toolspan.patch.make import make
from toolspan.report.files.effect import ABSENT, Absent, Content, Edited, Effect, Wrote, forwards

ChangeKind = Literal["created", "edited", "deleted", "moved"]


class Told(Struct, frozen=True, kw_only=True):
    """A change before it is tied to its call."""

    path: str
    kind: ChangeKind
    effect: Effect
    hunks: tuple[Hunk, ...] = ()
    count: ChangeCount | None = None
    before: Content | None = None
    moved_from: str | None = None
    moved_to: str | None = None


def created(path: str, content: str) -> Told:
    """A file that was not there."""
    hunks = tuple(make("", content))
    return Told(
        path=path,
        kind="created",
        effect=Wrote(content=content, created=True),
        hunks=hunks,
        count=added_removed(hunks),
        before=ABSENT,
    )


def changed(path: str, effect: Edited | Wrote, before: str | None) -> Told:
    """A change of a file that was there; a record of it that does not fit is not believed."""
    hunks = sound(effect.hunks)
    if before is not None:
        try:
            after = forwards(effect, before)
        except PatchError:
            before = None  # newer clients keep only the beginning of large files
        else:
            hunks = hunks or tuple(make(before, "" if isinstance(after, Absent) else after))
    known = bool(hunks) or before is not None
    return Told(
        path=path,
        kind="edited",
        effect=effect,
        hunks=hunks,
        count=added_removed(hunks) if known else _counted(effect),
        before=before,
    )


def sound(hunks: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """Hunks that can be believed; none where something is wrong with them."""
    return () if problems(hunks) else hunks


def _counted(effect: Edited | Wrote) -> ChangeCount | None:
    """Lines of texts whose place is not known; of several places nobody knows how many."""
    if isinstance(effect, Wrote) or any(edit.replace_all for edit in effect.edits):
        return None
    pairs = [make(edit.old_string or "", edit.new_string or "") for edit in effect.edits]
    return added_removed([hunk for hunks in pairs for hunk in hunks])


def assumed(path: str, content: str) -> Told:
    """A file that was written whole; whether one was there before is not said."""
    told = created(path, content)
    effect = Wrote(content=content, created=True, assumed=True)
    return Told(path=path, kind="created", effect=effect, hunks=told.hunks, count=told.count)
