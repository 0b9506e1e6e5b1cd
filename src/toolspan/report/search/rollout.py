"""The texts of one rollout of Codex's in which words may stand.

In: a path, and the lines that may hold a word. Out: `Text`s. The file is read as a whole, because
its lines say little by themselves; but what a call was given, and what it gave back, stands in one
line each, so that only the calls and messages of those lines are looked at. Read `rollout_texts`
first.
"""

from bisect import bisect_right
from collections.abc import Iterator

from toolspan.model.message import Message
from toolspan.model.place import Place
from toolspan.read.codex.messages import messages
from toolspan.read.transcript import Transcript, read
from toolspan.report.search.texts import Look, Text, Where, strings
from toolspan.wire import codex, document
from toolspan.wire.codex import Record
from toolspan.wire.detect import is_document
from toolspan.wire.source import BytesSource, Source, source_of

_HELD = 64 << 20
_HEAD = 1 << 16


def rollout_texts(path: str, lines: list[tuple[int, bytes]], look: Look) -> Iterator[Text]:
    """The texts of the calls and messages whose lines may hold a word."""
    source = _held(path)
    transcript = read(source)
    marked = None if is_document(source.read(0, _HEAD)) else _Marked(lines)
    session, cwd = transcript.session_id, transcript.info.cwd

    def where(at: str | None, agent: str | None, place: Place) -> Where:
        return Where(at, session, agent, cwd, place.offset, place.length)

    for span in transcript.spans:
        call, result = span.call, span.result
        if "input" in look.sides and call.place and (marked is None or call.place in marked):
            asked = where(call.requested_at, call.agent_id, call.place)
            for text in strings(call.raw_input):
                yield Text("input", text, asked, call=call.id, span=span)
        if "result" in look.sides and result and (marked is None or result.place in marked):
            answered = where(result.finished_at, call.agent_id, result.place)
            yield Text("result", result.text, answered, call=call.id, span=span)
    for message in _said(transcript, marked) if "message" in look.sides else ():
        said = where(message.at, message.agent_id, message.place)
        yield Text("message", message.text, said, voice=message.voice)


def _said(transcript: Transcript, marked: "_Marked | None") -> Iterator[Message]:
    """The messages of a rollout, those in marked lines at least.

    Of a subagent's, which begins with words of others, all lines are needed to tell whose.
    """
    if marked is None or transcript.info.agent_id is not None:
        return transcript.messages()
    return messages(marked.records(transcript.file))


class _Marked:
    """The lines of a rollout that may hold a word."""

    def __init__(self, lines: list[tuple[int, bytes]]) -> None:
        self._lines = sorted(lines)
        self._starts = [offset for offset, _ in self._lines]

    def __contains__(self, place: Place) -> bool:
        n = bisect_right(self._starts, place.offset) - 1
        return n >= 0 and place.offset <= self._starts[n] + len(self._lines[n][1])

    def records(self, file: str) -> Iterator[tuple[Record, Place]]:
        """What they say; of a damaged line what was saved."""
        for offset, data in self._lines:
            for piece in _documents(data):
                place = Place(file, 1, offset + piece.offset, piece.length)
                yield codex.decode(piece.data).entry, place


def _documents(data: bytes) -> list[document.Piece]:
    try:
        codex.decode(data)
    except ValueError:
        return document.recover(data).pieces
    return [document.Piece(0, len(data), data)]


def _held(path: str) -> Source:
    """The file in memory, unless it is too big: its texts are asked for one by one."""
    source = source_of(path)
    data = source.read(0, _HELD)
    return BytesSource(data, path) if len(data) < _HELD else source
