"""Search many files: `search` returns all matches, `search_newest` the newest ones.

Both take the files that `query.find_candidates` returns. Hits in the input and the result of one call are one match,
and so are its copies in resumed and forked sessions. `complete_matches` adds the tool, state and target of a call,
which the matching line does not contain.
"""

from __future__ import annotations

import os
import re
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from toolspan.analysis.search.query import (
    ALL_FILES_OPTIONS,
    MATCH_SIDES,
    ByteFilter,
    Candidate,
    MatchSide,
    SearchQuery,
    run_ripgrep,
)
from toolspan.analysis.search.scan import FileScan, Snippet, TextHit, matching_line_ranges, scan_file
from toolspan.errors import SourceError
from toolspan.formats.jsonl import read_chunks
from toolspan.formats.registry import format_of_path, get_format
from toolspan.formats.source import COMPRESSED_SUFFIXES, BytesSource, is_remote, source_for_path, to_path
from toolspan.reading.facts import encode_msgpack
from toolspan.reading.parallel import SERIAL_OBJECTS, fork_map
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.transcript import read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.session import MessageAuthor
from toolspan.types.span import Span, parse_timestamp
from toolspan.types.state import State

if TYPE_CHECKING:
    from toolspan.reading.facts import FileSummary


_SERIAL_LIMIT_BYTES = 16 << 20
"""For less work than this, a process pool costs more than it saves."""
_SMALL_SEARCH_BYTES = 5 << 20
"""For less work than this, all files are scanned, so that all matches are known."""
_MAX_SERIAL_BYTES = 16 << 20
"""After this much serial work, all remaining files are scanned in parallel."""
_AVERAGE_LINE_BYTES = 1 << 13
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_FAR_FUTURE = datetime.max.replace(tzinfo=UTC)
_FILE_SCAN_DECODER = msgspec.msgpack.Decoder(FileScan)


class SearchMatch(Struct, frozen=True, kw_only=True):
    """A call or message that contains all terms. `toolspan search --json` prints these fields."""

    kind: Literal["call", "message"]
    sides: tuple[MatchSide, ...]
    snippet: Snippet
    call: str | None
    tool: str | None = None
    state: State | None = None
    error: ErrorKind | None = None
    target: str | None = None
    voice: MessageAuthor | None
    at: str | None
    session: str | None
    agent: str | None
    cwd: str | None
    file: str
    line: int | None = None
    offset: int
    length: int
    """Offset and length in bytes of the line that contains the snippet."""
    copies: int = 0
    """Number of other files that contain the same match."""


class SearchResults(Struct, frozen=True, kw_only=True):
    """The matches found by a search."""

    matches: list[SearchMatch]
    among: int | None = None
    """The number of candidates, if not all of them were scanned. Matches that were not returned are older."""
    passed: int = 0
    """Number of lines skipped because they exceed the size limit."""
    problems: list[str] = []


_HIT_FIELDS = {item.name for item in fields(SearchMatch)} & {item.name for item in fields(TextHit)}
MatchSelector = Callable[[Sequence[SearchMatch]], list[SearchMatch]]
"""A function that returns the matches to keep, in the same order."""


def search(
    candidates: Sequence[Candidate], query: SearchQuery, *, sides: Iterable[MatchSide] = MATCH_SIDES
) -> SearchResults:
    """Return each call and message that contains all terms, once."""
    collector = _MatchCollector(query)
    for file in _scan_files(candidates, query, frozenset(sides)):
        collector.add(file)
    return collector.results()


def search_newest(
    candidates: Sequence[Candidate],
    query: SearchQuery,
    most: int,
    *,
    sides: Iterable[MatchSide] = MATCH_SIDES,
    keep: MatchSelector = list,
    program: str | None = None,
) -> SearchResults:
    """Return the newest matches that `keep` accepts: more than `most`, or all of them if there are not so many.

    All matches are returned if `most` is 0 or if scanning all files takes little work. `program` is the path of
    ripgrep, if it is installed.
    """
    chosen_sides = frozenset(sides)
    if not most or sum(map(_estimate_work, candidates)) < _SMALL_SEARCH_BYTES:
        results = search(candidates, query, sides=chosen_sides)
        return replace(results, matches=keep(results.matches))
    newest_search = _NewestSearch(candidates, query, chosen_sides, program)
    for count in (most + 1, 8 * (most + 1)):  # `keep` may drop most of them
        results = newest_search.find_newest(count) or newest_search.find_all()
        selected = keep(results.matches)
        if len(selected) > most or results.among is None:
            return replace(results, matches=selected)
    results = newest_search.find_all()
    return replace(results, matches=keep(results.matches))


class _MatchCollector:
    """A collector that combines hits into matches and removes copies, which repeat lines with their timestamps."""

    def __init__(self, query: SearchQuery) -> None:
        self._all_terms = (1 << len(query.terms)) - 1
        self._matches: dict[object, SearchMatch] = {}
        self._passed = 0
        self._problems: list[str] = []

    def add(self, file: FileScan) -> list[SearchMatch]:
        """Add a file and return its new matches. Files may be added in any order."""
        new_matches: list[SearchMatch] = []
        self._passed += file.passed
        if file.problem:
            self._problems.append(file.problem)
        groups: dict[object, list[TextHit]] = {}  # one for each message, and one for all hits in a call
        for n, hit in enumerate(file.hits):
            groups.setdefault((n,) if hit.call is None else hit.call, []).append(hit)
        for group in groups.values():
            if reduce(or_, (hit.term_bits for hit in group)) != self._all_terms:
                continue
            # The client records most results and inputs a second time, which would only repeat them.
            plain_bits = reduce(or_, (hit.term_bits for hit in group if hit.side != "toolUseResult"), 0)
            hits = [hit for hit in group if hit.side != "toolUseResult" or hit.term_bits & ~plain_bits]
            shared: dict[str, Any] = {name: getattr(hits[0], name) for name in _HIT_FIELDS}
            match = SearchMatch(
                **shared,
                kind="message" if hits[0].call is None else "call",
                sides=tuple(side for side in MATCH_SIDES if any(hit.side == side for hit in hits)),
                file=file.file,
            )
            key: object = match.file, match.offset, match.call, match.voice, match.snippet
            if match.at is not None:
                key = match.at, match.call, match.voice, match.snippet
            existing = self._matches.get(key)
            if existing is None:
                self._matches[key] = match
                new_matches.append(match)
            else:
                first = match if match.file < existing.file else existing
                self._matches[key] = replace(first, copies=existing.copies + 1)
        return new_matches

    def results(self) -> SearchResults:
        """Return all matches, newest first."""
        return SearchResults(
            matches=sorted(
                self._matches.values(), key=lambda match: (_match_time(match), match.file, match.offset), reverse=True
            ),
            passed=self._passed,
            problems=sorted(self._problems),
        )


def _match_time(match: SearchMatch) -> datetime:
    return parse_timestamp(match.at) or _LONG_AGO


def _scan_files(candidates: Sequence[Candidate], query: SearchQuery, sides: frozenset[MatchSide]) -> Iterator[FileScan]:
    sizes = list(map(_estimate_work, candidates))

    def scan(n: int) -> FileScan:
        return scan_file(candidates[n].path, query, sides, candidates[n].offsets)

    remote_count = sum(is_remote(candidate.path) for candidate in candidates)
    if sum(sizes) < _SERIAL_LIMIT_BYTES and remote_count <= SERIAL_OBJECTS:
        yield from map(scan, range(len(candidates)))
        return

    def scan_packed(n: int) -> object:
        result = scan(n)
        return result if (data := encode_msgpack(result)) is None else data

    for payload in fork_map(sizes, scan_packed, waits=remote_count > 0):
        yield _FILE_SCAN_DECODER.decode(payload) if isinstance(payload, bytes) else cast("FileScan", payload)


def _estimate_work(candidate: Candidate) -> int:
    """Estimate the number of bytes to decode. A rollout is read as a whole, which is slower."""
    if format_of_path(candidate.path).reads_whole_files:
        return 2 * candidate.size
    return candidate.size if candidate.offsets is None else len(candidate.offsets) * _AVERAGE_LINE_BYTES


# --- The newest matches, without decoding all files

_TAIL_SIZES = (1 << 12, 1 << 16, 1 << 20)
_TIMESTAMP = re.compile(rb'"timestamp"\s*:\s*"(\d{4}-[^"]{1,40})"')
_MAX_FILES_PER_RUN = 1_000


class _NewestSearch:
    """A search that scans files from newest to oldest until enough matches are known to be the newest."""

    def __init__(
        self, candidates: Sequence[Candidate], query: SearchQuery, sides: frozenset[MatchSide], program: str | None
    ) -> None:
        self._query = query
        self._sides = sides
        self._program = program
        self._collector = _MatchCollector(query)
        self._file_count = len(candidates)
        self._work_done = 0
        self._times: list[datetime] = []
        self._last_times = {candidate.path: _last_time(candidate) for candidate in candidates}
        self._unseen = sorted(candidates, key=lambda candidate: self._last_times[candidate.path])

    def find_newest(self, count: int) -> SearchResults | None:
        """Return the `count` newest matches, or None if finding them takes too much work."""
        while self._unseen and not (
            len(self._times) >= count and self._times[-count] > self._last_times[self._unseen[-1].path]
        ):
            if self._work_done > _MAX_SERIAL_BYTES:
                return None
            self._scan_candidate(self._unseen.pop())
        if self._unseen:  # some of them may have a newer line before their last one
            late_paths = self._paths_with_lines_since(self._times[-count])
            for candidate in self._unseen:
                if candidate.path in late_paths:
                    self._scan_candidate(candidate)
            self._unseen = [candidate for candidate in self._unseen if candidate.path not in late_paths]
        results = self._collector.results()
        if not self._unseen:
            return results
        return replace(results, matches=results.matches[:count], among=self._file_count)

    def find_all(self) -> SearchResults:
        """Scan the remaining files and return all matches."""
        for file in _scan_files(self._unseen, self._query, self._sides):
            self._add_scan(file)
        self._unseen = []
        return self._collector.results()

    def _scan_candidate(self, candidate: Candidate) -> None:
        self._work_done += _estimate_work(candidate)
        self._add_scan(scan_file(candidate.path, self._query, self._sides, candidate.offsets))

    def _add_scan(self, file: FileScan) -> None:
        for match in self._collector.add(file):
            insort(self._times, _match_time(match))

    def _paths_with_lines_since(self, since: datetime) -> set[str]:
        """Return the unseen files with a timestamp at or after `since`.

        Without ripgrep, return all unseen files modified since then.
        """
        changed = [candidate.path for candidate in self._unseen if candidate.changed >= since.timestamp()]
        if self._program is None:
            return set(changed)
        # A timestamp is later if it is equal up to some digit, and that digit is greater.
        text = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        later = [f"{text[:n]}[{int(digit) + 1}-9]" for n, digit in enumerate(text) if digit.isdigit() and digit != "9"]
        pattern = rf'"timestamp"\s*:\s*"(?:{"|".join([*later, text])})'
        paths: set[str] = set()
        for n in range(0, len(changed), _MAX_FILES_PER_RUN):
            names = changed[n : n + _MAX_FILES_PER_RUN]
            output = run_ripgrep(
                [self._program, *ALL_FILES_OPTIONS, "--files-with-matches", "--null", "-e", pattern, "--", *names]
            )
            paths.update(names if output is None else map(os.fsdecode, output.split(b"\0")[:-1]))
        return paths


def _last_time(candidate: Candidate) -> datetime:
    """Return the last timestamp in a file, or a time in the far future if it is unknown."""
    if candidate.path.endswith(COMPRESSED_SUFFIXES) or is_remote(candidate.path) or not candidate.size:
        return _FAR_FUTURE  # would have to be decompressed to its end or requested, or is not a regular file
    try:
        with open(candidate.path, "rb", buffering=0) as file:  # noqa: PTH123 - perf: very many files
            for length in _TAIL_SIZES:
                file.seek(max(0, candidate.size - length))
                times = _TIMESTAMP.findall(file.read(length))
                if times:
                    return parse_timestamp(max(times).decode("utf-8", "replace")) or _FAR_FUTURE
                if length >= candidate.size:
                    return _LONG_AGO
    except OSError:
        pass
    return _FAR_FUTURE


# --- Tool, state and line number of matches

_MAX_CALLS_PER_FILE = 8
"""For more calls than this in one file, summarizing the whole file is faster."""

FileSurvey = Callable[[Sequence[Path]], "Iterable[FileSummary]"]
"""A function that returns summaries of files, with rows for all calls. It may read the files in parallel."""


def complete_matches(matches: Sequence[SearchMatch], survey: FileSurvey) -> list[SearchMatch]:
    """Return the matches with the tool, state, error and target of each call filled in."""
    calls: dict[str, set[str]] = {}
    for match in matches:
        if match.call is not None and match.state is None:
            calls.setdefault(match.file, set()).add(match.call)
    rows: dict[tuple[str, str], CallRow] = {}
    unclear_files: list[Path] = []
    for file, call_ids in sorted(calls.items()):
        spans = _spans_from_mentions(file, call_ids) if len(call_ids) <= _MAX_CALLS_PER_FILE else {}
        rows |= {(file, call_id): make_call_row(span, file) for call_id, span in spans.items()}
        if len(spans) < len(call_ids):
            unclear_files.append(to_path(file))
    for summary in survey(unclear_files) if unclear_files else ():
        rows |= {(summary.file, row.id): row for row in summary.calls}
    return [
        replace(match, tool=row.tool, state=row.state, error=row.error_kind, target=row.target)
        if (row := rows.get((match.file, match.call or "")))
        else match
        for match in matches
    ]


def _spans_from_mentions(file: str, call_ids: set[str]) -> dict[str, Span]:
    """Return the calls whose state is certain from the lines that mention their ids.

    perf: finding these lines is much faster than decoding all lines in a file.
    """
    filters = [ByteFilter(literal=call_id.encode("utf-8", "surrogatepass")) for call_id in call_ids]
    lines: list[bytes] = []
    try:
        for chunk in read_chunks(source_for_path(file)):
            lines += [bytes(chunk.data[start:end]) + b"\n" for start, end in matching_line_ranges(chunk, filters)]
    except SourceError:
        return {}
    spans: dict[str, Span] = {}
    for span in read(BytesSource(b"".join(lines))).spans:
        is_clear_failure = span.state == "failed" and span.error_kind not in (None, "unknown") and not span.ambiguous
        # In a rollout, many other lines could change the state.
        if (is_clear_failure or span.state == "succeeded") and get_format(span.call.client).states_are_local:
            spans[span.id] = span
    return {call_id: span for call_id, span in spans.items() if call_id in call_ids}


def number_lines(matches: Sequence[SearchMatch], *, calls: bool = True) -> list[SearchMatch]:
    """Return the matches with line numbers filled in. Without `calls`, only messages get one."""
    offsets_by_file: dict[str, set[int]] = {}
    for match in matches:
        if calls or match.kind == "message":
            offsets_by_file.setdefault(match.file, set()).add(match.offset)
    lines: dict[tuple[str, int], int] = {}
    for file, offsets in offsets_by_file.items():
        pending = sorted(offsets, reverse=True)
        number = 1
        with suppress(SourceError):
            for chunk in read_chunks(source_for_path(file)):
                while pending and pending[-1] < chunk.offset + chunk.source_length:
                    offset = pending.pop()
                    end = chunk.start + offset - chunk.offset
                    lines[file, offset] = number + chunk.data.count(b"\n", chunk.start, end)
                if not pending:
                    break
                number += 1 if chunk.skipped_length else chunk.data.count(b"\n", chunk.start, chunk.end)
    return [replace(match, line=lines.get((match.file, match.offset))) for match in matches]
