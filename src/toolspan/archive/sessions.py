"""Sessions with their numbers, and sessions in progress: `Archive.sessions`, `Archive.live`, `toolspan sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from toolspan.analysis.errors import is_unsuccessful
from toolspan.analysis.live_sessions import LiveSession, live_sessions
from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.engine import Engine, FileEngine
from toolspan.archive.filters import Filter, in_project
from toolspan.archive.selection import check_project, read_calls
from toolspan.archive.sources import session_project
from toolspan.errors import InvalidFilter
from toolspan.formats.source import to_path
from toolspan.reading.history import CallTable
from toolspan.reading.lineage import SessionFiles
from toolspan.reading.parallel import FileSummary
from toolspan.types.session import Dialect, Tokens
from toolspan.types.span import parse_timestamp

SORT_COLUMNS = ("session", "started", "ended", "lasted", "calls", "failed", "agents", "project", "about")
SORT_ALIASES = {
    "session": "id", "id": "id", "lasted": "duration_ms", "failed": "wrong", "wrong": "wrong", "about": "about",
    "title": "about",
}  # fmt: skip


class SessionRow(Struct, frozen=True, kw_only=True):
    """One session, including its subagents. Forks and resumes that copy a session belong to it."""

    id: str
    dialect: Dialect
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
    compactions: int
    calls: int
    """Number of calls, without orphan results."""
    wrong: int
    """Number of calls that did not succeed, without searches that found nothing."""
    states: dict[str, int]
    tools: dict[str, int]
    agents: int
    tokens: Tokens
    malformed: int
    """Number of lines that are not valid."""
    files: tuple[str, ...]
    forked_from: str | None
    session_ids: tuple[str, ...]

    @property
    def about(self) -> str | None:
        """The title, or else the first prompt."""
        return self.title or self.first_prompt


def list_sessions(
    engine: Engine, call_filter: Filter, *, sort: SortOrder | None = None, limit: int | None = None
) -> Rows[SessionRow]:
    """Return the sessions, newest last, or sorted by a column.

    Numbers are those of whole sessions, even if only a part of them lies in the period. A limit keeps the newest
    sessions, or the first ones of a sorted list.
    """
    selection = read_calls(engine)
    call_table = selection.call_table
    check_project(call_filter.project, [(file.file, file.info) for file in call_table.files])
    accepted = selection.filter_sessions(call_filter)
    starts = sorted(session.started_at for session in call_table.sessions if session.started_at)
    if starts and not accepted and (call_filter.since or call_filter.until):
        engine.reporter.warn(
            f"no sessions in this period; there are sessions from {starts[0][:10]} to {starts[-1][:10]}"
        )
    if sort is None:
        visible = accepted[-limit:] if limit else accepted  # perf: rows of the others are not needed
        return Rows([_make_row(session, call_table) for session in visible], len(accepted))
    rows: list[SessionRow] = sort.sort([_make_row(session, call_table) for session in accepted])
    return Rows(rows[: limit or None], len(rows))


def _make_row(session: SessionFiles[FileSummary], call_table: CallTable) -> SessionRow:
    info, rows = session.file.info, call_table.calls_by_session[session.id]
    states: Counter[str] = Counter(row.state for row in rows)
    start, end = parse_timestamp(session.started_at), parse_timestamp(session.ended_at)
    return SessionRow(
        id=session.id,
        dialect=info.dialect,
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
        wrong=sum(is_unsuccessful(row) and row.state != "orphan_result" for row in rows),
        states=dict(states),
        tools=dict(Counter(row.tool for row in rows if row.tool)),
        agents=len(session.agents),
        tokens=call_table.tokens_by_session[session.id],
        malformed=sum(file.counts.malformed for file in session.files),
        files=tuple(file.file for file in session.files),
        forked_from=info.forked_from,
        session_ids=info.session_ids,
    )


def list_live_sessions(engine: Engine, call_filter: Filter) -> Rows[LiveSession]:
    """Return the sessions that are open, or died recently with open calls, waiting ones first.

    Raises:
        InvalidFilter: the filter has a period, or the archive is a dataset.
    """
    if call_filter.since is not None or call_filter.until is not None:
        raise InvalidFilter("a period does not apply to live sessions, which are those of the present")
    if not isinstance(engine, FileEngine):
        raise InvalidFilter("tables contain no live sessions; name transcripts")
    sessions: Sequence[LiveSession] = [
        session
        for session in live_sessions([to_path(name) for name in engine.names] or None)
        if call_filter.client in (None, session.dialect)
        if call_filter.project is None or in_project(call_filter.project, session.file or "", session.cwd)
    ]
    return Rows(sessions)
