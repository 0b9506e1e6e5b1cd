"""Run tasks in local processes or on a Ray cluster.

A task is a function and an item, both picklable. It writes its large results to files and returns a small value. If
its process dies, the task is run again and must write the same files. Start at `make_engine`.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from toolspan.errors import ToolspanError
from toolspan.extras import missing_extra

EngineName = Literal["local", "ray"]
T = TypeVar("T")
R = TypeVar("R")
_MAX_DEATHS = 3
"""The number of times that a task's process may die before the task is abandoned."""
_QUEUED_PER_WORKER = 2
"""perf: enough that a worker never waits for its next task; more would only use memory."""


class TaskResult(NamedTuple, Generic[T, R]):
    """The item of a task and its result."""

    item: T
    value: R | None
    """None if every process that ran the task died."""


class Engine(Protocol):
    """The interface for running tasks in parallel."""

    jobs: int
    """The number of tasks that can run at once."""

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[TaskResult[T, R]]:
        """Yield the results as they become available. `items` is consumed lazily."""
        ...

    def close(self) -> None:
        """Stop the worker processes."""
        ...


def make_engine(name: EngineName, *, jobs: int | None = None, address: str | None = None) -> Engine:
    """Return an engine. `jobs` limits how many tasks run at once; `address` names a Ray cluster.

    Raises:
        ToolspanError: Ray is not installed, or the cluster cannot be reached.
    """
    if name == "ray":
        return RayEngine(jobs, address)
    if address is not None:
        raise ToolspanError("--address needs --engine ray")
    return LocalEngine(jobs or os.cpu_count() or 1)


class LocalEngine:
    """An engine that uses local processes. With one job, tasks run in the current process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[TaskResult[T, R]]:
        """Yield the results as they become available."""
        if self.jobs == 1:
            yield from (TaskResult(item, function(item)) for item in items)
            return
        source = iter(items)
        queue: deque[T] = deque()
        suspects: list[T] = []
        running: dict[Future[R], T] = {}
        while True:
            while len(running) < self.jobs * _QUEUED_PER_WORKER:
                item = queue.popleft() if queue else next(source, None)
                if item is None:
                    break
                running[self._submit(function, item)] = item
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                item = running.pop(future)
                try:
                    yield TaskResult(item, future.result())
                except BrokenProcessPool:
                    suspects.append(item)
        for item in suspects:  # one at a time, to identify the task that kills its process
            yield TaskResult(item, self._run_alone(function, item))

    def _submit(self, function: Callable[[T], R], item: T) -> Future[R]:
        for _ in range(_MAX_DEATHS):
            if self._pool is None:
                # perf: a forked process starts immediately. Ray's threads do not survive a fork.
                method = "fork" if hasattr(os, "fork") and "ray" not in sys.modules else "spawn"
                self._pool = ProcessPoolExecutor(self.jobs, mp_context=get_context(method))
            try:
                return self._pool.submit(function, item)
            except BrokenProcessPool:
                self.close()
        raise ToolspanError("processes die as soon as they are started")

    def _run_alone(self, function: Callable[[T], R], item: T) -> R | None:
        for _ in range(_MAX_DEATHS):
            try:
                return self._submit(function, item).result()
            except BrokenProcessPool:
                self.close()
        return None

    def close(self) -> None:
        """Stop the worker processes."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class RayEngine:
    """An engine that uses plain Ray tasks, submitting a limited number at a time."""

    def __init__(self, jobs: int | None, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise missing_extra(error, "--engine ray") or error from error
        self._ray: Any = ray
        address = address or os.environ.get("RAY_ADDRESS")
        self._is_own = not ray.is_initialized()
        if self._is_own:
            options: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs, "address": "local"}
            try:
                ray.init(**options, include_dashboard=None if address else False, log_to_driver=False,
                         logging_level="error")  # fmt: skip
            except Exception as error:  # raised by Ray if a node starts too slowly
                raise ToolspanError(f"cannot connect to Ray at {address or 'this machine'}: {error}") from error
        self.jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._limit = self.jobs if jobs and address else self.jobs * _QUEUED_PER_WORKER

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[TaskResult[T, R]]:
        """Yield the results as they become available."""
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=_MAX_DEATHS, retry_exceptions=False, scheduling_strategy="SPREAD")(
            _run_task
        )
        shared = ray.put(function)
        source = iter(items)
        running: dict[Any, T] = {}
        while True:
            while len(running) < self._limit and (item := next(source, None)) is not None:
                running[task.remote(shared, item)] = item
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            item = running.pop(done[0])
            try:
                yield TaskResult(item, ray.get(done[0]))
            except (ray.exceptions.RayTaskError, ray.exceptions.RaySystemError):
                raise
            except ray.exceptions.RayError:  # the worker or its node died or ran out of memory, repeatedly
                yield TaskResult(item, None)

    def close(self) -> None:
        """Disconnect from the cluster, or shut it down if this engine started it."""
        if self._is_own:
            self._ray.shutdown()


def _run_task(function: Callable[[T], R], item: T) -> R:
    return function(item)
