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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache as remembered
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from toolspan.formats.claude.paths import hook_log_path_str
from toolspan.formats.remote import RemotePath, is_url
from toolspan.reading.parallel import (
    AdvanceCallback,
    Epilogue,
    FileJob,
    encode_msgpack,
    parallel_map,
)

if TYPE_CHECKING:
    from toolspan.reading.discovery import TranscriptFile

_DATABASE_NAME = "facts.sqlite3"
_SIZE_LIMIT = 512 << 20
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
                batch = {key: key for key in keys[start : start + _KEYS_PER_QUERY]}
                jobs = {key.job_name for key in batch}
                condition = f"form IN ({_marks(jobs)}) AND path IN ({_marks(batch)})"
                query = f"SELECT path, name, form, stamp, {columns} WHERE {condition}"
                for *names, stamp, value, checksum in database.execute(query, (*jobs, *(key.path for key in batch))):
                    key = batch.get(CacheKey(*names))  # without a copy of its strings
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


def _delete_rows(database: sqlite3.Connection, numbers: Sequence[tuple[int]]) -> None:
    for table in ("file", "body"):
        database.executemany(f"DELETE FROM {table} WHERE id = ?", numbers)


def _sweep_missing_files(database: sqlite3.Connection, day: int) -> None:
    """Remove rows for missing files, at most once a day."""
    if database.execute("SELECT 1 FROM swept WHERE day = ?", (day,)).fetchone():
        return
    database.execute("DELETE FROM swept")
    database.execute("INSERT INTO swept VALUES (?)", (day,))
    rows = database.execute("SELECT id, path FROM file").fetchall()
    _delete_rows(database, [(number,) for number, path in rows if not is_url(path) and not os.path.lexists(path)])


def _shrink_to_limit(database: sqlite3.Connection, limit: int) -> None:
    (size,) = database.execute("SELECT coalesce(sum(size), 0) FROM file").fetchone()
    if size <= limit:
        return
    evicted = []
    for number, length in database.execute("SELECT id, size FROM file ORDER BY id").fetchall():
        evicted.append((number,))
        size -= length
        if size <= limit * 3 // 4:
            break
    _delete_rows(database, evicted)


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


class StampedFiles:
    """Files with the stamps they had before they were read.

    perf: if the same object is given to `cached_answer` and to the `cached_map` that computes the answer, the stamps
    are computed once before the files are read and once after, instead of twice, and the results are stored by the
    processes that read the files while this one computes the answer.
    """

    def __init__(self, paths: Sequence[Path], stamps: Sequence[str | None] | None = None) -> None:
        self.paths = paths
        self.stamps = [compute_file_stamp(path) for path in paths] if stamps is None else stamps
        self.storing: Epilogue | None = None
        """The end of a `cached_map`. It succeeds if every file was read in the state of its stamp."""
        self.has_problem = False
        """True if a `cached_map` could not read a file."""

    @classmethod
    def from_listing(cls, files: Sequence[TranscriptFile]) -> StampedFiles:
        """Return files with the stamps that they had when they were listed."""
        stamps = [
            compute_file_stamp(file.path)
            if file.status is None
            else make_file_stamp(str(file.path), file.status, may_have_hook_log=file.may_have_hook_log)
            for file in files
        ]
        return cls([file.path for file in files], stamps)


def cached_map(
    paths: Sequence[Path] | StampedFiles,
    job: FileJob[T],
    cache: Cache,
    *,
    advance: AdvanceCallback = lambda _: None,
    now: Clock = time.time_ns,
) -> Iterator[T]:
    """Yield the job's result for each path in order, running the job only for files that are not cached.

    If `paths` are stamped files, the caller must wait for their `storing` after the last result.
    """
    files = paths if isinstance(paths, StampedFiles) else StampedFiles(paths)
    job_name = f"{job.function.__module__}.{job.function.__qualname__}"
    keys = [CacheKey(_absolute(path), str(path), job_name) for path in files.paths]
    stamped_keys = {key: stamp for key, stamp in zip(keys, files.stamps, strict=True) if stamp is not None}
    current = cache.find_current([*stamped_keys.items()])
    missing = [n for n, key in enumerate(keys) if key not in current]
    started = now()
    parent = os.getpid()
    rows: list[CacheRow] = []
    """In each process, the results of the files that it has read."""
    is_complete = True

    def collect_row(index: int, result: T, data: bytes | None) -> None:
        nonlocal is_complete
        n = missing[index]
        path, key, stamp = files.paths[n], keys[n], files.stamps[n]
        modified, last_changed = map(int, stamp.split()[-2:]) if stamp else (started, started)
        recently = started - _STABLE_AFTER_NS
        is_stable = last_changed <= recently and not recently < modified < started + _STABLE_AFTER_NS
        if stamp and not result.problem and is_stable and compute_file_stamp(path) == stamp:
            data = data or encode_msgpack(result)
            rows.extend([CacheRow(key, stamp, data)] if data else [])
        else:
            is_complete = False

    def store() -> bool:
        if rows:
            lock_timeout = _LOCK_TIMEOUT if os.getpid() == parent else _WORKER_LOCK_TIMEOUT
            cache.store(rows, started // _NANOSECONDS_PER_SECOND, lock_timeout)
        return is_complete

    storing = Epilogue(store)
    done = parallel_map(
        [files.paths[n] for n in missing], job, advance=advance, on_result=collect_row, epilogue=storing
    )
    decoder = msgspec.msgpack.Decoder(job.result_type)
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        batch = keys[start : start + _KEYS_PER_QUERY]
        values = cache.load([(key, stamped_keys[key]) for key in batch if key in current]) if current else {}
        for n, key in enumerate(batch, start):
            if key not in current:
                result = next(done)
            else:
                try:
                    result = decoder.decode(values[key])
                except (KeyError, msgspec.MsgspecError, UnicodeDecodeError):  # corrupt, or removed in the meantime
                    missing.append(n)
                    result = job.function(files.paths[n])
                    collect_row(len(missing) - 1, result, None)
            files.has_problem = files.has_problem or bool(result.problem)
            yield result
    next(done, None)  # finish the map, which adds the processes that still store results to `storing`
    if storing.running:
        storing.run_here()  # stores the rows that replace corrupt ones
    files.storing = storing
    if files is not paths:
        storing.wait()


A = TypeVar("A")


def cached_answer(
    paths: Sequence[Path] | StampedFiles,
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
    files = paths if isinstance(paths, StampedFiles) else StampedFiles(paths)
    paths, stamps = files.paths, files.stamps
    key = CacheKey(_absolute(paths[0]), str(paths[0]), question) if paths and None not in stamps else None
    stamp = _join_stamps(paths, stamps) if key else ""
    for value in cache.load([(key, stamp)]).values() if key else ():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.msgpack.decode(value, type=answer_type)
    started = now()
    try:
        answer = compute()
    finally:
        is_current = files.storing is not None and files.storing.wait()
    data = None if answer is None or key is None else encode_msgpack(answer)
    if key is None or data is None or files.has_problem or _latest_change(stamps) > started - _STABLE_AFTER_NS:
        return answer
    if is_current or _join_stamps(paths, StampedFiles(paths).stamps) == stamp:
        cache.store([CacheRow(key, stamp, data)], started // _NANOSECONDS_PER_SECOND)
    return answer


def _join_stamps(paths: Sequence[Path], stamps: Sequence[str | None]) -> str:
    """Return a stamp of many files: the latest change, and a checksum of their names and stamps.

    perf: `hashlib` takes longer to import than the rest of this module, because it loads OpenSSL.
    """
    lines = (f"{path}\0{stamp}\n" for path, stamp in zip(paths, stamps, strict=True))
    checksum = zlib.crc32("".join(lines).encode("utf-8", "surrogateescape"))
    return f"{len(paths)} {_latest_change(stamps)} {checksum:08x}"


def _latest_change(stamps: Sequence[str | None]) -> int:
    return max(int(time) for stamp in stamps if stamp for time in stamp.split()[-2:])


def _absolute(path: Path) -> str:
    name = str(path)
    # perf: most paths are absolute, and a `Path` is already normalized except for `..`
    is_absolute = isinstance(path, RemotePath) or (name.startswith("/") and "/.." not in name)
    return name if is_absolute else os.path.abspath(name)  # noqa: PTH100


def compute_file_stamp(path: Path) -> str | None:
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
        status = os.stat(path)  # noqa: PTH116 - perf: called for every file
    except (OSError, ValueError):
        return None
    return make_file_stamp(str(path), status)


def make_file_stamp(path: str, status: os.stat_result, *, may_have_hook_log: bool = True) -> str | None:
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
