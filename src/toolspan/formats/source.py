"""Sources of transcript bytes: plain files, compressed files, bytes in memory.

Nothing above this module assumes a local path. Offsets always count decompressed bytes.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol

from toolspan.errors import SourceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_SKIP_SIZE = 1 << 20


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

    @property
    def name(self) -> str:
        """The path as it was passed in."""
        return str(self.path)

    def open(self, offset: int = 0) -> BinaryIO:
        """Return an unbuffered stream; the line reader has its own large buffer."""
        if other := _find_moved_file(self.path):
            return source_for_path(other).open(offset)
        with _SourceErrorContext(self.path):
            _refuse_special(self.path)
            stream = io.FileIO(self.path)
            stream.seek(offset)
            return _ErrorNamingStream(stream, self.path)

    def read(self, offset: int, length: int) -> bytes:
        """Read a range."""
        if other := _find_moved_file(self.path):
            return source_for_path(other).read(offset, length)
        with _SourceErrorContext(self.path), self.path.open("rb", buffering=0) as stream:
            return _read_range(stream, offset, length)


class ZstSource(FileSource):
    """A file compressed with Zstandard; reading a range decompresses everything before it."""

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a decompressing stream."""
        if other := _find_moved_file(self.path):
            return source_for_path(other).open(offset)
        with _SourceErrorContext(self.path):
            _refuse_special(self.path)
            stream = _ErrorNamingStream(_ZstdStream(self.path.open("rb")), self.path)
        _skip_bytes(stream, offset)
        return stream

    def read(self, offset: int, length: int) -> bytes:
        """Read a range."""
        with self.open(offset) as stream:
            return _read_exactly(stream, length)


class BytesSource:
    """Bytes that are already in memory."""

    def __init__(self, data: bytes, name: str = "<bytes>") -> None:
        self.data = data
        self._name = name

    @property
    def name(self) -> str:
        """The name as it was passed in."""
        return self._name

    def open(self, offset: int = 0) -> BinaryIO:
        """Return a stream over the bytes."""
        stream = io.BytesIO(self.data)
        stream.seek(offset)
        return stream

    def read(self, offset: int, length: int) -> bytes:
        """Read a range."""
        return self.data[offset : offset + length]


def source_for_path(path: Path | str) -> Source:
    """Return the source for a path, chosen by its suffix."""
    path = path if isinstance(path, Path) else Path(path)
    return ZstSource(path) if path.name.endswith(".zst") else FileSource(path)


def _find_moved_file(path: Path) -> Path | None:
    """Return the new path of a file that Codex has compressed or decompressed since it was found."""
    if not path.name.startswith("rollout-") or path.exists():
        return None
    name = path.name
    other = path.with_name(name.removesuffix(".zst") if name.endswith(".zst") else f"{name}.zst")
    return other if other.exists() else None


class _ZstdStream(io.RawIOBase):
    """A stream that decompresses consecutive frames, and detects a truncated last frame."""

    _CHUNK_SIZE = 4_096
    """The number of compressed bytes to read at a time; small, because they may expand enormously."""

    def __init__(self, packed: IO[bytes]) -> None:
        import zstandard

        super().__init__()
        self._compressed = packed
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._between_frames = True
        self._decompressed = bytearray()

    def read(self, size: int = -1, /) -> bytes:
        while size < 0 or len(self._decompressed) < size:
            data = self._compressed.read(self._CHUNK_SIZE)
            if not data:
                self._check_complete()
                break
            self._decompress(data)
        taken = bytes(self._decompressed[: size if size >= 0 else None])
        del self._decompressed[: len(taken)]
        return taken

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _decompress(self, data: bytes) -> None:
        while data:
            self._between_frames = False
            self._decompressed += self._frame.decompress(data)
            data = b""
            if self._frame.eof:
                data = self._frame.unused_data
                self._frame = self._decompressor.decompressobj()
                self._between_frames = True

    def _check_complete(self) -> None:
        if not self._between_frames and not self._decompressed:
            raise self._error("cut short")

    def close(self) -> None:
        self._compressed.close()
        super().close()


class _ErrorNamingStream(io.RawIOBase, BinaryIO):
    """A stream whose errors include the file name."""

    def __init__(self, stream: io.RawIOBase, path: Path) -> None:
        super().__init__()
        self._stream = stream
        self._path = path

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        with _SourceErrorContext(self._path):
            return self._stream.read(size) or b""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with _SourceErrorContext(self._path):
            return self._stream.readinto(buffer) or 0

    def close(self) -> None:
        self._stream.close()
        super().close()


def _refuse_special(path: Path) -> None:
    """Raise an error for pipes and devices, which may block and cannot be read twice."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise SourceError(f"{path}: not a regular file")


class _SourceErrorContext:
    """A context that converts operating system and decompression errors to SourceError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, OSError):
            raise SourceError(f"{self._path}: {os.strerror(error.errno or 0)}") from error
        if isinstance(error, ValueError):  # a NUL byte in the path
            raise SourceError(f"{self._path!s}: {error}") from error
        if type(error).__module__.partition(".")[0] in ("zstd", "zstandard"):
            raise SourceError(f"{self._path}: broken Zstandard data ({error})") from error


def _read_range(stream: IO[bytes], offset: int, length: int) -> bytes:
    stream.seek(offset)
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """Read up to `length` bytes from a raw stream, which may return them in pieces."""
    first = stream.read(length) or b""
    if len(first) == length or not first:
        return first
    pieces = [first]
    missing = length - len(first)
    while missing > 0 and (piece := stream.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _skip_bytes(stream: IO[bytes], count: int) -> None:
    while count > 0 and (piece := stream.read(min(count, _SKIP_SIZE))):
        count -= len(piece)
