"""Start one process in a session of its own.

In: a `Command`. Out: its number and our ends of its pipes, or `StartError` and nothing is left.
Blocks for as long as `subprocess.Popen` does, about a millisecond; there is no moment at which a
cancelled caller could lose the process. Who watches it is not known here.
"""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from toolspan.process.command import Command, StartError
from toolspan.process.marks import marked

_BULK = 1 << 20


class Spawned(NamedTuple):
    """A process that runs, and our ends of its pipes."""

    pid: int
    stdout: int | None
    """None when it goes to a descriptor of the caller's."""
    stderr: int | None
    """None when it is the same pipe as stdout."""
    stdin: int | None
    """None when the command reads /dev/null or a descriptor of the caller's."""


def spawn(command: Command, parts: Sequence[str]) -> Spawned:
    """Start the command with these parts of the mark.

    Raises:
        StartError: the program, the folder, the arguments or the machine do not allow it.
    """
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdout, out = _stdout(command, ours, theirs)
            stderr, err = (None, out) if command.merge else _pipe(ours, theirs)
            stdin, source = _stdin(command, ours, theirs)
            if command.bulk and stdout is not None:
                _widen(stdout)
            process = subprocess.Popen(
                list(command.argv),
                stdin=source,
                stdout=out,
                stderr=err,
                cwd=command.cwd,
                env=marked(command.env, parts),
                pass_fds=command.pass_fds,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            raise _start_error(command, problem) from problem
        # The child is watched and collected by its number; Popen must not do it a second time.
        process.returncode = 0
        ours.pop_all()
        return Spawned(process.pid, stdout, stderr, stdin)


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


def _stdout(command: Command, ours: ExitStack, theirs: ExitStack) -> tuple[int | None, int]:
    return _pipe(ours, theirs) if command.stdout is None else (None, command.stdout)


def _widen(pipe: int) -> None:
    """Let more wait in a pipe, where that can be set."""
    setting = getattr(fcntl, "F_SETPIPE_SZ", None)
    if setting is not None:
        with suppress(OSError):
            fcntl.fcntl(pipe, setting, _BULK)


def _stdin(command: Command, ours: ExitStack, theirs: ExitStack) -> tuple[int | None, int]:
    match command.stdin:
        case int() as descriptor:
            return None, descriptor
        case b"":
            return None, subprocess.DEVNULL
        case bytes():
            source, stdin = _pipe(theirs, ours)
            return stdin, source


def _start_error(command: Command, problem: OSError | ValueError) -> StartError:
    program = Path(command.argv[0])
    if isinstance(problem, ValueError):  # a NUL, a lone surrogate, a name with "=" in it
        return StartError(program, f"arguments or environment cannot be passed on ({problem})")
    named = problem.filename  # the folder, when that is what is wrong
    path = Path(named) if isinstance(named, str | Path) else program
    return StartError(path, problem.strerror or str(problem))
