"""Sessions with their numbers, and sessions in progress: `Archive.sessions`, `Archive.live`, `toolspan sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from toolspan.analysis.live_sessions import LiveSession, live_sessions, mark_running
from toolspan.analysis.usage import USAGE
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine, FileEngine, without_warnings
from toolspan.archive.filters import Filter, in_project
from toolspan.archive.parts import iter_parts
from toolspan.archive.reporter import Reporter
from toolspan.archive.selection import check_project, filter_sessions
from toolspan.archive.sources import session_project
from toolspan.archive.usage import sum_session_costs
from toolspan.errors import InvalidFilter, NotFound, SourceError
from toolspan.formats.source import is_remote, stat_file, to_path
from toolspan.reading.facts import SCAN_JOB, FileSummary
from toolspan.reading.history import CallTable, make_head
from toolspan.reading.lineage import FileFacts, SessionFiles, group_sessions, sessions_named
from toolspan.types.session import ClientName, SessionInfo, Tokens
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from toolspan.archive.parts import Heads

SORT_COLUMNS = (
    "session",
    "started",
    "last",
    "duration",
    "prompts",
    "calls",
    "unsuccessful",
    "agents",
    "cost",
    "size",
    "model",
    "client",
    "project",
    "about",
    "relevance",
)
SORT_ALIASES = {
    "session": "id", "id": "id", "about": "about", "title": "about",
    **dict.fromkeys(("last", "ended", "active", "last_active"), "ended"), "size": "bytes", "bytes": "bytes",
    "models": "model",
    **dict.fromkeys(("duration", "lasted"), "duration_ms"), "cost": "cost_usd",
    "cost_usd": "cost_usd", **dict.fromkeys(("failed", "wrong"), "unsuccessful"),
}  # fmt: skip


_JOB = structs.replace(SCAN_JOB, also=(USAGE,))


class SessionRow(Struct, frozen=True, kw_only=True):
    """One session, including its subagents. Forks and resumes that copy a session belong to it."""

    id: str
    client: ClientName
    title: str | None
    first_prompt: str | None
    project: str
    """The working folder, or the name of the project folder."""
    git_branch: str | None
    started: str | None
    ended: str | None
    duration_ms: int | None
    """Time from the first to the last record."""
    versions: tuple[str, ...]
    models: tuple[str, ...]
    prompts: int
    """Number of prompts of a person in the main file."""
    compactions: int
    calls: int
    """Number of calls, without orphan results."""
    unsuccessful: int
    """Number of calls that ended in any way other than success, without searches that found nothing."""
    states: dict[str, int]
    tools: dict[str, int]
    agents: int
    tokens: Tokens
    cost_usd: float | None
    """The cost at list prices; null if no model has a price."""
    bytes: int | None
    """Size of its transcripts; null if they are on another machine."""
    relevance: int | None
    """How well the session fits the words of the filter `about`; null without it."""
    malformed: int
    """Number of lines that are not valid."""
    files: tuple[str, ...]
    forked_from: str | None
    session_ids: tuple[str, ...]

    @property
    def model(self) -> str | None:
        """The models that it used."""
        return ", ".join(self.models) or None

    @property
    def about(self) -> str | None:
        """The title, or else the first prompt."""
        return self.title or self.first_prompt


def list_sessions(
    engine: Engine, call_filter: Filter, *, sort: SortOrder | None = None, limit: int | None = None
) -> Rows[SessionRow]:
    """Return the sessions, newest last, or sorted by a column. Those about some words begin with the most relevant.

    Numbers are those of whole sessions, even if only a part of them lies in the period. A limit keeps the newest
    sessions, or the first ones of a sorted list.
    """
    if sort is None and call_filter.files is not None:
        sort = SortOrder("relevance")
    costs_now = sort is not None and sort.column == "cost_usd"
    costs = sum_session_costs(without_warnings(engine)) if costs_now else {}
    by_id, by_record = (_TopSessions(call_filter, sort, limit, costs) for _ in range(2))
    no_sessions = _NoSessions(call_filter)
    prefix = call_filter.session

    def choose(heads: Heads) -> Iterable[int]:
        return by_id.choose(no_sessions.watch(heads))

    # perf: of the sessions with one file, only those that a limit shows are read
    chosen = choose if limit and sort is None and prefix is None else None
    for part in iter_parts(engine, _JOB, make_head, chosen):
        call_table = CallTable(mark_running(part.results), are_independent=not part.are_linked)
        no_sessions.add(call_table.files, call_table.sessions)
        named = call_table.sessions if prefix is None else sessions_named(call_table.sessions, prefix)
        is_named_by_id = prefix is None or any(session.id.startswith(prefix) for session in named)
        (by_id if is_named_by_id else by_record).add(named, call_table)
    top = by_id if by_id.named else by_record
    no_sessions.explain(top, engine.reporter)
    rows = top.rows
    if not costs_now:  # perf: the requests have just been read, and those of sessions that are not shown are not needed
        costs = sum_session_costs(without_warnings(engine), {row.id for row in rows} if limit else None)
        rows = Rows([structs.replace(row, cost_usd=costs.get(row.id)) for row in rows], rows.total)
    return rows


class _NoSessions:
    """The facts that explain why a filter accepts no session."""

    def __init__(self, call_filter: Filter) -> None:
        self._filter = call_filter
        self._folders: dict[str | None, tuple[str, SessionInfo]] = {}
        """A file of each working folder, unless the project is known."""
        self._has_project = call_filter.project is None
        self._starts: list[str] = []
        """The start of the first and of the last session, if the filter has a period."""

    def add(self, files: Sequence[FileFacts], sessions: Sequence[SessionFiles[Any]]) -> None:
        """Add files with whole sessions."""
        project = self._filter.project or ""
        if not self._has_project:
            self._folders |= {file.info.cwd: (file.file, file.info) for file in files}
            self._has_project = any(in_project(project, file.file, file.info.cwd) for file in files)
        if self._filter.since or self._filter.until:
            self._starts += [session.started_at for session in sessions if session.started_at]
            self._starts = [min(self._starts), max(self._starts)] if self._starts else []

    def watch(self, heads: Heads) -> Heads:
        """Yield the heads of files that are added."""
        for n, head in heads:
            if not self._has_project or self._filter.since or self._filter.until:
                self.add([head], group_sessions([head]))
            yield n, head

    def explain(self, top: _TopSessions, reporter: Reporter) -> None:
        """Raise or warn if the filter accepts no session.

        Raises:
            NotFound: there is no such project or session.
        """
        prefix, starts = self._filter.session, self._starts
        if not self._has_project:
            check_project(self._filter.project, [*self._folders.values()])
        if prefix is not None and not top.named:
            raise NotFound(f"no session begins with {prefix!r}")
        if starts and not top.total:
            reporter.warn(f"no sessions in this period; there are sessions from {starts[0][:10]} to {starts[-1][:10]}")


class _TopSessions:
    """The sessions that a filter accepts. Only the rows that a limit shows are kept."""

    def __init__(
        self, call_filter: Filter, sort: SortOrder | None, limit: int | None, costs: Mapping[str, float | None]
    ) -> None:
        self._filter = call_filter.replace(session=None)
        self._sort = sort
        self._limit = limit
        self._costs = costs
        self._rows: list[SessionRow] = []
        self.named = 0
        """Number of sessions, whether the filter accepts them or not."""
        self.total = 0
        """Number of sessions that the filter accepts."""

    def add(self, sessions: Sequence[SessionFiles[FileSummary]], call_table: CallTable) -> None:
        """Add sessions, whose calls are in a table."""
        self.named += len(sessions)
        accepted = filter_sessions(sessions, self._filter)
        self.total += len(accepted)
        if self._limit and self._sort is None:
            accepted = accepted[-self._limit :]  # perf: rows of the others are not needed
            call_table = call_table.narrow(accepted)
        relevance = self._filter.files or {}
        self._rows += [
            _make_row(session, call_table, self._costs.get(session.id), relevance.get(session.file.file))
            for session in accepted
        ]
        if self._limit:
            self._rows = self._sort_rows()

    def choose(self, heads: Heads) -> list[int]:
        """Return the numbers of the files whose sessions may be among the newest, and count the other sessions."""
        newest: list[tuple[str, str, int]] = []
        for n, head in heads:
            for session in filter_sessions(group_sessions([head]), self._filter):
                heappush(newest, (session.started_at or "", session.id, n))
                if len(newest) > (self._limit or 0):
                    heappop(newest)
                    self.named += 1
                    self.total += 1
        return sorted(n for _, _, n in newest)

    @property
    def rows(self) -> Rows[SessionRow]:
        """The answer."""
        return Rows(self._sort_rows(), self.total)

    def _sort_rows(self) -> list[SessionRow]:
        rows = sorted(self._rows, key=lambda row: (row.started or "", row.id))
        if self._sort is None:
            return rows[-(self._limit or 0) :]
        return self._sort.sort(rows)[: self._limit or None]


def _make_row(
    session: SessionFiles[FileSummary], call_table: CallTable, cost_usd: float | None, relevance: int | None
) -> SessionRow:
    info, rows = session.file.info, call_table.calls_by_session[session.id]
    states: Counter[str] = Counter(row.state for row in rows)
    start, end = parse_timestamp(session.started_at), parse_timestamp(session.ended_at)
    return SessionRow(
        id=session.id,
        client=info.client,
        title=info.title,
        first_prompt=info.first_prompt,
        project=session_project(session),
        git_branch=info.git_branch,
        started=session.started_at,
        ended=session.ended_at,
        duration_ms=round((end - start).total_seconds() * 1000) if start and end else None,
        versions=info.versions,
        models=info.models,
        prompts=info.prompts,
        compactions=info.compactions,
        calls=states.total() - states["orphan_result"],
        unsuccessful=sum(row.is_unsuccessful for row in rows),
        states=dict(states),
        tools=dict(Counter(row.tool for row in rows if row.tool)),
        agents=len(session.agents),
        tokens=call_table.tokens_by_session[session.id],
        cost_usd=cost_usd,
        bytes=_sum_sizes(session),
        relevance=relevance,
        malformed=sum(file.counts.malformed for file in session.files),
        files=tuple(file.file for file in session.files),
        forked_from=info.forked_from,
        session_ids=info.session_ids,
    )


def _sum_sizes(session: SessionFiles[FileSummary]) -> int | None:
    try:
        return sum(stat_file(file.file).st_size for file in session.files if not is_remote(file.file)) or None
    except (OSError, ValueError, SourceError):
        return None


def list_live_sessions(engine: Engine, call_filter: Filter) -> Rows[LiveSession]:
    """Return the sessions that are open, or died recently with open calls, waiting ones first.

    Raises:
        InvalidFilter: the filter has a period, or the archive is a dataset.
    """
    if call_filter.since is not None or call_filter.until is not None:
        raise InvalidFilter("a period does not apply to live sessions, which are those of the present")
    if call_filter.model or call_filter.client_version:
        raise InvalidFilter("models and client versions are not known of live sessions; filter them by other words")
    if not isinstance(engine, FileEngine):
        raise InvalidFilter("tables contain no live sessions; name transcripts")
    sessions: Sequence[LiveSession] = [
        session
        for session in live_sessions([to_path(name) for name in engine.names] or None, scan=engine.scan)
        if call_filter.client in (None, session.client)
        if call_filter.project is None or in_project(call_filter.project, session.file or "", session.cwd)
        if call_filter.files is None or session.file in call_filter.files
    ]
    return Rows(sessions)
