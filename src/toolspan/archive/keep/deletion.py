"""Sessions that can be deleted because an archive has them, and files whose session is gone.

Nothing is deleted but the files of a `Deletable`, and of these only what has not changed since it was examined. Start
at `find_deletable`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Literal

from msgspec import Struct

from toolspan.analysis.live_sessions import live_sessions
from toolspan.archive.engine import FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.keep.kept import KeepSource, KeptArchive, find_sources
from toolspan.archive.keep.store import Store
from toolspan.archive.sessions import list_sessions
from toolspan.errors import ToolspanError
from toolspan.formats.registry import format_of_path, get_format
from toolspan.formats.source import is_member, is_remote
from toolspan.formats.zstd import ZstdError

_PIECE = 1 << 20
_MIN_AGE_SECONDS = 24 * 3600.0
"""The time since the last change of any of its files after which a session is surely not in use."""

_Status = tuple[int, int, int, int]


class DeletableFile(Struct, frozen=True):
    """A file, and how it was when it was examined."""

    path: str
    size: int
    status: _Status


class Deletable(Struct, frozen=True, kw_only=True):
    """A session, or one of its files or folders, that can be deleted."""

    name: str
    """The id of the session, or the path of what is orphaned."""
    title: str | None
    reason: Literal["kept", "orphaned"]
    """`kept` if an archive has each file; `orphaned` if the session's transcript is gone."""
    files: tuple[DeletableFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)

    def delete(self) -> None:
        """Delete the files, transcripts last, and folders that become empty.

        Raises:
            ToolspanError: a file has changed since it was examined, or cannot be deleted. The rest is not deleted.
        """
        for file in self.files:
            if _read_status(file.path) != file.status:
                raise ToolspanError(f"{file.path}: the file has changed, so nothing of {self.name} was deleted")
        folders: set[Path] = set()
        for file in reversed(self.files):
            try:
                os.unlink(file.path)  # noqa: PTH108 - the path is that of the note
            except OSError as error:
                raise ToolspanError(f"{file.path}: {error.strerror or error}") from error
            folders.add(Path(file.path).parent)
        for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
            names = {self.name, Path(self.name).name}
            while names & set(folder.parts):  # only folders of the session
                try:
                    folder.rmdir()
                except OSError:  # not empty
                    break
                folder = folder.parent  # noqa: PLW2901


def find_deletable(
    engine: FileEngine, call_filter: Filter, kept: KeptArchive, *, verify: bool = True
) -> list[Deletable]:
    """Return the sessions that an archive has, and orphaned files if there is no filter.

    A session is left out if one of its files is not in the archive, is not a regular file or changed in the last day,
    or if it is in progress. With `verify`, all contents are compared; otherwise only sizes and times.
    """
    sources = find_sources()
    in_progress = {session.id for session in live_sessions()}
    deletable: list[Deletable] = []
    seen: set[str] = set()
    if kept.exists:
        with closing(kept.open_store()) as store:
            for row in list_sessions(engine, call_filter):
                paths = list(_session_paths(row.files)) if row.id not in in_progress else []
                files = _examine(paths)
                if (
                    seen.isdisjoint(paths)
                    and files
                    and all(_is_kept(store, sources, file, verify=verify) for file in files)
                ):
                    seen.update(paths)
                    deletable.append(Deletable(name=row.id, title=row.about, reason="kept", files=tuple(files)))
    if call_filter == Filter() and not engine.names:
        for source in sources:
            for path in get_format(source.client).orphaned_side_paths(source.path):
                files = _examine(list(_iter_paths(path)))
                if files and not any(session in path.name for session in in_progress):
                    deletable.append(Deletable(name=str(path), title=None, reason="orphaned", files=tuple(files)))
    return deletable


def _session_paths(transcripts: Sequence[str]) -> Iterator[str]:
    """Yield the transcripts and then the other files of a session; nothing if it is not in files of its own."""
    if any(is_remote(name) or is_member(name) for name in transcripts):
        return
    yield from transcripts
    for name in transcripts:
        for side in format_of_path(name).side_paths(Path(name)):
            yield from _iter_paths(side)


def _iter_paths(path: Path) -> Iterator[str]:
    if path.is_symlink() or not path.is_dir():
        yield str(path)
        return
    for folder, folders, names in os.walk(path):
        yield from (f"{folder}{os.sep}{name}" for name in sorted(names))
        yield from (f"{folder}{os.sep}{name}" for name in folders if os.path.islink(f"{folder}{os.sep}{name}"))  # noqa: PTH114


def _examine(paths: Sequence[str]) -> list[DeletableFile]:
    """Return the files, or none of them if one is not a regular file or was changed recently."""
    files: list[DeletableFile] = []
    for path in dict.fromkeys(paths):
        status = _read_status(path)
        if status is None or not status[1] or time.time() - status[3] / 1e9 < _MIN_AGE_SECONDS:
            return []
        files.append(DeletableFile(path, status[2], status))
    return files


def _read_status(path: str) -> _Status | None:
    """Return inode, whether it is a regular file, size and time of change."""
    with suppress(OSError):
        status = os.lstat(path)
        return (status.st_ino, int(stat.S_ISREG(status.st_mode)), status.st_size, status.st_mtime_ns)
    return None


def _digest(stream: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    return digest.digest()


def _is_kept(store: Store, sources: Sequence[KeepSource], file: DeletableFile, *, verify: bool) -> bool:
    path = Path(file.path)
    source = next((source for source in sources if path.is_relative_to(source.path)), None)
    if source is None:
        return False
    note = store.find(f"{source.client}/{source.place}/{path.relative_to(source.path)}")
    if note is None or note.size != file.size:
        return False
    if not verify:
        return (note.source, note.source_mtime) == (file.path, file.status[3])
    try:
        with store.open(note) as kept, path.open("rb") as present:
            return _digest(kept) == _digest(present) == note.sha256
    except (OSError, EOFError, ZstdError):
        return False
