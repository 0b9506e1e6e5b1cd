"""Where a word may stand, told by ripgrep where there is one.

In: folders and a sieve. Out: the transcripts that may hold the word and, where they are few, the
offsets of the lines. Only a first, coarse step: `scan.py` looks again. Without ripgrep, or
when it met trouble, every transcript is given. Compressed files and links, which ripgrep passes
over, are always given. Started early, ripgrep works while Python still imports.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.read.discover import discover, is_file, is_folder
from toolspan.report.search.ripgrep import FEW, Ripgrep, naming_command, ripgrep, started
from toolspan.report.search.words import Sieve
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.paths import inside, parse_name

__all__ = ["Candidate", "Prefilter", "ripgrep"]

_OFFSET = re.compile(rb"^(\d+):", re.MULTILINE)


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
        sieve: Sieve,
        *,
        program: str | None,
        ahead: Ripgrep | None = None,
    ) -> None:
        """Start ripgrep, unless the one that was started ahead does what is wanted."""
        self._names = names
        self._folders = [name for name in names if name.is_dir()]
        command = sieve.asked(program, [str(folder) for folder in self._folders])
        fits = ahead is not None and ahead.command == command
        if ahead is not None and not fits:
            ahead.close()
        self._ripgrep = ahead if fits else started(command)

    def candidates(self) -> list[Candidate]:
        """The transcripts that may hold the word, by path.

        Raises:
            SourceError: a folder cannot be listed.
        """
        single = [name for name in self._names if name not in self._folders]
        folders = self._folders if self._ripgrep is not None else ()
        unread = [*single, *(path for one in folders for path in _passed_over(one))]
        output = self._ripgrep.output() if self._ripgrep else None  # after the walk, which is long
        if output is None:
            found = [file for name in self._names for file in discover(name)]
            paths = {str(one.path): _candidate(str(one.path), None) for one in found}
        else:
            rows = dict(_rows(output)) | {str(path): None for path in unread}
            paths = {path: _candidate(path, rows[path]) for path in rows}
        return [paths[path] for path in sorted(paths)]

    def close(self) -> None:
        """End ripgrep, if it still runs."""
        if self._ripgrep is not None:
            self._ripgrep.close()


def _rows(output: bytes) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Transcripts and the offsets of lines in them; None when ripgrep did not tell all."""
    for path, lines in _groups(output):
        if parse_name(path).role != "other":
            yield path, _offsets(lines) if lines.count(b"\n") < FEW - 1 else None


def _groups(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Files and lines in what ripgrep printed: a name, NUL, lines, a blank line."""
    name, *rest = output.removesuffix(b"\n").split(b"\0")
    for piece in rest:
        lines, _, following = piece.partition(b"\n\n")
        yield os.fsdecode(name).removeprefix("./"), lines
        name = following


def _offsets(lines: bytes) -> tuple[int, ...]:
    return tuple(map(int, _OFFSET.findall(lines)))


class Naming:
    """ripgrep at work on the lines of files that hold one of several names."""

    def __init__(self, names: Sequence[str], files: Sequence[str], program: str | None) -> None:
        self._ripgrep = started(naming_command(program, names, files))

    def offsets(self) -> dict[str, tuple[int, ...]] | None:
        """Where these lines begin, by file; None when nobody can tell."""
        output = self._ripgrep.output() if self._ripgrep else None
        if output is None:
            return None
        return {path: _offsets(lines) for path, lines in _groups(output)}

    def close(self) -> None:
        """End it, if it still runs."""
        if self._ripgrep is not None:
            self._ripgrep.close()


def _passed_over(root: Path) -> Iterator[Path]:
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
                if parse_name(path).role != "other" and inside(path, root) and not _copy(path):
                    yield path


def _copy(path: Path) -> bool:
    """A compressed rollout that is there uncompressed too."""
    return is_rollout(path.name) and path.suffix == ".zst" and path.with_suffix("").exists()


def _candidate(path: str, offsets: tuple[int, ...] | None) -> Candidate:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked of very many files
    except OSError:
        return Candidate(path, 0, offsets)
    return Candidate(path, status.st_size, offsets, status.st_mtime)
