"""Find the files that a command names, read them on all cores, and select the calls that its filter accepts.

A file given on the command line is read alone and treated as complete. A folder or a session id joins subagents,
resumes and forks. Start at `locate_files` and `read_selection`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache, wraps
from itertools import chain
from os.path import realpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

import click

from toolspan.cli.filters import CallFilter, in_project
from toolspan.cli.output import format_count, progress_bar, warn
from toolspan.errors import Ambiguous, NotFound, SourceError, ToolspanError, UnknownDialect
from toolspan.formats.registry import foreign_file_problem, format_titles, parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, is_remote, source_for_path, to_path
from toolspan.reading.discovery import (
    TranscriptFile,
    find_agents_by_content,
    find_all_transcripts,
    find_transcripts,
    has_working_folder,
    owning_session,
    recency,
)

if TYPE_CHECKING:
    from toolspan.reading.cache import StampedFiles
    from toolspan.reading.history import CallTable
    from toolspan.reading.lineage import FileFacts, SessionFiles
    from toolspan.reading.parallel import FileJob, FileSummary
    from toolspan.reading.rows import CallRow
    from toolspan.reading.transcript import Transcript
    from toolspan.tables import Dataset
    from toolspan.types.session import SessionInfo


_HEAD_BYTES = 1 << 16
_MAX_EXAMPLES = 3
MIN_CACHED_BYTES = 4 << 20
"""The number of bytes below which reading is faster than opening the cache."""
_ID_PATTERN = re.compile(r"[0-9A-Fa-f-]+")
"""The characters allowed in session ids. A name with other characters is not searched for in files."""

R = TypeVar("R")


last_option = click.option("--last", is_flag=True, help="Read the session that was written to last.")


def complete_session(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the session ids that begin with `incomplete`, for shell completion."""
    try:
        files = find_all_transcripts()
    except ToolspanError:
        return []
    stems = [file.name.stem for file in files if file.name.role == "session"]
    return [stem for stem in stems if stem.startswith(incomplete)]


names_argument = click.argument("names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]...")


def tables_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--tables` to a command. Its names are then the sources of the tables."""

    @wraps(command)
    def with_tables(*args: Any, tables: Path | None, names: tuple[str, ...], **values: Any) -> R:
        if tables is not None:
            from toolspan.tables import Dataset

            if names or values.get("last") or values.get("live"):
                raise click.UsageError("--tables covers all transcripts in the tables; use filters instead of names")
            dataset = click.get_current_context().meta[_TABLES_KEY] = Dataset(tables)
            names = tuple(dataset.manifest.sources)
        return command(*args, names=names, **values)

    help_text = "Read tables written by `toolspan tables` instead of transcripts."
    return click.option("--tables", type=click.Path(path_type=Path), metavar="OUT", help=help_text)(with_tables)


_TABLES_KEY = "toolspan.tables"


def selected_tables() -> Dataset | None:
    """Return the tables that the user named with `--tables`."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_TABLES_KEY) if context else None


# Find files


def locate_files(
    names: Sequence[str], *, last: bool = False, allow_unknown: bool = False
) -> tuple[list[TranscriptFile], bool]:
    """Return the named transcripts, or all of this user's if there are no names, and whether they are joined.

    `last` selects the most recently written session among them.
    """
    if last:
        return newest_session(names), True
    files = _find_files(names)
    paths = [to_path(name) for name in names]
    if not files:
        warn(f"{' and '.join(names) or 'your home folder'}: no transcripts there")
    alone = bool(paths) and all(path_exists(path) and not path.is_dir() for path in paths)
    for path in paths if alone and not allow_unknown else ():
        require_known_format(path)
    return files, not alone


def _find_files(names: Sequence[str]) -> list[TranscriptFile]:
    if not names:
        return find_all_transcripts(problem=warn)
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder or a session")
    paths = {name: to_path(name) for name in names}
    groups = [
        find_transcripts(paths[name], warn) if path_exists(paths[name]) else find_session_files(name) for name in names
    ]
    if len(groups) == 1:
        return groups[0]
    folder = lru_cache(1 << 12)(realpath)  # many files share few folders
    unique_files: dict[tuple[str, str], TranscriptFile] = {}
    for file in chain.from_iterable(groups):
        parent = str(file.path.parent)
        unique_files.setdefault((parent if is_remote(parent) else folder(parent), file.path.name), file)
    return list(unique_files.values())


def require_known_format(path: Path) -> None:
    """Check that a file is a transcript in a known format."""
    from toolspan.formats.registry import detect_dialect

    if detect_dialect(source_for_path(path)) == "unknown":
        raise UnknownDialect(foreign_file_problem(str(path)))


def path_exists(path: Path) -> bool:
    """Return whether a path exists, or False if no file system accepts the name.

    A URL counts as existing: it cannot be a session id, and reading it reports any problem.
    """
    try:
        return is_remote(path) or path.exists()
    except (OSError, ValueError):
        return False


def is_folder(name: str) -> bool:
    """Return whether `name` is an existing folder, or False if no file system accepts the name."""
    try:
        return to_path(name).is_dir()
    except (OSError, ValueError):
        return False


def current_folder() -> Path:
    """Return the current folder. Raise NotFound if it no longer exists."""
    try:
        return Path.cwd()
    except OSError as error:
        raise NotFound("the current folder no longer exists; change to another one") from error


def find_session_files(name: str, root: Path | None = None) -> list[TranscriptFile]:
    """Return the files of the session whose id begins with `name`, including subagents' files."""
    if "/" in name or name.endswith((".jsonl", *COMPRESSED_SUFFIXES)):
        raise NotFound(f"{name}: no such file or folder")
    files = find_transcripts(root) if root else find_all_transcripts()
    try:
        session = match_session(name, [file.name.session_id for file in files if file.name.session_id])
    except Ambiguous:
        raise
    except NotFound:
        from toolspan.reading.history import CallTable

        if _ID_PATTERN.fullmatch(name):
            call_table = CallTable.from_transcripts([*transcripts_containing(f'"{name}', files)])
            if recorded := files_of_session(name, call_table, files):
                return recorded
        raise
    return _session_members(files, session)


def match_session(prefix: str, session_ids: Sequence[str]) -> str:
    """Return the session id that begins with `prefix`."""
    from toolspan.reading.history import match_prefix

    return match_prefix(prefix, session_ids, "session", hint=lambda session: session[:13])


def files_of_session(name: str, call_table: CallTable, files: Sequence[TranscriptFile]) -> list[TranscriptFile]:
    """Return the files whose records belong to the session whose id begins with `name`; may be empty."""
    sessions = [candidate for candidate in call_table.sessions if candidate.id.startswith(name)]
    if not sessions:
        return []
    session = match_session(name, [candidate.id for candidate in sessions])
    paths = {file.file for candidate in sessions if candidate.id == session for file in candidate.files}
    return [file for file in files if str(file.path) in paths]


def _session_members(files: Sequence[TranscriptFile], session: str) -> list[TranscriptFile]:
    members = [
        file
        for file in files
        if file.name.session_id == session or (_is_unowned_agent(file) and mentions_session(file, session))
    ]
    return members + find_agents_by_content(files, session)


def _is_unowned_agent(file: TranscriptFile) -> bool:
    """Return whether this is a subagent file from an old client, whose path does not contain the session."""
    return file.name.role == "agent" and file.name.session_id is None


def mentions_session(file: TranscriptFile, session: str) -> bool:
    """Return whether the beginning of a file contains a session id."""
    try:
        return session.encode() in source_for_path(file.path).read(0, _HEAD_BYTES)
    except SourceError:
        return False


def newest_session(names: Sequence[str] = ()) -> list[TranscriptFile]:
    """Return the files of the session that was most recently written to, by itself or by a subagent."""
    files = _find_files(names)
    sessions = {file.name.stem for file in files if file.name.role == "session"}
    for file in sorted(files, key=recency, reverse=True):
        if _is_unowned_agent(file):
            siblings = (sibling.name for sibling in files if sibling.path.parent == file.path.parent)
            session_ids = (name.stem for name in siblings if name.role == "session")
            owner = next((session for session in session_ids if mentions_session(file, session)), None)
        else:
            owner = owning_session(file)
            owner = owner if owner in sessions else file.name.session_id
        if owner in sessions:
            return _session_members(files, owner)
    raise NotFound(f"{' and '.join(names) or 'your transcripts'}: no session there")


def newest_session_here() -> TranscriptFile:
    """Return the most recently written session in the current folder, from any client."""
    here = realpath(current_folder())
    sessions = [file for file in find_all_transcripts() if file.name.role == "session"]
    for file in sorted(sessions, key=recency, reverse=True):
        if has_working_folder(file, here):
            owner = owning_session(file)  # for a subagent, the session that started it
            return next((session for session in sessions if session.name.session_id == owner), file)
    raise NotFound("this folder has no session; name a file, a folder or a session")


def session_project(session: SessionFiles[FileSummary]) -> str:
    """Return the working folder of a session, or the name of its project folder."""
    return session.cwd or parse_file_name(PurePath(session.file.file)).project or ""


# Read files


class _FileResult(Protocol):
    @property
    def problem(self) -> str | None: ...


class _SessionFileResult(_FileResult, Protocol):
    @property
    def file(self) -> str: ...

    @property
    def info(self) -> SessionInfo: ...


T = TypeVar("T", bound=_FileResult)
F = TypeVar("F", bound="FileFacts")
S = TypeVar("S", bound=_SessionFileResult)


class CallSelection(NamedTuple):
    """The calls in the named transcripts."""

    call_table: CallTable
    is_joined: bool
    """True if the files were read as a set rather than one by one."""

    def list_calls(self) -> Sequence[CallRow]:
        """Return the calls: each once and sorted by time if joined, otherwise file by file."""
        if self.is_joined:
            return sorted(self.call_table.calls, key=lambda row: row.requested or row.finished or "")
        return [row for file in self.call_table.files for row in file.calls]


def read_selection(names: Sequence[str], *, last: bool = False) -> CallSelection:
    """Read the calls in the named transcripts, or in all of this user's transcripts if there are no names."""
    from toolspan.reading.history import CallTable
    from toolspan.reading.parallel import SCAN_JOB

    results, joined = read_selected_files(names, SCAN_JOB, last=last)
    return CallSelection(CallTable(mark_running(results)), joined)


def mark_running(files: Iterable[FileSummary]) -> list[FileSummary]:
    """Return the files with the calls that are still running as `running`."""
    files = list(files)
    if not any(row.state == "never_answered" for file in files for row in file.calls):
        return files
    from toolspan.analysis.live_sessions import mark_running_rows  # perf: rarely needed

    return mark_running_rows(files)


def read_selected_files(names: Sequence[str], job: FileJob[T], *, last: bool = False) -> tuple[list[T], bool]:
    """Run a job on each named file. Return the results and whether the files are joined."""
    if (dataset := selected_tables()) is not None:
        from toolspan.tables.query import count_foreign_files, load_results

        results = _check_results(load_results(dataset, job))
        warn_about_skipped(count_foreign_files(dataset))
        return results, True
    files, joined = locate_files(names, last=last)
    return read_files(files, job), joined


def read_files(
    files: Sequence[TranscriptFile],
    job: FileJob[T],
    stamped: StampedFiles | None = None,
    process: Callable[[T], None] = lambda _: None,
) -> list[T]:
    """Run a job on each file, warning about files that cannot be read.

    `stamped` are the same files for the cache. `process` is called with each result while the next files are read.
    """
    results = []
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        for result in map_files([file.path for file in files], job, advance, stamped):
            process(result)
            results.append(result)
    if len(results) == 1 and results[0].problem:
        raise ToolspanError(results[0].problem)
    unread = [file for file, result in zip(files, results, strict=True) if result.problem]
    foreign = {foreign_file_problem(str(file.path)) for file in unread}
    transcripts = _check_results([result for result in results if result.problem not in foreign])
    warn_about_skipped(len(results) - len(transcripts))
    return transcripts


def _check_results(results: list[T]) -> list[T]:
    """Warn about files that could not be read."""
    for problem in filter(None, (result.problem for result in results)):
        warn(problem)
    return results


def warn_about_skipped(count: int) -> None:
    """Warn that files from other programs were skipped."""
    if count:
        verb = "is not a transcript" if count == 1 else "are not transcripts"
        warn(f"{format_count(count, 'file')} skipped: {'it' if count == 1 else 'they'} {verb} of {format_titles()}")


def read_filtered_files(names: Sequence[str], job: FileJob[S], call_filter: CallFilter, *, last: bool) -> list[S]:
    """Run a job on each named file and return the results that the filter accepts."""
    results, _ = read_selected_files(names, job, last=last)
    matching = [result for result in results if call_filter.accepts_file(result.file, result.info)]
    if not matching:
        check_project(call_filter.project, [(result.file, result.info) for result in results])
        check_session(call_filter.session, (result.info for result in results))
    return matching


def map_files(
    paths: Sequence[Path],
    job: FileJob[T],
    advance: Callable[[int], None] = lambda _: None,
    stamped: StampedFiles | None = None,
) -> Iterator[T]:
    """Yield the job's result for each file, in order. Results for unchanged files come from the cache."""
    from toolspan.reading.parallel import parallel_map

    size = 0
    for path in paths:
        if is_remote(path):
            size = MIN_CACHED_BYTES  # requests take longer than opening the cache
        else:
            with suppress(OSError):
                size += path.stat().st_size
        if size >= MIN_CACHED_BYTES:
            from toolspan.reading.cache import Cache, cached_map, default_folder

            if (folder := default_folder()) is not None:
                return cached_map(stamped or paths, job, Cache(folder), advance=advance)
            break
    return parallel_map(paths, job, advance=advance)


def scan_with_cache(paths: Sequence[Path]) -> Iterator[FileSummary]:
    """Yield the summary of each file, from the cache where possible."""
    from toolspan.reading.parallel import SCAN_JOB

    return map_files(paths, SCAN_JOB)


def filter_calls(selection: CallSelection, call_filter: CallFilter) -> list[CallRow]:
    """Return the calls in a selection that a filter accepts."""
    from toolspan.reading.lineage import sessions_named

    files = selection.call_table.files
    check_session(call_filter.session, (file.info for file in files))
    folders = {file.file: file.info.cwd for file in files}
    rows = selection.list_calls()
    if call_filter.session is not None and selection.is_joined:
        session_ids = {session.id for session in sessions_named(selection.call_table.sessions, call_filter.session)}
        rows = [row for row in rows if row.session in session_ids]
        call_filter = call_filter._replace(session=None)
    accepted = [row for row in rows if call_filter.accepts_call(row, folders.get(row.file))]
    if rows and not accepted:
        explain_empty_result(call_filter, rows, [(file.file, file.info) for file in files])
    return accepted


def explain_nothing(call_filter: CallFilter, paths: Sequence[str | Path]) -> None:
    """Raise or warn like `explain_empty_result` if no call in these files passes the filter."""
    from toolspan.reading.history import CallTable

    if paths and call_filter != CallFilter():
        if (dataset := selected_tables()) is not None:
            from toolspan.reading.parallel import SCAN_JOB
            from toolspan.tables.query import load_results

            named = set(map(str, paths))
            call_table = CallTable([file for file in load_results(dataset, SCAN_JOB) if file.file in named])
        else:
            call_table = CallTable(scan_with_cache([to_path(path) for path in paths]))
        filter_calls(CallSelection(call_table, is_joined=True), call_filter)


def explain_empty_result(
    call_filter: CallFilter, rows: Sequence[CallRow], files: Sequence[tuple[str, SessionInfo]]
) -> None:
    """Raise if a filter value does not occur, or warn if the period contains no calls."""
    if call_filter.tool and not any(call_filter.accepts_tool(row.tool) for row in rows):
        _raise_unknown("tool", call_filter.tool, {row.tool for row in rows if row.tool})
    check_project(call_filter.project, files)
    agents = {row.agent for row in rows if row.agent}
    if call_filter.agent and not any(agent.startswith(call_filter.agent) for agent in agents):
        _raise_unknown("agent", [call_filter.agent], agents)
    times = sorted(filter(None, (row.requested or row.finished for row in rows)))
    if times and (call_filter.since or call_filter.until) and not any(map(call_filter.accepts_time, times)):
        warn(f"no calls in this period; the transcripts have calls from {times[0][:10]} to {times[-1][:10]}")


def check_project(name: str | None, files: Sequence[tuple[str, SessionInfo]]) -> None:
    """Check that a file or working folder contains the project's name. None is always accepted."""
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
    raise NotFound(f"no {what} {' or '.join(map(repr, names))} among {format_count(len(known), what)}{hint}")


def filter_sessions(
    selection: CallSelection, call_filter: CallFilter, rows: Sequence[CallRow] | None = None
) -> list[SessionFiles[FileSummary]]:
    """Return the sessions in a selection that a filter accepts.

    A filter on a period accepts the sessions that overlap it. Other filters on calls accept the sessions of `rows`.
    """
    sessions = choose_sessions(selection.call_table.sessions, call_filter)
    if rows is None or not call_filter._replace(since=None, until=None).selects_calls:
        return sessions
    files = {row.file for row in rows}
    return [session for session in sessions if any(file.file in files for file in session.files)]


def choose_sessions(sessions: Sequence[SessionFiles[F]], call_filter: CallFilter) -> list[SessionFiles[F]]:
    """Return the sessions that the session, project, client and period of a filter accept."""
    from toolspan.reading.lineage import sessions_named

    prefix, file_filter = call_filter.session, call_filter._replace(session=None)
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
    """Check that a session id begins with `prefix`. None is always accepted."""
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


def read_transcripts(paths: Iterable[Path]) -> Iterator[Transcript]:
    """Yield the transcripts one by one, warning about those that cannot be read."""
    from toolspan.reading.transcript import read

    for path in paths:
        try:
            yield read(path)
        except SourceError as error:
            warn(error)


def transcripts_containing(text: str, files: Sequence[TranscriptFile], *, call: bool = False) -> Iterator[Transcript]:
    """Yield the transcripts whose bytes contain `text`. A single file is always read.

    If `text` is the beginning of a call's id, large files are read only around that `call`.
    """
    from toolspan.analysis.file_history.archive import file_mentions
    from toolspan.reading.excerpt import read_excerpt
    from toolspan.reading.transcript import read

    if len(files) == 1:
        yield (read_excerpt(files[0].path, text) if call else None) or read(files[0].path)
        return
    needle = text.encode("utf-8", "replace")
    with progress_bar(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if file_mentions(file, needle):
                excerpt = read_excerpt(file.path, text) if call else None
                yield from read_transcripts([file.path]) if excerpt is None else [excerpt]
            advance(file.size)
