"""The end of a process we started: noticed, told, collected.

In: its number. Out: an `Exit` and an event. The dead process can be held uncollected for a while:
as long as it is, nobody else can get its number, nor the group and session named after it.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio


@dataclass(frozen=True)
class Exit:
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


class Root:
    """A process we started, from its start until it is collected."""

    def __init__(self, pid: int, *, pidfd: bool, on_collected: Callable[[], None]) -> None:
        self.exit: Exit | None = None
        self.ended = anyio.Event()
        self._pid = pid
        self._on_collected = on_collected
        self._loop = asyncio.get_running_loop()
        self._holds = 0
        self._collected = False
        self._descriptor = _open(pid) if pidfd else None
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._notice)
        else:
            threading.Thread(target=self._wait, name=f"exit-of-{pid}", daemon=True).start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not collect it meanwhile."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._collect()

    def _notice(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        self._tell(_peek(self._pid))

    def _wait(self) -> None:
        """In a thread: there is no descriptor to listen to."""
        try:
            ended = _exit(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))
        except ChildProcessError:
            ended = Exit(None, None)
        with suppress(RuntimeError):  # the loop is closed; nobody wants to know any more
            self._loop.call_soon_threadsafe(self._tell, ended)

    def _tell(self, ended: Exit) -> None:
        self.exit = ended
        self._collect()
        self.ended.set()

    def _collect(self) -> None:
        if self.exit is None or self._holds or self._collected:
            return
        self._collected = True
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        self._on_collected()


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:  # too many descriptors; a thread can wait too
        return None


def _peek(pid: int) -> Exit:
    """How it ended, without collecting it."""
    try:
        told = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return Exit(None, None)
    if told is None:
        return Exit(None, None)
    return _exit(told.si_status if told.si_code == os.CLD_EXITED else -told.si_status)


def _exit(code: int) -> Exit:
    """From Python's way of telling: a signal is a negative code."""
    return Exit(code, None) if code >= 0 else Exit(None, -code)
