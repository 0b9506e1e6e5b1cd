"""Repair a damaged session: write a sound copy, if its format has a way to do so."""

from __future__ import annotations

from pathlib import Path

from toolspan.errors import ToolspanError
from toolspan.formats.base import RepairResult
from toolspan.formats.detect import detect_dialect
from toolspan.formats.paths import parse_file_name
from toolspan.formats.registry import FORMAT_NAMES, all_formats, get_format
from toolspan.formats.source import source_for_path


def repair(path: Path, *, write: bool = True) -> RepairResult:
    """Write a sound copy of a damaged session; with `write=False` only return the changes.

    Raises:
        SourceError: it cannot be read.
        ToolspanError: it is not a session of a format that can be repaired.
        OSError: the copy cannot be written.
    """
    dialect = detect_dialect(source_for_path(path))
    transcript_format = get_format(dialect) if dialect in FORMAT_NAMES else None
    if transcript_format is None or not transcript_format.is_repairable or parse_file_name(path).role == "agent":
        titles = " and ".join(each.title for each in all_formats() if each.is_repairable)
        raise ToolspanError(f"{path}: only sessions of {titles} can be repaired")
    return transcript_format.repair(path, write=write)
