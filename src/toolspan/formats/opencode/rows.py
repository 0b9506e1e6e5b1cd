"""Read the sessions of an OpenCode database by index. Start at `SessionRows.iter_rows`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolspan.errors import SourceError
from toolspan.formats.container import Member, RowSource, open_database, split_member

_MESSAGES_PER_QUERY = 100
_BYTES_PER_MESSAGE = 1 << 14
"""The size of a message with its parts, as an estimate: counting the bytes would read the whole database."""
_SESSION_COLUMNS = (
    "id", "parent_id", "directory", "title", "version", "agent", "model", "time_created", "time_updated",
)  # fmt: skip
_SESSIONS = """
SELECT s.id, s.parent_id, s.time_updated,
    (SELECT count(*) FROM message AS m WHERE m.session_id = s.id),
    (SELECT max(m.time_updated, coalesce((SELECT max(p.time_updated) FROM part AS p WHERE p.message_id = m.id), 0))
     FROM message AS m WHERE m.session_id = s.id ORDER BY m.time_created DESC, m.id DESC LIMIT 1)
FROM session AS s
"""
"""The sessions with their sizes and the time of the last change, which is one of the last message."""
_MESSAGES = f"""
SELECT rowid, id, time_created, data FROM message WHERE session_id = ? AND (time_created, id) > (?, ?)
ORDER BY time_created, id LIMIT {_MESSAGES_PER_QUERY}
"""
_PARTS = "SELECT rowid, id, data FROM part WHERE message_id = ? ORDER BY id"
_MESSAGE_KEY, _PART_KEY = 1, 2
"""The remainders of the keys of rows; a key is four times the number of a row, plus the number of its table."""


def list_sessions(container: Path, session: str | None = None) -> Iterator[Member]:
    """Yield the sessions in a database, or one of them, without reading their content.

    Raises:
        SourceError: the database cannot be read, or is not one of OpenCode.
    """
    with open_database(str(container)) as database:
        if session is not None:
            rows = database.execute(f"{_SESSIONS} WHERE s.id = ?", (session,)).fetchall()
            parents = {}
        else:
            rows = database.execute(_SESSIONS).fetchall()
            parents = {name: parent for name, parent, *_ in rows if parent}
    for name, _, updated, messages, changed in rows:
        root = name
        for _ in range(len(parents)):
            if root not in parents or parents[root] == root:
                break
            root = parents[root]
        names = (name,) if root == name else (root, name)
        yield Member(names, messages * _BYTES_PER_MESSAGE, max(int(updated or 0), int(changed or 0)), int(changed or 0))


def session_folder(path: Path) -> str | None:
    """Return the folder in which a session worked, or None if it cannot be read."""
    member = split_member(path)
    if member is None:
        return None
    try:
        with open_database(member.container) as database:
            row = database.execute("SELECT directory FROM session WHERE id = ?", (member.names[-1],)).fetchone()
    except SourceError:
        return None
    return row[0] if row else None


class SessionRows(RowSource):
    """The session, its messages and their parts, as the JSON objects that `opencode export` writes."""

    def iter_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the session, then each message before its parts."""
        session = self.names[-1]
        yield 0, self.read_row(0)
        last: tuple[object, object] = (-(1 << 62), "")
        while True:
            with open_database(self.container) as database:
                rows = database.execute(_MESSAGES, (session, *last)).fetchall()
                for number, name, created, data in rows:
                    yield number * 4 + _MESSAGE_KEY, _add_ids(data, id=name, sessionID=session)
                    last = (created, name)
                    for part, part_name, part_data in database.execute(_PARTS, (name,)).fetchall():
                        ids = {"id": part_name, "messageID": name, "sessionID": session}
                        yield part * 4 + _PART_KEY, _add_ids(part_data, **ids)
            if len(rows) < _MESSAGES_PER_QUERY:
                return

    def read_row(self, key: int) -> bytes:
        """Return the JSON of the row with a key."""
        number, table = divmod(key, 4)
        if table == _MESSAGE_KEY:
            for name, session, data in self._fetch(
                "SELECT id, session_id, data FROM message WHERE rowid = ?", (number,)
            ):
                return _add_ids(data, id=name, sessionID=session)
            return b""
        if table == _PART_KEY:
            query = "SELECT id, message_id, session_id, data FROM part WHERE rowid = ?"
            for name, message, session, data in self._fetch(query, (number,)):
                return _add_ids(data, id=name, messageID=message, sessionID=session)
            return b""
        return self._read_session()

    def _read_session(self) -> bytes:
        columns = {row[1] for row in self._fetch("PRAGMA table_info(session)", ())}
        names = [name for name in _SESSION_COLUMNS if name in columns]
        rows = self._fetch(f"SELECT {', '.join(names)} FROM session WHERE id = ?", (self.names[-1],))
        if not rows:
            raise SourceError(f"{self.name}: there is no such session in the database")
        session = dict(zip(names, rows[0], strict=True))
        info = {
            "id": session.pop("id"),
            "directory": session.pop("directory", None),
            "parentID": session.pop("parent_id", None),
            "rootID": self.names[0],
            "time": {"created": session.pop("time_created", None), "updated": session.pop("time_updated", None)},
            **session,
        }
        return json.dumps(info, ensure_ascii=False).encode("utf-8", "replace")

    def _fetch(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with open_database(self.container) as database:
            return database.execute(query, values).fetchall()


def _add_ids(data: object, **ids: str) -> bytes:
    """Return the JSON of a row with the ids that are in its columns, as one line."""
    body = data.encode("utf-8", "replace") if isinstance(data, str) else data if isinstance(data, bytes) else b"{}"
    body = body.strip().replace(b"\n", b" ")
    beginning = json.dumps(ids).encode()[:-1]
    rest = body.removeprefix(b"{").lstrip()
    return beginning + (b"}" if rest == b"}" else b"," + rest)
