"""Unsuccessful calls in groups, with causes, solutions and recoveries: `Archive.errors` and `toolspan errors`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct

from toolspan.analysis.errors import (
    ENDINGS,
    FAILURES_JOB,
    RECOVERY_JOB,
    ErrorGroup,
    group_errors,
    local_day,
    recovery_by_call,
)
from toolspan.analysis.live_sessions import mark_running
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine
from toolspan.archive.filters import Filter, choose_name
from toolspan.archive.parts import iter_parts
from toolspan.archive.selection import CallSelection, NoCalls
from toolspan.archive.sources import session_project
from toolspan.reading.facts import CALLS, tuple_job
from toolspan.reading.history import CallTable, make_head
from toolspan.types.error_kinds import KIND_WORDS

if TYPE_CHECKING:
    from toolspan.analysis.recovery import CallRef, ChainEnding
    from toolspan.archive.parts import Heads
    from toolspan.reading.rows import CallRow

SORT_COLUMNS = ("count", "harm", "lost", "tokens", "abandoned", "repeated", "recovered", "sessions", "first", "last",
                "program", "tool", "kind")  # fmt: skip
SORT_ALIASES = {"lost": "lost_ms", "lost_ms": "lost_ms", "time": "lost_ms", "tokens": "lost_tokens",
                "lost_tokens": "lost_tokens"}  # fmt: skip
ErrorGrouping = Literal["program", "tool", "kind", "client", "client-version", "model", "project", "session", "day"]
GROUPINGS: tuple[ErrorGrouping, ...] = get_args(ErrorGrouping)
TOTAL_SORT_COLUMNS = ("name", "calls", "unsuccessful", "share", "causes", "recovered", "lost", "tokens", "last")
TOTAL_SORT_ALIASES: dict[str, str] = {**SORT_ALIASES, **dict.fromkeys(GROUPINGS, "name"), "count": "unsuccessful"}


class ErrorGroups(Rows[ErrorGroup]):
    """Groups of unsuccessful calls with the same cause. Searches that found nothing are not errors and come last."""

    def __init__(self, groups: Sequence[ErrorGroup], calls: int, total: int | None = None) -> None:
        super().__init__(groups, total)
        self.calls = calls
        """The number of all calls, successful ones included, that a filter without states and errors accepts."""


_UNKNOWN = "unknown"


class ErrorTotals(Struct, frozen=True, kw_only=True):
    """The unsuccessful calls of one program, tool, error kind, client, client version, model, project, session or day.

    A session with several models or client versions is part of the row of all of them together.
    """

    name: str
    calls: int | None
    """Number of calls, successful ones included; null for error kinds, which only unsuccessful calls have."""
    unsuccessful: int
    """Number of unsuccessful calls. A command counts for the program that failed."""
    share: float | None
    """The unsuccessful part of the calls; null if their number is not known."""
    recovered: int
    causes: int
    """Number of groups of `errors`."""
    sessions: int
    lost_ms: int
    lost_tokens: int
    last: str | None
    """Time of the latest unsuccessful call."""
    top_group: str
    """The id of the most frequent group."""
    top_message: str | None
    """The message of that group, or else its kind."""


def total_errors(
    engine: Engine,
    call_filter: Filter,
    *,
    by: str,
    recovered: bool | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
    zone: tzinfo | None = None,
) -> Rows[ErrorTotals]:
    """Return the number of unsuccessful calls by program, tool, kind, …, largest first.

    Raises:
        InvalidFilter: there is no such grouping.
    """
    by = choose_name(by, GROUPINGS)
    kinds = [CALLS, ENDINGS]
    if by == "program":
        from toolspan.analysis.risks import RISKS  # perf: imports the parser of command lines

        kinds.append(RISKS)
    results, joined = engine.read(tuple_job(*kinds))
    call_table = CallTable(mark_running(summary for summary, *_ in results))
    rows = CallSelection(call_table, joined, engine.reporter).filter_calls(call_filter)
    recoveries = recovery_by_call(ending for _, endings, *_ in results for ending in endings.endings)
    name_call = _make_namer(by, call_table, zone)
    programs = {summary.file: risks[0].programs for summary, _, *risks in results} if by == "program" else {}
    counts: Counter[str] = Counter()
    failures: defaultdict[str, list[CallRow]] = defaultdict(list)
    for row in rows:
        if by == "program" and row.kind != "shell":
            continue
        own = programs[row.file].get(row.id, ()) if by == "program" else (name_call(row) or _UNKNOWN,)
        if row.state == "orphan_result":  # not a call: the request is in another file, or lost
            continue
        counts.update(own)
        if row.error_group is not None and _is_to_blame(row, call_filter):
            name = (row.error_program or next(iter(own), "")) if by == "program" else own[0]
            failures[name or _UNKNOWN].append(row)
    totals = [
        _add_up(name, members, group_errors(members, recoveries, zone=zone), None if by == "kind" else counts[name])
        for name, rows in failures.items()
        if (members := _select_recovered(rows, recoveries, recovered=recovered))
    ]
    totals = [row for row in totals if row.unsuccessful]
    ordered = sorted(totals, key=lambda row: (-row.unsuccessful, row.name)) if sort is None else sort.sort(totals)
    return Rows(ordered[: limit or None], len(ordered))


def _make_namer(by: str, call_table: CallTable, zone: tzinfo | None) -> Callable[[CallRow], str]:
    """Return the function that names the group of a call."""
    infos = {file.file: file.info for file in call_table.files}
    sessions = {file.file: session for session in call_table.sessions for file in session.files}

    def name_call(row: CallRow) -> str:
        info, session = infos[row.file], sessions.get(row.file)
        match by:
            case "tool":
                return row.tool or ""
            case "kind":
                return row.error_kind or row.state
            case "client-version":
                return join_names(row.client, *info.versions)
            case "model":
                return ", ".join(info.models)
            case "project":
                return session_project(session) if session else ""
            case "session":
                return session.id if session else row.session or ""
            case "day":
                return local_day(row.requested or row.finished or "", zone)
            case _:
                return row.client

    return name_call


def join_names(client: str, *versions: str) -> str:
    """Return a client with the versions that wrote a session."""
    return " ".join((client, ", ".join(versions))).strip()


def _is_to_blame(row: CallRow, call_filter: Filter) -> bool:
    """Return whether a failure belongs to a filter on programs: those of the others in the same line do not."""
    return not call_filter.program or not row.error_program or call_filter.accepts_programs([row.error_program])


def _select_recovered(
    rows: Sequence[CallRow], recoveries: Mapping[CallRef, ChainEnding], *, recovered: bool | None
) -> Sequence[CallRow]:
    """Return the failures that a later call recovered, or those that none did. Searches that found nothing are none."""
    if recovered is None:
        return rows
    endings = ((row, recoveries.get((row.id, row.batch))) for row in rows if row.error_kind != "nothing_found")
    return [row for row, ending in endings if (ending is not None and ending.recovered) is recovered]


def _add_up(name: str, rows: Sequence[CallRow], groups: Sequence[ErrorGroup], calls: int | None) -> ErrorTotals:
    causes = [group for group in groups if group.kind != "nothing_found"]
    count = sum(group.count for group in causes)
    top = causes[0] if causes else None
    return ErrorTotals(
        name=name,
        calls=calls,
        unsuccessful=count,
        share=round(count / calls, 4) if calls else None,
        recovered=sum(group.recovered or 0 for group in causes),
        causes=len(causes),
        sessions=len({row.session for row in rows if row.error_kind != "nothing_found"}),
        lost_ms=sum(group.lost_ms for group in causes),
        lost_tokens=sum(group.lost_tokens for group in causes),
        last=max((group.last for group in causes if group.last), default=None),
        top_group=top.id if top else "",
        top_message=(top.message or KIND_WORDS.get(top.kind, top.kind)) if top else None,
    )


def find_errors(
    engine: Engine,
    call_filter: Filter,
    *,
    recovered: bool | None = None,
    sort: SortOrder | None = None,
    limit: int | None = None,
    zone: tzinfo | None = None,
) -> ErrorGroups:
    """Return the unsuccessful calls by cause, most frequent first. Days begin at midnight in `zone`, or locally.

    `recovered` selects the calls that a later call recovered, or those that none did.
    """
    no_calls = NoCalls(call_filter)
    every_state = call_filter.replace(state=(), error=())
    calls = 0
    failures: list[CallRow] = []
    endings: list[tuple[str, ChainEnding]] = []

    def choose(heads: Heads) -> Iterator[int]:
        """Count the calls of files without failures, and yield the numbers of the others."""
        nonlocal calls
        for n, head in heads:
            if head.has_failures:
                yield n
            else:
                calls += head.calls

    # perf: without a filter, the rows of successful calls and the files without failures are not needed
    job, choose_files = (FAILURES_JOB, choose) if call_filter == Filter() else (RECOVERY_JOB, None)
    parts = iter_parts(engine, job, lambda file: make_head(file.facts), choose_files)
    for part in parts:
        call_table = CallTable(mark_running(file.facts for file in part.results), are_independent=not part.are_linked)
        selection = CallSelection(call_table, part.are_joined, engine.reporter)
        rows = selection.accept_calls(call_filter, no_calls)
        if job is FAILURES_JOB:
            calls += selection.call_count
        else:
            counted = rows if every_state == call_filter else selection.accept_calls(every_state, NoCalls(every_state))
            calls += sum(row.state != "orphan_result" for row in counted)
        failures += [row for row in rows if row.error_group is not None and _is_to_blame(row, call_filter)]
        endings += [(file.facts.file, ending) for file in part.results for ending in file.endings]
    no_calls.explain(engine.reporter)
    # The order of the parts must not show.
    failures.sort(key=lambda row: (row.requested or row.finished or "", row.file))
    recoveries = recovery_by_call(ending for _, ending in sorted(endings, key=itemgetter(0)))
    failures = [*_select_recovered(failures, recoveries, recovered=recovered)]
    groups = group_errors(failures, recoveries, names=engine.names, zone=zone)
    if sort is not None:  # searches without matches stay at the end
        causes = [group for group in groups if group.kind != "nothing_found"]
        groups = sort.sort(causes) + groups[len(causes) :]
    return ErrorGroups(groups[: limit or None], calls, len(groups))
