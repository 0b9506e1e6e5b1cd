"""One file, looked through: only the lines that may hold a word are decoded.

In: a path and a query. Out: `Scanned`, the hits with their surroundings; what the words stand in
is decoded text, never raw JSON. Lines are taken from the file in bounded pieces; a torn last line
holds nothing yet. The same function of one file serves a process pool and a single process. Read
`scan` first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct

from toolspan.analysis.search.query import (
    ByteFilter,
    MatchSide,
    ScanScope,
    SearchQuery,
    SearchText,
    TextContext,
    iter_strings,
)
from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.claude.records import CALL_BLOCK_TYPES, Entry
from toolspan.formats.decoding import extract_text
from toolspan.formats.detect import choose_format
from toolspan.formats.jsonl import CHUNK_SIZE, MAX_LINE_LENGTH, LineChunk, read_chunks
from toolspan.formats.paths import format_of_path
from toolspan.formats.source import BytesSource, Source, source_for_path
from toolspan.reading.transcript import Transcript, read
from toolspan.types.error_kinds import ErrorKind
from toolspan.types.ids import SourceLocation
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import Span
from toolspan.types.state import State

_MAX_PENDING_BYTES = 32 << 20
"""Lines that hit are decoded when so many bytes of them have come together."""
_FORMAT_PROBE_BYTES = 1 << 16
_READ_STEP = 1 << 16
_SNIPPET_CHARS = 60


class Snippet(Struct, frozen=True, gc=False):
    """A match and what stands around it, white space shortened."""

    before: str
    match: str
    after: str


class MatchedCall(Struct, frozen=True, kw_only=True, gc=False):
    """What the lines of a call tell about it together."""

    tool: str | None
    state: State
    error: ErrorKind | None
    target: str | None


class TextHit(Struct, frozen=True, kw_only=True, gc=False):
    """One text in which words stand."""

    side: MatchSide
    term_bits: int
    """Which words: one bit each."""
    snippet: Snippet
    call: str | None = None
    """The call whose input or result it is."""
    call_info: MatchedCall | None = None
    """What is known of the call, where the whole file was read."""
    voice: MessageAuthor | None = None
    """Who said it, when it is a message."""
    at: str | None = None
    session: str | None = None
    agent: str | None = None
    cwd: str | None = None
    """The folder in which the session worked."""
    offset: int
    length: int


class FileScan(Struct, frozen=True, kw_only=True):
    """What one file gave."""

    file: str
    hits: list[TextHit] = []
    passed: int = 0
    """Lines over the limit, which nobody looked into."""
    problem: str | None = None
    """Set when the file could not be read to its end."""


def scan_file(
    path: str, query: SearchQuery, sides: frozenset[MatchSide], offsets: Sequence[int] | None = None
) -> FileScan:
    """The hits of one file; a file that cannot be read is told, not raised.

    With `offsets`, only the lines that begin there are looked at.
    """
    lines = _CandidateLines(source_for_path(path), query, offsets if len(query.terms) == 1 else None)
    hits: list[TextHit] = []
    problem = None
    try:
        for text in _candidate_texts(path, lines, ScanScope(sides, lines.byte_filters)):
            hit = _find_hit(text, query)
            if hit is not None:
                hits.append(hit)
    except SourceError as error:
        problem = str(error)
    return FileScan(file=path, hits=hits, passed=lines.passed, problem=problem)


def _candidate_texts(path: str, lines: _CandidateLines, scope: ScanScope) -> Iterator[SearchText]:
    """The texts in which words may stand."""
    if _reads_whole_file(lines.source):
        marked = [line for piece in lines.iter_pieces() for line in piece.items()]
        yield from rollout_texts(path, marked, scope) if marked else ()
        return
    for piece in lines.iter_pieces():
        yield from _claude_texts(piece, scope)


def _reads_whole_file(source: Source) -> bool:
    """Whose file it is, by what reading goes by; of most, a short beginning tells."""
    name = source.name
    beginning = source.read(0, _FORMAT_PROBE_BYTES)
    if format_of_path(name).reads_whole_files or b"\n" not in beginning:
        beginning = source.read(0, CHUNK_SIZE)
    return choose_format(name, beginning, 0, len(beginning)).reads_whole_files


class _CandidateLines:
    """The lines of a file that may hold a word."""

    def __init__(self, source: Source, query: SearchQuery, offsets: Sequence[int] | None) -> None:
        self.source = source
        self._offsets = offsets
        self.byte_filters = [word.byte_filter for word in query.terms]
        self._matched_filters = [False] * len(self.byte_filters)
        self._window = 0, b""
        """What was read last: lines that hit often stand close together."""
        self.passed = 0

    def iter_pieces(self) -> Iterator[dict[int, bytes]]:
        """Lines by their offsets, some at a time; the last not when a word is nowhere."""
        if self._offsets is not None:
            yield {offset: line for offset in self._offsets if (line := self._read_line(offset))}
            return
        lines: dict[int, bytes] = {}
        size = 0
        for chunk in read_chunks(self.source):
            if chunk.skipped_length:
                self.passed += 1
                continue
            for start, end in self._matching_ranges(chunk):
                lines[chunk.offset + start - chunk.start] = bytes(chunk.data[start:end])
                size += end - start
            if size >= _MAX_PENDING_BYTES:
                yield lines
                lines, size = {}, 0
        if lines and all(self._matched_filters):
            yield lines

    def _read_line(self, offset: int) -> bytes:
        start, data = self._window
        if not start <= offset < start + len(data):
            start, data = self._window = offset, self.source.read(offset, _READ_STEP)
        end = data.find(b"\n", offset - start)
        if end >= 0:
            return data[offset - start : end]
        line = line_at(self.source, offset)
        self.passed += line is None
        return line or b""

    def _matching_ranges(self, chunk: LineChunk) -> list[tuple[int, int]]:
        """Where in the chunk's buffer the lines lie that a sieve stops at."""
        ranges: dict[int, int] = {}
        for n, byte_filter in enumerate(self.byte_filters):
            for start, end in matching_line_ranges(chunk, byte_filter):
                ranges[start] = end
                self._matched_filters[n] = True
        return sorted(ranges.items())


def line_at(source: Source, offset: int) -> bytes | None:
    """The line that begins at an offset; None when it is over the limit.

    Raises:
        SourceError: the source cannot be read.
    """
    line = b""
    while len(line) <= MAX_LINE_LENGTH:
        piece = source.read(offset + len(line), max(_READ_STEP, len(line)))
        before, newline, _ = piece.partition(b"\n")
        line += before
        if newline or not piece:
            return line
    return None


def matching_line_ranges(chunk: LineChunk, byte_filter: ByteFilter) -> Iterator[tuple[int, int]]:
    """Where in the chunk's buffer the lines lie that one sieve stops at."""
    find = byte_filter.make_finder(chunk.data, chunk.end)
    at = find(chunk.start)
    while at >= 0:
        start = max(chunk.data.rfind(b"\n", chunk.start, at) + 1, chunk.start)
        end = chunk.data.find(b"\n", at, chunk.end)
        end = chunk.end if end < 0 else end
        yield start, end
        at = find(end + 1)


def _find_hit(text: SearchText, query: SearchQuery) -> TextHit | None:
    term_bits, first = 0, None
    for n, term in enumerate(query.terms):
        position = term.find_in(text.text)
        if position is not None:
            term_bits |= 1 << n
            first = first or position
    if first is None:
        return None
    return TextHit(
        side=text.side,
        term_bits=term_bits,
        snippet=_make_snippet(text.text, *first),
        call=text.call,
        call_info=_call_info(text.span) if text.span else None,
        voice=text.voice,
        at=text.context.at,
        session=text.context.session,
        agent=text.context.agent,
        cwd=text.context.cwd,
        offset=text.context.offset,
        length=text.context.length,
    )


def _call_info(span: Span) -> MatchedCall:
    return MatchedCall(tool=span.call.tool or None, state=span.state, error=span.error_kind, target=span.call.target)


def _make_snippet(text: str, start: int, end: int) -> Snippet:
    end = min(end, start + 2 * _SNIPPET_CHARS)
    before = _collapse_whitespace(text[max(0, start - 4 * _SNIPPET_CHARS) : start])
    after = _collapse_whitespace(text[end : end + 4 * _SNIPPET_CHARS])
    return Snippet(before[-_SNIPPET_CHARS:], _collapse_whitespace(text[start:end]), after[:_SNIPPET_CHARS])


def _collapse_whitespace(text: str) -> str:
    """White space shortened to one blank; what is blank at the ends stays so."""
    collapsed = " ".join(text.split())
    if not collapsed:
        return text[:1] and " "
    return f"{' ' * text[0].isspace()}{collapsed}{' ' * text[-1].isspace()}"


def _claude_texts(piece: dict[int, bytes], scope: ScanScope) -> Iterator[SearchText]:
    """The texts of lines that Claude Code wrote."""
    for offset, data in piece.items():
        for entry, at, entry_data in _decode_entries(offset, data):
            yield from _entry_texts(entry, at, entry_data, scope)


def _decode_entries(offset: int, data: bytes) -> Iterator[tuple[Entry, int, bytes]]:
    """The entries of a line with offset and bytes; of a damaged line those that were saved."""
    try:
        yield records.decode_entry(data).entry, offset, data
    except ValueError:
        for piece in json_repair.recover_objects(data).pieces:
            yield records.decode_entry(piece.data).entry, offset + piece.offset, piece.data


def _entry_texts(entry: Entry, offset: int, data: bytes, scope: ScanScope) -> Iterator[SearchText]:
    context = TextContext(entry.timestamp, entry.session, entry.agent_id, entry.cwd, offset, len(data))
    if "message" in scope.sides:
        for message in parse_entry_messages(entry, SourceLocation("", 1, 0, len(data)), BytesSource(data)):
            yield SearchText("message", message.text, context, voice=message.voice)
    if entry.type in ("user", "assistant"):
        yield from _block_texts(entry, data, context, scope)


def _block_texts(entry: Entry, data: bytes, context: TextContext, scope: ScanScope) -> Iterator[SearchText]:
    """What the blocks of an entry gave to calls, and got from them."""
    content = entry.message.content if entry.message else None
    inputs: list[records.BlockBody] | None = None
    nameless = (f"byte-{context.offset}.{n}" for n in count())
    for n, block in enumerate(content if type(content) is list else ()):
        if block.type in CALL_BLOCK_TYPES:
            name = block.id or next(nameless)
            inputs = inputs or records.decode_bodies(data).blocks
            input_body = inputs[n].input
            for text in iter_strings(input_body) if "input" in scope.sides and scope.may_hold(input_body) else ():
                yield SearchText("input", text, context, call=name)
        elif block.type.endswith("tool_result"):
            name = block.tool_use_id or next(nameless)
            if "result" in scope.sides and scope.may_hold(block.content):
                yield SearchText("result", extract_text(block.content), context, call=name)


_MAX_IN_MEMORY = 64 << 20
_DOCUMENT_PROBE_BYTES = 1 << 16


def rollout_texts(path: str, lines: list[tuple[int, bytes]], scope: ScanScope) -> Iterator[SearchText]:
    """The texts of the calls and messages whose lines may hold a word."""
    source = _load_source(path)
    transcript = read(source)
    marked = None if transcript.format.is_document(source.read(0, _DOCUMENT_PROBE_BYTES)) else _MarkedLines(lines)
    session, cwd = transcript.session_id, transcript.info.cwd

    def line_context(at: str | None, agent: str | None, place: SourceLocation) -> TextContext:
        return TextContext(at, session, agent, cwd, place.offset, place.length)

    for span in transcript.spans:
        call, result = span.call, span.result
        if "input" in scope.sides and call.place and (marked is None or call.place in marked):
            request_context = line_context(call.requested_at, call.agent_id, call.place)
            for text in iter_strings(call.raw_input):
                yield SearchText("input", text, request_context, call=call.id, span=span)
        if "result" in scope.sides and result and (marked is None or result.place in marked):
            result_context = line_context(result.finished_at, call.agent_id, result.place)
            yield SearchText("result", result.text, result_context, call=call.id, span=span)
    for message in _rollout_messages(transcript, marked) if "message" in scope.sides else ():
        message_context = line_context(message.at, message.agent_id, message.place)
        yield SearchText("message", message.text, message_context, voice=message.voice)


def _rollout_messages(transcript: Transcript, marked: _MarkedLines | None) -> Iterator[Message]:
    """The messages of a rollout, those in marked lines at least.

    Of a subagent's, which begins with words of others, all lines are needed to tell whose.
    """
    if marked is None or transcript.info.agent_id is not None:
        return transcript.messages()
    return transcript.reader.messages_in(marked.lines)


class _MarkedLines:
    """The lines of a rollout that may hold a word."""

    def __init__(self, lines: list[tuple[int, bytes]]) -> None:
        self.lines = sorted(lines)
        self._starts = [offset for offset, _ in self.lines]

    def __contains__(self, place: SourceLocation) -> bool:
        n = bisect_right(self._starts, place.offset) - 1
        return n >= 0 and place.offset <= self._starts[n] + len(self.lines[n][1])


def _load_source(path: str) -> Source:
    """The file in memory, unless it is too big: its texts are asked for one by one."""
    source = source_for_path(path)
    data = source.read(0, _MAX_IN_MEMORY)
    return BytesSource(data, path) if len(data) < _MAX_IN_MEMORY else source
