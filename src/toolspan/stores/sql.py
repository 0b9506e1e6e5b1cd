"""The tables and statements that the SQLite and the PostgreSQL store share.

The row of a lease is locked before each append, so that appends of a session are in one order, and an owner that has
lost its lease cannot append after the new owner's first look. Times are those of the database. Start at
`SqlStore.commit`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from toolspan.stores.base import (
    Append,
    Lease,
    LeasedStore,
    LeaseRequest,
    StoreUnavailable,
    StreamInfo,
    StreamKey,
    entry_uuid,
    held_error,
    lost_error,
)

_MAX_PARAMETERS = 500


class Database(Protocol):
    """A connection in a transaction. Parameters are `?`."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        """Run a statement and return its cursor."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[object]]) -> object:
        """Run a statement for each row."""
        ...


class SqlStore(LeasedStore):
    """A store in a database with transactions."""

    clock: str
    """The SQL expression for the time in seconds."""
    lock: str = ""
    """The end of a SELECT that locks its rows."""

    @abstractmethod
    def transaction(self, *, writes: bool) -> AbstractContextManager[Database]:
        """Return a context in which statements run in one transaction. Database errors raise StoreUnavailable."""

    def commit(self, appends: Sequence[Append], lease: Lease | None = None) -> None:
        """Append to streams of one session in one transaction."""
        with self.transaction(writes=True) as database:
            for project, session in dict.fromkeys(append.key[:2] for append in appends):
                if lease is None:
                    self._end_expired_lease(database, project, session)
                else:
                    self._extend(database, lease)
            for append in appends:
                self._append(database, append)

    def _append(self, database: Database, append: Append) -> None:
        if not append.lines:
            return
        database.execute(
            "INSERT INTO toolspan_stream (project_key, session_id, subpath, entries, mtime) VALUES (?, ?, ?, 0, 0)"
            " ON CONFLICT DO NOTHING",
            append.key,
        )
        stream, count, mtime, now = database.execute(
            f"SELECT id, entries, mtime, {self.clock} FROM toolspan_stream"
            f" WHERE project_key = ? AND session_id = ? AND subpath = ?{self.lock}",
            append.key,
        ).fetchone()
        rows = [(entry_uuid(line), line) for line in append.lines]
        if append.start is not None:
            if count < append.start:
                raise StoreUnavailable(f"{self.url}: {append.start - count} earlier records are missing in the store")
            rows = rows[count - append.start :]
        else:
            rows = self._without_known(database, stream, rows)
        database.executemany(
            "INSERT INTO toolspan_entry (stream, seq, uuid, line) VALUES (?, ?, ?, ?)",
            [(stream, count + n, uuid, line) for n, (uuid, line) in enumerate(rows)],
        )
        database.execute(
            "UPDATE toolspan_stream SET entries = ?, mtime = ? WHERE id = ?",
            (count + len(rows), max(mtime + 1, int(now * 1000)), stream),
        )

    def _without_known(
        self, database: Database, stream: int, rows: Sequence[tuple[str | None, bytes]]
    ) -> list[tuple[str | None, bytes]]:
        """Return the rows whose ids the stream does not have, each id once."""
        uuids = [uuid for uuid, _ in rows if uuid is not None]
        known: set[str] = set()
        for start in range(0, len(uuids), _MAX_PARAMETERS):
            part = uuids[start : start + _MAX_PARAMETERS]
            marks = ", ".join("?" * len(part))
            statement = f"SELECT uuid FROM toolspan_entry WHERE stream = ? AND uuid IN ({marks})"
            known.update(uuid for (uuid,) in database.execute(statement, (stream, *part)).fetchall())
        new = []
        for uuid, line in rows:
            if uuid is None or uuid not in known:
                new.append((uuid, line))
            if uuid is not None:
                known.add(uuid)
        return new

    def read_lines(self, key: StreamKey, start: int = 0) -> list[bytes] | None:
        """Return the lines of a stream without the first `start` ones."""
        with self.transaction(writes=False) as database:
            row = database.execute(
                "SELECT id FROM toolspan_stream WHERE project_key = ? AND session_id = ? AND subpath = ?", key
            ).fetchone()
            if row is None:
                return None
            statement = "SELECT line FROM toolspan_entry WHERE stream = ? AND seq >= ? ORDER BY seq"
            return [bytes(line) for (line,) in database.execute(statement, (row[0], start)).fetchall()]

    def list_streams(self, project: str | None = None, session: str | None = None) -> list[StreamInfo]:
        """Return the streams of a session, of a project or of all projects."""
        conditions = [("project_key = ?", project), ("session_id = ?", session)]
        used = [(text, value) for text, value in conditions if value is not None]
        where = f" WHERE {' AND '.join(text for text, _ in used)}" if used else ""
        statement = f"SELECT project_key, session_id, subpath, entries, mtime FROM toolspan_stream{where} ORDER BY id"
        with self.transaction(writes=False) as database:
            rows = database.execute(statement, [value for _, value in used]).fetchall()
        return [StreamInfo(StreamKey(*row[:3]), row[3], row[4]) for row in rows]

    def remove_stream(self, key: StreamKey) -> None:
        """Remove a stream, or a whole session."""
        with self.transaction(writes=True) as database:
            self._end_expired_lease(database, key.project, key.session)
            where = "project_key = ? AND session_id = ?" + (" AND subpath = ?" if key.subpath else "")
            values = key if key.subpath else key[:2]
            chosen = f"SELECT id FROM toolspan_stream WHERE {where}"
            database.execute(f"DELETE FROM toolspan_entry WHERE stream IN ({chosen})", values)
            database.execute(f"DELETE FROM toolspan_stream WHERE {where}", values)

    # Leases

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        """Return a lease with a new fencing number."""
        key = request.key
        with self.transaction(writes=True) as database:
            database.execute(
                "INSERT INTO toolspan_lease (project_key, session_id, fence, owner, host, pid, ttl, expires)"
                " VALUES (?, ?, 0, '', '', 0, 0, 0) ON CONFLICT DO NOTHING",
                key[:2],
            )
            current = self._read_lease(database, key.project, key.session)
            assert current is not None
            if current.is_live and current.owner != request.owner:
                raise held_error(current)
            lease = request.grant(current.fence + 1, current.fence)
            self._write_lease(database, lease)
        return lease

    def renew_lease(self, lease: Lease) -> None:
        """Extend a lease by its `ttl`."""
        with self.transaction(writes=True) as database:
            self._extend(database, lease)

    def release_lease(self, lease: Lease) -> None:
        """End a lease, and keep its fencing number."""
        with self.transaction(writes=True) as database:
            database.execute(
                "UPDATE toolspan_lease SET owner = '', expires = 0"
                " WHERE project_key = ? AND session_id = ? AND fence = ?",
                (lease.project, lease.session, lease.fence),
            )

    def list_leases(self, project: str | None = None) -> list[Lease]:
        """Return the latest lease of each session that has an owner."""
        where, values = ("", ()) if project is None else (" AND project_key = ?", (project,))
        with self.transaction(writes=False) as database:
            rows = database.execute(f"{self._select_leases()} WHERE owner <> ''{where}", values).fetchall()
        return [self._make_lease(row) for row in rows]

    def _select_leases(self) -> str:
        return (
            f"SELECT project_key, session_id, owner, host, pid, fence, ttl, expires - {self.clock} FROM toolspan_lease"
        )

    def _read_lease(self, database: Database, project: str, session: str) -> Lease | None:
        statement = f"{self._select_leases()} WHERE project_key = ? AND session_id = ?{self.lock}"
        row = database.execute(statement, (project, session)).fetchone()
        return None if row is None else self._make_lease(row)

    def _make_lease(self, row: Sequence[Any]) -> Lease:
        project, session, owner, host, pid, fence, ttl, expires_in = row
        return Lease(
            project=project, session=session, owner=owner, host=host, pid=pid, fence=fence, ttl=float(ttl),
            expires_in=float(expires_in),
        )  # fmt: skip

    def _write_lease(self, database: Database, lease: Lease) -> None:
        database.execute(
            "UPDATE toolspan_lease SET fence = ?, owner = ?, host = ?, pid = ?, ttl = ?,"
            f" expires = {self.clock} + ? WHERE project_key = ? AND session_id = ?",
            (lease.fence, lease.owner, lease.host, lease.pid, lease.ttl, lease.ttl, lease.project, lease.session),
        )

    def _extend(self, database: Database, lease: Lease) -> None:
        """Extend a lease and lock it until the end of the transaction."""
        cursor = database.execute(
            f"UPDATE toolspan_lease SET expires = {self.clock} + ?"
            " WHERE project_key = ? AND session_id = ? AND fence = ? AND owner = ?",
            (lease.ttl, lease.project, lease.session, lease.fence, lease.owner),
        )
        if cursor.rowcount != 1:
            raise lost_error(lease.session)

    def _end_expired_lease(self, database: Database, project: str, session: str) -> None:
        """Make sure that no owner of a session appends after this transaction.

        Raises:
            InUse: the session has a live lease.
        """
        current = self._read_lease(database, project, session)
        if current is None or not current.owner:
            return
        if current.is_live:
            raise held_error(current)
        database.execute(
            "UPDATE toolspan_lease SET owner = '', fence = fence + 1 WHERE project_key = ? AND session_id = ?",
            (project, session),
        )
