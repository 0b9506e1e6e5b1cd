"""`--format perfetto`: sessions as a trace for ui.perfetto.dev or chrome://tracing.

In: stories. Out: one JSON document in the Trace Event Format. A session is a process, an agent a
group of threads: calls that overlap lie in different ones, because slices of one thread must nest.
Waits for permission and hooks lie inside their call. What has no length is an instant. Written
piece by piece, so that an archive of any size fits. Read `_Trace` first.
"""

from collections.abc import Iterable, Iterator

from toolspan.export.encode import encoded
from toolspan.export.lanes import Lanes
from toolspan.export.record import AgentRecord, CallRecord, MessageRecord, PhaseRecord
from toolspan.export.story import Story
from toolspan.export.visible import one_line

_ROWS = 1_000
"""Threads that one agent may have."""
_LONGEST = 4_000
_TOLD = frozenset({"prompt", "command", "interrupt", "error"})
"""Voices that mark a moment; the others stand in the other formats."""

Event = dict[str, object]


def write(stories: Iterable[Story]) -> Iterator[bytes]:
    """The trace."""
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    comma = b"\n"
    for process, story in enumerate(stories, start=1):
        for event in _Trace(process, story).events():
            yield comma + encoded(event)
            comma = b",\n"
    yield b"\n]}\n"


class _Trace:
    """The events of one session."""

    def __init__(self, process: int, story: Story) -> None:
        self._process = process
        self._story = story
        self._agents: dict[str | None, int] = {}
        self._lanes: dict[str | None, Lanes] = {}
        self._named: set[int] = set()
        self._roles: dict[str | None, str] = {None: "main"}

    def events(self) -> Iterator[Event]:
        """All of them; names of threads come before what happens in them."""
        head = self._story.head
        yield self._meta("process_name", 0, one_line(head.title or head.id, 200))
        yield self._meta("process_labels", 0, one_line(head.id, 200), key="labels")
        for row in self._story.rows():
            match row.record:
                case AgentRecord(agent=agent, role=role):
                    self._roles[agent] = one_line(f"{role or 'subagent'} {agent or ''}", 80)
                case MessageRecord():
                    yield from self._message(row.record)
                case CallRecord():
                    yield from self._call(row.record)

    def _message(self, message: MessageRecord) -> Iterator[Event]:
        if message.start is None or message.voice not in _TOLD:
            return
        thread = self._thread(message.agent, 0)
        yield from self._name(message.agent, thread)
        words = one_line(message.text, 200)
        told = self._event(thread, message.start, words or message.voice, "message")
        yield {**told, "ph": "i", "s": "t", "args": {"voice": message.voice}}

    def _call(self, call: CallRecord) -> Iterator[Event]:
        start = call.start if call.start is not None else call.end
        if start is None:
            return
        end = max(call.end if call.end is not None else start, start)
        lanes = self._lanes.setdefault(call.agent, Lanes())
        thread = self._thread(call.agent, min(lanes.place(start, end), _ROWS - 1))
        yield from self._name(call.agent, thread)
        name = one_line(call.tool or "orphan result", 200)
        event = self._event(thread, start, name, f"{call.kind},{call.state}")
        if end == start:
            yield {**event, "ph": "i", "s": "t", "args": _about(call)}
            return
        yield {**event, "ph": "X", "dur": (end - start) * 1000, "args": _about(call)}
        for phase in call.phases:
            if phase.phase != "run":
                yield from self._phase(phase, thread, start, end)

    def _phase(self, phase: PhaseRecord, thread: int, start: int, end: int) -> Iterator[Event]:
        """A part of a call, inside it."""
        first, last = max(phase.start, start), min(phase.end, end)
        if first < last:
            event = self._event(thread, first, phase.phase, "phase")
            yield {**event, "ph": "X", "dur": (last - first) * 1000}

    def _thread(self, agent: str | None, row: int) -> int:
        number = self._agents.setdefault(agent, len(self._agents))
        return number * _ROWS + row + 1

    def _name(self, agent: str | None, thread: int) -> Iterator[Event]:
        if thread in self._named:
            return
        self._named.add(thread)
        row = (thread - 1) % _ROWS
        name = self._roles.get(agent) or one_line(f"subagent {agent}", 80)
        yield self._meta("thread_name", thread, f"{name} ({row + 1})" if row else name)
        yield {
            **self._meta("thread_sort_index", thread, ""),
            "args": {"sort_index": thread},
        }

    def _meta(self, kind: str, thread: int, name: str, key: str = "name") -> Event:
        return {"ph": "M", "name": kind, "pid": self._process, "tid": thread, "args": {key: name}}

    def _event(self, thread: int, at: int, name: str, category: str) -> Event:
        return {
            "name": name,
            "cat": category,
            "pid": self._process,
            "tid": thread,
            "ts": at * 1000,
        }


def _about(call: CallRecord) -> Event:
    told: Event = {
        "id": call.id,
        "state": call.state,
        "error_kind": call.error_kind,
        "target": call.target,
        "message": call.message,
        "exit_code": call.exit_code,
        "batch": call.batch,
        "parent": call.parent,
        "input_chars": call.input_chars,
        "result_chars": call.result_chars,
    }
    return {
        name: one_line(value, _LONGEST) if isinstance(value, str) else value
        for name, value in told.items()
        if value is not None
    }
