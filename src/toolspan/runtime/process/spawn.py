"""Start one process in a session of its own.

In: a `Command`. Out: its number and our ends of its pipes, or `StartError` and nothing is left.
Blocks for as long as `subprocess.Popen` does, about a millisecond; there is no moment at which a
cancelled caller could lose the process. Who watches it is not known here.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import anyio

from toolspan.runtime.process.command import Command, StartError
from toolspan.runtime.process.tree import add_env_tags

_BULK_PIPE_SIZE = 1 << 20


class SpawnedProcess(NamedTuple):
    """A process that runs, and our ends of its pipes."""

    pid: int
    stdout: int | None
    """None when it goes to a descriptor of the caller's."""
    stderr: int | None
    """None when it is the same pipe as stdout."""
    stdin: int | None
    """None when the command reads /dev/null or a descriptor of the caller's."""


def spawn_process(command: Command, tags: Sequence[str]) -> SpawnedProcess:
    """Start the command with these parts of the mark.

    Raises:
        StartError: the program, the folder, the arguments or the machine do not allow it.
    """
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdout, out = _prepare_stdout(command, ours, theirs)
            stderr, err = (None, out) if command.merge_streams else _open_pipe(ours, theirs)
            stdin, source = _prepare_stdin(command, ours, theirs)
            if command.bulk and stdout is not None:
                _enlarge_pipe(stdout)
            process = subprocess.Popen(
                list(command.argv),
                stdin=source,
                stdout=out,
                stderr=err,
                cwd=command.cwd,
                env=add_env_tags(command.env, tags),
                pass_fds=command.pass_fds,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            raise _start_error(command, problem) from problem
        # The child is watched and collected by its number; Popen must not do it a second time.
        process.returncode = 0
        ours.pop_all()
        return SpawnedProcess(process.pid, stdout, stderr, stdin)


def _open_pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


def _prepare_stdout(command: Command, ours: ExitStack, theirs: ExitStack) -> tuple[int | None, int]:
    return _open_pipe(ours, theirs) if command.stdout is None else (None, command.stdout)


def _enlarge_pipe(pipe: int) -> None:
    """Let more wait in a pipe, where that can be set."""
    setting = getattr(fcntl, "F_SETPIPE_SZ", None)
    if setting is not None:
        with suppress(OSError):
            fcntl.fcntl(pipe, setting, _BULK_PIPE_SIZE)


def _prepare_stdin(command: Command, ours: ExitStack, theirs: ExitStack) -> tuple[int | None, int]:
    match command.stdin:
        case int() as descriptor:
            return None, descriptor
        case b"":
            return None, subprocess.DEVNULL
        case bytes():
            source, stdin = _open_pipe(theirs, ours)
            return stdin, source


def _start_error(command: Command, problem: OSError | ValueError) -> StartError:
    program = Path(command.argv[0])
    if isinstance(problem, ValueError):  # a NUL, a lone surrogate, a name with "=" in it
        return StartError(program, f"arguments or environment cannot be passed on ({problem})")
    named = problem.filename  # the folder, when that is what is wrong
    path = Path(named) if isinstance(named, str | Path) else program
    return StartError(path, problem.strerror or str(problem))


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: by itself with a code, or by a signal.

    Neither is known when another part of the program collected the process before us.
    """

    code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """The number a shell would show: 128 and the signal's number for one that was killed."""
        if self.signal is not None:
            return 128 + self.signal
        return 255 if self.code is None else self.code


class ExitWatcher:
    """A process we started, from its start until it is collected."""

    def __init__(self, pid: int, *, pidfd: bool, on_reaped: Callable[[], None]) -> None:
        self.exit: ExitStatus | None = None
        self.exited = anyio.Event()
        self._pid = pid
        self._on_reaped = on_reaped
        self._loop = asyncio.get_running_loop()
        self._hold_count = 0
        self._reaped = False
        self._descriptor = _open_pidfd(pid) if pidfd else None
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._on_pidfd_ready)
        else:
            threading.Thread(target=self._wait_in_thread, name=f"exit-of-{pid}", daemon=True).start()

    @contextmanager
    def hold_pid(self) -> Iterator[None]:
        """Do not collect it meanwhile."""
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
        """In a thread: there is no descriptor to listen to."""
        try:
            status = _exit_from_code(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))
        except ChildProcessError:
            status = ExitStatus(None, None)
        with suppress(RuntimeError):  # the loop is closed; nobody wants to know any more
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


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # too many descriptors; a thread can wait too
        return None


def _peek_exit(pid: int) -> ExitStatus:
    """How it ended, without collecting it."""
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return ExitStatus(None, None)
    if info is None:
        return ExitStatus(None, None)
    return _exit_from_code(info.si_status if info.si_code == os.CLD_EXITED else -info.si_status)


def _exit_from_code(code: int) -> ExitStatus:
    """From Python's way of telling: a signal is a negative code."""
    return ExitStatus(code, None) if code >= 0 else ExitStatus(None, -code)
