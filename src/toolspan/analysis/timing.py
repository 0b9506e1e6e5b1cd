"""The time of a conversation, split into parts. Every instant belongs to exactly one part.

Start at `measure_agent`. The rules are in docs/time.md: a running call takes precedence over a hook,
a hook over a wait for permission. While no call is in flight, the time belongs to whatever ends it:
output of the model, or input of the user. Times are whole milliseconds, so that the parts add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from toolspan.analysis.phases import (
    CallPhases,
    Certainty,
    HookTimings,
    Phase,
    PhaseInterval,
    from_epoch_ms,
    phases_among,
    read_hook_timings,
    to_epoch_ms,
)
from toolspan.errors import SourceError
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.timeline import AgentTimeline, TimelineMessage, build_timeline
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.session import MessageAuthor, SessionInfo
from toolspan.types.span import Span

TimePart = Literal["model", "tools", "permission", "hooks", "idle"]
TIME_PARTS: tuple[TimePart, ...] = get_args(TimePart)

_PHASE_RANKS: tuple[tuple[Phase, TimePart], ...] = (
    ("run", "tools"),
    ("hooks", "hooks"),
    ("permission", "permission"),
    ("queued", "tools"),
)
"""Precedence of phases when calls overlap, and the part that each counts for."""
_VOICE_PARTS: dict[MessageAuthor, TimePart] = {
    "text": "model", "thinking": "model", "error": "model", "interrupt": "model",
    "prompt": "idle", "command": "idle", "notification": "idle",
}  # fmt: skip
"""The part of the time before a message. Messages of the client itself have none."""


class TimeSlice(NamedTuple):
    """An interval of one part, in milliseconds since the epoch."""

    start: int
    end: int
    part: TimePart


class CallTime(Struct, frozen=True, kw_only=True, gc=False):
    """The time of one call."""

    call: CallRow
    took_ms: int | None
    """None if a time is missing or the result was made up later."""
    wait_ms: int | None
    """Time waited for permission while no other call ran; None if unknown."""
    certainty: Certainty
    """Reliability of `wait_ms`."""
    hooks_ms: int
    run_ms: int | None
    """Time from start to result, including an unknown wait."""


class AgentTime(Struct, frozen=True, kw_only=True):
    """The time of one agent."""

    agent: str | None
    """The subagent; None for the main conversation."""
    role: str | None
    slices: tuple[TimeSlice, ...]
    calls: tuple[CallTime, ...]


class TimeSplit(Struct, frozen=True, kw_only=True):
    """Wall time split into parts, which add up exactly."""

    began: datetime | None
    ended: datetime | None
    wall_ms: int = 0
    model_ms: int = 0
    tools_ms: int = 0
    permission_ms: int = 0
    hooks_ms: int = 0
    idle_ms: int = 0

    @classmethod
    def from_slices(cls, slices: Iterable[TimeSlice]) -> TimeSplit:
        """Add up slices."""
        sums: dict[TimePart, int] = dict.fromkeys(TIME_PARTS, 0)
        first: int | None = None
        last: int | None = None
        for start, end, part in slices:
            sums[part] += end - start
            first = start if first is None else min(first, start)
            last = end if last is None else max(last, end)
        return cls(
            began=None if first is None else from_epoch_ms(first),
            ended=None if last is None else from_epoch_ms(last),
            wall_ms=sum(sums.values()),
            **{f"{part}_ms": ms for part, ms in sums.items()},
        )

    def part_ms(self, name: TimePart) -> int:
        """Return the milliseconds of one part."""
        milliseconds: int = getattr(self, f"{name}_ms")
        return milliseconds


def split_transcript(transcript: Transcript) -> TimeSplit:
    """Split the time of a transcript's main agent.

    Raises:
        SourceError: the file can no longer be read.
    """
    timings = read_hook_timings(Path(transcript.file))
    return TimeSplit.from_slices(measure_agent(build_timeline([read_content(transcript)]), timings).slices)


class FileTime(Struct, frozen=True, kw_only=True):
    """The time of one file: its main agent first, then the subagents in it."""

    file: str
    info: SessionInfo
    agents: list[AgentTime]
    problem: str | None = None
    """The reason why the file could not be read; everything else is then empty."""


def file_time(path: str) -> FileTime:
    """Measure one file. An unreadable file is reported in `problem`, not raised."""
    try:
        transcript = read(Path(path))
        timeline = build_timeline([read_content(transcript)])
    except SourceError as error:
        return FileTime(file=path, info=SessionInfo(), agents=[], problem=str(error))
    timings = read_hook_timings(Path(path))
    agent_times = [measure_agent(agent, timings) for agent in timeline.iter_timelines()]
    return FileTime(
        file=path, info=transcript.info, agents=[agent for agent in agent_times if agent.slices or agent.calls]
    )


def measure_agent(timeline: AgentTimeline, timings: Mapping[str, HookTimings] = MappingProxyType({})) -> AgentTime:
    """Measure one agent. Its subagents count as running calls. `timings` come from the hook log."""
    spans = [placed.span for placed in timeline.calls]
    phases = phases_among(spans, timings)
    span_phases = [phases(span) for span in spans]
    intervals = [interval for entry in span_phases for interval in entry.intervals]
    marks = sorted(_iter_marks(timeline, spans), key=lambda mark: mark.at)
    slices = _slice_time(intervals, marks)
    busy = _BusyTime(slices)
    calls = [
        _call_time(span, entry, timeline.file, busy)
        for span, entry in zip(spans, span_phases, strict=True)
        if span.state != "orphan_result"
    ]
    return AgentTime(agent=timeline.agent_id, role=timeline.role, slices=tuple(slices), calls=tuple(calls))


class _TimeMark(NamedTuple):
    """A moment of the conversation and the part of the time before it, if any."""

    at: int
    part: TimePart | None


def _iter_marks(timeline: AgentTimeline, spans: Sequence[Span]) -> Iterator[_TimeMark]:
    for turn in timeline.turns:
        for item in turn.items:
            at = to_epoch_ms(item.start_time) if isinstance(item, TimelineMessage) else None
            if isinstance(item, TimelineMessage) and at is not None:
                yield _TimeMark(at, _VOICE_PARTS.get(item.message.voice))
    for span in spans:
        requested, answered = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if requested is not None:
            yield _TimeMark(requested, "model")
        if answered is not None:
            yield _TimeMark(answered, None)


def _slice_time(intervals: Sequence[PhaseInterval], marks: Sequence[_TimeMark]) -> list[TimeSlice]:
    """Cut the time from the first mark to the last into slices of one part each."""
    if not marks:
        return []
    first, last = marks[0].at, marks[-1].at
    changes: list[tuple[int, Phase | None, int]] = [(mark.at, None, 0) for mark in marks]
    for interval in intervals:
        start, end = max(interval.start, first), min(interval.end, last)
        if start < end:
            changes += [(start, interval.phase, 1), (end, interval.phase, -1)]
    changes.sort(key=lambda change: change[0])
    before = _GapParts(marks)
    open_: dict[Phase | None, int] = dict.fromkeys((rank[0] for rank in _PHASE_RANKS), 0)
    slices = []
    for (at, phase, step), (until, _, _) in pairwise(changes):
        open_[phase] = open_.get(phase, 0) + step
        if at < until:
            part = next((use for rank, use in _PHASE_RANKS if open_[rank] > 0), None)
            slices.append(TimeSlice(at, until, part or before.part_before(until)))
    return slices


class _GapParts:
    """The parts of the time in which no call was in flight."""

    def __init__(self, marks: Sequence[_TimeMark]) -> None:
        owned_marks = [(mark.at, mark.part) for mark in marks if mark.part is not None]
        self._times = [at for at, _ in owned_marks]
        self._parts = [part for _, part in owned_marks]

    def part_before(self, until: int) -> TimePart:
        """Return the part of the next mark; `idle` after the last one."""
        n = bisect_right(self._times, until - 1)
        return self._parts[n] if n < len(self._parts) else "idle"


class _BusyTime:
    """The time in which any call was running."""

    def __init__(self, slices: Sequence[TimeSlice]) -> None:
        self._edges: list[int] = []
        self._sums: list[int] = []
        done = 0
        for start, end, part in slices:
            if part == "tools":
                self._edges += [start, end]
                self._sums += [done, done + end - start]
                done += end - start

    def _busy_until(self, at: int) -> int:
        n = bisect_right(self._edges, at) - 1
        if n < 0:
            return 0
        inside = n % 2 == 0  # edges alternate between starts and ends
        return self._sums[n] + (at - self._edges[n] if inside else 0)

    def busy_within(self, start: int, end: int) -> int:
        """Return the milliseconds of an interval in which any call was running."""
        return self._busy_until(end) - self._busy_until(start)


def _call_time(span: Span, phases: CallPhases, file: str, busy: _BusyTime) -> CallTime:
    lengths: dict[Phase, int] = {"run": 0, "hooks": 0, "permission": 0, "queued": 0}
    waited = 0
    for start, end, phase in phases.intervals:
        lengths[phase] += end - start
        if phase == "permission":
            waited += end - start - busy.busy_within(start, end)
    ran = any(interval.phase == "run" for interval in phases.intervals)
    return CallTime(
        call=make_call_row(span, file),
        took_ms=phases.took,
        wait_ms=None if phases.certainty == "unknown" else waited,
        certainty=phases.certainty,
        hooks_ms=lengths["hooks"],
        run_ms=lengths["run"] if ran else None,
    )


def clip_slices(
    slices: Iterable[TimeSlice], since: datetime | None = None, until: datetime | None = None
) -> list[TimeSlice]:
    """Return the slices inside a period, clipped to it."""
    low, high = to_epoch_ms(since), to_epoch_ms(until)
    clipped = []
    for start, end, part in slices:
        clip_start = start if low is None else max(start, low)
        clip_end = end if high is None else min(end, high)
        if clip_start < clip_end:
            clipped.append(TimeSlice(clip_start, clip_end, part))
    return clipped
