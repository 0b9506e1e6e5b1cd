"""`--format perfetto`: sessions as a trace for ui.perfetto.dev or chrome://tracing.

The output is one JSON document in the Trace Event Format, written piece by piece. A session is a process, and an
agent is a group of threads: overlapping calls are in different threads, because the slices in a thread must nest.
Phases are nested in their call, and calls without a duration are instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolspan.export.json import encode_json, one_line
from toolspan.export.records import AgentRecord, CallRecord, MessageRecord
from toolspan.export.session_export import SessionExport
from toolspan.redaction.redactor import format_counts

_THREADS_PER_AGENT = 1_000
_MAX_ARGUMENT_CHARS = 4_000
_ARGUMENT_FIELDS = (
    "id", "state", "error_kind", "target", "message", "exit_code", "batch", "parent_call", "input_chars",
    "result_chars",
)  # fmt: skip
_MARKED_VOICES = frozenset({"prompt", "command", "interrupt", "error"})

TraceEvent = dict[str, object]


def write(sessions: Iterable[SessionExport]) -> Iterator[bytes]:
    """Yield the JSON document piece by piece."""
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    comma = b"\n"
    session: SessionExport | None = None
    for process, session in enumerate(sessions, start=1):
        for event in _PerfettoTrace(process, session).events():
            yield comma + encode_json(event)
            comma = b",\n"
    notice = session.redaction_notice if session else None
    if session and notice:
        other = {"redacted": notice, "replaced": format_counts(session.redaction_counts)}
        yield b'\n],"otherData":' + encode_json(dict[str, object](other)) + b"}\n"
    else:
        yield b"\n]}\n"


class _PerfettoTrace:
    def __init__(self, process: int, session: SessionExport) -> None:
        self._process_id = process
        self._session = session
        self._agent_numbers: dict[str | None, int] = {}
        self._lanes: dict[str | None, _LaneAllocator] = {}
        self._named_threads: set[int] = set()
        self._agent_names: dict[str | None, str] = {None: "main"}

    def events(self) -> Iterator[TraceEvent]:
        header = self._session.header
        yield self._metadata_event("process_name", 0, one_line(header.title or header.id, 200))
        yield self._metadata_event("process_labels", 0, one_line(header.id, 200), key="labels")
        for row in self._session.rows():
            match row.record:
                case AgentRecord(agent=agent, role=role):
                    self._agent_names[agent] = one_line(f"{role or 'subagent'} {agent or ''}", 80)
                case MessageRecord(start=int(start), voice=voice) as message if voice in _MARKED_VOICES:
                    thread = self._thread_id(message.agent, 0)
                    yield from self._thread_name_events(message.agent, thread)
                    label = one_line(message.text, 200)
                    event = self._event_fields(thread, start, label or voice, "message")
                    yield {**event, "ph": "i", "s": "t", "args": {"voice": voice}}
                case MessageRecord():
                    pass
                case CallRecord():
                    yield from self._call_events(row.record)

    def _call_events(self, call: CallRecord) -> Iterator[TraceEvent]:
        start = call.start if call.start is not None else call.end
        if start is None:
            return
        end = max(call.end if call.end is not None else start, start)
        lanes = self._lanes.setdefault(call.agent, _LaneAllocator())
        thread = self._thread_id(call.agent, min(lanes.assign_lane(start, end), _THREADS_PER_AGENT - 1))
        yield from self._thread_name_events(call.agent, thread)
        name = one_line(call.tool or "orphan result", 200)
        event = self._event_fields(thread, start, name, f"{call.kind},{call.state}")
        if end == start:
            yield {**event, "ph": "i", "s": "t", "args": _call_arguments(call)}
            return
        yield {**event, "ph": "X", "dur": (end - start) * 1000, "args": _call_arguments(call)}
        for phase in call.phases:
            first, last = max(phase.start, start), min(phase.end, end)  # clipped to the call
            if phase.phase != "run" and first < last:
                event = self._event_fields(thread, first, phase.phase, "phase")
                yield {**event, "ph": "X", "dur": (last - first) * 1000}

    def _thread_id(self, agent: str | None, row: int) -> int:
        number = self._agent_numbers.setdefault(agent, len(self._agent_numbers))
        return number * _THREADS_PER_AGENT + row + 1

    def _thread_name_events(self, agent: str | None, thread: int) -> Iterator[TraceEvent]:
        if thread in self._named_threads:
            return
        self._named_threads.add(thread)
        row = (thread - 1) % _THREADS_PER_AGENT
        name = self._agent_names.get(agent) or one_line(f"subagent {agent}", 80)
        yield self._metadata_event("thread_name", thread, f"{name} ({row + 1})" if row else name)
        yield {**self._metadata_event("thread_sort_index", thread, ""), "args": {"sort_index": thread}}

    def _metadata_event(self, kind: str, thread: int, name: str, key: str = "name") -> TraceEvent:
        return {"ph": "M", "name": kind, "pid": self._process_id, "tid": thread, "args": {key: name}}

    def _event_fields(self, thread: int, at: int, name: str, category: str) -> TraceEvent:
        return {"name": name, "cat": category, "pid": self._process_id, "tid": thread, "ts": at * 1000}


def _call_arguments(call: CallRecord) -> TraceEvent:
    arguments = {name: getattr(call, name) for name in _ARGUMENT_FIELDS}
    return {
        name: one_line(value, _MAX_ARGUMENT_CHARS) if isinstance(value, str) else value
        for name, value in arguments.items()
        if value is not None
    }


class _LaneAllocator:
    """An allocator that puts an agent's overlapping calls in different lanes of a chart."""

    def __init__(self) -> None:
        self._free_from: list[int] = []

    def assign_lane(self, start: int, end: int) -> int:
        """Return the first free lane. A call without a duration occupies its lane for 1 ms."""
        until = max(end, start + 1)
        for lane, free_from in enumerate(self._free_from):
            if free_from <= start:
                self._free_from[lane] = until
                return lane
        self._free_from.append(until)
        return len(self._free_from) - 1
