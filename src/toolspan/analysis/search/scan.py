"""Search one file, decoding only lines that may contain a term. Start at `scan_file`.

Terms are matched against decoded text, never against raw JSON. `scan_file` works in a process pool as well as in a
single process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.search.query import ByteFilter, MatchSide, SearchQuery
from toolspan.errors import SourceError
from toolspan.formats.base import LineText
from toolspan.formats.decoding import iter_strings
from toolspan.formats.jsonl import CHUNK_SIZE, MAX_LINE_LENGTH, LineChunk, read_chunks
from toolspan.formats.registry import choose_format, format_of_path
from toolspan.formats.source import BytesSource, Source, source_for_path
from toolspan.reading.transcript import read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.ids import SourceLocation
from toolspan.types.session import MessageAuthor
from toolspan.types.state import State

_FORMAT_PROBE_BYTES = 1 << 16
_READ_STEP = 1 << 16
SNIPPET_CHARS = 60
"""The maximum number of characters on each side of a match in a snippet. A side of this length may be truncated."""
_MAX_IN_MEMORY = 64 << 20


class Snippet(Struct, frozen=True, gc=False):
    """A match and the text around it, with white space collapsed."""

    before: str
    match: str
    after: str


_NO_SNIPPET = Snippet("", "", "")


class TextHit(Struct, frozen=True, kw_only=True, gc=False):
    """Text that contains at least one term."""

    side: MatchSide
    term_bits: int = 0
    """One bit for each query term found in the text."""
    snippet: Snippet = _NO_SNIPPET
    call: str | None = None
    tool: str | None = None
    """The tool. This and the next three fields are set only if the whole file was read."""
    state: State | None = None
    error: ErrorKind | None = None
    target: str | None = None
    voice: MessageAuthor | None = None
    at: str | None = None
    session: str | None = None
    agent: str | None = None
    cwd: str | None = None
    offset: int
    length: int


_SearchText = tuple[str, TextHit | LineText]
"""Decoded text from a call or message, and the hit to report if it contains a term."""


class FileScan(Struct, frozen=True, kw_only=True):
    """The hits in one file."""

    file: str
    hits: list[TextHit] = []
    passed: int = 0
    problem: str | None = None
    """The reason why the file could not be read to the end."""


def scan_file(
    path: str, query: SearchQuery, sides: frozenset[MatchSide], offsets: Sequence[int] | None = None
) -> FileScan:
    """Return the hits in one file. Does not raise if the file is unreadable: `problem` is set instead.

    With `offsets`, only the lines that begin there are decoded. This works only for queries with a single term,
    because other terms may occur in other lines of the same call.
    """
    source = source_for_path(path)
    lines = _CandidateLines(source, query, offsets if len(query.terms) == 1 else None)
    hits: list[TextHit] = []
    problem = None
    try:
        beginning = source.read(0, _FORMAT_PROBE_BYTES)
        if format_of_path(source.name).reads_whole_files or b"\n" not in beginning:
            beginning = source.read(0, CHUNK_SIZE)
        transcript_format = choose_format(source.name, beginning, 0, len(beginning))
        texts: Iterator[_SearchText]
        if transcript_format.reads_whole_files:
            texts = _file_texts(path, list(lines), sides)
        else:

            def may_match(body: bytes) -> bool:
                return any(term.byte_filter.may_match(body) for term in query.terms)

            texts = (
                (text.text, text)
                for offset, data in lines
                for text in transcript_format.line_texts(data, offset, sides, may_match)
            )
        for text, hit in texts:
            matches = [term.expression.search(text) for term in query.terms]
            first = next((match for match in matches if match), None)
            if first is not None:
                start, end = first.start(), min(first.end(), first.start() + 2 * SNIPPET_CHARS)
                before = _collapse_whitespace(text[max(0, start - 4 * SNIPPET_CHARS) : start])[-SNIPPET_CHARS:]
                after = _collapse_whitespace(text[end : end + 4 * SNIPPET_CHARS])[:SNIPPET_CHARS]
                snippet = Snippet(before, _collapse_whitespace(text[start:end]), after)
                term_bits = sum(1 << n for n, match in enumerate(matches) if match)
                text_hit = _make_hit(hit) if isinstance(hit, LineText) else hit
                hits.append(replace(text_hit, term_bits=term_bits, snippet=snippet))
    except SourceError as error:
        problem = str(error)
    return FileScan(file=path, hits=hits, passed=lines.passed, problem=problem)


def _make_hit(text: LineText) -> TextHit:
    return TextHit(
        side=text.side,
        call=text.call,
        voice=text.voice,
        at=text.at,
        session=text.session,
        agent=text.agent,
        cwd=text.cwd,
        offset=text.offset,
        length=text.length,
    )


class _CandidateLines:
    """The lines in a file that may contain a term, with their offsets."""

    def __init__(self, source: Source, query: SearchQuery, offsets: Sequence[int] | None) -> None:
        self._source = source
        self._offsets = offsets
        self._byte_filters = [term.byte_filter for term in query.terms]
        self.passed = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._offsets is not None:
            for offset in self._offsets:
                line = self._read_line(offset)
                if line:
                    yield offset, line
            return
        for chunk in read_chunks(self._source):
            if chunk.skipped_length:
                self.passed += 1
            else:
                for start, end in matching_line_ranges(chunk, self._byte_filters):
                    yield chunk.offset + start - chunk.start, bytes(chunk.data[start:end])

    def _read_line(self, offset: int) -> bytes:
        """Return the line that begins at `offset`; empty if it exceeds the size limit."""
        line = b""
        while len(line) <= MAX_LINE_LENGTH:
            piece = self._source.read(offset + len(line), max(_READ_STEP, len(line)))
            before, newline, _ = piece.partition(b"\n")
            line += before
            if newline or not piece:
                return line
        self.passed += 1
        return b""


def matching_line_ranges(chunk: LineChunk, byte_filters: Sequence[ByteFilter]) -> list[tuple[int, int]]:
    """Return the ranges of the chunk's buffer that contain lines accepted by one of the filters, in order."""
    ranges: set[tuple[int, int]] = set()
    for byte_filter in byte_filters:
        find = byte_filter.make_finder(chunk.data, chunk.end)
        at = find(chunk.start)
        while at >= 0:
            start = max(chunk.data.rfind(b"\n", chunk.start, at) + 1, chunk.start)
            end = chunk.data.find(b"\n", at, chunk.end)
            end = chunk.end if end < 0 else end
            ranges.add((start, end))
            at = find(end + 1)
    return sorted(ranges)


def _collapse_whitespace(text: str) -> str:
    collapsed = " ".join(text.split())
    if not collapsed:
        return text[:1] and " "
    return f"{' ' * text[0].isspace()}{collapsed}{' ' * text[-1].isspace()}"


def _file_texts(path: str, lines: list[tuple[int, bytes]], sides: frozenset[MatchSide]) -> Iterator[_SearchText]:
    """Yield the texts in a file whose lines depend on each other, if any of `lines` may contain a term."""
    if not lines:
        return
    source = source_for_path(path)
    data = source.read(0, _MAX_IN_MEMORY)
    if len(data) < _MAX_IN_MEMORY:
        source = BytesSource(data, path)
    transcript = read(source)
    # A single JSON document has no lines to choose from.
    marked = None if transcript.format.is_document(data[:_FORMAT_PROBE_BYTES]) else _MarkedLines(lines)
    session, cwd = transcript.session_id, transcript.info.cwd

    def make_hit(side: MatchSide, at: str | None, agent: str | None, place: SourceLocation) -> TextHit:
        offset, length = place.offset, place.length
        return TextHit(side=side, at=at, session=session, agent=agent, cwd=cwd, offset=offset, length=length)

    for span in transcript.spans:
        call, result = span.call, span.result
        facts = {
            "call": call.id,
            "tool": call.tool or None,
            "state": span.state,
            "error": span.error_kind,
            "target": call.target,
        }
        if "input" in sides and call.place and (marked is None or call.place in marked):
            hit = replace(make_hit("input", call.requested_at, call.agent_id, call.place), **facts)
            for text in iter_strings(call.raw_input):
                yield text, hit
        if "result" in sides and result and (marked is None or result.place in marked):
            yield result.text, replace(make_hit("result", result.finished_at, call.agent_id, result.place), **facts)
    if "message" not in sides:
        return
    # A subagent's rollout begins with its parent's messages, and all lines must be read to distinguish the two.
    reads_all = marked is None or transcript.info.agent_id is not None
    for message in transcript.messages() if reads_all else transcript.reader.messages_in(sorted(lines)):
        hit = make_hit("message", message.at, message.agent_id, message.place)
        yield message.text, replace(hit, voice=message.voice)


class _MarkedLines:
    """The lines in a rollout that may contain a term."""

    def __init__(self, lines: list[tuple[int, bytes]]) -> None:
        self.lines = sorted(lines)
        self._starts = [offset for offset, _ in self.lines]

    def __contains__(self, place: SourceLocation) -> bool:
        n = bisect_right(self._starts, place.offset) - 1
        return n >= 0 and place.offset <= self._starts[n] + len(self.lines[n][1])
