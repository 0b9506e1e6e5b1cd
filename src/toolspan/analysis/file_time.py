"""The time recorded in one file: that of its main agent first, then that of the subagents in it.

`TIMES` are the facts, which refer to the calls by id. `TIME_JOB` joins them with the rows of the calls. `WAITS` are the
part of them that can be measured without the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import astuple, replace

from toolspan.analysis.timing import (
    AgentTime,
    CallTime,
    CallWait,
    Certainty,
    TimeSlice,
    call_phases,
    measure_agent,
    measure_waits,
    read_hook_timings,
)
from toolspan.reading.facts import CALLS, FactKind, FileJob, FileReading, FileSummary
from toolspan.reading.rows import CallRow
from toolspan.reading.timeline import AgentTimeline
from toolspan.reading.transcript import Transcript
from toolspan.types.session import SessionInfo


class FileTime(Struct, frozen=True, kw_only=True):
    """The time recorded in one file."""

    file: str
    info: SessionInfo
    agents: list[AgentTime]
    problem: str | None = None
    """The reason why the file could not be read. If set, the other fields are empty."""

    @property
    def has_content(self) -> bool:
        """True if the file contains calls."""
        return any(agent.calls for agent in self.agents)


class CallPlace(Struct, frozen=True, array_like=True, gc=False):
    """The agent in a file that made a call, and the fields of the call's `CallTime` in their order."""

    agent: int
    """The index of the agent in `FileTimes.agents`."""
    position: int
    """The index of the call among the agent's calls."""
    wait_ms: int | None
    wait_certainty: Certainty
    hooks_ms: int
    run_ms: int | None
    pauses: tuple[tuple[int, int], ...] = ()


class AgentSlices(Struct, frozen=True, array_like=True):
    """The time of one agent in a file, without its calls."""

    agent: str | None
    role: str | None
    starter: str | None
    slices: tuple[TimeSlice, ...]


class FileTimes(Struct, frozen=True, kw_only=True):
    """The time recorded in one file, without the rows of the calls."""

    agents: list[AgentSlices]
    places: dict[str, CallPlace]
    """Times and agents by call id. Orphan results have none."""
    problem: str | None = None


def measure_file(reading: FileReading) -> FileTimes:
    """Measure the time in a file.

    Raises:
        SourceError: the file cannot be read.
    """
    timings = read_hook_timings(reading.path)
    rows = {row.id: row for row in reading.rows}
    main = measure_agent(reading.timeline, timings, rows)
    agent_times = [replace(main, starter=reading.content.starter_call)]
    for parent in reading.timeline.iter_timelines():
        linked = {id(agent) for placed in parent.calls for agent in placed.agents}
        items = chain.from_iterable(turn.items for turn in parent.turns)
        unlinked = [item for item in items if isinstance(item, AgentTimeline) and id(item) not in linked]
        agent_times += [measure_agent(agent, timings, rows) for agent in unlinked]
        agent_times += [
            replace(measure_agent(agent, timings, rows), starter=placed.span.id)
            for placed in parent.calls
            for agent in placed.agents
        ]
    placed = {item.call.id for agent in agent_times for item in agent.calls}
    spans = reading.transcript.spans
    if inherited := [span for span in spans if span.id not in placed and span.state != "orphan_result"]:
        # A subagent's file may begin with calls of its parent, which count if the parent's file is gone.
        calls = (
            CallTime.from_phases(rows[span.id], span, call_phases(span, timings=timings.get(span.id)))
            for span in inherited
        )
        agent_times.append(AgentTime(agent=None, role=None, slices=(), calls=tuple(calls)))
    return _without_rows([agent for agent in agent_times if agent.slices or agent.calls])


def _without_rows(agents: list[AgentTime]) -> FileTimes:
    return FileTimes(
        agents=[AgentSlices(agent.agent, agent.role, agent.starter, agent.slices) for agent in agents],
        places={
            item.call.id: CallPlace(number, position, *astuple(item)[1:])
            for number, agent in enumerate(agents)
            for position, item in enumerate(agent.calls)
        },
    )


def join_time(summary: FileSummary, times: FileTimes) -> FileTime:
    """Return the time of a file with the rows of its calls."""
    return FileTime(
        file=summary.file, info=summary.info, agents=_join_agents(times, summary.calls), problem=summary.problem
    )


def _join_agents(times: FileTimes, rows: Iterable[CallRow]) -> list[AgentTime]:
    items: list[list[tuple[int, CallTime]]] = [[] for _ in times.agents]
    for row in rows:
        if (place := times.places.get(row.id)) is not None:
            time = CallTime(row, *astuple(place)[2:])
            items[place.agent].append((place.position, time))
    return [
        AgentTime(
            agent=agent.agent,
            role=agent.role,
            starter=agent.starter,
            slices=agent.slices,
            calls=tuple(time for _, time in sorted(own, key=itemgetter(0))),
        )
        for agent, own in zip(times.agents, items, strict=True)
    ]


TIMES = FactKind(
    name="times",
    measure=measure_file,
    facts_type=FileTimes,
    unreadable=lambda _, problem: FileTimes(agents=[], places={}, problem=problem),
)
TIME_JOB = FileJob((CALLS, TIMES), join_time)


class FileWaits(Struct, frozen=True, kw_only=True):
    """The waits for permission in one file."""

    waits: dict[str, CallWait]
    """By call id, without those that are unknown."""
    problem: str | None = None

    @classmethod
    def from_times(cls, times: FileTimes) -> FileWaits:
        """Return the waits among the times of a file."""
        places = times.places.items()
        waits = {
            call: CallWait(place.wait_ms, place.wait_certainty) for call, place in places if place.wait_ms is not None
        }
        return cls(waits=waits, problem=times.problem)


def _measure_waits(reading: FileReading) -> FileWaits:
    transcript = reading.transcript
    if _has_several_agents(transcript):
        return FileWaits.from_times(measure_file(reading))
    return FileWaits(waits=measure_waits(transcript.spans, read_hook_timings(reading.path)))


def _has_several_agents(transcript: Transcript) -> bool:
    """Return whether a file contains calls of different agents, or perhaps does."""
    own, pairing = transcript.info.agent_id, transcript.reader.pairing
    calls = (span.call for span in transcript.spans)
    return (own is None and pairing.has_sidechains) or any(
        call.agent_id != own or call.parent_call not in (None, call.continues) for call in calls
    )


WAITS = FactKind(
    name="waits",
    measure=_measure_waits,
    facts_type=FileWaits,
    unreadable=lambda _, problem: FileWaits(waits={}, problem=problem),
)
