"""A store in a SQLite database: for tests, and for servers with one machine."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolspan.formats.jsonl import make_folder
from toolspan.stores.base import StoreUnavailable
from toolspan.stores.sql import Database, SqlStore

_BUSY_SECONDS = 20.0
_RETRY_SECONDS = 0.01
_SCHEMA = """
CREATE TABLE IF NOT EXISTS toolspan_stream (
    id INTEGER PRIMARY KEY, project_key TEXT NOT NULL, session_id TEXT NOT NULL, subpath TEXT NOT NULL,
    entries INTEGER NOT NULL, mtime INTEGER NOT NULL, UNIQUE (project_key, session_id, subpath));
CREATE TABLE IF NOT EXISTS toolspan_entry (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, uuid TEXT, line BLOB NOT NULL,
    PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS toolspan_entry_uuid ON toolspan_entry (stream, uuid) WHERE uuid IS NOT NULL;
CREATE TABLE IF NOT EXISTS toolspan_lease (
    project_key TEXT NOT NULL, session_id TEXT NOT NULL, fence INTEGER NOT NULL, owner TEXT NOT NULL,
    host TEXT NOT NULL, pid INTEGER NOT NULL, ttl REAL NOT NULL, expires REAL NOT NULL,
    PRIMARY KEY (project_key, session_id));
"""


class SqliteStore(SqlStore):
    """A store in a file. Its clock is that of this machine."""

    clock = "(julianday('now') - 2440587.5) * 86400.0"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path.expanduser().absolute()
        self.url = f"sqlite://{self.path}"
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Database]:
        """Run statements in one transaction, which is on the disk when this ends."""
        with self._lock:
            try:
                connection = self._connection or self._connect()
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                self._disconnect()
                raise StoreUnavailable(f"{self.url}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        make_folder(self.path.parent)
        is_new = not self.path.exists()
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if is_new:
                self.path.chmod(0o600)
            _use_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the database. Later calls open it again."""
        with self._lock:
            self._disconnect()


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. SQLite does not wait for other connections that switch at the same time."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return
