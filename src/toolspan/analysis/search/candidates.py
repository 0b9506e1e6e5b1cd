"""The transcripts that may contain a term, found with ripgrep if it is installed.

This is a coarse first step: `scan.py` decodes the lines and decides. Without ripgrep, or if it fails,
every transcript is a candidate; so are compressed files and links, which ripgrep does not search.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolspan.analysis.search.query import ByteFilter
from toolspan.reading.discovery import TranscriptFile, find_transcripts

ALL_FILES_OPTIONS = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--text", "--encoding=none")
"""Options that make ripgrep search all files, as bytes."""
TRANSCRIPT_GLOBS = ("*.jsonl", "rollout-*.json", "session-*.json", "**/chats/*/*.json")
"""The files of all formats. perf: repeated here, because importing every format slows down each search."""
_OFFSET_OPTIONS = (
    "--color=never", "--heading", "--no-line-number", "--with-filename", "--null",
    "--byte-offset", "--max-columns=1", *(f"--glob={glob}" for glob in TRANSCRIPT_GLOBS),
)  # fmt: skip
_MAX_LINES_PER_FILE = 32
"""ripgrep stops after this many lines of a file; such a file is scanned as a whole."""
_OFFSET_PATTERN = re.compile(rb"^(\d+):", re.MULTILINE)
_Offsets = tuple[int, ...] | None


class Candidate(NamedTuple):
    """A transcript that may contain the term."""

    path: str
    size: int
    offsets: _Offsets
    """Offsets of the lines that may contain it; None if any line may."""
    changed: float = 0.0
    """Modification time."""


def find_ripgrep() -> str | None:
    """Return the path of ripgrep: beside this Python, among its scripts, or on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        program = folder / "rg"
        if program.is_file():
            return str(program)
    return shutil.which("rg")


def find_candidates(paths: Sequence[Path], byte_filter: ByteFilter, *, program: str | None) -> list[Candidate]:
    """Return the transcripts that may contain a term, sorted by path.

    `program` is the path of ripgrep, if it is installed.

    Raises:
        SourceError: a path does not exist or cannot be listed.
    """
    pattern = byte_filter.literal or byte_filter.pattern
    process = None
    if program is not None and pattern is not None:
        options = ["--fixed-strings"] * (byte_filter.literal is not None) + ["--ignore-case"] * byte_filter.folded
        names = [str(path) for path in paths]
        process = _start_ripgrep(
            [program, *ALL_FILES_OPTIONS, *_OFFSET_OPTIONS, f"--max-count={_MAX_LINES_PER_FILE}", *options,
             "-e", os.fsdecode(pattern), "--", *names]
        )  # fmt: skip
    try:  # ripgrep works while the folders are walked
        files = {str(file.path): file for path in paths for file in find_transcripts(path)}
        output = _read_output(process) if process is not None else None
    finally:
        if process is not None:
            process.kill()
            process.wait()
    if output is None:
        return [_make_candidate(files[path], None) for path in sorted(files)]
    matches = _parse_output(output)
    return [
        _make_candidate(files[path], matches.get(path))
        for path in sorted(files)
        if path in matches or path.endswith(".zst") or files[path].path.is_symlink()
    ]


def run_ripgrep(command: Sequence[str]) -> bytes | None:
    """Return the output of ripgrep; None if it could not be started or failed."""
    process = _start_ripgrep(command)
    return None if process is None else _read_output(process)


def _start_ripgrep(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError):  # not executable, or the pattern contains a NUL
        return None


def _read_output(process: subprocess.Popen[bytes]) -> bytes | None:
    output, _ = process.communicate()
    return output if process.returncode in (0, 1) else None  # exit code 1: no matches


def _parse_output(output: bytes) -> dict[str, _Offsets]:
    """Parse groups of a file name, NUL, lines and a blank line."""
    matches: dict[str, _Offsets] = {}
    name, *rest = output.removesuffix(b"\n").split(b"\0")
    for piece in rest:
        lines, _, next_name = piece.partition(b"\n\n")
        offsets = tuple(map(int, _OFFSET_PATTERN.findall(lines)))
        matches[os.fsdecode(name).removeprefix("./")] = offsets if len(offsets) < _MAX_LINES_PER_FILE else None
        name = next_name
    return matches


def _make_candidate(file: TranscriptFile, offsets: _Offsets) -> Candidate:
    return Candidate(str(file.path), file.size, offsets, file.modified)
