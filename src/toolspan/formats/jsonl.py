r"""Split a source into lines, or one JSON document into its items.

Lines are split on `\n` only, because other line separators occur raw inside JSON strings. The bytes of
a line over the limit are dropped, so memory stays bounded.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct, structs

from toolspan.formats.json_repair import encode_escaped, find_value_end
from toolspan.formats.source import FileStream, Source

CHUNK_SIZE = 1 << 19
_MIN_CHUNK = 1 << 14
MAX_LINE_LENGTH = 512 << 20


class JsonLine(Struct, frozen=True, gc=False):
    """One physical line."""

    number: int
    offset: int
    length: int
    """The number of bytes before the newline, even if `data` was not kept."""
    data: bytes
    """The line without its newline; empty if the line exceeds the limit."""
    has_newline: bool = True
    """False only for the last line of a file."""

    @property
    def is_oversized(self) -> bool:
        """True if the line exceeded the limit and its bytes were skipped."""
        return self.length != len(self.data)


class LineChunk(Struct, frozen=True, kw_only=True, gc=False):
    """Complete lines in part of a buffer.

    perf: nothing is copied; the buffer is reused for the next chunk.
    """

    offset: int
    data: bytes | bytearray
    start: int = 0
    end: int
    """The lines are `data[start:end]`; only the last line of a file may lack its newline."""
    skipped_length: int = 0
    """The length of a skipped line that exceeded the limit; the chunk covers only this line."""
    has_newline: bool = True
    """False if no newline follows a skipped line."""
    limit: int = MAX_LINE_LENGTH

    @property
    def source_length(self) -> int:
        """The number of source bytes that the chunk covers."""
        return self.skipped_length + self.has_newline if self.skipped_length else self.end - self.start

    def iter_lines(self, number: int) -> Iterator[JsonLine]:
        """Yield the lines, numbered from `number`."""
        if self.skipped_length:
            yield JsonLine(number, self.offset, self.skipped_length, b"", has_newline=self.has_newline)
            return
        pieces = memoryview(self.data)[self.start : self.end].tobytes().split(b"\n")
        last = len(pieces) - 1
        offset = self.offset
        for n, data in enumerate(pieces):
            length = len(data)
            if n < last or length:
                line_data = data if length <= self.limit else b""
                yield JsonLine(number, offset, length, line_data, has_newline=n < last)
            offset += length + 1
            number += 1


def read_lines(source: Source, *, offset: int = 0, number: int = 1, limit: int = MAX_LINE_LENGTH) -> Iterator[JsonLine]:
    """Yield the lines of a source, starting at `offset` with line `number`."""
    for chunk in read_chunks(source, offset=offset, limit=limit):
        for line in chunk.iter_lines(number):
            yield line
            number = line.number + 1


def read_chunks(source: Source, *, offset: int = 0, limit: int = MAX_LINE_LENGTH) -> Iterator[LineChunk]:
    """Yield many lines at a time, in chunks that are valid only until the next one.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    held = _PartialLine(limit)
    with source.open(offset) as stream:
        # perf: clearing a buffer of the full size takes as long as reading a small file
        expected_size = stream.expected_size if isinstance(stream, FileStream) else None
        data = bytearray(CHUNK_SIZE if expected_size is None else min(max(expected_size + 1, _MIN_CHUNK), CHUNK_SIZE))
        while size := _fill(stream, data):
            end = data.rfind(b"\n", 0, size) + 1
            start = 0
            if held and end:
                start = data.find(b"\n") + 1
                line, passed = held.finish(bytes(data[:start]))
                yield LineChunk(offset=offset, data=line, end=len(line), skipped_length=passed, limit=limit)
                offset += len(line) or passed + 1
            if start < end:
                yield LineChunk(offset=offset, data=data, start=start, end=end, limit=limit)
                offset += end - start
            held.add(bytes(data[end:size]))
    if held:
        line, passed = held.finish(b"")
        yield LineChunk(offset=offset, data=line, end=len(line), skipped_length=passed, has_newline=False, limit=limit)


def _fill(stream: BinaryIO, buffer: bytearray) -> int:
    if isinstance(stream, io.RawIOBase | io.BufferedIOBase):
        return stream.readinto(buffer) or 0
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)


class _PartialLine:
    """The beginning of a line whose end has not been read yet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._length = 0

    def __bool__(self) -> bool:
        return self._length > 0

    def add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def finish(self, rest: bytes) -> tuple[bytes, int]:
        """Return the complete line and 0, or no bytes and the length of a line that exceeds the limit."""
        length = self._length + len(rest.removesuffix(b"\n"))
        line = b"".join([*self._pieces, rest]) if length <= self._limit else b""
        self._pieces, self._length = [], 0
        return line, 0 if line else length


_DOCUMENT_KEY = re.compile(r'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_ITEM_SEPARATOR = re.compile(r"\s*,?\s*")


class SplitDocument(NamedTuple):
    """The parts of one JSON document."""

    fields: dict[str, bytes]
    """The top-level values other than the list, as JSON."""
    lines: list[JsonLine]
    is_complete: bool


def split_document(data: bytes, list_key: str, nested_key: str | None = None) -> SplitDocument:
    """Split a document into the items under `list_key` and its other top-level fields. Never raises.

    The items under `nested_key` are documents of the same kind. Each becomes a line that is followed by its own items,
    after the items of the outer document.
    """
    text = data.decode("utf-8", "surrogateescape")
    fields: dict[str, bytes] = {}
    lines: list[JsonLine] = []
    nested: list[JsonLine] = []
    is_complete = True
    at = text.find("{") + 1
    while matched := _DOCUMENT_KEY.match(text, at):
        at = matched.end()
        if matched[1] in (list_key, nested_key) and text.startswith("[", at):
            items, list_end = _split_list(text, at + 1)
            if matched[1] == list_key:
                lines = items
            else:
                nested = [line for item in items for line in (item, *_lines_within(item, list_key, nested_key))]
            end = list_end
        else:
            end = find_value_end(text, at)
            if end is not None:
                fields[matched[1]] = encode_escaped(text[at:end])
        if end is None:
            is_complete = False
            break
        at = end
    if nested:
        lines += [structs.replace(line, number=number) for number, line in enumerate(nested, len(lines) + 1)]
    return SplitDocument(fields, lines, is_complete=is_complete and text[at:].strip() == "}")


def _lines_within(item: JsonLine, list_key: str, nested_key: str | None) -> Iterator[JsonLine]:
    """Yield the items of a document within another one."""
    for line in split_document(item.data, list_key, nested_key).lines:
        yield structs.replace(line, offset=item.offset + line.offset)


def _split_list(text: str, at: int) -> tuple[list[JsonLine], int | None]:
    """Return the items of a list and its end position, or None if the list is incomplete."""
    lines: list[JsonLine] = []
    offset, counted = 0, 0
    while separator := _ITEM_SEPARATOR.match(text, at):
        at = separator.end()
        if text.startswith("]", at):
            return lines, at + 1
        end = find_value_end(text, at)
        if end is None:
            break
        offset += len(encode_escaped(text[counted:at]))
        data = encode_escaped(text[at:end])
        lines.append(JsonLine(len(lines) + 1, offset, len(data), data))
        offset += len(data)
        counted = at = end
    return lines, None


_MAX_DEPTH = 100
"""The depth at which the fallback encoder stops, because a value may contain itself."""


def encode_json(value: object) -> bytes:
    """Encode a value as JSON, replacing values that JSON cannot express with text or null. Never raises."""
    try:
        return _ENCODER.encode(value)
    except Exception:  # noqa: BLE001 - tools return arbitrary objects, and their record must be written
        return _ENCODER.encode(_encodable_value(value, _MAX_DEPTH))


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, readable by the owner only."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _encode_unknown(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return _value_text(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_unknown)


def _encodable_value(value: object, depth: int) -> object:
    """Return the closest equivalent that msgspec can encode."""
    if isinstance(value, str):
        return _join_surrogates(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return None
    try:
        if isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        if isinstance(value, Mapping):
            return {
                _join_surrogates(_value_text(key)): _encodable_value(part, depth - 1) for key, part in value.items()
            }
        if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
            return [_encodable_value(part, depth - 1) for part in value]
        return _join_surrogates(_value_text(value))
    except Exception:  # noqa: BLE001 - iterating or printing a foreign object may raise anything
        return None


def _value_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def _join_surrogates(text: str) -> str:
    """Combine surrogate pairs into one character, and replace lone surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
