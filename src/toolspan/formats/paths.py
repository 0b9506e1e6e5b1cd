"""The meaning of transcript paths, whichever client wrote the file. Pure functions on paths."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path, PurePath

from toolspan.formats.base import FileName, TranscriptFormat
from toolspan.formats.registry import all_formats


def parse_file_name(path: PurePath | str) -> FileName:
    """Return the meaning of a path; role `other` for files that are not transcripts."""
    return _parse_path(str(path))[0]


def format_of_path(path: PurePath | str) -> TranscriptFormat:
    """Return the format whose client gives such names to files; the default format if none does.

    The content decides what a file is: see `detect.choose_format`.
    """
    return _parse_path(str(path))[1]


@lru_cache(maxsize=4_096)
def _parse_path(path: str) -> tuple[FileName, TranscriptFormat]:
    *folders, name = path.split(os.sep)  # noqa: PTH206 - perf: called for every file below a folder
    default, *others = all_formats()
    for transcript_format in (*others, default):  # the default format takes every *.jsonl
        file_name = transcript_format.parse_path(folders, name)
        if file_name is not None:
            return file_name, transcript_format
    return FileName("other", name, None, None, None), default


def relative_to_folder(path: str, folder: str | None) -> str:
    """Return a path without the folder before it; any other text unchanged."""
    above = (folder or "").rstrip("/\\")
    below = bool(above) and path.startswith((above + "/", above + "\\"))
    return path[len(above) + 1 :] if below else path


def is_inside_folder(path: Path, folder: Path) -> bool:
    """Return whether a path, links resolved, is inside a folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False
