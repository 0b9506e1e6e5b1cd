"""One file, looked through: only the lines that may hold a word are decoded.

In: a path and a query. Out: `Scanned`, the hits with their surroundings; what the words stand in
is decoded text, never raw JSON. Lines are taken from the file in bounded pieces; a torn last line
holds nothing yet. The same function of one file serves a process pool and a single process. Read
`scan` first.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.kind import ErrorKind
from toolspan.model.message import Voice
from toolspan.model.place import Place
from toolspan.model.span import Span
from toolspan.model.state import State
from toolspan.read.messages import heard
from toolspan.report.search.texts import Look, Side, Text, Where, strings
from toolspan.report.search.words import Query, Sieve
from toolspan.wire import claude, document
from toolspan.wire.claude import CALL_BLOCKS, Entry
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.detect import reads_as
from toolspan.wire.jsonl import CHUNK, LINE_LIMIT, Chunk, read_chunks
from toolspan.wire.source import BytesSource, Source, source_of

_SLICE = 32 << 20
"""Lines that hit are decoded when so many bytes of them have come together."""
_HEAD = 1 << 16
_STEP = 1 << 16
_AROUND = 60


class Snippet(Struct, frozen=True, gc=False):
    """A match and what stands around it, white space shortened."""

    before: str
    match: str
    after: str


class Told(Struct, frozen=True, kw_only=True, gc=False):
    """What the lines of a call tell about it together."""

    tool: str | None
    state: State
    error: ErrorKind | None
    target: str | None


class Hit(Struct, frozen=True, kw_only=True, gc=False):
    """One text in which words stand."""

    side: Side
    words: int
    """Which words: one bit each."""
    snippet: Snippet
    call: str | None = None
    """The call whose input or result it is."""
    told: Told | None = None
    """What is known of the call, where the whole file was read."""
    voice: Voice | None = None
    """Who said it, when it is a message."""
    at: str | None = None
    session: str | None = None
    agent: str | None = None
    cwd: str | None = None
    """The folder in which the session worked."""
    offset: int
    length: int


class Scanned(Struct, frozen=True, kw_only=True):
    """What one file gave."""

    file: str
    hits: list[Hit] = []
    passed: int = 0
    """Lines over the limit, which nobody looked into."""
    problem: str | None = None
    """Set when the file could not be read to its end."""


def scan(
    path: str, query: Query, sides: frozenset[Side], offsets: Sequence[int] | None = None
) -> Scanned:
    """The hits of one file; a file that cannot be read is told, not raised.

    With `offsets`, only the lines that begin there are looked at.
    """
    lines = _Lines(source_of(path), query, offsets if len(query.words) == 1 else None)
    hits: list[Hit] = []
    problem = None
    try:
        for text in _texts(path, lines, Look(sides, lines.sieves)):
            hit = _hit(text, query)
            if hit is not None:
                hits.append(hit)
    except SourceError as error:
        problem = str(error)
    return Scanned(file=path, hits=hits, passed=lines.passed, problem=problem)


def _texts(path: str, lines: "_Lines", look: Look) -> Iterator[Text]:
    """The texts in which words may stand."""
    if _is_codex(lines.source):
        from toolspan.report.search.rollout import rollout_texts  # with the whole reader

        marked = [one for piece in lines.pieces() for one in piece.items()]
        yield from rollout_texts(path, marked, look) if marked else ()
        return
    for piece in lines.pieces():
        yield from _claude(piece, look)


def _is_codex(source: Source) -> bool:
    """Whose file it is, by what reading goes by; of most, a short beginning tells."""
    name = source.name
    beginning = source.read(0, _HEAD)
    if is_rollout(os.path.basename(name)) or b"\n" not in beginning:  # noqa: PTH119
        beginning = source.read(0, CHUNK)
    return reads_as(name, beginning, 0, len(beginning)) != "claude"


class _Lines:
    """The lines of a file that may hold a word."""

    def __init__(self, source: Source, query: Query, offsets: Sequence[int] | None) -> None:
        self.source = source
        self._offsets = offsets
        self.sieves = [word.sieve for word in query.words]
        self._met = [False] * len(self.sieves)
        self._window = 0, b""
        """What was read last: lines that hit often stand close together."""
        self.passed = 0

    def pieces(self) -> Iterator[dict[int, bytes]]:
        """Lines by their offsets, some at a time; the last not when a word is nowhere."""
        if self._offsets is not None:
            yield {offset: line for offset in self._offsets if (line := self._line(offset))}
            return
        held: dict[int, bytes] = {}
        size = 0
        for chunk in read_chunks(self.source):
            if chunk.passed:
                self.passed += 1
                continue
            for start, end in self._taken(chunk):
                held[chunk.offset + start - chunk.start] = bytes(chunk.data[start:end])
                size += end - start
            if size >= _SLICE:
                yield held
                held, size = {}, 0
        if held and all(self._met):
            yield held

    def _line(self, offset: int) -> bytes:
        start, data = self._window
        if not start <= offset < start + len(data):
            start, data = self._window = offset, self.source.read(offset, _STEP)
        end = data.find(b"\n", offset - start)
        if end >= 0:
            return data[offset - start : end]
        line = line_at(self.source, offset)
        self.passed += line is None
        return line or b""

    def _taken(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Where in the chunk's buffer the lines lie that a sieve stops at."""
        found: dict[int, int] = {}
        for n, sieve in enumerate(self.sieves):
            for start, end in rows(chunk, sieve):
                found[start] = end
                self._met[n] = True
        return sorted(found.items())


def line_at(source: Source, offset: int) -> bytes | None:
    """The line that begins at an offset; None when it is over the limit.

    Raises:
        SourceError: the source cannot be read.
    """
    line = b""
    while len(line) <= LINE_LIMIT:
        piece = source.read(offset + len(line), max(_STEP, len(line)))
        before, newline, _ = piece.partition(b"\n")
        line += before
        if newline or not piece:
            return line
    return None


def rows(chunk: Chunk, sieve: Sieve) -> Iterator[tuple[int, int]]:
    """Where in the chunk's buffer the lines lie that one sieve stops at."""
    find = sieve.finder(chunk.data, chunk.end)
    at = find(chunk.start)
    while at >= 0:
        start = max(chunk.data.rfind(b"\n", chunk.start, at) + 1, chunk.start)
        end = chunk.data.find(b"\n", at, chunk.end)
        end = chunk.end if end < 0 else end
        yield start, end
        at = find(end + 1)


def _hit(text: Text, query: Query) -> Hit | None:
    words, first = 0, None
    for n, word in enumerate(query.words):
        found = word.within(text.text)
        if found is not None:
            words |= 1 << n
            first = first or found
    if first is None:
        return None
    return Hit(
        side=text.side,
        words=words,
        snippet=_snippet(text.text, *first),
        call=text.call,
        told=_told(text.span) if text.span else None,
        voice=text.voice,
        at=text.where.at,
        session=text.where.session,
        agent=text.where.agent,
        cwd=text.where.cwd,
        offset=text.where.offset,
        length=text.where.length,
    )


def _told(span: Span) -> Told:
    return Told(
        tool=span.call.tool or None,
        state=span.state,
        error=span.error_kind,
        target=span.call.target,
    )


def _snippet(text: str, start: int, end: int) -> Snippet:
    end = min(end, start + 2 * _AROUND)
    before = _squeezed(text[max(0, start - 4 * _AROUND) : start])
    after = _squeezed(text[end : end + 4 * _AROUND])
    return Snippet(before[-_AROUND:], _squeezed(text[start:end]), after[:_AROUND])


def _squeezed(text: str) -> str:
    """White space shortened to one blank; what is blank at the ends stays so."""
    words = " ".join(text.split())
    if not words:
        return text[:1] and " "
    return f"{' ' * text[0].isspace()}{words}{' ' * text[-1].isspace()}"


def _claude(piece: dict[int, bytes], look: Look) -> Iterator[Text]:
    """The texts of lines that Claude Code wrote."""
    for offset, data in piece.items():
        for entry, at, own in _entries(offset, data):
            yield from _entry_texts(entry, at, own, look)


def _entries(offset: int, data: bytes) -> Iterator[tuple[Entry, int, bytes]]:
    """The entries of a line with offset and bytes; of a damaged line those that were saved."""
    try:
        yield claude.decode(data).entry, offset, data
    except ValueError:
        for piece in document.recover(data).pieces:
            yield claude.decode(piece.data).entry, offset + piece.offset, piece.data


def _entry_texts(entry: Entry, offset: int, data: bytes, look: Look) -> Iterator[Text]:
    where = Where(entry.timestamp, entry.session, entry.agent_id, entry.cwd, offset, len(data))
    if "message" in look.sides:
        for message in heard(entry, Place("", 1, 0, len(data)), BytesSource(data)):
            yield Text("message", message.text, where, voice=message.voice)
    if entry.type in ("user", "assistant"):
        yield from _blocks(entry, data, where, look)


def _blocks(entry: Entry, data: bytes, where: Where, look: Look) -> Iterator[Text]:
    """What the blocks of an entry gave to calls, and got from them."""
    content = entry.message.content if entry.message else None
    inputs: list[claude.Body] | None = None
    nameless = (f"byte-{where.offset}.{n}" for n in count())
    for n, block in enumerate(content if type(content) is list else ()):
        if block.type in CALL_BLOCKS:
            name = block.id or next(nameless)
            inputs = inputs or claude.decode_bodies(data).blocks
            given = inputs[n].input
            for text in strings(given) if "input" in look.sides and look.may_hold(given) else ():
                yield Text("input", text, where, call=name)
        elif block.type.endswith("tool_result"):
            name = block.tool_use_id or next(nameless)
            if "result" in look.sides and look.may_hold(block.content):
                yield Text("result", claude.text_of(block.content), where, call=name)
