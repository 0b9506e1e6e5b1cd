"""What the words on a command line name: files, folders, sessions.

Files that are named are read alone and count as finished; a folder, or a session's id, joins
lineages and subagents. Filters are the same words in every command.
"""

import re
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from itertools import accumulate
from os.path import realpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import click

from toolspan.cli.options import options
from toolspan.cli.output import complain, progress
from toolspan.errors import Ambiguous, NotFound, ToolspanError, UnknownDialect
from toolspan.model.kind import ERROR_KINDS
from toolspan.model.span import moment, within
from toolspan.model.state import STATES
from toolspan.read.discover import (
    FoundFile,
    discover,
    discover_all,
    rollout_agents,
    session_of_rollout,
    worked_in,
)
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.paths import NAME_LIMIT, parse_name, project_name

if TYPE_CHECKING:  # the reader is slow to import, and a search begins before it is needed
    from collections.abc import Iterable, Iterator

    from toolspan.index.cache import Cache
    from toolspan.model.session import SessionInfo
    from toolspan.read.facts import CallFacts
    from toolspan.read.history import Ledger, SessionFacts
    from toolspan.read.survey import FileFacts

_NAMED = 3
"""Names that a hint repeats."""

P = ParamSpec("P")
R = TypeVar("R")


class Filter(NamedTuple):
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

    def takes(self, row: "CallFacts", cwd: str | None = None) -> bool:
        """Whether a call is wanted; `cwd` is the folder its session worked in."""
        return (
            self._names(row)
            and (self.project is None or in_project(self.project, row.file, cwd))
            and (self.session is None or (row.session or "").startswith(self.session))
            and (self.agent is None or (row.agent or "").startswith(self.agent))
            and self._times(row)
        )

    def takes_file(self, file: str, info: "SessionInfo") -> bool:
        """Whether a file is of a session that is wanted; what the calls must be is left aside."""
        if self.dialect not in (None, info.dialect):
            return False
        if self.project is not None and not in_project(self.project, file, info.cwd):
            return False
        wanted = self.session
        return wanted is None or any(one.startswith(wanted) for one in info.session_ids)

    def _names(self, row: "CallFacts") -> bool:
        return (
            (not self.tool or (row.tool or "").casefold() in self.tool)
            and (not self.state or row.state in self.state)
            and (not self.error or (row.error_kind or "") in self.error)
            and (self.dialect in (None, row.dialect))
        )

    def _times(self, row: "CallFacts") -> bool:
        return within(row.requested or row.finished, self.since, self.until)


def in_project(word: str, file: str, cwd: str | None = None) -> bool:
    """Whether a file belongs to a project: by its path, or by the working folder behind it."""
    return word in file or project_name(word) in file or (cwd is not None and word in cwd)


def wanted_filter(words: dict[str, Any]) -> Filter:
    """The filter that the options of a command line make."""
    return Filter(**{**words, "tool": tuple(tool.casefold() for tool in words["tool"])})


_AGO = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def when(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    """A time on the command line: `7d`, `24h`, `2026-11-01`, or a full timestamp."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago:
        try:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except (OverflowError, ValueError) as error:
            raise click.BadParameter(f"{text!r} is too long ago") from error
    found = moment(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is neither like 7d or 24h nor a date")
    return found


filters = options(
    click.option("--tool", multiple=True, help="Only this tool (repeatable)."),
    click.option("--state", multiple=True, type=click.Choice(STATES), metavar="STATE",
                 help="Only calls that ended so (repeatable)."),
    click.option("--error", multiple=True, type=click.Choice(ERROR_KINDS), metavar="KIND",
                 help="Only this error kind (repeatable)."),
    click.option("--project", help="Only sessions whose file or folder has this in its path."),
    click.option("--dialect", type=click.Choice(["claude", "codex"]),
                 help="Only this client's format."),
    click.option("--since", callback=when, help="Not before: 7d, 24h, 2026-11-01."),
    click.option("--until", callback=when, help="Before that time."),
    click.option("--session", help="Only the session whose id begins so."),
    click.option("--agent", help="Only the subagent whose id begins so."),
)  # fmt: skip
"""Adds the filter options to a command, which gets them as keywords."""


def named(command: Callable[P, R]) -> Callable[P, R]:
    """Adds the words that name files, folders or sessions to a command."""
    return click.argument(
        "names", nargs=-1, shell_complete=complete_session, metavar="[FILE|FOLDER|SESSION]..."
    )(command)


def limited(default: int, what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Adds a limit on what is shown to a command; programs get all, unless it is given."""
    option = click.option(
        "--limit",
        type=click.IntRange(min=0),
        help=f"{what} shown; 0 for all.  [default: {default}; all with --json]",
    )

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @wraps(command)
        def with_limit(*args: P.args, **words: P.kwargs) -> R:
            if words["limit"] is None:
                words["limit"] = 0 if words["as_json"] else default
            return command(*args, **words)

        return option(with_limit)

    return decorate


def limit_note(shown: int, all_of_them: int, end: str = "last") -> str:
    """What to add to a count when a limit left some out; nothing when it did not."""
    return f", the {end} {shown} shown (--limit 0: all)" if shown < all_of_them else ""


def call_hint(names: Sequence[str]) -> str:
    """How to look at a call of what was named; a call is looked for in all of the user's files."""
    from shlex import quote

    paths = [name for name in names if exists(Path(name)) and name.isprintable()]
    shown = "".join(f" {quote(path)}" for path in paths[:_NAMED])
    more = " …" if len(paths) > _NAMED else ""
    return f"toolspan show CALL{shown}{more} tells one call in full."


class Selection(NamedTuple):
    """What was named, read."""

    ledger: "Ledger"
    joined: bool
    """Files were read as a set, not one by one."""

    def calls(self) -> "Sequence[CallFacts]":
        """The calls: each once and by time when joined, else file by file."""
        if self.joined:
            return sorted(self.ledger.calls, key=lambda row: row.requested or row.finished or "")
        return [row for file in self.ledger.files for row in file.calls]


def select(names: Sequence[str], *, last: bool = False) -> Selection:
    """What the words name: files, folders, session ids; nothing means this user's transcripts.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    from toolspan.read.history import Ledger

    files, joined = locate(names, last=last)
    with progress(sum(file.size for file in files), "reading") as advance:
        ledger = Ledger(surveyed([file.path for file in files], advance=advance))
    for file in ledger.files:
        if file.problem:
            if len(files) == 1:
                raise ToolspanError(file.problem)
            complain(file.problem)
    return Selection(ledger, joined)


_ASK = 4 << 20
"""Fewer bytes than this are read sooner than the cache could be asked."""


def cache_for(paths: Sequence[Path]) -> "Cache | None":
    """This user's cache, where it could save time."""
    from toolspan.index.cache import Cache, default_folder

    folder = default_folder()
    if folder is None or not any(size >= _ASK for size in accumulate(map(_size, paths))):
        return None
    return Cache(folder)


def surveyed(
    paths: Sequence[Path],
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> "Iterator[FileFacts]":
    """The facts of files; what this user's cache knows is not read again."""
    from toolspan.index.survey import survey as ask
    from toolspan.read.survey import survey

    cache = cache_for(paths)
    if cache is None:
        return survey(paths, advance=advance)
    return ask(paths, cache, advance=advance)


def require_session(word: str | None, files: Sequence[FoundFile]) -> None:
    """See to it that a session which a filter names is there; names of files tell nearly always.

    Raises:
        NotFound: no session begins so.
    """
    if word is None or any((file.name.session_id or "").startswith(word) for file in files):
        return
    check_session(word, (one.info for one in surveyed([file.path for file in files])))


def check_session(word: str | None, infos: "Iterable[SessionInfo]") -> None:
    """See to it that a session which a filter names is among some.

    Raises:
        NotFound: no session begins so.
    """
    if word is not None and not any(
        one.startswith(word) for info in infos for one in info.session_ids
    ):
        raise NotFound(f"no session begins with {word!r}")


def of_project(word: str | None, files: Sequence[FoundFile]) -> list[FoundFile]:
    """The files of a project; those are read whose path does not tell."""
    if word is None:
        return list(files)
    unsure = [file.path for file in files if not in_project(word, str(file.path))]
    by_cwd = {one.file for one in surveyed(unsure) if in_project(word, one.file, one.info.cwd)}
    others = set(map(str, unsure)) - by_cwd
    return [file for file in files if str(file.path) not in others]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def narrow(found: Selection, keep: Filter) -> "list[CallFacts]":
    """The calls of a selection that a filter takes.

    Raises:
        NotFound: the filter names a session that is not there.
    """
    check_session(keep.session, (file.info for file in found.ledger.files))
    folders = {file.file: file.info.cwd for file in found.ledger.files}
    return [row for row in found.calls() if keep.takes(row, folders.get(row.file))]


def locate(
    names: Sequence[str], *, last: bool = False, strangers: bool = False
) -> tuple[list[FoundFile], bool]:
    """The files the words name, and whether they are to be read as a set.

    Files of other clients or other kinds are refused, unless strangers are welcome.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    if last:
        return newest_session(names), True
    found = _files_of(names)
    paths = [Path(name) for name in names]
    alone = bool(paths) and all(_is_file(path) for path in paths)
    for path in paths if alone and not strangers else ():
        refuse_strangers(path)
    return found, not alone


def _files_of(names: Sequence[str]) -> list[FoundFile]:
    """The files of everything that is named, each once; without a name, all of this user's.

    Raises:
        ToolspanError: something does not exist, or could be several things.
    """
    if not names:
        return discover_all()
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder or a session")
    if len(names) == 1:
        return _named_by(names[0])
    folder = lru_cache(1 << 12)(realpath)  # many files lie in few folders
    found: dict[tuple[str, str], FoundFile] = {}
    for file in (file for name in names for file in _named_by(name)):
        found.setdefault((folder(str(file.path.parent)), file.path.name), file)
    return list(found.values())


def _named_by(name: str) -> list[FoundFile]:
    path = Path(name)
    return discover(path) if exists(path) else session_files(name)


def refuse_strangers(path: Path) -> None:
    """A file that is named should be one we can read.

    Raises:
        UnknownDialect: it is no transcript at all.
    """
    from toolspan.wire.detect import dialect_of
    from toolspan.wire.source import source_of

    if dialect_of(source_of(path)) == "unknown":
        raise UnknownDialect(
            f"{path}: not a transcript: no line is a record of Claude Code or Codex"
        )


def _is_file(path: Path) -> bool:
    return exists(path) and not path.is_dir()


def exists(path: Path) -> bool:
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


def session_files(name: str, root: Path | None = None) -> list[FoundFile]:
    """The files of the session whose id begins with `name`: its own and its subagents'.

    Raises:
        NotFound: there is none, or more than one.
    """
    from toolspan.read.history import pick

    if "/" in name or name.endswith((".jsonl", ".zst")):
        raise NotFound(f"{name}: no such file or folder")
    everything = discover(root) if root else discover_all()
    known = [file.name.session_id for file in everything if file.name.session_id]
    try:
        session = pick(name, known, "session", hint=_hint)
    except Ambiguous:
        raise
    except NotFound:
        if inside := _told_inside(name, everything):
            return inside
        raise
    return _members(everything, session)


def _hint(session: str) -> str:
    return session[:13]


_ID = re.compile(r"[0-9A-Fa-f-]+")
"""What ids of clients are made of: no file is read for the sake of another word."""


def _told_inside(name: str, files: Sequence[FoundFile]) -> list[FoundFile]:
    """The files of a session that no file is called after."""
    from toolspan.cli.reading import mentioning
    from toolspan.read.history import Ledger

    if not _ID.fullmatch(name):
        return []
    return of_session(name, Ledger.of([*mentioning(f'"{name}', files)]), files)


def of_session(name: str, ledger: "Ledger", files: Sequence[FoundFile]) -> list[FoundFile]:
    """The files of the session that begins with a name, by what stands in them; maybe none.

    Raises:
        Ambiguous: several sessions begin so.
    """
    from toolspan.read.history import pick

    found = [one for one in ledger.sessions if one.id.startswith(name)]
    if not found:
        return []
    session = pick(name, [one.id for one in found], "session", hint=_hint)
    own = {file.file for one in found if one.id == session for file in one.files}
    return [file for file in files if str(file.path) in own]


def _members(files: Sequence[FoundFile], session: str) -> list[FoundFile]:
    """The files of a session among others."""
    own = [file for file in files if _belongs(file, session)]
    if any(is_rollout(file.path.name) for file in own):
        own += rollout_agents(files, session)
    return own


def _belongs(file: FoundFile, session: str) -> bool:
    if file.name.session_id == session:
        return True
    return file.name.role == "agent" and file.name.session_id is None and _names(file, session)


def _names(file: FoundFile, session: str) -> bool:
    """Whether an old subagent file, which lies beside its session, names that session."""
    try:
        with file.path.open("rb") as stream:
            return session.encode() in stream.read(1 << 16)
    except OSError:
        return False


def newest_session(names: Sequence[str] = ()) -> list[FoundFile]:
    """The files of the session written to last, be it by a subagent.

    Raises:
        NotFound: there is no session at all, or something that is named does not exist.
    """
    everything = _files_of(names)
    sessions = {file.name.stem for file in everything if file.name.role == "session"}
    for file in sorted(everything, key=lambda file: -file.modified):
        owner = _owner(file, everything, sessions)
        if owner in sessions:
            return _members(everything, owner)
    raise NotFound(f"{' and '.join(names) or 'your transcripts'}: no session there")


def _owner(file: FoundFile, files: Sequence[FoundFile], sessions: Set[str]) -> str | None:
    """The session that a file belongs to."""
    if file.name.role == "agent" and file.name.session_id is None:
        beside = (one for one in files if one.path.parent == file.path.parent)
        own = (one.name.stem for one in beside if one.name.role == "session")
        return next((session for session in own if _names(file, session)), None)
    told = session_of_rollout(file) if is_rollout(file.path.name) else None
    return told if told in sessions else file.name.session_id


def current_folder() -> Path:
    """Where this command was started.

    Raises:
        NotFound: somebody has removed that folder since.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise NotFound("the current folder is gone; go to one that exists") from error


def newest_here() -> FoundFile | None:
    """The session of the current folder that was written to last, whichever client's.

    Raises:
        NotFound: the current folder is gone.
    """
    here = realpath(current_folder())
    name = project_name(here)
    sessions = [file for file in discover_all() if file.name.role == "session"]
    for file in sorted(sessions, key=lambda file: -file.modified):
        rollout = is_rollout(file.path.name)
        if worked_in(file, here) if rollout else _is_project(file.name.project or "", name):
            return file
    return None


def _is_project(folder: str, name: str) -> bool:
    """Very long names are cut and end in a hash."""
    return folder == name or (len(name) == NAME_LIMIT and folder.startswith(f"{name}-"))


def complete_session(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Session ids that begin with what was typed, for shell completion."""
    try:
        everything = discover_all()
    except ToolspanError:
        return []
    stems = [file.name.stem for file in everything if file.name.role == "session"]
    return [stem for stem in stems if stem.startswith(incomplete)]


def project_of(session: "SessionFacts") -> str:
    """The project a session belongs to, as people know it: its working folder."""
    return session.file.info.cwd or parse_name(PurePath(session.file.file)).project or ""
