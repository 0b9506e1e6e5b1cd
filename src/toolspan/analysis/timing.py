"""The time of a conversation, split into parts. Every instant belongs to exactly one part.

Start at `measure_agent`. The rules are in docs/time.md: a running call takes precedence over a hook, and a hook over
a wait for permission. While no call is in flight, the time is attributed to the event that ends it: model output or
user input. Times are whole milliseconds, so that the parts add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.formats.claude.paths import hook_log_path
from toolspan.reading.rows import CallRow, make_call_row
from toolspan.reading.timeline import AgentTimeline, TimelineMessage, build_timeline
from toolspan.reading.transcript import Transcript, read, read_content
from toolspan.types.session import MessageAuthor, SessionInfo
from toolspan.types.span import Hook, Permission, Span, parse_timestamp, to_epoch_ms

Certainty = Literal["known", "inferred", "unknown"]
Phase = Literal["run", "hooks", "permission", "queued"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_MIN_WAIT_MS = 1_000
"""The shortest gap that counts as a wait. No user can read and answer a prompt faster, so shorter gaps
are client overhead.
"""
_QUESTION_TOOLS = frozenset(
    {"AskUserQuestion", "ExitPlanMode", "exit_plan_mode", "request_user_input",
     "request_permissions"}
)  # fmt: skip
"""Tools that only ask the user."""
_PRE_TOOL_HOOKS = frozenset({"PreToolUse", "PermissionRequest"})
_AUTOMATIC_SOURCES = frozenset({"config", "hook"})
"""Sources of decisions made without asking the user."""


_MAX_HOOK_LOG_BYTES = 64 << 20
_END_EVENTS = ("PostToolUse", "PostToolUseFailure")


class PhaseInterval(NamedTuple):
    """A phase of a call as an interval in milliseconds since the epoch."""

    start: int
    end: int
    phase: Phase


class CallPhases(NamedTuple):
    """The phases of one call."""

    intervals: tuple[PhaseInterval, ...]
    certainty: Certainty
    """How certain the `permission` phase is."""
    took: int | None = None
    """The duration, as in `Span.duration_ms`."""


class HookTimings(Struct, frozen=True, kw_only=True):
    """Times recorded by `toolspan hook` for a call, in milliseconds since the epoch."""

    announced: int
    """Time of the PreToolUse hook, before the permission decision."""
    prompted: int | None = None
    """Time of the permission prompt; None if none was recorded."""
    ended: int | None = None
    """Time at which the tool finished; None if it did not finish or never ran."""
    ran_ms: int | None = None
    """Duration of the tool itself, excluding hooks and prompts."""

    @property
    def began(self) -> int | None:
        """The time at which the tool started."""
        return None if self.ended is None or self.ran_ms is None else self.ended - self.ran_ms


def from_epoch_ms(ms: int) -> datetime:
    """Convert milliseconds since the epoch to a time."""
    return _EPOCH + ms * _MS


def call_phases(span: Span, ready: int | None = None, timings: HookTimings | None = None) -> CallPhases:
    """Return the phases of a call. `ready` is the time at which the last call in its batch was requested."""
    start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
    if start is None:
        return CallPhases((), "unknown", span.duration_ms)
    if end is None or end < start or span.has_fabricated_result:
        held_up = tuple(held.interval for held in _hook_intervals(span, start, start))
        return CallPhases(held_up, "unknown", span.duration_ms)
    held = list(_hook_intervals(span, start, end)) if span.events else []
    whole = PhaseInterval(_hooks_end(held, start, end), end, "run")
    hooks = [hook.interval for hook in held]
    match span.state:
        case "blocked_by_hook":
            phases = CallPhases((PhaseInterval(start, end, "hooks"),), "known")
        case "denied" if timings is not None and timings.prompted is not None:
            prompted = min(max(whole.start, timings.prompted), end)
            phases = _phases_with_wait(hooks, whole, prompted, end)
        case "denied":
            phases = _with_phase(hooks, whole, "permission", "inferred" if span.ambiguous else "known")
        case "cancelled":
            phases = _with_phase(hooks, whole, "queued", "known")
        case "succeeded" | "interrupted" | "timed_out" if span.tool in _QUESTION_TOOLS:
            phases = _with_phase(hooks, whole, "permission", "known")
        case _:
            stop = min((hook.start for hook in hooks if hook.start >= whole.start), default=end)
            whole = PhaseInterval(whole.start, min(stop, end), "run")
            noted = _phases_from_timings(hooks, whole, timings)
            phases = noted or _phases_of_run(span, hooks, whole, ready)
    return phases._replace(took=span.duration_ms)


def phases_among(spans: Iterable[Span], timings: Mapping[str, HookTimings]) -> Callable[[Span], CallPhases]:
    """Return a function that computes the phases of any of these calls."""
    ready: dict[str, int] = {}
    for span in spans:
        batch, requested = span.call.message_id or span.id, to_epoch_ms(span.requested)
        if requested is not None:
            ready[batch] = max(requested, ready.get(batch, requested))

    def phases_of(span: Span) -> CallPhases:
        return call_phases(span, ready.get(span.call.message_id or span.id), timings.get(span.id))

    return phases_of


def _with_phase(hooks: list[PhaseInterval], whole: PhaseInterval, phase: Phase, certainty: Certainty) -> CallPhases:
    return CallPhases((*hooks, whole._replace(phase=phase)), certainty)


def _phases_from_timings(
    hooks: list[PhaseInterval], whole: PhaseInterval, timings: HookTimings | None
) -> CallPhases | None:
    """Return the phases of a call that ran, based on its hook timings, or None if they are incomplete."""
    if timings is None or timings.began is None:
        return None
    prompted = timings.prompted
    if prompted is None:
        prompted = max(whole.start, timings.announced)
        if timings.began - prompted < _MIN_WAIT_MS:
            return _with_phase(hooks, whole, "run", "known")
    prompted = min(max(whole.start, prompted), whole.end)
    phases = _phases_with_wait(hooks, whole, prompted, min(max(prompted, timings.began), whole.end))
    # Some clients do not run hooks for prompts that a program answers.
    return phases if timings.prompted is not None else phases._replace(certainty="inferred")


def _phases_with_wait(
    hooks: list[PhaseInterval], whole: PhaseInterval, prompted: int, began: int, certainty: Certainty = "known"
) -> CallPhases:
    """Return phases with a wait for permission from `prompted` to `began`."""
    parts = (
        PhaseInterval(whole.start, prompted, "queued"),
        PhaseInterval(prompted, began, "permission"),
        PhaseInterval(began, whole.end, "run"),
    )
    return CallPhases((*hooks, *(interval for interval in parts if interval.end > interval.start)), certainty)


def _phases_of_run(span: Span, hooks: list[PhaseInterval], whole: PhaseInterval, ready: int | None) -> CallPhases:
    """Return the phases of a call that ran. `whole` is its time excluding hooks."""
    if _is_decided_automatically(span):
        return _with_phase(hooks, whole, "run", "known")
    reported_ms = span.result.reported_ms if span.result else None
    if reported_ms is None or not reported_ms >= 0 or span.background or span.call.kind == "agent":
        return _with_phase(hooks, whole, "run", "unknown")
    start, end = whole.start, whole.end
    began = end - round(min(reported_ms, end - start))
    prompted = min(max(start, ready or start), began)
    if began - prompted < _MIN_WAIT_MS:
        return _with_phase(hooks, whole, "run", "inferred")
    return _phases_with_wait(hooks, whole, prompted, began, "inferred")


def _is_decided_automatically(span: Span) -> bool:
    """Return whether the client recorded that a rule, a mode or a hook allowed the call."""
    decisions = (event for event in span.events if isinstance(event, Permission))
    return any(event.decision == "accept" and event.source in _AUTOMATIC_SOURCES for event in decisions)


class _HookInterval(NamedTuple):
    """The interval in which a hook ran."""

    before: bool
    interval: PhaseInterval


def _hook_intervals(span: Span, start: int, end: int) -> Iterator[_HookInterval]:
    """Yield the recorded intervals of hooks that ran after the request."""
    for event in span.events:
        at = to_epoch_ms(parse_timestamp(event.at)) if isinstance(event, Hook) else None
        if not isinstance(event, Hook) or at is None or at < start:
            continue
        before, took = event.point in _PRE_TOOL_HOOKS, event.duration_ms
        if took is not None and took > 0:
            yield _HookInterval(before, PhaseInterval(at - round(min(took, at - start)), at, "hooks"))
        elif event.outcome == "started" and not before and at < end:
            # The result was delayed until the hook was done.
            yield _HookInterval(before, PhaseInterval(at, end, "hooks"))


def _hooks_end(held: list[_HookInterval], start: int, end: int) -> int:
    """Return the time at which the last hook before the tool finished."""
    return max((hook.interval.end for hook in held if hook.before and hook.interval.end <= end), default=start)


def noted_wait(span: Span) -> int | None:
    """Return the recorded milliseconds from prompt to answer, or None if no prompt was recorded."""
    if span.call.place is None:
        return None
    timings = read_hook_timings(Path(span.call.place.file)).get(span.id)
    if timings is None or timings.prompted is None:
        return None
    phases = call_phases(span, timings=timings)
    waits = (interval.end - interval.start for interval in phases.intervals if interval.phase == "permission")
    return sum(waits) if phases.certainty == "known" else None


# --- The hook log


class _HookNote(Struct, frozen=True, kw_only=True):
    """One line in the hook log."""

    at: float
    event: str
    call: str | None = None
    tool: str | None = None
    input: str | None = None
    duration_ms: float | None = None


_DECODER = msgspec.json.Decoder(_HookNote)


def read_hook_timings(transcript: Path) -> Mapping[str, HookTimings]:
    """Read the timings from a transcript's hook log; empty if there is none."""
    try:
        with hook_log_path(transcript).open("rb") as file:
            return parse_hook_timings(file.read(_MAX_HOOK_LOG_BYTES).splitlines())
    except (OSError, ValueError):
        return {}


def read_all_hook_timings(transcripts: Iterable[Path]) -> Mapping[str, HookTimings]:
    """Read the hook logs of several transcripts. Subagents share their session's log."""
    timings: dict[str, HookTimings] = {}
    for transcript in {hook_log_path(path): path for path in transcripts}.values():
        timings |= read_hook_timings(transcript)
    return timings


def parse_hook_timings(lines: Iterable[bytes]) -> Mapping[str, HookTimings]:
    """Return the timings by call id. Invalid lines are skipped."""
    collector = _HookTimingsCollector()
    for line in lines:
        try:
            collector.add_note(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
            continue
    return collector.timings


class _HookTimingsCollector:
    """A collector that assigns hook log lines to calls."""

    def __init__(self) -> None:
        self.timings: dict[str, HookTimings] = {}
        self._open_notes: dict[str, _HookNote] = {}
        """Calls that have started and not finished."""

    def add_note(self, note: _HookNote) -> None:
        """Add the next line."""
        at = round(note.at * 1000)
        if note.event == "PreToolUse" and note.call is not None:
            self._open_notes[note.call] = note
            self.timings[note.call] = HookTimings(announced=at)
        elif note.event == "PermissionRequest":
            self._note_prompt(note, at)
        elif note.event in _END_EVENTS and note.call in self.timings:
            self._open_notes.pop(note.call, None)
            previous = self.timings[note.call]
            ran = None if note.duration_ms is None else round(note.duration_ms)
            self.timings[note.call] = msgspec.structs.replace(previous, ended=at, ran_ms=ran)

    def _note_prompt(self, note: _HookNote, at: int) -> None:
        call = note.call if note.call in self.timings else self._find_prompted_call(note)
        if call is not None:
            self.timings[call] = msgspec.structs.replace(self.timings[call], prompted=at)

    def _find_prompted_call(self, note: _HookNote) -> str | None:
        """Return the open call that a permission prompt belongs to. Prompts have no call id.

        It is the latest call with the same tool and input, or else with the same tool, because a hook may have
        changed the input.
        """
        waiting = [
            (call, open_note)
            for call, open_note in reversed(self._open_notes.items())
            if open_note.tool == note.tool and self.timings[call].prompted is None
        ]
        same = (call for call, open_note in waiting if open_note.input == note.input)
        return next(same, waiting[0][0] if waiting else None)


TimePart = Literal["model", "tools", "permission", "hooks", "idle"]
TIME_PARTS: tuple[TimePart, ...] = get_args(TimePart)

_PHASE_RANKS: tuple[tuple[Phase, TimePart], ...] = (
    ("run", "tools"),
    ("hooks", "hooks"),
    ("permission", "permission"),
    ("queued", "tools"),
)
"""Phases in order of precedence for overlapping calls, and the part that each counts towards."""
_VOICE_PARTS: dict[MessageAuthor, TimePart] = {
    "text": "model", "thinking": "model", "error": "model", "interrupt": "model",
    "prompt": "idle", "command": "idle", "notification": "idle",
}  # fmt: skip
"""The part to which the time before a message belongs. The client's own messages have none."""


class TimeSlice(NamedTuple):
    """An interval that belongs to one part, in milliseconds since the epoch."""

    start: int
    end: int
    part: TimePart


class CallTime(Struct, frozen=True, kw_only=True, gc=False):
    """The time spent in one call."""

    call: CallRow
    took_ms: int | None
    """Time from request to result; None if a timestamp is missing or the result was made up later."""
    wait_ms: int | None
    """Time waited for permission while no other call ran; None if unknown."""
    certainty: Certainty
    """How certain `wait_ms` is."""
    hooks_ms: int
    run_ms: int | None
    """Time from start to result, including an unknown wait."""


class AgentTime(Struct, frozen=True, kw_only=True):
    """The time spent by one agent."""

    agent: str | None
    """The id of the subagent; None for the main conversation."""
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
        """Return the milliseconds in one part."""
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
    """The time recorded in one file: its main agent first, then the subagents in it."""

    file: str
    info: SessionInfo
    agents: list[AgentTime]
    problem: str | None = None
    """The reason why the file could not be read. If set, the other fields are empty."""


def file_time(path: str) -> FileTime:
    """Measure the time in one file. If it is unreadable, `problem` is set and nothing is raised."""
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
    """Measure the time of one agent. Its subagents count as running calls. `timings` come from the hook log."""
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
    """A moment in the conversation and the part that the time before it belongs to, if any."""

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
    """Split the time between the first and the last mark into slices that each belong to one part."""
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
    """The parts for the time in which no call was in flight."""

    def __init__(self, marks: Sequence[_TimeMark]) -> None:
        owned_marks = [(mark.at, mark.part) for mark in marks if mark.part is not None]
        self._times = [at for at, _ in owned_marks]
        self._parts = [part for _, part in owned_marks]

    def part_before(self, until: int) -> TimePart:
        """Return the part that the time before the next mark belongs to, or `idle` after the last one."""
        n = bisect_right(self._times, until - 1)
        return self._parts[n] if n < len(self._parts) else "idle"


class _BusyTime:
    """The time in which at least one call was running."""

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
        """Return the milliseconds within an interval in which at least one call was running."""
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
