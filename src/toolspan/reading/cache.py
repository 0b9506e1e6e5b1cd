"""Facts of files, kept on disk under the state the files were in.

In: a path, the stamp that tells the file's state, bytes. Out: the same bytes, as long as the file
is in that state. A cache that is damaged, foreign, locked, or in a home that cannot be written is
as good as empty: nothing here raises. Nothing waits for the disk: what a failure of power mixes up
is known by its checksum and not given. Knows nothing of what the bytes mean. Read `Cache.load` and
`Cache.store` first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache as remembered
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from toolspan.formats.claude.paths import hook_log_path_str
from toolspan.reading.parallel import AdvanceCallback, FileJob, encode_msgpack, parallel_map_encoded
from toolspan.reading.scan import SCAN_JOB, FileSummary

_DATABASE_NAME = "facts.sqlite3"
_SIZE_LIMIT = 512 << 20
_SECONDS_PER_DAY = 86_400
_LOCK_TIMEOUT = 1.0
"""Seconds to wait for another process that is writing."""
_CORRUPTION_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Damaged, no database, or not our tables: to be made anew. Everything else passes by itself."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS file (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, form TEXT NOT NULL,
    stamp TEXT NOT NULL, size INTEGER NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (path, name, form));
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS swept (day INTEGER NOT NULL);
"""
_KEY_CONDITION = "path = ? AND name = ? AND form = ?"


class CacheKey(NamedTuple):
    """A file, as it was named, and what was asked about it."""

    path: str
    """Absolute."""
    name: str
    """As given: facts carry it."""
    job_name: str


class CacheRow(NamedTuple):
    """What is kept of one file."""

    key: CacheKey
    stamp: str
    value: bytes


def default_folder(environ: os._Environ[str] | dict[str, str] = os.environ) -> Path | None:
    """Where this user's cache lies; None when there shall be none."""
    if environ.get("TOOLSPAN_NO_CACHE"):
        return None
    named = environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "toolspan"
    except RuntimeError:  # nobody's home
        return None


class Cache:
    """A folder with one database in it."""

    def __init__(self, folder: Path, *, limit: int = _SIZE_LIMIT) -> None:
        self.file = folder / _DATABASE_NAME
        self._limit = limit

    def load(self, stamped_keys: Sequence[tuple[CacheKey, str]]) -> dict[CacheKey, bytes]:
        """What is kept of the files that are still as they were: keys with their stamps."""
        values: dict[CacheKey, bytes] = {}
        with self._discard_if_corrupt(), self._open_database() as database:
            values |= _load_values(database, stamped_keys)
        return values

    def store(self, rows: Sequence[CacheRow], today: int) -> None:
        """Keep rows; what is said of files that are gone, or too much, goes."""
        with self._discard_if_corrupt(), self._open_database(make=True) as database, database:
            database.execute("BEGIN IMMEDIATE")
            _replace_rows(database, rows)
            _sweep_missing_files(database, today // _SECONDS_PER_DAY)
            _shrink_to_limit(database, self._limit)

    def clear(self) -> None:
        """Forget everything."""
        for ending in ("", "-journal"):
            with contextlib.suppress(OSError):
                self.file.with_name(self.file.name + ending).unlink()

    def usage(self) -> tuple[int, int]:
        """How many files it knows, and how many bytes it takes on disk."""
        files, size = 0, 0
        with self._discard_if_corrupt(), self._open_database() as database:
            (files,) = database.execute("SELECT count(DISTINCT path) FROM file").fetchone()
            size = self.file.stat().st_size
        return files, size

    @contextmanager
    def _discard_if_corrupt(self) -> Iterator[None]:
        """Whatever goes wrong inside is over with; a broken database is removed."""
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPTION_CODES:
                self.clear()
        except (OSError, ValueError, OverflowError):
            pass

    @contextmanager
    def _open_database(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """The database, private to this user.

        Raises:
            OSError: it is not, or cannot be made.
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
        database = sqlite3.connect(self.file, timeout=_LOCK_TIMEOUT, isolation_level=None)
        with closing(database):
            if make:
                database.execute("PRAGMA synchronous=OFF")
                database.executescript(_SCHEMA)
            yield database


def _require_private(status: os.stat_result, is_expected_type: Callable[[int], bool]) -> None:
    """What others own or may write could hold anything.

    Raises:
        PermissionError: it is not this user's alone.
    """
    if not is_expected_type(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError("not a private place of this user")


def _load_values(database: sqlite3.Connection, stamped_keys: Iterable[tuple[CacheKey, str]]) -> dict[CacheKey, bytes]:
    query = f"SELECT value, checksum FROM file JOIN body USING (id) WHERE {_KEY_CONDITION} AND stamp = ?"
    values: dict[CacheKey, bytes] = {}
    for key, stamp in stamped_keys:
        row = database.execute(query, (*key, stamp)).fetchone()
        if row is not None and isinstance(row[0], bytes):
            value, checksum = row
            if checksum == _row_checksum(CacheRow(key, stamp, value)):
                values[key] = value
    return values


def _replace_rows(database: sqlite3.Connection, rows: Sequence[CacheRow]) -> None:
    database.executemany(
        f"DELETE FROM body WHERE id = (SELECT id FROM file WHERE {_KEY_CONDITION})", (row.key for row in rows)
    )
    database.executemany(
        "INSERT OR REPLACE INTO file (path, name, form, stamp, size, checksum) VALUES (?, ?, ?, ?, ?, ?)",
        ((*row.key, row.stamp, len(row.value), _row_checksum(row)) for row in rows),
    )
    database.executemany(
        f"INSERT INTO body SELECT id, ? FROM file WHERE {_KEY_CONDITION}", ((row.value, *row.key) for row in rows)
    )


def _row_checksum(row: CacheRow) -> int:
    """Of what is kept, and of what it is kept for."""
    return zlib.crc32(row.value, zlib.crc32("\0".join([*row.key, row.stamp]).encode()))


def _delete_rows(database: sqlite3.Connection, numbers: Iterable[tuple[int]]) -> None:
    for number in list(numbers):
        database.execute("DELETE FROM file WHERE id = ?", number)
        database.execute("DELETE FROM body WHERE id = ?", number)


def _sweep_missing_files(database: sqlite3.Connection, day: int) -> None:
    """Once a day: forget the files that are no longer there."""
    if database.execute("SELECT 1 FROM swept WHERE day = ?", (day,)).fetchone():
        return
    database.execute("DELETE FROM swept")
    database.execute("INSERT INTO swept VALUES (?)", (day,))
    rows = database.execute("SELECT id, path FROM file").fetchall()
    _delete_rows(database, [(number,) for number, path in rows if not os.path.lexists(path)])


def _shrink_to_limit(database: sqlite3.Connection, limit: int) -> None:
    """Over the limit, what was stored longest ago goes first."""
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
"""A file that changed less long ago may change again without its times showing it."""
_CACHE_FORMAT = 1
_SKIPPED_FOLDERS = frozenset({"__pycache__", "archive", "testing"})

Clock = Callable[[], int]
"""Nanoseconds since 1970."""


class CacheableResult(Protocol):
    """What a job gives for one file."""

    @property
    def problem(self) -> str | None:
        """Why the file could not be read; such an answer is not remembered."""
        ...


T = TypeVar("T", bound=CacheableResult)


def cached_map(
    paths: Sequence[Path],
    job: FileJob[T],
    cache: Cache,
    *,
    advance: AdvanceCallback = lambda _: None,
    now: Clock = time.time_ns,
) -> Iterator[T]:
    """What the job gives for each path, in order; done only for files that are not known."""
    keys = [CacheKey(os.path.abspath(path), str(path), job.name) for path in paths]  # noqa: PTH100
    stamps = [compute_file_stamp(path) for path in paths]
    stamped_keys = [(key, file_stamp) for key, file_stamp in zip(keys, stamps, strict=True) if file_stamp is not None]
    cached_results = _decode_values(cache.load(stamped_keys), job.result_type)
    missing = [path for path, key in zip(paths, keys, strict=True) if key not in cached_results]
    started = now()
    done = parallel_map_encoded(missing, job, advance=advance)
    rows: list[CacheRow] = []
    for path, key, file_stamp in zip(paths, keys, stamps, strict=True):
        result = cached_results.get(key)
        if result is None:
            result, data = next(done)
            if file_stamp and not result.problem and _is_stable(path, file_stamp, started):
                data = data or encode_msgpack(result)
                rows += [CacheRow(key, file_stamp, data)] if data else []
        yield result
    if rows:
        cache.store(rows, started // _NANOSECONDS_PER_SECOND)


def cached_scan_files(
    paths: Sequence[Path], cache: Cache, *, advance: AdvanceCallback = lambda _: None, now: Clock = time.time_ns
) -> Iterator[FileSummary]:
    """What `read.survey` gives."""
    return cached_map(paths, SCAN_JOB, cache, advance=advance, now=now)


def _decode_values(values: dict[CacheKey, bytes], result_type: type[T]) -> dict[CacheKey, T]:
    results = {}
    decoder = msgspec.msgpack.Decoder(result_type)
    for key, value in values.items():
        try:
            results[key] = decoder.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return results


def compute_file_stamp(path: Path) -> str | None:
    """The state a file, what hooks noted of it and the code are in; None if it cannot be told."""
    name = str(path)
    try:
        os.path.abspath(name).encode()  # noqa: PTH100 - a name that is no text cannot be kept
        status = os.stat(name)  # noqa: PTH116 - quicker, and asked of every file
    except (OSError, ValueError):
        return None
    times = f"{_hook_log_size(name)} {status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{code_digest()} {status.st_dev} {status.st_ino} {status.st_size} {times}"


def _hook_log_size(path: str) -> int:
    """How much hooks have noted of a session; that only grows."""
    try:
        return os.stat(hook_log_path_str(path)).st_size  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return 0


def _is_stable(path: Path, file_stamp: str, started: int) -> bool:
    """It did not change while it was read, nor just before."""
    modified, changed = map(int, file_stamp.split()[-2:])
    before = started - _STABLE_AFTER_NS
    if changed > before or before < modified < started + _STABLE_AFTER_NS:
        return False
    return compute_file_stamp(path) == file_stamp


@remembered
def code_digest() -> str:
    """What toolspan's own code looks like, so that a changed one finds out anew."""
    digest = hashlib.sha256(f"{_CACHE_FORMAT}".encode())
    pending_folders = [str(Path(__file__).parent.parent)]
    while pending_folders:
        for item in sorted(os.scandir(pending_folders.pop()), key=lambda item: item.name):
            if item.is_dir(follow_symlinks=False):
                pending_folders += [item.path] if item.name not in _SKIPPED_FOLDERS else []
            elif item.name.endswith(".py"):
                status = item.stat()
                text = f"{item.path} {status.st_size} {status.st_mtime_ns}\n"
                digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
