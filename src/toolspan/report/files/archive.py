"""Which files were changed, by whom, how; and what they held at any time.

In: transcripts that are read together. Out: `FileArchive`: changes, totals per file, the life of
one file, its content before or after a call. Nothing is written here, and of the disk only the
copies that clients keep are read. Read `FileArchive` first; `content.py` has the reasoning.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

from msgspec import Struct

from toolspan.errors import Ambiguous, NotFound
from toolspan.read.transcript import Transcript
from toolspan.report.files.change import FileChange
from toolspan.report.files.content import Life, Point, Recovered, Side
from toolspan.report.files.doubt import may_write
from toolspan.report.files.effect import Wrote
from toolspan.report.files.place import ends_with, spelled, whole
from toolspan.report.files.printed import Sight
from toolspan.report.files.told import ChangeKind
from toolspan.report.files.walk import Attempt, Key, Ran, Wants, What, walk

_BETWEEN = "anybody may have written it between two sessions"


class FileTotals(Struct, frozen=True, kw_only=True):
    """One file and what became of it in short."""

    path: str
    changes: int
    """Calls that changed it."""
    added: int
    removed: int
    known: bool
    """The lines of every change could be counted."""
    created: int
    deleted: int
    errors: int
    """Changes that were asked for and did not succeed."""
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    first: str | None
    last: str | None
    last_call: str | None


class FileArchive:
    """What some transcripts tell about files."""

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        wants: Wants = lambda _: True,
        *,
        contents: bool = True,
    ) -> None:
        """Read what transcripts tell of the wanted paths; without contents only the changes."""
        self._walk = walk(transcripts, wants, contents=contents)
        self._lives: dict[str, Life] = {}

    @cached_property
    def changes(self) -> list[FileChange]:
        """Every change that took effect, in order."""
        return [one.what for one in self._walk.happenings if isinstance(one.what, FileChange)]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Changes that did not succeed, in order."""
        return [one.what for one in self._walk.happenings if isinstance(one.what, Attempt)]

    @property
    def touches(self) -> list[FileChange | Attempt]:
        """Both, in order."""
        found = (one.what for one in self._walk.happenings)
        return [what for what in found if isinstance(what, FileChange | Attempt)]

    @property
    def calls(self) -> list[str]:
        """The ids of all calls, those that changed nothing included."""
        return list(self._walk.calls)

    def totals(self) -> list[FileTotals]:
        """One row per file that was changed, or was to be; the one changed last comes last."""
        tally = Tally()
        for one in self.touches:
            tally.add(one)
        return tally.rows()

    def find(self, word: str, cwd: str | None = None) -> str:
        """The path of the changed file that a word means: all of it, or its last parts.

        Raises:
            NotFound: no such file was changed.
            Ambiguous: several were.
        """
        paths = dict.fromkeys(change.path for change in self.changes)
        paths.update(dict.fromkeys(attempt.path for attempt in self.attempts))
        for meant in (word, whole(word, cwd)):
            if meant in paths:
                return meant
        found = [path for path in paths if ends_with(path, PurePath(word).as_posix())]
        if not found:
            raise NotFound(f"no call in these transcripts changed {spelled(word)}")
        if len(found) > 1:
            some = ", ".join(map(spelled, found[:4]))
            raise Ambiguous(f"{len(found)} changed files end in {spelled(word)}: {some}")
        return found[0]

    def changes_to(self, path: str) -> list[FileChange]:
        """The changes of one file, in order."""
        return [change for change in self.changes if change.path == path]

    def life(self, path: str) -> Life:
        """All that is known of one file's content."""
        if path not in self._lives:
            points = [point for _, point in self._points(path)]
            self._lives[path] = Life(points, self._at_source)
        return self._lives[path]

    def content(self, path: str, call: str, side: Side) -> Recovered:
        """What a file held right before or after a call; the call need not be of this file.

        Raises:
            NotFound: there is no such call among those that have to do with files.
        """
        life = self.life(path)
        slot = life.slot(call, side)
        if slot is None:
            slot = self._slot_by_time(path, call, side)
        return life.at(slot, side)

    def _at_source(self, path: str, call: str | None) -> Recovered | None:
        """What a moved file held before the move."""
        return None if call is None else self.content(path, call, "before")

    def _slot_by_time(self, path: str, call: str, side: Side) -> int:
        key = self._walk.calls.get(call)
        if key is None:
            raise NotFound(f"no call in these transcripts has the id {call}")
        keys = [at for at, _ in self._points(path)]
        return bisect_left(keys, key) if side == "before" else bisect_right(keys, key)

    def _points(self, path: str) -> Iterator[tuple[Key, Point]]:
        lasting: str | None = None
        session: str | None = None
        for one in self._walk.happenings:
            point = _point(one.what, path)
            if point is None:
                continue
            if session not in (None, one.session):
                yield one.key, Point(call=None, what="time", doubt=_BETWEEN)
            session = one.session
            yield one.key, point
            if isinstance(one.what, Ran) and one.what.lasting:
                lasting = f"{point.doubt} (in the background)"
            elif lasting:
                yield one.key, Point(call=None, what="a background command", doubt=lasting)


def _point(what: What, path: str) -> Point | None:
    """What happened, as far as it has to do with one file."""
    match what:
        case FileChange() if what.path == path:
            after = what.effect.content if isinstance(what.effect, Wrote) else None
            return Point(
                call=what.call, what=what.tool, before=what.before, after=after, effect=what.effect
            )
        case Sight() if what.path == path:
            return Point(
                call=what.call, what=what.what, before=what.content, seen=True, parts=what.parts
            )
        case Attempt() if what.path == path and what.half:
            words = f"{what.tool} {what.call} was cut off and may have written it"
            return Point(call=what.call, what=what.tool, doubt=words)
        case Ran():
            why = _suspicion(what, path)
            return Point(call=what.call, what=what.tool, doubt=why) if why else None
        case _:
            return None


def _suspicion(ran: Ran, path: str) -> str | None:
    """Why a call may have written a file; None when it cannot have."""
    name = f"{ran.tool} {ran.call}"
    if ran.anything is not None:
        told = ran.anything if " " in ran.anything else f"subagent {ran.anything} of {name}"
        return f"{told} may have written it"
    if ran.names:
        file = PurePath(path.replace("\\", "/")).name.encode("utf-8", "replace")
        return f"{name} names it and may have written it" if file in ran.names else None
    if any(may_write(command, path, ran.cwd) for command in ran.commands):
        return f"{name} ran a command that may have written it"
    return None


class Tally:
    """Adds up what was done to each file."""

    def __init__(self) -> None:
        self._changes: dict[str, list[_Brief]] = {}
        self._errors: dict[str, set[str]] = {}

    def add(self, one: FileChange | Attempt) -> None:
        """Count a change, or one that failed; a call that is told twice counts once."""
        rows = self._changes.setdefault(one.path, [])
        if isinstance(one, Attempt):
            self._errors.setdefault(one.path, set()).add(one.call)
        elif all(row.call != one.call for row in rows):
            rows.append(_brief(one))

    def rows(self) -> list[FileTotals]:
        """One row per file, the one changed last at the end."""
        found = [
            _totals(path, sorted(changes, key=lambda row: row.at or ""), self._errors.get(path, ()))
            for path, changes in self._changes.items()
        ]
        return sorted(found, key=lambda row: (row.last or "", row.path))


class _Brief(NamedTuple):
    """A change without what it changed."""

    call: str
    at: str | None
    kind: ChangeKind
    added: int | None
    removed: int | None
    session: str | None
    agent: str | None


def _brief(one: FileChange) -> _Brief:
    return _Brief(one.call, one.at, one.kind, one.added, one.removed, one.session, one.agent)


def _totals(path: str, changes: Sequence[_Brief], errors: Collection[str]) -> FileTotals:
    last = changes[-1] if changes else None
    return FileTotals(
        path=path,
        changes=len(changes),
        added=sum(change.added or 0 for change in changes),
        removed=sum(change.removed or 0 for change in changes),
        known=all(change.added is not None for change in changes),
        created=sum(change.kind == "created" for change in changes),
        deleted=sum(change.kind == "deleted" for change in changes),
        errors=len(errors),
        sessions=_distinct(change.session for change in changes),
        agents=_distinct(change.agent for change in changes),
        first=changes[0].at if changes else None,
        last=last.at if last else None,
        last_call=last.call if last else None,
    )


def _distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))
