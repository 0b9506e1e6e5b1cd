"""The files of a kept archive: compressed, deduplicated, verified, never removed.

A kept archive has one folder per client, laid out like the client's own, so that every command reads it.
Transcripts and side files are compressed; a transcript that has grown gets another Zstandard frame. A file that was
rewritten replaces the kept one, which becomes a version below `versions/`. A file that was truncated or deleted stays.

A file is written as a whole, put to its place (`place.py`), and then noted in `kept.sqlite`. If the process ends in
between, the next run sees that the file differs from its note and reads it again. Start at `Store.keep_file`.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal, cast

from msgspec import Struct

from toolspan.archive.keep.place import VERSIONS_NAME, BucketPlace, Content, FolderPlace, Place, Stamp
from toolspan.errors import SourceError, ToolspanError
from toolspan.formats.registry import parse_file_name
from toolspan.formats.remote import ConflictError
from toolspan.formats.source import is_remote
from toolspan.formats.zstd import CompressionParameter, ZstdCompressor, ZstdError, ZstdFile

Outcome = Literal["new", "grown", "rewritten", "shorter", "unchanged"]
_LEVEL = 12
_PIECE = 1 << 20
_MAX_FRAMES = 12
"""The number of frames after which a growing file is compressed again as a whole."""
_BATCH = 100
_MAX_CONFLICTS = 20
_SMALL_BYTES = 4 << 10
"""Side files up to this size are not compressed."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  name TEXT PRIMARY KEY, source TEXT, source_size INTEGER, source_mtime INTEGER, size INTEGER, sha256 BLOB,
  kept TEXT, kept_size INTEGER, kept_mtime INTEGER, frames INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_content ON files (sha256, size);
"""


class KeptFile(Struct, frozen=True):
    """What is known about a kept file."""

    name: str
    """The path in the client's layout, such as `claude/projects/-home-dev/ID.jsonl`."""
    source: str
    source_size: int
    source_mtime: int
    size: int
    """The number of bytes that are kept, before compression."""
    sha256: bytes
    kept: str
    """The path in the archive: the name, with `.zst` if it is compressed."""
    kept_size: int
    kept_mtime: int
    frames: int

    @property
    def is_compressed(self) -> bool:
        """True if the archive has it as a `.zst` file, which the source is not."""
        return self.kept != self.name


class Store:
    """The files of a kept archive and the notes about them."""

    def __init__(self, place: Place, level: int = _LEVEL) -> None:
        """Open an archive.

        Raises:
            SourceError: its notes cannot be read.
        """
        self.place = place
        self.folder = place.folder
        self.level = level
        self._unsaved = 0
        try:
            self._notes = sqlite3.connect(place.notes_path, timeout=30, isolation_level=None)
            self._notes.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise SourceError(f"{self.folder}: the notes of the archive cannot be used: {error}") from error

    def close(self) -> None:
        """Close the notes."""
        self._notes.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the archive for one writer on this machine.

        Raises:
            ToolspanError: another process writes to it.
        """
        with self._locked():
            self._complete_notes()
            temporary = self.place.temporary_folder
            shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
            temporary.mkdir()
            self._execute("BEGIN")
            try:
                yield
            finally:  # files without a note would only be read again
                if self._notes.in_transaction:  # SQLite ends it if the disk is full
                    self._execute("COMMIT")
            shutil.rmtree(temporary, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.place.lock_path.open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ArchiveInUseError(f"{self.folder}: another process is writing to this archive") from error
            yield

    def complete_notes(self) -> None:
        """Note what other machines have written to a bucket. Other archives have all notes.

        Raises:
            ToolspanError: another process writes to the archive.
        """
        if isinstance(self.place, BucketPlace):
            with self._locked():
                self._complete_notes()

    def _complete_notes(self) -> None:
        if not isinstance(self.place, BucketPlace):
            return
        stamps = self.place.stamps()
        noted = {note.kept: (note.kept_size, note.kept_mtime) for note in self.notes()}
        self._execute("BEGIN")
        for kept in noted.keys() - stamps.keys():
            self._execute("DELETE FROM files WHERE kept = ?", (kept,))
        changed = [kept for kept, stamp in stamps.items()
                   if noted.get(kept) != stamp and not kept.startswith(f"{VERSIONS_NAME}/")]  # fmt: skip
        for kept, content in zip(changed, self.place.read_contents(changed), strict=True):
            is_compressed = content.frames > 0 if content is not None else kept.endswith(".zst")
            name = kept.removesuffix(".zst") if is_compressed else kept
            self._write_note(self._describe(name, kept, stamps[kept], content))
        self._execute("COMMIT")

    def notes(self) -> Iterator[KeptFile]:
        """Yield the notes about all kept files, sorted by name."""
        for row in self._notes.execute("SELECT * FROM files ORDER BY name").fetchall():
            yield KeptFile(*row)

    def find(self, name: str) -> KeptFile | None:
        """Return the note about a file."""
        row = self._notes.execute("SELECT * FROM files WHERE name = ?", (name,)).fetchone()
        return None if row is None else KeptFile(*row)

    # Keeping

    def keep_file(self, name: str, source: Path, *, origin: str | None = None, is_whole: bool = False) -> Outcome:
        """Keep the present content of a file under a name. A file that `is_whole` is never compressed.

        `origin` is the file of which `source` is a temporary copy; empty if it is of another machine.

        Raises:
            OSError: the source cannot be read, or the archive cannot be written. What was kept before is unchanged.
        """
        for _ in range(_MAX_CONFLICTS):
            try:
                return self._keep_file(name, source, str(source) if origin is None else origin, is_whole=is_whole)
            except OSError as error:
                # Another machine may have kept the same file just now, perhaps while it was read here.
                changed = [self.place.has_changed(kept) for kept in (name, f"{name}.zst")]
                if any(changed) or isinstance(error, ConflictError):
                    continue
                raise
        raise OSError(errno.EBUSY, "other machines write to the same file all the time", name)

    def _keep_file(self, name: str, source: Path, origin: str, *, is_whole: bool) -> Outcome:
        note = self._current_note(name)
        status = source.stat()
        stamp = (origin, status.st_size, status.st_mtime_ns)
        if note is not None and (note.source, note.source_size, note.source_mtime) == stamp:
            return "unchanged"
        with source.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if note is None:
                return self._keep_new(name, origin, stream, status, is_whole=is_whole)
            prefix = hashlib.sha256()
            length = _copy(stream, None, note.size, prefix)
            if length == note.size and prefix.digest() == note.sha256:
                return self._keep_growth(note, origin, stream, status, prefix)
            if length < note.size and self._begins_with(note, prefix.digest(), length):
                self._write_note(_restamp(note, origin, status))
                return "shorter"
            stream.seek(0)
            self._keep_version(note)
            self._write(name, origin, stream, status, is_compressed=note.is_compressed)
            return "rewritten"

    def _current_note(self, name: str) -> KeptFile | None:
        """Return the note about a file, made anew if the last run was killed before it was written."""
        note = self.find(name)
        for kept in (name, f"{name}.zst") if note is None else (note.kept,):
            stamp = self.place.stamp(kept)
            if stamp is None:
                continue
            if note is not None and (note.kept_size, note.kept_mtime) == stamp:
                return note
            return self._describe(name, kept, stamp, *self.place.read_contents([kept]))
        return None

    def _describe(self, name: str, kept: str, stamp: Stamp, content: Content | None) -> KeptFile:
        """Return a note about a kept file of which nothing is known but, perhaps, its content."""
        if content is None:
            digest = hashlib.sha256()
            try:
                with open_kept_file(self.place.path(kept), is_compressed=kept != name) as stream:
                    content = Content(_copy(stream, None, None, digest), digest.digest(), int(kept != name))
            except (EOFError, ZstdError):  # damaged: no content is equal to it, so it becomes a version
                content = Content(0, b"", 1)
        return KeptFile(name, "", -1, -1, content.size, content.sha256, kept, *stamp, content.frames)

    def _keep_new(
        self, name: str, origin: str, stream: IO[bytes], status: os.stat_result, *, is_whole: bool
    ) -> Outcome:
        digest = hashlib.sha256()
        size = _copy(stream, None, status.st_size, digest)
        is_compressed = not is_whole and _is_compressible(name, size)
        row = self._notes.execute(
            "SELECT * FROM files WHERE sha256 = ? AND size = ? AND size > 0", (digest.digest(), size)
        ).fetchone()
        kept = f"{name}.zst" if is_compressed else name
        if row is not None and isinstance(self.place, FolderPlace) and KeptFile(*row).is_compressed == is_compressed:
            twin, target = self.place.path(KeptFile(*row).kept), self.place.path(kept)
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # a file system without links, or a missing twin
                os.link(twin, target)
                stamp = self.place.stamp(kept)
                assert stamp is not None
                self._note_file(
                    name, origin, status, kept, stamp, Content(size, digest.digest(), KeptFile(*row).frames)
                )
                return "new"
        stream.seek(0)
        self._write(name, origin, stream, status, is_compressed=is_compressed)
        return "new"

    def _keep_growth(
        self, note: KeptFile, origin: str, stream: IO[bytes], status: os.stat_result, digest: hashlib._Hash
    ) -> Outcome:
        if status.st_size <= note.size:
            self._write_note(_restamp(note, origin, status))
            return "unchanged"
        if not note.is_compressed or note.frames >= _MAX_FRAMES or status.st_size > 2 * note.size:
            stream.seek(0)
            self._write(note.name, origin, stream, status, is_compressed=note.is_compressed)
            return "grown"
        with self._temporary_file() as target:
            with self.place.path(note.kept).open("rb") as before:
                shutil.copyfileobj(before, target, _PIECE)
            size = note.size + self._compress(stream, target, status.st_size - note.size, digest)
            content = Content(size, digest.digest(), note.frames + 1)
            self._put(target, note.name, origin, status, note.kept, content)
        return "grown"

    def _write(self, name: str, origin: str, stream: IO[bytes], status: os.stat_result, *, is_compressed: bool) -> None:
        digest = hashlib.sha256()
        with self._temporary_file() as target:
            write = self._compress if is_compressed else _copy
            size = write(stream, target, status.st_size, digest)
            content = Content(size, digest.digest(), int(is_compressed))
            self._put(target, name, origin, status, f"{name}.zst" if is_compressed else name, content)

    def _compress(self, stream: IO[bytes], target: IO[bytes] | None, limit: int | None, digest: hashlib._Hash) -> int:
        assert target is not None
        options: dict[int, int] = {
            CompressionParameter.compression_level: self.level,
            CompressionParameter.checksum_flag: 1,
            CompressionParameter.enable_long_distance_matching: int((limit or 0) > 8 * _PIECE),
        }
        compressor = ZstdCompressor(options=options)
        size = 0
        while piece := stream.read(_PIECE if limit is None else min(_PIECE, limit - size)):
            digest.update(piece)
            size += len(piece)
            target.write(compressor.compress(piece))
        target.write(compressor.flush())
        return size

    @contextmanager
    def _temporary_file(self) -> Iterator[IO[bytes]]:
        """Open a file, which is removed unless it was put to its place."""
        with tempfile.NamedTemporaryFile(dir=self.place.temporary_folder, delete=False) as stream:
            try:
                yield cast("IO[bytes]", stream)
            finally:
                Path(stream.name).unlink(missing_ok=True)

    def _put(
        self, target: IO[bytes], name: str, origin: str, status: os.stat_result, kept: str, content: Content
    ) -> None:
        """Put a complete temporary file to its place, and note it."""
        _save(target)
        stamp = self.place.put(Path(target.name), kept, content)
        self._note_file(name, origin, status, kept, stamp, content)

    def _keep_version(self, note: KeptFile) -> None:
        """Copy the kept file to a version, which is not a transcript for readers."""
        kept = self.place.path(note.kept)
        status = kept.stat()
        with self._temporary_file() as target:
            with kept.open("rb") as stream:
                (_copy if note.is_compressed else self._compress)(stream, target, None, hashlib.sha256())
            if self.place.has_changed(note.kept):  # what was read may be torn
                raise ConflictError(errno.EEXIST, "the object has changed", note.kept)
            _save(target)
            os.utime(target.name, (status.st_atime, status.st_mtime))
            number = max(self.find_versions(kept), default=0)
            while True:
                number += 1
                with suppress(ConflictError):
                    self.place.create(Path(target.name), f"{VERSIONS_NAME}/{note.name}.zst.{number}")
                    return

    def _begins_with(self, note: KeptFile, digest: bytes, length: int) -> bool:
        """Return whether the kept content can be read and begins with `length` bytes that have a digest."""
        kept = hashlib.sha256()
        with suppress(EOFError, ZstdError), self.open(note) as stream:
            _copy(stream, None, length, kept)
        return kept.digest() == digest

    # Reading

    def find_versions(self, kept: Path) -> dict[int, Path]:
        """Return the old versions of a kept file, which are compressed, by number."""
        name = kept.relative_to(self.folder)
        folder = self.folder / VERSIONS_NAME / name.parent
        pattern = f"{glob.escape(name.name.removesuffix('.zst'))}.zst.*"
        paths = {path.suffix[1:]: path for path in folder.glob(pattern) if path.suffix[1:].isdigit()}
        return {int(number): paths[number] for number in sorted(paths, key=int)}

    def open(self, note: KeptFile) -> IO[bytes]:
        """Return a stream over the content of a kept file."""
        return open_kept_file(self.place.path(note.kept), is_compressed=note.is_compressed)

    def verify(self) -> Iterator[tuple[str, str | None]]:
        """Yield the name of each kept file and version, and the problem or None."""
        for note in self.notes():
            digest = hashlib.sha256()
            try:
                with self.open(note) as stream:
                    size = _copy(stream, None, None, digest)
            except (OSError, EOFError, ZstdError) as error:
                yield note.name, f"it cannot be read: {error}"
                continue
            is_same = (size, digest.digest()) == (note.size, note.sha256)
            yield note.name, None if is_same else "its content is not what was kept"
        for path in sorted((self.folder / VERSIONS_NAME).rglob("*")):
            if path.is_file():
                name = str(path.relative_to(self.folder))
                try:
                    with open_kept_file(path, is_compressed=".zst." in path.name) as stream:
                        _copy(stream, None, None, hashlib.sha256())
                    yield name, None
                except (OSError, EOFError, ZstdError) as error:
                    yield name, f"it cannot be read: {error}"

    # Notes

    def _note_file(
        self, name: str, origin: str, status: os.stat_result, kept: str, stamp: Stamp, content: Content
    ) -> None:
        # If the source grew while it was read, the next run sees another size.
        self._write_note(KeptFile(name, origin, status.st_size, status.st_mtime_ns, content.size, content.sha256, kept,
                                  *stamp, content.frames))  # fmt: skip

    def _write_note(self, note: KeptFile) -> None:
        values = tuple(getattr(note, field) for field in KeptFile.__struct_fields__)
        self._unsaved += 1
        if self._unsaved >= _BATCH and self._notes.in_transaction:
            self._execute("COMMIT")  # perf: each commit waits for the disk
            self._execute("BEGIN")
            self._unsaved = 0
        self._execute(f"INSERT OR REPLACE INTO files VALUES ({', '.join('?' * len(values))})", values)

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        try:
            self._notes.execute(statement, values)
        except sqlite3.Error as error:
            full = "full" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(self.place.notes_path)) from error


class ArchiveInUseError(ToolspanError):
    """Another process writes to the kept archive."""


def open_kept_file(path: Path, *, is_compressed: bool) -> IO[bytes]:
    """Return a stream over the content of a file, which may be compressed."""
    if not is_compressed:
        return path.open("rb")
    return cast("IO[bytes]", ZstdFile(path.open("rb") if is_remote(path) else path))


def _save(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _copy(stream: IO[bytes], target: IO[bytes] | None, limit: int | None, digest: hashlib._Hash) -> int:
    """Copy up to `limit` bytes, or only read them. Return their number."""
    size = 0
    while piece := stream.read(_PIECE if limit is None else min(_PIECE, limit - size)):
        digest.update(piece)
        size += len(piece)
        if target is not None:
            target.write(piece)
    return size


def _restamp(note: KeptFile, origin: str, status: os.stat_result) -> KeptFile:
    values = {field: getattr(note, field) for field in KeptFile.__struct_fields__}
    values |= {"source": origin, "source_size": status.st_size, "source_mtime": status.st_mtime_ns}
    return KeptFile(**values)


def _is_compressible(name: str, size: int) -> bool:
    """Return whether a file may be compressed: the readers of its format must accept it."""
    role = parse_file_name(name).role
    if role != "other":
        return parse_file_name(f"{name}.zst").role == role
    is_read = name.endswith((".meta.json", "toolspan-hooks.jsonl", ".json"))
    return size > _SMALL_BYTES and not is_read
