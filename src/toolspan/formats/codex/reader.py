"""One rollout becomes calls, facts and findings.

In: chunks of lines, or one whole document of the oldest client. Out: what `Transcript` asks for:
pairing, about, branches, counts, findings, messages. Nothing a file contains raises. Read
`Reader.chunk` first, then `pair.py` for calls and `verdict.py` for their states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolspan.formats.claude.live import CallChangeTracker
from toolspan.formats.claude.state import StateInference
from toolspan.formats.claude.tree import Branches, RecordTree
from toolspan.formats.codex import records as codex
from toolspan.formats.codex import records as codex_document
from toolspan.formats.codex.pairing import RolloutCallBuilder, RolloutPairing
from toolspan.formats.codex.records import RolloutRecord
from toolspan.formats.codex.session_info import RolloutInfoCollector
from toolspan.formats.codex.thread import RolloutThread, RolloutTurns
from toolspan.formats.jsonl import JsonLine, LineChunk
from toolspan.formats.lines import LineReader, reread_lines
from toolspan.formats.source import Source
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Dialect, Message
from toolspan.types.span import Evidence, Permission, Span

_BEGIN_EVENTS = frozenset({"exec_command_begin", "patch_apply_begin", "mcp_tool_call_begin"})


class LiveRolloutPairing(RolloutPairing):
    """Joins the calls of a rollout that still grows: open states, and which calls changed."""

    def __init__(self, source: Source, thread: RolloutThread) -> None:
        super().__init__(source, thread)
        self._tracker = CallChangeTracker()
        self._branches: Branches | None = None

    def changed_spans(self) -> list[Span]:
        """The calls that may have changed since last asked, in the order the model asked."""
        return [self._build_span(builder, self._branches) for builder in self._tracker.take_changed(self._builders)]

    def mark_started(self, call_id: CallId) -> None:
        """Something shows that a call has started."""
        self._tracker.mark_started(call_id)

    def finish(self, branches: Branches) -> None:
        """The file counts as finished: what is open stays unanswered, and branches are known."""
        self._branches = branches or None
        self._tracker.finish(self._builders, moved=bool(branches))

    def add(self, record: RolloutRecord, at: int) -> None:
        """One record and its packed place."""
        if record.is_event and record.item.type in _BEGIN_EVENTS and record.item.call_id:
            self.mark_started(record.item.call_id)
        super().add(record, at)

    def _mark_changed(self, builder: RolloutCallBuilder) -> None:
        self._tracker.mark_changed(builder.call.id)

    def _begin_turn(self) -> None:
        self._tracker.mark_abandoned(self._open_calls)
        super()._begin_turn()

    def _infer_state(self, builder: RolloutCallBuilder) -> StateInference:
        inference = super()._infer_state(builder)
        if not self._tracker.is_open(builder, inference):
            return inference
        if builder.call.id in self._tracker.started_ids or builder.end_event is not None:
            return StateInference(state="running", evidence=(Evidence("progress"),))
        if any(isinstance(event, Permission) and event.decision == "ask" for event in builder.events):
            return StateInference(state="awaiting_permission", evidence=(Evidence("approval asked"),))
        return StateInference(state="requested", evidence=(Evidence("no result yet"),))


class RolloutReader(LineReader[RolloutRecord]):
    """Takes the lines of a rollout and keeps what they say."""

    dialect: Dialect = "codex"

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source)
        self._thread = RolloutThread()
        self.pairing = self._make_pairing(source, self._thread)
        self.session_info = RolloutInfoCollector(self._thread, calls_only=calls_only)
        self.turns = RolloutTurns()
        self.tree = RecordTree()
        """Lines of a rollout name no parents: they follow each other."""

    _decode_whole = staticmethod(codex.decode_records)
    _decode = staticmethod(codex.decode_record)

    def _make_pairing(self, source: Source, thread: RolloutThread) -> RolloutPairing:
        return RolloutPairing(source, thread)

    @property
    def role(self) -> str | None:
        """What sort of subagent wrote the file, if it says."""
        return self._thread.role

    def branches(self) -> Branches:
        """Which lines the model still saw at the end."""
        return self.turns.branches()

    def _process(self, decoded: Sequence[RolloutRecord], places: Sequence[int], number: int) -> None:
        for line, (record, at) in enumerate(zip(decoded, places, strict=True), number):
            self._thread.add(record)
            self.session_info.add(record)
            self.turns.add(record, line)
            self.pairing.add(record, at)

    def records(self) -> Iterator[tuple[RolloutRecord, SourceLocation]]:
        """All records with their places, read again from the file."""
        return reread_lines(self.source, codex.decode_record)

    def messages(self) -> Iterator[Message]:
        """What was said between the calls, read again from the file."""
        from toolspan.formats.codex.messages import read_rollout_messages

        return read_rollout_messages(self.records())


class LiveRolloutReader(RolloutReader):
    """Reads a file that still grows."""

    pairing: LiveRolloutPairing

    def _make_pairing(self, source: Source, thread: RolloutThread) -> RolloutPairing:
        return LiveRolloutPairing(source, thread)


class RolloutDocumentReader(RolloutReader):
    """Reads a file that is one JSON document: its items count as its lines."""

    def __init__(self, source: Source, *, calls_only: bool = False) -> None:
        super().__init__(source, calls_only=calls_only)
        self._pieces: list[bytes] = []

    def add_chunk(self, chunk: LineChunk) -> None:
        """The next part of the document."""
        self._pieces.append(memoryview(chunk.data)[chunk.start : chunk.end].tobytes())

    def finish(self) -> None:
        """Takes the document apart."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        rollout_document = codex_document.parse_document(data)
        if rollout_document.session is not None:
            header = codex.decode_record(rollout_document.session).entry
            self._thread.add(header)
            self.session_info.add(header)
        for line in rollout_document.lines:
            self.add_line(line)
        if not rollout_document.is_complete:
            self._malformed_count += 1
            self._add_finding("torn_last_line", SourceLocation(self._file, len(rollout_document.lines) + 1, 0, 0), "")

    def records(self) -> Iterator[tuple[RolloutRecord, SourceLocation]]:
        """All items with their places, read again from the file."""
        return ((codex.decode_record(line.data).entry, self._location_of(line)) for line in self.lines())

    def lines(self) -> Iterator[JsonLine]:
        """The items as lines, read again from the file."""
        with self.source.open() as stream:
            return iter(codex_document.parse_document(stream.read()).lines)
