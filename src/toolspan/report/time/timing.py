"""Time that adds up: every instant of a conversation belongs to exactly one use.

In: a `Strand` of a timeline (one agent's part of a session), or a transcript. Out: an `AgentTime`:
the instants as slices, and each call's phases; `Split` sums slices. The rules are in docs/time.md:
a running call comes before a hook, a hook before a wait for consent; where no call is under way,
the time belongs to whoever ends it: the model, or the person that was waited for. Times are whole
milliseconds, so that parts sum exactly. Pure but for `split` and `file_time`, which read. Read
`measure` first.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from toolspan.errors import SourceError
from toolspan.model.message import Voice
from toolspan.model.session import SessionInfo
from toolspan.model.span import Span
from toolspan.read.facts import CallFacts, facts_of
from toolspan.read.messages import script
from toolspan.read.timeline import Said, Strand, timeline
from toolspan.read.transcript import Transcript, read
from toolspan.report.time.heard import Heard, read_heard
from toolspan.report.time.phases import (
    Certainty,
    Interval,
    Phase,
    Phases,
    phases_among,
    stamp,
    when,
)

Part = Literal["model", "tools", "permission", "hooks", "idle"]
"""What an instant of a session belongs to."""
PARTS: tuple[Part, ...] = get_args(Part)
"""Every part."""

_RANKS: tuple[tuple[Phase, Part], ...] = (
    ("run", "tools"),
    ("hooks", "hooks"),
    ("permission", "permission"),
    ("queued", "tools"),
)
"""Which phase an instant belongs to when calls overlap, and the part it then counts for."""
_SPEAKERS: dict[Voice, Part] = {
    "text": "model", "thinking": "model", "error": "model", "interrupt": "model",
    "prompt": "idle", "command": "idle", "notification": "idle",
}  # fmt: skip
"""To whom the time belongs that these words end; the client's own lines decide nothing."""


class Slice(NamedTuple):
    """A stretch of time with one use, in milliseconds since the epoch."""

    start: int
    end: int
    part: Part


class CallTime(Struct, frozen=True, kw_only=True, gc=False):
    """What one call's time was used for."""

    call: CallFacts
    took_ms: int | None
    """The call's `duration_ms`: None when a time is missing, or the result was made up later."""
    wait_ms: int | None
    """The wait for consent, while no other call ran; None when it is unknown."""
    certainty: Certainty
    """How well that wait is known."""
    hooks_ms: int
    run_ms: int | None
    """From start to result as far as it is known; an unknown wait is in it."""


class AgentTime(Struct, frozen=True, kw_only=True):
    """Where one agent's time went."""

    agent: str | None
    """The subagent; None for the main conversation."""
    role: str | None
    slices: tuple[Slice, ...]
    calls: tuple[CallTime, ...]


class Split(Struct, frozen=True, kw_only=True):
    """Wall time in parts; the parts sum to it exactly."""

    began: datetime | None
    ended: datetime | None
    wall_ms: int = 0
    model_ms: int = 0
    tools_ms: int = 0
    permission_ms: int = 0
    hooks_ms: int = 0
    idle_ms: int = 0

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> "Split":
        """The sum of slices."""
        sums: dict[Part, int] = dict.fromkeys(PARTS, 0)
        first: int | None = None
        last: int | None = None
        for start, end, part in slices:
            sums[part] += end - start
            first = start if first is None else min(first, start)
            last = end if last is None else max(last, end)
        return cls(
            began=None if first is None else when(first),
            ended=None if last is None else when(last),
            wall_ms=sum(sums.values()),
            **{f"{part}_ms": ms for part, ms in sums.items()},
        )

    def part(self, name: Part) -> int:
        """The milliseconds of one part."""
        found: int = getattr(self, f"{name}_ms")
        return found


def split(transcript: Transcript) -> Split:
    """Where the time of a transcript's own agent went.

    Raises:
        SourceError: the file can no longer be read.
    """
    heard = read_heard(Path(transcript.file))
    return Split.of(measure(timeline([script(transcript)]), heard).slices)


class FileTime(Struct, frozen=True, kw_only=True):
    """Where the time of one file went: its own agent's first, then of subagents inside it."""

    file: str
    info: SessionInfo
    agents: list[AgentTime]
    problem: str | None = None
    """Set when the file could not be read; everything else is then empty."""


def file_time(path: str) -> FileTime:
    """The times of one file; a file that cannot be read is told, not raised."""
    try:
        transcript = read(Path(path))
        strand = timeline([script(transcript)])
    except SourceError as error:
        return FileTime(file=path, info=SessionInfo(), agents=[], problem=str(error))
    heard = read_heard(Path(path))
    found = [measure(one, heard) for one in strand.strands()]
    return FileTime(
        file=path, info=transcript.info, agents=[one for one in found if one.slices or one.calls]
    )


def measure(strand: Strand, heard: Mapping[str, Heard] = MappingProxyType({})) -> AgentTime:
    """Where one agent's time went; its subagents are calls that run.

    `heard` is what hooks of ours noted of its calls.
    """
    spans = [placed.span for placed in strand.calls]
    phases = phases_among(spans, heard)
    found = [phases(span) for span in spans]
    intervals = [interval for one in found for interval in one.intervals]
    marks = sorted(_marks(strand, spans), key=lambda mark: mark.at)
    slices = _sliced(intervals, marks)
    busy = _Busy(slices)
    calls = [
        _call_time(span, one, strand.file, busy)
        for span, one in zip(spans, found, strict=True)
        if span.state != "orphan_result"
    ]
    return AgentTime(
        agent=strand.agent_id, role=strand.role, slices=tuple(slices), calls=tuple(calls)
    )


class _Mark(NamedTuple):
    """A moment of the conversation, and to whom the time before it belongs, if to anybody."""

    at: int
    part: Part | None


def _marks(strand: Strand, spans: Sequence[Span]) -> Iterator[_Mark]:
    for turn in strand.turns:
        for item in turn.items:
            at = stamp(item.began) if isinstance(item, Said) else None
            if isinstance(item, Said) and at is not None:
                yield _Mark(at, _SPEAKERS.get(item.message.voice))
    for span in spans:
        asked, answered = stamp(span.requested), stamp(span.finished)
        if asked is not None:
            yield _Mark(asked, "model")
        if answered is not None:
            yield _Mark(answered, None)


def _sliced(intervals: Sequence[Interval], marks: Sequence[_Mark]) -> list[Slice]:
    """The time from the first mark to the last, cut at every change, each slice with its use."""
    if not marks:
        return []
    first, last = marks[0].at, marks[-1].at
    changes: list[tuple[int, Phase | None, int]] = [(mark.at, None, 0) for mark in marks]
    for one in intervals:
        start, end = max(one.start, first), min(one.end, last)
        if start < end:
            changes += [(start, one.phase, 1), (end, one.phase, -1)]
    changes.sort(key=lambda change: change[0])
    before = _Gaps(marks)
    open_: dict[Phase | None, int] = dict.fromkeys((rank[0] for rank in _RANKS), 0)
    found = []
    for (at, phase, step), (until, _, _) in pairwise(changes):
        open_[phase] = open_.get(phase, 0) + step
        if at < until:
            part = next((use for rank, use in _RANKS if open_[rank] > 0), None)
            found.append(Slice(at, until, part or before.part(until)))
    return found


class _Gaps:
    """To whom the time belongs in which no call was under way."""

    def __init__(self, marks: Sequence[_Mark]) -> None:
        told = [(mark.at, mark.part) for mark in marks if mark.part is not None]
        self._at = [at for at, _ in told]
        self._parts = [part for _, part in told]

    def part(self, until: int) -> Part:
        """The use of a gap that ends then: that of the next mark; after the last one, idle."""
        n = bisect_right(self._at, until - 1)
        return self._parts[n] if n < len(self._parts) else "idle"


class _Busy:
    """How much of a stretch some call was running."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._edges: list[int] = []
        self._sums: list[int] = []
        done = 0
        for start, end, part in slices:
            if part == "tools":
                self._edges += [start, end]
                self._sums += [done, done + end - start]
                done += end - start

    def _until(self, at: int) -> int:
        n = bisect_right(self._edges, at) - 1
        if n < 0:
            return 0
        inside = n % 2 == 0  # edges are starts and ends by turns
        return self._sums[n] + (at - self._edges[n] if inside else 0)

    def within(self, start: int, end: int) -> int:
        """The milliseconds of a stretch in which something ran."""
        return self._until(end) - self._until(start)


def _call_time(span: Span, found: Phases, file: str, busy: _Busy) -> CallTime:
    lengths: dict[Phase, int] = {"run": 0, "hooks": 0, "permission": 0, "queued": 0}
    waited = 0
    for start, end, phase in found.intervals:
        lengths[phase] += end - start
        if phase == "permission":
            waited += end - start - busy.within(start, end)
    ran = any(interval.phase == "run" for interval in found.intervals)
    return CallTime(
        call=facts_of(span, file),
        took_ms=found.took,
        wait_ms=None if found.certainty == "unknown" else waited,
        certainty=found.certainty,
        hooks_ms=lengths["hooks"],
        run_ms=lengths["run"] if ran else None,
    )


def clip(
    slices: Iterable[Slice], since: datetime | None = None, until: datetime | None = None
) -> list[Slice]:
    """The slices, or parts of them, that lie in a window of time."""
    low, high = stamp(since), stamp(until)
    found = []
    for start, end, part in slices:
        left = start if low is None else max(start, low)
        right = end if high is None else min(end, high)
        if left < right:
            found.append(Slice(left, right, part))
    return found
