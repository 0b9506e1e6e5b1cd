"""Transcripts read for the files they changed.

In: transcripts that were found. Out: archives, one per project, so that a large set is never in
memory at once; or one archive of all that has to do with one path. Read `archives` first.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.read.discover import FoundFile
from toolspan.read.transcript import Transcript, read
from toolspan.report.files.archive import FileArchive
from toolspan.report.files.change import FileChange
from toolspan.report.files.walk import Wants
from toolspan.wire.source import source_of

_PIECE = 1 << 20
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")

Advance = Callable[[int], None]
"""Told how many bytes were read."""
Problem = Callable[[str], None]
"""Told of a file that cannot be read."""


def archives(
    files: Sequence[FoundFile], advance: Advance, problem: Problem
) -> Iterator[FileArchive]:
    """One archive of changes per project; they do not know what the files held."""
    groups: dict[Path, list[FoundFile]] = {}
    for file in files:
        groups.setdefault(_project(file.path), []).append(file)
    for group in groups.values():
        yield FileArchive(list(_read(group, advance, problem)), contents=False)


def archive_about(
    files: Sequence[FoundFile], name: str, wants: Wants, advance: Advance, problem: Problem
) -> FileArchive:
    """One archive of the sessions in which a file's name is mentioned at all."""
    # Only this part of a name looks the same however the transcript's JSON is escaped.
    needle = max(_PLAIN.findall(name), key=len, default="").encode()
    sessions = {_session(file) for file in files if mentions(file, needle)}
    group = [file for file in files if _session(file) in sessions]
    transcripts = list(_read(group, advance, problem))
    sources = _sources(FileArchive(transcripts, contents=False).changes, wants)
    return FileArchive(transcripts, lambda path: path in sources or wants(path))


def _sources(changes: Sequence[FileChange], wants: Wants) -> set[str]:
    """The paths that wanted files were moved from; what they held is what was moved."""
    found: set[str] = set()
    for change in reversed(changes):
        if change.moved_from and (change.path in found or wants(change.path)):
            found.add(change.moved_from)
    return found


def mentions(file: FoundFile, needle: bytes) -> bool:
    """Whether a file has these bytes in it; a file that cannot be read has not."""
    if not needle:
        return True
    held = b""
    try:
        with source_of(file.path).open() as stream:
            while piece := stream.read(_PIECE):
                held += piece
                if needle in held:
                    return True
                held = held[-len(needle) :]
    except SourceError:
        return False
    return False


def _project(path: Path) -> Path:
    for folder in path.parents:
        if folder.name in ("projects", "sessions", "archived_sessions"):
            return folder / path.relative_to(folder).parts[0]
    return path.parent


def _session(file: FoundFile) -> str:
    return file.name.session_id or str(file.path)


def _read(files: Iterable[FoundFile], advance: Advance, problem: Problem) -> Iterator[Transcript]:
    for file in files:
        try:
            yield read(file.path)
        except SourceError as error:
            problem(str(error))
        advance(file.size)
