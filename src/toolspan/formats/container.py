"""Containers: files that hold many sessions, such as a SQLite database.

A session in a container has a path below it, such as `opencode.db/ses_1`, or `opencode.db/ses_1/ses_2` for a subagent.
Its rows are read by index and rendered as lines of JSON, so that the rest of toolspan treats it as a file of lines.
Start at `RowSource`.
"""

from __future__ import annotations

import io
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import quote

from toolspan.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONTAINER_SUFFIXES = (".db", ".sqlite", ".sqlite3", ".vscdb")
_MEMBER = re.compile(r"(?P<container>.+?\.(?:db|sqlite3?|vscdb))[/\\](?P<member>[^/\\.]+(?:[/\\][^/\\.]+)?)")
_BUSY_SECONDS = 5.0
_WAL_ENDING = "-wal"


class MemberPath(NamedTuple):
    """The path of a container, and the names of a session and perhaps a subagent in it."""

    container: str
    names: tuple[str, ...]


def split_member(path: Path | str) -> MemberPath | None:
    """Split the path of a session in a container; None for any other path. Does not touch the file system."""
    text = str(path)
    if not any(suffix in text for suffix in CONTAINER_SUFFIXES):  # perf: almost always
        return None
    matched = _MEMBER.fullmatch(text)
    return MemberPath(matched["container"], tuple(re.split(r"[/\\]", matched["member"]))) if matched else None


class FileStatus(NamedTuple):
    """The status of a local file or of a session in a container. perf: `os.stat_result` takes 1 KB."""

    st_size: int
    st_mtime: float
    st_dev: int
    st_ino: int
    st_mtime_ns: int
    st_ctime_ns: int


class Member(NamedTuple):
    """A session in a container."""

    names: tuple[str, ...]
    size: int
    """An estimate of the number of bytes, which changes only if the session does."""
    modified_ms: int
    """The time of the last change."""
    changed_ms: int = 0
    """Another time that changes with the session, in case the other one is not exact."""

    def status(self, container: os.stat_result) -> FileStatus:
        """Return the status of the session as if it were a file."""
        modified_ns = self.modified_ms * 1_000_000
        changed_ns = (self.changed_ms or self.modified_ms) * 1_000_000
        return FileStatus(
            self.size, self.modified_ms / 1000, container.st_dev, container.st_ino, modified_ns, changed_ns
        )


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Open a SQLite database that another program may be writing, without locking it or changing it.

    The write-ahead log beside it is read too. Without one, the database is read as it is on the disk, because opening
    it in any other way would create files beside it.

    Raises:
        SourceError: the database cannot be opened or read.
    """
    try:
        is_stable = _uses_log(path) and not _has_log(path)
        options = "mode=ro&immutable=1" if is_stable else "mode=ro"
        database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{options}", uri=True, timeout=_BUSY_SECONDS)  # noqa: PTH100
    except (sqlite3.Error, OSError) as error:
        raise SourceError(f"{path}: {error}") from error
    with closing(database):
        try:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            yield database
        except sqlite3.Error as error:
            raise SourceError(f"{path}: {error}") from error


def _uses_log(path: str) -> bool:
    """Return whether a database has a write-ahead log while it is open. Creating one would change the folder."""
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(20)[18:19] == b"\x02"


def _has_log(path: str) -> bool:
    try:
        return os.stat(path + _WAL_ENDING).st_size > 0  # noqa: PTH116
    except FileNotFoundError:
        return False


class RowSource(ABC):
    """A session in a container, rendered as lines of JSON. Its offsets count the bytes of the rendered lines."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = str(path)
        member = split_member(path)
        if member is None:
            raise SourceError(f"{path}: not a session in a container")
        self.container, self.names = member
        self._keys: list[int] = []
        self._ends = array("Q")
        """The offset after each line that has been rendered."""
        self._is_indexed = False

    @abstractmethod
    def iter_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the key and the JSON of each row. Rows are fetched in small groups, so that no lock is held for long.

        Raises:
            SourceError: the container cannot be read, or the session is not in it.
        """

    @abstractmethod
    def read_row(self, key: int) -> bytes:
        """Return the JSON of the row with a key, empty if it has been removed.

        Raises:
            SourceError: the container cannot be read.
        """

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a stream of the rendered lines."""
        stream = _RowStream(self._render())
        while offset > 0 and (skipped := stream.read(min(offset, 1 << 20))):
            offset -= len(skipped)
        return stream

    def read(self, offset: int, length: int) -> bytes:
        """Read a range. A range within a row fetches only this row, as it is now."""
        if not self._ends or (not self._is_indexed and offset >= self._ends[-1]):
            for _ in self._render():
                if self._ends and offset < self._ends[-1]:
                    break
        n = bisect_right(self._ends, offset)
        start = self._ends[n - 1] if n else 0
        if n < len(self._ends) and offset + length < self._ends[n]:
            row = self.read_row(self._keys[n])
            has_changed = len(row) != self._ends[n] - start - 1
            return row if has_changed and offset == start else row[offset - start : offset - start + length]
        with self.open(offset) as stream:
            data = b""
            while len(data) < length and (piece := stream.read(length - len(data))):
                data += piece
            return data

    def _render(self) -> Iterator[bytes]:
        """Yield the lines, and remember where they end."""
        self._keys, self._ends, self._is_indexed = [], array("Q"), False
        keys, ends, end = self._keys, self._ends, 0
        for key, data in self.iter_rows():
            end += len(data) + 1
            keys.append(key)
            ends.append(end)
            yield data + b"\n"
        self._is_indexed = True


class _RowStream(io.RawIOBase, BinaryIO):
    """A stream of rendered lines."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        super().__init__()
        self._lines = lines
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        data = self._rest or next(self._lines, b"")
        if size < 0:
            return data + b"".join(self._lines)
        self._rest = data[size:]
        return data[:size]

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer and return the number of bytes."""
        view, length = memoryview(buffer), 0
        while length < len(view) and (data := self.read(len(view) - length)):
            view[length : length + len(data)] = data
            length += len(data)
        return length

    def close(self) -> None:
        """Close the stream and the container."""
        close = getattr(self._lines, "close", None)
        if close is not None:
            close()
        super().close()
