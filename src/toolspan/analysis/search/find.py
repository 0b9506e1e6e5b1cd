"""Calls and messages in which words stand, without an index.

In: candidates, as `places.py` tells them, and a query. Out: `Found`, the matches of all
files, the newest first. Files are looked through on all cores; a call whose words stand partly in
its input and partly in its result is one match, and copies in resumed or forked files are one as
well. What a match's own line does not tell (tool, state) is filled in by `calls.py`; where only the
newest are wanted, `newest.py` looks at fewer files. Read `search` first.
"""

from __future__ import annotations

import os
import re
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.search.candidates import Candidate, NameSearch
from toolspan.analysis.search.query import (
    ALL_FILES_OPTIONS,
    MATCH_SIDES,
    ByteFilter,
    MatchSide,
    SearchQuery,
    start_ripgrep,
)
from toolspan.analysis.search.scan import FileScan, Snippet, TextHit, line_at, matching_line_ranges, scan_file
from toolspan.errors import SourceError
from toolspan.formats.jsonl import read_chunks
from toolspan.formats.paths import format_of_path
from toolspan.formats.registry import get_format
from toolspan.formats.source import BytesSource, Source, source_for_path
from toolspan.reading.parallel import encode_msgpack, fork_map
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import MessageAuthor
from toolspan.types.span import Span, parse_timestamp
from toolspan.types.state import State

if TYPE_CHECKING:
    from toolspan.reading.scan import FileSummary


_ALONE = 16 << 20
"""Below so many bytes a pool costs more than it gives."""
_AVERAGE_LINE_BYTES = 1 << 13
"""How long a line is, about."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class SearchMatch(Struct, frozen=True, kw_only=True):
    """A call or a message in which all words stand; `toolspan search --json` prints these."""

    kind: Literal["call", "message"]
    sides: tuple[MatchSide, ...]
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
    voice: MessageAuthor | None
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


class SearchResults(Struct, frozen=True, kw_only=True):
    """What was found."""

    matches: list[SearchMatch]
    """The newest first."""
    among: int | None = None
    """So many files may hold matches, and not all were looked into: the rest is older."""
    passed: int = 0
    """Lines so long that nobody looked into them."""
    problems: list[str] = []
    """Files that could not be read."""


def search(
    candidates: Sequence[Candidate], query: SearchQuery, *, sides: Iterable[MatchSide] = MATCH_SIDES
) -> SearchResults:
    """The calls and messages in which all words stand, each once."""
    collector = MatchCollector(query)
    for file in scan_files(candidates, query, frozenset(sides)):
        collector.add(file)
    return collector.results()


class MatchCollector:
    """The matches of files, each once: what is resumed or forked repeats lines, times included."""

    def __init__(self, query: SearchQuery) -> None:
        self._all_terms = (1 << len(query.terms)) - 1
        self._matches: dict[object, SearchMatch] = {}
        self._passed = 0
        self._problems: list[str] = []

    def add(self, file: FileScan) -> list[SearchMatch]:
        """What one file gave that no other did; the order of files does not matter."""
        fresh: list[SearchMatch] = []
        self._passed += file.passed
        if file.problem:
            self._problems.append(file.problem)
        for match in _file_matches(file, self._all_terms):
            key: object = match.file, match.offset, match.call, match.voice, match.snippet
            if match.at is not None:
                key = match.at, match.call, match.voice, match.snippet
            existing = self._matches.get(key)
            if existing is None:
                self._matches[key] = match
                fresh.append(match)
            else:
                first = match if match.file < existing.file else existing
                self._matches[key] = replace(first, copies=existing.copies + 1)
        return fresh

    def results(self) -> SearchResults:
        """All of it, the newest first."""
        return SearchResults(
            matches=sorted(self._matches.values(), key=_newness_key, reverse=True),
            passed=self._passed,
            problems=sorted(self._problems),
        )


def match_time(match: SearchMatch) -> datetime:
    """When it was written; what states no time was long ago."""
    return parse_timestamp(match.at) or LONG_AGO


def _newness_key(match: SearchMatch) -> tuple[datetime, str, int]:
    return match_time(match), match.file, match.offset


def _file_matches(file: FileScan, all_terms: int) -> Iterator[SearchMatch]:
    """The hits of one file: each message by itself, the sides of a call together."""
    calls: dict[str, list[TextHit]] = {}
    for hit in file.hits:
        if hit.call is not None:
            calls.setdefault(hit.call, []).append(hit)
        elif hit.term_bits == all_terms:
            yield _make_match(file.file, [hit])
    for hits in calls.values():
        term_bits = 0
        for hit in hits:
            term_bits |= hit.term_bits
        if term_bits == all_terms:
            yield _make_match(file.file, hits)


def _make_match(file: str, hits: list[TextHit]) -> SearchMatch:
    first = hits[0]
    call_info = first.call_info
    return SearchMatch(
        kind="message" if first.call is None else "call",
        sides=tuple(side for side in MATCH_SIDES if any(hit.side == side for hit in hits)),
        snippet=first.snippet,
        call=first.call,
        tool=call_info.tool if call_info else None,
        state=call_info.state if call_info else None,
        error=call_info.error if call_info else None,
        target=call_info.target if call_info else None,
        voice=first.voice,
        at=first.at,
        session=first.session,
        agent=first.agent,
        cwd=first.cwd,
        file=file,
        offset=first.offset,
        length=first.length,
    )


def scan_files(candidates: Sequence[Candidate], query: SearchQuery, sides: frozenset[MatchSide]) -> Iterator[FileScan]:
    """What each file gives, looked through on all cores where that is worth it."""
    sizes = list(map(estimated_work, candidates))
    if sum(sizes) < _ALONE:
        yield from (scan_file(candidate.path, query, sides, candidate.offsets) for candidate in candidates)
        return

    def packed_scan(n: int) -> object:
        candidate = candidates[n]
        result = scan_file(candidate.path, query, sides, candidate.offsets)
        return result if (data := encode_msgpack(result)) is None else data

    for payload in fork_map(sizes, packed_scan):
        yield _DECODER.decode(payload) if isinstance(payload, bytes) else cast("FileScan", payload)


def estimated_work(candidate: Candidate) -> int:
    """How many bytes are to be looked at, about; a rollout is read as a whole, which is slower."""
    if format_of_path(candidate.path).reads_whole_files:
        return 2 * candidate.size
    return candidate.size if candidate.offsets is None else len(candidate.offsets) * _AVERAGE_LINE_BYTES


_DECODER = msgspec.msgpack.Decoder(FileScan)


_LITTLE = 5 << 20
"""Candidates with less work than this are all looked into, so that all matches are known."""
_PATIENCE = 16 << 20
"""After so much work on one file after the other, all others are looked into on all cores."""
_RETRY_FACTOR = 8
"""When too few are kept, so many times as many are looked for; after that, all."""
_FAR_FUTURE = datetime.max.replace(tzinfo=UTC)
_TAIL_SIZES = (1 << 12, 1 << 16, 1 << 20)
"""Where the last time is looked for: so many bytes before the end of a file."""
_TIME_LENGTH = 80
_TIME = re.compile(rb'"timestamp"\s*:\s*"(\d{4}-[^"]{1,40})"')
_MAX_FILES_PER_RUN = 1_000
"""So many files are named to one ripgrep."""

MatchSelector = Callable[[Sequence[SearchMatch]], list[SearchMatch]]
"""Gives the matches that somebody wants, in their order."""


def search_newest(
    candidates: Sequence[Candidate],
    query: SearchQuery,
    most: int,
    *,
    sides: Iterable[MatchSide] = MATCH_SIDES,
    keep: MatchSelector = list,
    program: str | None = None,
) -> SearchResults:
    """The newest matches that are kept: more than `most` of them, or all there are.

    With `most` 0, or where looking into all files is little work, it is all.
    """
    chosen = frozenset(sides)
    if not most or sum(map(estimated_work, candidates)) < _LITTLE:
        results = search(candidates, query, sides=chosen)
        return replace(results, matches=keep(results.matches))
    newest_search = _NewestSearch(candidates, query, chosen)
    for count in (most + 1, _RETRY_FACTOR * (most + 1)):
        results = newest_search.find_newest(count, program) or newest_search.find_all()
        selected = keep(results.matches)
        if len(selected) > most or results.among is None:
            return replace(results, matches=selected)
    results = newest_search.find_all()
    return replace(results, matches=keep(results.matches))


class _DatedFile(NamedTuple):
    """A file, and how new what it holds may be."""

    candidate: Candidate
    last: datetime
    """The last time it states."""


class _NewestSearch:
    """Files that are looked into one by one, the newest first."""

    def __init__(self, candidates: Sequence[Candidate], query: SearchQuery, sides: frozenset[MatchSide]) -> None:
        self._query = query
        self._sides = sides
        self._collector = MatchCollector(query)
        self._file_count = len(candidates)
        self._work_done = 0
        self._times: list[datetime] = []
        """Of the matches so far, rising."""
        self._unseen = sorted(map(_with_last_time, candidates), key=attrgetter("last"))

    def find_newest(self, count: int, program: str | None) -> SearchResults | None:
        """So many matches that are known to be the newest; None when it takes too long."""
        while self._unseen and not self._is_settled(count):
            if self._work_done > _PATIENCE:
                return None
            self._scan_candidate(self._unseen.pop().candidate)
        if self._unseen:
            late = _files_since(self._unseen, self._times[-count], program)
            for file in late:
                self._scan_candidate(file.candidate)
            self._unseen = [file for file in self._unseen if file not in late]
        results = self._collector.results()
        if not self._unseen:
            return results
        return replace(results, matches=results.matches[:count], among=self._file_count)

    def find_all(self) -> SearchResults:
        """Every match."""
        rest = [file.candidate for file in self._unseen]
        for file in scan_files(rest, self._query, self._sides):
            self._add_scan(file)
        self._unseen = []
        return self._collector.results()

    def _is_settled(self, count: int) -> bool:
        """Whether files that nobody has looked into end before the last of the wanted matches."""
        return len(self._times) >= count and self._times[-count] > self._unseen[-1].last

    def _scan_candidate(self, candidate: Candidate) -> None:
        self._work_done += estimated_work(candidate)
        self._add_scan(scan_file(candidate.path, self._query, self._sides, candidate.offsets))

    def _add_scan(self, file: FileScan) -> None:
        for match in self._collector.add(file):
            insort(self._times, match_time(match))


def _with_last_time(candidate: Candidate) -> _DatedFile:
    """A file with its last time; one that tells none counts as the newest and is looked into."""
    try:
        if candidate.path.endswith(".zst"):
            return _DatedFile(candidate, max(_packed_times(candidate.path), default=LONG_AGO))
        descriptor = os.open(candidate.path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return _DatedFile(candidate, _last_time(descriptor, candidate.size))
        finally:
            os.close(descriptor)
    except (OSError, SourceError):
        return _DatedFile(candidate, _FAR_FUTURE)


def _last_time(descriptor: int, size: int) -> datetime:
    """The last time that an open file states."""
    for length in _TAIL_SIZES:
        time = _time_in(os.pread(descriptor, length, max(0, size - length)))
        if time is not None:
            return time
        if length >= size:
            return LONG_AGO
    return _FAR_FUTURE


def _packed_times(path: str) -> Iterator[datetime]:
    """The times in a compressed file, which has to be unpacked to its end."""
    buffer = b""
    with source_for_path(path).open() as stream:
        while piece := stream.read(_TAIL_SIZES[-1]):
            buffer += piece
            time = _time_in(buffer)
            if time is not None:
                yield time
            buffer = buffer[-_TIME_LENGTH:]


def _time_in(data: bytes) -> datetime | None:
    """The last of the times in some bytes."""
    times = _TIME.findall(data)
    return parse_timestamp(max(times).decode("utf-8", "replace")) if times else None


def _files_since(files: Sequence[_DatedFile], since: datetime, program: str | None) -> list[_DatedFile]:
    """The files that state a time not before a moment; without ripgrep those that may."""
    changed = {file.candidate.path: file for file in files if file.candidate.changed >= since.timestamp()}
    names = list(changed)
    paths: list[str] = []
    for n in range(0, len(names), _MAX_FILES_PER_RUN):
        paths += _paths_stating_since(names[n : n + _MAX_FILES_PER_RUN], since, program)
    return [changed[name] for name in paths]


def _paths_stating_since(names: Sequence[str], since: datetime, program: str | None) -> Sequence[str]:
    if program is None:
        return names
    pattern = rf'"timestamp"\s*:\s*"(?:{_not_before(since)})'
    process = start_ripgrep(
        (program, *ALL_FILES_OPTIONS, "--files-with-matches", "--null", "-e", pattern, "--", *names)
    )
    output = process.output() if process else None
    return names if output is None else [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def _not_before(since: datetime) -> str:
    """Times from a moment's second on, as a regular expression: the first digit that differs."""
    text = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    later = [f"{text[:n]}[{int(digit) + 1}-9]" for n, digit in enumerate(text) if digit.isdigit() and digit != "9"]
    return "|".join([*later, text])


_NEARBY_BYTES = 1 << 16
"""So many bytes before and after a match are its neighbourhood."""
_MAX_CALLS_PER_FILE = 8
"""With more calls than this in one file, the facts of the whole file come cheaper."""
_MAX_SEARCHED_NAMES = 64
"""ripgrep is not asked for more calls than this at once."""

FileSurvey = Callable[[Sequence[Path]], "Iterable[FileSummary]"]
"""Gives the facts of files, of all their calls; may read them, on all cores."""

_CallRows = dict[tuple[str, str], CallRow]


def complete_matches(
    matches: Sequence[SearchMatch], survey: FileSurvey, *, program: str | None = None
) -> list[SearchMatch]:
    """The matches with tool, state and target; `program` is ripgrep, where there is one."""
    incomplete = [match for match in matches if match.call is not None and match.state is None]
    call_rows = _calls_from_mentions(incomplete, program)
    files = {match.file for match in incomplete if (match.file, match.call or "") not in call_rows}
    for facts in survey([Path(file) for file in sorted(files)]) if files else ():
        call_rows |= {(facts.file, row.id): row for row in facts.calls}
    return [_with_call_row(match, call_rows.get((match.file, match.call or ""))) for match in matches]


def number_lines(matches: Sequence[SearchMatch], *, calls: bool = True) -> list[SearchMatch]:
    """The matches with the numbers of their lines, those of calls if so wished."""
    offsets_by_file: dict[str, set[int]] = {}
    for match in matches:
        if calls or match.kind == "message":
            offsets_by_file.setdefault(match.file, set()).add(match.offset)
    lines = {
        (file, offset): number
        for file, offsets in offsets_by_file.items()
        for offset, number in _line_numbers(file, sorted(offsets)).items()
    }
    return [replace(match, line=lines.get((match.file, match.offset))) for match in matches]


def _with_call_row(match: SearchMatch, row: CallRow | None) -> SearchMatch:
    if row is None:
        return match
    return replace(match, tool=row.tool, state=row.state, error=row.error_kind, target=row.target)


def _calls_from_mentions(matches: Sequence[SearchMatch], program: str | None) -> _CallRows:
    """The calls whose story is told by the lines that name them."""
    calls: dict[str, dict[str, SearchMatch]] = {}
    for match in matches:
        calls.setdefault(match.file, {})[match.call or ""] = match
    few = {file: names for file, names in calls.items() if len(names) <= _MAX_CALLS_PER_FILE}
    name_search = _start_name_search(few, program)
    try:
        call_rows: _CallRows = {}
        for file, names in few.items():  # while ripgrep is at work
            call_rows |= {(file, span.id): make_call_row(span, file) for span in _spans_nearby(file, names)}
        remaining = {file: [name for name in few[file] if (file, name) not in call_rows] for file in few}
        for file, lines in _mentioning_lines(
            {file: remaining[file] for file in remaining if remaining[file]}, name_search
        ):
            spans = (span for span in _parse_spans(lines) if span.id in remaining[file] and _is_certain(span))
            call_rows |= {(file, span.id): make_call_row(span, file) for span in spans}
    finally:
        name_search.close()
    return call_rows


def _start_name_search(calls: dict[str, dict[str, SearchMatch]], program: str | None) -> NameSearch:
    """Have the lines looked for that name calls, where these are not too many."""
    names = [name for those in calls.values() for name in those]
    plain = [file for file in calls if not file.endswith(".zst")]
    return NameSearch(names if len(names) <= _MAX_SEARCHED_NAMES else (), plain, program)


def _spans_nearby(file: str, names: dict[str, SearchMatch]) -> Iterator[Span]:
    """The calls of some matches in one file, as far as the neighbourhood tells."""
    source = source_for_path(file)
    try:
        for name, match in () if file.endswith(".zst") else names.items():
            lines, whole = _lines_near(source, _encode_id(name), match)
            for span in _parse_spans(lines):
                if span.id == name and _is_certain(span) and (whole or span.state == "succeeded"):
                    yield span
    except SourceError:
        return


def _lines_near(source: Source, name: bytes, match: SearchMatch) -> tuple[list[bytes], bool]:
    """The lines around a match that name its call, and whether there can be no others."""
    start = max(0, match.offset - _NEARBY_BYTES)
    length = match.offset - start + match.length + _NEARBY_BYTES
    data = source.read(start, length)
    whole = not start and len(data) < length
    lines = data[: len(data) if whole else data.rfind(b"\n") + 1].split(b"\n")
    return [line for line in lines[start > 0 :] if name in line], whole


def _mentioning_lines(calls: dict[str, list[str]], name_search: NameSearch) -> Iterator[tuple[str, list[bytes]]]:
    """Files with all lines that name one of their calls; nothing of those that cannot be read."""
    offsets_by_file = name_search.offsets() if calls else None
    for file, names in calls.items():
        source = source_for_path(file)
        try:
            if offsets_by_file is not None and not file.endswith(".zst"):
                yield (file, [line_at(source, offset) or b"" for offset in offsets_by_file.get(file, ())])
            else:
                yield file, list(_lines_naming(source, [_encode_id(name) for name in names]))
        except SourceError:
            continue


def _encode_id(name: str) -> bytes:
    """A call's id as lines spell it; an odd one is not found so, and its file read as a whole."""
    return name.encode("utf-8", "surrogatepass")


def _is_certain(span: Span) -> bool:
    """Nothing that other lines say could change the state; in a rollout much could."""
    if not get_format(span.call.dialect).states_are_local:
        return False
    if span.state == "failed":
        return span.error_kind not in (None, "unknown") and not span.ambiguous
    return span.state == "succeeded"


def _parse_spans(lines: Iterable[bytes]) -> list[Span]:
    return read(BytesSource(b"".join(line + b"\n" for line in lines))).spans


def _lines_naming(source: Source, names: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of a file that name one of several calls, in their order."""
    byte_filters = [ByteFilter(literal=name) for name in names]
    for chunk in read_chunks(source):
        for start, end in sorted(
            {row for byte_filter in byte_filters for row in matching_line_ranges(chunk, byte_filter)}
        ):
            yield bytes(chunk.data[start:end])


def _line_numbers(file: str, offsets: Sequence[int]) -> dict[int, int]:
    """The numbers of the lines that begin at these offsets, in rising order."""
    numbers: dict[int, int] = {}
    number, waiting = 1, list(reversed(offsets))
    try:
        for chunk in read_chunks(source_for_path(file)):
            while waiting and waiting[-1] < chunk.offset + chunk.source_length:
                offset = waiting.pop()
                end = chunk.start + offset - chunk.offset
                numbers[offset] = number + chunk.data.count(b"\n", chunk.start, end)
            if not waiting:
                break
            number += 1 if chunk.skipped_length else chunk.data.count(b"\n", chunk.start, chunk.end)
    except SourceError:
        pass
    return numbers
