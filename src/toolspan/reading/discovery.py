"""Find transcripts in the clients' own folders, or below any given folder or URL.

Links to folders are not followed, so that a hostile archive cannot lead outside its folder. A file is opened
only if it belongs to a subagent and its name does not identify the session.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple, cast

from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.formats.base import FileName
from toolspan.formats.claude.paths import HOOK_LOG_NAME, hook_log_path_str, meta_path
from toolspan.formats.registry import all_formats, format_of_path, is_inside_folder, parse_file_name
from toolspan.formats.remote import RemotePath
from toolspan.formats.source import COMPRESSED_SUFFIXES, Source, source_for_path
from toolspan.types.span import parse_timestamp

_TRANSCRIPT_SUFFIXES = tuple(f"{name}{packed}" for name in (".jsonl", ".json") for packed in ("", *COMPRESSED_SUFFIXES))


ProblemCallback = Callable[[str], None]
ListingErrorCallback = Callable[[str, OSError], None]


class TranscriptFile(Struct, frozen=True, kw_only=True):
    """The path, size and modification time of a transcript, which may be an object in a store."""

    path: Path
    name: FileName
    size: int
    modified: float
    status: os.stat_result | None = None
    """The status of a local file found in a folder; None for other files."""
    may_have_hook_log: bool = True
    """See `FolderEntry`."""


class FolderEntry(NamedTuple):
    """A transcript in a local folder. perf: listing many files takes half the time without a `Path` of each."""

    path: str
    name: FileName
    status: os.stat_result
    may_have_hook_log: bool
    """False if the listing shows that the folder for the file's hook log does not exist."""


_TAIL_BYTES = 1 << 13
_PART_BYTES = 1 << 20
_MAX_TIMES = 100
_CLOCK_TOLERANCE = 86_400
_RECORD_TIME = re.compile(rb'(?<!\\)"(?:timestamp|lastUpdated)"\s*:\s*"([^"\\]{10,40})"')


def last_record_time(file: TranscriptFile) -> float:
    """Return the time of a file's last record in seconds since the epoch, or 0 if no time is found.

    The modification time is not used, because copying, archiving and checking out files change it.
    """
    size, length = file.size, _TAIL_BYTES
    with suppress(SourceError, OSError):
        if file.status is not None and 0 < size <= length and not file.path.name.endswith(COMPRESSED_SUFFIXES):
            with suppress(FileNotFoundError):  # it may have been compressed in the meantime
                return _latest_time(_read_small_file(file.path, size)) or 0.0
        source = source_for_path(file.path)
        if file.path.name.endswith(COMPRESSED_SUFFIXES):
            return _latest_time_in(source)
        while True:
            start = max(size - length, 0)
            latest = _latest_time(source.read(start, size - start))
            if latest is not None or not start:
                return latest or 0.0
            length *= 16
    return 0.0


_ALWAYS_OPENED = 2_000
"""The number of files that are all opened to find the newest one, which takes a tenth of a second."""


def recency(file: TranscriptFile) -> tuple[float, float]:
    """Return a sort key that puts the latest file last: by the time of the last record, then of the modification."""
    return last_record_time(file), file.modified


def newest_first(files: Iterable[TranscriptFile], *, always_opened: int = _ALWAYS_OPENED) -> Iterator[TranscriptFile]:
    """Yield the files by `recency`, latest first. Of more than `always_opened`, open only those that may be next.

    A record is not written later than its file was modified, give or take a day for clocks and time zones. So a file
    is opened only when no file found so far is later than its modification time. Copies and checkouts have later
    modification times, and more of them are opened. If an opened file contradicts the rule, such as one extracted with
    a modification time of 1970, all files are opened. Only a single file that was set back is not noticed.
    """
    pending = sorted(files, key=lambda file: file.modified)
    opened: list[tuple[float, float, int, TranscriptFile]] = []  # a heap, whose first item is the latest file
    is_reliable = len(pending) > always_opened
    while pending or opened:
        while pending and not (is_reliable and opened and -opened[0][0] > pending[-1].modified + _CLOCK_TOLERANCE):
            file = pending.pop()
            latest, modified = recency(file)
            is_reliable = is_reliable and latest <= modified + _CLOCK_TOLERANCE
            heappush(opened, (-latest, -modified, len(pending), file))
        yield heappop(opened)[-1]


def _read_small_file(path: Path, size: int) -> bytes:
    """Read a file that was listed. perf: without the objects of a `Source`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _latest_time_in(source: Source) -> float:
    """Return the latest time near the end of a source that can only be read from its beginning."""
    latest, end = 0.0, b""
    with source.open() as stream:
        while part := stream.read(_PART_BYTES):
            latest = _latest_time(end + part) or latest
            end = part[-_TAIL_BYTES:]
    return latest


def _latest_time(data: bytes) -> float | None:
    texts = (text.decode("utf-8", "replace") for text in _RECORD_TIME.findall(data)[-_MAX_TIMES:])
    return max((time.timestamp() for text in texts if (time := parse_timestamp(text))), default=None)


def default_roots() -> list[Path]:
    """Return the existing folders in which this user's clients keep transcripts.

    Raises:
        SourceError: no such folder exists, or one of them cannot be examined.
    """
    roots = [root for transcript_format in all_formats() for root in transcript_format.roots()]
    existing_roots: list[Path] = []
    for root in roots:
        try:
            existing_roots += [root] if root.is_dir() else []
        except OSError as error:
            raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error
    if not existing_roots:
        *first, last = [transcript_format.home_variable for transcript_format in all_formats()]
        variables = f"{', '.join(first)} or {last}"
        raise SourceError(f"{roots[0]}: no such folder; name a file or folder, or set {variables}")
    return existing_roots


def find_all_transcripts(
    roots: Sequence[Path] | None = None, problem: ProblemCallback | None = None
) -> list[TranscriptFile]:
    """Return the transcripts below `roots`, or those of this user's clients if `roots` is None.

    `problem` is called for each folder below them that cannot be listed.

    Raises:
        SourceError: one of `roots` does not exist or cannot be listed.
    """
    return [file for root in (default_roots() if roots is None else roots) for file in find_transcripts(root, problem)]


def find_transcripts(root: Path, problem: ProblemCallback | None = None) -> list[TranscriptFile]:
    """Return the transcripts below a folder sorted by path, or just `root` if it is a file.

    `problem` is called for each folder below `root` that cannot be listed.

    Raises:
        SourceError: `root` does not exist or cannot be listed.
    """
    sidecars: dict[str, str] = {}
    files = list(iter_transcripts(root, sidecars, problem))
    by_path = {str(file.path): file for file in files}
    if sidecars:
        for name, file in by_path.items():
            beside = (hook_log_path_str(name), str(meta_path(file.path)))
            cast("RemotePath", file.path).sidecar_stamp = "+".join(sidecars.get(path, "") for path in beside)
    remove_compressed_copies(by_path)
    return [by_path[path] for path in sorted(by_path)]


def iter_folder(root: Path, report: ListingErrorCallback) -> Iterator[FolderEntry]:
    """Yield the transcripts below a local folder, including compressed copies, in the order of the listing.

    `report` is called with each folder below `root` that cannot be listed completely, and the error.

    Raises:
        SourceError: `root` cannot be listed.
    """
    try:
        yield from _walk_folder(root, report)
    except OSError as error:
        raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error


def remove_compressed_copies(by_path: MutableMapping[str, Any]) -> None:
    """Remove the compressed copies whose originals still exist."""
    for path in [path for path in by_path if path.endswith(".zst") and path.removesuffix(".zst") in by_path]:
        if format_of_path(path).compresses_files:
            del by_path[path]


def iter_transcripts(
    root: Path, sidecars: dict[str, str] | None = None, problem: ProblemCallback | None = None
) -> Iterator[TranscriptFile]:
    """Yield the transcripts below a folder in the order of its listing, or just `root` if it is a file.

    The listing of an object store is read page by page, and only one page is kept in memory. The etags of the side
    files that results depend on are added to `sidecars`. `problem` is called for each folder that cannot be listed.

    Raises:
        SourceError: `root` does not exist or cannot be listed.
    """

    def report(path: str, error: OSError) -> None:
        if problem is not None:
            problem(f"{path}: {error.strerror}; this answer leaves it out")

    try:
        status = root.stat()
    except (OSError, ValueError) as error:
        if isinstance(root, RemotePath) and isinstance(error, OSError):
            raise SourceError(f"{root}: {error.strerror}") from error
        raise SourceError(f"{root}: no such file or folder") from error
    if not stat.S_ISDIR(status.st_mode):
        yield _make_transcript_file(root, status)
        return
    try:
        if isinstance(root, RemotePath):
            yield from _walk_objects(root, {} if sidecars is None else sidecars)
        else:
            for entry in _walk_folder(root, report):
                status = entry.status
                yield TranscriptFile(
                    path=Path(entry.path),
                    name=entry.name,
                    size=status.st_size,
                    modified=status.st_mtime,
                    status=status,
                    may_have_hook_log=entry.may_have_hook_log,
                )
    except OSError as error:
        name = error.filename if isinstance(root, RemotePath) and error.filename else root
        raise SourceError(f"{name}: {error.strerror or os.strerror(error.errno or 0)}") from error


def _walk_objects(root: RemotePath, sidecars: dict[str, str]) -> Iterator[TranscriptFile]:
    for path in root.walk_files():
        name = path.name
        if name == HOOK_LOG_NAME or name.endswith(".meta.json"):
            sidecars[str(path)] = path.info.etag
        elif name.endswith(_TRANSCRIPT_SUFFIXES) and parse_file_name(str(path)).role != "other":
            yield _make_transcript_file(path, path.stat())


def _make_transcript_file(path: Path, status: os.stat_result) -> TranscriptFile:
    return TranscriptFile(path=path, name=parse_file_name(path), size=status.st_size, modified=status.st_mtime)


def _walk_folder(root: Path, report: ListingErrorCallback) -> Iterator[FolderEntry]:
    """Yield the transcripts below a folder, skipping and reporting folders that cannot be read."""
    pending_folders = [str(root)]
    while pending_folders:
        folder = pending_folders.pop()
        try:
            with os.scandir(folder) as listing:
                items = list(listing)
        except OSError as error:
            if folder == str(root):
                raise
            if not isinstance(error, FileNotFoundError):  # removed in the meantime
                report(folder, error)
            continue
        found: list[tuple[str, FileName, os.stat_result]] = []
        others: set[str] = set()
        failures: list[tuple[str, OSError]] = []
        for item in items:
            path = item.path.removeprefix("./")  # as in a `Path`
            try:
                if item.is_dir(follow_symlinks=False):
                    pending_folders.append(path)
                    others.add(path)
                elif item.name.endswith(_TRANSCRIPT_SUFFIXES) and (name := parse_file_name(path)).role != "other":
                    if status := _stat_transcript(item, root):
                        found.append((path, name, status))
                else:
                    others.add(path)  # perhaps a link to a folder
            except OSError as error:
                failures.append((path, error))
        has_agents = folder.endswith("subagents")  # the hook log is in the folder above
        for path, name, status in found:
            has_folder = has_agents or (others and hook_log_path_str(path).rpartition(os.sep)[0] in others)
            yield FolderEntry(path, name, status, bool(has_folder))
        # A folder that may be listed but not entered is reported once.
        for path, failure in failures if found else failures[:1]:
            report(path if found else folder, failure)


def _stat_transcript(item: os.DirEntry[str], root: Path) -> os.stat_result | None:
    """Return the status of a file, or None if it is not a file inside `root`, or was removed in the meantime."""
    try:
        is_inside = item.is_file() and (not item.is_symlink() or is_inside_folder(Path(item.path), root))
        return item.stat() if is_inside else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise


def find_agents_by_content(files: Sequence[TranscriptFile], session: str) -> list[TranscriptFile]:
    """Return a session's subagent files that are identified by content instead of by name."""
    formats = {format_of_path(file.path) for file in files if file.name.session_id == session}
    agent_files = []
    for file in files:
        transcript_format = format_of_path(file.path)
        if transcript_format not in formats:
            continue  # perf: files from other clients are not opened
        name = transcript_format.as_agent_of(file.path, file.name, session)
        if name is not None:
            agent_files.append(structs.replace(file, name=name))
    return agent_files


def owning_session(file: TranscriptFile) -> str | None:
    """Return the session that a file belongs to. A subagent's file belongs to the session that started it."""
    return format_of_path(file.path).owning_session(file.path, file.name)


def has_working_folder(file: TranscriptFile, folder: str) -> bool:
    """Return whether a session's working folder is `folder`."""
    return format_of_path(file.path).has_working_folder(file.path, file.name, folder)
