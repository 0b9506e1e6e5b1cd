"""Where the files of a kept archive are: in a folder, or in an S3 bucket. Start at `open_place`.

A folder has one writer at a time, which holds its lock. Runs of several machines may write to a bucket at the same
time: an object is only replaced if it is still the one that the run has compared with. Its metadata say what it
contains, so that no file must list the objects; notes about them are in the data folder of this user.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

from toolspan.errors import SourceError
from toolspan.formats.remote import ConflictError, ObjectInfo, RemotePath

NOTES_NAME = "kept.sqlite"
VERSIONS_NAME = "versions"
_READERS = 16


def data_folder() -> Path:
    """Return the folder of this user's archive and notes."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local/share") / "toolspan"


class Content(NamedTuple):
    """What a kept file contains."""

    size: int
    """The number of bytes before compression."""
    sha256: bytes
    frames: int
    """The number of its Zstandard frames; 0 if it is not compressed."""


class Stamp(NamedTuple):
    """Size of a kept file, and a number that changes with it."""

    size: int
    number: int


class FolderPlace:
    """A folder, which one run at a time writes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes_path = folder / NOTES_NAME
        self.lock_path = folder / ".lock"
        self.temporary_folder = folder / ".tmp"

    def exists(self) -> bool:
        """Return whether anything is kept there."""
        return self.notes_path.is_file()

    def prepare(self) -> None:
        """Create the folder."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, kept: str) -> Path:
        """Return the path of a file."""
        return self.folder / kept

    def stamp(self, kept: str) -> Stamp | None:
        """Return the stamp of a file, None if there is none."""
        try:
            status = (self.folder / kept).stat()
        except FileNotFoundError:
            return None
        return Stamp(status.st_size, status.st_mtime_ns)

    def read_contents(self, names: list[str]) -> Iterator[Content | None]:
        """Yield what each file was said to contain when it was put there; a folder does not record it."""
        yield from [None] * len(names)

    def put(self, source: Path, kept: str, content: Content) -> Stamp:  # noqa: ARG002
        """Move a complete file to its place."""
        target = self.folder / kept
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        return cast("Stamp", self.stamp(kept))

    def has_changed(self, kept: str) -> bool:  # noqa: ARG002
        """Return False: the lock is held."""
        return False

    def create(self, source: Path, kept: str) -> None:
        """Move a complete file to a place where there is none.

        Raises:
            ConflictError: there is one.
        """
        target = self.folder / kept
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise ConflictError(errno.EEXIST, "the file exists", str(target))
        source.replace(target)


class BucketPlace:
    """A prefix in a bucket, which runs on several machines may write to at the same time."""

    def __init__(self, folder: RemotePath) -> None:
        self.folder: Path = folder
        self._remote = folder
        local = data_folder() / "buckets" / hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        self.notes_path = local / NOTES_NAME
        self.lock_path = local / ".lock"
        self.temporary_folder = local / ".tmp"
        self._objects: dict[str, ObjectInfo] = {}

    def exists(self) -> bool:
        """Return whether there are objects."""
        return any(True for _ in self._remote.walk_files())

    def prepare(self) -> None:
        """Create the folder of the notes."""
        try:
            self.notes_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SourceError(f"{self.notes_path.parent}: {error.strerror or error}") from error

    def path(self, kept: str) -> Path:
        """Return the URL of an object, with its properties if it was listed."""
        return RemotePath(f"{self._remote}/{kept}", self._objects.get(kept))

    def stamp(self, kept: str) -> Stamp | None:
        """Return the stamp of an object that was listed, None if there is none."""
        info = self._objects.get(kept)
        return None if info is None else _make_stamp(info)

    def stamps(self) -> Mapping[str, Stamp]:
        """List the objects, and return their stamps."""
        self._objects = {str(path.relative_to(self._remote)): path.info for path in self._remote.walk_files()}
        return {name: _make_stamp(info) for name, info in self._objects.items()}

    def read_contents(self, names: list[str]) -> Iterator[Content | None]:
        """Yield what each object was said to contain when it was put there, None if it was not."""
        with ThreadPoolExecutor(_READERS) as executor:
            yield from executor.map(self._read_content, names)

    def _read_content(self, kept: str) -> Content | None:
        try:
            metadata = (self._remote / kept).read_metadata()
            size, frames = int(metadata["toolspan-size"]), int(metadata["toolspan-frames"])
            return Content(size, bytes.fromhex(metadata["toolspan-sha256"]), frames)
        except (KeyError, ValueError):  # a copy of a folder, for example
            return None

    def put(self, source: Path, kept: str, content: Content) -> Stamp:
        """Upload a complete file. It replaces the object that was seen last.

        Raises:
            ConflictError: another machine has changed it.
        """
        metadata = {"toolspan-size": str(content.size), "toolspan-sha256": content.sha256.hex(),
                    "toolspan-frames": str(content.frames)}  # fmt: skip
        with source.open("rb") as stream:
            info = (self._remote / kept).write(stream, metadata, replaces=self._objects.get(kept))
        source.unlink()
        self._objects[kept] = info
        return _make_stamp(info)

    def has_changed(self, kept: str) -> bool:
        """Look at an object again, and return whether another machine has changed it."""
        before = self._objects.pop(kept, None)
        with suppress(FileNotFoundError):
            self._objects[kept] = (self._remote / kept).info
        after = self._objects.get(kept)
        return (before and before.etag) != (after and after.etag)

    def create(self, source: Path, kept: str) -> None:
        """Upload a complete file to a place where there is none.

        Raises:
            ConflictError: there is one.
        """
        with source.open("rb") as stream:
            (self._remote / kept).write(stream, {}, replaces=None)
        source.unlink()


Place = FolderPlace | BucketPlace
"""The files of a kept archive. `kept` is the path of one of them. Failures raise OSError."""


def open_place(folder: Path) -> Place:
    """Return the place of an archive, which may be a URL.

    Raises:
        SourceError: the URL is not one of S3.
    """
    if not isinstance(folder, RemotePath):
        return FolderPlace(folder)
    if folder.scheme not in ("s3", "s3a"):
        raise SourceError(f"{folder}: an archive can only be kept in a folder or in s3://")
    return BucketPlace(folder)


def _make_stamp(info: ObjectInfo) -> Stamp:
    return Stamp(info.size, int.from_bytes(hashlib.sha256(info.etag.encode()).digest()[:6]))
