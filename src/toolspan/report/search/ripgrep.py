"""ripgrep at work: the files in which a word may stand, and the offsets of its lines there.

In: folders, and what to look for. Out: `Ripgrep`, a process whose output is asked for when it is
needed. Imports next to nothing, so that ripgrep is at work while Python still imports. What the
output means is `places.py`'s business.
"""

import os
import sys

TYPE_CHECKING = False  # typing's own constant would cost more to import than all the rest

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_KILL = 9


class Ripgrep:
    """One ripgrep at work."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """Start it, without what `subprocess` would import first.

        Raises:
            OSError: it cannot be started.
            ValueError: what it is to look for, or where, cannot be told to a program.
        """
        self.command = command
        reader, writer = os.pipe()
        self._stream = open(reader, "rb", buffering=0)  # noqa: PTH123, SIM115 - `close` closes it
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        except BaseException:
            self._stream.close()
            raise
        finally:
            os.close(writer)
        _widen(reader)

    def output(self) -> bytes | None:
        """What it printed, when it is done; None when it met trouble."""
        output = self._stream.readall()
        return output if self._ended() in (0, _NOTHING) else None

    def close(self) -> None:
        """End it, if it still runs."""
        if not self._stream.closed:
            os.kill(self._pid, _KILL)
            self._ended()

    def _ended(self) -> int | None:
        """Wait for its end; how it exited, None when somebody else has heard of that."""
        self._stream.close()
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)


def _widen(pipe: int) -> None:
    """Let it say much before anybody listens, where the system lets us."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _ROOM)
    except (OSError, AttributeError):
        return


def ripgrep() -> str | None:
    """Where ripgrep is: beside this Python, among its scripts, or on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "rg")  # noqa: PTH118, PTH120
    if os.path.isfile(beside):  # noqa: PTH113 - pathlib is slow to import, as those below
        return beside
    import shutil
    import sysconfig

    packaged = os.path.join(sysconfig.get_path("scripts"), "rg")  # noqa: PTH118
    return packaged if os.path.isfile(packaged) else shutil.which("rg")  # noqa: PTH113


def started(command: tuple[str, ...] | None) -> Ripgrep | None:
    """A ripgrep at work; None when there is nothing to start, or it cannot be started."""
    try:
        return Ripgrep(command) if command else None
    except (OSError, ValueError):
        return None


def lines_command(
    program: str | None,
    folders: "Sequence[str]",
    wanted: bytes | None,
    *,
    literal: bool = True,
    folded: bool = False,
) -> tuple[str, ...] | None:
    """Tells in which lines of transcripts something stands; None when it cannot.

    What is wanted is a regular expression, if not taken literally; upper and lower case are the
    same when folded.
    """
    if program is None or not folders or wanted is None:
        return None
    how = ["--fixed-strings"] if literal else []
    case = ["--ignore-case"] if folded else []
    return (
        program, *EVERY, *_OFFSETS, *_TRANSCRIPTS, f"--max-count={FEW}", *how, *case,
        "-e", os.fsdecode(wanted), "--", *folders,
    )  # fmt: skip


def naming_command(
    program: str | None, names: "Sequence[str]", files: "Sequence[str]"
) -> tuple[str, ...] | None:
    """Tells which lines of files hold one of several names; None when it cannot."""
    if program is None or not names or not files:
        return None
    wanted = (word for name in names for word in ("-e", name))
    return (program, *EVERY, *_OFFSETS, "--fixed-strings", *wanted, "--", *files)
