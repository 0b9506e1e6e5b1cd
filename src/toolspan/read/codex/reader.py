"""One rollout becomes calls, facts and findings.

In: chunks of lines, or one whole document of the oldest client. Out: what `Transcript` asks for:
pairing, about, branches, counts, findings, messages. Nothing a file contains raises. Read
`Reader.chunk` first, then `pair.py` for calls and `verdict.py` for their states.
"""

from collections.abc import Iterator, Sequence

from toolspan.model.message import Message
from toolspan.model.place import Place
from toolspan.model.session import Dialect
from toolspan.read.codex.about import About
from toolspan.read.codex.live import LivePairing
from toolspan.read.codex.pair import Pairing
from toolspan.read.codex.thread import Thread
from toolspan.read.codex.turns import Turns
from toolspan.read.lines import LineReader, decoded_again
from toolspan.read.tree import Branches, Tree
from toolspan.wire import codex, codex_document
from toolspan.wire.codex import Record
from toolspan.wire.jsonl import Chunk, Line
from toolspan.wire.source import Source


class Reader(LineReader[Record]):
    """Takes the lines of a rollout and keeps what they say."""

    dialect: Dialect = "codex"

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source)
        self._thread = Thread()
        self.pairing = self._pairing(source, self._thread)
        self.about = About(self._thread, calls_only=calls_only)
        self.turns = Turns()
        self.tree = Tree()
        """Lines of a rollout name no parents: they follow each other."""

    _decode_whole = staticmethod(codex.decode_whole)
    _decode = staticmethod(codex.decode)

    def _pairing(self, source: Source, thread: Thread) -> Pairing:
        return Pairing(source, thread)

    @property
    def role(self) -> str | None:
        """What sort of subagent wrote the file, if it says."""
        return self._thread.role

    def branches(self) -> Branches:
        """Which lines the model still saw at the end."""
        return self.turns.branches()

    def _take(self, found: Sequence[Record], places: Sequence[int], number: int) -> None:
        for line, (record, at) in enumerate(zip(found, places, strict=True), number):
            self._thread.add(record)
            self.about.add(record)
            self.turns.add(record, line)
            self.pairing.add(record, at)

    def records(self) -> Iterator[tuple[Record, Place]]:
        """All records with their places, read again from the file."""
        return decoded_again(self.source, codex.decode)

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.read.codex.messages import messages

        return messages(self.records())


class LiveReader(Reader):
    """Reads a file that still grows."""

    pairing: LivePairing

    def _pairing(self, source: Source, thread: Thread) -> Pairing:
        return LivePairing(source, thread)


class DocumentReader(Reader):
    """Reads a file that is one JSON document: its items count as its lines."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source, calls_only=calls_only)
        self._pieces: list[bytes] = []

    def chunk(self, chunk: Chunk) -> None:
        """The next part of the document."""
        self._pieces.append(memoryview(chunk.data)[chunk.start : chunk.end].tobytes())

    def finish(self) -> None:
        """Takes the document apart."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        found = codex_document.items(data)
        if found.session is not None:
            header = codex.decode(found.session).entry
            self._thread.add(header)
            self.about.add(header)
        for line in found.lines:
            self.line(line)
        if not found.whole:
            self._malformed += 1
            self._find("torn_last_line", Place(self._file, len(found.lines) + 1, 0, 0), "")

    def records(self) -> Iterator[tuple[Record, Place]]:
        """All items with their places, read again from the file."""
        return ((codex.decode(line.data).entry, self._place(line)) for line in self.lines())

    def lines(self) -> Iterator[Line]:
        """The items as lines, read again from the file."""
        with self.source.open() as stream:
            return iter(codex_document.items(stream.read()).lines)
