"""The transcript formats that toolspan reads. A new format is a folder beside this file and one line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from toolspan.errors import UnknownDialect
from toolspan.formats.base import TranscriptFormat
from toolspan.types.inputs import ToolInput, UnknownInput

_FORMATS = {
    "claude": "toolspan.formats.claude:ClaudeFormat",
    "codex": "toolspan.formats.codex:CodexFormat",
    "gemini": "toolspan.formats.gemini:GeminiFormat",
}
"""The location of each format. The first one is the default for files that no format recognises."""

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
    """Return every format, the default one first."""
    return tuple(get_format(name) for name in FORMAT_NAMES)


def format_titles(conjunction: str = "or") -> str:
    """Return the clients' names as a list in prose."""
    *first, last = [transcript_format.title for transcript_format in all_formats()]
    return f"{', '.join(first)} {conjunction} {last}"


def narrow_foreign_input(tool: str, data: bytes) -> ToolInput:
    """Return an input as the type of any client's tool of that name: models also call tools of other clients."""
    for transcript_format in all_formats():
        tool_input = transcript_format.narrow_input(tool, data)
        if not isinstance(tool_input, UnknownInput):
            return tool_input
    return UnknownInput(data=data)
