"""Find transcripts in the clients' own folders, or below any given folder or URL.

Links to folders are not followed, so that a hostile archive cannot lead outside its folder. A file is opened
only if it belongs to a subagent and its name does not identify the session.
"""

from __future__ import annotations

import errno
import marshal
import os
import re
import stat
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from heapq import heappop, heappush
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast, overload

from msgspec import Struct, structs

from toolspan.errors import SourceError
from toolspan.formats.base import FileName
from toolspan.formats.container import CONTAINER_SUFFIXES, FileStatus
from toolspan.formats.registry import (
    all_formats,
    format_of_container,
    format_of_path,
    is_inside_folder,
    parse_file_name,
)
from toolspan.formats.remote import RemotePath
from toolspan.formats.side_files import HOOK_LOG_NAME, hook_log_path_str, meta_path
from toolspan.formats.source import COMPRESSED_SUFFIXES, Source, is_member, source_for_path, stat_file
from toolspan.types.span import parse_timestamp

_TRANSCRIPT_SUFFIXES = tuple(f"{name}{packed}" for name in (".jsonl", ".json") for packed in ("", *COMPRESSED_SUFFIXES))


ProblemCallback = Callable[[str], None]
ListingErrorCallback = Callable[[str, OSError], None]


class TranscriptFile(Struct, frozen=True, kw_only=True):
    """The path, size and modification time of a transcript, which may be an object in a store."""

    location: Path | str
    """The path. perf: that of a file found in a folder is a string, because creating a `Path` takes long."""
    size: int
    modified: float
    status: FileStatus | None = None
    """The status of a local file found in a folder; None for other files."""
    may_have_hook_log: bool = True
    """See `FolderEntry`."""
    recorded_name: FileName | None = None
    """The session and role that the content shows, if the path does not."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.location) if isinstance(self.location, str) else self.location

    @property
    def name(self) -> FileName:
        """The session and role of the file."""
        return self.recorded_name or parse_file_name(self.location)


class FolderEntry(NamedTuple):
    """A transcript in a local folder. perf: listing many files takes half the time without a `Path` of each."""

    path: str
    status: FileStatus
    may_have_hook_log: bool
    """False if the listing shows that the folder for the file's hook log does not exist."""


class Listing(Sequence[TranscriptFile]):
    """The transcripts that were found, in order.

    perf: files in local folders take about 120 bytes each, because there may be a million. Each access creates a new
    `TranscriptFile`.
    """

    def __init__(self, groups: Iterable[Sequence[FolderEntry] | TranscriptFile] = ()) -> None:
        """Create a listing of files, or of groups of files that share a folder."""
        self._groups: list[tuple[str, bytes] | TranscriptFile] = []
        self._ends: list[int] = []
        """The number of files up to the end of each group."""
        self.size = 0
        """The number of bytes in all files."""
        self._loaded: tuple[int, Sequence[TranscriptFile]] = (-1, ())
        for group in groups:
            self._add(group)

    def _add(self, group: Sequence[FolderEntry] | TranscriptFile) -> None:
        if isinstance(group, TranscriptFile):
            self._groups.append(group)
            self._ends.append(len(self) + 1)
            self.size += group.size
            return
        folder = group[0].path[: group[0].path.rfind(os.sep) + 1]
        packed = [(path[len(folder) :], tuple(status), may_have) for path, status, may_have in group]
        self._groups.append((folder, marshal.dumps(packed)))
        self._ends.append(len(self) + len(group))
        self.size += sum(entry.status.st_size for entry in group)

    def extend(self, other: Listing) -> None:
        """Add the files of another listing."""
        length = len(self)
        self._groups += other._groups
        self._ends += [length + end for end in other._ends]
        self.size += other.size

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[TranscriptFile]:
        for group in self._groups:
            yield from _unpack(group)

    @overload
    def __getitem__(self, index: int) -> TranscriptFile: ...
    @overload
    def __getitem__(self, index: slice) -> list[TranscriptFile]: ...
    def __getitem__(self, index: int | slice) -> TranscriptFile | list[TranscriptFile]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        number = bisect_right(self._ends, n)
        if self._loaded[0] != number:  # perf: neighbours are usually needed next
            self._loaded = number, _unpack(self._groups[number])
        return self._loaded[1][n - self._ends[number]]  # counted from the end of the group


def _unpack(group: tuple[str, bytes] | TranscriptFile) -> list[TranscriptFile]:
    if isinstance(group, TranscriptFile):
        return [group]
    folder, packed = group
    return [
        TranscriptFile(
            location=folder + name,
            size=status[0],
            modified=status[1],
            status=FileStatus(*status),
            may_have_hook_log=may_have_hook_log,
        )
        for name, status, may_have_hook_log in marshal.loads(packed)
    ]


_TAIL_BYTES = 1 << 13
_PART_BYTES = 1 << 20
_MAX_TIMES = 100
_CLOCK_TOLERANCE = 86_400
_RECORD_TIME = re.compile(rb'(?<!\\)"(?:timestamp|lastUpdated)"\s*:\s*"([^"\\]{10,40})"')


def last_record_time(file: TranscriptFile) -> float:
    """Return the time of a file's last record in seconds since the epoch, or 0 if no time is found.

    The modification time is not used, because copying, archiving and checking out files change it.
    """
    if is_member(file.location):
        return file.modified
    if file.status is None:
        return _read_last_time(file.path, file.size, None)
    return _remember_last_time(str(file.location), file.status)


@lru_cache(maxsize=1 << 14)  # perf: a server asks after each change, and most files have not changed
def _remember_last_time(path: str, status: FileStatus) -> float:
    return _read_last_time(Path(path), status.st_size, status)


def _read_last_time(path: Path, size: int, status: FileStatus | None) -> float:
    length = _TAIL_BYTES
    with suppress(SourceError, OSError):
        if status is not None and 0 < size <= length and not path.name.endswith(COMPRESSED_SUFFIXES):
            with suppress(FileNotFoundError):  # it may have been compressed in the meantime
                return _latest_time(_read_small_file(path, size)) or 0.0
        source = source_for_path(path)
        if path.name.endswith(COMPRESSED_SUFFIXES):
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


def newest_first(files: Sequence[TranscriptFile], *, always_opened: int = _ALWAYS_OPENED) -> Iterator[TranscriptFile]:
    """Yield the files by `recency`, latest first. Of more than `always_opened`, open only those that may be next."""
    return (file for _, file in _iter_latest(files, always_opened))


def recent_files(
    files: Sequence[TranscriptFile], earliest: Callable[[float], float], *, always_opened: int = _ALWAYS_OPENED
) -> list[tuple[TranscriptFile, float]]:
    """Return the files modified, or with records written, since a time, each with the time of its last record.

    `earliest` returns that time for the time of the latest record. Of very many files, not all are opened.
    """
    written: dict[str, float] = {}
    since = None
    for latest, file in _iter_latest(files, always_opened):
        since = earliest(latest) if since is None else since
        if latest < since:
            break
        written[str(file.location)] = latest
    if since is None:
        return []
    recent: list[tuple[TranscriptFile, float]] = []
    for file in files:
        time = written.get(str(file.location))
        if time is not None or file.modified >= since:
            recent.append((file, last_record_time(file) if time is None else time))
    return recent


def _iter_latest(files: Sequence[TranscriptFile], always_opened: int) -> Iterator[tuple[float, TranscriptFile]]:
    """Yield the time of the last record of each file and the file, latest first, opening few of very many files.

    A record is not written later than its file was modified, give or take a day for clocks and time zones. So a file
    is opened only when no file found so far is later than its modification time. Copies and checkouts have later
    modification times, and more of them are opened. If an opened file contradicts the rule, such as one extracted with
    a modification time of 1970, all files are opened. Only a single file that was set back is not noticed.
    """
    modified_times = array("d", (file.modified for file in files))
    pending = sorted(range(len(files)), key=modified_times.__getitem__)
    opened: list[tuple[float, float, int, TranscriptFile]] = []  # a heap, whose first item is the latest file
    is_reliable = len(pending) > always_opened
    while pending or opened:
        while pending and not (
            is_reliable and opened and -opened[0][0] > modified_times[pending[-1]] + _CLOCK_TOLERANCE
        ):
            file = files[pending.pop()]
            latest, modified = recency(file)
            is_reliable = is_reliable and latest <= modified + _CLOCK_TOLERANCE
            heappush(opened, (-latest, -modified, len(pending), file))
        latest, _, _, file = heappop(opened)
        yield -latest, file


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
            existing_roots += [root] if root.is_dir() or (format_of_container(root) and root.is_file()) else []
        except OSError as error:
            raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error
    if not existing_roots:
        variables = " or ".join(transcript_format.home_variable for transcript_format in all_formats()[:2])
        raise SourceError(f"{roots[0]}: no such folder; name a file or folder, or set a variable such as {variables}")
    return existing_roots


def find_all_transcripts(roots: Sequence[Path] | None = None, problem: ProblemCallback | None = None) -> Listing:
    """Return the transcripts below `roots`, or those of this user's clients if `roots` is None.

    `problem` is called for each folder below them that cannot be listed.

    Raises:
        SourceError: one of `roots` does not exist or cannot be listed.
    """
    files = Listing()
    for root in default_roots() if roots is None else roots:
        files.extend(find_transcripts(root, problem))
    return files


def find_transcripts(root: Path, problem: ProblemCallback | None = None) -> Listing:
    """Return the transcripts below a folder sorted by path, or just `root` if it is a file.

    `problem` is called for each folder below `root` that cannot be listed.

    Raises:
        SourceError: `root` does not exist or cannot be listed.
    """
    if not isinstance(root, RemotePath):
        return Listing(_iter_groups(root, problem))
    sidecars: dict[str, str] = {}
    by_path = {str(file.path): file for file in iter_transcripts(root, sidecars, problem)}
    if sidecars:
        for name, file in by_path.items():
            beside = (hook_log_path_str(name), str(meta_path(file.path)))
            cast("RemotePath", file.path).sidecar_stamp = "+".join(sidecars.get(path, "") for path in beside)
    return Listing(by_path[path] for path in sorted(by_path) if not _is_compressed_copy(path, by_path))


def _is_compressed_copy(path: str, paths: Container[str]) -> bool:
    """Return whether a file is the compressed copy of another one of `paths`."""
    is_copy = path.endswith(".zst") and path.removesuffix(".zst") in paths
    return is_copy and format_of_path(path).compresses_files


def iter_folder(root: Path, report: ListingErrorCallback) -> Iterator[FolderEntry]:
    """Yield the transcripts below a local folder, sorted by path.

    `report` is called with each folder below `root` that cannot be listed completely, and the error.

    Raises:
        SourceError: `root` cannot be listed.
    """
    try:
        for group in _walk_folder(root, report):
            yield from group
    except OSError as error:
        raise SourceError(f"{root}: {os.strerror(error.errno or 0)}") from error


def iter_transcripts(
    root: Path, sidecars: dict[str, str] | None = None, problem: ProblemCallback | None = None
) -> Iterator[TranscriptFile]:
    """Yield the transcripts below a folder, or just `root` if it is a file, keeping only a part in memory.

    The listing of an object store is read page by page, and includes compressed copies. The etags of the side files
    that results depend on are added to `sidecars`. `problem` is called for each folder that cannot be listed.

    Raises:
        SourceError: `root` does not exist or cannot be listed.
    """
    if not isinstance(root, RemotePath):
        for group in _iter_groups(root, problem):
            yield from Listing([group])
        return
    try:
        status = root.stat()
    except OSError as error:
        raise SourceError(f"{root}: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"{root}: no such file or folder") from error
    if not stat.S_ISDIR(status.st_mode):
        yield _make_transcript_file(root, status)
        return
    try:
        yield from _walk_objects(root, {} if sidecars is None else sidecars)
    except OSError as error:
        raise SourceError(f"{error.filename or root}: {error.strerror or os.strerror(error.errno or 0)}") from error


def _iter_groups(root: Path, problem: ProblemCallback | None) -> Iterator[list[FolderEntry] | TranscriptFile]:
    """Yield the transcripts below a local folder, in groups that share a folder, or just `root` if it is a file."""

    def report(path: str, error: OSError) -> None:
        if problem is not None:
            problem(f"{path}: {error.strerror}; this answer leaves it out")

    try:
        status = stat_file(root)
    except (OSError, ValueError) as error:
        raise SourceError(f"{root}: no such file or folder") from error
    if isinstance(status, FileStatus) or not stat.S_ISDIR(status.st_mode):
        is_container = not isinstance(status, FileStatus) and format_of_container(root) is not None
        members = list_members(str(root)) if is_container else []
        if members:
            yield members
        elif not is_container:
            yield _make_transcript_file(root, status)
        return
    try:
        yield from _walk_folder(root, report)
    except OSError as error:
        raise SourceError(f"{root}: {error.strerror or os.strerror(error.errno or 0)}") from error


def _walk_objects(root: RemotePath, sidecars: dict[str, str]) -> Iterator[TranscriptFile]:
    for path in root.walk_files():
        name = path.name
        if name == HOOK_LOG_NAME or name.endswith(".meta.json"):
            sidecars[str(path)] = path.info.etag
        elif name.endswith(_TRANSCRIPT_SUFFIXES) and parse_file_name(str(path)).role != "other":
            yield _make_transcript_file(path, path.stat())


def _make_transcript_file(path: Path, status: os.stat_result | FileStatus) -> TranscriptFile:
    return TranscriptFile(location=path, size=status.st_size, modified=status.st_mtime)


def list_members(container: str) -> list[FolderEntry]:
    """Return the sessions in a container, sorted by path, as if they were files in a folder.

    Raises:
        SourceError: the container cannot be read.
    """
    path = Path(container)
    transcript_format = format_of_container(path)
    if transcript_format is None:
        return []
    status = path.stat()
    entries = (
        FolderEntry(str(path.joinpath(*member.names)), member.status(status), may_have_hook_log=False)
        for member in transcript_format.members(path)
    )
    return sorted(entries)


def _walk_folder(root: Path, report: ListingErrorCallback) -> Iterator[list[FolderEntry]]:
    """Yield the transcripts below a folder, sorted by path, in groups of files between which there is no folder.

    Folders that cannot be read are reported and skipped, and so are compressed copies.
    """
    pending: list[str | list[FolderEntry]] = [str(root)]
    """What comes next, in reverse: folders to list, and groups of files."""
    while pending:
        folder = pending.pop()
        if isinstance(folder, list):
            yield folder
            continue
        try:
            with os.scandir(folder) as listing:
                items = list(listing)
        except OSError as error:
            if folder == str(root):
                raise
            if not isinstance(error, FileNotFoundError):  # removed in the meantime
                report(folder, error)
            continue
        pending += _list_items(items, folder, root, report)


def _list_items(
    items: Iterable[os.DirEntry[str]], folder: str, root: Path, report: ListingErrorCallback
) -> Iterator[str | list[FolderEntry]]:
    """Yield the folders and groups of transcripts in a folder, in reverse order."""
    transcripts: dict[str, FileStatus] = {}
    folders: list[str] = []
    others: set[str] = set()
    failures: list[tuple[str, OSError]] = []
    members: dict[str, list[FolderEntry]] = {}
    for item in items:
        path = item.path.removeprefix("./")  # as in a `Path`
        try:
            if item.is_dir(follow_symlinks=False):
                folders.append(path)
                others.add(path)
            elif item.name.endswith(_TRANSCRIPT_SUFFIXES) and parse_file_name(path).role != "other":
                if status := _stat_transcript(item, root):
                    transcripts[path] = status
            elif item.name.endswith(CONTAINER_SUFFIXES) and _stat_transcript(item, root):
                members[path] = _list_members_or_report(path, report)
            else:
                others.add(path)  # perhaps a link to a folder
        except OSError as error:
            failures.append((path, error))
    # A folder that may be listed but not entered is reported once.
    for path, failure in failures if transcripts else failures[:1]:
        report(path if transcripts else folder, failure)
    has_agents = folder.endswith("subagents")  # the hook log is in the folder above

    def make_entry(path: str) -> FolderEntry:
        has_folder = has_agents or (others and hook_log_path_str(path).rpartition(os.sep)[0] in others)
        return FolderEntry(path, transcripts[path], bool(has_folder))

    paths = [path for path in transcripts if not _is_compressed_copy(path, transcripts)]
    # A folder is sorted like the paths of the files in it.
    ordered = sorted([*paths, *(path + os.sep for path in (*folders, *members))], reverse=True)
    for is_folder, run in groupby(ordered, lambda path: path.endswith(os.sep)):
        if is_folder:
            yield from (found for path in run if (found := members.get(path[:-1], path[:-1])))
        else:
            yield [*map(make_entry, run)][::-1]


def _list_members_or_report(path: str, report: ListingErrorCallback) -> list[FolderEntry]:
    try:
        return list_members(path)
    except SourceError as error:
        report(path, OSError(errno.EIO, str(error).removeprefix(f"{path}: ")))
        return []


def _stat_transcript(item: os.DirEntry[str], root: Path) -> FileStatus | None:
    """Return the status of a file, or None if it is not a file inside `root`, or was removed in the meantime."""
    try:
        is_inside = item.is_file() and (not item.is_symlink() or is_inside_folder(Path(item.path), root))
        if not is_inside:
            return None
        status = item.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    return FileStatus(
        status.st_size, status.st_mtime, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    )


def find_agents_by_content(files: Sequence[TranscriptFile], session: str) -> list[TranscriptFile]:
    """Return a session's subagent files that are identified by content instead of by name."""
    formats = {format_of_path(file.location) for file in files if file.name.session_id == session}
    agent_files = []
    for file in files:
        transcript_format = format_of_path(file.location)
        if transcript_format not in formats:
            continue  # perf: files from other clients are not opened
        name = transcript_format.as_agent_of(file.location, file.name, session)
        if name is not None:
            agent_files.append(structs.replace(file, recorded_name=name))
    return agent_files


def owning_session(file: TranscriptFile) -> str | None:
    """Return the session that a file belongs to. A subagent's file belongs to the session that started it."""
    return format_of_path(file.path).owning_session(file.path, file.name)


def has_working_folder(file: TranscriptFile, folder: str) -> bool:
    """Return whether a session's working folder is `folder`."""
    return format_of_path(file.path).has_working_folder(file.path, file.name, folder)
