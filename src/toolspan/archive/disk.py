"""Disk space and age of sessions: `Archive.disk` and `toolspan disk`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from toolspan.archive.answers import Rows, SortOrder
from toolspan.archive.clock import now
from toolspan.archive.engine import FileEngine
from toolspan.archive.filters import Filter
from toolspan.archive.sessions import list_sessions
from toolspan.errors import InvalidFilter
from toolspan.formats.registry import format_of_path, parse_file_name
from toolspan.formats.source import is_member, is_remote
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from toolspan.reading.discovery import TranscriptFile

GROUPINGS = ("project", "client", "age", "session")
SORT_COLUMNS = ("name", "sessions", "files", "size", "oldest", "last")
SORT_ALIASES = {"size": "bytes", "bytes": "bytes", "newest": "last", "age": "oldest",
                **dict.fromkeys(GROUPINGS, "name")}  # fmt: skip
_AGES = ((7, "up to 7 days"), (30, "up to 30 days"), (90, "up to 90 days"), (365, "up to a year"))
_OLDER, _UNKNOWN_AGE, _NO_SESSION = "over a year", "unknown", "(no session)"


class DiskRow(Struct, frozen=True, kw_only=True):
    """The space that some sessions take."""

    name: str
    """The project, client, range of ages, or id of the session."""
    title: str | None
    """The title of the session, or else its first prompt; null for other groups."""
    sessions: int
    files: int
    """Number of transcripts, with those of subagents."""
    side_files: int
    """Number of other files of the sessions, such as long results and copies of edited files."""
    bytes: int
    """Size of all of these files."""
    side_bytes: int
    """The part of it in other files than transcripts."""
    oldest: str | None
    """Time of the last record in the session that has been idle longest."""
    last: str | None
    """Time of the last record in all of them."""


class _SessionSpace(NamedTuple):
    """The files of one session, or a file without any conversation."""

    id: str | None
    title: str | None
    project: str
    client: str
    last: str | None
    sizes: list[int]
    side_sizes: list[int]


def measure_disk(
    engine: FileEngine,
    call_filter: Filter,
    *,
    by: str = "project",
    sort: SortOrder | None = None,
    limit: int | None = None,
) -> Rows[DiskRow]:
    """Return the space that sessions take by project, client, age or session, largest first.

    Raises:
        InvalidFilter: there is no such grouping.
    """
    if by not in GROUPINGS:
        raise InvalidFilter(f"cannot group by {by!r}; use one of {', '.join(GROUPINGS)}")
    groups: defaultdict[str, list[_SessionSpace]] = defaultdict(list)
    for space in _iter_spaces(engine, call_filter):
        groups[_name_group(space, by)].append(space)
    rows = [_make_row(name, spaces, by) for name, spaces in groups.items()]
    rows = sorted(rows, key=lambda row: (-row.bytes, row.name)) if sort is None else sort.sort(rows)
    return Rows(rows[: limit or None], len(rows))


def _iter_spaces(engine: FileEngine, call_filter: Filter) -> Iterator[_SessionSpace]:
    files = {str(file.location): file for file in engine.locate()[0]}
    for row in list_sessions(engine, call_filter):
        own = [file for path in row.files if (file := files.pop(path, None)) is not None]
        sizes, side_sizes = [file.size for file in own], list(_iter_side_sizes(own))
        yield _SessionSpace(row.id, row.about, row.project, row.client, row.ended, sizes, side_sizes)
    if call_filter == Filter():
        for file in files.values():
            client = format_of_path(file.location).name
            yield _SessionSpace(None, None, parse_file_name(file.location).project or "", client, None, [file.size], [])


def _iter_side_sizes(files: Sequence[TranscriptFile]) -> Iterator[int]:
    """Yield the sizes of the files that belong to a session and are not transcripts."""
    transcripts = {str(file.location) for file in files}
    seen: set[str] = set()
    for file in files:
        if is_remote(file.location) or is_member(file.location):
            continue
        for path in format_of_path(file.location).side_paths(file.path):
            for name in _iter_files(path):
                if name in transcripts or name in seen or parse_file_name(name).role == "agent":
                    continue
                seen.add(name)
                with suppress(OSError):
                    yield os.lstat(name).st_size


def _iter_files(path: Path) -> Iterator[str]:
    if not path.is_dir() or path.is_symlink():
        yield str(path)
        return
    for folder, _, names in os.walk(path):
        yield from (f"{folder}{os.sep}{name}" for name in names)


def _name_group(space: _SessionSpace, by: str) -> str:
    if by == "session":
        return space.id or _NO_SESSION
    if by == "age":
        last = parse_timestamp(space.last)
        if last is None:
            return _UNKNOWN_AGE
        days = (now() - last).total_seconds() / 86_400
        return next((name for limit, name in _AGES if days <= limit), _OLDER)
    return space.client if by == "client" else space.project


def _make_row(name: str, spaces: Sequence[_SessionSpace], by: str) -> DiskRow:
    times = sorted((space.last for space in spaces if space.last), key=lambda at: str(parse_timestamp(at)))
    side_bytes = sum(sum(space.side_sizes) for space in spaces)
    return DiskRow(
        name=name,
        title=spaces[0].title if by == "session" else None,
        sessions=sum(space.id is not None for space in spaces),
        files=sum(len(space.sizes) for space in spaces),
        side_files=sum(len(space.side_sizes) for space in spaces),
        bytes=sum(sum(space.sizes) for space in spaces) + side_bytes,
        side_bytes=side_bytes,
        oldest=times[0] if times else None,
        last=times[-1] if times else None,
    )
