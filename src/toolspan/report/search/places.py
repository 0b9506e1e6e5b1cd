"""Where a word may stand, told by ripgrep where there is one.

In: folders and a sieve. Out: the transcripts that may hold the word and, where they are few, the
offsets of the lines. Only a first, coarse step: `scan.py` looks again. Without ripgrep, or
when it met trouble, every transcript is given. Compressed files and links, which ripgrep passes
over, are always given. Started early, ripgrep works while Python still imports.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.read.discover import discover, is_file, is_folder
from toolspan.report.search.words import Sieve
from toolspan.wire.codex_paths import is_rollout
from toolspan.wire.paths import inside, parse_name

_FEW = 16
"""ripgrep stops after so many lines of a file; such a file is looked through as a whole."""
_OPTIONS = (
    "--no-config", "--no-messages", "--no-ignore", "--hidden", "--text", "--encoding=none",
    "--color=never", "--no-heading", "--no-line-number", "--with-filename", "--null",
    "--glob=*.jsonl", "--glob=rollout-*.json", "--byte-offset", "--max-columns=1",
    f"--max-count={_FEW}",
)  # fmt: skip
_NOTHING = 1
"""How ripgrep exits when it found nothing and met no trouble."""
_ROW = re.compile(rb"([^\0]+)\0(\d+):[^\n]*\n")


class Candidate(NamedTuple):
    """A transcript that may hold the word."""

    path: str
    size: int
    offsets: tuple[int, ...] | None
    """Of the lines that may hold it; None: any may."""


class Prefilter:
    """ripgrep at work in some folders; files named one by one need none."""

    def __init__(self, names: Sequence[Path], sieve: Sieve, *, program: str | None) -> None:
        self._names = names
        self._folders = [name for name in names if name.is_dir()]
        self._process = _start(program, self._folders, sieve)

    def candidates(self) -> list[Candidate]:
        """The transcripts that may hold the word, by path.

        Raises:
            SourceError: a folder cannot be listed.
        """
        single = [name for name in self._names if name not in self._folders]
        folders = self._folders if self._process is not None else ()
        unread = [*single, *(path for one in folders for path in _passed_over(one))]
        rows = self._rows()  # after the walk, which takes as long as ripgrep
        if rows is None:
            found = [file for name in self._names for file in discover(name)]
            paths = {str(file.path): Candidate(str(file.path), file.size, None) for file in found}
        else:
            rows |= {str(path): None for path in unread}
            paths = {path: Candidate(path, _size(path), rows[path]) for path in rows}
        return [paths[path] for path in sorted(paths)]

    def _rows(self) -> dict[str, tuple[int, ...] | None] | None:
        """What ripgrep found; None when it could not tell of all files."""
        if self._process is None:
            return None
        output, _ = self._process.communicate()
        if self._process.returncode not in (0, _NOTHING):
            return None
        found: dict[str, list[int]] = {}
        for name, offset in _ROW.findall(output):
            found.setdefault(os.fsdecode(name), []).append(int(offset))
        return {
            str(Path(name)): tuple(offsets) if len(offsets) < _FEW else None
            for name, offsets in found.items()
            if parse_name(Path(name)).role != "other"
        }

    def close(self) -> None:
        """End it, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def ripgrep() -> str | None:
    """Where ripgrep is: beside this Python, among its scripts, or on the path."""
    beside = Path(sys.executable).with_name("rg")
    if beside.is_file():
        return str(beside)
    import sysconfig  # slow to import

    packaged = Path(sysconfig.get_path("scripts")) / "rg"
    return str(packaged) if packaged.is_file() else shutil.which("rg")


def _start(
    program: str | None, folders: Sequence[Path], sieve: Sieve
) -> "subprocess.Popen[bytes] | None":
    wanted = sieve.literal or sieve.pattern
    if program is None or not folders or wanted is None:
        return None
    how = ["--fixed-strings"] if sieve.literal else []
    case = ["--ignore-case"] if sieve.folded else []
    try:
        return subprocess.Popen(
            [program, *_OPTIONS, *how, *case, "-e", os.fsdecode(wanted), "--", *map(str, folders)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return None


def _passed_over(root: Path) -> Iterator[Path]:
    """The transcripts below a folder that ripgrep does not look into."""
    waiting = [str(root)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listing:
                items = list(listing)
        except OSError:
            continue
        waiting += [item.path for item in items if is_folder(item)]
        for item in items:
            if item.name.endswith(".zst") or (item.is_symlink() and is_file(item)):
                path = Path(item.path)
                if parse_name(path).role != "other" and inside(path, root) and not _copy(path):
                    yield path


def _copy(path: Path) -> bool:
    """A compressed rollout that is there uncompressed too."""
    return is_rollout(path.name) and path.suffix == ".zst" and path.with_suffix("").exists()


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
