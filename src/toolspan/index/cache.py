"""Facts of files, kept on disk under the state the files were in.

In: a path, the stamp that tells the file's state, bytes. Out: the same bytes, as long as the file
is in that state. A cache that is damaged, foreign, locked, or in a home that cannot be written is
as good as empty: nothing here raises. Nothing waits for the disk: what a failure of power mixes up
is known by its checksum and not given. Knows nothing of what the bytes mean. Read `Cache.load` and
`Cache.store` first.
"""

import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

_FILE = "facts.sqlite3"
_LIMIT = 512 << 20
_DAY = 86_400
_PATIENCE = 1.0
"""Seconds to wait for another process that is writing."""
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Damaged, no database, or not our tables: to be made anew. Everything else passes by itself."""
_TABLES = """
CREATE TABLE IF NOT EXISTS file (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, form TEXT NOT NULL,
    stamp TEXT NOT NULL, size INTEGER NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (path, name, form));
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS swept (day INTEGER NOT NULL);
"""
_THIS = "path = ? AND name = ? AND form = ?"


class Key(NamedTuple):
    """A file, as it was named, and what was asked about it."""

    path: str
    """Absolute."""
    name: str
    """As given: facts carry it."""
    form: str


class Row(NamedTuple):
    """What is kept of one file."""

    key: Key
    stamp: str
    value: bytes


def default_folder(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> Path | None:
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

    def __init__(self, folder: Path, *, limit: int = _LIMIT) -> None:
        self.file = folder / _FILE
        self._limit = limit

    def load(self, wanted: Sequence[tuple[Key, str]]) -> dict[Key, bytes]:
        """What is kept of the files that are still as they were: keys with their stamps."""
        found: dict[Key, bytes] = {}
        with self._broken_is_gone(), self._open() as database:
            found |= _load(database, wanted)
        return found

    def store(self, rows: Sequence[Row], today: int) -> None:
        """Keep rows; what is said of files that are gone, or too much, goes."""
        with self._broken_is_gone(), self._open(make=True) as database, database:
            database.execute("BEGIN IMMEDIATE")
            _replace(database, rows)
            _sweep(database, today // _DAY)
            _shrink(database, self._limit)

    def clear(self) -> None:
        """Forget everything."""
        for ending in ("", "-journal"):
            with contextlib.suppress(OSError):
                self.file.with_name(self.file.name + ending).unlink()

    def count(self) -> tuple[int, int]:
        """How many files it knows, and how many bytes it takes on disk."""
        files, size = 0, 0
        with self._broken_is_gone(), self._open() as database:
            (files,) = database.execute("SELECT count(DISTINCT path) FROM file").fetchone()
            size = self.file.stat().st_size
        return files, size

    @contextmanager
    def _broken_is_gone(self) -> Iterator[None]:
        """Whatever goes wrong inside is over with; a broken database is removed."""
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
                self.clear()
        except (OSError, ValueError, OverflowError):
            pass

    @contextmanager
    def _open(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """The database, private to this user.

        Raises:
            OSError: it is not, or cannot be made.
            sqlite3.Error: it cannot be used.
        """
        if make:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_strangers(self.file.parent.lstat(), stat.S_ISDIR)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        descriptor = os.open(self.file, flags, 0o600)
        try:
            _refuse_strangers(os.fstat(descriptor), stat.S_ISREG)
        finally:
            os.close(descriptor)
        database = sqlite3.connect(self.file, timeout=_PATIENCE, isolation_level=None)
        with closing(database):
            if make:
                database.execute("PRAGMA synchronous=OFF")
                database.executescript(_TABLES)
            yield database


def _refuse_strangers(status: os.stat_result, right: Callable[[int], bool]) -> None:
    """What others own or may write could hold anything.

    Raises:
        PermissionError: it is not this user's alone.
    """
    if not right(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError("not a private place of this user")


def _load(database: sqlite3.Connection, wanted: Iterable[tuple[Key, str]]) -> dict[Key, bytes]:
    query = f"SELECT value, checksum FROM file JOIN body USING (id) WHERE {_THIS} AND stamp = ?"
    found: dict[Key, bytes] = {}
    for key, stamp in wanted:
        row = database.execute(query, (*key, stamp)).fetchone()
        if row is not None and isinstance(row[0], bytes):
            value, checksum = row
            if checksum == _checksum(Row(key, stamp, value)):
                found[key] = value
    return found


def _replace(database: sqlite3.Connection, rows: Sequence[Row]) -> None:
    database.executemany(
        f"DELETE FROM body WHERE id = (SELECT id FROM file WHERE {_THIS})",
        (row.key for row in rows),
    )
    database.executemany(
        "INSERT OR REPLACE INTO file (path, name, form, stamp, size, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        ((*row.key, row.stamp, len(row.value), _checksum(row)) for row in rows),
    )
    database.executemany(
        f"INSERT INTO body SELECT id, ? FROM file WHERE {_THIS}",
        ((row.value, *row.key) for row in rows),
    )


def _checksum(row: Row) -> int:
    """Of what is kept, and of what it is kept for."""
    return zlib.crc32(row.value, zlib.crc32("\0".join([*row.key, row.stamp]).encode()))


def _forget(database: sqlite3.Connection, numbers: Iterable[tuple[int]]) -> None:
    for number in list(numbers):
        database.execute("DELETE FROM file WHERE id = ?", number)
        database.execute("DELETE FROM body WHERE id = ?", number)


def _sweep(database: sqlite3.Connection, day: int) -> None:
    """Once a day: forget the files that are no longer there."""
    if database.execute("SELECT 1 FROM swept WHERE day = ?", (day,)).fetchone():
        return
    database.execute("DELETE FROM swept")
    database.execute("INSERT INTO swept VALUES (?)", (day,))
    rows = database.execute("SELECT id, path FROM file").fetchall()
    _forget(database, [(number,) for number, path in rows if not os.path.lexists(path)])


def _shrink(database: sqlite3.Connection, limit: int) -> None:
    """Over the limit, what was stored longest ago goes first."""
    (size,) = database.execute("SELECT coalesce(sum(size), 0) FROM file").fetchone()
    if size <= limit:
        return
    gone = []
    for number, length in database.execute("SELECT id, size FROM file ORDER BY id").fetchall():
        gone.append((number,))
        size -= length
        if size <= limit * 3 // 4:
            break
    _forget(database, gone)
