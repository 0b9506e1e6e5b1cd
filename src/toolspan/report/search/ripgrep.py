"""ripgrep at work: the files in which a word may stand, and the offsets of its lines there.

In: folders and a sieve. Out: `Ripgrep`, a process whose output is asked for when it is needed.
Imports little, so that ripgrep is at work while Python still imports. What the output means is
`places.py`'s business.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toolspan.report.search.words import Sieve

FEW = 32
"""ripgrep stops after so many lines of a file; such a file is looked through as a whole."""
EVERY = ("--no-config", "--no-messages", "--no-ignore", "--hidden", "--text", "--encoding=none")
"""How it takes files: all that there are, as bytes."""
_OFFSETS = (
    "--color=never", "--heading", "--no-line-number", "--with-filename", "--null",
    "--byte-offset", "--max-columns=1",
)  # fmt: skip
_TRANSCRIPTS = ("--glob=*.jsonl", "--glob=rollout-*.json")
_NOTHING = 1
"""How ripgrep exits when it found nothing and met no trouble."""
_ROOM = 1 << 20
"""What it may have said before anybody listens."""


class Ripgrep:
    """One ripgrep at work."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
            ValueError: what it is to look for, or where, cannot be told to a program.
        """
        self.command = command
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with contextlib.suppress(OSError, AttributeError):  # where the system lets us
            fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _ROOM)  # type: ignore[arg-type]

    def output(self) -> bytes | None:
        """What it printed, when it is done; None when it met trouble."""
        output, _ = self._process.communicate()
        return output if self._process.returncode in (0, _NOTHING) else None

    def close(self) -> None:
        """End it, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def ripgrep() -> str | None:
    """Where ripgrep is: beside this Python, among its scripts, or on the path."""
    beside = Path(sys.executable).with_name("rg")
    if beside.is_file():
        return str(beside)
    import shutil
    import sysconfig  # slow to import, both

    packaged = Path(sysconfig.get_path("scripts")) / "rg"
    return str(packaged) if packaged.is_file() else shutil.which("rg")


def started(command: tuple[str, ...] | None) -> Ripgrep | None:
    """A ripgrep at work; None when there is nothing to start, or it cannot be started."""
    try:
        return Ripgrep(command) if command else None
    except (OSError, ValueError):
        return None


def lines_command(
    program: str | None, folders: Sequence[Path], sieve: Sieve
) -> tuple[str, ...] | None:
    """Tells which lines of transcripts in folders a sieve stops at; None when it cannot."""
    wanted = sieve.literal or sieve.pattern
    if program is None or not folders or wanted is None:
        return None
    how = ["--fixed-strings"] if sieve.literal else []
    case = ["--ignore-case"] if sieve.folded else []
    return (
        program, *EVERY, *_OFFSETS, *_TRANSCRIPTS, f"--max-count={FEW}", *how, *case,
        "-e", os.fsdecode(wanted), "--", *map(str, folders),
    )  # fmt: skip


def naming_command(
    program: str | None, names: Sequence[str], files: Sequence[str]
) -> tuple[str, ...] | None:
    """Tells which lines of files hold one of several names; None when it cannot."""
    if program is None or not names or not files:
        return None
    wanted = (word for name in names for word in ("-e", name))
    return (program, *EVERY, *_OFFSETS, "--fixed-strings", *wanted, "--", *files)
