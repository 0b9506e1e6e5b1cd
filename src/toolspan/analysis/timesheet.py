"""Add up the times from many files by session and tool. Start at `Timesheet.from_files`.

Slices and calls that a resumed or forked session copied from another file are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.file_time import FileTime
from toolspan.analysis.stats import percentile
from toolspan.analysis.timing import (
    CALL_GAP_MS,
    GAP_MS,
    AgentTime,
    CallTime,
    Certainty,
    TimeSlice,
    TimeSplit,
)
from toolspan.reading.lineage import Lineages, SessionFiles, call_key, group_sessions, merge_copies
from toolspan.reading.rows import CallRow, command_ms
from toolspan.types.session import SessionInfo
from toolspan.types.span import is_within, parse_timestamp, to_epoch_ms


class SessionSheet(Struct, frozen=True, kw_only=True):
    """The time spent in one session: the main conversation, and each subagent separately."""

    id: str
    file: str
    info: SessionInfo
    main: AgentTime
    agents: tuple[AgentTime, ...]

    @property
    def calls(self) -> list[CallTime]:
        """All calls, including subagents' calls."""
        return [call for agent in (self.main, *self.agents) for call in agent.calls]


TimedSession = SessionFiles[FileTime]
_NO_TIME = AgentTime(agent=None, role=None, slices=(), calls=())


class ToolTime(Struct, frozen=True, kw_only=True):
    """The time spent in one tool."""

    tool: str
    calls: int
    total_ms: int
    """Sum of the durations. Each overlapping call counts in full, and a background command once, with its polls."""
    run_ms: int
    wait_ms: int
    waits: dict[Certainty, int]
    """The number of calls whose wait for permission is known, inferred or unknown."""
    hooks_ms: int
    p50_ms: int | None
    max_ms: int


class Timesheet:
    """Sessions ordered by start time, and their totals."""

    def __init__(self, sessions: Sequence[SessionSheet]) -> None:
        self.sessions = list(sessions)

    @classmethod
    def from_files(
        cls,
        files: Iterable[FileTime],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        select: Callable[[list[TimedSession]], list[TimedSession]] = lambda sessions: sessions,
    ) -> Timesheet:
        """Return the sessions in these files within a period. Every instant and call is counted once.

        `select` filters the sessions after the copies in all files have been found.
        """
        read_files = list(files)
        lineages = Lineages()
        for file in read_files:
            lineages.add(file.file, file.info, (call_key(row.id, row.batch) for row in _rows(file)))
        counted = {(row.file, row.id) for row in merge_copies(chain.from_iterable(map(_rows, read_files)), lineages)}
        groups = [session for session in group_sessions(read_files) if session.overlaps(since, until)]
        chosen = {session.id for session in select(groups)}
        seen: dict[Hashable, set[Hashable]] = {}
        gaps = _GapFinder(read_files, lineages)
        sheets: dict[str, list[AgentTime]] = {}
        # Originals come before copies, and sessions before their subagents.
        ordered = sorted(groups, key=lambda session: lineages.rank(session.file.file))
        for file in [file for session in ordered for file in session.files]:
            seen_slices = seen.setdefault(lineages.group_of(file.file), set())
            sheets[file.file] = [
                replace(
                    agent,
                    calls=tuple(
                        item
                        for item in agent.calls
                        if (file.file, item.call.id) in counted
                        and is_within(item.call.requested or item.call.finished, since, until)
                    ),
                    slices=tuple(_clip_slices(_take_new(gaps.mark_gaps(file, agent), seen_slices), since, until)),
                )
                for agent in file.agents
            ]
        return cls([_make_sheet(session, sheets) for session in groups if session.id in chosen])

    @property
    def split(self) -> TimeSplit:
        """The combined time of the main conversations. Overlapping sessions each count in full."""
        return TimeSplit.total(session.main.split for session in self.sessions)

    @property
    def agents(self) -> list[AgentTime]:
        """All subagents."""
        return [agent for session in self.sessions for agent in session.agents]

    @property
    def calls(self) -> list[CallTime]:
        """All calls made by any agent."""
        return [call for session in self.sessions for call in session.calls]


_MAX_DEPTH = 16

_Interval = tuple[int, int]


class _GapFinder:
    """A finder for long gaps in the progress records of calls, and in the records of the subagents that calls started.

    If the machine sleeps or the client is stopped, nothing is recorded for minutes or hours. This time is not work.
    """

    def __init__(self, files: Sequence[FileTime], lineages: Lineages) -> None:
        self._lineages = lineages
        self._subagents: dict[tuple[Hashable, str], list[AgentTime]] = {}
        starters = {
            (lineages.group_of(file.file), row.started_agent): row.id
            for file in files
            for row in _rows(file)
            if row.started_agent
        }
        for file in files:
            group = lineages.group_of(file.file)
            for agent in file.agents:
                starter = agent.starter or starters.get((group, agent.agent or ""))
                if starter and agent.slices:
                    self._subagents.setdefault((group, starter), []).append(agent)

    def mark_gaps(self, file: FileTime, agent: AgentTime) -> AgentTime:
        """Return an agent's time in which the gaps are `nothing_recorded`."""
        is_subagent = agent.agent is not None or file.info.agent_id is not None
        return self._mark_gaps(self._lineages.group_of(file.file), agent, is_subagent=is_subagent, depth=0)

    def _mark_gaps(self, group: Hashable, agent: AgentTime, *, is_subagent: bool, depth: int) -> AgentTime:
        if depth > _MAX_DEPTH or not any(end - start >= GAP_MS for start, end, _ in agent.slices):
            return agent
        runs = [(*interval, call) for call in agent.calls if (interval := _run_interval(call))]
        slices: list[TimeSlice] = []
        for part in agent.slices:
            length = part.end - part.start
            if length < GAP_MS or part.part not in ("tools", "model", "idle"):
                slices.append(part)
                continue
            open_calls = [call for start, end, call in runs if start < part.end and end > part.start]
            if part.part != "tools":
                gaps = [(part.start, part.end)] if is_subagent else []
            elif any(call.pauses or (group, call.call.id) in self._subagents for call in open_calls):
                gaps = [(part.start, part.end)]
                for call in open_calls:  # a gap counts only if all of them have one
                    gaps = _intersect(gaps, self._gaps_of_call(group, call, part, depth))
            else:
                is_gap = is_subagent and length >= CALL_GAP_MS
                is_gap = is_gap and all(call.certainty == "unknown" for call in open_calls)
                gaps = [(part.start, part.end)] if is_gap else []
            slices += _cut_gaps(part, gaps)
        return replace(agent, slices=tuple(slices))

    def _gaps_of_call(self, group: Hashable, call: CallTime, window: TimeSlice, depth: int) -> list[_Interval]:
        """Return the gaps between the records of the subagents that a call started, or in its own progress."""
        subagents = self._subagents.get((group, call.call.id), ())
        if not subagents:
            return list(call.pauses)
        marked = [self._mark_gaps(group, agent, is_subagent=True, depth=depth + 1) for agent in subagents]
        parts = [part for agent in marked for part in agent.slices]
        records = [(at, at) for part in parts for at in (part.start, part.end)]
        active = sorted([*records, *((part.start, part.end) for part in parts if part.part != "nothing_recorded")])
        gaps: list[_Interval] = []
        last = window.start
        for start, end in [*active, (window.end, window.end)]:
            if min(start, window.end) - last >= GAP_MS:
                gaps.append((last, min(start, window.end)))
            last = max(last, end)
        return gaps


def _run_interval(call: CallTime) -> _Interval | None:
    end = to_epoch_ms(parse_timestamp(call.call.finished))
    return None if end is None or not call.run_ms else (end - call.run_ms, end)


def _intersect(first: Sequence[_Interval], second: Sequence[_Interval]) -> list[_Interval]:
    pairs = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return [(start, end) for start, end in pairs if end - start >= GAP_MS]


def _cut_gaps(part: TimeSlice, gaps: Iterable[_Interval]) -> Iterator[TimeSlice]:
    last = part.start
    for start, end in gaps:
        if start > last:
            yield part._replace(start=last, end=start)
        yield TimeSlice(start, end, "nothing_recorded")
        last = end
    if last < part.end:
        yield part._replace(start=last)


def _take_new(agent: AgentTime, seen: set[Hashable]) -> list[TimeSlice]:
    """Return an agent's slices that no other file has, and add them to `seen`. Each agent has its own gaps."""
    keys = [part if part.part != "nothing_recorded" else (part, agent.agent) for part in agent.slices]
    new = [part for part, key in zip(agent.slices, keys, strict=True) if key not in seen]
    seen.update(keys)
    return new


def _rows(file: FileTime) -> Iterable[CallRow]:
    return (item.call for agent in file.agents for item in agent.calls)


def _make_sheet(session: TimedSession, sheets: Mapping[str, Sequence[AgentTime]]) -> SessionSheet:
    mains = [sheets[file.file] for file in (session.file, *session.continued) if session.has_main]
    agents = [agent for parts in mains for agent in parts[1:]]
    agents += [agent for file in session.files[len(mains) :] for agent in sheets[file.file]]
    starts = [parts[0] for parts in mains if parts]
    if starts:  # the conversation may continue in other files
        slices = starts[0].slices  # perf: already sorted
        if len(starts) > 1:
            slices = tuple(sorted(part for start in starts for part in start.slices))
        main = replace(starts[0], slices=slices, calls=tuple(call for start in starts for call in start.calls))
    else:  # only the files of subagents contain times
        main = replace(_NO_TIME, slices=tuple(sorted(part for agent in agents for part in agent.slices)))
    return SessionSheet(
        id=session.id,
        file=session.file.file if session.has_main else "",
        info=session.file.info if session.has_main else SessionInfo(),
        main=main,
        agents=tuple(agent for agent in agents if agent.slices or agent.calls),
    )


def time_by_tool(calls: Iterable[CallTime]) -> list[ToolTime]:
    """Return the time spent in each tool, longest first."""
    calls_by_tool: dict[str, list[CallTime]] = {}
    for call in calls:
        if call.call.tool:
            calls_by_tool.setdefault(call.call.tool, []).append(call)
    rows: list[ToolTime] = []
    for tool, members in calls_by_tool.items():
        times = sorted(duration for call in members if (duration := command_ms(call.call)) is not None)
        certainties = Counter(call.certainty for call in members)
        rows.append(
            ToolTime(
                tool=tool,
                calls=len(members),
                total_ms=sum(times),
                run_ms=sum(call.run_ms or 0 for call in members),
                wait_ms=sum(call.wait_ms or 0 for call in members),
                waits={name: certainties[name] for name in get_args(Certainty)},
                hooks_ms=sum(call.hooks_ms for call in members),
                p50_ms=percentile(times, 50),
                max_ms=times[-1] if times else 0,
            )
        )
    return sorted(rows, key=lambda row: (-row.total_ms, row.tool))


def slowest_calls(calls: Iterable[CallTime], count: int) -> list[CallTime]:
    """Return the calls with the longest time from request to result."""
    timed = [(-duration, call.call.id, call) for call in calls if (duration := command_ms(call.call))]
    return [call for *_, call in nsmallest(count or len(timed), timed, key=itemgetter(0, 1))]


def _clip_slices(
    slices: list[TimeSlice], since: datetime | None = None, until: datetime | None = None
) -> list[TimeSlice]:
    """Return the slices inside a period, clipped to it."""
    if since is None and until is None:
        return slices
    low, high = to_epoch_ms(since), to_epoch_ms(until)
    clipped = []
    for start, end, part in slices:
        clip_start = start if low is None else max(start, low)
        clip_end = end if high is None else min(end, high)
        if clip_start < clip_end:
            clipped.append(TimeSlice(clip_start, clip_end, part))
    return clipped
