"""Calls and messages in which words stand, without an index.

In: candidates, as `places.py` tells them, and a query. Out: `Found`, the matches of all
files, the newest first. Files are looked through on all cores; a call whose words stand partly in
its input and partly in its result is one match, and copies in resumed or forked files are one as
well. What a match's own line does not tell (tool, state) is filled in by `calls.py`; where only the
newest are wanted, `newest.py` looks at fewer files. Read `search` first.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.model.kind import ErrorKind
from toolspan.model.message import Voice
from toolspan.model.span import moment
from toolspan.model.state import State
from toolspan.read.pool import shared
from toolspan.read.spread import packed
from toolspan.report.search.places import Candidate
from toolspan.report.search.scan import Hit, Scanned, Snippet, scan
from toolspan.report.search.texts import SIDES, Side
from toolspan.report.search.words import Query
from toolspan.wire.codex_paths import is_rollout

_ALONE = 16 << 20
"""Below so many bytes a pool costs more than it gives."""
_LINE = 1 << 13
"""How long a line is, about."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Match(Struct, frozen=True, kw_only=True):
    """A call or a message in which all words stand; `toolspan search --json` prints these."""

    kind: Literal["call", "message"]
    sides: tuple[Side, ...]
    """Where the words stand: input, result, message."""
    snippet: Snippet
    """The first of them, and what stands around it."""
    call: str | None
    """The call's id."""
    tool: str | None = None
    state: State | None = None
    error: ErrorKind | None = None
    """Why the call did not succeed."""
    target: str | None = None
    """What the call is about."""
    voice: Voice | None
    """Who said the message."""
    at: str | None
    """When its line was written."""
    session: str | None
    agent: str | None
    cwd: str | None
    """The folder in which the session worked."""
    file: str
    line: int | None = None
    offset: int
    length: int
    """The line that the snippet is from, in bytes."""
    copies: int = 0
    """How many other files repeat it."""


class Found(Struct, frozen=True, kw_only=True):
    """What was found."""

    matches: list[Match]
    """The newest first."""
    among: int | None = None
    """So many files may hold matches, and not all were looked into: the rest is older."""
    passed: int = 0
    """Lines so long that nobody looked into them."""
    problems: list[str] = []
    """Files that could not be read."""


def search(
    candidates: Sequence[Candidate], query: Query, *, sides: Iterable[Side] = SIDES
) -> Found:
    """The calls and messages in which all words stand, each once."""
    gathered = Gathered(query)
    for file in scanned(candidates, query, frozenset(sides)):
        gathered.add(file)
    return gathered.found()


class Gathered:
    """The matches of files, each once: what is resumed or forked repeats lines, times included."""

    def __init__(self, query: Query) -> None:
        self._every = (1 << len(query.words)) - 1
        self._matches: dict[object, Match] = {}
        self._passed = 0
        self._problems: list[str] = []

    def add(self, file: Scanned) -> list[Match]:
        """What one file gave that no other did; the order of files does not matter."""
        fresh: list[Match] = []
        self._passed += file.passed
        if file.problem:
            self._problems.append(file.problem)
        for match in _matches(file, self._every):
            key: object = match.file, match.offset, match.call, match.voice, match.snippet
            if match.at is not None:
                key = match.at, match.call, match.voice, match.snippet
            known = self._matches.get(key)
            if known is None:
                self._matches[key] = match
                fresh.append(match)
            else:
                first = match if match.file < known.file else known
                self._matches[key] = replace(first, copies=known.copies + 1)
        return fresh

    def found(self) -> Found:
        """All of it, the newest first."""
        return Found(
            matches=sorted(self._matches.values(), key=_newness, reverse=True),
            passed=self._passed,
            problems=sorted(self._problems),
        )


def newness(match: Match) -> datetime:
    """When it was written; what states no time was long ago."""
    return moment(match.at) or LONG_AGO


def _newness(match: Match) -> tuple[datetime, str, int]:
    return newness(match), match.file, match.offset


def _matches(file: Scanned, every: int) -> Iterator[Match]:
    """The hits of one file: each message by itself, the sides of a call together."""
    calls: dict[str, list[Hit]] = {}
    for hit in file.hits:
        if hit.call is not None:
            calls.setdefault(hit.call, []).append(hit)
        elif hit.words == every:
            yield _match(file.file, [hit])
    for hits in calls.values():
        words = 0
        for hit in hits:
            words |= hit.words
        if words == every:
            yield _match(file.file, hits)


def _match(file: str, hits: list[Hit]) -> Match:
    first = hits[0]
    told = first.told
    return Match(
        kind="message" if first.call is None else "call",
        sides=tuple(side for side in SIDES if any(hit.side == side for hit in hits)),
        snippet=first.snippet,
        call=first.call,
        tool=told.tool if told else None,
        state=told.state if told else None,
        error=told.error if told else None,
        target=told.target if told else None,
        voice=first.voice,
        at=first.at,
        session=first.session,
        agent=first.agent,
        cwd=first.cwd,
        file=file,
        offset=first.offset,
        length=first.length,
    )


def scanned(
    candidates: Sequence[Candidate], query: Query, sides: frozenset[Side]
) -> Iterator[Scanned]:
    """What each file gives, looked through on all cores where that is worth it."""
    sizes = list(map(work, candidates))
    if sum(sizes) < _ALONE:
        yield from (scan(one.path, query, sides, one.offsets) for one in candidates)
        return

    def packed_scan(n: int) -> object:
        one = candidates[n]
        found = scan(one.path, query, sides, one.offsets)
        return found if (data := packed(found)) is None else data

    for told in shared(sizes, packed_scan):
        yield _DECODER.decode(told) if isinstance(told, bytes) else cast("Scanned", told)


def work(candidate: Candidate) -> int:
    """How many bytes are to be looked at, about; a rollout is read as a whole, which is slower."""
    if is_rollout(os.path.basename(candidate.path)):  # noqa: PTH119 - asked of very many files
        return 2 * candidate.size
    return candidate.size if candidate.offsets is None else len(candidate.offsets) * _LINE


_DECODER = msgspec.msgpack.Decoder(Scanned)
