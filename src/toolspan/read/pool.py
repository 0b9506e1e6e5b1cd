"""Processes that work beside this one, and stop when it does.

In: how many. Out: a pool that takes jobs. Whoever leaves it early, by an error or by Ctrl-C, does
not wait for work that nobody will look at. Read `processes` first.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """Takes jobs for its processes."""

    def __init__(self, pool: "ProcessPoolExecutor") -> None:
        self._pool = pool

    def submit(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have a function run by some process; it is defined at the top of a module."""
        return self._pool.submit(_run, partial(job, *args, **kwargs))


@contextmanager
def processes(count: int) -> Iterator[Pool]:
    """A pool of so many processes.

    Raises:
        ToolspanError: one of them was ended from outside.
    """
    from concurrent.futures import ProcessPoolExecutor  # slow to import, and not always needed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(count, initializer=_begin)
    try:
        yield Pool(pool)
    except BrokenProcessPool as error:
        raise ToolspanError("a process that was reading was ended; is memory short?") from error
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What one process is at; Ctrl-C reaches it too and ends its job and all that wait for it."""

    def __init__(self) -> None:
        self._busy = False
        self._stopped = False

    def stop(self, *_: object) -> None:
        self._stopped = True
        if self._busy:
            raise KeyboardInterrupt

    def run(self, job: Callable[[], T]) -> T:
        if self._stopped:
            raise KeyboardInterrupt
        self._busy = True
        try:
            return job()
        finally:
            self._busy = False


_WORKER = _Worker()
"""A process handles its signals in one place."""


def _begin() -> None:
    signal.signal(signal.SIGINT, _WORKER.stop)


def _run(job: Callable[[], T]) -> T:
    return _WORKER.run(job)
