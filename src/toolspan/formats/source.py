"""Sources of transcript bytes: files and objects, plain or compressed, and bytes in memory.

`to_path` turns a name into a path or a URL; nothing above this module assumes a local file. Offsets always count
decompressed bytes.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol, TypeVar, cast

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.container import FileStatus, split_member
from toolspan.formats.remote import RemotePath, is_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from toolspan.formats.base import TranscriptFormat


_SKIP_SIZE = 1 << 20
HEADER_BYTES = 1 << 13
_UNCHECKED_SIZE = 4 << 20
"""The decompressed bytes that any file may have, whatever its ratio."""
_MAX_EXPANSION = 250
"""The highest ratio of decompressed to compressed bytes, after the first ones.

Of 76 real transcripts (up to 4 MB of each) compressed with level 19, half have a ratio below 7; the highest is 54.
"""
COMPRESSED_SUFFIXES = (".zst", ".gz")


def to_path(name: Path | str) -> Path:
    """Convert a name to a path, or to a `RemotePath` if it is a URL."""
    if isinstance(name, str):
        return RemotePath(name) if is_url(name) else Path(name)
    return name


def is_remote(name: Path | str) -> bool:
    """Return whether a name is a URL."""
    return isinstance(name, RemotePath) or (isinstance(name, str) and is_url(name))


class Source(Protocol):
    """Bytes that can be streamed and reread by range. Failures raise SourceError."""

    @property
    def name(self) -> str:
        """The name shown to users, and the value of `file` in findings and JSON rows."""
        ...

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a stream that starts at `offset`."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Read a range; returns fewer bytes if the file has become shorter."""
        ...


class FileSource:
    """A plain file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def open(self, offset: int = 0) -> BinaryIO:
        """Return an unbuffered stream; the line reader has its own large buffer."""
        if other := _find_moved_file(self.path):
            return source_for_path(other).open(offset)
        with _name_errors(self.path):
            size = _size_of_regular(self.path)
            stream = io.FileIO(self.path)
            stream.seek(offset)
            return FileStream(stream, self.path, max(size - offset, 0))

    def read(self, offset: int, length: int) -> bytes:
        """Read a range through a new file handle."""
        if other := _find_moved_file(self.path):
            return source_for_path(other).read(offset, length)
        with _name_errors(self.path), self.path.open("rb", buffering=0) as stream:
            stream.seek(offset)
            return _read_exactly(stream, length)


class ObjectSource(FileSource):
    """An object in a store. Reading a range is one request; after some ranges, each request reads ahead."""

    _SINGLE_READS = 4
    _AHEAD_BYTES = 1 << 20

    def __init__(self, path: RemotePath) -> None:
        super().__init__(path)
        self.path: RemotePath = path
        self._requests = 0
        self._ahead = b""
        self._ahead_offset = 0

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a stream that requests blocks."""
        with _name_errors(self.path):
            stream = self.path.open("rb", buffering=0)
            stream.seek(offset)
            return FileStream(stream, self.path)

    def read(self, offset: int, length: int) -> bytes:
        """Read a range, from the bytes read ahead if they contain it."""
        start = offset - self._ahead_offset
        if start >= 0 and start + length <= len(self._ahead):
            return self._ahead[start : start + length]
        self._requests += 1
        reads_ahead = self._requests > self._SINGLE_READS
        with _name_errors(self.path):
            data = self.path.read_range(offset, max(length, self._AHEAD_BYTES) if reads_ahead else length)
        if reads_ahead:
            self._ahead, self._ahead_offset = data, offset
        return data[:length]


class ZstSource(FileSource):
    """A file or object compressed with Zstandard; reading a range decompresses everything before it.

    An object is kept open, so that ranges in ascending order are decompressed once.
    """

    _stream: BinaryIO | None = None
    _position = 0

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a decompressing stream."""
        if not is_remote(self.path) and (other := _find_moved_file(self.path)):
            return source_for_path(other).open(offset)
        with _name_errors(self.path):
            if not is_remote(self.path):
                _size_of_regular(self.path)
            packed: IO[bytes] = self.path.open("rb")
            stream = FileStream(self._decompress(packed), self.path)
        while offset > 0 and (skipped := stream.read(min(offset, _SKIP_SIZE))):
            offset -= len(skipped)
        return stream

    def read(self, offset: int, length: int) -> bytes:
        """Read a range, decompressing everything before it."""
        if not is_remote(self.path):
            with self.open(offset) as stream:
                return _read_exactly(stream, length)
        if self._stream is None or offset < self._position:
            self._stream, self._position = self.open(), 0
        try:
            while self._position < offset and (skipped := self._stream.read(min(offset - self._position, _SKIP_SIZE))):
                self._position += len(skipped)
            data = _read_exactly(self._stream, length)
        except SourceError:
            self._stream = None
            raise
        self._position += len(data)
        return data

    def _decompress(self, packed: IO[bytes]) -> io.RawIOBase:
        return _DecompressedStream(packed)


class GzipSource(ZstSource):
    """A file or object compressed with gzip."""

    def _decompress(self, packed: IO[bytes]) -> io.RawIOBase:
        return _GzipStream(packed)


class BytesSource:
    """Bytes that are already in memory."""

    def __init__(self, data: bytes, name: str = "<bytes>") -> None:
        self.data = data
        self.name = name

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a stream over the bytes."""
        stream = io.BytesIO(self.data)
        stream.seek(offset)
        return stream

    def read(self, offset: int, length: int) -> bytes:
        """Return a slice of the bytes."""
        return self.data[offset : offset + length]


def source_for_path(path: Path | str) -> Source:
    """Return the source for a path, chosen by its suffix."""
    path = to_path(path)
    if path.name.endswith(COMPRESSED_SUFFIXES):
        return ZstSource(path) if path.name.endswith(".zst") else GzipSource(path)
    if isinstance(path, RemotePath):
        return ObjectSource(path)
    if is_member(path):
        return _format_of_path(path).make_member_source(path)
    return FileSource(path)


def _format_of_path(path: Path | str) -> TranscriptFormat:
    """Return the format of a session in a container. The registry, which knows the formats, is above this module."""
    transcript_format: TranscriptFormat = import_module("toolspan.formats.registry").format_of_path(path)
    return transcript_format


def is_member(path: Path | str) -> bool:
    """Return whether a path is one of a session in a local container, which need not contain it."""
    member = None if is_remote(path) else split_member(path)
    return member is not None and os.path.isfile(member.container)  # noqa: PTH113 - perf: rarely a `Path`


def stat_file(path: Path | str) -> os.stat_result | FileStatus:
    """Return the status of a file, or of a session in a container as if it were one.

    Raises:
        OSError, ValueError: there is no such file or session.
    """
    try:
        return path.stat() if isinstance(path, RemotePath) else os.stat(path)  # noqa: PTH116 - perf: called for every file
    except NotADirectoryError:
        if not is_member(path):
            raise
    member_path = split_member(path)
    assert member_path is not None
    try:
        member = _format_of_path(path).member(Path(member_path.container), member_path.names)
    except SourceError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error
    if member is None:
        raise FileNotFoundError(errno.ENOENT, "no such session in the container", str(path))
    return member.status(os.stat(member_path.container))  # noqa: PTH116


def load_source(path: Path | str, limit: int) -> Source:
    """Return a source that is held in memory if it has at most `limit` bytes, else one that reads on demand.

    In memory, a file that is read several times, or in any order, is opened and decompressed only once.
    """
    source = source_for_path(path)
    parts: list[bytes] = []
    try:
        with source.open() as stream:
            while limit >= 0 and (part := stream.read(min(limit + 1, _SKIP_SIZE))):
                limit -= len(part)
                parts.append(part)
    except SourceError:
        return source  # its reader reports the error, with the bytes before it
    return BytesSource(b"".join(parts), source.name) if limit >= 0 else source


def _find_moved_file(path: Path) -> Path | None:
    """Return the new path of a file that Codex has compressed or decompressed since it was found."""
    if not path.name.startswith("rollout-") or path.exists():
        return None
    name = path.name
    other = path.with_name(name.removesuffix(".zst") if name.endswith(".zst") else f"{name}.zst")
    return other if other.exists() else None


def _check_expansion(compressed: int, decompressed: int) -> None:
    """Raise ValueError if so few bytes expand to so many that they were made to exhaust time and memory."""
    if decompressed > max(_UNCHECKED_SIZE, compressed * _MAX_EXPANSION):
        raise ValueError(f"not read further, because it expands to more than {_MAX_EXPANSION} times its size")


class _BrokenDataError(Exception):
    """Compressed data is damaged."""


class _DecompressedStream(io.RawIOBase):
    """A stream that returns all bytes before the damage, then raises."""

    def __init__(self, compressed: IO[bytes]) -> None:
        super().__init__()
        self._compressed = compressed
        self._stream = self._open(compressed)
        self._error: Exception | None = None
        self._decompressed_size = 0

    def _open(self, compressed: IO[bytes]) -> BufferedIOBase:
        from toolspan.formats.zstd import ZstdFile  # perf: few files are compressed

        return ZstdFile(cast("IO[bytes]", _SmallReads(compressed)))

    def _describe(self, error: Exception) -> str | None:
        """Return the reason if an error means damaged data."""
        from toolspan.formats.zstd import ZstdError

        return f"broken Zstandard data ({error})" if isinstance(error, EOFError | ZstdError) else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view, length = memoryview(buffer), 0
        while self._error is None and length < len(view):
            try:
                data = self._stream.read1(len(view) - length)
                self._decompressed_size += len(data)
                _check_expansion(self._compressed.tell(), self._decompressed_size)
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._error = error.with_traceback(None)  # its frames refer to this stream, which could not be freed
                break
            if not data:
                return length
            view[length : length + len(data)] = data
            length += len(data)
        if self._error is not None and not length:
            if reason := self._describe(self._error):
                raise _BrokenDataError(reason) from self._error
            raise self._error
        return length

    def close(self) -> None:
        self._stream.close()
        self._compressed.close()
        super().close()


class _SmallReads:
    """A file that is read in small pieces, so that little of a compressed bomb is expanded before it is noticed."""

    _SIZE = 4_096

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._SIZE))


class _GzipStream(_DecompressedStream):
    """A gzip stream that returns all bytes before the damage, then raises."""

    def _open(self, compressed: IO[bytes]) -> BufferedIOBase:
        import gzip

        return gzip.GzipFile(fileobj=compressed)

    def _describe(self, error: Exception) -> str | None:
        import gzip
        import zlib

        damaged = isinstance(error, EOFError | gzip.BadGzipFile | zlib.error)
        return f"broken gzip data ({error})" if damaged else None


class FileStream(io.RawIOBase, BinaryIO):
    """A stream of a file or object. Its errors include the name."""

    def __init__(self, stream: io.RawIOBase | IO[bytes], path: Path, expected_size: int | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._path = path
        self.expected_size = expected_size
        """The number of bytes up to the end of the file when it was opened, if known."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        with _name_errors(self._path):
            return self._stream.read(size) or b""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer and return the number of bytes."""
        with _name_errors(self._path):
            return self._stream.readinto(buffer) or 0  # type: ignore[union-attr] # raw streams have it

    def close(self) -> None:
        """Close the stream and the one that it reads."""
        self._stream.close()
        super().close()


def _size_of_regular(path: Path) -> int:
    """Return a file's size. Raise an error for pipes and devices, which may block and cannot be read twice."""
    status = os.stat(path)  # noqa: PTH116 - perf: called for every file
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise SourceError(f"{path}: not a regular file")
    return status.st_size


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Convert operating system and decompression errors to SourceError."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or os.strerror(error.errno or 0)}") from error
    except (ValueError, _BrokenDataError) as error:  # a NUL byte in the path, or a file that expands too much
        raise SourceError(f"{path}: {error}") from error


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """Read up to `length` bytes from a raw stream, which may return them in pieces."""
    data = stream.read(length) or b""
    while 0 < len(data) < length and (piece := stream.read(length - len(data))):
        data += piece
    return data


T = TypeVar("T")


def read_first_line(path: Path | str) -> bytes:
    """Return the beginning of the first line of a file, without spaces after colons; empty if it cannot be read."""
    try:
        line = source_for_path(path).read(0, HEADER_BYTES).partition(b"\n")[0]
    except SourceError:
        return b""
    return line.replace(b'": "', b'":"')


def read_small_json(path: Path, kind: type[T], limit: int) -> T | None:
    """Decode the first `limit` bytes of a file; None if it is not a regular file with such JSON."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if isinstance(path, RemotePath):
            return msgspec.json.decode(path.read_range(0, limit), type=kind)
        descriptor = os.open(path, flags)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, so that links and pipes are refused
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return msgspec.json.decode(stream.read(limit), type=kind)
    except (OSError, RecursionError, ValueError, msgspec.MsgspecError):
        return None
