"""The rows of a session's timeline, updated while its files grow.

`TimelineRows.update` takes the new content of the files, rebuilds only the blocks that changed, and logs the changed
rows for `changes_since`. The index of a row never changes. Start at `TimelineRows.update`.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from toolspan.analysis.timing import (
    TIME_PARTS,
    CallPhases,
    HookTimings,
    phases_among,
)
from toolspan.export.json import escape_control_chars, one_line
from toolspan.export.session_export import LaneAllocator
from toolspan.formats.base import TranscriptContent
from toolspan.formats.pairing import BRANCH_NAMES
from toolspan.formats.registry import get_format, relative_to_folder
from toolspan.reading.growing import FileGrowth
from toolspan.reading.timeline import (
    MAX_AGENT_DEPTH,
    batch_branch,
    count_concurrent,
    display_text,
    group_overlapping,
    link_threads,
    message_branch,
    run_starts,
    starts_turn,
)
from toolspan.types.error_kinds import denial_reason
from toolspan.types.session import Message, RequestUsage, Tokens
from toolspan.types.span import Hook, Notification, Span, parse_timestamp, to_epoch_ms
from toolspan.web.timeline_threads import BLOCK_SIZE, Block, BlockState, Entry, Table, Thread, TimeSlices

CALL, MESSAGE, AGENT = range(3)
"""The kinds of rows. A row is encoded as `3 * index + kind` in `order`."""
_FLAGS = ("background", "deferred", "synthetic", "ambiguous", "truncated")
_MAX_LINE_CHARS = 200
_MAX_LANES = 16
_MAX_TEXT_CHARS = 6_000
_MAX_TEXTS_CHARS = 5_000_000
_SHORT_TEXT_CHARS = 300
"""The maximum length of each further text once all texts together have reached `_MAX_TEXTS_CHARS`."""
_MAX_LOGGED = 32
_COMPARED = 4_096
CALL_COLUMNS = (
    "id", "tool", "state", "agent", "at", "start", "end", "took", "lane", "target", "error", "message", "batch",
    "branch", "flags", "exit", "file", "request_line", "result_line", "until", "hooks", "session", "phases",
)  # fmt: skip
MESSAGE_COLUMNS = ("text", "agent", "voice", "at", "branch", "opens", "file", "line", "part", "chars")
REQUEST_COLUMNS = ("id", "at", "agent", "model", "input", "output", "cache_read", "cache_write", "context")


class _Change(NamedTuple):
    """The rows that one update changed, and the number of unchanged items at the ends of `order` and `slices`."""

    calls: set[int]
    messages: set[int]
    requests: set[int]
    order_keep: int
    order_tail: int
    slices_keep: int
    name_count: int


class TimelineRows:
    """The timeline of one session."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(4)
        self._log: list[_Change] = []
        self._names: dict[str | None, int] = {}
        self._message_numbers: dict[str, int] = {}
        self._calls = Table(CALL_COLUMNS)
        self._messages = Table(MESSAGE_COLUMNS)
        self._requests = Table(REQUEST_COLUMNS)
        self._threads: list[Thread] = []
        self._threads_by_key: dict[tuple[str, str], Thread] = {}
        self._call_rows: dict[str, dict[str, int]] = {}
        """Rows of calls, by file and call id."""
        self._entries: dict[str, dict[str, tuple[Thread, str]]] = {}
        """Thread and batch of each call, by file and call id."""
        self._request_rows: dict[str, dict[str, int]] = {}
        """Rows of requests, by file and message id."""
        self._agent_of_batch: dict[str, int] = {}
        self._prompts: dict[str, Mapping[str, str]] = {}
        self._started_agents: dict[str, str] = {}
        """The ids of the agents that calls have started, by call id."""
        self._message_tokens: dict[str, Tokens] = {}
        self.tokens = Tokens()
        self._timings: Mapping[str, HookTimings] = {}
        self._cwd: str | None = None
        self._base: int | None = None
        self._text_chars = 0
        self._order: list[int] = []
        for part in TIME_PARTS:  # perf: 100,000 short indexes instead of long ones
            self._name(part)
        self._slices = TimeSlices(self._name)
        self._last_line: dict[str, tuple[int, int]] = {}
        self._last_agents: list[dict[str, object]] = []

    # Output

    @property
    def version(self) -> str:
        """The id of the current state: a token for this object, and the number of updates that changed something."""
        return f"{self._token}-{len(self._log)}"

    def whole(self) -> dict[str, object]:
        """Return all rows."""
        return {
            "base": self._base or 0,
            "names": list(self._names),
            "agents": self._last_agents,
            "order": self._order,
            "calls": self._calls.compact(),
            "messages": self._messages.compact(),
            "requests": self._requests.compact(),
            "slices": self._slices.encode(),
        }

    def changes_since(self, version: str) -> dict[str, object] | None:
        """Return the rows that changed since a version, or None if the version is unknown or too old."""
        token, _, number = version.partition("-")
        if token != self._token or not number.isdecimal() or not len(self._log) - _MAX_LOGGED <= int(number):
            return None
        changes = self._log[int(number) :]
        if not changes:
            return {}
        keep, tail = min(change.order_keep for change in changes), min(change.order_tail for change in changes)
        tail = min(tail, len(self._order) - keep)
        slices_keep = min(change.slices_keep for change in changes)
        return {
            "base": self._base or 0,
            "names": list(self._names)[changes[0].name_count :],
            "agents": self._last_agents,
            "order": {"keep": keep, "add": self._order[keep : len(self._order) - tail], "tail": tail},
            "calls": self._calls.select(set().union(*(change.calls for change in changes))),
            "messages": self._messages.select(set().union(*(change.messages for change in changes))),
            "requests": self._requests.select(set().union(*(change.requests for change in changes))),
            "slices": {"keep": slices_keep, "add": self._slices.encode(slices_keep)},
        }

    @property
    def is_built(self) -> bool:
        """True after the first update."""
        return bool(self._log)

    @property
    def started_agents(self) -> list[str]:
        """The ids of the agents that calls of this session have started."""
        return list(self._started_agents.values())

    @property
    def states(self) -> Counter[str]:
        """The number of calls in each state."""
        names = list(self._names)
        return Counter({str(names[n]): count for n, count in Counter(self._calls.columns["state"]).most_common()})

    @property
    def agent_count(self) -> int:
        """The number of subagents."""
        return len(self._threads) - 1

    @property
    def concurrency(self) -> int:
        """The largest number of calls of one batch that ran at the same time."""
        return max((block.concurrency for thread in self._threads for block in thread.blocks), default=0)

    # Update

    def update(
        self, growths: Sequence[FileGrowth], timings: Mapping[str, HookTimings], cwd: str | None
    ) -> None:  # fmt: skip
        """Add the new content of the session's files, of which the first is the main file."""
        name_count, order, agents, slice_count = len(self._names), self._order, self._last_agents, len(self._slices)
        self._cwd = self._cwd or cwd
        if self._base is None:
            self._base = _first_time(growths)
        if not self._threads:
            self._add_thread(growths[0].content, "")
        for growth in growths:
            self._add_growth(growth)
        self._note_timings(timings)
        main = self._threads[0]
        slices_keep = slice_count
        for thread in self._threads:
            thread.append_added()
            first, earliest = self._build_dirty(thread)
            if thread is main and first is not None:
                slices_keep = self._slices.update(main, first, earliest, self._base or 0)
        for growth in growths:
            self._add_requests(growth)
        self._order = self._assemble()
        keep, tail = _common_ends(order, self._order)
        change = _Change(
            self._calls.take_changed(), self._messages.take_changed(), self._requests.take_changed(), keep, tail,
            slices_keep, name_count,
        )  # fmt: skip
        self._last_agents = self._agents()
        if not self._log:  # there is no version before the first
            change = change._replace(calls=set(), messages=set(), requests=set())
        elif not (change.calls or change.messages or change.requests) and (agents, order, slice_count, slices_keep) == (
            self._last_agents, self._order, len(self._slices), slice_count
        ):  # fmt: skip
            return  # an open call was checked again and has not changed
        self._log.append(change)
        if len(self._log) > _MAX_LOGGED:
            self._log[len(self._log) - _MAX_LOGGED - 1] = _NO_CHANGE  # free its memory; the version is now too old

    def _add_growth(self, growth: FileGrowth) -> None:
        content = growth.content
        file = content.file
        self._prompts[file] = content.agent_prompts or self._prompts.get(file, {})
        for (name, _), thread in self._threads_by_key.items():
            if name == file:
                thread.branches = content.branches
                if not thread.is_inline:  # the side file may have been written later
                    thread.role, thread.stated_starter = content.role, content.starter_call
                if growth.moved_line is not None:
                    thread.dirty.update(range(len(thread.blocks)))
        for message in content.messages:
            self._add_message(content, message)
        entries = self._entries.setdefault(file, {})
        for span in content.spans:
            place = span.call.place or (span.result.place if span.result else None)
            key = content.inline_agent_keys.get(place.line if place else 0, "")
            thread = self._threads_by_key.get((file, key)) or self._add_thread(content, key)
            thread.note_first(span.call.requested_at, is_call=True)
            batch = span.call.message_id or span.id
            earlier = entries.get(span.id)
            if earlier is not None and earlier != (thread, batch):  # its result came first
                old = earlier[0].batches[earlier[1]]
                old.spans = [other for other in old.spans or () if other.id != span.id]
                earlier[0].touch(old)
            entries[span.id] = (thread, batch)
            if span.agent:
                self._started_agents[span.id] = span.agent
            entry = thread.batches.get(batch)
            if entry is None:
                entry = thread.batches[batch] = Entry(place.offset if place else 0, [])
                thread.added.append(entry)
            assert entry.spans is not None
            index = next((n for n, other in enumerate(entry.spans) if other.id == span.id), None)
            if index is None:
                entry.spans.append(span)
            else:
                entry.spans[index] = span
            thread.touch(entry)

    def _add_thread(self, content: TranscriptContent, key: str) -> Thread:
        thread = self._threads_by_key[content.file, key] = Thread(len(self._threads), content, key)
        self._threads.append(thread)
        return thread

    def _add_message(self, content: TranscriptContent, message: Message) -> None:
        file, line = content.file, message.place.line
        key = content.inline_agent_keys.get(line, "")
        thread = self._threads_by_key.get((file, key)) or self._add_thread(content, key)
        thread.note_first(message.at, is_call=False)
        thread.add_prompt(message)
        last_line, part = self._last_line.get(file, (0, -1))
        part = part + 1 if last_line == line else 0
        self._last_line[file] = (line, part)
        at = to_epoch_ms(parse_timestamp(message.at))
        entry = Entry(message.place.offset, at=at, voice=message.voice, line=line)
        text = display_text(message)
        if text.strip():
            limit = _MAX_TEXT_CHARS if self._text_chars < _MAX_TEXTS_CHARS else _SHORT_TEXT_CHARS
            shown = escape_control_chars(text[: 2 * limit])[:limit]
            self._text_chars += len(shown)
            if len(text) > limit:
                shown = f"{shown}\n… {len(text) - limit:,} more characters"
            entry.row = self._messages.put(
                None,
                (
                    shown, thread.number, self._name(message.voice), self._time(at), 0, int(starts_turn(message)),
                    self._name(file), line, part, len(text),
                ),
            )  # fmt: skip
        thread.added.append(entry)

    def _note_timings(self, timings: Mapping[str, HookTimings]) -> None:
        """Mark the calls whose times in the hook log have changed, so that they are rebuilt."""
        if timings is self._timings:
            return
        before, self._timings = self._timings, timings
        for call_id in (name for name, timing in timings.items() if before.get(name) != timing):
            for entries in self._entries.values():
                if call_id in entries:
                    thread, batch = entries[call_id]
                    thread.touch(thread.batches[batch])

    def _name(self, text: str | None) -> int:
        return self._names.setdefault(text, len(self._names))

    def _number_message(self, name: str | None) -> int | None:
        """Return the number of a message, which links calls and requests. perf: shorter than 50,000 message ids."""
        return None if name is None else self._message_numbers.setdefault(name, len(self._message_numbers))

    def _time(self, at: int | None) -> int | None:
        return None if at is None else at - (self._base or 0)

    # Rows

    def _build_dirty(self, thread: Thread) -> tuple[int | None, int | None]:
        """Build the blocks that changed, and later ones whose lanes or branches depend on them.

        Return the index of the first of these blocks, and their earliest time before or after the change.
        """
        if not thread.dirty:
            return None, None
        first = min(thread.dirty)
        times: list[int] = []
        for n in range(first, len(thread.blocks)):
            if n not in thread.dirty:
                continue
            block = thread.blocks[n]
            times += block.times or ()
            after = self._build_block(thread, block, thread.states[n])
            block.times = block.find_times()
            times += block.times or ()
            if after != thread.states[n + 1]:
                thread.states[n + 1] = after
                thread.dirty.add(n + 1)
        thread.dirty.clear()
        return first, min(times, default=None)

    def _build_block(self, thread: Thread, block: Block, state: BlockState) -> BlockState:
        branch, lanes = state.branch, LaneAllocator(state.free_from)
        block.order, block.sizes, block.starts, block.intervals = [], [], [], []
        block.end, block.call_count, block.concurrency = None, 0, 0
        for entry in block.entries:
            size = len(block.order)
            if entry.spans is None:
                branch = message_branch(entry.voice, thread.branches.branch_of(entry.line), branch)
                if entry.row is not None:
                    self._messages.set_field(entry.row, "branch", BRANCH_NAMES.index(branch))
                    block.order.append(3 * entry.row + MESSAGE)
                times = [entry.at]
            elif entry.spans:
                branch = batch_branch(entry.spans)
                self._build_batch(thread, block, entry.spans, lanes)
                times = [to_epoch_ms(span.requested) for span in entry.spans]
            else:
                times = []
            block.sizes.append(len(block.order) - size)
            block.starts.append(min((at for at in times if at is not None), default=None))
            if entry.spans:
                times += [to_epoch_ms(span.finished) for span in entry.spans]
            block.end = max((at for at in (*times, block.end) if at is not None), default=None)
        return BlockState(branch, lanes.free_from)

    def _build_batch(self, thread: Thread, block: Block, spans: Sequence[Span], lanes: LaneAllocator) -> None:
        starts = run_starts(spans)
        phases_of = phases_among(spans, self._timings)
        rows = self._call_rows.setdefault(thread.file, {})
        for group in group_overlapping(spans, starts):
            block.concurrency = max(block.concurrency, count_concurrent(group, starts))
            for span in group:
                phases = phases_of(span)
                block.intervals += phases.intervals
                values = self._call_values(span, thread, to_epoch_ms(starts[span.id]), lanes, phases)
                row = rows[span.id] = self._calls.put(rows.get(span.id), values)
                block.order.append(3 * row + CALL)
                block.call_count += 1

    def _call_values(
        self, span: Span, thread: Thread, start: int | None, lanes: LaneAllocator, phases: CallPhases
    ) -> tuple[object, ...]:
        at, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if at is not None and end is not None and (phases.took is None or end < at):
            end = None
        begin = start if start is not None else end
        lane = None
        if begin is not None:
            lane = min(lanes.assign_lane(begin, end if end is not None else begin), _MAX_LANES - 1)
        batch = span.call.message_id
        if batch and batch not in self._agent_of_batch:
            self._agent_of_batch[batch] = thread.number
            if (row := self._request_rows.get(thread.file, {}).get(batch)) is not None:  # read before the call
                self._requests.set_field(row, "agent", thread.number)
        result, base = span.result, self._base or 0
        parts = [
            (part.start - base, part.end - base, part.phase) for part in phases.intervals if part.phase != "run"
        ]  # fmt: skip
        return (
            escape_control_chars(span.id),
            self._name(one_line(span.tool, 80) if span.tool else None),
            self._name(span.state),
            thread.number,
            self._time(at),
            self._time(begin),
            self._time(end),
            phases.took,
            lane,
            self._target(span),
            self._name(span.error_kind),
            one_line(denial_reason(span.message) or span.message, _MAX_LINE_CHARS) if span.message else None,
            self._number_message(span.call.message_id),
            BRANCH_NAMES.index(span.branch),
            sum(bool(_flag(span, name)) << n for n, name in enumerate(_FLAGS)),
            result.exit_code if result else None,
            self._name(thread.file),
            span.call.place.line if span.call.place else None,
            result.place.line if result else None,
            self._time(_background_end(span)),
            sum(isinstance(event, Hook) and event.outcome != "started" for event in span.events),
            self._name(span.call.session_id),
            parts or None,
        )

    def _target(self, span: Span) -> str:
        text = relative_to_folder(span.call.target or "", self._cwd)
        if not text and span.call.place:
            text = span.call.raw_input[: 4 * _MAX_LINE_CHARS].decode("utf-8", "replace").strip("{}")
        return one_line(text, _MAX_LINE_CHARS)

    def _add_requests(self, growth: FileGrowth) -> None:
        """Add the new requests to models. `context` is the total input of a request, including cached tokens."""
        file = growth.content.file
        includes_cache = get_format(growth.info.dialect).input_includes_cache
        owner = next((thread.number for thread in self._threads if thread.file == file), 0)
        rows = self._request_rows.setdefault(file, {})
        for name, usage in growth.requests.items():
            self._add_tokens(file, name, usage)
            tokens, at = usage.tokens, self._time(to_epoch_ms(parse_timestamp(usage.at)))
            cached = tokens.cache_read_input_tokens + tokens.cache_creation_input_tokens
            context = tokens.input_tokens + (0 if includes_cache else cached)
            if at is None or not (context or tokens.output_tokens):
                continue
            rows[name] = self._requests.put(
                rows.get(name),
                (
                    self._number_message(name), at, self._agent_of_batch.get(name, owner), self._name(usage.model),
                    tokens.input_tokens, tokens.output_tokens, tokens.cache_read_input_tokens,
                    tokens.cache_creation_input_tokens, context,
                ),
            )  # fmt: skip

    def _add_tokens(self, file: str, name: str, usage: RequestUsage) -> None:
        """Count each message once, with the largest value of each field. Messages without an id are always distinct."""
        key = f"{file} {name}" if name.startswith("#") else name
        before = self._message_tokens.get(key, Tokens())
        self._message_tokens[key] = after = before.max_with(usage.tokens)
        fields = {field: getattr(after, field) - getattr(before, field) for field in Tokens.__struct_fields__}
        self.tokens += Tokens(**fields)

    # Agents and order

    def _assemble(self) -> list[int]:
        """Link the agents to the calls that started them, and return the rows in order."""
        main, *others = self._threads
        others = [thread for thread in others if thread.blocks]
        if not others:
            return list(chain.from_iterable(block.order for block in main.blocks))
        by_agent = {agent: call_id for call_id, agent in reversed(self._started_agents.items())}
        calls = ChainMap(*self._entries.values())
        link_threads([main, *others], calls, by_agent, self._prompts.values())
        children: dict[tuple[int, str], list[Thread]] = {}
        for thread in sorted(others, key=lambda thread: thread.start_time):
            thread.parent, thread.depth, thread.is_linked = None, 1, False
            if thread.starter_call is not None and thread.starter_call in calls:
                starter, _ = calls[thread.starter_call]
                children.setdefault((starter.number, thread.starter_call), []).append(thread)
        placed = {main.number}
        order = self._ordered_rows(main, children, placed)
        unplaced = [
            thread for thread in sorted(others, key=lambda item: item.start_time) if thread.number not in placed
        ]
        if unplaced:
            order = self._insert_unlinked(main, order, unplaced, children, placed)
        return order

    def _ordered_rows(
        self, thread: Thread, children: Mapping[tuple[int, str], list[Thread]], placed: set[int]
    ) -> list[int]:
        """Return the rows of an agent, with those of its subagents after the calls that started them."""
        order = list(chain.from_iterable(block.order for block in thread.blocks))
        if thread.depth >= MAX_AGENT_DEPTH:
            return order
        inserts: list[tuple[int, list[int]]] = []
        for (number, call_id), threads in children.items():
            if number != thread.number:
                continue
            row = self._call_rows[thread.file][call_id]
            entry = thread.batches[self._entries[thread.file][call_id][1]]
            n = entry.number // BLOCK_SIZE
            at = sum(len(block.order) for block in thread.blocks[:n]) + thread.blocks[n].order.index(3 * row + CALL) + 1
            rows: list[int] = []
            for child in threads:
                if child.number not in placed:
                    placed.add(child.number)
                    child.parent, child.depth, child.is_linked = row, thread.depth + 1, True
                    rows += [3 * child.number + AGENT, *self._ordered_rows(child, children, placed)]
            inserts.append((at, rows))
        for at, rows in sorted(inserts, key=lambda insert: -insert[0]):
            order[at:at] = rows
        return order

    def _insert_unlinked(
        self, main: Thread, order: list[int], unplaced: Sequence[Thread],
        children: Mapping[tuple[int, str], list[Thread]], placed: set[int],
    ) -> list[int]:  # fmt: skip
        """Insert the agents that are not linked to a call, in order of their start times."""
        starts = [at if at is not None else -(1 << 62) for block in main.blocks for at in block.starts]
        times = list(accumulate(starts, max))
        sizes = list(chain.from_iterable(block.sizes for block in main.blocks))
        ends = {code: n + 1 for n, code in enumerate(order)}
        codes = list(chain.from_iterable(block.order for block in main.blocks))
        firsts = [0, *accumulate(sizes)]
        inserts = []
        for thread in unplaced:
            if thread.number in placed:  # as a subagent of one of the others
                continue
            placed.add(thread.number)
            rows = [3 * thread.number + AGENT, *self._ordered_rows(thread, children, placed)]
            first = thread.start
            n = firsts[bisect_right(times, first if first is not None else -(1 << 62))]
            at = len(order) if n == len(codes) else ends[codes[n]] - 1  # before the next row of the conversation
            inserts.append((at, rows))
        for at, rows in reversed(inserts):
            order[at:at] = rows
        return order

    def _agents(self) -> list[dict[str, object]]:
        unlinked_ends = [thread.end for thread in self._threads[1:] if not thread.is_linked]
        agents: list[dict[str, object]] = []
        for thread in self._threads:
            ends = [end for end in (thread.end, *(() if thread.number else unlinked_ends)) if end is not None]
            agents.append({
                "id": thread.agent_id,
                "role": thread.role,
                "depth": thread.depth,
                "parent": thread.parent,
                "linked": thread.is_linked,
                "calls": sum(block.call_count for block in thread.blocks),
                "start": self._time(thread.start),
                "end": self._time(max(ends, default=None)),
                "lanes": min(max(len(thread.states[-1].free_from), 1), _MAX_LANES),
            })  # fmt: skip
        return agents


def _first_time(growths: Iterable[FileGrowth]) -> int | None:
    """Return the time of the first message or request of the first file that has any."""
    for growth in growths:
        sent = (to_epoch_ms(parse_timestamp(message.at)) for message in growth.content.messages)
        requested = (to_epoch_ms(span.requested) for span in growth.content.spans)
        firsts = [next((at for at in times if at is not None), None) for times in (sent, requested)]
        if any(at is not None for at in firsts):
            return min(at for at in firsts if at is not None)
    return None


_NO_CHANGE = _Change(set(), set(), set(), 0, 0, 0, 0)


def _common_ends(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """Return the lengths of the common beginning and of the common end, which do not overlap."""
    size = min(len(old), len(new))
    keep = 0
    while keep < size and old[keep : keep + _COMPARED] == new[keep : keep + _COMPARED]:  # perf: compares in C
        keep = min(size, keep + _COMPARED)
    while keep < size and old[keep] == new[keep]:
        keep += 1
    tail = 0
    while tail < size - keep and old[len(old) - tail - 1] == new[len(new) - tail - 1]:
        tail += 1
    return keep, tail


def _flag(span: Span, name: str) -> bool:
    if name == "truncated":
        return span.result is not None and span.result.truncated
    return bool(getattr(span, name))


def _background_end(span: Span) -> int | None:
    """Return the time of the last notification about the background task that a call started."""
    if not span.background:
        return None
    notices = (event for event in span.events if isinstance(event, Notification))
    return max((at for event in notices if (at := to_epoch_ms(parse_timestamp(event.at))) is not None), default=None)
