"""The transcript formats that toolspan reads.

To add a format, add a folder beside this file and one line here.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from toolspan.errors import UnknownDialect
from toolspan.formats.base import FileName, TranscriptFormat
from toolspan.formats.source import COMPRESSED_SUFFIXES, Source, is_remote

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

_FORMATS = {
    "claude": "toolspan.formats.claude:ClaudeFormat",
    "codex": "toolspan.formats.codex:CodexFormat",
    "gemini": "toolspan.formats.gemini:GeminiFormat",
}
"""The location of each format; the first is the default for files that no format recognises."""

FORMAT_NAMES = tuple(_FORMATS)


@cache
def get_format(name: str) -> TranscriptFormat:
    """Return a format by its name.

    Raises:
        UnknownDialect: there is no such format.
    """
    if name not in _FORMATS:
        raise UnknownDialect(f"{name!r} is not a transcript format; known formats: {', '.join(FORMAT_NAMES)}")
    module, _, class_name = _FORMATS[name].partition(":")
    transcript_format: TranscriptFormat = getattr(import_module(module), class_name)()
    return transcript_format


@cache
def all_formats() -> tuple[TranscriptFormat, ...]:
    """Return every format, starting with the default."""
    return tuple(get_format(name) for name in FORMAT_NAMES)


def format_titles(conjunction: str = "or") -> str:
    """Return the clients' names as a list in prose, joined with `conjunction`."""
    *first, last = [transcript_format.title for transcript_format in all_formats()]
    return f"{', '.join(first)} {conjunction} {last}"


def narrow_foreign_input(tool: str, data: bytes) -> ToolInput:
    """Return an input as the type of any client's tool with that name, because models also call such tools."""
    from toolspan.types.inputs import UnknownInput

    for transcript_format in all_formats():
        tool_input = transcript_format.narrow_input(tool, data)
        if not isinstance(tool_input, UnknownInput):
            return tool_input
    return UnknownInput(data=data)


def parse_file_name(path: PurePath | str) -> FileName:
    """Parse a path, with role `other` for files that are not transcripts."""
    return _parse_path(str(path))[0]


def format_of_path(path: PurePath | str) -> TranscriptFormat:
    """Return the format whose client uses such file names, or the default format.

    The content determines the actual format: see `choose_format`.
    """
    return _parse_path(str(path))[1]


@lru_cache(maxsize=1 << 17)  # perf: each step of a question about many files needs the names again
def _parse_path(path: str) -> tuple[FileName, TranscriptFormat]:
    folder, separator, name = path.rpartition(os.sep)
    folders = _split_folder(folder) if separator else []
    if name.endswith(COMPRESSED_SUFFIXES):
        name = name.rpartition(".")[0]
    for transcript_format in _formats_by_strictness():
        file_name = transcript_format.parse_path(folders, name)
        if file_name is not None:
            return file_name, transcript_format
    return FileName("other", name, None, None, None), all_formats()[0]


@lru_cache(maxsize=256)
def _split_folder(folder: str) -> list[str]:
    """Return the parts of a folder's path. perf: the files of a folder are parsed together, and share these strings."""
    return folder.split(os.sep)  # noqa: PTH206 - as above


@cache
def _formats_by_strictness() -> tuple[TranscriptFormat, ...]:
    default, *others = all_formats()
    return (*others, default)  # the default format accepts every *.jsonl


def relative_to_folder(path: str, folder: str | None) -> str:
    """Return a path relative to `folder` if it is inside, or any other string unchanged."""
    above = (folder or "").rstrip("/\\")
    below = bool(above) and path.startswith((above + "/", above + "\\"))
    return path[len(above) + 1 :] if below else path


def is_inside_folder(path: Path, folder: Path) -> bool:
    """Return whether a path, with links resolved, is inside a folder."""
    try:
        return not is_remote(folder) and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


_MAX_HEAD_BYTES = 1 << 20
_MAX_LINES = 50
_HINT_BYTES = 2_048


def detect_dialect(source: Source) -> str:
    """Return the name of a source's format, or `empty` or `unknown`."""
    with source.open() as stream:
        return detect_dialect_in(stream.read(_MAX_HEAD_BYTES))


def detect_dialect_in(beginning: bytes) -> str:
    """Return the format of a file from its beginning, whose last line may be truncated."""
    detected = _detect_format(beginning)
    if detected is None:
        return "unknown" if beginning.strip() else "empty"
    return detected.name


def choose_format(name: str, data: bytes | bytearray, start: int, end: int) -> TranscriptFormat:
    """Choose the format of a file by its name and its first bytes, `data[start:end]`.

    perf: for most files no line needs to be decoded.
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


def is_foreign(name: str, data: bytes | bytearray, start: int, end: int) -> bool:
    """Return whether a file with the first bytes `data[start:end]` was written by another program.

    perf: as in `choose_format`, no line of most files needs to be decoded.
    """
    default = all_formats()[0]
    if format_of_path(name) is not default or data.startswith(default.prefixes, start):
        return False
    beginning = bytes(data[start : min(end, start + _MAX_HEAD_BYTES)])
    return bool(beginning.strip()) and _detect_format(beginning) is None


def foreign_file_problem(file: str) -> str:
    """Return the message about a file that another program wrote."""
    return f"{file}: not a transcript: no line is a record of {format_titles()}"


def _detect_format(beginning: bytes) -> TranscriptFormat | None:
    """Return the first registered format that recognises any of the first lines as a record."""
    formats = all_formats()
    for transcript_format in formats:
        if transcript_format.is_document(beginning):
            return transcript_format
    lines = beginning.split(b"\n", _MAX_LINES)[:_MAX_LINES]
    if len(beginning) >= _MAX_HEAD_BYTES and len(lines) == 1:
        return next((candidate for candidate in formats[::-1] if candidate.is_long_record(beginning)), None)
    detected: set[TranscriptFormat | None] = set()
    for line in lines:
        detected.add(_detect_line(line))
        if formats[0] in detected:
            break
    return next((candidate for candidate in formats if candidate in detected), None)


def _detect_line(line: bytes) -> TranscriptFormat | None:
    from toolspan.formats import json_repair  # perf: most files are recognised by their first bytes

    try:
        fields = json_repair.decode_document(line)
    except ValueError:
        pieces = json_repair.recover_objects(line).pieces
        return _detect_line(pieces[0].data) if pieces and pieces[0].data != line else None
    if not isinstance(fields, dict):
        return None
    default, *others = all_formats()  # the default format accepts the most, so it comes last
    return next((candidate for candidate in (*others, default) if candidate.is_record(fields, line)), None)
