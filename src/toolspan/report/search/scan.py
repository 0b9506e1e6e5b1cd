"""One file, looked through: only the lines that may hold a word are decoded.

In: a path and a query. Out: `Scanned`, the hits with their surroundings; what the words stand in
is decoded text, never raw JSON. Lines are taken from the file in bounded pieces; a torn last line
holds nothing yet. The same function of one file serves a process pool and a single process. Read
`scan` first.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal, NamedTuple

from msgspec import Raw, Struct

from toolspan.errors import SourceError
from toolspan.model.message import Voice
from toolspan.model.place import Place
from toolspan.read.messages import heard
from toolspan.read.transcript import read, reader_for
from toolspan.report.search.words import Query, Sieve
from toolspan.wire import claude, document
from toolspan.wire.claude import CALL_BLOCKS, Entry
from toolspan.wire.jsonl import CHUNK, LINE_LIMIT, Chunk, read_chunks
from toolspan.wire.source import BytesSource, Source, source_of

Side = Literal["input", "result", "message"]
SIDES: tuple[Side, ...] = ("input", "result", "message")

_SLICE = 32 << 20
"""Lines that hit are decoded when so many bytes of them have come together."""
_HELD = 64 << 20
_STEP = 1 << 16
_AROUND = 60
_WHITE = re.compile(r"\s+")


class Snippet(Struct, frozen=True, gc=False):
    """A match and what stands around it, white space shortened."""

    before: str
    match: str
    after: str


class Hit(Struct, frozen=True, kw_only=True, gc=False):
    """One text in which words stand."""

    side: Side
    words: int
    """Which words: one bit each."""
    snippet: Snippet
    call: str | None = None
    """The call whose input or result it is."""
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


class _Where(NamedTuple):
    """What a line tells about all that stands in it."""

    at: str | None
    session: str | None
    agent: str | None
    cwd: str | None
    offset: int
    length: int


class _Text(NamedTuple):
    """A text of a call or a message."""

    side: Side
    text: str
    where: _Where
    call: str | None = None
    voice: Voice | None = None


class _Look(NamedTuple):
    """What is looked at."""

    sides: frozenset[Side]
    sieves: Sequence[Sieve]

    def may_hold(self, body: Raw) -> bool:
        """Whether a part of a line may hold a word: most parts of most lines hold none."""
        data = bytes(body)
        return any(sieve.finder(data, len(data))(0) >= 0 for sieve in self.sieves)


def scan(
    path: str, query: Query, sides: frozenset[Side], offsets: Sequence[int] | None = None
) -> Scanned:
    """The hits of one file; a file that cannot be read is told, not raised.

    With `offsets`, only the lines that begin there are looked at.
    """
    lines = _Lines(path, query, offsets if len(query.words) == 1 else None)
    hits: list[Hit] = []
    problem = None
    try:
        codex = _dialect(path) == "codex"
        for piece in lines.pieces():
            texts = _rollout(path, sides) if codex else _claude(piece, _Look(sides, lines.sieves))
            hits += [hit for text in texts if (hit := _hit(text, query)) is not None]
            if codex:
                break
    except SourceError as error:
        problem = str(error)
    return Scanned(file=path, hits=hits, passed=lines.passed, problem=problem)


def _dialect(path: str) -> str:
    """Whose file it is, by what reading goes by."""
    source = source_of(path)
    beginning = source.read(0, CHUNK)
    return reader_for(source, Chunk(offset=0, data=beginning, end=len(beginning))).dialect


class _Lines:
    """The lines of a file that may hold a word."""

    def __init__(self, path: str, query: Query, offsets: Sequence[int] | None) -> None:
        self._source = source_of(path)
        self._offsets = offsets
        self.sieves = [word.sieve for word in query.words]
        self._met = [False] * len(self.sieves)
        self.passed = 0

    def pieces(self) -> Iterator[dict[int, bytes]]:
        """Lines by their offsets, some at a time; the last not when a word is nowhere."""
        if self._offsets is not None:
            yield {offset: line for offset in self._offsets if (line := self._line(offset))}
            return
        held: dict[int, bytes] = {}
        size = 0
        for chunk in read_chunks(self._source):
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
        """The line that begins at an offset; empty when it is over the limit."""
        line = b""
        while len(line) <= LINE_LIMIT:
            piece = self._source.read(offset + len(line), max(_STEP, len(line)))
            before, newline, _ = piece.partition(b"\n")
            line += before
            if newline or not piece:
                return line
        self.passed += 1
        return b""

    def _taken(self, chunk: Chunk) -> list[tuple[int, int]]:
        """Where in the chunk's buffer the lines lie that a sieve stops at."""
        found: dict[int, int] = {}
        for n, sieve in enumerate(self.sieves):
            for start, end in rows(chunk, sieve):
                found[start] = end
                self._met[n] = True
        return sorted(found.items())


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


def _hit(text: _Text, query: Query) -> Hit | None:
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
        voice=text.voice,
        at=text.where.at,
        session=text.where.session,
        agent=text.where.agent,
        cwd=text.where.cwd,
        offset=text.where.offset,
        length=text.where.length,
    )


def _snippet(text: str, start: int, end: int) -> Snippet:
    end = min(end, start + 2 * _AROUND)
    before = _squeezed(text[max(0, start - 4 * _AROUND) : start])
    after = _squeezed(text[end : end + 4 * _AROUND])
    return Snippet(before[-_AROUND:], _squeezed(text[start:end]), after[:_AROUND])


def _squeezed(text: str) -> str:
    """White space shortened to one blank; what is blank at the ends stays so."""
    return _WHITE.sub(" ", text)


def _claude(piece: dict[int, bytes], look: _Look) -> Iterator[_Text]:
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


def _entry_texts(entry: Entry, offset: int, data: bytes, look: _Look) -> Iterator[_Text]:
    where = _Where(entry.timestamp, entry.session, entry.agent_id, entry.cwd, offset, len(data))
    if "message" in look.sides:
        for message in heard(entry, Place("", 1, 0, len(data)), BytesSource(data)):
            yield _Text("message", message.text, where, voice=message.voice)
    if entry.type in ("user", "assistant"):
        yield from _blocks(entry, data, where, look)


def _blocks(entry: Entry, data: bytes, where: _Where, look: _Look) -> Iterator[_Text]:
    """What the blocks of an entry gave to calls, and got from them."""
    content = entry.message.content if entry.message else None
    inputs: list[claude.Body] | None = None
    nameless = (f"byte-{where.offset}.{n}" for n in count())
    for n, block in enumerate(content if type(content) is list else ()):
        if block.type in CALL_BLOCKS:
            name = block.id or next(nameless)
            inputs = inputs or claude.decode_bodies(data).blocks
            given = inputs[n].input
            for text in _strings(given) if "input" in look.sides and look.may_hold(given) else ():
                yield _Text("input", text, where, call=name)
        elif block.type.endswith("tool_result"):
            name = block.tool_use_id or next(nameless)
            if "result" in look.sides and look.may_hold(block.content):
                yield _Text("result", claude.text_of(block.content), where, call=name)


def _strings(body: bytes | Raw) -> Iterator[str]:
    """Every string in a JSON document, keys left out."""
    data = bytes(body)
    try:
        waiting = [document.decode(data)] if data else []
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def _rollout(path: str, sides: frozenset[Side]) -> Iterator[_Text]:
    """The texts of a rollout, which is read as a whole: its lines say little by themselves."""
    transcript = read(_held(path))
    session, cwd = transcript.session_id, transcript.info.cwd

    def where(at: str | None, agent: str | None, place: Place) -> _Where:
        return _Where(at, session, agent, cwd, place.offset, place.length)

    for span in transcript.spans:
        call, result = span.call, span.result
        if "input" in sides and call.place is not None:
            asked = where(call.requested_at, call.agent_id, call.place)
            for text in _strings(call.raw_input):
                yield _Text("input", text, asked, call=call.id)
        if "result" in sides and result is not None:
            answered = where(result.finished_at, call.agent_id, result.place)
            yield _Text("result", result.text, answered, call=call.id)
    for message in transcript.messages() if "message" in sides else ():
        said = where(message.at, message.agent_id, message.place)
        yield _Text("message", message.text, said, voice=message.voice)


def _held(path: str) -> Source:
    """The file in memory, unless it is too big: its texts are asked for one by one."""
    source = source_of(path)
    data = source.read(0, _HELD)
    return BytesSource(data, path) if len(data) < _HELD else source
