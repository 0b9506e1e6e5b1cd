"""Read regular files with a size limit, and never block on a pipe or a device.

`read_file` returns a whole file, `read_line_range` some of its lines. The size is checked before reading, so a
sparse terabyte file is rejected immediately. The functions do blocking I/O; tools call them in a worker thread.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import ToolError
from toolspan.tools.files.opening import open_resolved
from toolspan.tools.files.paths import format_size, replace_surrogates, wrap_os_error
from toolspan.tools.files.text import Codec, detect_codec

CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 30
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file's identity, size and time when it was read. Equal versions do not guarantee equal content."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def from_stat(cls, stat_result: os.stat_result) -> FileVersion:
        """Create the version from a stat result."""
        return cls(stat_result.st_dev, stat_result.st_ino, stat_result.st_size, stat_result.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The whole content of a file."""

    data: bytes
    digest: str
    version: FileVersion


def digest_bytes(data: bytes) -> str:
    """Return the digest used to compare contents."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def stat_path(path: Path) -> os.stat_result | None:
    """Return the stat result for a path, following links, or None if it does not exist.

    Raise ToolError if the path cannot be inspected, for example because a folder is not accessible.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise wrap_os_error(error, "stat", path) from error


def is_regular_or_null(stat_result: os.stat_result) -> bool:
    """Return whether the file is regular or the null device, so that a read always ends."""
    if not stat.S_ISCHR(stat_result.st_mode):
        return stat.S_ISREG(stat_result.st_mode)
    try:
        return stat_result.st_rdev == Path(os.devnull).stat().st_rdev
    except OSError:
        return False


@contextmanager
def open_regular_file(path: Path, known_target: Path | None = None) -> Iterator[int]:
    """Open a file for reading if it is a regular file or the null device.

    Links are followed, unless the resolved target of the path is known.

    Raise ToolError if the file is missing, not regular, or not readable.
    """
    # Without O_NONBLOCK, opening a pipe that has no writer would block forever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags) if known_target is None else open_resolved(known_target, flags)
    except OSError as error:
        raise wrap_os_error(error, "open", path) from error
    try:
        stat_result = os.fstat(descriptor)
        if stat.S_ISDIR(stat_result.st_mode):
            raise wrap_os_error(IsADirectoryError(errno.EISDIR, ""), "read", path)
        if not is_regular_or_null(stat_result):
            raise ToolError(f"{replace_surrogates(str(path))} is not a regular file", kind="invalid_input")
        yield descriptor
    except OSError as error:
        raise wrap_os_error(error, "read", path) from error
    finally:
        os.close(descriptor)


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES, known_target: Path | None = None) -> LoadedFile:
    """Read a whole file. Links are followed, unless the resolved target of the path is known.

    Raise ToolError if the file cannot be read, or has more than `max_bytes` bytes.
    """
    with open_regular_file(path, known_target) as descriptor:
        before = os.fstat(descriptor)
        data = b"".join(_iter_chunks(descriptor, path, max_bytes))
    return LoadedFile(data, digest_bytes(data), FileVersion.from_stat(before))


def _iter_chunks(descriptor: int, path: Path, max_bytes: int, chunk: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the content of an open file in chunks. Raise ToolError if it exceeds `max_bytes` bytes."""
    size, read_size = os.fstat(descriptor).st_size, 0
    # A file may also grow, or its file system may report no size.
    while size <= max_bytes and (data := os.read(descriptor, chunk)):
        read_size += len(data)
        size = max(size, read_size)
        if size <= max_bytes:
            yield data
    if size > max_bytes:
        raise ToolError(
            f"{replace_surrogates(str(path))} is too large to read: it has {format_size(size)},"
            f" and the limit is {format_size(max_bytes)}",
            kind="too_large",
        )


@dataclass(frozen=True, slots=True)
class LineRange:
    """Up to `count` lines after the first `skip` lines. A negative `skip` counts from the end."""

    skip: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class LineWindow:
    """A range of lines from a file, with information about the whole file."""

    text: str
    line_count: int
    total_lines: int
    has_bad_bytes: bool
    """True if some bytes were not valid text and were replaced with U+FFFD, or if there are null characters."""
    digest: str
    version: FileVersion
    lost_return: bool = False
    """True if a carriage return at the end of the file was dropped."""


def read_line_range(
    path: Path,
    line_range: LineRange,
    max_chars: int,
    known_target: Path | None = None,
    *,
    utf16: bool = True,
    drops_return: bool = False,
    chunk: int = CHUNK_BYTES,
) -> LineWindow:
    """Read a range of lines. A newline at the end of the file is followed by an empty line.

    With `utf16`, little-endian UTF-16 is decoded and byte order marks are dropped. With `drops_return`, a carriage
    return at the end of the file is dropped. Links are followed, unless the resolved target of the path is known.

    Raise ToolError if the file cannot be read, or the lines have more than `max_chars` characters.
    """
    if line_range.skip < 0:
        total = read_line_range(path, LineRange(0, 0), max_chars, known_target, utf16=utf16, chunk=chunk).total_lines
        line_range = LineRange(max(0, total + line_range.skip), line_range.count)
    with open_regular_file(path, known_target) as descriptor:
        stat_result = os.fstat(descriptor)
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        collector = _LineCollector(line_range, max_chars)
        decoder = _ChunkDecoder(utf16=utf16)
        for piece in _iter_chunks(descriptor, path, MAX_FILE_BYTES, chunk):
            digest.update(piece)
            collector.add(decoder.decode(piece))
        last = decoder.decode(b"", final=True)
        collector.add(last.removesuffix("\r") if drops_return else last)
    total = collector.newline_count + 1
    end = total if line_range.count is None else min(total, line_range.skip + line_range.count)
    return LineWindow(
        text="".join(collector.parts),
        line_count=max(0, end - line_range.skip),
        total_lines=total,
        has_bad_bytes=decoder.has_bad_bytes,
        digest=digest.hexdigest(),
        version=FileVersion.from_stat(stat_result),
        lost_return=drops_return and last.endswith("\r"),
    )


class _ChunkDecoder:
    r"""An incremental decoder that converts `\r\n` to `\n`."""

    def __init__(self, *, utf16: bool) -> None:
        self._allow_utf16 = utf16
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pending_carriage = ""
        self.has_bad_bytes = False

    def decode(self, piece: bytes, *, final: bool = False) -> str:
        if self._decoder is None:
            codec = detect_codec(piece)
            if not self._allow_utf16 or codec.encoding == "utf-16-be":
                codec = Codec("utf-8")
            self._decoder = codecs.getincrementaldecoder(codec.encoding)("strict")
            piece = piece[len(codec.bom) :]
        before = self._decoder.getstate()
        try:
            text = self._decoder.decode(piece, final)
        except UnicodeDecodeError:
            self.has_bad_bytes = True
            self._decoder.setstate(before)
            self._decoder.errors = "replace"
            text = self._decoder.decode(piece, final)
        self.has_bad_bytes = self.has_bad_bytes or "\0" in text
        text = self._pending_carriage + text
        if final:
            return text.replace("\r\n", "\n")
        # A carriage return at the end of a chunk may be half of a line ending.
        self._pending_carriage = "\r" if text.endswith("\r") else ""
        return text.removesuffix("\r").replace("\r\n", "\n")


class _LineCollector:
    def __init__(self, line_range: LineRange, max_chars: int) -> None:
        self.newline_count = 0
        self.parts: list[str] = []
        self._line_range = line_range
        self._max_chars = max_chars
        self._char_count = 0

    def add(self, text: str) -> None:
        ends = text.count("\n")
        first = max(0, self._line_range.skip - self.newline_count)
        last = ends + 1
        if self._line_range.count is not None:
            last = min(last, self._line_range.skip + self._line_range.count - self.newline_count)
        self.newline_count += ends
        if first >= last or first > ends:
            return
        part = text if last - first > ends else "\n".join(text.split("\n")[first:last])
        self._char_count += len(part)
        if self._char_count > self._max_chars:
            raise ToolError(
                f"The requested lines have more than {format_size(self._max_chars)}. Read fewer lines with"
                " `limit`, or search the file.",
                kind="too_large",
            )
        self.parts.append(part)
