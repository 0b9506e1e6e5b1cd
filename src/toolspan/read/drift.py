"""Looks at the lines of a transcript one by one: drift, UTF-8, round trip.

In: a transcript that has been read, then its lines. Out: findings, counts by type, how many lines
re-encode to equal JSON. `Lines` is what both dialects share; `EntryLines` knows Claude's entries,
`RecordLines` Codex's records. Read `Lines.add` first.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from toolspan.model.finding import Finding
from toolspan.model.place import Place
from toolspan.read.damage import finding
from toolspan.read.transcript import Transcript
from toolspan.wire import claude, codex, codex_keys, codex_narrow, document
from toolspan.wire.claude_keys import unknown_keys
from toolspan.wire.codex_calls import arguments_of
from toolspan.wire.jsonl import Line
from toolspan.wire.narrow import drift, input_drift
from toolspan.wire.views import UNFIT

V = TypeVar("V", claude.Entry, codex.Record)

_HUGE = 16 << 20
"""Lines longer than this are not searched for drift."""


def lines_of(
    transcript: Transcript, *, roundtrip: bool
) -> "Lines[claude.Entry] | Lines[codex.Record]":
    """What looks at the lines of a transcript, by its dialect."""
    if transcript.dialect == "codex":
        return RecordLines(transcript, roundtrip=roundtrip)
    return EntryLines(transcript, roundtrip=roundtrip)


class Lines(ABC, Generic[V]):
    """Looks at lines one by one."""

    def __init__(self, transcript: Transcript, *, roundtrip: bool) -> None:
        self._file = transcript.file
        self._roundtrip = roundtrip
        self._tools = {span.id: span.tool for span in transcript.spans}
        self._found: dict[tuple[str, str], tuple[Place, int]] = {}
        self.entries: Counter[str] = Counter()
        self.equal = 0
        self.not_utf8 = 0

    def add(self, line: Line) -> None:
        """The next line."""
        if line.length > _HUGE and not self._roundtrip:
            return  # decoding all of it takes several times its size
        try:
            found = document.decode(line.data)
        except ValueError:
            self._unreadable(line)
            return
        if not isinstance(found, dict):
            return
        view = self._view(line.data)
        self.entries[self._kind(view)] += 1
        if not is_utf8(line.data):
            self.not_utf8 += 1
            self._note("invalid_utf8", "", line)
            return
        if self._roundtrip:
            self._reencode(view, line)
        self._drift(view, found, line)

    @abstractmethod
    def _view(self, data: bytes) -> V:
        """The typed view of a line that is one JSON object."""

    @abstractmethod
    def _kind(self, view: V) -> str:
        """The type under which a line is counted."""

    @abstractmethod
    def _encoded(self, view: V, data: bytes) -> bytes:
        """The line written anew."""

    @abstractmethod
    def _drift(self, view: V, found: dict[str, object], line: Line) -> None:
        """What nobody has described yet."""

    def _unreadable(self, line: Line) -> None:
        """Reading told of it already, unless only a skipped string is not UTF-8."""
        if not line.data or is_utf8(line.data):
            return
        try:
            self._view(line.data)
        except (*UNFIT, ValueError):
            return
        self.not_utf8 += 1
        self._note("invalid_utf8", "", line)

    def _reencode(self, view: V, line: Line) -> None:
        try:
            same = document.equal(self._encoded(view, line.data), line.data)
        except ValueError:  # nested too deeply to be written again
            same = False
        if same:
            self.equal += 1
        else:
            self._note("roundtrip", "", line)

    def _note(self, code: str, detail: str, line: Line) -> None:
        place, times = self._found.get((code, detail), (None, 0))
        first = place or Place(self._file, line.number, line.offset, line.length)
        self._found[code, detail] = (first, times + 1)

    def findings(self) -> list[Finding]:
        """What was found, each thing once, with how often it was."""
        return [finding(code, place, detail, times)
                for (code, detail), (place, times) in self._found.items()]  # fmt: skip


class EntryLines(Lines[claude.Entry]):
    """Lines of Claude Code."""

    def _view(self, data: bytes) -> claude.Entry:
        return claude.decode(data).entry

    def _kind(self, view: claude.Entry) -> str:
        return view.type

    def _encoded(self, view: claude.Entry, data: bytes) -> bytes:
        return claude.encode(view, data)

    def _drift(self, view: claude.Entry, found: dict[str, object], line: Line) -> None:
        if not view.known:
            self._note("unknown_type", view.type or "no type", line)
        for key in unknown_keys(found):
            self._note("unknown_field", key, line)
        for tool, given in _asked(found):
            for path in input_drift(tool, given):
                self._note("unknown_input", f"{tool}: {path}", line)
        structured = found.get("toolUseResult", found.get("tool_use_result"))
        if structured is None or view.type != "user":
            return
        for tool in self._answered(view):
            for path in drift(tool, claude.decode_bodies(line.data).structured or b"null"):
                self._note("unknown_result", f"{tool}: {path}", line)

    def _answered(self, view: claude.Entry) -> Iterator[str]:
        content = view.message.content if view.message else None
        if isinstance(content, list):
            blocks = [block for block in content if block.type == "tool_result"]
            if len(blocks) == 1 and blocks[0].tool_use_id:
                tool = self._tools.get(blocks[0].tool_use_id)
                if tool:  # an orphan's shape says nothing
                    yield tool


def _asked(found: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    """The tools a line asks for, and the inputs it gives them."""
    message = found.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            with suppress(ValueError):  # nested too deeply to be written again
                yield str(block.get("name") or "no tool"), document.encode(block.get("input"))


class RecordLines(Lines[codex.Record]):
    """Lines of Codex."""

    def _view(self, data: bytes) -> codex.Record:
        return codex.decode(data).entry

    def _kind(self, view: codex.Record) -> str:
        return view.kind

    def _encoded(self, view: codex.Record, data: bytes) -> bytes:
        return codex.encode(view, data)

    def _drift(self, view: codex.Record, found: dict[str, object], line: Line) -> None:
        if not view.known:
            self._note("unknown_type", view.kind or "no type", line)
        for key in codex_keys.unknown_keys(view, found):
            self._note("unknown_field", key, line)
        for item in codex.calls_of(view.item):
            tool = codex.tool_of(item)
            for path in codex_narrow.input_drift(tool, arguments_of(item)):
                self._note("unknown_input", f"{tool}: {path}", line)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are text."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
