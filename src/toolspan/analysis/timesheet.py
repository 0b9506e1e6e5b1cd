"""Add up the times from many files by session and tool. Start at `Timesheet.from_files`.

Slices and calls that a resumed or forked session copied from another file are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from toolspan.analysis.errors import ErrorGroup, group_errors, is_unsuccessful
from toolspan.analysis.stats import percentile
from toolspan.analysis.timing import AgentTime, CallTime, Certainty, FileTime, TimeSplit, clip_slices
from toolspan.reading.history import Lineages
from toolspan.reading.rows import CallRow
from toolspan.types.session import SessionInfo
from toolspan.types.span import is_within


class CopyTracker:
    """A detector for slices and calls that resumed and forked sessions copied from each other."""

    def __init__(self, files: Iterable[tuple[str, SessionInfo]]) -> None:
        self._lineages = Lineages()
        for file, info in files:
            self._lineages.add(file, info)
        self._call_families: dict[tuple[str, str], Hashable] = {}
        self._seen: set[Hashable] = set()

    def family_of(self, file: str, calls: Iterable[tuple[str, str | None]]) -> Hashable:
        """Return the family of a file, based on its lineage or on a call that another file also contains."""
        named = [(name, batch) for name, batch in calls if batch]
        seen_family = next((self._call_families[call] for call in named if call in self._call_families), None)
        family = self._lineages.group_of(file) if seen_family is None else seen_family
        for call in named:
            self._call_families.setdefault(call, family)
        return family

    def add_if_new(self, *name: Hashable) -> bool:
        """Remember a key, which begins with the family, and return whether it is new."""
        if name in self._seen:
            return False
        self._seen.add(name)
        return True


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


class ToolTime(Struct, frozen=True, kw_only=True):
    """The time spent in one tool."""

    tool: str
    calls: int
    total_ms: int
    """Sum of the times from request to result. Each overlapping call counts in full."""
    run_ms: int
    wait_ms: int
    waits: dict[Certainty, int]
    """Number of calls by the certainty of their wait for permission."""
    hooks_ms: int
    p50_ms: int | None
    max_ms: int


class Timesheet:
    """Sessions ordered by start time, and their totals."""

    def __init__(self, sessions: Sequence[SessionSheet]) -> None:
        self.sessions = list(sessions)

    @classmethod
    def from_files(
        cls, files: Iterable[FileTime], *, since: datetime | None = None, until: datetime | None = None
    ) -> Timesheet:
        """Build the sessions in these files, limited to a period, counting every instant and call once."""
        # Sessions come before subagents, and originals before copies.
        ordered = sorted(
            (file for file in files if file.agents),
            key=lambda file: (
                file.info.agent_id is not None, file.info.started_at or "", file.info.ended_at or "", file.file
            ),
        )  # fmt: skip
        copies = CopyTracker((file.file, file.info) for file in ordered)
        mains: list[tuple[FileTime, list[AgentTime]]] = []
        below: dict[str, list[AgentTime]] = {}
        for file in ordered:
            calls = [(item.call.id, item.call.batch) for agent in file.agents for item in agent.calls]
            family = copies.family_of(file.file, calls)
            sheets = [_without_copies(agent, copies, family, since, until) for agent in file.agents]
            if file.info.agent_id is None or file.info.session_id is None:
                mains.append((file, sheets))
            else:
                below.setdefault(file.info.session_id, []).extend(sheets)
        sessions: list[SessionSheet] = []
        for file, (main, *sheets) in mains:
            name = file.info.session_id or PurePath(file.file).name.partition(".")[0]
            agents = tuple(sheet for sheet in (*sheets, *below.pop(name, [])) if sheet.slices or sheet.calls)
            sessions.append(SessionSheet(id=name, file=file.file, info=file.info, main=main, agents=agents))
        for name, sheets in below.items():  # only the files of subagents exist
            agents = tuple(sheet for sheet in sheets if sheet.slices or sheet.calls)
            slices = tuple(sorted(part for sheet in agents for part in sheet.slices))
            main = AgentTime(agent=None, role=None, slices=slices, calls=())
            sessions.append(SessionSheet(id=name, file="", info=SessionInfo(), main=main, agents=agents))
        return cls([session for session in sessions if session.main.slices or session.calls or session.agents])

    @property
    def split(self) -> TimeSplit:
        """The combined time of the main conversations. Overlapping sessions each count in full."""
        return TimeSplit.from_slices(part for session in self.sessions for part in session.main.slices)

    @property
    def agents(self) -> list[AgentTime]:
        """All subagents."""
        return [agent for session in self.sessions for agent in session.agents]

    @property
    def calls(self) -> list[CallTime]:
        """All calls made by any agent."""
        return [call for session in self.sessions for call in session.calls]


def _without_copies(
    agent: AgentTime, copies: CopyTracker, family: Hashable, since: datetime | None, until: datetime | None
) -> AgentTime:
    """Return the time of one agent in a period. Calls repeated by a compaction agent are skipped."""
    calls = [
        item
        for item in agent.calls
        if copies.add_if_new(family, "call", item.call.id)
        and is_within(item.call.requested or item.call.finished, since, until)
    ]
    new_slices = [part for part in agent.slices if copies.add_if_new(family, "slice", part)]
    return replace(agent, calls=tuple(calls), slices=tuple(clip_slices(new_slices, since, until)))


def time_by_tool(calls: Iterable[CallTime]) -> list[ToolTime]:
    """Return the time spent in each tool, longest first."""
    calls_by_tool: dict[str, list[CallTime]] = {}
    for call in calls:
        if call.call.tool:
            calls_by_tool.setdefault(call.call.tool, []).append(call)
    rows: list[ToolTime] = []
    for tool, members in calls_by_tool.items():
        times = sorted(call.took_ms for call in members if call.took_ms is not None)
        certainties: list[Certainty] = ["known", "inferred", "unknown"]
        rows.append(
            ToolTime(
                tool=tool,
                calls=len(members),
                total_ms=sum(times),
                run_ms=sum(call.run_ms or 0 for call in members),
                wait_ms=sum(call.wait_ms or 0 for call in members),
                waits={name: sum(call.certainty == name for call in members) for name in certainties},
                hooks_ms=sum(call.hooks_ms for call in members),
                p50_ms=percentile(times, 50),
                max_ms=times[-1] if times else 0,
            )
        )
    return sorted(rows, key=lambda row: (-row.total_ms, row.tool))


def slowest_calls(calls: Iterable[CallTime], count: int) -> list[CallTime]:
    """Return the calls with the longest time from request to result."""
    timed = [(call.took_ms, call) for call in calls if call.took_ms]
    ranked = sorted(timed, key=lambda pair: (-pair[0], pair[1].call.id))
    return [call for _, call in ranked[: count or None]]


_MAX_ERRORS = 5


class Overview(Struct, frozen=True, kw_only=True):
    """An overview of several days of work with agents."""

    since: datetime
    until: datetime
    sessions: int
    folders: int
    calls: int
    states: dict[str, int]
    """Number of calls by state, most frequent first."""
    nothing_found: int
    """How many of the failed calls are searches that only found nothing."""
    tools: dict[str, int]
    """Number of calls by tool, most frequent first."""
    errors: list[ErrorGroup]
    split: TimeSplit
    last_failure: CallRow | None


def overview_of(
    rows: Sequence[CallRow], sheet: Timesheet, projects: Mapping[str, str], since: datetime, until: datetime
) -> Overview:
    """Summarize calls and times. `projects` maps each file to its working folder."""
    calls = [row for row in rows if row.state != "orphan_result"]
    failed = [row for row in calls if is_unsuccessful(row)]
    return Overview(
        since=since,
        until=until,
        sessions=len({row.session for row in rows}),
        folders=len({projects.get(row.file) or str(Path(row.file).parent) for row in rows}),
        calls=len(calls),
        states=dict(Counter(row.state for row in rows).most_common()),
        nothing_found=sum(row.error_kind == "nothing_found" for row in calls),
        tools=dict(Counter(row.tool for row in calls if row.tool).most_common()),
        errors=[group for group in group_errors(rows) if group.kind != "nothing_found"][:_MAX_ERRORS],
        split=sheet.split,
        last_failure=max(failed, key=lambda row: row.requested or "", default=None),
    )
