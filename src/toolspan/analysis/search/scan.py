"""Search one file, decoding only lines that may contain a term. Start at `scan_file`.

Terms are matched against decoded text, never against raw JSON. `scan_file` works in a process pool as well as in a
single process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolspan.analysis.search.query import ByteFilter, MatchSide, SearchQuery
from toolspan.errors import SourceError
from toolspan.formats import json_repair
from toolspan.formats.claude import records
from toolspan.formats.claude.messages import parse_entry_messages
from toolspan.formats.claude.records import CALL_BLOCK_TYPES
from toolspan.formats.decoding import extract_text
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


_SearchText = tuple[str, TextHit]
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
        texts: Iterator[_SearchText]
        if choose_format(source.name, beginning, 0, len(beginning)).reads_whole_files:
            texts = _rollout_texts(path, list(lines), sides)
        else:
            texts = (text for offset, data in lines for text in _claude_texts(offset, data, query, sides))
        for text, hit in texts:
            matches = [term.expression.search(text) for term in query.terms]
            first = next((match for match in matches if match), None)
            if first is not None:
                start, end = first.start(), min(first.end(), first.start() + 2 * SNIPPET_CHARS)
                before = _collapse_whitespace(text[max(0, start - 4 * SNIPPET_CHARS) : start])[-SNIPPET_CHARS:]
                after = _collapse_whitespace(text[end : end + 4 * SNIPPET_CHARS])[:SNIPPET_CHARS]
                snippet = Snippet(before, _collapse_whitespace(text[start:end]), after)
                term_bits = sum(1 << n for n, match in enumerate(matches) if match)
                hits.append(replace(hit, term_bits=term_bits, snippet=snippet))
    except SourceError as error:
        problem = str(error)
    return FileScan(file=path, hits=hits, passed=lines.passed, problem=problem)


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


# --- Claude Code: each line is decoded separately


def _claude_texts(offset: int, data: bytes, query: SearchQuery, sides: frozenset[MatchSide]) -> Iterator[_SearchText]:
    """Yield the searchable text in a line. For a damaged line, this is the text that can be recovered."""
    try:
        entries = [(records.decode_entry(data).entry, offset, data)]
    except ValueError:
        entries = [
            (records.decode_entry(piece.data).entry, offset + piece.offset, piece.data)
            for piece in json_repair.recover_objects(data).pieces
        ]
    for entry, at, entry_data in entries:
        hit = TextHit(
            side="message",
            at=entry.timestamp,
            session=entry.session,
            agent=entry.agent_id,
            cwd=entry.cwd,
            offset=at,
            length=len(entry_data),
        )
        if "message" in sides:
            location = SourceLocation("", 1, 0, len(entry_data))
            for message in parse_entry_messages(entry, location, BytesSource(entry_data)):
                yield message.text, replace(hit, voice=message.voice)
        if entry.type in ("user", "assistant"):
            yield from _call_texts(entry, entry_data, hit, query, sides)


def _call_texts(
    entry: records.Entry, data: bytes, hit: TextHit, query: SearchQuery, sides: frozenset[MatchSide]
) -> Iterator[_SearchText]:
    """Yield the inputs and results of the calls in a line."""

    def may_match(body: Raw | bytes) -> bool:
        return any(term.byte_filter.may_match(bytes(body)) for term in query.terms)

    content = entry.message.content if entry.message else None
    bodies: records.EntryBodies | None = None
    generated_ids = (f"byte-{hit.offset}.{n}" for n in count())  # the same ids that reading generates
    for n, block in enumerate(content if type(content) is list else ()):
        if block.type in CALL_BLOCK_TYPES:
            call = block.id or next(generated_ids)
            bodies = bodies or records.decode_bodies(data)
            call_input = bodies.blocks[n].input
            if "input" in sides and may_match(call_input):
                for text in _iter_strings(call_input):
                    yield text, replace(hit, side="input", call=call)
        elif block.type.endswith("tool_result"):
            call = block.tool_use_id or next(generated_ids)
            if "result" in sides and may_match(block.content):
                yield extract_text(block.content), replace(hit, side="result", call=call)
            bodies = bodies or (records.decode_bodies(data) if "toolUseResult" in sides else None)
            structured = bodies.structured if bodies and "toolUseResult" in sides else None
            for text in _iter_strings(structured) if structured and may_match(structured) else ():
                yield text, replace(hit, side="toolUseResult", call=call)


def _iter_strings(body: bytes | Raw) -> Iterator[str]:
    """Yield every string value in a JSON document; nothing if it is invalid."""
    data = bytes(body)
    try:
        pending = [json_repair.decode_document(data)] if data else []
    except ValueError:
        return
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))
        elif isinstance(value, list):
            pending.extend(reversed(value))


# --- Codex: a rollout is read as a whole, because its lines depend on each other


def _rollout_texts(path: str, lines: list[tuple[int, bytes]], sides: frozenset[MatchSide]) -> Iterator[_SearchText]:
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
            for text in _iter_strings(call.raw_input):
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
