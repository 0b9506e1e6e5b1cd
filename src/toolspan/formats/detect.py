"""Recognise the client that wrote a transcript, from the first lines of the file."""

from __future__ import annotations

from toolspan.formats import json_repair
from toolspan.formats.base import TranscriptFormat
from toolspan.formats.paths import format_of_path
from toolspan.formats.registry import all_formats
from toolspan.formats.source import Source

_MAX_HEAD_BYTES = 1 << 20
_MAX_LINES = 50
_HINT_BYTES = 2_048


def detect_dialect(source: Source) -> str:
    """Return the name of a source's format, or `empty` or `unknown`.

    Raises:
        SourceError: the source cannot be opened or read.
    """
    with source.open() as stream:
        return detect_dialect_in(stream.read(_MAX_HEAD_BYTES))


def detect_dialect_in(beginning: bytes) -> str:
    """Return the format of a file by its beginning, whose last line may be cut."""
    if not beginning.strip():
        return "empty"
    detected = _detect_format(beginning)
    return detected.name if detected else "unknown"


def choose_format(name: str, data: bytes | bytearray, start: int, end: int) -> TranscriptFormat:
    """Return the format to read a file in, by its name and its first bytes.

    The bytes are a part of a buffer. perf: most files are decided without decoding a line.
    """
    default, *others = all_formats()
    named = format_of_path(name)
    if named is default:
        if data.startswith(default.prefixes, start):
            return default
        stop = min(end, start + _HINT_BYTES)
        if not any(other.hint and other.hint.search(data, start, stop) for other in others):
            return default
    return _detect_format(bytes(data[start : min(end, start + _MAX_HEAD_BYTES)])) or named


def _detect_format(beginning: bytes) -> TranscriptFormat | None:
    """Return the first registered format of which any of the first lines is a record."""
    formats = all_formats()
    for transcript_format in formats:
        if transcript_format.is_document(beginning):
            return transcript_format
    lines = beginning.split(b"\n", _MAX_LINES)[:_MAX_LINES]
    if len(beginning) >= _MAX_HEAD_BYTES and len(lines) == 1:
        return next((candidate for candidate in formats[::-1] if candidate.is_long_record(beginning)), None)
    detected: set[TranscriptFormat] = set()
    for line in lines:
        detected.update(filter(None, [_detect_line(line)]))
        if formats[0] in detected:
            break
    return next((candidate for candidate in formats if candidate in detected), None)


def _detect_line(line: bytes) -> TranscriptFormat | None:
    try:
        fields = json_repair.decode_document(line)
    except ValueError:
        pieces = json_repair.recover_objects(line).pieces
        return _detect_line(pieces[0].data) if pieces and pieces[0].data != line else None
    if not isinstance(fields, dict):
        return None
    default, *others = all_formats()  # the default format accepts the most, so it comes last
    return next((candidate for candidate in (*others, default) if candidate.is_record(fields, line)), None)
