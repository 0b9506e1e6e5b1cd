"""What a file held between two calls.

In: the points of one file's life in order: what was seen of it, done to it, or may have been done
to it. Out: its content at any place between them, how sure that is, and where the records disagree.
From every content that somebody recorded, effects lead forwards and backwards; a content is exact
when it was seen there, or when both ways meet in it. Pure; `archive.py` collects the points.

Read `Life.at` first.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from toolspan.patch import PatchError
from toolspan.report.files.effect import (
    Absent,
    Content,
    Effect,
    MovedHere,
    Wrote,
    backwards,
    forwards,
)

Side = Literal["before", "after"]
_MOST_DOUBTS = 4
Confidence = Literal["exact", "derived", "doubtful", "partial", "unknown"]


class Part(Struct, frozen=True, kw_only=True):
    """Some lines of a file that are known."""

    start: int
    """The first one's number, from 1."""
    lines: tuple[str, ...]


class Point(Struct, frozen=True, kw_only=True):
    """Something that happened to a file, or that somebody saw of it."""

    call: str | None
    """None: no call, but a copy the client kept."""
    what: str
    """In words, for people: `Edit`, `Read`, `backup`."""
    before: Content | None = None
    """Seen right before."""
    after: Content | None = None
    """Seen or written right after."""
    seen: bool = False
    """What is known was read from the file, not written to it."""
    effect: Effect | None = None
    """None: the file stayed as it was."""
    doubt: str | None = None
    """Why the file may have changed here without a record."""
    parts: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        """What to call it by."""
        return f"{self.what} {self.call or ''}".strip()


class Disagreement(Struct, frozen=True, kw_only=True):
    """Two records that cannot both be the whole truth."""

    call: str | None
    """At which call it shows."""
    words: str


class Recovered(Struct, frozen=True, kw_only=True):
    """A content with how sure it is."""

    content: Content | None
    """None: not known as a whole."""
    confidence: Confidence
    reasons: tuple[str, ...]
    """Why this content, and why not surer."""
    parts: tuple[Part, ...] = ()


class _Trail(NamedTuple):
    """A content and the way it was found."""

    content: Content
    start: int
    """The point whose record it begins with."""
    seen: bool
    """It begins with something that was read from the file."""
    steps: int = 0
    doubts: tuple[str, ...] = ()
    assumed: bool = False
    """It is what usually is so, and gives way to anything that is known."""


Source = Callable[[str, str | None], "Recovered | None"]
"""The content of another path before a call; for moves."""


class Life:
    """One file from the first to the last that is known of it.

    There is a slot before each point and one behind the last; slot `n` is before point `n`.
    """

    def __init__(self, points: Sequence[Point], source: Source | None = None) -> None:
        self.points = points
        self._source = source
        self._left: list[_Trail | None] = [None]
        self._disagreements: list[Disagreement] = []

    @property
    def disagreements(self) -> list[Disagreement]:
        """Where the records of the file cannot all be the whole truth."""
        self._left_of(len(self.points))
        return self._disagreements

    def slot(self, call: str, side: Side) -> int | None:
        """The slot before or after a call; None when the call is not of this file."""
        places = [n for n, point in enumerate(self.points) if point.call == call]
        if not places:
            return None
        return places[0] if side == "before" else places[-1] + 1

    def at(self, slot: int, side: Side) -> Recovered:
        """What the file held there; seen from the call before it (`after`) or behind it."""
        left, right = self._left_of(slot), self._from_right[slot]
        if left is not None and right is not None and not right.assumed:
            return self._both(left, right, slot if side == "before" else slot - 1)
        trail = right if left is None else left
        return self._partial(slot) if trail is None else self._one(trail)

    def _left_of(self, slot: int) -> _Trail | None:
        """What a slot holds by all that came before it.

        Not further than asked for: a file that was moved asks another one what it held before,
        and that one may have come from this one earlier.
        """
        while len(self._left) <= slot:
            n = len(self._left) - 1
            self._left.append(self._step(n, self.points[n], self._left[n]))
        return self._left[slot]

    def _step(self, n: int, point: Point, trail: _Trail | None) -> _Trail | None:
        if point.before is not None:
            self._compare(point, trail)
            trail = _Trail(point.before, n, seen=True)
        if point.after is not None:
            return _Trail(point.after, n, seen=point.seen)
        if isinstance(point.effect, MovedHere):
            trail = self._brought(n, point, point.effect)
        if trail is None:
            return None
        if point.doubt is not None:
            trail = trail._replace(doubts=(*trail.doubts, point.doubt))
        if point.effect is None:
            return trail
        try:
            after = forwards(point.effect, trail.content)
        except PatchError as error:
            self._disagree(point, f"{point.what} does not fit what was there before: {error}")
            return None
        return trail._replace(content=after, steps=trail.steps + 1)

    def _brought(self, n: int, point: Point, effect: MovedHere) -> _Trail | None:
        found = self._source(effect.source, point.call) if self._source else None
        if found is None or found.content is None:
            return None
        doubts = found.reasons[-1:] if found.confidence == "doubtful" else ()
        return _Trail(found.content, n, seen=False, doubts=doubts)

    @cached_property
    def _from_right(self) -> list[_Trail | None]:
        """What each slot holds by all that came behind it."""
        found: list[_Trail | None] = [None]
        trail: _Trail | None = None
        for n in range(len(self.points) - 1, -1, -1):
            trail = _back(n, self.points[n], trail)
            found.append(trail)
        return found[::-1]

    def _compare(self, point: Point, trail: _Trail | None) -> None:
        if trail is None or point.before is None or _same(trail.content, point.before):
            return
        name = self.points[trail.start].name
        blamed = f"; perhaps {trail.doubts[-1]}" if trail.doubts else "; nobody recorded by what"
        self._disagree(point, f"the file was not what followed from {name}: it was changed{blamed}")

    def _disagree(self, point: Point, words: str) -> None:
        self._disagreements.append(Disagreement(call=point.call, words=words))

    def _one(self, trail: _Trail) -> Recovered:
        origin = self._origin(trail)
        if trail.doubts:
            reasons = (origin, *_told(trail.doubts))
            return Recovered(content=trail.content, confidence="doubtful", reasons=reasons)
        exact = trail.seen and not trail.steps
        return _with_odd_bytes(
            Recovered(
                content=trail.content,
                confidence="exact" if exact else "derived",
                reasons=(origin,),
            )
        )

    def _both(self, left: _Trail, right: _Trail, own: int) -> Recovered:
        """One of two ways; where they do not meet, the call's own record is believed first."""
        if _same(left.content, right.content):
            met = (self._origin(left), f"agrees with {self._origin(right)}")
            content = right.content if right.seen and not right.steps else left.content
            return _with_odd_bytes(Recovered(content=content, confidence="exact", reasons=met))
        chosen, other = sorted(
            (left, right), key=lambda way: (len(way.doubts), not _is_own(way, own), way.steps)
        )
        told = self._one(chosen)
        return Recovered(
            content=chosen.content,
            confidence=told.confidence if _is_own(chosen, own) else "doubtful",
            reasons=(*told.reasons, f"disagrees with {self._origin(other)}"),
        )

    def _origin(self, trail: _Trail) -> str:
        point = self.points[trail.start]
        name = point.name
        if not trail.steps:
            return f"what {name} recorded"
        if trail.assumed:
            return f"assumed, because {name} says that it made the file"
        if trail.steps == 1 and point.effect is not None and trail.seen:
            return f"what {name} recorded, with its change made"
        changes = "1 change" if trail.steps == 1 else f"{trail.steps} changes"
        return f"what {name} recorded, {changes} away"

    def _partial(self, slot: int) -> Recovered:
        parts = tuple(self._parts(slot))
        if not parts:
            return Recovered(
                content=None, confidence="unknown", reasons=("no record holds its content",)
            )
        return Recovered(
            content=None,
            confidence="partial",
            reasons=("only these lines of it were recorded",),
            parts=tuple(sorted(parts, key=lambda part: part.start)),
        )

    def _parts(self, slot: int) -> Iterator[Part]:
        """Lines that were seen around a slot, as far as the file stayed as it was."""
        for step, first in ((-1, slot - 1), (1, slot)):
            n = first
            while 0 <= n < len(self.points):
                point = self.points[n]
                if point.effect is not None or point.doubt is not None:
                    yield from _sides(point, old=step == 1)
                    break
                yield from point.parts
                n += step


def _told(doubts: Sequence[str]) -> Iterator[str]:
    """Doubts as reasons; of very many, the first ones and how many more there are."""
    distinct = list(dict.fromkeys(doubts))
    yield from distinct[:_MOST_DOUBTS]
    if len(distinct) > _MOST_DOUBTS:
        yield f"and {len(distinct) - _MOST_DOUBTS} more such calls"


def _is_own(trail: _Trail, point: int) -> bool:
    """Whether it is what that call itself recorded, not what was concluded from it backwards."""
    return trail.start == point and (trail.seen or not trail.steps)


def _sides(point: Point, *, old: bool) -> Iterator[Part]:
    """The lines that the hunks of a change show of one side."""
    leaves = "+" if old else "-"
    for hunk in getattr(point.effect, "hunks", ()):
        lines = tuple(line[1:] for line in hunk.lines if line[:1] not in (leaves, "\\"))
        yield Part(start=hunk.old_start if old else hunk.new_start, lines=lines)


def _back(n: int, point: Point, trail: _Trail | None) -> _Trail | None:
    if point.before is not None:
        return _Trail(point.before, n, seen=True)
    if point.after is not None:
        trail = _Trail(point.after, n, seen=point.seen)
    if point.effect is not None:
        try:
            # A file that was made was not there before, whatever became of it.
            content = backwards(point.effect, trail.content if trail else Absent())
        except PatchError:
            return None
        steps = trail.steps + 1 if trail else 1
        doubts = trail.doubts if trail else ()
        assumed = isinstance(point.effect, Wrote | MovedHere) and point.effect.assumed
        start = trail.start if trail else n
        trail = _Trail(content, start, False, steps, doubts, assumed)  # noqa: FBT003
    if trail is not None and point.doubt is not None:
        trail = trail._replace(doubts=(*trail.doubts, point.doubt))
    return trail


def _same(one: Content, other: Content) -> bool:
    if isinstance(one, Absent) or isinstance(other, Absent):
        return one == other
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")


def _with_odd_bytes(found: Recovered) -> Recovered:
    """Clients show bytes that are no text as U+FFFD, and then nobody knows which they were."""
    if isinstance(found.content, str) and "\ufffd" in found.content:
        reasons = (*found.reasons, "it shows U+FFFD, which may stand for bytes that are no text")
        return Recovered(content=found.content, confidence="doubtful", reasons=reasons)
    return found
