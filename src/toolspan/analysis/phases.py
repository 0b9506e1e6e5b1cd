"""What hooks of ours have noted of a session: when each call was asked about, and when it ran.

In: the lines of `<session>/toolspan-hooks.jsonl`, written while the client ran (`toolspan hook`).
Out: a `Heard` for each call. A question of consent has no call's id: it belongs to the open call
of the same tool and input, else to the latest open one of that tool. Lines that say nothing are
passed over; nothing here raises for what a file contains. Read `heard_of` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from toolspan.formats.claude.paths import hook_log_path
from toolspan.types.span import Hook, Permission, Span, parse_timestamp

_MAX_NOTES_BYTES = 64 << 20
_END_EVENTS = ("PostToolUse", "PostToolUseFailure")


class HookTimings(Struct, frozen=True, kw_only=True):
    """What a client told of a call while it lived; times are milliseconds since the epoch."""

    announced: int
    """When the call was about to be decided on."""
    prompted: int | None = None
    """When a person was asked; None when nobody was, as far as it is known."""
    ended: int | None = None
    """When the tool had ended; None when it did not, or was never run."""
    ran_ms: int | None = None
    """How long the tool itself ran, without hooks and questions."""

    @property
    def began(self) -> int | None:
        """When the tool itself began."""
        return None if self.ended is None or self.ran_ms is None else self.ended - self.ran_ms


class _HookNote(Struct, frozen=True, kw_only=True):
    """A line."""

    at: float
    event: str
    call: str | None = None
    tool: str | None = None
    input: str | None = None
    duration_ms: float | None = None


_DECODER = msgspec.json.Decoder(_HookNote)


def read_hook_timings(transcript: Path) -> Mapping[str, HookTimings]:
    """What was noted of a transcript's calls; nothing when nothing was."""
    try:
        with hook_log_path(transcript).open("rb") as file:
            return parse_hook_timings(file.read(_MAX_NOTES_BYTES).splitlines())
    except (OSError, ValueError):
        return {}


def read_all_hook_timings(transcripts: Iterable[Path]) -> Mapping[str, HookTimings]:
    """What was noted of a session's files; its agents share the notes of their session."""
    timings: dict[str, HookTimings] = {}
    for transcript in {hook_log_path(path): path for path in transcripts}.values():
        timings |= read_hook_timings(transcript)
    return timings


def parse_hook_timings(lines: Iterable[bytes]) -> Mapping[str, HookTimings]:
    """What was noted, by call."""
    collector = _HookTimingsCollector()
    for line in lines:
        try:
            collector.add_note(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError):
            continue
    return collector.timings


class _HookTimingsCollector:
    """Puts notes to their calls."""

    def __init__(self) -> None:
        self.timings: dict[str, HookTimings] = {}
        self._open_notes: dict[str, _HookNote] = {}
        """Calls that were announced and have not ended."""

    def add_note(self, note: _HookNote) -> None:
        """One note, in the order they were made."""
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
        """The open call that a question is about; a hook may have changed its input."""
        waiting = [
            (call, open_note)
            for call, open_note in reversed(self._open_notes.items())
            if open_note.tool == note.tool and self.timings[call].prompted is None
        ]
        same = (call for call, open_note in waiting if open_note.input == note.input)
        return next(same, waiting[0][0] if waiting else None)


Certainty = Literal["known", "inferred", "unknown"]
Phase = Literal["run", "hooks", "permission", "queued"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_MIN_WAIT_MS = 1_000
"""Nobody is asked, reads and answers in less: a smaller difference is the client's own work."""
_QUESTION_TOOLS = frozenset(
    {"AskUserQuestion", "ExitPlanMode", "exit_plan_mode", "request_user_input",
     "request_permissions"}
)  # fmt: skip
"""Tools that do nothing but ask a person."""
_PRE_TOOL_HOOKS = frozenset({"PreToolUse", "PermissionRequest"})
_AUTOMATIC_SOURCES = frozenset({"config", "hook"})
"""Sources of a decision for which nobody was asked."""


class PhaseInterval(NamedTuple):
    """A stretch of time, in milliseconds since the epoch, and what it was used for."""

    start: int
    end: int
    phase: Phase


class CallPhases(NamedTuple):
    """What a call's time was used for."""

    intervals: tuple[PhaseInterval, ...]
    certainty: Certainty
    """How well the wait for consent is known."""
    took: int | None = None
    """How long it took, as `Span.duration` has it: None when that is not known."""


def to_epoch_ms(time: datetime | None) -> int | None:
    """A time as whole milliseconds since the epoch."""
    return None if time is None else (time - _EPOCH) // _MS


def from_epoch_ms(ms: int) -> datetime:
    """The time of a stamp."""
    return _EPOCH + ms * _MS


def call_phases(span: Span, ready: int | None = None, timings: HookTimings | None = None) -> CallPhases:
    """The phases of a call; `ready` is when the last call of its batch was asked for.

    `heard` is what hooks of ours noted of it.
    """
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
    """Tells the phases of each of these calls; a batch is ready when all of it was asked for."""
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
    """The phases of a call that ran, from what was noted of it; None when that is not enough."""
    if timings is None or timings.began is None:
        return None
    prompted = timings.prompted
    if prompted is None:
        prompted = max(whole.start, timings.announced)
        if timings.began - prompted < _MIN_WAIT_MS:
            return _with_phase(hooks, whole, "run", "known")
    prompted = min(max(whole.start, prompted), whole.end)
    phases = _phases_with_wait(hooks, whole, prompted, min(max(prompted, timings.began), whole.end))
    # Some clients do not tell their hooks of questions that a program answers.
    return phases if timings.prompted is not None else phases._replace(certainty="inferred")


def _phases_with_wait(
    hooks: list[PhaseInterval], whole: PhaseInterval, prompted: int, began: int, certainty: Certainty = "known"
) -> CallPhases:
    """A question from `asked` on, then a run from `began` on."""
    parts = (
        PhaseInterval(whole.start, prompted, "queued"),
        PhaseInterval(prompted, began, "permission"),
        PhaseInterval(began, whole.end, "run"),
    )
    return CallPhases((*hooks, *(interval for interval in parts if interval.end > interval.start)), certainty)


def _phases_of_run(span: Span, hooks: list[PhaseInterval], whole: PhaseInterval, ready: int | None) -> CallPhases:
    """The phases of a call that was run; `whole` is its time without hooks."""
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
    """The client wrote down that a rule, a mode or a hook allowed it: nobody was asked."""
    decisions = (event for event in span.events if isinstance(event, Permission))
    return any(event.decision == "accept" and event.source in _AUTOMATIC_SOURCES for event in decisions)


class _HookInterval(NamedTuple):
    """A hook's time, and whether it ran before the tool."""

    before: bool
    interval: PhaseInterval


def _hook_intervals(span: Span, start: int, end: int) -> Iterator[_HookInterval]:
    """When hooks ran, as far as it was written down; not before the request."""
    for event in span.events:
        at = to_epoch_ms(parse_timestamp(event.at)) if isinstance(event, Hook) else None
        if not isinstance(event, Hook) or at is None or at < start:
            continue
        before, took = event.point in _PRE_TOOL_HOOKS, event.duration_ms
        if took is not None and took > 0:
            yield _HookInterval(before, PhaseInterval(at - round(min(took, at - start)), at, "hooks"))
        elif event.outcome == "started" and not before and at < end:
            yield _HookInterval(before, PhaseInterval(at, end, "hooks"))  # the result waited until it was done


def _hooks_end(held: list[_HookInterval], start: int, end: int) -> int:
    """When the hooks before the tool had ended."""
    return max((hook.interval.end for hook in held if hook.before and hook.interval.end <= end), default=start)


def noted_wait(span: Span) -> int | None:
    """Milliseconds from the question to the answer; None when no question was noted."""
    if span.call.place is None:
        return None
    timings = read_hook_timings(Path(span.call.place.file)).get(span.id)
    if timings is None or timings.prompted is None:
        return None
    phases = call_phases(span, timings=timings)
    waits = (interval.end - interval.start for interval in phases.intervals if interval.phase == "permission")
    return sum(waits) if phases.certainty == "known" else None
