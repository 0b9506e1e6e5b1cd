"""Find the transcripts that a name stands for: a file, a folder, a URL, or the beginning of a session id.

A file is read alone and treated as complete. A folder or a session joins subagents, resumes and forks. Start at
`locate_files`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from os.path import realpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from toolspan.archive.reporter import SILENT, Reporter
from toolspan.errors import Ambiguous, NotFound, SourceError, UnknownFormat
from toolspan.formats.registry import foreign_file_problem, is_collection, parse_file_name
from toolspan.formats.source import COMPRESSED_SUFFIXES, is_member, is_remote, source_for_path, to_path
from toolspan.reading.discovery import (
    TranscriptFile,
    find_agents_by_content,
    find_all_transcripts,
    find_transcripts,
    has_working_folder,
    newest_first,
    owning_session,
)

if TYPE_CHECKING:
    from toolspan.reading.history import CallTable
    from toolspan.reading.lineage import SessionFiles
    from toolspan.reading.transcript import Transcript

_HEAD_BYTES = 1 << 16
_ID_PATTERN = re.compile(r"[0-9A-Fa-f-]+")
"""The characters allowed in session ids. A name with other characters is not searched for in files."""


def locate_files(
    names: Sequence[str], *, last: bool = False, allow_unknown: bool = False, reporter: Reporter = SILENT
) -> tuple[Sequence[TranscriptFile], bool]:
    """Return the named transcripts, or all of this user's if there are no names, and whether they are joined.

    `last` selects the most recently written session among them.
    """
    if last:
        return newest_session(names, reporter), True
    files = _find_files(names, reporter)
    paths = [to_path(name) for name in names]
    if not files:
        reporter.warn(f"{' and '.join(names) or 'your home folder'}: no transcripts there")
    alone = bool(paths) and all(path_exists(path) and not is_collection(path) for path in paths)
    for path in paths if alone and not allow_unknown else ():
        require_known_format(path)
    return files, not alone


def _find_files(names: Sequence[str], reporter: Reporter) -> Sequence[TranscriptFile]:
    if not names:
        return find_all_transcripts(problem=reporter.warn)
    if not all(names):
        raise NotFound("a name is empty; name a file, a folder or a session")
    paths = {name: to_path(name) for name in names}
    groups = [
        find_transcripts(paths[name], reporter.warn) if path_exists(paths[name]) else find_session_files(name)
        for name in names
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
    from toolspan.formats.registry import detect_client

    if detect_client(source_for_path(path)) == "unknown":
        raise UnknownFormat(foreign_file_problem(str(path)))


def path_exists(path: Path) -> bool:
    """Return whether a path exists, or False if no file system accepts the name.

    A URL counts as existing: it cannot be a session id, and reading it reports any problem.
    """
    try:
        return is_remote(path) or path.exists() or is_member(path)
    except (OSError, ValueError):
        return False


def is_folder(name: str) -> bool:
    """Return whether `name` is an existing folder or container, or False if no file system accepts the name."""
    try:
        return is_collection(to_path(name))
    except (OSError, ValueError):
        return False


def split_transcripts(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names of transcripts, folders and sessions, and the other ones, which are paths of changed files."""
    groups: tuple[list[str], list[str]] = ([], [])
    for name in names:
        groups[not _names_transcripts(name)].append(name)
    return groups


def _names_transcripts(name: str) -> bool:
    if name.endswith((".jsonl", *(f".jsonl{suffix}" for suffix in COMPRESSED_SUFFIXES))):
        return True
    if is_remote(name) or is_folder(name):
        return True
    if "/" in name or "." in name:
        return False
    try:
        find_session_files(name)
    except NotFound as error:
        return isinstance(error, Ambiguous)
    return True


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


def newest_session(names: Sequence[str] = (), reporter: Reporter = SILENT) -> list[TranscriptFile]:
    """Return the files of the session that was most recently written to, by itself or by a subagent."""
    files = _find_files(names, reporter)
    stems: set[str] | None = None

    def is_session(name: str | None, file: TranscriptFile) -> bool:
        nonlocal stems
        if file.name.role == "session" and file.name.stem == name:
            return True
        if stems is None:  # perf: needs much memory for very many files, and the newest one is usually a session
            stems = {other.name.stem for other in files if other.name.role == "session"}
        return name in stems

    for file in newest_first(files):
        if _is_unowned_agent(file):
            siblings = (sibling.name for sibling in files if sibling.path.parent == file.path.parent)
            session_ids = (name.stem for name in siblings if name.role == "session")
            owner = next((session for session in session_ids if mentions_session(file, session)), None)
        else:
            owner = owning_session(file)
            owner = owner if is_session(owner, file) else file.name.session_id
        if owner is not None and is_session(owner, file):
            return _session_members(files, owner)
    raise NotFound(f"{' and '.join(names) or 'your transcripts'}: no session there")


def newest_session_here() -> TranscriptFile:
    """Return the most recently written session in the current folder, from any client."""
    here = realpath(current_folder())
    sessions = [file for file in find_all_transcripts() if file.name.role == "session"]
    for file in newest_first(sessions):
        if has_working_folder(file, here):
            owner = owning_session(file)  # for a subagent, the session that started it
            return next((session for session in sessions if session.name.session_id == owner), file)
    raise NotFound("this folder has no session; name a file, a folder or a session (toolspan sessions lists them)")


def session_project(session: SessionFiles[Any]) -> str:
    """Return the working folder of a session, or the name of its project folder."""
    return session.cwd or parse_file_name(PurePath(session.file.file)).project or ""


def read_transcripts(paths: Iterable[Path], reporter: Reporter = SILENT) -> Iterator[Transcript]:
    """Yield the transcripts one by one, warning about those that cannot be read."""
    from toolspan.reading.transcript import read

    for path in paths:
        try:
            yield read(path)
        except SourceError as error:
            reporter.warn(error)


def transcripts_containing(
    text: str,
    files: Sequence[TranscriptFile],
    *,
    call: bool = False,
    reporter: Reporter = SILENT,
) -> Iterator[Transcript]:
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
    with reporter.progress(sum(file.size for file in files), "searching") as advance:
        for file in files:
            if file_mentions(file, needle):
                excerpt = read_excerpt(file.path, text) if call else None
                yield from read_transcripts([file.path], reporter) if excerpt is None else [excerpt]
            advance(file.size)
