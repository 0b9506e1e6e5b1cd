"""Calls and messages in which words stand, without an index.

In: candidates, as `places.py` tells them, and a query. Out: `Found`, the matches of all
files, the newest first. Files are looked through on all cores; a call whose words stand partly in
its input and partly in its result is one match, and copies in resumed or forked files are one as
well. What a match's own line does not tell (tool, state) is filled in by `calls.py`. Read
`search` first.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.model.kind import ErrorKind
from toolspan.model.message import Voice
from toolspan.model.span import moment
from toolspan.model.state import State
from toolspan.read.pool import processes
from toolspan.read.survey import UNPACKABLE
from toolspan.report.search.places import Candidate
from toolspan.report.search.scan import SIDES, Hit, Scanned, Side, Snippet, scan
from toolspan.report.search.words import Query

_ALONE = 16 << 20
"""Below so many bytes a pool costs more than it gives."""
_SHARES = 8
"""Shares per worker, so that none waits long for another."""
_LINE = 1 << 13
"""How long a line is, about."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


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
    passed: int = 0
    """Lines so long that nobody looked into them."""
    problems: list[str] = []
    """Files that could not be read."""


def search(
    candidates: Sequence[Candidate], query: Query, *, sides: Iterable[Side] = SIDES
) -> Found:
    """The calls and messages in which all words stand, each once."""
    scanned = list(_scanned(candidates, query, frozenset(sides)))
    every = (1 << len(query.words)) - 1
    matches = _once(match for file in scanned for match in _matches(file, every))
    return Found(
        matches=sorted(matches, key=_newness, reverse=True),
        passed=sum(file.passed for file in scanned),
        problems=[file.problem for file in scanned if file.problem],
    )


def _newness(match: Match) -> tuple[datetime, str, int]:
    return moment(match.at) or _LONG_AGO, match.file, match.offset


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
    return Match(
        kind="message" if first.call is None else "call",
        sides=tuple(side for side in SIDES if any(hit.side == side for hit in hits)),
        snippet=first.snippet,
        call=first.call,
        voice=first.voice,
        at=first.at,
        session=first.session,
        agent=first.agent,
        cwd=first.cwd,
        file=file,
        offset=first.offset,
        length=first.length,
    )


def _once(matches: Iterable[Match]) -> list[Match]:
    """Each once: a resumed or forked session repeats lines, times included."""
    found: dict[object, Match] = {}
    for match in matches:
        key: object = match.file, match.offset, match.call, match.voice, match.snippet
        if match.at is not None:
            key = match.at, match.call, match.voice, match.snippet
        known = found.get(key)
        found[key] = match if known is None else replace(known, copies=known.copies + 1)
    return list(found.values())


def _scanned(
    candidates: Sequence[Candidate], query: Query, sides: frozenset[Side]
) -> Iterator[Scanned]:
    workers = min(os.cpu_count() or 1, len(candidates))
    if workers < 2 or sum(map(_work, candidates)) < _ALONE:
        yield from (scan(one.path, query, sides, one.offsets) for one in candidates)
        return
    with processes(workers) as pool:
        shares = _shares(candidates, workers * _SHARES)
        jobs = [pool.submit(_encoded, share, query, sides) for share in shares]
        for job in jobs:
            answer = job.result()
            yield from _DECODER.decode(answer) if isinstance(answer, bytes) else answer


def _work(candidate: Candidate) -> int:
    """How many bytes are to be looked at, about."""
    return candidate.size if candidate.offsets is None else len(candidate.offsets) * _LINE


_DECODER = msgspec.msgpack.Decoder(list[Scanned])


def _encoded(
    candidates: list[Candidate], query: Query, sides: frozenset[Side]
) -> bytes | list[Scanned]:
    found = [scan(one.path, query, sides, one.offsets) for one in candidates]
    try:
        return msgspec.msgpack.encode(found)
    except UNPACKABLE:
        return found


def _shares(candidates: Sequence[Candidate], count: int) -> list[list[Candidate]]:
    """Neighbouring files in about equal shares of work."""
    wanted = sum(map(_work, candidates)) / count
    shares: list[list[Candidate]] = [[]]
    held = 0
    for one in candidates:
        if held >= wanted:
            shares.append([])
            held = 0
        shares[-1].append(one)
        held += _work(one)
    return shares
