"""The timeline of a session as tables, which the session view of the UI and of an exported page draw.

`order` lists the rows as `3 * index + kind`, where kind 0 is a call, 1 a message and 2 a subagent. The columns of calls
have the names of `CallRow`, and a few more for the drawing; `thread` is the index of the agent in `agents`. Times are
milliseconds after `base`. `slices` has three numbers for each part of the main agent's time: the time since the end of
the previous part, the length, and the index of the part in `TIME_PARTS`.

A table has columns of equal length. Except for the first one, a column whose values are all the same is only that
value, and a column with few different values has them in `values`, and an index of `values` for each row in `index`.

`TimelineTables.update` builds the rows of the items that have changed since the last update. Start there.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from toolspan.analysis.timing import (
    TIME_PARTS,
    CallPhases,
    HookTimings,
    PhaseInterval,
    TimeMark,
    TimeSlice,
    call_marks,
    message_mark,
    phases_among,
    slice_time,
)
from toolspan.export.json import escape_control_chars, one_line
from toolspan.formats.registry import relative_to_folder
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.timeline import (
    AgentTimeline,
    TimelineBatch,
    TimelineCall,
    TimelineItem,
    TimelineMessage,
    display_text,
    starts_turn,
)
from toolspan.types.session import RequestUsage
from toolspan.types.span import Span, parse_timestamp, to_epoch_ms

CALL, MESSAGE, AGENT = range(3)
"""The kinds of rows in `order`."""
_ROW_COLUMNS = (
    "id", "tool", "kind", "state", "error_kind", "duration_ms", "target", "message", "exit_code", "batch", "branch",
    "background", "deferred", "synthetic", "ambiguous", "truncated", "file", "request_line", "result_line", "session",
)  # fmt: skip
"""The fields of `CallRow` that the timeline has."""
CALL_COLUMNS = (*_ROW_COLUMNS, "thread", "start", "end", "until", "phases")
MESSAGE_COLUMNS = ("text", "thread", "voice", "at", "branch", "opens", "file", "line", "part", "chars")
REQUEST_COLUMNS = (
    "batch", "at", "thread", "model", "input_tokens", "output_tokens", "cache_read_input_tokens",
    "cache_creation_input_tokens", "context",
)  # fmt: skip
_MAX_LINE_CHARS = 200
_MAX_TEXT_CHARS = 6_000
_MAX_TEXTS_CHARS = 5_000_000
_SHORT_TEXT_CHARS = 300
"""The maximum length of each further text once all texts together have reached `_MAX_TEXTS_CHARS`."""
_MAX_STATES = 8
"""The number of earlier states for which `changes_since` knows the order of the rows."""
_COMPARED = 1_024

Row = tuple[Any, ...]


class FileRequests(NamedTuple):
    """Requests to models in one file."""

    name: str
    requests: Mapping[str, RequestUsage]
    """The requests that are new or changed, by message id."""
    includes_cache: bool
    """True if the client counts cached tokens as input tokens, too."""


class _Table:
    """Rows with fixed indexes, and the number of the update that changed each row last."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.rows: list[Row] = []
        self._indexes: dict[Hashable, int] = {}
        self._changed_in: list[int] = []
        self.update = 0
        """The number of the current update."""
        self._last_change = 0

    @property
    def is_changed(self) -> bool:
        """True if the current update has changed a row."""
        return self._last_change == self.update

    def put(self, key: Hashable, row: Row) -> int:
        """Set the row with a key, or add one, and return its index."""
        index = self._indexes.setdefault(key, len(self.rows))
        if index == len(self.rows):
            self.rows.append(row)
            self._changed_in.append(self.update)
        elif self.rows[index] != row:
            self.rows[index] = row
            self._changed_in[index] = self.update
        else:
            return index
        self._last_change = self.update
        return index

    def set_field(self, key: Hashable, name: str, value: object) -> None:
        """Set one field of a row, if there is a row with this key."""
        if key in self._indexes:
            row = dict(zip(self._names, self.rows[self._indexes[key]], strict=True))
            self.put(key, tuple((row | {name: value}).values()))

    def columns(self) -> dict[str, object]:
        """Return all rows as columns."""
        columns = map(list, zip(*self.rows, strict=True)) if self.rows else ([] for _ in self._names)
        first, *others = columns
        return dict(zip(self._names, [first, *map(_compact_column, others)], strict=True))

    def changes_since(self, update: int) -> dict[str, object]:
        """Return the rows that changed after an update as columns, with their indexes in `rows`."""
        indexes = [n for n, number in enumerate(self._changed_in) if number > update]
        columns = {name: [self.rows[n][k] for n in indexes] for k, name in enumerate(self._names)}
        return {"rows": indexes, **columns}


def _compact_column(values: list[Any]) -> object:
    """Return a shorter form of a column. perf: a page takes long to parse the same text 50,000 times."""
    if len(values) < 2 or any(isinstance(value, list) for value in values):
        return values
    numbers = {value: n for n, value in enumerate(dict.fromkeys(values))}
    if len(numbers) == 1:
        return values[0]
    if len(numbers) > len(values) // 4 or not any(isinstance(value, str) for value in numbers):
        return values
    return {"values": list(numbers), "index": [numbers[value] for value in values]}


class _Entry:
    """The rows built from one message or batch, and its times."""

    def __init__(
        self,
        item: TimelineMessage | TimelineBatch,
        start: int | None,
        end: int | None,
        marks: list[TimeMark],
        intervals: list[PhaseInterval],
    ) -> None:
        self.item = item
        self.is_message = isinstance(item, TimelineMessage)
        self.has_agents = isinstance(item, TimelineBatch) and any(call.agents for call in item.calls)
        self.rows: list[int | None] = []
        """The row of the message, or of each call; None if there is none."""
        self.codes: list[int] = []
        """The rows as in `order`."""
        self.line = item.message.place.line if isinstance(item, TimelineMessage) else None
        self.part = 0
        """The number of the message in its line."""
        self.start = start
        self.end = end
        self.marks = marks
        self.intervals = intervals
        """The phases of the calls."""
        times = [at for at, _ in marks] + [time for part in intervals for time in (part.start, part.end)]
        self.first = min(times, default=None)
        self.last = max(times, default=None)

    def is_outdated(self, item: TimelineItem, changed_calls: Collection[str]) -> bool:
        """Return whether the entry was built from another item, or the times of one of its calls have changed."""
        if self.item is not item:
            return True
        return bool(changed_calls) and isinstance(item, TimelineBatch) and any(
            call.span.id in changed_calls for call in item.calls
        )  # fmt: skip

    def set_rows(self, rows: list[int | None], kind: int) -> _Entry:
        """Set the rows, which are all of one kind, and return the entry."""
        self.rows = rows
        self.codes = [3 * row + kind for row in rows if row is not None]
        return self


class _State(NamedTuple):
    """The rows of a timeline in order, and everything that is not in a table."""

    order: list[int]
    agents: list[dict[str, object]]
    slices: list[TimeSlice]


class _Walk(NamedTuple):
    """A new state while it is built, and the entries that the next update can use again."""

    state: _State
    entries: dict[int, _Entry]
    """All entries by the identity of their items."""
    main_entries: list[_Entry]
    changed_calls: Collection[str]
    """The calls whose times in the hook log have changed."""


class TimelineTables:
    """The tables of one session, which may grow."""

    def __init__(self, cwd: str | None = None) -> None:
        """Create empty tables. Paths in `cwd` are shown relative to it."""
        self.cwd = cwd
        self._token = secrets.token_hex(4)
        self._update = 0
        self._states: dict[int, _State] = {}
        self._calls = _Table(CALL_COLUMNS)
        self._messages = _Table(MESSAGE_COLUMNS)
        self._requests = _Table(REQUEST_COLUMNS)
        self._entries: dict[int, _Entry] = {}
        self._main_entries: list[_Entry] = []
        self._threads: dict[tuple[str, str | None], int] = {}
        self._thread_of_batch: dict[str, int] = {}
        self._timings: Mapping[str, HookTimings] = {}
        self._base: int | None = None
        self._text_chars = 0
        self.concurrency = 0
        """The largest number of calls of one batch that ran at the same time."""

    # Output

    @property
    def version(self) -> str:
        """The id of the current state: a token for this object, and the number of updates that changed something."""
        return f"{self._token}-{self._update}"

    def whole(self) -> dict[str, Any]:
        """Return all tables."""
        state = self._states[self._update]
        return {
            "base": self._base or 0,
            "agents": state.agents,
            "order": state.order,
            "calls": self._calls.columns(),
            "messages": self._messages.columns(),
            "requests": self._requests.columns(),
            "slices": self._encode_slices(state.slices, 0),
        }

    def changes_since(self, version: str) -> dict[str, object] | None:
        """Return the rows that changed since a version, or None if the version is unknown or too old."""
        token, _, number = version.partition("-")
        update = int(number) if number.isdecimal() else -1
        if token != self._token or update not in self._states:
            return None
        if update == self._update:
            return {}
        before, state = self._states[update], self._states[self._update]
        keep, tail = _common_ends(before.order, state.order)
        slices_keep, _ = _common_ends(before.slices, state.slices)
        return {
            "base": self._base or 0,
            "agents": state.agents,
            "order": {"keep": keep, "add": state.order[keep : len(state.order) - tail], "tail": tail},
            "calls": self._calls.changes_since(update),
            "messages": self._messages.changes_since(update),
            "requests": self._requests.changes_since(update),
            "slices": {"keep": slices_keep, "add": self._encode_slices(state.slices, slices_keep)},
        }

    def _encode_slices(self, slices: Sequence[TimeSlice], first: int) -> list[int]:
        numbers: list[int] = []
        before = slices[first - 1].end if first else self._base or 0
        for part in slices[first:]:
            numbers += (part.start - before, part.end - part.start, TIME_PARTS.index(part.part))
            before = part.end
        return numbers

    @property
    def states(self) -> Counter[str]:
        """The number of calls in each state."""
        column = CALL_COLUMNS.index("state")
        return Counter(dict(Counter(row[column] for row in self._calls.rows).most_common()))

    @property
    def agent_count(self) -> int:
        """The number of subagents."""
        return len(self._threads) - 1

    # Update

    def update(
        self,
        timeline: AgentTimeline,
        timings: Mapping[str, HookTimings],
        requests: Iterable[FileRequests] = (),
    ) -> None:
        """Build the rows of a timeline. The rows of items that are the same objects as before are not built again."""
        if self._base is None:
            starts = (to_epoch_ms(agent.start_time) for agent in timeline.iter_timelines())
            self._base = next((at for at in starts if at is not None), None)
        tables = (self._calls, self._messages, self._requests)
        for table in tables:
            table.update = self._update + 1
        before, self._timings = self._timings, timings
        changed = () if before is timings else {name for name in timings if before.get(name) != timings[name]}
        walk = _Walk(_State([], [], []), {}, [], changed)
        self._add_agent(walk, timeline, depth=0, parent=None, starter=None)
        walk.state.slices.extend(self._slice_time(walk.main_entries))
        self._entries, self._main_entries = walk.entries, walk.main_entries
        for file in requests:
            self._add_requests(file)
        # An open call is looked at in each update, and often nothing has changed.
        if any(table.is_changed for table in tables) or walk.state != self._states.get(self._update):
            self._update += 1
            self._states[self._update] = walk.state
            self._states.pop(self._update - _MAX_STATES, None)

    def _add_agent(
        self, walk: _Walk, timeline: AgentTimeline, *, depth: int, parent: int | None, starter: str | None
    ) -> int | None:
        """Add the rows of an agent and of its subagents, and return the time of its end."""
        thread = self._threads.setdefault((timeline.file, timeline.agent_id), len(self._threads))
        order, agents = walk.state.order, walk.state.agents
        agents += [{}] * (thread + 1 - len(agents))
        names = self._agent_row(timeline, starter)
        if thread:
            order.append(3 * thread + AGENT)
        first = len(order)
        start = end = last = None
        calls = 0
        for item in chain.from_iterable(turn.items for turn in timeline.turns):
            if isinstance(item, AgentTimeline):
                end = _latest(end, self._add_agent(walk, item, depth=depth + 1, parent=None, starter=None))
                continue
            entry = self._entries.get(id(item))
            if entry is None or entry.is_outdated(item, walk.changed_calls):
                entry = self._build_entry(item, timeline, starter, last)
            walk.entries[id(item)] = last = entry
            if not thread:
                walk.main_entries.append(entry)
            if start is None:
                start = entry.start
            if entry.end is not None and (end is None or entry.end > end):
                end = entry.end
            if not entry.is_message:
                calls += len(entry.codes)
            if isinstance(item, TimelineBatch) and entry.has_agents:
                self._add_batch_with_agents(walk, item, entry.rows, depth + 1)
            else:
                order += entry.codes
        if thread and len(order) == first:
            order.pop()  # nothing of this agent is shown
        agents[thread] = {
            **names,
            "depth": depth, "parent": parent, "linked": timeline.linked,
            "calls": calls, "start": self._time(start), "end": self._time(end),
        }  # fmt: skip
        return end

    def _add_batch_with_agents(self, walk: _Walk, batch: TimelineBatch, rows: list[int | None], depth: int) -> None:
        for call, row in zip(batch.calls, rows, strict=True):
            if row is not None:
                walk.state.order.append(3 * row + CALL)
            for agent in call.agents:
                self._add_agent(walk, agent, depth=depth, parent=row, starter=call.span.id)

    def _build_entry(
        self,
        item: TimelineMessage | TimelineBatch,
        agent: AgentTimeline,
        starter: str | None,
        previous: _Entry | None,
    ) -> _Entry:
        thread = self._threads[agent.file, agent.agent_id]
        if isinstance(item, TimelineMessage):
            at = to_epoch_ms(item.start_time)
            marks = [] if at is None else [message_mark(at, item.message.voice)]
            entry = _Entry(item, at, at, marks, [])
            if previous is not None and previous.line == entry.line:
                entry.part = previous.part + 1
            return entry.set_rows([self._add_message(item, agent, thread, entry.part)], MESSAGE)
        phases_of = phases_among((call.span for call in item.calls), self._timings)
        rows, marks = [], []
        intervals: list[PhaseInterval] = []
        for call in item.calls:
            phases = phases_of(call.span)
            intervals += phases.intervals
            marks += call_marks(call.span)
            rows.append(self._add_call(call, agent, thread, phases, starter))
        self.concurrency = max(self.concurrency, *(group.concurrency for group in item.groups))
        entry = _Entry(item, to_epoch_ms(item.start_time), to_epoch_ms(item.end_time), marks, intervals)
        return entry.set_rows(rows, CALL)

    # Rows. An exported page has other texts, and therefore its own versions of the next methods.

    def _agent_row(self, agent: AgentTimeline, starter: str | None) -> dict[str, object]:  # noqa: ARG002
        return {"id": agent.agent_id, "role": agent.role}

    def _call_row(
        self,
        span: Span,
        agent: AgentTimeline,
        starter: str | None,  # noqa: ARG002
        phases: CallPhases,  # noqa: ARG002
    ) -> CallRow | None:
        return make_call_row(span, agent.file)

    def _input_line(self, row: CallRow, span: Span) -> str:  # noqa: ARG002
        """Return the input of a call that has no target."""
        if span.call.place is None:
            return ""
        return span.call.raw_input[: 4 * _MAX_LINE_CHARS].decode("utf-8", "replace").strip("{}")

    def _message_text(self, item: TimelineMessage, agent: AgentTimeline) -> tuple[object, int] | None:  # noqa: ARG002
        """Return the text of a message, shortened, and its length; None if it has no text."""
        text = display_text(item.message)
        if not text.strip():
            return None
        limit = _MAX_TEXT_CHARS if self._text_chars < _MAX_TEXTS_CHARS else _SHORT_TEXT_CHARS
        shown = escape_control_chars(text[: 2 * limit])[:limit]
        self._text_chars += len(shown)
        return (f"{shown}\n… {len(text) - limit:,} more characters" if len(text) > limit else shown), len(text)

    def _file_name(self, agent: AgentTimeline) -> str | None:
        return agent.file

    def _request_name(self, batch: str) -> str:
        return batch

    def _add_message(self, item: TimelineMessage, agent: AgentTimeline, thread: int, part: int) -> int | None:
        shown = self._message_text(item, agent)
        if shown is None:
            return None
        (text, chars), message = shown, item.message
        line, at = message.place.line, self._time(to_epoch_ms(item.start_time))
        opens, file = starts_turn(message), self._file_name(agent)
        row = (text, thread, message.voice, at, item.branch, opens, file, line, part, chars)
        return self._messages.put((agent.file, line, part), row)

    def _add_call(
        self, call: TimelineCall, agent: AgentTimeline, thread: int, phases: CallPhases, starter: str | None
    ) -> int | None:
        span = call.span
        row = self._call_row(span, agent, starter, phases)
        if row is None:
            return None
        requested, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if requested is not None and end is not None and (row.duration_ms is None or end < requested):
            end = None
        start = to_epoch_ms(call.start)
        batch = span.call.message_id
        if batch and batch not in self._thread_of_batch:
            self._thread_of_batch[batch] = thread
            self._requests.set_field((agent.file, batch), "thread", thread)  # it may be read before the call
        base = self._base or 0
        parts = [[part.start - base, part.end - base, part.phase] for part in phases.intervals if part.phase != "run"]
        target = relative_to_folder(row.target or "", self.cwd) or self._input_line(row, span)
        values: dict[str, object] = {name: getattr(row, name) for name in _ROW_COLUMNS} | {
            "id": escape_control_chars(row.id),
            "tool": one_line(row.tool, 80) if row.tool else None,
            "target": one_line(target, _MAX_LINE_CHARS),
            "message": one_line(row.message, _MAX_LINE_CHARS) if row.message else None,
            "thread": thread,
            "start": self._time(start if start is not None else end),
            "end": self._time(end),
            "until": self._time(to_epoch_ms(span.background_end)),
            "phases": parts or None,
        }  # fmt: skip
        return self._calls.put((agent.file, span.id), tuple(values.values()))

    def _add_requests(self, file: FileRequests) -> None:
        """Add the new requests to models. `context` is the total input of a request, including cached tokens."""
        owner = next((thread for (name, _), thread in self._threads.items() if name == file.name), 0)
        for batch, usage in file.requests.items():
            tokens, at = usage.tokens, self._time(to_epoch_ms(parse_timestamp(usage.at)))
            cached = tokens.cache_read_input_tokens + tokens.cache_creation_input_tokens
            context = tokens.input_tokens + (0 if file.includes_cache else cached)
            if at is None or not (context or tokens.output_tokens):
                continue
            name, thread = self._request_name(batch), self._thread_of_batch.get(batch, owner)
            row = (
                name, at, thread, usage.model, tokens.input_tokens, tokens.output_tokens,
                tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens, context,
            )  # fmt: skip
            self._requests.put((file.name, batch), row)

    def _time(self, at: int | None) -> int | None:
        return None if at is None else at - (self._base or 0)

    # Time of the main agent

    def _slice_time(self, entries: Sequence[_Entry]) -> list[TimeSlice]:
        """Return what the main agent's time was used for. Slices before the first change are used again."""
        before, old = self._main_entries, self._states[self._update].slices if self._states else []
        size = min(len(before), len(entries))
        first = next((n for n in range(size) if before[n] is not entries[n]), size)
        cut = _find_cut(entries[:first], [*before[first:], *entries[first:]])
        if cut is None:
            return _merge_slices([], _slice_entries(entries, None))
        unchanged = bisect_right(old, cut, key=lambda part: part.end)
        slices = old[:unchanged]
        if unchanged < len(old) and old[unchanged].start < cut:
            slices.append(old[unchanged]._replace(end=cut))
        return _merge_slices(slices, _slice_entries(entries, cut))


def _slice_entries(entries: Iterable[_Entry], cut: int | None) -> list[TimeSlice]:
    """Return the slices of the entries from the time `cut` on, or all."""
    needed = [entry for entry in entries if cut is None or (entry.last is not None and entry.last >= cut)]
    marks = sorted((mark for entry in needed for mark in entry.marks), key=lambda mark: mark[0])
    if cut is not None:
        marks = [(cut, None), *(mark for mark in marks if mark[0] >= cut)]
    return slice_time([interval for entry in needed for interval in entry.intervals], marks)


def _find_cut(unchanged: Sequence[_Entry], changed: Iterable[_Entry]) -> int | None:
    """Return a time before which no slice has changed, or None.

    The message or request at the end of a gap determines its part, so the time is that of a message or a request.
    """
    times = [time for entry in changed for time in (entry.first, entry.last) if time is not None]
    if not times:
        return unchanged[-1].last if unchanged else None
    earliest = min(times)
    for entry in reversed(unchanged):
        cuts = [at for at, part in entry.marks if part is not None and at <= earliest]
        if cuts:
            return max(cuts)
    return None


def _merge_slices(slices: list[TimeSlice], others: Iterable[TimeSlice]) -> list[TimeSlice]:
    """Append slices. Adjacent slices of the same part become one."""
    for part in others:
        if slices and slices[-1].end == part.start and slices[-1].part == part.part:
            slices[-1] = slices[-1]._replace(end=part.end)
        else:
            slices.append(part)
    return slices


def _latest(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)


def _common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return the lengths of the common beginning and of the common end, which do not overlap."""
    size = min(len(old), len(new))
    keep = 0
    while keep < size and old[keep : keep + _COMPARED] == new[keep : keep + _COMPARED]:  # perf: compares in C
        keep = min(size, keep + _COMPARED)
    keep = next((n for n in range(keep, size) if old[n] != new[n]), size)
    rest = size - keep
    tail = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    return keep, tail
