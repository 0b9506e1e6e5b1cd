"""Sources of transcript bytes: files and objects, plain or compressed, and bytes in memory.

`to_path` turns a name into a path or a URL; nothing above this module assumes a local file. Offsets always count
decompressed bytes.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol, TypeVar

import msgspec

from toolspan.errors import SourceError
from toolspan.formats.remote import RemotePath, is_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_SKIP_SIZE = 1 << 20
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
        return _ZstdStream(packed)


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
    return ObjectSource(path) if isinstance(path, RemotePath) else FileSource(path)


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


def _max_size(compressed: int) -> int:
    return max(_UNCHECKED_SIZE, compressed * _MAX_EXPANSION)


def _check_expansion(compressed: int, decompressed: int) -> None:
    """Raise ValueError if so few bytes expand to so many that they were made to exhaust time and memory."""
    if decompressed > _max_size(compressed):
        raise ValueError(f"not read further, because it expands to more than {_MAX_EXPANSION} times its size")


class _ZstdStream(io.RawIOBase):
    """A stream that decompresses consecutive frames, and detects a truncated last frame."""

    _CHUNK_SIZES = (256, 4_096)
    """The number of compressed bytes to read at a time; the first where they expand enormously, and at the start."""
    _LARGE_EXPANSION = 64

    def __init__(self, packed: IO[bytes]) -> None:
        import zstandard

        super().__init__()
        self._compressed = packed
        self._zstd_error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._between_frames = True
        self._decompressed = bytearray()
        self._chunk_size = self._CHUNK_SIZES[0]
        self._error: Exception | None = None
        self._compressed_size = self._decompressed_size = 0

    def read(self, size: int = -1, /) -> bytes:
        while size < 0 or len(self._decompressed) < size:
            data = b"" if self._error else self._compressed.read(self._chunk_size)
            before, length = len(self._decompressed), len(data)
            if not data:
                if self._error is None and not self._between_frames:
                    self._error = self._zstd_error("cut short")
                if self._error is not None and not self._decompressed:
                    raise self._error
                break
            while data:
                self._decompressed += self._frame.decompress(data)
                self._between_frames = self._frame.eof
                data = self._frame.unused_data if self._frame.eof else b""
                if self._frame.eof:
                    self._frame = self._decompressor.decompressobj()
            expanded = len(self._decompressed) - before
            self._chunk_size = self._CHUNK_SIZES[0 < expanded < length * self._LARGE_EXPANSION]
            self._compressed_size += length
            self._decompressed_size += expanded
            try:
                _check_expansion(self._compressed_size, self._decompressed_size)
            except ValueError as error:  # raised after the bytes up to the limit were read
                self._error = error
                del self._decompressed[_max_size(self._compressed_size) - self._decompressed_size :]
        taken = bytes(self._decompressed[: size if size >= 0 else None])
        del self._decompressed[: len(taken)]
        return taken

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._compressed.close()
        super().close()


class _GzipStream(io.RawIOBase):
    """A gzip stream that returns all bytes before the damage, then raises."""

    def __init__(self, packed: IO[bytes]) -> None:
        import gzip

        super().__init__()
        self._compressed = packed
        self._stream = gzip.GzipFile(fileobj=packed)
        self._error: Exception | None = None
        self._decompressed_size = 0

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
                self._error = error
                break
            if not data:
                return length
            view[length : length + len(data)] = data
            length += len(data)
        if self._error is not None and not length:
            raise self._error
        return length

    def close(self) -> None:
        self._stream.close()
        self._compressed.close()
        super().close()


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
        if error.errno is None:  # gzip.BadGzipFile
            raise SourceError(f"{path}: broken gzip data ({error})") from error
        raise SourceError(f"{path}: {error.strerror or os.strerror(error.errno)}") from error
    except ValueError as error:  # a NUL byte in the path
        raise SourceError(f"{path}: {error}") from error
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module in ("zstd", "zstandard"):
            raise SourceError(f"{path}: broken Zstandard data ({error})") from error
        if module == "zlib" or isinstance(error, EOFError):
            raise SourceError(f"{path}: broken gzip data ({error})") from error
        raise


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """Read up to `length` bytes from a raw stream, which may return them in pieces."""
    data = stream.read(length) or b""
    while 0 < len(data) < length and (piece := stream.read(length - len(data))):
        data += piece
    return data


T = TypeVar("T")


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
