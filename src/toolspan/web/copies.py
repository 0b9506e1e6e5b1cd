"""`/api/session/ID/copies`: the calls of a session that lists count in another one, because a client copied them."""

from __future__ import annotations

from collections import Counter

from toolspan.archive.archive import Archive
from toolspan.archive.selection import read_calls
from toolspan.errors import NotFound
from toolspan.export.json import encode_json
from toolspan.reading.lineage import sessions_named


def find_copies(archive: Archive, session_id: str) -> list[bytes]:
    """Return a row for each session that counts calls of this session.

    Raises:
        NotFound: there is no such session.
    """
    table = read_calls(archive.engine).call_table
    session = next(iter(sessions_named(table.sessions, session_id)), None)
    if session is None:
        raise NotFound(f"no session {session_id!r}")
    groups = {table.lineages.group_of(file.file) for file in session.files}
    ids = {row.id for file in session.files for row in file.calls if row.state != "orphan_result"}
    owners = Counter(
        row.session
        for row in table.calls
        if row.id in ids and row.session != session.id and table.lineages.group_of(row.file) in groups
    )
    others = {other.id: other for other in table.sessions}
    rank = table.lineages.rank
    return [
        encode_json(
            {
                "session": owner,
                "title": others[owner].file.info.title,
                "first_prompt": others[owner].file.info.first_prompt,
                "calls": count,
                "is_original": rank(others[owner].file.file) < rank(session.file.file),
            }
        )
        for owner, count in owners.most_common()
        if owner in others
    ]
