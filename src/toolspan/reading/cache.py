"""Cache per-file results on disk, keyed by the state of the file.

A cache that is corrupt, locked, not writable or owned by another user behaves as if it were empty: no function here
raises because of the cache. Writes are not synced, and a checksum detects rows corrupted by a power failure. Start at
`cached_map`, `Cache.load` and `Cache.store`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from functools import cache as remembered
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from toolspan.formats.container import split_member
from toolspan.formats.remote import RemotePath, is_url
from toolspan.formats.side_files import hook_log_path_str
from toolspan.formats.source import stat_file
from toolspan.reading.facts import FactKind, FileJob, ReadFacts, encode_msgpack, read_facts, tuple_job
from toolspan.reading.parallel import AdvanceCallback, Epilogue, fork_process, is_pool_worker, parallel_map

if TYPE_CHECKING:
    from toolspan.formats.container import FileStatus
    from toolspan.reading.discovery import TranscriptFile

_DATABASE_NAME = "facts.sqlite3"
_LOCK_NAME = "background.lock"
_SIZE_LIMIT = 12 << 30
"""Enough for a million small transcripts. The results of long ones take about a tenth of their size."""
_ROW_BYTES = "2 * (length(path) + length(name) + length(form)) + 100"
"""The space that a row takes beside its value, as SQL: the key is stored in the table and in its index."""
_SECONDS_PER_DAY = 86_400
_LOCK_TIMEOUT = 1.0
"""Seconds to wait for another process to finish writing."""
_WORKER_LOCK_TIMEOUT = 10.0
"""The same in the worker processes of a map, which all write at about the same time, after their last file."""
_CORRUPTION_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Codes for a corrupt file, a file that is not a database, and an unexpected schema. The file is
removed. Other errors are temporary.
"""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS file (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, form TEXT NOT NULL,
    stamp TEXT NOT NULL, size INTEGER NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (path, name, form));
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS swept (day INTEGER NOT NULL);
"""
_UNSTORED_BYTES = 16 << 20
"""The size of the facts that each process keeps in memory until it stores them."""
_KEYS_PER_QUERY = 400
"""SQLite before 3.32 allows 999 parameters."""
_KEY_CONDITION = "path = ? AND name = ? AND form = ?"


class CacheKey(NamedTuple):
    """A file and the job whose result is cached for it."""

    path: str
    name: str
    """The path as the caller gave it, because results contain it."""
    job_name: str


class CacheRow(NamedTuple):
    """A cached result."""

    key: CacheKey
    stamp: str
    value: bytes


def default_folder(environ: os._Environ[str] | dict[str, str] = os.environ) -> Path | None:
    """Return this user's cache folder, or None if caching is disabled."""
    if environ.get("TOOLSPAN_NO_CACHE"):
        return None
    named = environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "toolspan"
    except RuntimeError:  # no home folder
        return None


class Cache:
    """A cache folder that holds one database."""

    def __init__(self, folder: Path, *, limit: int = _SIZE_LIMIT) -> None:
        self.file = folder / _DATABASE_NAME
        self._limit = limit

    def load(self, stamped_keys: Sequence[tuple[CacheKey, str]]) -> dict[CacheKey, bytes]:
        """Return the cached values for the keys whose stamps still match."""
        stamps = dict(stamped_keys)
        values: dict[CacheKey, bytes] = {}
        for row, checksum in self._select_rows("value, checksum FROM file JOIN body USING (id)", [*stamps]):
            if stamps[row.key] == row.stamp and checksum == _row_checksum(row):
                values[row.key] = row.value
        return values

    def find_current(self, stamped_keys: Sequence[tuple[CacheKey, str]]) -> set[CacheKey]:
        """Return the keys that have a value whose stamp still matches. The value itself may still be corrupt."""
        stamps = dict(stamped_keys)
        rows = self._select_rows("x'', 0 FROM file", [*stamps])
        return {row.key for row, _ in rows if stamps[row.key] == row.stamp}

    def _select_rows(self, columns: str, keys: Sequence[CacheKey]) -> Iterator[tuple[CacheRow, int]]:
        """Yield the rows of these keys with their checksums, or fewer if the cache cannot be read.

        perf: one query for many files, because one query each is slow for very many files.
        """
        with self._discard_if_corrupt(), self._open_database() as database:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                batch: dict[tuple[str, ...], CacheKey] = {key: key for key in keys[start : start + _KEYS_PER_QUERY]}
                jobs = {key.job_name for key in batch.values()}
                condition = f"form IN ({_marks(jobs)}) AND path IN ({_marks(batch)})"
                query = f"SELECT path, name, form, stamp, {columns} WHERE {condition}"
                paths = [key.path for key in batch.values()]
                for path, name, form, stamp, value, checksum in database.execute(query, (*jobs, *paths)):
                    key = batch.get((path, name, form))  # without a copy of its strings
                    if key is not None and isinstance(value, bytes):
                        yield CacheRow(key, stamp, value), checksum

    def store(self, rows: Sequence[CacheRow], today: int, lock_timeout: float = _LOCK_TIMEOUT) -> None:
        """Remove rows for missing files, store `rows`, then remove the oldest rows over the size limit."""
        with self._discard_if_corrupt(), self._open_database(lock_timeout, make=True) as database, database:
            database.execute("BEGIN IMMEDIATE")
            _sweep_missing_files(database, today // _SECONDS_PER_DAY)
            database.executemany(
                f"DELETE FROM body WHERE id = (SELECT id FROM file WHERE {_KEY_CONDITION})", (row.key for row in rows)
            )
            database.executemany(
                "INSERT OR REPLACE INTO file (path, name, form, stamp, size, checksum) VALUES (?, ?, ?, ?, ?, ?)",
                ((*row.key, row.stamp, len(row.value), _row_checksum(row)) for row in rows),
            )
            database.executemany(
                f"INSERT INTO body SELECT id, ? FROM file WHERE {_KEY_CONDITION}",
                ((row.value, *row.key) for row in rows),
            )
            _shrink_to_limit(database, self._limit)

    def lock_background(self, *, wait: bool = False) -> int | None:
        """Return a descriptor that holds the lock of the process that adds facts, or None if another one holds it.

        The lock lasts until every process has closed the descriptor. With `wait`, wait for the other process.
        """
        try:
            import fcntl

            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_private(self.file.parent.lstat(), stat.S_ISDIR)
            path = self.file.with_name(_LOCK_NAME)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except (ImportError, OSError):
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def clear(self) -> None:
        """Delete the database."""
        for ending in ("", "-journal"):
            with contextlib.suppress(OSError):
                self.file.with_name(self.file.name + ending).unlink()

    def usage(self) -> tuple[int, int]:
        """Return the number of cached files and the size on disk."""
        files, size = 0, 0
        with self._discard_if_corrupt(), self._open_database() as database:
            (files,) = database.execute("SELECT count(DISTINCT path) FROM file").fetchone()
            size = self.file.stat().st_size
        return files, size

    @contextmanager
    def _discard_if_corrupt(self) -> Iterator[None]:
        """Suppress cache errors in the `with` block and remove a corrupt database."""
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPTION_CODES:
                self.clear()
        except (OSError, ValueError, OverflowError):
            pass

    @contextmanager
    def _open_database(
        self, lock_timeout: float = _LOCK_TIMEOUT, *, make: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Open the database, which must be private to this user.

        Raises:
            OSError: it is not private, or cannot be created.
            sqlite3.Error: it cannot be used.
        """
        if make:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(self.file.parent.lstat(), stat.S_ISDIR)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        descriptor = os.open(self.file, flags, 0o600)
        try:
            _require_private(os.fstat(descriptor), stat.S_ISREG)
        finally:
            os.close(descriptor)
        database = sqlite3.connect(self.file, timeout=lock_timeout, isolation_level=None)
        with closing(database):
            if make:
                database.execute("PRAGMA synchronous=OFF")
                database.executescript(_SCHEMA)
            yield database


def _require_private(status: os.stat_result, is_expected_type: Callable[[int], bool]) -> None:
    """Check that a file or folder has the expected type, is owned by this user, and is not writable by others.

    Raises:
        PermissionError: it is not private.
    """
    if not is_expected_type(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError("not private to this user")


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _row_checksum(row: CacheRow) -> int:
    return zlib.crc32(row.value, zlib.crc32("\0".join([*row.key, row.stamp]).encode()))


def _sweep_missing_files(database: sqlite3.Connection, day: int) -> None:
    """Remove rows for missing files, at most once a day.

    perf: of the rows, which may be millions, only the paths that are missing are kept in memory.
    """
    if database.execute("SELECT 1 FROM swept WHERE day = ?", (day,)).fetchone():
        return
    database.execute("DELETE FROM swept")
    database.execute("INSERT INTO swept VALUES (?)", (day,))
    paths = (path for (path,) in database.execute("SELECT DISTINCT path FROM file"))
    missing = [(path,) for path in paths if not is_url(path) and not _exists(path)]
    database.executemany("DELETE FROM body WHERE id IN (SELECT id FROM file WHERE path = ?)", missing)
    database.executemany("DELETE FROM file WHERE path = ?", missing)


def _exists(path: str) -> bool:
    """Return whether a file exists, or the container of a session."""
    member = split_member(path)
    return os.path.lexists(path) or (member is not None and os.path.lexists(member.container))


def _shrink_to_limit(database: sqlite3.Connection, limit: int) -> None:
    """Remove the oldest rows from a database that takes more space, until it takes a quarter less than the limit.

    perf: reads nothing but the rows that it removes, because adding up the sizes of millions of rows takes long.
    """
    names = ("page_count", "freelist_count", "page_size")
    pages, free_pages, page_size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    excess = (pages - free_pages) * page_size - limit
    if excess <= 0:
        return
    excess += limit // 4
    evicted = []
    for number, size in database.execute(f"SELECT id, size + {_ROW_BYTES} FROM file ORDER BY id"):
        evicted.append((number,))
        excess -= size
        if excess <= 0:
            break
    for table in ("file", "body"):
        database.executemany(f"DELETE FROM {table} WHERE id = ?", evicted)


_NANOSECONDS_PER_SECOND = 1_000_000_000
_STABLE_AFTER_NS = 2 * _NANOSECONDS_PER_SECOND
"""A file changed more recently than this may change again without getting a new timestamp."""
_CACHE_FORMAT = 1
_SKIPPED_FOLDERS = frozenset({"__pycache__", "archive", "testing", "runtime", "tools", "session", "integrations"})
"""The folders whose code no cached result depends on, because nothing that reads transcripts imports them."""

Clock = Callable[[], int]


class CacheableResult(Protocol):
    """A job's result for one file."""

    @property
    def problem(self) -> str | None:
        """The reason why the file could not be read. Results with a problem are not cached."""


T = TypeVar("T", bound=CacheableResult)


class FileSet:
    """Files whose stamps together are the stamp of an answer."""

    def __init__(self) -> None:
        self.storing: Epilogue | None = None
        """The end of a `cached_map`. It succeeds if every file was read in the state of its stamp."""
        self.has_problem = False
        """True if a file could not be read."""

    def iter_stamped(self) -> Iterator[tuple[Path | str, str | None]]:
        """Yield the files with their stamps."""
        raise NotImplementedError

    def answer_key(self, question: str) -> tuple[CacheKey, str] | None:
        """Return the key and stamp of the answer to a question, or None if it cannot be cached."""
        stamp = self._stamp
        if stamp is None:
            return None
        first, _ = next(self.iter_stamped())
        return CacheKey(_absolute(first), str(first), question), stamp

    def have_changed(self) -> bool:
        """Return whether the current stamps are different."""
        return join_stamps((path, compute_file_stamp(path)) for path, _ in self.iter_stamped()) != self._stamp

    @cached_property
    def _stamp(self) -> str | None:
        return join_stamps(self.iter_stamped())


class StampedFiles(FileSet):
    """Files with the stamps they had before they were read.

    perf: if the same object is given to `cached_answer` and to the `cached_map` that computes the answer, the stamps
    are computed once before the files are read and once after, instead of twice, and the results are stored by the
    processes that read the files while this one computes the answer.
    """

    def __init__(self, paths: Sequence[Path | str], stamps: Sequence[str | None] | None = None) -> None:
        super().__init__()
        self.paths = paths
        self.stamps = [compute_file_stamp(path) for path in paths] if stamps is None else stamps

    @classmethod
    def from_listing(cls, files: Sequence[TranscriptFile]) -> StampedFiles:
        """Return files with the stamps that they had when they were listed."""
        return cls([file.location for file in files], [stamp for _, stamp in StampedListing(files).iter_stamped()])

    def iter_stamped(self) -> Iterator[tuple[Path | str, str | None]]:
        """Yield the files with their stamps."""
        return zip(self.paths, self.stamps, strict=True)


class StampedListing(FileSet):
    """Very many listed files. Their stamps are computed when they are needed, and not kept."""

    def __init__(self, files: Sequence[TranscriptFile]) -> None:
        super().__init__()
        self._files = files

    def iter_stamped(self) -> Iterator[tuple[Path | str, str | None]]:
        """Yield the files with the stamps that they had when they were listed."""
        for file in self._files:
            location, status = file.location, file.status
            stamp = (
                compute_file_stamp(location)
                if status is None
                else make_file_stamp(str(location), status, may_have_hook_log=file.may_have_hook_log)
            )
            yield location, stamp


def cached_map(
    paths: Sequence[Path | str] | StampedFiles,
    job: FileJob[T],
    cache: Cache,
    *,
    advance: AdvanceCallback = lambda _: None,
    now: Clock = time.time_ns,
    further_kinds: Callable[[], Sequence[FactKind[Any]]] | None = None,
    current: Set[int] | None = None,
    read: ReadFacts = read_facts,
) -> Iterator[T]:
    """Yield the job's result for each path in order, reading only files of which some facts are not cached.

    `further_kinds` returns the kinds of facts that other questions need. If files were read, a process in the
    background adds them to the cache; objects of a store, which take longer to read than to measure, are read once for
    all kinds. `current` are the numbers of the files whose facts are cached, if `find_current` has been called, and
    `read` reads the others. If `paths` are stamped files, the caller must wait for their `storing` after the last
    result.
    """
    files = paths if isinstance(paths, StampedFiles) else StampedFiles(paths)
    reads = _CachedReads(files, job.kinds, cache, now())
    current = reads.find_current() if current is None else current
    missing = [n for n in range(len(files.paths)) if n not in current]
    has_objects = any(isinstance(files.paths[n], RemotePath) for n in missing)
    reading_job = job.with_kinds(further_kinds() if has_objects and further_kinds is not None else job.also)

    def collect(index: int, facts: list[Any], encoded: list[bytes | None]) -> None:
        reads.collect(missing[index], reading_job.kinds, facts, encoded)

    storing = Epilogue(reads.store)
    done = parallel_map(
        [files.paths[n] for n in missing], reading_job, advance=advance, on_facts=collect, epilogue=storing, read=read
    )
    for start in range(0, len(files.paths), _KEYS_PER_QUERY):
        batch = range(start, min(start + _KEYS_PER_QUERY, len(files.paths)))
        values = reads.load([n for n in batch if n in current]) if current else {}
        for n in batch:
            if n not in current:
                result = next(done)
            else:
                facts = values.get(n)
                if facts is None:  # corrupt, or removed in the meantime
                    facts = read(files.paths[n], job.kinds)
                    encoded = [kind.encode(item) for kind, item in zip(job.kinds, facts, strict=True)]
                    reads.collect(n, job.kinds, facts, encoded)
                result = job.join(*facts)
            files.has_problem = files.has_problem or bool(result.problem)
            yield result
    next(done, None)  # finish the map, which adds the processes that still store results to `storing`
    if storing.running:
        storing.run_here()  # stores the rows that replace corrupt ones
    files.storing = storing
    if missing and not has_objects and further_kinds is not None:
        added = StampedFiles([files.paths[n] for n in missing], [files.stamps[n] for n in missing])
        add_in_background(added, reading_job, further_kinds, cache, now)
    if files is not paths:
        storing.wait()


def find_current(files: StampedFiles, job: FileJob[T], cache: Cache) -> set[int]:
    """Return the numbers of the files of which all facts that a job needs are cached."""
    return _CachedReads(files, job.kinds, cache, 0).find_current()


class _CachedReads:
    """The facts of files in the cache, and those that are read and will be stored."""

    def __init__(self, files: StampedFiles, kinds: Sequence[FactKind[Any]], cache: Cache, started: int) -> None:
        self._files = files
        self._kinds = kinds
        self._cache = cache
        self._started = started
        self._parent = os.getpid()
        self._absolute_paths = [_absolute(path) for path in files.paths]
        self._rows: list[CacheRow] = []
        """In each process, the facts of the files that it has read and not yet stored."""
        self._size = 0
        self._is_complete = True

    def _keys(self, numbers: Iterable[int]) -> dict[CacheKey, tuple[int, int]]:
        """Return the keys of these files with their numbers and the positions of their kinds."""
        paths = self._absolute_paths
        return {
            CacheKey(paths[n], str(self._files.paths[n]), kind.name): (n, position)
            for n in numbers
            if self._files.stamps[n] is not None
            for position, kind in enumerate(self._kinds)
        }

    def _stamped(self, keys: Mapping[CacheKey, tuple[int, int]]) -> list[tuple[CacheKey, str]]:
        return [(key, self._files.stamps[n] or "") for key, (n, _) in keys.items()]

    def find_current(self) -> set[int]:
        """Return the numbers of the files of which all facts are cached."""
        keys = self._keys(range(len(self._files.paths)))
        counts = Counter(keys[key][0] for key in self._cache.find_current(self._stamped(keys)))
        return {n for n, count in counts.items() if count == len(self._kinds)}

    def load(self, numbers: Sequence[int]) -> dict[int, list[Any]]:
        """Return the cached facts of these files, without those that are corrupt or have been removed."""
        keys = self._keys(numbers)
        loaded: dict[int, dict[int, Any]] = {}
        for key, data in self._cache.load(self._stamped(keys)).items():
            n, position = keys[key]
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                loaded.setdefault(n, {})[position] = self._kinds[position].decode(data)
        positions = range(len(self._kinds))
        return {n: [facts[at] for at in positions] for n, facts in loaded.items() if len(facts) == len(positions)}

    def collect(
        self, n: int, kinds: Sequence[FactKind[Any]], facts: Sequence[Any], encoded: Sequence[bytes | None]
    ) -> None:
        """Keep the facts of a file for `store`, if the file has not changed while it was read."""
        path, stamp = self._files.paths[n], self._files.stamps[n]
        is_readable = not any(item.problem for item in facts)
        if not stamp or not is_readable or not is_stable(stamp, self._started) or compute_file_stamp(path) != stamp:
            self._is_complete = False
            return
        for kind, data in zip(kinds, encoded, strict=True):
            if data is not None:
                self._rows.append(CacheRow(CacheKey(self._absolute_paths[n], str(path), kind.name), stamp, data))
                self._size += len(data)
        if self._size >= _UNSTORED_BYTES:
            self.store()

    def store(self) -> bool:
        """Store the facts collected since the last time. Return whether every file so far could be stored."""
        if self._rows:
            is_worker = os.getpid() != self._parent or is_pool_worker()
            lock_timeout = _WORKER_LOCK_TIMEOUT if is_worker else _LOCK_TIMEOUT
            self._cache.store(self._rows, self._started // _NANOSECONDS_PER_SECOND, lock_timeout)
            self._rows, self._size = [], 0
        return self._is_complete


def is_stable(stamp: str, now: int) -> bool:
    """Return whether a file has not been changed so recently that it may change again without a new stamp."""
    modified, last_changed = map(int, stamp.split()[-2:])
    recently = now - _STABLE_AFTER_NS
    return last_changed <= recently and not recently < modified < now + _STABLE_AFTER_NS


def add_in_background(
    files: StampedFiles,
    job: FileJob[Any],
    further_kinds: Callable[[], Sequence[FactKind[Any]]],
    cache: Cache,
    now: Clock = time.time_ns,
) -> None:
    """Add the kinds of facts that a job leaves out to the cache, in a process of the lowest priority.

    The process outlives this one. It also imports the modules of the other kinds, which would delay the answer.
    Nothing happens if another such process runs: later questions read what is missing.
    """
    may_fork = hasattr(os, "fork") and not is_pool_worker()
    lock = cache.lock_background() if may_fork else None
    if lock is None:
        return

    def add() -> bool:
        _detach()
        kinds = job.with_kinds(further_kinds()).kinds[len(job.kinds) :]
        for _ in cached_map(files, tuple_job(*kinds), cache, now=now) if kinds else ():
            pass
        return files.storing is None or files.storing.wait()

    try:
        # the caller need not wait for the second process
        os.waitpid(fork_process(lambda: fork_process(add) > 0), 0)
    except OSError:
        return
    finally:
        os.close(lock)


def _detach() -> None:
    """Leave the session and the streams of the command, so that nobody waits for this process, and be nice."""
    os.setsid()
    os.nice(19)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


A = TypeVar("A")


def cached_answer(
    paths: Sequence[Path | str] | FileSet,
    question: str,
    answer_type: type[A],
    compute: Callable[[], A | None],
    cache: Cache,
    *,
    now: Clock = time.time_ns,
) -> A | None:
    """Return the cached answer to a question about unchanged files, or compute and cache it.

    `question` must name everything else that the answer depends on. An answer of None is not cached, nor is one that
    leaves out a file, because the next command must warn about that file too.
    """
    files = paths if isinstance(paths, FileSet) else StampedFiles(paths)
    stamped_key = files.answer_key(question)
    if stamped_key is not None:
        cached = load_answer(*stamped_key, answer_type, cache)
        if cached is not None:
            return cached
    started = now()
    try:
        answer = compute()
    finally:
        is_current = files.storing is not None and files.storing.wait()
    data = None if answer is None or stamped_key is None else encode_msgpack(answer)
    if stamped_key is None or data is None or files.has_problem:
        return answer
    key, stamp = stamped_key
    if int(stamp.split()[1]) <= started - _STABLE_AFTER_NS and (is_current or not files.have_changed()):
        cache.store([CacheRow(key, stamp, data)], started // _NANOSECONDS_PER_SECOND)
    return answer


def load_answer(key: CacheKey, stamp: str, answer_type: type[A], cache: Cache) -> A | None:
    """Return the cached answer with this key and stamp (see `StampedFiles.answer_key`), if there is one."""
    for value in cache.load([(key, stamp)]).values():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.msgpack.decode(value, type=answer_type)
    return None


def join_stamps(stamped_paths: Iterable[tuple[Path | str, str | None]]) -> str | None:
    """Return a stamp of many files: their number, the latest change, and a checksum of their names and stamps.

    Return None if there are no files, or one of them has no stamp.

    perf: `hashlib` takes longer to import than the rest of this module, because it loads OpenSSL.
    """
    count = latest = checksum = 0
    for path, stamp in stamped_paths:
        if stamp is None:
            return None
        count += 1
        latest = max(latest, *map(int, stamp.rsplit(" ", 2)[1:]))
        checksum = zlib.crc32(f"{path}\0{stamp}\n".encode("utf-8", "surrogateescape"), checksum)
    return f"{count} {latest} {checksum:08x}" if count else None


def _absolute(path: Path | str) -> str:
    name = str(path)
    # perf: most paths are absolute, and a `Path` is already normalized except for `..`
    is_absolute = isinstance(path, RemotePath) or (name.startswith("/") and "/.." not in name)
    return name if is_absolute else os.path.abspath(name)  # noqa: PTH100


def compute_file_stamp(path: Path | str) -> str | None:
    """Return a stamp of the file, its hook log and toolspan's code, or None if it cannot be determined.

    An object is identified by its etag and size, which listings contain.
    """
    if isinstance(path, RemotePath):
        try:
            info = path.info
        except OSError:
            return None
        return f"{code_digest()} {info.etag} {info.size} {path.sidecar_stamp} 0 0" if info.etag else None
    try:
        status = stat_file(path)
    except (OSError, ValueError):
        return None
    return make_file_stamp(str(path), status)


def make_file_stamp(path: str, status: os.stat_result | FileStatus, *, may_have_hook_log: bool = True) -> str | None:
    """Return the stamp of a local file with a known status, as `compute_file_stamp` does."""
    try:
        path.encode()  # only names that can be encoded are cached
    except UnicodeEncodeError:
        return None
    hook_log_size = 0
    if may_have_hook_log:
        with contextlib.suppress(OSError, ValueError):
            hook_log_size = os.stat(hook_log_path_str(path)).st_size  # noqa: PTH116 - as above; the log is append-only
    times = f"{hook_log_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{code_digest()} {status.st_dev} {status.st_ino} {status.st_size} {times}"


@remembered
def code_digest() -> str:
    """Return a digest of toolspan's own code, so that a new version ignores old results."""
    checksum = newest = 0
    pending_folders = [str(Path(__file__).parent.parent)]
    while pending_folders:
        for item in sorted(os.scandir(pending_folders.pop()), key=lambda item: item.name):
            if item.is_dir(follow_symlinks=False):
                pending_folders += [item.path] if item.name not in _SKIPPED_FOLDERS else []
            elif item.name.endswith(".py"):
                status = item.stat()
                text = f"{item.path} {status.st_size} {status.st_mtime_ns}\n"
                checksum = zlib.crc32(text.encode("utf-8", "surrogateescape"), checksum)
                newest = max(newest, status.st_mtime_ns)
    return f"{_CACHE_FORMAT}-{newest:x}-{checksum:08x}"
