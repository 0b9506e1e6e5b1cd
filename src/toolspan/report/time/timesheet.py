"""Times of many files added up: by session, by tool, the slowest calls.

In: `FileTime`s. Out: a `Timesheet`. What a resumed or forked session copied from another file is
counted once: slices and calls that are the same in files of one lineage. Pure. Read `Timesheet`
first.
"""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from pathlib import PurePath

from msgspec import Struct

from toolspan.model.session import SessionInfo
from toolspan.model.span import within
from toolspan.read.groups import percentile
from toolspan.report.copies import Copies
from toolspan.report.time.phases import Certainty
from toolspan.report.time.timing import AgentTime, CallTime, FileTime, Slice, Split, clip


class AgentSheet(Struct, frozen=True, kw_only=True):
    """One agent's time."""

    agent: str | None
    role: str | None
    split: Split
    calls: tuple[CallTime, ...]
    slices: tuple[Slice, ...]

    @property
    def calls_ms(self) -> int:
        """The sum of all calls' durations; more than the clock's where they overlapped."""
        return sum(call.took_ms or 0 for call in self.calls)


class SessionSheet(Struct, frozen=True, kw_only=True):
    """One session's time: the main conversation's, and beside it each subagent's own."""

    id: str
    file: str
    info: SessionInfo
    main: AgentSheet
    agents: tuple[AgentSheet, ...]

    @property
    def calls(self) -> list[CallTime]:
        """Every call, subagents' calls included."""
        return [call for agent in (self.main, *self.agents) for call in agent.calls]


class ToolTime(Struct, frozen=True, kw_only=True):
    """Where a tool's time went."""

    tool: str
    calls: int
    total_ms: int
    """From request to result, summed; overlapping calls count each."""
    run_ms: int
    wait_ms: int
    """Waits for consent that are known or inferred."""
    waits: dict[Certainty, int]
    """How many calls' waits are known, inferred, unknown."""
    hooks_ms: int
    p50_ms: int | None
    max_ms: int


class Timesheet:
    """Sessions, the newest last, and what they sum to."""

    def __init__(self, sessions: Sequence[SessionSheet]) -> None:
        self.sessions = list(sessions)

    @classmethod
    def of(
        cls,
        files: Iterable[FileTime],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> "Timesheet":
        """The sessions of these files, each instant and each call once, inside a window of time."""
        return cls(_Desk(files, since, until).sessions())

    @property
    def split(self) -> Split:
        """The main conversations together; what runs in two sessions at once counts in both."""
        return Split.of(part for one in self.sessions for part in one.main.slices)

    @property
    def agents(self) -> list[AgentSheet]:
        """All subagents."""
        return [agent for one in self.sessions for agent in one.agents]

    @property
    def calls(self) -> list[CallTime]:
        """Every call of every agent."""
        return [call for one in self.sessions for call in one.calls]


class _Desk:
    """Sorts files into sessions and leaves out what it has seen."""

    def __init__(
        self, files: Iterable[FileTime], since: datetime | None, until: datetime | None
    ) -> None:
        self._files = sorted(
            (file for file in files if file.agents),
            key=_order,
        )
        self._since = since
        self._until = until
        self._copies = Copies((file.file, file.info) for file in self._files)

    def sessions(self) -> list[SessionSheet]:
        """One sheet per conversation that has any time or call in the window."""
        below: dict[str, list[AgentSheet]] = {}
        mains: list[tuple[FileTime, list[AgentSheet]]] = []
        for file in self._files:
            calls = [(one.call.id, one.call.batch) for agent in file.agents for one in agent.calls]
            family = self._copies.family(file.file, calls)
            sheets = [self._sheet(agent, family) for agent in file.agents]
            if file.info.agent_id is None or file.info.session_id is None:
                mains.append((file, sheets))
            else:
                below.setdefault(file.info.session_id, []).extend(sheets)
        found = [_session(file, sheets, below.pop(_name(file), [])) for file, sheets in mains]
        found += [_orphan(name, sheets) for name, sheets in below.items()]
        return [one for one in found if one.main.slices or one.calls or one.agents]

    def _sheet(self, agent: AgentTime, family: Hashable) -> AgentSheet:
        """One agent's sheet; a compaction's agent repeats what its session had."""
        new = self._copies.new
        first = [one for one in agent.calls if new(family, "call", one.call.id)]
        calls = [one for one in first if within(_at(one), self._since, self._until)]
        fresh = [part for part in agent.slices if new(family, "slice", part)]
        slices = clip(fresh, self._since, self._until)
        return AgentSheet(
            agent=agent.agent,
            role=agent.role,
            split=Split.of(slices),
            calls=tuple(calls),
            slices=tuple(slices),
        )


def _order(file: FileTime) -> tuple[bool, str, str, str]:
    """Sessions before subagents, those that began and ended first before their copies."""
    info = file.info
    return info.agent_id is not None, info.started_at or "", info.ended_at or "", file.file


def _at(call: CallTime) -> str | None:
    return call.call.requested or call.call.finished


def _name(file: FileTime) -> str:
    return file.info.session_id or PurePath(file.file).name.partition(".")[0]


def _session(
    file: FileTime, sheets: Sequence[AgentSheet], agents: Sequence[AgentSheet]
) -> SessionSheet:
    own = [sheet for sheet in (*sheets[1:], *agents) if sheet.slices or sheet.calls]
    return SessionSheet(
        id=_name(file), file=file.file, info=file.info, main=sheets[0], agents=tuple(own)
    )


def _orphan(name: str, sheets: Sequence[AgentSheet]) -> SessionSheet:
    """A session of which only subagents' files are there: their time is the session's."""
    own = tuple(sheet for sheet in sheets if sheet.slices or sheet.calls)
    slices = tuple(sorted(part for sheet in own for part in sheet.slices))
    main = AgentSheet(agent=None, role=None, split=Split.of(slices), calls=(), slices=slices)
    return SessionSheet(id=name, file="", info=SessionInfo(), main=main, agents=own)


def by_tool(calls: Iterable[CallTime]) -> list[ToolTime]:
    """Where the time of each tool went, the longest first."""
    found: dict[str, list[CallTime]] = {}
    for call in calls:
        if call.call.tool:
            found.setdefault(call.call.tool, []).append(call)
    rows = [_tool(tool, members) for tool, members in found.items()]
    return sorted(rows, key=lambda row: (-row.total_ms, row.tool))


def _tool(tool: str, calls: Sequence[CallTime]) -> ToolTime:
    times = sorted(call.took_ms for call in calls if call.took_ms is not None)
    waits: dict[Certainty, int] = {"known": 0, "inferred": 0, "unknown": 0}
    for call in calls:
        waits[call.certainty] += 1
    return ToolTime(
        tool=tool,
        calls=len(calls),
        total_ms=sum(times),
        run_ms=sum(call.run_ms or 0 for call in calls),
        wait_ms=sum(call.wait_ms or 0 for call in calls),
        waits=waits,
        hooks_ms=sum(call.hooks_ms for call in calls),
        p50_ms=percentile(times, 50),
        max_ms=times[-1] if times else 0,
    )


def slowest(calls: Iterable[CallTime], count: int) -> list[CallTime]:
    """The calls that took longest, from request to result."""
    timed = [(call.took_ms, call) for call in calls if call.took_ms]
    ranked = sorted(timed, key=lambda pair: (-pair[0], pair[1].call.id))
    return [call for _, call in ranked[: count or None]]
