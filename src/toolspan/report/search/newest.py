"""The newest matches alone, where there are very many.

In: candidates, a query, how many matches are wanted. Out: `Found`, which begins as a search of
everything would. Files are looked into by the last time they state, the latest first, until what is
left can only hold older matches. Lines mostly stand in the order of time, but nobody promises that:
of files that were changed after the oldest match that is wanted, ripgrep tells whether they state a
time after it. Read `newest` first.
"""

import os
import re
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from toolspan.errors import SourceError
from toolspan.model.span import moment
from toolspan.report.search.find import (
    LONG_AGO,
    Found,
    Gathered,
    Match,
    newness,
    scanned,
    search,
    work,
)
from toolspan.report.search.places import Candidate
from toolspan.report.search.ripgrep import EVERY, started
from toolspan.report.search.scan import Scanned, scan
from toolspan.report.search.texts import SIDES, Side
from toolspan.report.search.words import Query
from toolspan.wire.source import source_of

_LITTLE = 5 << 20
"""Candidates with less work than this are all looked into, so that all matches are known."""
_PATIENCE = 16 << 20
"""After so much work on one file after the other, all others are looked into on all cores."""
_AGAIN = 8
"""When too few are kept, so many times as many are looked for; after that, all."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_TAILS = (1 << 12, 1 << 16, 1 << 20)
"""Where the last time is looked for: so many bytes before the end of a file."""
_TIME_LENGTH = 80
_TIME = re.compile(rb'"timestamp"\s*:\s*"(\d{4}-[^"]{1,40})"')
_NAMES = 1_000
"""So many files are named to one ripgrep."""

Keep = Callable[[Sequence[Match]], list[Match]]
"""Gives the matches that somebody wants, in their order."""


def newest(
    candidates: Sequence[Candidate],
    query: Query,
    most: int,
    *,
    sides: Iterable[Side] = SIDES,
    keep: Keep = list,
    program: str | None = None,
) -> Found:
    """The newest matches that are kept: more than `most` of them, or all there are.

    With `most` 0, or where looking into all files is little work, it is all.
    """
    chosen = frozenset(sides)
    if not most or sum(map(work, candidates)) < _LITTLE:
        found = search(candidates, query, sides=chosen)
        return replace(found, matches=keep(found.matches))
    dig = _Dig(candidates, query, chosen)
    for wanted in (most + 1, _AGAIN * (most + 1)):
        found = dig.first(wanted, program) or dig.all()
        kept = keep(found.matches)
        if len(kept) > most or found.among is None:
            return replace(found, matches=kept)
    found = dig.all()
    return replace(found, matches=keep(found.matches))


class _Dated(NamedTuple):
    """A file, and how new what it holds may be."""

    candidate: Candidate
    last: datetime
    """The last time it states."""


class _Dig:
    """Files that are looked into one by one, the newest first."""

    def __init__(
        self, candidates: Sequence[Candidate], query: Query, sides: frozenset[Side]
    ) -> None:
        self._query = query
        self._sides = sides
        self._gathered = Gathered(query)
        self._files = len(candidates)
        self._work = 0
        self._times: list[datetime] = []
        """Of the matches so far, rising."""
        self._unseen = sorted(map(_dated, candidates), key=attrgetter("last"))

    def first(self, wanted: int, program: str | None) -> Found | None:
        """So many matches that are known to be the newest; None when it takes too long."""
        while self._unseen and not self._settled(wanted):
            if self._work > _PATIENCE:
                return None
            self._look(self._unseen.pop().candidate)
        if self._unseen:
            late = _late(self._unseen, self._times[-wanted], program)
            for file in late:
                self._look(file.candidate)
            self._unseen = [file for file in self._unseen if file not in late]
        found = self._gathered.found()
        if not self._unseen:
            return found
        return replace(found, matches=found.matches[:wanted], among=self._files)

    def all(self) -> Found:
        """Every match."""
        rest = [file.candidate for file in self._unseen]
        for file in scanned(rest, self._query, self._sides):
            self._add(file)
        self._unseen = []
        return self._gathered.found()

    def _settled(self, wanted: int) -> bool:
        """Whether files that nobody has looked into end before the last of the wanted matches."""
        return len(self._times) >= wanted and self._times[-wanted] > self._unseen[-1].last

    def _look(self, one: Candidate) -> None:
        self._work += work(one)
        self._add(scan(one.path, self._query, self._sides, one.offsets))

    def _add(self, file: Scanned) -> None:
        for match in self._gathered.add(file):
            insort(self._times, newness(match))


def _dated(one: Candidate) -> _Dated:
    """A file with its last time; one that tells none counts as the newest and is looked into."""
    try:
        if one.path.endswith(".zst"):
            return _Dated(one, max(_packed_times(one.path), default=LONG_AGO))
        opened = os.open(one.path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return _Dated(one, _last(opened, one.size))
        finally:
            os.close(opened)
    except (OSError, SourceError):
        return _Dated(one, _NEVER)


def _last(opened: int, size: int) -> datetime:
    """The last time that an open file states."""
    for length in _TAILS:
        found = _time_in(os.pread(opened, length, max(0, size - length)))
        if found is not None:
            return found
        if length >= size:
            return LONG_AGO
    return _NEVER


def _packed_times(path: str) -> Iterator[datetime]:
    """The times in a compressed file, which has to be unpacked to its end."""
    held = b""
    with source_of(path).open() as stream:
        while piece := stream.read(_TAILS[-1]):
            held += piece
            found = _time_in(held)
            if found is not None:
                yield found
            held = held[-_TIME_LENGTH:]


def _time_in(data: bytes) -> datetime | None:
    """The last of the times in some bytes."""
    times = _TIME.findall(data)
    return moment(max(times).decode("utf-8", "replace")) if times else None


def _late(files: Sequence[_Dated], since: datetime, program: str | None) -> list[_Dated]:
    """The files that state a time not before a moment; without ripgrep those that may."""
    changed = {
        file.candidate.path: file for file in files if file.candidate.changed >= since.timestamp()
    }
    names = list(changed)
    found: list[str] = []
    for n in range(0, len(names), _NAMES):
        found += _stating(names[n : n + _NAMES], since, program)
    return [changed[name] for name in found]


def _stating(names: Sequence[str], since: datetime, program: str | None) -> Sequence[str]:
    if program is None:
        return names
    wanted = rf'"timestamp"\s*:\s*"(?:{_not_before(since)})'
    asked = started((program, *EVERY, "--files-with-matches", "--null", "-e", wanted, "--", *names))
    output = asked.output() if asked else None
    return names if output is None else [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def _not_before(since: datetime) -> str:
    """Times from a moment's second on, as a regular expression: the first digit that differs."""
    text = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    later = [
        f"{text[:n]}[{int(digit) + 1}-9]"
        for n, digit in enumerate(text)
        if digit.isdigit() and digit != "9"
    ]
    return "|".join([*later, text])
