"""Start one process in its own session and watch for its exit.

`spawn_process` blocks for as long as `subprocess.Popen` does, about a millisecond, so that a
cancelled caller cannot lose the process in between.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.process.output import Spill
from toolspan.runtime.process.tree import add_env_tags

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
    on_output: Callable[[bytes], None] | None = None
    """A function called in the event loop with each chunk from either stream, until the child has
    ended or `wait` has returned.

    It must not block or raise.
    """
    memory_limit: int = 1 << 20
    """The number of bytes to keep in memory for each stream, half of them from its start."""
    spill: Spill | None = None
    bulk: bool = False
    """True for much output that need not arrive line by line: pipes are larger and read less often."""
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

    @classmethod
    def from_returncode(cls, code: int) -> ExitStatus:
        """Convert Python's return code, in which signals are negative."""
        return cls(code, None) if code >= 0 else cls(None, -code)


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
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdout, child_stdout = _open_pipe(ours, theirs) if command.stdout is None else (None, command.stdout)
            stderr, child_stderr = (None, child_stdout) if command.merge_streams else _open_pipe(ours, theirs)
            stdin, child_stdin = _prepare_stdin(command, ours, theirs)
            if command.bulk and stdout is not None:
                _enlarge_pipe(stdout)
            process = subprocess.Popen(
                list(command.argv),
                stdin=child_stdin,
                stdout=child_stdout,
                stderr=child_stderr,
                cwd=command.cwd,
                env=add_env_tags(command.env, tags),
                pass_fds=command.pass_fds,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _start_error(command, error) from error
        # `ExitWatcher` reaps the child by its pid; Popen must not do it a second time.
        process.returncode = 0
        ours.pop_all()
        return SpawnedProcess(process.pid, stdout, stderr, stdin)


def _open_pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


def _prepare_stdin(command: Command, ours: ExitStack, theirs: ExitStack) -> tuple[int | None, int]:
    match command.stdin:
        case int() as descriptor:
            return None, descriptor
        case b"":
            return None, subprocess.DEVNULL
        case bytes():
            child_stdin, stdin = _open_pipe(theirs, ours)
            return stdin, child_stdin


def _enlarge_pipe(pipe: int) -> None:
    setting = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux only
    if setting is not None:
        with suppress(OSError):
            fcntl.fcntl(pipe, setting, _BULK_PIPE_SIZE)


def _start_error(command: Command, error: OSError | ValueError) -> StartError:
    program = Path(command.argv[0])
    if isinstance(error, ValueError):  # a NUL, a lone surrogate, a variable name with "=" in it
        return StartError(program, f"arguments or environment cannot be passed on ({error})")
    filename = error.filename  # the folder, if that is the problem
    path = Path(filename) if isinstance(filename, str | Path) else program
    return StartError(path, error.strerror or str(error))


class ExitWatcher:
    """A watcher that waits until a child process exits, and reaps it."""

    def __init__(self, pid: int, *, pidfd: bool, on_reaped: Callable[[], None]) -> None:
        self.exit: ExitStatus | None = None
        self.exited = anyio.Event()
        self._pid = pid
        self._on_reaped = on_reaped
        self._loop = asyncio.get_running_loop()
        self._hold_count = 0
        self._reaped = False
        self._descriptor: int | None = None
        if pidfd:
            with suppress(OSError):  # too many descriptors: wait in a thread instead
                self._descriptor = os.pidfd_open(pid)
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._on_pidfd_ready)
        else:
            threading.Thread(target=self._wait_in_thread, name=f"exit-of-{pid}", daemon=True).start()

    @contextmanager
    def hold_pid(self) -> Iterator[None]:
        """Keep the process from being reaped inside the block, so that its pid cannot be reused."""
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            self._reap()

    def _on_pidfd_ready(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        self._set_exit(_peek_exit(self._pid))

    def _wait_in_thread(self) -> None:
        try:
            status = ExitStatus.from_returncode(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))
        except ChildProcessError:
            status = ExitStatus(None, None)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set_exit, status)

    def _set_exit(self, status: ExitStatus) -> None:
        self.exit = status
        self._reap()
        self.exited.set()

    def _reap(self) -> None:
        if self.exit is None or self._hold_count or self._reaped:
            return
        self._reaped = True
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        self._on_reaped()


def _peek_exit(pid: int) -> ExitStatus:
    """Return the exit status of the process without reaping it."""
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        info = None
    if info is None:
        return ExitStatus(None, None)
    return ExitStatus.from_returncode(info.si_status if info.si_code == os.CLD_EXITED else -info.si_status)
