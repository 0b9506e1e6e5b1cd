"""Run user code in its own task, so that a call can be finalized even if that code ignores cancellation.

Tools, hooks, policies, approvers, recoveries and async sinks are awaited through
`IsolatedTasks.run`. When the wait is cancelled, the code has a grace period to stop. After that,
its task is abandoned, and closed when the runner exits.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from toolspan.errors import exception_text
from toolspan.types.ids import CallId

if TYPE_CHECKING:
    from toolspan.runtime.pending_call import PendingCall

T = TypeVar("T")
FIRST_PAUSE = 0.01
"""The seconds until code that ignored its cancellation is cancelled again. Each further pause is twice as long."""
_CLOSE_TIMEOUT = 1.0


class IsolatedTask(Generic[T]):
    """User code and the task that awaits it.

    The code is cancelled through an anyio scope, not through the task, so that its own shields
    remain effective.
    """

    __slots__ = (
        "_cancel_scope", "_has_ended", "_is_wait_cancelled", "_shield_scope", "_value", "_waiter", "_work",
        "call_id", "error", "label", "task",
    )  # fmt: skip

    def __init__(
        self, work: Awaitable[T], label: str, call_id: CallId | None, scope_type: type[anyio.CancelScope]
    ) -> None:
        self.label = label
        self.call_id = call_id
        self.error: BaseException | None = None
        self._value: T | None = None
        self._has_ended = False
        self._work = work
        self._cancel_scope = scope_type()
        # A cancelled scope cancels again in every loop iteration; the inner scope is shielded to pause that.
        self._shield_scope = scope_type()
        self._waiter: asyncio.Future[None] | None = None
        self._is_wait_cancelled = False
        loop = asyncio.get_running_loop()
        if sys.version_info >= (3, 12):  # the first step runs at once
            self.task = asyncio.Task(self._run(), loop=loop, eager_start=True)
        else:
            self.task = loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            with self._cancel_scope, self._shield_scope:
                try:
                    self._value = await self._work
                except BaseException as error:  # noqa: BLE001 - raised again by `result`, or reported
                    self.error = error
                self._has_ended = True
        except RuntimeError:
            pass  # raised by the scopes if the code did not close one of its own scopes
        if self._waiter is not None:
            self.wake_waiter()  # perf: one loop iteration earlier than the task's own callback

    def wake_waiter(self, _task: object = None) -> None:
        """Let `wait` check again whether the code has ended."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> bool:
        """Wait until the code ends, or return False if `cancel_wait` was called first."""
        while not self.task.done():
            if self._is_wait_cancelled:
                self._is_wait_cancelled = False
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    def cancel_wait(self) -> None:
        """End the wait for the code, as if the waiting task had been cancelled."""
        self._is_wait_cancelled = True
        self.wake_waiter()

    async def stop(self, grace: float) -> None:
        """Cancel the code repeatedly, at growing intervals, until it ends or `grace` seconds have passed.

        A second cancellation of the waiting task ends the grace period.
        """
        self._cancel_scope.cancel()
        self._shield_scope.shield = True
        pause, remaining = FIRST_PAUSE, grace
        try:
            with anyio.CancelScope(shield=True):
                while remaining > 0 and not self.task.done():
                    with anyio.move_on_after(min(pause, remaining)):
                        while not await self.wait():
                            pass  # the call is already cancelled, which does not shorten the grace period
                    self.cancel_again()
                    remaining -= pause
                    pause *= 2
        except asyncio.CancelledError:
            return
        finally:
            self._shield_scope.shield = True

    def cancel_again(self) -> None:
        """Cancel the code once more."""
        self._shield_scope.shield = False
        self._shield_scope.shield = True

    @property
    def was_cancelled(self) -> bool:
        """True if the code ended because it was cancelled, or if its task was cancelled before it started."""
        return not self._has_ended or isinstance(self.error, asyncio.CancelledError)

    def result(self) -> T:
        """Return the result of the code, or raise its exception. May be called only once."""
        if not self._has_ended:
            raise asyncio.CancelledError
        error, self.error = self.error, None
        if error is None:
            return self._value  # type: ignore[return-value]  # set when there is no error
        if isinstance(error, GeneratorExit):  # raising it unchanged would close the waiting coroutine
            raise RuntimeError(f"GeneratorExit {exception_text(error)}".strip()) from error
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    async def close(self) -> None:
        """Close the coroutine at its current await, and end the task.

        This runs in its own task, so that scopes and shields that the code enters now do not affect other code.
        """
        coroutine = self.task.get_coro()
        if self.task.done() or coroutine is None:
            return
        with suppress(BaseException):
            coroutine.close()
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=_CLOSE_TIMEOUT)
        if self.task.done() and not self.task.cancelled():
            self.task.exception()  # a task with a closed coroutine ends with an error; mark it as retrieved


class _WaitCancelledError(asyncio.CancelledError):
    """Raised if the call is cancelled while it is waiting for user code."""


class IsolatedTasks:
    """The isolated tasks of one runner."""

    def __init__(self, report_fault: Callable[[str, str, CallId | None], None]) -> None:
        """`report_fault` receives the kind of code at fault ("tool", "hook", ...), the reason, and the call id."""
        self._report_fault = report_fault
        self._abandoned: set[IsolatedTask[Any]] = set()
        self._scope_type: type[anyio.CancelScope] | None = None

    async def run(self, work: Awaitable[T], grace: float, label: str, pending: PendingCall | None = None) -> T:
        """Await `work` in its own task. If this wait is cancelled, wait at most `grace` seconds for
        the task to stop.

        `label` and `pending` identify the code and its call in fault reports. Cancelling the call
        ends the wait.
        """
        if self._scope_type is None:
            self._scope_type = type(anyio.CancelScope())  # perf: looking up the backend for each scope takes 3 µs
        isolated = IsolatedTask(work, label, None if pending is None else pending.call.id, self._scope_type)
        if isolated.task.done():
            return isolated.result()
        isolated.task.add_done_callback(isolated.wake_waiter)  # for a task that is cancelled before its first step
        if pending is not None:
            pending.isolated_task = isolated
            if pending.cancelled_by and not pending.is_blocking:
                isolated.cancel_wait()
        try:
            if not await isolated.wait():
                raise _WaitCancelledError
        except asyncio.CancelledError as cancelled:
            await self._handle_cancellation(isolated, grace, pending, cancelled)
        finally:
            if pending is not None:
                pending.isolated_task = None
        return isolated.result()

    async def _handle_cancellation(
        self, isolated: IsolatedTask[Any], grace: float, pending: PendingCall | None, cancelled: asyncio.CancelledError
    ) -> None:
        """Stop the code or abandon it, and raise `cancelled` again unless the code has a result."""
        if not isolated.task.done():
            await isolated.stop(grace)
        if not isolated.task.done():
            self._abandoned.add(isolated)  # the event loop has only weak references to its tasks
            isolated.task.add_done_callback(lambda _: self._report_late_end(isolated))
            reason = "it did not stop after it was cancelled, and was abandoned"
            self._report_fault(isolated.label, reason, isolated.call_id)
            raise cancelled
        if isolated.was_cancelled:
            raise cancelled
        # The code ended with a result, which is kept. A native cancellation is delivered only once and must not be
        # lost, so that it is repeated for the call or for the task's next wait; a scope repeats it by itself.
        task = asyncio.current_task()
        scope_is_cancelled = anyio.current_effective_deadline() == -math.inf
        if task is None or scope_is_cancelled or isinstance(cancelled, _WaitCancelledError):
            return
        if pending is not None:
            pending.cancelled_by = pending.cancelled_by or "host"
        elif task.cancelling():
            task.uncancel()
            task.cancel()

    def is_abandoned(self, call_id: CallId) -> bool:
        """Return whether code that ran for this call did not stop and was abandoned."""
        return any(isolated.call_id == call_id for isolated in self._abandoned)

    async def close(self, grace: float, *, quiet: bool = False) -> None:
        """Cancel the abandoned tasks one last time, then close them. With `quiet`, no faults are reported."""
        abandoned = list(self._abandoned)
        if not abandoned:
            return
        with anyio.CancelScope(shield=True):
            for isolated in abandoned:
                isolated.cancel_again()
            await asyncio.wait([isolated.task for isolated in abandoned], timeout=grace)
            for isolated in self._abandoned.intersection(abandoned):
                self._abandoned.discard(isolated)
                await asyncio.wait({asyncio.create_task(isolated.close())})
                if not quiet:
                    reason = "it never stopped, and was closed when the runner exited"
                    self._report_fault(isolated.label, reason, isolated.call_id)

    def _report_late_end(self, isolated: IsolatedTask[Any]) -> None:
        if isolated not in self._abandoned:
            return
        self._abandoned.discard(isolated)
        error = isolated.error
        if error is None:
            reason = "it ended after it was abandoned, and its result is lost"
        else:
            reason = f"it ended after it was abandoned: {type(error).__name__}: {exception_text(error)}"
        self._report_fault(isolated.label, reason, isolated.call_id)


class TaskSet:
    """A runner's tasks other than its calls. Unlike a task group, it can be closed by any task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a coroutine function in a new task."""
        task = asyncio.get_running_loop().create_task(work(*args))
        self._tasks.add(task)  # the event loop has only weak references to its tasks
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the tasks, repeatedly and at growing intervals, until all have ended."""
        pause = FIRST_PAUSE
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks, timeout=pause)
            pause *= 2


def current_task_cancelled() -> bool:
    """Return whether the current task is being cancelled, as opposed to user code raising a cancellation itself."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def wait_uninterrupted(wait: Callable[[], Awaitable[object]], until: Callable[[], bool]) -> None:
    """Repeat `wait` until `until` returns True, then raise the last cancellation that arrived in the
    meantime, if any.
    """
    cancellation: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not until():
            try:
                await wait()
            except anyio.get_cancelled_exc_class() as error:
                cancellation = error
    if cancellation is not None:
        raise cancellation
