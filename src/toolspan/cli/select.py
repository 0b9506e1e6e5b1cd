"""What the words on a command line name: files, folders, sessions.

Files that are named are read alone and count as finished; a folder, or a session's id, joins
lineages and subagents. Filters are the same words in every command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from itertools import accumulate
from os.path import realpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import click

from toolspan.cli.output import combine_options, progress_bar, warn
from toolspan.errors import Ambiguous, NotFound, ToolspanError, UnknownDialect
from toolspan.formats.claude.paths import project_name
from toolspan.formats.paths import parse_file_name
from toolspan.formats.registry import FORMAT_NAMES, format_titles
from toolspan.reading.discovery import (
    TranscriptFile,
    find_agents_by_content,
    find_all_transcripts,
    find_transcripts,
    has_working_folder,
    owning_session,
)
from toolspan.types.error_kinds import ERROR_KINDS
from toolspan.types.span import is_within, parse_timestamp
from toolspan.types.state import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolspan.reading.cache import Cache
    from toolspan.reading.history import CallTable, SessionFiles
    from toolspan.reading.rows import CallRow
    from toolspan.reading.scan import FileSummary
    from toolspan.types.session import SessionInfo


_MAX_HINT_PATHS = 3
"""Names that a hint repeats."""

P = ParamSpec("P")
R = TypeVar("R")


class CallFilter(NamedTuple):
    """Which calls are wanted; None and empty mean any."""

    tool: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    project: str | None = None
    dialect: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    session: str | None = None
    agent: str | None = None

    def accepts_call(self, row: CallRow, cwd: str | None = None) -> bool:
        """Whether a call is wanted; `cwd` is the folder its session worked in."""
        return (
            self._matches_names(row)
            and (self.project is None or in_project(self.project, row.file, cwd))
            and (self.session is None or (row.session or "").startswith(self.session))
            and (self.agent is None or (row.agent or "").startswith(self.agent))
            and self._matches_time(row)
        )

    def accepts_file(self, file: str, info: SessionInfo) -> bool:
        """Whether a file is of a session that is wanted; what the calls must be is left aside."""
        if self.dialect not in (None, info.dialect):
            return False
        if self.project is not None and not in_project(self.project, file, info.cwd):
            return False
        prefix = self.session
        return prefix is None or any(session_id.startswith(prefix) for session_id in info.session_ids)

    def _matches_names(self, row: CallRow) -> bool:
        return (
            (not self.tool or (row.tool or "").casefold() in self.tool)
            and (not self.state or row.state in self.state)
            and (not self.error or (row.error_kind or "") in self.error)
            and (self.dialect in (None, row.dialect))
        )

    def _matches_time(self, row: CallRow) -> bool:
        return is_within(row.requested or row.finished, self.since, self.until)


def in_project(word: str, file: str, cwd: str | None = None) -> bool:
    """Whether a file belongs to a project: by its path, or by the working folder behind it."""
    return word in file or project_name(word) in file or (cwd is not None and word in cwd)


def make_filter(values: dict[str, Any]) -> CallFilter:
    """The filter that the options of a command line make."""
    return CallFilter(**{**values, "tool": tuple(tool.casefold() for tool in values["tool"])})


_AGE_PATTERN = re.compile(r"(\d+)\s*([smhdw])")
_AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    """A time on the command line: `7d`, `24h`, `2026-11-01`, or a full timestamp."""
    if text is None:
        return None
    ago = _AGE_PATTERN.fullmatch(text.strip())
    if ago:
        try:
            return datetime.now(UTC) - timedelta(**{_AGE_UNITS[ago[2]]: int(ago[1])})
        except (OverflowError, ValueError) as error:
            raise click.BadParameter(f"{text!r} is too long ago") from error
    parsed = parse_timestamp(text)
    if parsed is None:
        raise click.BadParameter(f"{text!r} is neither like 7d or 24h nor a date")
    return parsed


filter_options = combine_options(
    click.option("--tool", multiple=True, help="Only this tool (repeatable)."),
    click.option("--state", multiple=True, type=click.Choice(STATES), metavar="STATE",
                 help="Only calls that ended so (repeatable)."),
    click.option("--error", multiple=True, type=click.Choice(ERROR_KINDS), metavar="KIND",
                 help="Only this error kind (repeatable)."),
    click.option("--project", help="Only sessions whose file or folder has this in its path."),
    click.option("--dialect", type=click.Choice(FORMAT_NAMES),
                 help="Only this client's format."),
    click.option("--since", callback=parse_time, help="Not before: 7d, 24h, 2026-11-01."),
    click.option("--until", callback=parse_time, help="Before that time."),
    click.option("--session", help="Only the session whose id begins so."),
    click.option("--agent", help="Only the subagent whose id begins so."),
)  # fmt: skip
"""Adds the filter options to a command, which gets them as keywords."""


def names_argument(command: Callable[P, R]) -> Callable[P, R]:
    """Adds the words that name files, folders or sessions to a command."""
    return click.argument("names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]...")(
        command
    )


def limit_option(default: int, what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Adds a limit on what is shown to a command; programs get all, unless it is given."""
    option = click.option(
        "--limit", type=click.IntRange(min=0), help=f"{what} shown; 0 for all.  [default: {default}; all with --json]"
    )

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def with_limit(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs["limit"] is None:
                kwargs["limit"] = 0 if kwargs["as_json"] else default
            return command(*args, **kwargs)

        return option(with_limit)

    return decorate


def limit_note(visible_count: int, total: int, end: str = "last") -> str:
    """What to add to a count when a limit left some out; nothing when it did not."""
    return f", the {end} {visible_count} shown (--limit 0: all)" if visible_count < total else ""


def call_hint(names: Sequence[str]) -> str:
    """How to look at a call of what was named; a call is looked for in all of the user's files."""
    from shlex import quote

    paths = [name for name in names if path_exists(Path(name)) and name.isprintable()]
    quoted_paths = "".join(f" {quote(path)}" for path in paths[:_MAX_HINT_PATHS])
    more = " …" if len(paths) > _MAX_HINT_PATHS else ""
    return f"toolspan show CALL{quoted_paths}{more} tells one call in full."


class CallSelection(NamedTuple):
    """What was named, read."""

    call_table: CallTable
    is_joined: bool
    """Files were read as a set, not one by one."""

    def list_calls(self) -> Sequence[CallRow]:
        """The calls: each once and by time when joined, else file by file."""
        if self.is_joined:
            return sorted(self.call_table.calls, key=lambda row: row.requested or row.finished or "")
        return [row for file in self.call_table.files for row in file.calls]


def read_selection(names: Sequence[str], *, last: bool = False) -> CallSelection:
    """What the words name: files, folders, session ids; nothing means this user's transcripts.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    from toolspan.reading.history import CallTable

    files, joined = locate_files(names, last=last)
    with progress_bar(sum(file.size for file in files), "reading") as advance:
        ledger = CallTable(scan_with_cache([file.path for file in files], advance=advance))
    for file in ledger.files:
        if file.problem:
            if len(files) == 1:
                raise ToolspanError(file.problem)
            warn(file.problem)
    return CallSelection(ledger, joined)


_MIN_CACHED_BYTES = 4 << 20
"""Fewer bytes than this are read sooner than the cache could be asked."""


def cache_for(paths: Sequence[Path]) -> Cache | None:
    """This user's cache, where it could save time."""
    from toolspan.reading.cache import Cache, default_folder

    folder = default_folder()
    if folder is None or not any(size >= _MIN_CACHED_BYTES for size in accumulate(map(_file_size, paths))):
        return None
    return Cache(folder)


def scan_with_cache(paths: Sequence[Path], *, advance: Callable[[int], None] = lambda _: None) -> Iterator[FileSummary]:
    """The facts of files; what this user's cache knows is not read again."""
    from toolspan.reading.cache import cached_scan_files as ask
    from toolspan.reading.scan import scan_files

    cache = cache_for(paths)
    if cache is None:
        return scan_files(paths, advance=advance)
    return ask(paths, cache, advance=advance)


def require_session(word: str | None, files: Sequence[TranscriptFile]) -> None:
    """See to it that a session which a filter names is there; names of files tell nearly always.

    Raises:
        NotFound: no session begins so.
    """
    if word is None or any((file.name.session_id or "").startswith(word) for file in files):
        return
    check_session(word, (facts.info for facts in scan_with_cache([file.path for file in files])))


def check_session(word: str | None, infos: Iterable[SessionInfo]) -> None:
    """See to it that a session which a filter names is among some.

    Raises:
        NotFound: no session begins so.
    """
    if word is not None and not any(session_id.startswith(word) for info in infos for session_id in info.session_ids):
        raise NotFound(f"no session begins with {word!r}")


def filter_by_project(word: str | None, files: Sequence[TranscriptFile]) -> list[TranscriptFile]:
    """The files of a project; those are read whose path does not tell."""
    if word is None:
        return list(files)
    unsure = [file.path for file in files if not in_project(word, str(file.path))]
    by_cwd = {facts.file for facts in scan_with_cache(unsure) if in_project(word, facts.file, facts.info.cwd)}
    others = set(map(str, unsure)) - by_cwd
    return [file for file in files if str(file.path) not in others]


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def filter_calls(selection: CallSelection, call_filter: CallFilter) -> list[CallRow]:
    """The calls of a selection that a filter takes.

    Raises:
        NotFound: the filter names a session that is not there.
    """
    check_session(call_filter.session, (file.info for file in selection.call_table.files))
    folders = {file.file: file.info.cwd for file in selection.call_table.files}
    return [row for row in selection.list_calls() if call_filter.accepts_call(row, folders.get(row.file))]


def locate_files(
    names: Sequence[str], *, last: bool = False, allow_unknown: bool = False
) -> tuple[list[TranscriptFile], bool]:
    """The files the words name, and whether they are to be read as a set.

    Files of other clients or other kinds are refused, unless strangers are welcome.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    if last:
        return newest_session(names), True
    files = _find_files(names)
    paths = [Path(name) for name in names]
    alone = bool(paths) and all(_is_file(path) for path in paths)
    for path in paths if alone and not allow_unknown else ():
        require_known_format(path)
    return files, not alone


def _find_files(names: Sequence[str]) -> list[TranscriptFile]:
    """The files of everything that is named, each once; without a name, all of this user's.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    if not names:
        return find_all_transcripts()
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder or a session")
    if len(names) == 1:
        return _files_named(names[0])
    folder = lru_cache(1 << 12)(realpath)  # many files lie in few folders
    unique_files: dict[tuple[str, str], TranscriptFile] = {}
    for file in (file for name in names for file in _files_named(name)):
        unique_files.setdefault((folder(str(file.path.parent)), file.path.name), file)
    return list(unique_files.values())


def _files_named(name: str) -> list[TranscriptFile]:
    path = Path(name)
    return find_transcripts(path) if path_exists(path) else find_session_files(name)


def require_known_format(path: Path) -> None:
    """A file that is named should be one we can read.

    Raises:
        UnknownDialect: it is no transcript at all.
    """
    from toolspan.formats.detect import detect_dialect
    from toolspan.formats.source import source_for_path

    if detect_dialect(source_for_path(path)) == "unknown":
        raise UnknownDialect(f"{path}: not a transcript: no line is a record of {format_titles()}")


def _is_file(path: Path) -> bool:
    return path_exists(path) and not path.is_dir()


def path_exists(path: Path) -> bool:
    """Whether there is such a file or folder; of what no file system takes there is none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_folder(name: str) -> bool:
    """Whether there is a folder of that name."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def find_session_files(name: str, root: Path | None = None) -> list[TranscriptFile]:
    """The files of the session whose id begins with `name`: its own and its subagents'.

    Raises:
        NotFound: there is none, or more than one.
    """
    from toolspan.reading.history import match_prefix

    if "/" in name or name.endswith((".jsonl", ".zst")):
        raise NotFound(f"{name}: no such file or folder")
    everything = find_transcripts(root) if root else find_all_transcripts()
    session_ids = [file.name.session_id for file in everything if file.name.session_id]
    try:
        session = match_prefix(name, session_ids, "session", hint=_shorten_session_id)
    except Ambiguous:
        raise
    except NotFound:
        if inside := _find_recorded_session(name, everything):
            return inside
        raise
    return _session_members(everything, session)


def _shorten_session_id(session: str) -> str:
    return session[:13]


_ID_PATTERN = re.compile(r"[0-9A-Fa-f-]+")
"""What ids of clients are made of: no file is read for the sake of another word."""


def _find_recorded_session(name: str, files: Sequence[TranscriptFile]) -> list[TranscriptFile]:
    """The files of a session that no file is called after."""
    from toolspan.cli.read_selected import transcripts_containing
    from toolspan.reading.history import CallTable

    if not _ID_PATTERN.fullmatch(name):
        return []
    return files_of_session(name, CallTable.from_transcripts([*transcripts_containing(f'"{name}', files)]), files)


def files_of_session(name: str, ledger: CallTable, files: Sequence[TranscriptFile]) -> list[TranscriptFile]:
    """The files of the session that begins with a name, by what stands in them; maybe none.

    Raises:
        Ambiguous: several sessions begin so.
    """
    from toolspan.reading.history import match_prefix

    sessions = [candidate for candidate in ledger.sessions if candidate.id.startswith(name)]
    if not sessions:
        return []
    session = match_prefix(name, [candidate.id for candidate in sessions], "session", hint=_shorten_session_id)
    paths = {file.file for candidate in sessions if candidate.id == session for file in candidate.files}
    return [file for file in files if str(file.path) in paths]


def _session_members(files: Sequence[TranscriptFile], session: str) -> list[TranscriptFile]:
    """The files of a session among others."""
    members = [file for file in files if _is_session_file(file, session)]
    return members + find_agents_by_content(files, session)


def _is_session_file(file: TranscriptFile, session: str) -> bool:
    if file.name.session_id == session:
        return True
    return file.name.role == "agent" and file.name.session_id is None and _mentions_session(file, session)


def _mentions_session(file: TranscriptFile, session: str) -> bool:
    """Whether an old subagent file, which lies beside its session, names that session."""
    try:
        with file.path.open("rb") as stream:
            return session.encode() in stream.read(1 << 16)
    except OSError:
        return False


def newest_session(names: Sequence[str] = ()) -> list[TranscriptFile]:
    """The files of the session written to last, be it by a subagent.

    Raises:
        NotFound: there is no session at all, or something that is named does not exist.
    """
    everything = _find_files(names)
    sessions = {file.name.stem for file in everything if file.name.role == "session"}
    for file in sorted(everything, key=lambda file: -file.modified):
        owner = _owning_session(file, everything, sessions)
        if owner in sessions:
            return _session_members(everything, owner)
    raise NotFound(f"{' and '.join(names) or 'your transcripts'}: no session there")


def _owning_session(file: TranscriptFile, files: Sequence[TranscriptFile], sessions: Set[str]) -> str | None:
    """The session that a file belongs to."""
    if file.name.role == "agent" and file.name.session_id is None:
        siblings = (sibling for sibling in files if sibling.path.parent == file.path.parent)
        session_ids = (sibling.name.stem for sibling in siblings if sibling.name.role == "session")
        return next((session for session in session_ids if _mentions_session(file, session)), None)
    session = owning_session(file)
    return session if session in sessions else file.name.session_id


def current_folder() -> Path:
    """Where this command was started.

    Raises:
        NotFound: somebody has removed that folder since.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise NotFound("the current folder is gone; go to one that exists") from error


def newest_session_here() -> TranscriptFile | None:
    """The session of the current folder that was written to last, whichever client's.

    Raises:
        NotFound: the current folder is gone.
    """
    here = realpath(current_folder())
    sessions = [file for file in find_all_transcripts() if file.name.role == "session"]
    for file in sorted(sessions, key=lambda file: -file.modified):
        if has_working_folder(file, here):
            return file
    return None


def complete_session(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Session ids that begin with what was typed, for shell completion."""
    try:
        everything = find_all_transcripts()
    except ToolspanError:
        return []
    stems = [file.name.stem for file in everything if file.name.role == "session"]
    return [stem for stem in stems if stem.startswith(incomplete)]


def session_project(session: SessionFiles) -> str:
    """The project a session belongs to, as people know it: its working folder."""
    return session.file.info.cwd or parse_file_name(PurePath(session.file.file)).project or ""
