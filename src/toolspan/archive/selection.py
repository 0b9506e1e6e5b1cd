"""The calls and sessions of an archive that a filter accepts, and the reason if it accepts none.

Start at `read_calls` and `CallSelection.filter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TypeVar

from toolspan.analysis.live_sessions import mark_running
from toolspan.archive.engine import Engine, FileResult, scan_with_cache
from toolspan.archive.filters import Filter, in_project
from toolspan.archive.reporter import Reporter
from toolspan.errors import NotFound
from toolspan.formats.source import to_path
from toolspan.reading.facts import SCAN_JOB, FileJob, FileSummary
from toolspan.reading.history import CallTable
from toolspan.reading.lineage import FileFacts, SessionFiles, sessions_named
from toolspan.reading.rows import CallRow

if TYPE_CHECKING:
    from toolspan.types.session import SessionInfo

_MAX_EXAMPLES = 3


class _SessionFileResult(FileResult, Protocol):
    @property
    def file(self) -> str: ...

    @property
    def info(self) -> SessionInfo: ...


F = TypeVar("F", bound=FileFacts)
S = TypeVar("S", bound=_SessionFileResult)


class CallSelection(NamedTuple):
    """The calls in an archive."""

    call_table: CallTable
    is_joined: bool
    """True if the files were read as a set rather than one by one."""
    reporter: Reporter

    def list_calls(self) -> Sequence[CallRow]:
        """Return the calls: each once and sorted by time if joined, otherwise file by file."""
        if self.is_joined:
            return sorted(self.call_table.calls, key=lambda row: row.requested or row.finished or "")
        return [row for file in self.call_table.files for row in file.calls]

    @property
    def call_count(self) -> int:
        """Number of calls, without orphan results, and with those that the files leave out."""
        return self.call_table.call_count if self.is_joined else sum(file.call_count for file in self.call_table.files)

    def filter_calls(self, call_filter: Filter) -> list[CallRow]:
        """Return the calls that a filter accepts.

        Raises:
            NotFound: a name in the filter does not occur.
        """
        no_calls = NoCalls(call_filter)
        accepted = self.accept_calls(call_filter, no_calls)
        no_calls.explain(self.reporter)
        return accepted

    def accept_calls(self, call_filter: Filter, no_calls: NoCalls) -> list[CallRow]:
        """Return the calls that a filter accepts. If there are none, `no_calls` can explain it."""
        rows = list(self.list_calls())
        if call_filter == Filter():
            return rows
        files = self.call_table.files
        if call_filter.session is not None and self.is_joined:
            session_ids = {session.id for session in sessions_named(self.call_table.sessions, call_filter.session)}
            rows = [row for row in rows if row.session in session_ids]
            call_filter = call_filter.replace(session=None)
        infos = {file.file: file.info for file in files}
        accepted = [row for row in rows if call_filter.accepts_call(row, infos.get(row.file))]
        no_calls.add(files, rows, accepted)
        return accepted

    def filter_sessions(
        self, call_filter: Filter, rows: Sequence[CallRow] | None = None
    ) -> list[SessionFiles[FileSummary]]:
        """Return the sessions that a filter accepts.

        A filter on a period accepts the sessions that overlap it. Other filters on calls accept the sessions of `rows`.

        Raises:
            NotFound: no session has the name in the filter.
        """
        sessions = choose_sessions(self.call_table.sessions, call_filter)
        if rows is None or not call_filter.replace(since=None, until=None).selects_calls:
            return sessions
        files = {row.file for row in rows}
        return [session for session in sessions if any(file.file in files for file in session.files)]


def read_calls(engine: Engine) -> CallSelection:
    """Read the calls of an archive."""
    results, joined = engine.read(SCAN_JOB)
    return CallSelection(CallTable(mark_running(results)), joined, engine.reporter)


def read_filtered_files(engine: Engine, job: FileJob[S], call_filter: Filter) -> list[S]:
    """Run a job on each file and return the results that the filter accepts.

    Raises:
        NotFound: no file belongs to the project or session in the filter.
    """
    return filter_files(engine.read(job)[0], call_filter)


def filter_files(results: Sequence[S], call_filter: Filter) -> list[S]:
    """Return the results of a job that the filter accepts.

    Raises:
        NotFound: no file belongs to the project or session in the filter.
    """
    matching = [result for result in results if call_filter.accepts_file(result.file, result.info)]
    if not matching:
        check_project(call_filter.project, [(result.file, result.info) for result in results])
        check_session(call_filter.session, (result.info for result in results))
    return matching


def explain_nothing(engine: Engine, call_filter: Filter, paths: Sequence[str | Path]) -> None:
    """Raise or warn like `explain_empty_result` if no call in these files passes the filter."""
    if not paths or call_filter == Filter():
        return
    from toolspan.archive.engine import TableEngine

    if isinstance(engine, TableEngine):
        named = set(map(str, paths))
        summaries = [file for file in engine.read(SCAN_JOB)[0] if file.file in named]
    else:
        summaries = list(scan_with_cache([to_path(path) for path in paths]))
    CallSelection(CallTable(summaries), is_joined=True, reporter=engine.reporter).filter_calls(call_filter)


class NoCalls:
    """The facts that explain why a filter accepts no call, without the calls."""

    def __init__(self, call_filter: Filter) -> None:
        self._filter = call_filter
        self._has_session = call_filter.session is None
        self._folders: dict[str | None, tuple[str, SessionInfo]] = {}
        """A file of each working folder."""
        self._tools: set[str] = set()
        self._agents: set[str] = set()
        self._times: list[str] = []
        """The times of the first and of the last call."""
        self._has_tool = self._has_time = self._has_rows = self._has_accepted = False

    def add(self, files: Iterable[FileFacts], rows: Sequence[CallRow], accepted: Sequence[CallRow]) -> None:
        """Add files, the calls in them that belong to the session of the filter, and those that the filter accepts."""
        call_filter = self._filter
        files = list(files)
        session = call_filter.session
        self._has_session = self._has_session or session is None or _has_session(session, (file.info for file in files))
        self._has_accepted = self._has_accepted or bool(accepted)
        self._has_rows = self._has_rows or bool(rows)
        if self._has_accepted:
            return
        if call_filter.project:
            self._folders |= {file.info.cwd: (file.file, file.info) for file in files}
        if call_filter.tool:
            self._tools.update(row.tool for row in rows if row.tool)
            self._has_tool = self._has_tool or any(call_filter.accepts_tool(row.tool) for row in rows)
        if call_filter.agent:
            self._agents.update(row.agent for row in rows if row.agent)
        if call_filter.since or call_filter.until:
            times = [time for row in rows if (time := row.requested or row.finished)]
            self._has_time = self._has_time or any(map(call_filter.accepts_time, times))
            self._times = [min(self._times + times), max(self._times + times)] if self._times or times else []

    def explain(self, reporter: Reporter) -> None:
        """Raise if a filter value does not occur, or warn if the period contains no calls.

        Raises:
            NotFound: the filter names a session, tool, project or agent that does not occur.
        """
        call_filter = self._filter
        if not self._has_session:
            raise NotFound(f"no session begins with {call_filter.session!r}")
        if self._has_accepted or not self._has_rows:
            return
        if call_filter.tool and not self._has_tool:
            raise_unknown("tool", call_filter.tool, self._tools)
        check_project(call_filter.project, [*self._folders.values()])
        if call_filter.agent and not any(agent.startswith(call_filter.agent) for agent in self._agents):
            raise_unknown("agent", [call_filter.agent], self._agents)
        if self._times and not self._has_time:
            first, last = (time[:10] for time in self._times)
            reporter.warn(f"no calls in this period; the transcripts have calls from {first} to {last}")


def check_project(name: str | None, files: Sequence[tuple[str, SessionInfo]]) -> None:
    """Check that a file or working folder contains the project's name. None is always accepted.

    Raises:
        NotFound: none does.
    """
    if name is not None and files and not any(in_project(name, file, info.cwd) for file, info in files):
        raise_unknown("project", [name], {info.cwd for _, info in files if info.cwd})


def raise_unknown(what: str, names: Sequence[str], known: Set[str]) -> NoReturn:
    """Raise `NotFound` with the most similar known names and their number."""
    from difflib import get_close_matches

    by_end: dict[str, list[str]] = {}  # several names may differ only in case, such as Bash and bash
    for name in sorted(known):
        by_end.setdefault(name.casefold().rpartition("/")[2], []).append(name)
    wanted = [name.casefold().rpartition("/")[2] for name in names]
    matches = [match for name in wanted for match in get_close_matches(name, by_end, n=3, cutoff=0.5)]
    near = [name for match in matches for name in by_end[match]]
    more = ", …" if len(known) > _MAX_EXAMPLES else ""
    hint = f": {', '.join(sorted(known)[:_MAX_EXAMPLES])}{more}" if known else ""
    if near:
        hint = f"; did you mean {' or '.join([*dict.fromkeys(near)][:_MAX_EXAMPLES])}?"
    plural = "" if len(known) == 1 else "s"
    raise NotFound(f"no {what} {' or '.join(map(repr, names))} among {len(known):,} {what}{plural}{hint}")


def choose_sessions(sessions: Sequence[SessionFiles[F]], call_filter: Filter) -> list[SessionFiles[F]]:
    """Return the sessions that the filters on sessions and on the period accept.

    Raises:
        NotFound: no session has the name in the filter.
    """
    prefix, file_filter = call_filter.session, call_filter.replace(session=None)
    named = sessions if prefix is None else sessions_named(sessions, prefix)
    if prefix is not None and not named:
        raise NotFound(f"no session begins with {prefix!r}")
    return filter_sessions(named, file_filter)


def filter_sessions(sessions: Iterable[SessionFiles[F]], call_filter: Filter) -> list[SessionFiles[F]]:
    """Return the sessions with a file that the filter accepts and a part in its period."""
    return [
        session
        for session in sessions
        if any(call_filter.accepts_file(file.file, file.info) for file in session.files)
        if session.overlaps(call_filter.since, call_filter.until)
    ]


def check_session(prefix: str | None, infos: Iterable[SessionInfo]) -> None:
    """Check that a session id begins with `prefix`. None is always accepted.

    Raises:
        NotFound: none does.
    """
    if prefix is not None and not _has_session(prefix, infos):
        raise NotFound(f"no session begins with {prefix!r}")


def _has_session(prefix: str, infos: Iterable[SessionInfo]) -> bool:
    return any(session_id.startswith(prefix) for info in infos for session_id in info.session_ids)
