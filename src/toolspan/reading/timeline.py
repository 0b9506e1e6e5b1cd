"""Build the timeline of a session: turns, messages, overlapping calls, and subagents below the calls
that started them.

Items are ordered by their position in the file, not by timestamps. Items abandoned by a rewind or a compaction are
marked. A call is listed once, as in all totals, even if the file of a subagent has a copy. Pure: no files, no clock.
Start at `build_timeline`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate

from msgspec import Struct, to_builtins

from toolspan.formats.base import TranscriptContent
from toolspan.formats.decoding import parse_task_notices
from toolspan.formats.registry import get_format
from toolspan.reading.rows import make_call_row
from toolspan.types.ids import CallId, SourceLocation
from toolspan.types.session import Message, MessageAuthor
from toolspan.types.span import Branch, Span, parse_timestamp
from toolspan.types.tool_kinds import tool_kind

RunStarts = Mapping[CallId, datetime | None]
"""The earliest time at which each call could have started."""

_MAX_AGENT_DEPTH = 16
"""Subagents nested more deeply than this are listed beside the main conversation."""
_TURN_COMMANDS = ("<command-name>", "<command-message>", "<bash-input>")
_EARLIEST_TIME = datetime.fromisoformat("0001-01-02T00:00:00+00:00")


class TimelineMessage(Struct, frozen=True, kw_only=True, tag="message"):
    """A message in a timeline."""

    message: Message
    branch: Branch = "active"

    @property
    def start_time(self) -> datetime | None:
        """The time of the message."""
        return parse_timestamp(self.message.at)

    end_time = start_time


class TimelineCall(Struct, frozen=True, kw_only=True):
    """A call, the lane in which it is drawn, and the subagents that it started."""

    span: Span
    lane: int = 0
    """Overlapping calls in a group have different lanes."""
    agents: tuple[AgentTimeline, ...] = ()
    start: datetime | None = None
    """The earliest time at which the call could have started: when it was requested, or later if it was queued."""


class OverlapGroup(Struct, frozen=True, kw_only=True):
    """Calls in a batch that overlap between start and result. A group often has only one call."""

    calls: tuple[TimelineCall, ...]
    concurrency: int

    @property
    def lane_count(self) -> int:
        """The number of lanes in use."""
        return 1 + max(call.lane for call in self.calls)


class TimelineBatch(Struct, frozen=True, kw_only=True, tag="batch"):
    """The calls requested in one assistant message."""

    message_id: str | None
    groups: tuple[OverlapGroup, ...]
    branch: Branch = "active"

    @property
    def calls(self) -> list[TimelineCall]:
        """All calls, in request order."""
        return [call for group in self.groups for call in group.calls]

    @property
    def is_serial(self) -> bool:
        """True if the calls were requested together, but each finished before the next one began."""
        return len(self.groups) > 1 and len(self.groups) == len(self.calls)

    @property
    def start_time(self) -> datetime | None:
        """The time of the first request."""
        return min((time for call in self.calls if (time := call.span.requested)), default=None)

    @property
    def end_time(self) -> datetime | None:
        """The time of the last result."""
        times = [(call.span.requested, call.span.finished) for call in self.calls]
        return max((time for pair in times for time in pair if time), default=None)


class Turn(Struct, frozen=True, kw_only=True):
    """A prompt and everything up to the next prompt. The first turn may have no prompt."""

    items: tuple[TimelineItem, ...]

    @property
    def prompt(self) -> Message | None:
        """The message that began the turn."""
        first = self.items[0] if self.items else None
        return first.message if isinstance(first, TimelineMessage) and starts_turn(first.message) else None

    @property
    def start_time(self) -> datetime | None:
        """The start time of the first item."""
        return next((time for item in self.items if (time := item.start_time)), None)

    @property
    def end_time(self) -> datetime | None:
        """The end time of the last item."""
        return max((time for item in self.items if (time := item.end_time)), default=None)

    @property
    def calls(self) -> list[TimelineCall]:
        """The calls in this turn, excluding those of subagents."""
        return [call for item in self.items if isinstance(item, TimelineBatch) for call in item.calls]

    def lines_in(self, file: str) -> Iterator[int]:
        """Yield the lines of a file that hold the messages, calls and results of this turn."""
        for item in self.items:
            places: list[SourceLocation | None] = []
            if isinstance(item, TimelineMessage):
                places = [item.message.place]
            elif isinstance(item, TimelineBatch):
                spans = [call.span for call in item.calls]
                places = [span.call.place for span in spans] + [span.result.place for span in spans if span.result]
            yield from (place.line for place in places if place is not None and place.file == file)


class AgentTimeline(Struct, frozen=True, kw_only=True, tag="agent"):
    """The timeline of one agent: the main conversation or a subagent."""

    agent_id: str | None
    role: str | None
    file: str
    turns: tuple[Turn, ...]
    linked: bool = True
    """False if the call that started it is unknown. Such a subagent is placed by its time."""

    @property
    def start_time(self) -> datetime | None:
        """The start time of the first turn."""
        return next((time for turn in self.turns if (time := turn.start_time)), None)

    @property
    def end_time(self) -> datetime | None:
        """The end time of the last turn."""
        return max((time for turn in self.turns if (time := turn.end_time)), default=None)

    @property
    def batches(self) -> list[TimelineBatch]:
        """The agent's own batches, excluding those of subagents."""
        items = (item for turn in self.turns for item in turn.items)
        return [item for item in items if isinstance(item, TimelineBatch)]

    @property
    def calls(self) -> list[TimelineCall]:
        """The agent's own calls, excluding those of subagents."""
        return [call for batch in self.batches for call in batch.calls]

    def iter_timelines(self) -> Iterator[AgentTimeline]:
        """Yield this timeline and the timelines of all subagents below it."""
        yield self
        items = (item for turn in self.turns for item in turn.items)
        for item in items:
            below = [item] if isinstance(item, AgentTimeline) else []
            if isinstance(item, TimelineBatch):
                below = [agent for call in item.calls for agent in call.agents]
            for timeline in below:
                yield from timeline.iter_timelines()


TimelineItem = TimelineMessage | TimelineBatch | AgentTimeline


def starts_turn(message: Message) -> bool:
    """Return whether a message begins a turn."""
    if message.voice == "command":
        return message.text.lstrip().startswith(_TURN_COMMANDS)
    return message.voice == "prompt"


def build_timeline(contents: Iterable[TranscriptContent]) -> AgentTimeline:
    """Return the timeline of a session. The first item of `contents` is the main conversation."""
    builder = TimelineBuilder()
    for number, content in enumerate(contents):
        builder.add(number, content)
    return builder.build()


class _Entry(Struct, eq=False, gc=False):
    """A message, or the calls of one batch, and the item that was built from it."""

    offset: int
    message: Message | None = None
    spans: list[Span] = []
    item: TimelineMessage | TimelineBatch | None = None
    branch: Branch | None = None
    """The branch of the last item that was built."""

    @property
    def sort_key(self) -> tuple[int, bool]:
        """The position in the file. In one line, messages precede calls."""
        return self.offset, self.message is None


class _AgentThread:
    """One agent's messages and calls."""

    def __init__(self, content: TranscriptContent, key: str) -> None:
        self.content = content
        self._key = key
        self.starter_call: str | None = None
        self.is_placed = False
        self.has_moved = False
        """True if lines are on other branches than at the last `build`. Calls whose branch has changed are new."""
        self.first_prompt: str | None = None
        """The agent's first prompt, which states its task."""
        self.batches: dict[str, _Entry] = {}
        self._entries: list[_Entry] = []
        self._is_sorted = True
        self._message_count = 0
        self._first_message_at: str | None = None
        self._first_request_at: str | None = None

    def add_message(self, message: Message) -> None:
        if not self._message_count:
            self._first_message_at = message.at
        self._message_count += 1
        if self.first_prompt is None and self._message_count <= 4 and message.voice == "prompt":
            self.first_prompt = message.text.strip()
        self._add_entry(_Entry(message.place.offset, message))

    def add_call(self, span: Span, place: SourceLocation | None) -> None:
        """Add a call, or replace its earlier version."""
        batch = span.call.message_id or span.id
        entry = self.batches.get(batch)
        if entry is None:
            if not self.batches:
                self._first_request_at = span.call.requested_at
            entry = self.batches[batch] = _Entry(place.offset if place else 0, spans=[span])
            self._add_entry(entry)
            return
        for n, other in enumerate(entry.spans):
            if other.id == span.id:
                if other != span:
                    entry.spans[n], entry.item = span, None
                return
        entry.spans.append(span)
        entry.item = None

    def remove_call(self, batch: str, call_id: str) -> None:
        """Remove a call from a batch: its result came before its request, which names another batch."""
        entry = self.batches[batch]
        entry.spans = [span for span in entry.spans if span.id != call_id]
        entry.item = None
        if not entry.spans:
            del self.batches[batch]
            self._entries.remove(entry)

    def _add_entry(self, entry: _Entry) -> None:
        if self._entries and entry.sort_key < self._entries[-1].sort_key:
            self._is_sorted = False
        self._entries.append(entry)

    @property
    def entries(self) -> list[_Entry]:
        """The messages and batches in the order of the file."""
        if not self._is_sorted:
            self._entries.sort(key=lambda entry: entry.sort_key)
            self._is_sorted = True
        return self._entries

    @property
    def is_inline(self) -> bool:
        """True if the agent's lines are in another agent's file."""
        return bool(self._key)

    @property
    def agent_id(self) -> str | None:
        return self._key or self.content.agent_id

    @property
    def stated_starter(self) -> str | None:
        return None if self.is_inline else self.content.starter_call

    @property
    def start_time(self) -> datetime:
        times = map(parse_timestamp, (self._first_message_at, self._first_request_at))
        return min((time for time in times if time), default=_EARLIEST_TIME)


class TimelineBuilder:
    """Builder that splits contents into threads, links each to the call that started it, and orders their items.

    The contents may grow: after each `add`, `build` creates only the items that have changed since the last `build`.
    All other items are the same objects as before.
    """

    def __init__(self) -> None:
        self._threads: dict[tuple[int, str], _AgentThread] = {}
        self._places: dict[tuple[int, str], tuple[_AgentThread, str]] = {}
        """Thread and batch of each call, by the number of the file and the call id."""
        self._file_of_call: dict[str, int] = {}
        """The number of the first file with each call. Some clients copy the conversation to the files of subagents."""
        self._call_of_agent: dict[str, str] = {}
        self._prompts: dict[int, Mapping[str, str]] = {}
        self._threads_by_call: dict[str, list[_AgentThread]] = {}
        self._entries_with_agents: list[_Entry] = []

    @property
    def started_agents(self) -> list[str]:
        """The ids of the agents that calls have started."""
        return list(self._call_of_agent)

    def add(self, file: int, content: TranscriptContent, *, has_moved: bool = False) -> None:
        """Add the new messages of a file, and the calls that are new or changed.

        `file` is the number of the file in the session. File 0 is added first: it is the main conversation. `has_moved`
        is True if lines that were added before are now on another branch.
        """
        keys = content.inline_agent_keys
        self._prompts[file] = content.agent_prompts or self._prompts.get(file, {})
        for thread in [thread for (name, _), thread in self._threads.items() if name == file]:
            thread.content = content
            thread.has_moved |= has_moved
        thread = main = self._thread(file, content, "")
        for message in content.messages:
            if keys:
                thread = self._thread(file, content, keys.get(message.place.line, ""))
            thread.add_message(message)
        thread = main
        for span in content.spans:
            if self._file_of_call.setdefault(span.id, file) != file:
                continue
            place = _span_place(span)
            if keys:
                thread = self._thread(file, content, keys.get(place.line if place else 0, ""))
            name, where = (file, span.id), (thread, span.call.message_id or span.id)
            earlier = self._places.get(name)
            if earlier is not None and earlier != where:
                earlier[0].remove_call(earlier[1], span.id)
            self._places[name] = where
            if span.agent:
                self._call_of_agent.setdefault(span.agent, span.id)
            thread.add_call(span, place)

    def build(self) -> AgentTimeline:
        """Return the timeline tree, with unlinked subagents beside the main conversation, placed by time."""
        main, *others = self._threads.values()
        threads = [main, *(thread for thread in others if thread.entries)]
        for thread in threads:
            thread.is_placed = thread is main
        for entry in self._entries_with_agents:
            entry.item = None
        self._entries_with_agents, self._threads_by_call = [], {}
        if len(threads) > 1:
            _link_threads(threads, self._file_of_call, self._call_of_agent, self._prompts.values())
        for thread in threads[1:]:
            if thread.starter_call is not None:
                self._threads_by_call.setdefault(thread.starter_call, []).append(thread)
        items = self._build_items(main, 0)
        if len(threads) > 1:
            times = list(accumulate((item.start_time or _EARLIEST_TIME for item in items), max))
            inserted = 0
            for thread in sorted(threads[1:], key=lambda thread: thread.start_time):
                if not thread.is_placed:
                    timeline = self._build_agent_timeline(thread, 1, linked=False)
                    items.insert(inserted + bisect_right(times, timeline.start_time or _EARLIEST_TIME), timeline)
                    inserted += 1
        return AgentTimeline(
            agent_id=main.agent_id,
            role=main.content.role,
            file=main.content.file,
            turns=tuple(_split_turns(items)),
        )

    def _thread(self, file: int, content: TranscriptContent, key: str) -> _AgentThread:
        thread = self._threads.get((file, key))
        if thread is None:
            thread = self._threads[file, key] = _AgentThread(content, key)
        return thread

    def _build_agent_timeline(self, thread: _AgentThread, depth: int, *, linked: bool = True) -> AgentTimeline:
        thread.is_placed = True
        return AgentTimeline(
            agent_id=thread.agent_id,
            role=None if thread.is_inline else thread.content.role,
            file=thread.content.file,
            turns=tuple(_split_turns(self._build_items(thread, depth))),
            linked=linked,
        )

    def _build_items(self, thread: _AgentThread, depth: int) -> list[TimelineItem]:
        items: list[TimelineItem] = []
        branch: Branch = "active"
        is_stale = thread.has_moved  # or the branch of the previous item has changed, and a message may inherit it
        for entry in thread.entries:
            item = entry.item
            if item is None or is_stale or (self._threads_by_call and self._starts_agents(entry)):
                item = self._build_item(entry, thread, branch, depth)
                is_stale = thread.has_moved or (entry.branch is not None and entry.branch != item.branch)
                entry.item, entry.branch = item, item.branch
            branch = item.branch
            items.append(item)
        thread.has_moved = False
        return items

    def _starts_agents(self, entry: _Entry) -> bool:
        return any(span.id in self._threads_by_call for span in entry.spans)

    def _build_item(
        self, entry: _Entry, thread: _AgentThread, previous: Branch, depth: int
    ) -> TimelineMessage | TimelineBatch:
        message, spans = entry.message, entry.spans
        if message is not None:
            branch = _message_branch(message.voice, thread.content.branches.branch_of(message.place.line), previous)
            if entry.item is not None and entry.branch == branch:
                return entry.item
            return TimelineMessage(message=message, branch=branch)
        if self._threads_by_call and self._starts_agents(entry):
            self._entries_with_agents.append(entry)
        elif entry.item is not None:
            return entry.item
        starts = _run_starts(spans)
        groups = tuple(self._build_group(group, starts, depth) for group in _group_overlapping(spans, starts))
        return TimelineBatch(message_id=spans[0].call.message_id, groups=groups, branch=_batch_branch(spans))

    def _build_group(self, spans: Sequence[Span], starts: RunStarts, depth: int) -> OverlapGroup:
        lanes = _assign_lanes(spans, starts)
        calls: list[TimelineCall] = []
        for n, span in enumerate(spans):
            started = self._threads_by_call.get(span.id, ()) if depth < _MAX_AGENT_DEPTH else ()
            threads = sorted((thread for thread in started if not thread.is_placed), key=lambda item: item.start_time)
            agents = tuple(self._build_agent_timeline(thread, depth + 1) for thread in threads)
            calls.append(TimelineCall(span=span, lane=lanes[n], agents=agents, start=starts[span.id]))
        return OverlapGroup(calls=tuple(calls), concurrency=_count_concurrent(spans, starts))


def _link_threads(
    threads: Sequence[_AgentThread],
    call_ids: Container[str],
    by_agent: Mapping[str, str],
    prompts: Iterable[Mapping[str, str]],
) -> None:
    """Link each thread but the first to the call that started it, using the most reliable evidence.

    `by_agent` maps the ids of agents to the calls whose results name them. Each item of `prompts` maps calls that start
    agents to the prompts in their inputs.
    """
    unlinked: list[_AgentThread] = []
    for thread in threads[1:]:
        name = thread.agent_id or ""
        candidates = (thread.stated_starter, name, by_agent.get(name))
        thread.starter_call = next((name for name in candidates if name is not None and name in call_ids), None)
        if thread.starter_call is None:
            unlinked.append(thread)
    if not unlinked:
        return
    # Otherwise, the first prompt equals the prompt of a call that is not linked to any other thread.
    taken = {thread.starter_call for thread in threads}
    calls_by_prompt: dict[str, list[str]] = {}
    for agent_prompts in prompts:
        for name, prompt in agent_prompts.items():
            if name not in taken:
                taken.add(name)
                calls_by_prompt.setdefault(prompt.strip(), []).append(name)
    for thread in sorted(unlinked, key=lambda thread: thread.start_time):
        waiting = calls_by_prompt.get(thread.first_prompt or "")
        if waiting:
            thread.starter_call = waiting.pop(0)


def _batch_branch(spans: Iterable[Span]) -> Branch:
    """Return the branch of a batch. The results of parallel calls may be on different branches."""
    return min((span.branch for span in spans), key=("active", "compacted", "abandoned").index)


def _message_branch(voice: MessageAuthor, branch: Branch, previous: Branch) -> Branch:
    """Return the branch of a message whose line is on `branch`. `previous` is the branch of the item before it.

    The lines that the client itself writes may be on any branch, so they get the branch of the previous item.
    """
    return branch if branch != "abandoned" or voice in ("prompt", "text", "thinking") else previous


def _count_concurrent(spans: Sequence[Span], starts: RunStarts) -> int:
    """Return the largest number of calls in a group that ran at the same time."""
    changes: list[tuple[datetime, int]] = []
    for span in spans:
        start = starts[span.id]
        if start and span.finished and span.finished > start:
            changes += [(start, 1), (span.finished, -1)]
    return max(accumulate((change for _, change in sorted(changes)), initial=0)) or 1


def _span_place(span: Span) -> SourceLocation | None:
    return span.call.place or (span.result.place if span.result else None)


def _run_starts(spans: Sequence[Span]) -> RunStarts:
    """Return the earliest time at which each call of a batch could have started.

    Some clients run a call that changes something alone: after all calls before it, and before all calls after it. The
    start is therefore the end of the call that it had to wait for, if the recorded times are in that order; otherwise
    it is the time of the request.
    """
    starts: dict[CallId, datetime | None] = {}
    for n, span in enumerate(spans):
        starts[span.id] = start = span.requested
        if n == 0 or start is None or span.finished is None or not get_format(span.call.client).runs_changes_alone:
            continue  # perf: most batches have one call, and `_runs_alone` parses the command
        is_alone = _runs_alone(span)
        ends = [other.finished for other in spans[:n] if other.finished and (is_alone or _runs_alone(other))]
        latest = max(ends, default=start)
        if start < latest <= span.finished:
            starts[span.id] = latest
    return starts


def _runs_alone(span: Span) -> bool:
    """Return whether the client runs a call alone. MCP tools and unknown tools are assumed to overlap."""
    match tool_kind(span.tool):
        case "edit" | "write":
            return True
        case "shell":
            from toolspan.shell.plans import is_read_only  # perf: few batches have several calls

            return span.tool == "Bash" and not is_read_only(span.call.target or "")
        case _:
            return False


def _call_intervals(spans: Sequence[Span], starts: RunStarts) -> list[tuple[datetime, int, datetime]]:
    """Return start, index and end of each span, earliest first. A span without a result ends with the last span."""
    times = [(starts[span.id], span.finished) for span in spans]
    horizon = max((time for pair in times for time in pair if time), default=None)
    return sorted(
        (start, n, max(start, end or horizon or start)) for n, (start, end) in enumerate(times) if start is not None
    )


def _group_overlapping(spans: Sequence[Span], starts: RunStarts) -> list[list[Span]]:
    """Return the calls of a batch in groups that overlap between start and result, in request order."""
    if len(spans) == 1:
        return [[*spans]]
    groups: list[list[int]] = [[n] for n, span in enumerate(spans) if span.requested is None]
    latest_end: datetime | None = None
    for start, n, end in _call_intervals(spans, starts):
        if latest_end is not None and start < latest_end:
            groups[-1].append(n)
            latest_end = max(latest_end, end)
        else:
            groups.append([n])
            latest_end = end
    return [[spans[n] for n in sorted(group)] for group in sorted(groups, key=min)]


def _assign_lanes(spans: Sequence[Span], starts: RunStarts) -> list[int]:
    """Assign each span in a group to the first lane that is free when the span begins."""
    lanes = [0] * len(spans)
    free: list[datetime] = []
    if len(spans) == 1:
        return lanes
    for start, n, end in _call_intervals(spans, starts):
        lanes[n] = next((lane for lane, time in enumerate(free) if time <= start), len(free))
        free[lanes[n] : lanes[n] + 1] = [end]
    return lanes


def _split_turns(items: Iterable[TimelineItem]) -> Iterator[Turn]:
    pending: list[TimelineItem] = []
    for item in items:
        if pending and isinstance(item, TimelineMessage) and starts_turn(item.message):
            yield Turn(items=tuple(pending))
            pending = []
        pending.append(item)
    if pending:
        yield Turn(items=tuple(pending))


MessageFilter = Callable[[Message], bool]


def turn_rows(timeline: AgentTimeline, include_message: MessageFilter) -> list[dict[str, object]]:
    """Return the turns as nested rows, as `toolspan show --json` prints them."""
    return [
        {
            "prompt": turn.prompt.text if turn.prompt else None,
            "began": turn.start_time,
            "ended": turn.end_time,
            "items": [
                _item_row(item, timeline.file, include_message)
                for item in turn.items
                if not isinstance(item, TimelineMessage) or include_message(item.message)
            ],
        }
        for turn in timeline.turns
    ]


def _item_row(item: TimelineItem, file: str, include_message: MessageFilter) -> dict[str, object]:
    match item:
        case TimelineMessage():
            return {"type": "message", **to_builtins(item.message), "branch": item.branch}
        case AgentTimeline():
            return {"type": "agent", **_agent_row(item, include_message)}
        case TimelineBatch():
            facts = {"id": item.message_id, "branch": item.branch, "serial": item.is_serial}
            groups = []
            for group in item.groups:
                calls = [
                    {
                        "lane": call.lane,
                        **to_builtins(make_call_row(call.span, file)),
                        "events": call.span.events,
                        "agents": [_agent_row(agent, include_message) for agent in call.agents],
                    }
                    for call in group.calls
                ]
                groups.append({"concurrency": group.concurrency, "calls": calls})
            return {"type": "batch", **facts, "groups": groups}


def _agent_row(timeline: AgentTimeline, include_message: MessageFilter) -> dict[str, object]:
    facts = {"agent": timeline.agent_id, "role": timeline.role, "linked": timeline.linked}
    return {**facts, "file": timeline.file, "turns": turn_rows(timeline, include_message)}


_COMMAND_TAG = re.compile(r"<(command-name|command-args|bash-input)>(.*?)</\1>", re.DOTALL)
_ANY_TAG = re.compile(r"</?[a-z][a-z-]*>")


def display_text(message: Message) -> str:
    """Return the message text to show to users, without the client's tags."""
    text = message.text
    if message.voice == "notification":
        notices = parse_task_notices(text)
        summaries = [f"{n.summary or n.task_id or 'task'} ({n.status or '?'})" for n in notices]
        return "; ".join(summaries) or text
    if message.voice != "command":
        return text.replace("<system-reminder>", "").replace("</system-reminder>", "").strip()
    tags = dict(_COMMAND_TAG.findall(text))
    if "<local-command-caveat>" in text:
        return ""
    if "bash-input" in tags:
        return f"! {tags['bash-input']}"
    if "command-name" in tags:
        name = "/" + tags["command-name"].strip().removeprefix("/")
        return f"{name} {tags.get('command-args', '')}".strip()
    return _ANY_TAG.sub("", text).strip()
