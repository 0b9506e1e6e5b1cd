"""The transcript formats that toolspan reads.

To add a format, add a folder beside this file and one line here, or install a package with an entry point in the group
`toolspan.formats`, whose name is the client's and whose value is a subclass of `TranscriptFormat`.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from toolspan.errors import UnknownFormat
from toolspan.formats.base import FileName, TranscriptFormat
from toolspan.formats.container import CONTAINER_SUFFIXES
from toolspan.formats.source import COMPRESSED_SUFFIXES, Source, is_member, is_remote

if TYPE_CHECKING:
    from toolspan.types.inputs import ToolInput

_FORMATS = {
    "claude": "toolspan.formats.claude:ClaudeFormat",
    "codex": "toolspan.formats.codex:CodexFormat",
    "gemini": "toolspan.formats.gemini:GeminiFormat",
    "opencode": "toolspan.formats.opencode:OpenCodeFormat",
    "copilot": "toolspan.formats.copilot:CopilotFormat",
    "pi": "toolspan.formats.pi:PiFormat",
    "qwen": "toolspan.formats.qwen:QwenFormat",
    "kimi": "toolspan.formats.kimi:KimiFormat",
    "cursor": "toolspan.formats.cursor:CursorFormat",
    "atif": "toolspan.formats.atif:AtifFormat",
}
"""The location of each format; the first is the default for files that no format recognises."""
_ENTRY_POINT_GROUP = "toolspan.formats"


def _find_plugins() -> dict[str, str]:
    """Return the locations of the formats that other packages provide.

    perf: `importlib.metadata` takes several times as long, so it is used only if a package has such an entry point.
    """
    group = f"[{_ENTRY_POINT_GROUP}]".encode()
    for folder in dict.fromkeys(sys.path):
        with suppress(OSError), os.scandir(folder or ".") as items:
            for item in items:
                if item.name.endswith((".dist-info", ".egg-info")):
                    with suppress(OSError), open(f"{item.path}/entry_points.txt", "rb") as file:  # noqa: PTH123 - perf
                        if group in file.read():
                            from importlib.metadata import entry_points

                            points = entry_points(group=_ENTRY_POINT_GROUP)
                            return {point.name: point.value for point in points if point.name not in _FORMATS}
    return {}


_PLUGINS = _find_plugins()
FORMAT_NAMES = (*_FORMATS, *_PLUGINS)
"""The names of all clients whose formats are installed."""


@cache
def get_format(name: str) -> TranscriptFormat:
    """Return a format by its name.

    Raises:
        UnknownFormat: there is no such format.
    """
    location = _FORMATS.get(name) or _PLUGINS.get(name)
    if location is None:
        raise UnknownFormat(f"{name!r} is not a transcript format; known formats: {', '.join(FORMAT_NAMES)}")
    module, _, class_name = location.partition(":")
    try:
        transcript_format: TranscriptFormat = getattr(import_module(module), class_name)()
    except Exception as error:
        if name in _FORMATS:
            raise
        raise UnknownFormat(f"the installed format {name!r} ({location}) cannot be loaded: {error}") from error
    return transcript_format


def recorded_format() -> TranscriptFormat:
    """Return the format of the sessions that toolspan records. They also use the settings of its client."""
    return get_format(next(iter(_FORMATS)))


@cache
def all_formats() -> tuple[TranscriptFormat, ...]:
    """Return every format that can be loaded, starting with the default."""
    formats: list[TranscriptFormat] = []
    for name in FORMAT_NAMES:
        try:
            formats.append(get_format(name))
        except UnknownFormat as error:
            warnings.warn(str(error), stacklevel=1)
    return tuple(formats)


def plugin_globs() -> tuple[str, ...]:
    """Return the patterns for the files of the formats that other packages provide."""
    return tuple(glob for item in all_formats() if item.name in _PLUGINS for glob in item.file_globs)


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


def format_of_container(path: PurePath | str) -> TranscriptFormat | None:
    """Return the format whose client keeps many sessions in a file with such a name, or None for other files."""
    name = str(path).rpartition(os.sep)[2]
    if not name.endswith(CONTAINER_SUFFIXES):
        return None
    return next(
        (item for item in all_formats() if any(fnmatchcase(name, pattern) for pattern in item.container_names)), None
    )


def is_collection(path: Path) -> bool:
    """Return whether a path is one of a folder, or of a container such as a database.

    Raises:
        OSError, ValueError: no file system accepts the name.
    """
    return path.is_dir() or (not is_remote(path) and format_of_container(path) is not None and path.is_file())


def parse_file_name(path: PurePath | str) -> FileName:
    """Parse a path, with role `other` for files that are not transcripts."""
    return _parse_path(str(path))[0]


def format_of_path(path: PurePath | str) -> TranscriptFormat:
    """Return the format whose client uses such file names, or the default format.

    The content determines the actual format: see `choose_format`.
    """
    return _parse_path(str(path))[1]


@lru_cache(maxsize=1 << 14)  # perf: each step of a question about many files needs the names again
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


def is_default_file(path: Path) -> bool:
    """Return whether a file is in a folder of this user's clients, so that its session can be named by its id."""
    absolute = path.absolute()
    return any(absolute.is_relative_to(root.absolute()) for item in all_formats() for root in item.roots())


_MAX_HEAD_BYTES = 1 << 20
_MAX_LINES = 50
_HINT_BYTES = 2_048


def detect_client(source: Source) -> str:
    """Return the client that wrote a source, or `empty` or `unknown`."""
    with source.open() as stream:
        return detect_client_in(stream.read(_MAX_HEAD_BYTES))


def detect_client_in(beginning: bytes) -> str:
    """Return the client that wrote a file from its beginning, whose last line may be truncated."""
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
    if named.container_names and is_member(name):
        return named
    if named is default:
        if data.startswith(default.prefixes, start):
            return default
        stop = min(end, start + _HINT_BYTES)
        if not any(other.hint and other.hint.search(data, start, stop) for other in others):
            return default
    return _detect_format(bytes(data[start : min(end, start + _MAX_HEAD_BYTES)]), named) or named


def is_foreign(name: str, data: bytes | bytearray, start: int, end: int) -> bool:
    """Return whether a file with the first bytes `data[start:end]` was written by another program.

    perf: as in `choose_format`, no line of most files needs to be decoded.
    """
    default = all_formats()[0]
    if format_of_path(name) is not default or data.startswith(default.prefixes, start) or is_member(name):
        return False
    beginning = bytes(data[start : min(end, start + _MAX_HEAD_BYTES)])
    return bool(beginning.strip()) and _detect_format(beginning) is None


def foreign_file_problem(file: str) -> str:
    """Return the message about a file that another program wrote."""
    return f"{file}: not a transcript: no line is a record of {format_titles()}"


def _detect_format(beginning: bytes, named: TranscriptFormat | None = None) -> TranscriptFormat | None:
    """Return the first registered format that recognises any of the first lines as a record, preferably `named`."""
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
    if named is not None and named is not formats[0] and named in detected:
        return named
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
