"""The calls and sessions of an archive that a filter accepts, and the reason if it accepts none.

Start at `read_calls` and `CallSelection.filter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, TypeVar

from toolspan.archive.engine import Engine, FileResult, scan_with_cache
from toolspan.archive.filters import Filter, in_project
from toolspan.archive.reporter import Reporter
from toolspan.errors import NotFound
from toolspan.formats.source import to_path
from toolspan.reading.history import CallTable
from toolspan.reading.lineage import FileFacts, SessionFiles, sessions_named
from toolspan.reading.parallel import SCAN_JOB, FileJob, FileSummary
from toolspan.reading.rows import CallRow

if TYPE_CHECKING:
    from toolspan.reading.discovery import TranscriptFile
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

    def filter_calls(self, call_filter: Filter) -> list[CallRow]:
        """Return the calls that a filter accepts.

        Raises:
            NotFound: a name in the filter does not occur.
        """
        files = self.call_table.files
        check_session(call_filter.session, (file.info for file in files))
        infos = {file.file: file.info for file in files}
        rows = self.list_calls()
        if call_filter.session is not None and self.is_joined:
            session_ids = {session.id for session in sessions_named(self.call_table.sessions, call_filter.session)}
            rows = [row for row in rows if row.session in session_ids]
            call_filter = call_filter.replace(session=None)
        accepted = [row for row in rows if call_filter.accepts_call(row, infos.get(row.file))]
        if rows and not accepted:
            explain_empty_result(call_filter, rows, [(file.file, file.info) for file in files], self.reporter)
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


def mark_running(files: Iterable[FileSummary]) -> list[FileSummary]:
    """Return the files with the calls that are still running as `running`."""
    files = list(files)
    if not any(row.state == "never_answered" for file in files for row in file.calls):
        return files
    from toolspan.analysis.live_sessions import mark_running_rows  # perf: rarely needed

    return mark_running_rows(files)


def read_filtered_files(engine: Engine, job: FileJob[S], call_filter: Filter) -> list[S]:
    """Run a job on each file and return the results that the filter accepts.

    Raises:
        NotFound: no file belongs to the project or session in the filter.
    """
    results, _ = engine.read(job)
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


def explain_empty_result(
    call_filter: Filter, rows: Sequence[CallRow], files: Sequence[tuple[str, SessionInfo]], reporter: Reporter
) -> None:
    """Raise if a filter value does not occur, or warn if the period contains no calls.

    Raises:
        NotFound: the filter names a tool, project or agent that does not occur.
    """
    if call_filter.tool and not any(call_filter.accepts_tool(row.tool) for row in rows):
        _raise_unknown("tool", call_filter.tool, {row.tool for row in rows if row.tool})
    check_project(call_filter.project, files)
    agents = {row.agent for row in rows if row.agent}
    if call_filter.agent and not any(agent.startswith(call_filter.agent) for agent in agents):
        _raise_unknown("agent", [call_filter.agent], agents)
    times = sorted(filter(None, (row.requested or row.finished for row in rows)))
    if times and (call_filter.since or call_filter.until) and not any(map(call_filter.accepts_time, times)):
        reporter.warn(f"no calls in this period; the transcripts have calls from {times[0][:10]} to {times[-1][:10]}")


def check_project(name: str | None, files: Sequence[tuple[str, SessionInfo]]) -> None:
    """Check that a file or working folder contains the project's name. None is always accepted.

    Raises:
        NotFound: none does.
    """
    if name is not None and files and not any(in_project(name, file, info.cwd) for file, info in files):
        _raise_unknown("project", [name], {info.cwd for _, info in files if info.cwd})


def _raise_unknown(what: str, names: Sequence[str], known: Set[str]) -> NoReturn:
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
    return [
        session
        for session in named
        if any(file_filter.accepts_file(file.file, file.info) for file in session.files)
        if session.overlaps(call_filter.since, call_filter.until)
    ]


def check_session(prefix: str | None, infos: Iterable[SessionInfo]) -> None:
    """Check that a session id begins with `prefix`. None is always accepted.

    Raises:
        NotFound: none does.
    """
    ids = (session_id for info in infos for session_id in info.session_ids)
    if prefix is not None and not any(session_id.startswith(prefix) for session_id in ids):
        raise NotFound(f"no session begins with {prefix!r}")


def require_session(prefix: str | None, files: Sequence[TranscriptFile]) -> None:
    """Check like `check_session`, but read the files only if no file name matches."""
    if prefix is None or any((file.name.session_id or "").startswith(prefix) for file in files):
        return
    check_session(prefix, (summary.info for summary in scan_with_cache([file.path for file in files])))


def filter_by_project(name: str | None, files: Sequence[TranscriptFile]) -> list[TranscriptFile]:
    """Return the files that belong to a project, reading only those whose path does not show it."""
    if name is None:
        return list(files)
    unsure = [file.path for file in files if not in_project(name, str(file.path))]
    by_cwd = {summary.file for summary in scan_with_cache(unsure) if in_project(name, summary.file, summary.info.cwd)}
    others = set(map(str, unsure)) - by_cwd
    return [file for file in files if str(file.path) not in others]
