"""The time of a conversation, split into parts. Every instant belongs to exactly one part.

Start at `measure_agent`. The rules are in docs/time.md: a running call takes precedence over a hook, and a hook over
a wait for permission. While no call is in flight, the time is attributed to the event that ends it: model output or
user input. Times are whole milliseconds, so that the parts add up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolspan.formats.side_files import hook_log_path
from toolspan.formats.source import to_path
from toolspan.reading.rows import CallRow, command_ms, make_call_row
from toolspan.reading.timeline import AgentTimeline, TimelineMessage, build_timeline
from toolspan.reading.transcript import Transcript, read_content
from toolspan.types.session import MessageAuthor
from toolspan.types.span import POLL, Hook, Permission, Progress, Span, parse_timestamp, to_epoch_ms

Certainty = Literal["known", "inferred", "unknown"]
Phase = Literal["run", "hooks", "permission", "queued"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_MIN_WAIT_MS = 1_000
"""The shortest gap that counts as a wait. No user can read and answer a prompt faster, so shorter gaps
are client overhead.
"""
GAP_MS = 5 * 60_000
"""The shortest time between two records of a subagent, or two progress records of a call, that counts as a gap."""
CALL_GAP_MS = 15 * 60_000
"""The same for calls that may report nothing for a long time. Clients stop a command after 10 minutes at most."""
SLOW_CALL_MS = 10_000
"""The duration above which a read or an edit has probably waited for permission."""
_QUESTION_TOOLS = frozenset(
    {"AskUserQuestion", "ExitPlanMode", "exit_plan_mode", "request_user_input",
     "request_permissions"}
)  # fmt: skip
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
    """The certainty of the `permission` phase."""

    def wait_ms(self, busy_within: Callable[[int, int], int]) -> int | None:
        """Return the time waited for permission while no other call ran, or None if it is unknown."""
        waits = ((start, end) for start, end, phase in self.intervals if phase == "permission")
        return (
            None if self.certainty == "unknown" else sum(end - start - busy_within(start, end) for start, end in waits)
        )


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
        return CallPhases((), "unknown")
    if end is None or end < start or span.has_fabricated_result or (span.result and span.result.has_copied_times):
        held_up = tuple(interval for _, interval in _hook_intervals(span, start, start))
        return CallPhases(held_up, "unknown")
    held = list(_hook_intervals(span, start, end)) if span.events else []
    hooks = [hook for _, hook in held]
    tool_start = max((hook.end for is_before, hook in held if is_before and hook.end <= end), default=start)
    whole = PhaseInterval(tool_start, end, "run")
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
    return phases


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
    parts = (
        PhaseInterval(whole.start, prompted, "queued"),
        PhaseInterval(prompted, began, "permission"),
        PhaseInterval(began, whole.end, "run"),
    )
    return CallPhases((*hooks, *(interval for interval in parts if interval.end > interval.start)), certainty)


def _phases_of_run(span: Span, hooks: list[PhaseInterval], whole: PhaseInterval, ready: int | None) -> CallPhases:
    """Return the phases of a call that ran. `whole` is its time excluding hooks."""
    decisions = (event for event in span.events if isinstance(event, Permission))
    if any(event.decision == "accept" and event.source in _AUTOMATIC_SOURCES for event in decisions):
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


def _hook_intervals(span: Span, start: int, end: int) -> Iterator[tuple[bool, PhaseInterval]]:
    """Yield the recorded intervals of hooks that ran after the request, and whether each ran before the tool."""
    for event in span.events:
        at = to_epoch_ms(parse_timestamp(event.at)) if isinstance(event, Hook) else None
        if not isinstance(event, Hook) or at is None or at < start:
            continue
        is_before, took = event.point in _PRE_TOOL_HOOKS, event.duration_ms
        if took is not None and took > 0:
            yield is_before, PhaseInterval(at - round(min(took, at - start)), at, "hooks")
        elif event.outcome == "started" and not is_before and at < end:
            yield is_before, PhaseInterval(at, end, "hooks")  # the result was delayed until the hook was done


def noted_wait(span: Span) -> int | None:
    """Return the recorded milliseconds from prompt to answer, or None if no prompt was recorded."""
    if span.call.place is None:
        return None
    timings = read_hook_timings(to_path(span.call.place.file)).get(span.id)
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
    timings: dict[str, HookTimings] = {}
    open_notes: dict[str, _HookNote] = {}  # calls that have started and not finished
    for line in lines:
        try:
            note = _DECODER.decode(line)
            at = round(note.at * 1000)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
            continue
        call = note.call
        if note.event == "PreToolUse" and call is not None:
            open_notes[call] = note
            timings[call] = HookTimings(announced=at)
        elif note.event == "PermissionRequest":
            if call not in timings:
                # Prompts have no call id. A prompt belongs to the latest call with the same tool and input, or else
                # with the same tool, because a hook may have changed the input.
                waiting = [
                    name
                    for name, open_note in reversed(open_notes.items())
                    if open_note.tool == note.tool and timings[name].prompted is None
                ]
                same = (name for name in waiting if open_notes[name].input == note.input)
                call = next(same, waiting[0] if waiting else None)
            if call is not None:
                timings[call] = replace(timings[call], prompted=at)
        elif note.event in _END_EVENTS and call in timings:
            open_notes.pop(call, None)
            ran = None if note.duration_ms is None else round(note.duration_ms)
            timings[call] = replace(timings[call], ended=at, ran_ms=ran)
    return timings


TimePart = Literal["model", "tools", "permission", "hooks", "idle", "nothing_recorded"]
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


class CallTime(Struct, frozen=True, gc=False):
    """The time spent in one call."""

    call: CallRow
    wait_ms: int | None
    """Time waited for permission while no other call ran; None if unknown."""
    certainty: Certainty
    hooks_ms: int
    run_ms: int | None
    """Time from start to result, including an unknown wait."""
    pauses: tuple[tuple[int, int], ...] = ()
    """Intervals without progress records, in milliseconds since the epoch, if the call reported progress."""

    @classmethod
    def from_phases(
        cls, row: CallRow, span: Span, phases: CallPhases, busy_within: Callable[[int, int], int] = lambda _a, _b: 0
    ) -> CallTime:
        """Return the time of a call. `busy_within` returns the time in which other calls ran during a wait."""
        lengths: dict[Phase, int] = {}
        for start, end, phase in phases.intervals:
            lengths[phase] = lengths.get(phase, 0) + end - start
        return cls(
            call=row,
            wait_ms=phases.wait_ms(busy_within),
            certainty=phases.certainty,
            hooks_ms=lengths.get("hooks", 0),
            run_ms=lengths.get("run"),
            pauses=tuple(_progress_pauses(span)),
        )


def _progress_pauses(span: Span) -> Iterator[tuple[int, int]]:
    """Yield the long intervals in which a call that reports progress did not report any."""
    reports = _find_reports(span) if span.events else []
    end = to_epoch_ms(span.finished)
    last = to_epoch_ms(span.requested)
    if not reports or last is None or end is None:
        return
    active: list[tuple[int, int]] = []
    for report in reports:
        edges = [report.first_at, *chain.from_iterable(report.pauses), report.last_at]
        times = [to_epoch_ms(parse_timestamp(at)) for at in edges]
        active += [(a, b) for a, b in zip(times[::2], times[1::2], strict=True) if a is not None and b is not None]
    for first, until in (*sorted(active), (end, end)):
        if min(first, end) - last >= GAP_MS:
            yield last, min(first, end)
        last = max(last, until)


def _find_reports(span: Span) -> list[Progress]:
    """Return the progress that a tool reported by itself."""
    return [event for event in span.events if isinstance(event, Progress) and event.kind != POLL]


def _silent_calls(spans: Sequence[Span]) -> dict[str, tuple[int, int]]:
    """Return start and end of long calls without progress, by id, if their tool reported progress before and after."""
    reports: dict[str, list[int]] = {}
    candidates: list[tuple[Span, int, int]] = []
    for span in spans:
        start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
        if start is not None and _find_reports(span):
            reports.setdefault(span.tool, []).append(start)
        elif start is not None and end is not None and end - start >= CALL_GAP_MS:
            candidates.append((span, start, end))
    return {
        span.id: (start, end)
        for span, start, end in candidates
        if (times := reports.get(span.tool)) and min(times) < start < end < max(times)
    }


class AgentTime(Struct, frozen=True, kw_only=True):
    """The time spent by one agent."""

    agent: str | None
    role: str | None
    slices: tuple[TimeSlice, ...]
    calls: tuple[CallTime, ...]
    starter: str | None = None
    """The call that started the subagent, if the file names it."""

    @property
    def split(self) -> TimeSplit:
        """The time split into parts."""
        return TimeSplit.from_slices(self.slices)

    @property
    def calls_ms(self) -> int:
        """The sum of all durations. It exceeds the wall time if calls overlapped."""
        return sum(command_ms(call.call) or 0 for call in self.calls)


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
    nothing_recorded_ms: int = 0
    """Long gaps in calls that otherwise report progress, such as subagents and commands."""

    @classmethod
    def from_slices(cls, slices: Iterable[TimeSlice]) -> TimeSplit:
        """Return the total time of each part, and the period that the slices cover."""
        sums: dict[TimePart, int] = dict.fromkeys(TIME_PARTS, 0)
        slices = list(slices)
        for start, end, part in slices:
            sums[part] += end - start
        return cls(
            began=from_epoch_ms(min(map(itemgetter(0), slices))) if slices else None,
            ended=from_epoch_ms(max(map(itemgetter(1), slices))) if slices else None,
            wall_ms=sum(sums.values()),
            **{f"{part}_ms": ms for part, ms in sums.items()},
        )

    @classmethod
    def total(cls, splits: Iterable[TimeSplit]) -> TimeSplit:
        """Return the sum of the splits of several agents, and the period that they cover."""
        splits = list(splits)
        return cls(
            began=min((split.began for split in splits if split.began is not None), default=None),
            ended=max((split.ended for split in splits if split.ended is not None), default=None),
            wall_ms=sum(split.wall_ms for split in splits),
            **{f"{part}_ms": sum(split.part_ms(part) for split in splits) for part in TIME_PARTS},
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
    timings = read_hook_timings(to_path(transcript.file))
    return measure_agent(build_timeline([read_content(transcript)]), timings).split


def measure_agent(
    timeline: AgentTimeline,
    timings: Mapping[str, HookTimings] = MappingProxyType({}),
    rows: Mapping[str, CallRow] = MappingProxyType({}),
) -> AgentTime:
    """Measure the time of one agent. Its subagents count as running calls.

    `timings` come from the hook log. `rows` are the rows of calls by id, if they have been made.
    """
    slices, span_phases = slice_agent(timeline, timings)
    spans = [placed.span for placed in timeline.calls]
    busy = _CoveredTime((start, end) for start, end, part in slices if part == "tools")
    silent_calls = _silent_calls(spans)
    calls = [
        replace(time, pauses=(silent_calls[span.id],)) if span.id in silent_calls else time
        for span, phases in zip(spans, span_phases, strict=True)
        if span.state != "orphan_result"
        for row in [rows.get(span.id) or make_call_row(span, timeline.file)]
        for time in [CallTime.from_phases(row, span, phases, busy.within)]
    ]
    return AgentTime(agent=timeline.agent_id, role=timeline.role, slices=tuple(slices), calls=tuple(calls))


class CallWait(NamedTuple):
    """The wait for permission in a call."""

    wait_ms: int | None
    """Time waited while no other call of the agent ran; None if unknown."""
    certainty: Certainty


UNKNOWN_WAIT = CallWait(None, "unknown")


def measure_waits(spans: Sequence[Span], timings: Mapping[str, HookTimings]) -> dict[str, CallWait]:
    """Return the waits in the calls of one agent by id, as in `measure_agent`, without those that are unknown.

    perf: nothing is known about most calls, few calls run during a wait, and the messages between them are not needed.
    """
    calls = [span for span in spans if span.state != "orphan_result" and _may_show_wait(span, timings)]
    phases_of = phases_among(spans if calls else (), timings)
    phases = {span.id: phases_of(span) for span in calls}
    waiting = _CoveredTime(_iter_phase(phases.values(), "permission"))
    others = (span for span in spans if waiting and _overlaps(span, waiting))
    running = _CoveredTime(_iter_phase((phases.get(span.id) or phases_of(span) for span in others), "run"))
    waits = ((name, own.certainty, own.wait_ms(running.within)) for name, own in phases.items())
    return {name: CallWait(wait_ms, certainty) for name, certainty, wait_ms in waits if wait_ms is not None}


def _iter_phase(phases: Iterable[CallPhases], name: Phase) -> Iterator[tuple[int, int]]:
    return ((start, end) for own in phases for start, end, phase in own.intervals if phase == name)


def _overlaps(span: Span, times: _CoveredTime) -> bool:
    start, end = to_epoch_ms(span.requested), to_epoch_ms(span.finished)
    return start is not None and end is not None and times.within(start, end) > 0


def _may_show_wait(span: Span, timings: Mapping[str, HookTimings]) -> bool:
    """Return False if `call_phases` cannot know whether a call waited."""
    return (
        bool(span.events)
        or span.state in ("denied", "cancelled", "blocked_by_hook")
        or span.tool in _QUESTION_TOOLS
        or span.id in timings
        or (span.result is not None and span.result.reported_ms is not None)
    )


def slice_agent(
    timeline: AgentTimeline, timings: Mapping[str, HookTimings] = MappingProxyType({})
) -> tuple[list[TimeSlice], list[CallPhases]]:
    """Return the slices of an agent's time, and the phases of each of its calls."""
    spans = [placed.span for placed in timeline.calls]
    phases_of = phases_among(spans, timings)
    span_phases = [phases_of(span) for span in spans]
    marks = sorted(_iter_marks(timeline, spans), key=lambda mark: mark[0])
    return slice_time([interval for entry in span_phases for interval in entry.intervals], marks), span_phases


TimeMark = tuple[int, TimePart | None]
"""A moment in the conversation and the part that the time before it belongs to, if any."""


def _iter_marks(timeline: AgentTimeline, spans: Sequence[Span]) -> Iterator[TimeMark]:
    for turn in timeline.turns:
        for item in turn.items:
            if isinstance(item, TimelineMessage) and (at := to_epoch_ms(item.start_time)) is not None:
                yield message_mark(at, item.message.voice)
    for span in spans:
        yield from call_marks(span)


def message_mark(at: int, voice: MessageAuthor) -> TimeMark:
    """Return the mark of a message."""
    return at, _VOICE_PARTS.get(voice)


def call_marks(span: Span) -> Iterator[TimeMark]:
    """Yield the marks of a call: its request, and its result."""
    if (requested := to_epoch_ms(span.requested)) is not None:
        yield requested, "model"
    if (answered := to_epoch_ms(span.finished)) is not None:
        yield answered, None


def slice_time(intervals: Sequence[PhaseInterval], marks: Sequence[TimeMark]) -> list[TimeSlice]:
    """Split the time between the first and the last mark into slices that each belong to one part.

    The marks are in order of time.
    """
    if not marks:
        return []
    first, last = marks[0][0], marks[-1][0]
    changes: list[tuple[int, Phase | None, int]] = [(at, None, 0) for at, _ in marks]
    for interval in intervals:
        start, end = max(interval.start, first), min(interval.end, last)
        if start < end:
            changes += [(start, interval.phase, 1), (end, interval.phase, -1)]
    changes.sort(key=lambda change: change[0])
    gap_parts = [(at, part) for at, part in marks if part is not None]
    open_: Counter[Phase | None] = Counter()
    slices: list[TimeSlice] = []
    for (at, phase, step), (until, _, _) in pairwise(changes):
        open_[phase] += step
        if at < until:
            part = next((use for rank, use in _PHASE_RANKS if open_[rank] > 0), None)
            if part is None:  # no call is in flight: the next mark decides
                n = bisect_right(gap_parts, until - 1, key=lambda mark: mark[0])
                part = gap_parts[n][1] if n < len(gap_parts) else "idle"
            slices.append(TimeSlice(at, until, part))
    return slices


class _CoveredTime:
    """The time that at least one of several intervals covers."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        self._edges: list[int] = []
        """The starts and ends of the covered periods, in order."""
        self._sums: list[int] = []
        """The time covered before each edge."""
        covered = 0
        for start, end in sorted(intervals):
            if self._edges and start <= self._edges[-1]:
                start = self._edges[-1]  # noqa: PLW2901 - the part that is not yet covered
                if start < end:
                    covered += end - start
                    self._edges[-1], self._sums[-1] = end, covered
            elif start < end:
                self._edges += [start, end]
                self._sums += [covered, covered := covered + end - start]

    def __bool__(self) -> bool:
        return bool(self._edges)

    def _until(self, at: int) -> int:
        n = bisect_right(self._edges, at) - 1
        if n < 0:
            return 0
        inside = n % 2 == 0  # edges alternate between starts and ends
        return self._sums[n] + (at - self._edges[n] if inside else 0)

    def within(self, start: int, end: int) -> int:
        """Return the covered milliseconds within an interval."""
        return self._until(end) - self._until(start)
