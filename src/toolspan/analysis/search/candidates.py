"""Where a word may stand, told by ripgrep where there is one.

In: folders and a sieve. Out: the transcripts that may hold the word and, where they are few, the
offsets of the lines. Only a first, coarse step: `scan.py` looks again. Without ripgrep, or
when it met trouble, every transcript is given. Compressed files and links, which ripgrep passes
over, are always given. Started early, ripgrep works while Python still imports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.analysis.search.query import (
    MAX_LINES_PER_FILE,
    ByteFilter,
    RipgrepProcess,
    find_ripgrep,
    naming_command,
    start_ripgrep,
)
from toolspan.formats.paths import format_of_path, is_inside_folder, parse_file_name
from toolspan.reading.discovery import find_transcripts, is_file, is_folder

__all__ = ["Candidate", "Prefilter", "find_ripgrep"]

_OFFSET_PATTERN = re.compile(rb"^(\d+):", re.MULTILINE)


class Candidate(NamedTuple):
    """A transcript that may hold the word."""

    path: str
    size: int
    offsets: tuple[int, ...] | None
    """Of the lines that may hold it; None: any may."""
    changed: float = 0.0
    """When it was last written to."""


class Prefilter:
    """ripgrep at work in some folders; files named one by one need none."""

    def __init__(
        self,
        names: Sequence[Path],
        byte_filter: ByteFilter,
        *,
        program: str | None,
        ahead: RipgrepProcess | None = None,
    ) -> None:
        """Start ripgrep, unless the one that was started ahead does what is wanted."""
        self._paths = names
        self._folders = [name for name in names if name.is_dir()]
        command = byte_filter.ripgrep_command(program, [str(folder) for folder in self._folders])
        fits = ahead is not None and ahead.command == command
        if ahead is not None and not fits:
            ahead.close()
        self._ripgrep = ahead if fits else start_ripgrep(command)

    def candidates(self) -> list[Candidate]:
        """The transcripts that may hold the word, by path.

        Raises:
            SourceError: a folder cannot be listed.
        """
        single = [name for name in self._paths if name not in self._folders]
        folders = self._folders if self._ripgrep is not None else ()
        unread = [*single, *(path for item in folders for path in _files_skipped_by_ripgrep(item))]
        output = self._ripgrep.output() if self._ripgrep else None  # after the walk, which is long
        if output is None:
            files = [file for name in self._paths for file in find_transcripts(name)]
            paths = {str(item.path): _make_candidate(str(item.path), None) for item in files}
        else:
            rows = dict(_parse_candidates(output)) | {str(path): None for path in unread}
            paths = {path: _make_candidate(path, rows[path]) for path in rows}
        return [paths[path] for path in sorted(paths)]

    def close(self) -> None:
        """End ripgrep, if it still runs."""
        if self._ripgrep is not None:
            self._ripgrep.close()


def _parse_candidates(output: bytes) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Transcripts and the offsets of lines in them; None when ripgrep did not tell all."""
    for path, lines in _parse_file_groups(output):
        if parse_file_name(path).role != "other":
            yield (path, _parse_offsets(lines) if lines.count(b"\n") < MAX_LINES_PER_FILE - 1 else None)


def _parse_file_groups(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Files and lines in what ripgrep printed: a name, NUL, lines, a blank line."""
    name, *rest = output.removesuffix(b"\n").split(b"\0")
    for piece in rest:
        lines, _, following = piece.partition(b"\n\n")
        yield os.fsdecode(name).removeprefix("./"), lines
        name = following


def _parse_offsets(lines: bytes) -> tuple[int, ...]:
    return tuple(map(int, _OFFSET_PATTERN.findall(lines)))


class NameSearch:
    """ripgrep at work on the lines of files that hold one of several names."""

    def __init__(self, names: Sequence[str], files: Sequence[str], program: str | None) -> None:
        self._ripgrep = start_ripgrep(naming_command(program, names, files))

    def offsets(self) -> dict[str, tuple[int, ...]] | None:
        """Where these lines begin, by file; None when nobody can tell."""
        output = self._ripgrep.output() if self._ripgrep else None
        if output is None:
            return None
        return {path: _parse_offsets(lines) for path, lines in _parse_file_groups(output)}

    def close(self) -> None:
        """End it, if it still runs."""
        if self._ripgrep is not None:
            self._ripgrep.close()


def _files_skipped_by_ripgrep(root: Path) -> Iterator[Path]:
    """The transcripts below a folder that ripgrep does not look into."""
    waiting = [str(root)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listing:
                items = list(listing)
        except OSError:
            continue
        for item in items:
            if is_folder(item):
                waiting.append(item.path)
            elif item.name.endswith(".zst") or (item.is_symlink() and is_file(item)):
                path = Path(item.path)
                if (
                    parse_file_name(path).role != "other"
                    and is_inside_folder(path, root)
                    and not _is_compressed_copy(path)
                ):
                    yield path


def _is_compressed_copy(path: Path) -> bool:
    """A compressed rollout that is there uncompressed too."""
    return format_of_path(path).compresses_files and path.suffix == ".zst" and path.with_suffix("").exists()


def _make_candidate(path: str, offsets: tuple[int, ...] | None) -> Candidate:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked of very many files
    except OSError:
        return Candidate(path, 0, offsets)
    return Candidate(path, status.st_size, offsets, status.st_mtime)
