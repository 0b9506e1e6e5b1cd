"""Start one process in its own session.

`spawn_process` blocks for as long as `subprocess.Popen` does, about a millisecond, so that a
cancelled caller cannot lose the process in between.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from toolspan.errors import ToolspanError
from toolspan.runtime.process.output import Spill
from toolspan.runtime.process.tree import TAG_SEPARATOR, TAG_VARIABLE

_BULK_PIPE_SIZE = 1 << 20


class StartError(ToolspanError):
    """Raised if a command cannot be started. None of its processes is running."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"Cannot start {path}: {reason}")
        self.path = path
        """The program, or the working directory if that caused the error."""
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command to start."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """The complete environment; the tag is added to it."""
    tag: str
    """An identifier of the owner, for example a call id. `find_survivors` searches for it."""
    merge_streams: bool = False
    """True to send stdout and stderr through one pipe, which keeps them in order."""
    stdin: bytes | int = b""
    """The bytes to write, or one of the caller's descriptors; empty for /dev/null."""
    stdout: int | None = None
    """One of the caller's descriptors, to receive the output; None to capture it."""
    pass_fds: Sequence[int] = ()
    on_start: Callable[[], Awaitable[None]] | None = None
    """A function awaited once the process has started. If it raises, the command is killed."""
    on_output: Callable[[bytes], None] | None = None
    """A function called in the event loop with each chunk from either stream, until the child has
    ended or `wait` has returned.

    It must not block or raise.
    """
    on_error_output: Callable[[bytes], None] | None = None
    """A function that is called instead for chunks from stderr."""
    memory_limit: int = 1 << 20
    """The number of bytes to keep in memory for each stream, half of them from its start."""
    spill: Spill | None = None
    bulk: bool = False
    """True for much output that need not arrive line by line: pipes are larger and read less often."""
    has_pid_namespace: bool = False
    """True if the command runs in its own PID namespace. All its processes descend from the namespace's first process,
    which carries the tag, so that a later scan still finds them.
    """
    restrict: Callable[[], None] | None = None
    """A function that restricts the calling thread, and with it the process that this thread starts. It runs in a
    thread of its own.
    """
    leave_orphans: bool = True
    """True to let processes that outlive the command run until the supervisor closes. Otherwise `wait`
    terminates them.
    """

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("argv must not be empty")
        if self.memory_limit < 2:
            raise ValueError(f"memory_limit must be at least 2, not {self.memory_limit}")


@dataclass(frozen=True)
class ExitStatus:
    """The exit code of a process, or the signal that ended it.

    Both are None if another part of the program reaped the process first.
    """

    code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """The status that a shell would report, which is 128 plus the signal number for a killed process."""
        if self.signal is not None:
            return 128 + self.signal
        return 255 if self.code is None else self.code


class SpawnedProcess(NamedTuple):
    """A running process and the parent's ends of its pipes."""

    pid: int
    stdout: int | None
    """None if the output goes to one of the caller's descriptors."""
    stderr: int | None
    """None if the streams are merged."""
    stdin: int | None
    """None if the command reads /dev/null or one of the caller's descriptors."""


def spawn_process(command: Command, tags: Sequence[str]) -> SpawnedProcess:
    """Start the command with these tags in its environment.

    Raises:
        StartError: the program, the folder, the arguments or the system prevented the start.
    """
    outer_tags = command.env.get(TAG_VARIABLE) or os.environ.get(TAG_VARIABLE)  # those set by enclosing runners
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdout, child_stdout = _open_pipe(ours, theirs) if command.stdout is None else (None, command.stdout)
            stderr, child_stderr = (None, child_stdout) if command.merge_streams else _open_pipe(ours, theirs)
            stdin, child_stdin = None, command.stdin if isinstance(command.stdin, int) else subprocess.DEVNULL
            if isinstance(command.stdin, bytes) and command.stdin:
                child_stdin, stdin = _open_pipe(theirs, ours)
            if command.bulk and stdout is not None and sys.platform == "linux":
                with suppress(OSError):
                    fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, _BULK_PIPE_SIZE)

            def start() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    list(command.argv),
                    stdin=child_stdin,
                    stdout=child_stdout,
                    stderr=child_stderr,
                    cwd=command.cwd,
                    env={**command.env, TAG_VARIABLE: TAG_SEPARATOR.join([outer_tags, *tags] if outer_tags else tags)},
                    pass_fds=command.pass_fds,
                    start_new_session=True,
                )

            process = start() if command.restrict is None else _start_restricted(start, command.restrict)
        except ValueError as error:  # a NUL, a lone surrogate, a variable name with "=" in it
            reason = f"arguments or environment cannot be passed on ({error})"
            raise StartError(Path(command.argv[0]), reason) from error
        except OSError as error:  # its file name is the folder, if that is the problem
            path = error.filename if isinstance(error.filename, str | Path) else command.argv[0]
            raise StartError(Path(path), error.strerror or str(error)) from error
        # `ChildProcess` reaps the child by its pid; Popen must not do it a second time.
        process.returncode = 0
        ours.pop_all()
        return SpawnedProcess(process.pid, stdout, stderr, stdin)


def _start_restricted(
    start: Callable[[], subprocess.Popen[bytes]], restrict: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Start a process from a thread that cannot lift its restrictions and is therefore not used again."""
    outcome: Future[subprocess.Popen[bytes]] = Future()

    def run() -> None:
        try:
            restrict()
            outcome.set_result(start())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            outcome.set_exception(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return outcome.result()


def _open_pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends
