"""Wall time split into model, tools, permission, hooks and idle: `Archive.time` and `toolspan time`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from toolspan.analysis.file_time import TIME_JOB
from toolspan.analysis.timesheet import SessionSheet, Timesheet, ToolTime, slowest_calls, time_by_tool
from toolspan.analysis.timing import SLOW_CALL_MS, CallTime, TimeSplit
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter
from toolspan.archive.selection import check_project, choose_sessions, explain_nothing
from toolspan.reading.rows import command_ms
from toolspan.types.span import parse_timestamp


class AgentSplit(Struct, frozen=True, kw_only=True):
    """The time of one subagent, or of a main conversation."""

    agent: str | None
    role: str | None
    split: TimeSplit
    calls: int
    calls_ms: int


class SessionSplit(Struct, frozen=True, kw_only=True):
    """The time of one session."""

    id: str
    file: str
    title: str | None
    agent: str | None
    role: str | None
    split: TimeSplit
    calls: int
    calls_ms: int
    agents: tuple[AgentSplit, ...]


class TimeReport(Struct, frozen=True, kw_only=True):
    """Where the time went. The parts of a split add up to the wall time."""

    sessions: int
    split: TimeSplit
    calls: int
    calls_ms: int
    agents: int
    agents_split: TimeSplit
    waits: dict[str, int]
    """Milliseconds that calls waited for permission, by certainty."""
    unknown_waits: int
    """Number of calls that may include a wait for permission, counted as tools."""
    slow_unknown: tuple[int, ...]
    """Durations of those reads, searches and edits that took so long that they probably waited."""
    late: int
    """Number of calls that ended after the period."""
    tools: tuple[ToolTime, ...]
    slowest: tuple[CallTime, ...]
    by_session: tuple[SessionSplit, ...]


_QUICK_KINDS = ("edit", "write", "read", "search")


def split_time(engine: Engine, call_filter: Filter, *, limit: int | None = None) -> TimeReport:
    """Return where the time went. Filters on calls select the calls; the split covers whole sessions.

    A limit applies to the slowest calls.
    """
    files, _ = engine.read(TIME_JOB)
    check_project(call_filter.project, [(file.file, file.info) for file in files])
    sheet = Timesheet.from_files(
        files,
        since=call_filter.since,
        until=call_filter.until,
        select=lambda sessions: choose_sessions(sessions, call_filter),
    )
    rest = call_filter.without_file_filters()
    calls = [call for call in sheet.calls if rest == Filter() or rest.accepts_call(call.call)]
    if not calls:
        explain_nothing(engine, call_filter, [file.file for file in files])
    waits: dict[str, int] = {}
    for call in calls:
        waits[call.certainty] = waits.get(call.certainty, 0) + (call.wait_ms or 0)
    unknown = [call for call in calls if call.certainty == "unknown"]
    quick = (call.call.duration_ms or 0 for call in unknown if call.call.kind in _QUICK_KINDS)
    by_session = tuple(map(_split_session, sheet.sessions))
    return TimeReport(
        sessions=len(sheet.sessions),
        split=TimeSplit.total(session.split for session in by_session),
        calls=len(calls),
        calls_ms=sum(command_ms(call.call) or 0 for call in calls),
        agents=len(sheet.agents),
        agents_split=TimeSplit.total(agent.split for session in by_session for agent in session.agents),
        waits=waits,
        unknown_waits=len(unknown),
        slow_unknown=tuple(ms for ms in quick if ms > SLOW_CALL_MS),
        late=0 if call_filter.until is None else sum(_ends_after(call, call_filter.until) for call in calls),
        tools=tuple(time_by_tool(calls)),
        slowest=tuple(slowest_calls(calls, limit or 0)),
        by_session=by_session,
    )


def _ends_after(call: CallTime, until: datetime) -> bool:
    end = parse_timestamp(call.call.finished)
    return end is not None and end > until


def _split_session(session: SessionSheet) -> SessionSplit:
    main = session.main
    return SessionSplit(
        id=session.id,
        file=session.file,
        title=session.info.title or session.info.first_prompt,
        agent=main.agent,
        role=main.role,
        split=main.split,
        calls=len(main.calls),
        calls_ms=main.calls_ms,
        agents=tuple(
            AgentSplit(
                agent=sheet.agent, role=sheet.role, split=sheet.split, calls=len(sheet.calls), calls_ms=sheet.calls_ms
            )
            for sheet in session.agents
        ),
    )
