"""A store in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from toolspan.stores.base import StoreUnavailable
from toolspan.stores.sql import Database, SqlStore

_SCHEMA = """
CREATE TABLE IF NOT EXISTS toolspan_stream (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, project_key TEXT NOT NULL, session_id TEXT NOT NULL,
    subpath TEXT NOT NULL, entries BIGINT NOT NULL, mtime BIGINT NOT NULL, UNIQUE (project_key, session_id, subpath));
CREATE TABLE IF NOT EXISTS toolspan_entry (
    stream BIGINT NOT NULL, seq BIGINT NOT NULL, uuid TEXT, line BYTEA NOT NULL, PRIMARY KEY (stream, seq));
CREATE INDEX IF NOT EXISTS toolspan_entry_uuid ON toolspan_entry (stream, uuid) WHERE uuid IS NOT NULL;
CREATE TABLE IF NOT EXISTS toolspan_lease (
    project_key TEXT NOT NULL, session_id TEXT NOT NULL, fence BIGINT NOT NULL, owner TEXT NOT NULL,
    host TEXT NOT NULL, pid BIGINT NOT NULL, ttl DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (project_key, session_id));
"""
MAX_CONNECTIONS = 16
"""The connections of one store. Sessions that commit at the same time take turns: a server has 100 by default."""
_SCHEMA_LOCK = 0x746F6F6C7370616E
"""The key of the advisory lock under which the tables are created, which two connections must not do at once."""
_SETTINGS = (
    "-c statement_timeout=30000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=10000"
    " -c synchronous_commit=on -c default_transaction_isolation=read\\ committed"
)
"""A paused owner must not lock a session for others, and a commit must be on the disk."""
_CONNECTION: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 15_000, "application_name": "toolspan",
}  # fmt: skip


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database. Its tables are created on first use."""

    clock = "extract(epoch FROM clock_timestamp())::double precision"
    lock = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._target = url
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit((parts.scheme, user + parts.netloc.rpartition("@")[2], parts.path, "", ""))
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._idle: list[psycopg.Connection[Any]] = []

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Database]:  # noqa: ARG002 - rows are locked, not the database
        """Run statements in one transaction, on a connection that no other thread uses meanwhile."""
        with self._slots:
            connection: psycopg.Connection[Any] | None = None
            try:
                connection = self._take_connection()
                with connection.transaction():
                    yield _Statements(connection)
            except psycopg.Error as error:
                text = " ".join(str(error).split()) or type(error).__name__
                raise StoreUnavailable(f"{self.url}: {text}") from error
            finally:
                if connection is not None and not connection.closed and not connection.broken:
                    with self._lock:
                        self._idle.append(connection)

    def _take_connection(self) -> psycopg.Connection[Any]:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        connection = psycopg.connect(self._target, autocommit=True, options=_SETTINGS, **_CONNECTION)
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
                if connection.execute("SELECT to_regclass('toolspan_lease')").fetchone() == (None,):
                    connection.execute(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


class _Statements:
    """A connection whose statements mark parameters with `?`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        """Run a statement and return its cursor."""
        return self._connection.execute(_convert(statement), tuple(parameters))

    def executemany(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement for each row, in one round trip."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_convert(statement), rows)


def _convert(statement: str) -> Any:
    return statement.replace("?", "%s")
