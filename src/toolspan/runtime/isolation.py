"""Where the code of others is awaited, so that nobody has to wait for it longer than they want.

In: what a tool, a check, a hook, a policy, an approver, a recovery or a sink gave to be awaited.
Out: what comes of it, as if it had been awaited in place. It runs in a room, a task of its own: who
waits can be cancelled and, should the code inside not stop when it is told to, leave it there after
a grace. What comes of it then is told of as a fault and is nobody's result. Rooms are used again:
what never waits, as most of it, is run through at once in a spare one and costs no task. Read
`Rooms.run` first.

Only asyncio has tasks that can be left; elsewhere all is awaited in place.
"""

from __future__ import annotations

import asyncio
import math
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from toolspan.errors import exception_text
from toolspan.types.ids import CallId
from toolspan.types.span import Call

T = TypeVar("T")
WorkCoroutine = Coroutine[Any, Any, Any]
FaultReporter = Callable[[str, str, CallId | None], None]
"""Takes where a fault was, what it was, and the call it was beside."""

FIRST_PAUSE = 0.01
"""Seconds after which code that was told to stop is told again; the pauses grow."""
MAX_IDLE_TASKS = 16
"""So many rooms are kept for what comes next."""
TASK_NAME = "toolspan-room"
"""The name of every room's task."""
_SUSPENDED: Final = object()
_NO_VALUE: Final = object()


class CancellableCall(Protocol):
    """A call whose code is awaited."""

    @property
    def call(self) -> Call:
        """What was asked for."""
        ...

    @property
    def is_blocking(self) -> bool:
        """Whether it is not to be interrupted now."""
        ...

    def set_waiting_on(self, isolated: IsolatedTask | None) -> None:
        """From now on this is what it waits for; None: it waits no more.

        When the call is to end, or is already, `Room.call_off` is called.
        """
        ...

    def mark_host_cancelled(self) -> None:
        """The program around us is gone."""
        ...


class IsolatedTask(Coroutine[Any, Any, None]):
    """A task for one piece of code at a time, and the coroutine that this task runs.

    The first step of the code is taken at once, by whoever brings it; only if it waits then, the
    task goes on with it. The task is the same from the first step on, for scopes and timeouts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, keep_alive: Callable[[], bool]) -> None:
        """Take whom to ask at the end of a piece of code whether there is to be another."""
        self._loop = loop
        self._keep_alive = keep_alive
        self._idle_future = loop.create_future()
        """What the task waits for while nobody is inside."""
        self._work: WorkCoroutine | None = None
        self._context: Context = copy_context()
        self._awaited: object = _NO_VALUE
        """What the code waits for, as long as the task does not know of it yet."""
        self._closing = False
        self._host_task = _current_task(loop)
        """Whose step the first one of the code was taken in."""
        self._cancel_scope = anyio.CancelScope()
        """Tells the code to stop."""
        self._shield_scope = type(self._cancel_scope)()  # the same, without asking for the backend again
        """Shielded while it is not to be told: a scope tells at every turn of the loop."""
        self._value: object = None
        self.error: BaseException | None = None
        """What the code raised."""
        self.is_finished = False
        """The code has ended."""
        self.is_idle = False
        """It has, and the task waits for another."""
        self._is_wait_cancelled = False
        self._waiter: asyncio.Future[None] | None = None
        """Whoever waits for the end of the code."""
        self.on_late_end: Callable[[IsolatedTask], None] | None = None
        """Called at the end, if everybody has left by then."""
        self.task = asyncio.Task(self, loop=loop, name=TASK_NAME)
        self._run_as_task(self._enter_scopes)

    # For those outside

    def run_first_step(self, work: WorkCoroutine) -> Any:
        """Take the first step; what came of it, or `_WAITS` when the task goes on with it."""
        self._context = context = copy_context()
        loop, task = self._loop, self.task
        try:
            _leave_task(loop, self._host_task)
        except RuntimeError:  # somebody else than last time; to look for them takes longer
            self._host_task = _current_task(loop)
            _leave_task(loop, self._host_task)
        host = self._host_task
        _enter_task(loop, task)
        try:
            awaited = context.run(work.send, None)
        except StopIteration as done:
            return done.value
        finally:
            _leave_task(loop, task)
            _enter_task(loop, host)
        self._work, self._awaited = work, awaited
        self._value = self.error = None  # of the last one, should nobody have wanted to know
        self.is_finished = self.is_idle = self._is_wait_cancelled = False
        if not self._idle_future.done():
            self._idle_future.set_result(None)
        return _SUSPENDED

    async def wait(self) -> bool:
        """Wait for the end of the code; False when somebody calls that off."""
        while not self.is_finished:
            if self._is_wait_cancelled:
                self._is_wait_cancelled = False
                return False
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    def cancel_wait(self) -> None:
        """Whoever waits for the end of the code is not to."""
        self._is_wait_cancelled = True
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def cancel_work(self) -> None:
        """Tell the code to stop, at every turn of the loop until `hush`."""
        self._cancel_scope.cancel()

    def suspend_cancellation(self) -> None:
        """Do not tell it again."""
        self._shield_scope.shield = True

    def repeat_cancellation(self) -> None:
        """Tell it once more."""
        self._shield_scope.shield = False
        self._shield_scope.shield = True

    def take_result(self) -> object:
        """What came of the code: its value, or its exception raised."""
        value, self._value = self._value, None
        error, self.error = self.error, None
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it knows this frame

    def end_idle_task(self) -> None:
        """Nobody is inside, and nobody will be: the task ends."""
        self._closing = True
        if not self._idle_future.done():
            self._idle_future.set_result(None)

    def force_close(self) -> None:
        """Close the code where it stands; the task ends, whatever the code thinks of it."""
        work, self._work = self._work, None
        self._closing = True
        if work is not None:
            with suppress(BaseException):  # even its last words must not harm anybody
                self._run_as_task(self._context.run, work.close)
        self.task.cancel()

    def _run_as_task(self, function: Callable[..., T], *args: object) -> T:
        """Do something as if the room's task did it."""
        host = _current_task(self._loop)
        _leave_task(self._loop, host)
        _enter_task(self._loop, self.task)
        try:
            return function(*args)
        finally:
            _leave_task(self._loop, self.task)
            _enter_task(self._loop, host)

    def _enter_scopes(self) -> None:
        self._cancel_scope.__enter__()
        self._shield_scope.__enter__()

    # For the task

    def send(self, value: object) -> object:
        """Take the next step."""
        if self._work is None:
            return self._wait_idle()
        if self._awaited is not _NO_VALUE:
            awaited, self._awaited = self._awaited, _NO_VALUE
            return awaited
        return self._take_step(self._work.send, value)

    def throw(self, error: BaseException) -> object:  # type: ignore[override]  # all a task gives
        """Take the next step with an exception: the task is cancelled."""
        if self._work is None:
            self._end_task()
            raise error
        awaited, self._awaited = self._awaited, _NO_VALUE
        if isinstance(awaited, asyncio.Future) and awaited.cancel():
            return awaited  # as the task would have done, had it known of it
        return self._take_step(self._work.throw, error)

    def close(self) -> None:
        """The task is no more: nothing to do."""

    def __await__(self) -> Any:
        raise RuntimeError("a room is run by its task")

    def _wait_idle(self) -> object:
        if self._closing:
            self._end_task()
            raise StopIteration
        self._idle_future._asyncio_future_blocking = True
        return self._idle_future

    def _take_step(self, step: Callable[[Any], object], value: object) -> object:
        try:
            return self._context.run(step, value)
        except StopIteration as done:
            self._value = done.value
        except GeneratorExit as error:
            self.error = _as_runtime_error(error)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, or is told of it
            self.error = error
        self._work = None
        if self._is_reusable() and self._keep_alive():
            self._idle_future = self._loop.create_future()
            self.is_idle = self.is_finished = True
            self._wake_waiter()
            return self._wait_idle()
        self._end_task()
        raise StopIteration

    def _is_reusable(self) -> bool:
        """Whether the task is as it was before the code: nothing in it is about to end."""
        if self.on_late_end is not None or self.task.cancelling():
            return False
        return anyio.current_effective_deadline() == math.inf  # no scope that was left open has one

    def _end_task(self) -> None:
        with suppress(RuntimeError):  # scopes that the code has left open
            self._shield_scope.__exit__(None, None, None)
            self._cancel_scope.__exit__(None, None, None)
        self.is_finished = True
        self._wake_waiter()
        if self.on_late_end is not None:
            self.on_late_end(self)


class _WaitCancelledError(asyncio.CancelledError):
    """The call is to end, and so nobody waits for its code any longer."""


class IsolatedTasks:
    """The rooms of one runner."""

    def __init__(self, report_fault: FaultReporter) -> None:
        self._report_fault = report_fault
        self._idle_tasks: list[IsolatedTask] = []
        self._reserved = 0
        """Those that will be spare as soon as somebody has seen what came of their code."""
        self._abandoned: dict[IsolatedTask, tuple[str, CallId | None]] = {}
        """Those whose code did not stop: what it is, and the call it was for."""

    async def run(self, work: Awaitable[T], grace: float, label: str, pending: CancellableCall | None = None) -> T:
        """Await `work`; when that is cancelled, wait for its end for `grace` seconds at most.

        `what` and `job` say whose code it is; the end of the call ends the wait.
        """
        isolated = self._acquire_task()
        if isolated is None:
            return await work
        try:
            value: T = isolated.run_first_step(work if type(work) is CoroutineType else _await_value(work))
        except GeneratorExit as error:
            self._release_task(isolated)
            raise _as_runtime_error(error) from error
        except BaseException:
            self._release_task(isolated)
            raise
        if value is _SUSPENDED:
            return cast("T", await self._wait_for_call(isolated, grace, label, pending))
        self._release_task(isolated)
        return value

    def _acquire_task(self) -> IsolatedTask | None:
        """A room in which nobody is; None where there are none."""
        while self._idle_tasks:
            isolated = self._idle_tasks.pop()
            if not isolated.task.cancelling():
                return isolated
            isolated.end_idle_task()
        try:
            return IsolatedTask(asyncio.get_running_loop(), self._reserve_task)
        except RuntimeError:  # another backend
            return None

    def _release_task(self, isolated: IsolatedTask) -> None:
        """Nobody is in the room any more."""
        if len(self._idle_tasks) < MAX_IDLE_TASKS:
            self._idle_tasks.append(isolated)
        else:
            isolated.end_idle_task()

    def _reserve_task(self) -> bool:
        """Whether to keep one room more, once somebody has seen what came of its code."""
        if len(self._idle_tasks) + self._reserved >= MAX_IDLE_TASKS:
            return False
        self._reserved += 1
        return True

    def is_abandoned(self, call_id: CallId) -> bool:
        """Whether something of this call did not stop and was left to itself."""
        return any(abandoned_id == call_id for _, abandoned_id in self._abandoned.values())

    async def close(self, grace: float, *, quiet: bool = False) -> None:
        """End what was left: tell it a last time to stop, and close it where it stands.

        `quiet` is for when nobody is left to hear of it.
        """
        idle_tasks, self._idle_tasks = self._idle_tasks, []
        for isolated in idle_tasks:
            isolated.end_idle_task()
        abandoned = list(self._abandoned)
        tasks = [isolated.task for isolated in abandoned]
        with anyio.CancelScope(shield=True):
            if abandoned:
                for isolated in abandoned:
                    isolated.repeat_cancellation()
                await asyncio.wait(tasks, timeout=grace)
            for isolated in abandoned:
                self._force_close_task(isolated, quiet=quiet)
            tasks += [isolated.task for isolated in idle_tasks]
            if tasks:
                await asyncio.wait(tasks, timeout=grace)

    async def _wait_for_call(
        self, isolated: IsolatedTask, grace: float, label: str, pending: CancellableCall | None
    ) -> object:
        if pending is None or pending.is_blocking:
            return await self._wait_until_finished(isolated, grace, label, pending)
        pending.set_waiting_on(isolated)
        try:
            return await self._wait_until_finished(isolated, grace, label, pending)
        finally:
            pending.set_waiting_on(None)

    async def _wait_until_finished(
        self, isolated: IsolatedTask, grace: float, label: str, pending: CancellableCall | None
    ) -> object:
        try:
            if not await isolated.wait():
                raise _WaitCancelledError
        except asyncio.CancelledError as cancelled:
            if not isolated.is_finished:
                await _stop_within_grace(isolated, grace)
            if not isolated.is_finished:
                self._abandon_task(isolated, label, None if pending is None else pending.call.id)
                raise
            if isinstance(isolated.error, asyncio.CancelledError):
                raise
            if not isinstance(cancelled, _WaitCancelledError):
                _cancel_again(pending)
        finally:
            if isolated.is_idle:
                self._reserved -= 1
                self._release_task(isolated)
        return isolated.take_result()

    def _abandon_task(self, isolated: IsolatedTask, label: str, call_id: CallId | None) -> None:
        self._abandoned[isolated] = (label, call_id)
        isolated.on_late_end = self._report_late_end
        self._report_fault(label, "it did not stop when it was told to, and is left to itself", call_id)

    def _report_late_end(self, isolated: IsolatedTask) -> None:
        label, call_id = self._abandoned.pop(isolated, (None, None))
        if label is None:
            return
        error = isolated.error
        if error is None:
            reason = "it ended after everybody had left; what it gave is lost"
        else:
            reason = f"it ended after everybody had left: {type(error).__name__}: {exception_text(error)}"
        self._report_fault(label, reason, call_id)

    def _force_close_task(self, isolated: IsolatedTask, *, quiet: bool) -> None:
        label, call_id = self._abandoned.pop(isolated, (None, None))
        if label is None:
            return
        isolated.force_close()
        if not quiet:
            self._report_fault(label, "it never stopped, and was closed with the runner", call_id)


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any]:
    """The task that asks: rooms are for tasks only."""
    return cast("asyncio.Task[Any]", asyncio.current_task(loop))


def _as_runtime_error(error: GeneratorExit) -> RuntimeError:
    """What stands for an exception that, passed on, would mean that whoever waits is closed."""
    return RuntimeError(f"GeneratorExit {exception_text(error)}".strip())


async def _await_value(work: Awaitable[T]) -> T:
    return await work


async def _stop_within_grace(isolated: IsolatedTask, grace: float) -> None:
    """Tell the code to stop, at growing intervals; it has stopped, or the grace is over."""
    isolated.cancel_work()
    pause, remaining = FIRST_PAUSE, grace
    try:
        with anyio.CancelScope(shield=True):
            while remaining > 0 and not isolated.is_finished:
                with anyio.move_on_after(min(pause, remaining)):
                    while not await isolated.wait():
                        pass  # it is called off already: that is no reason for a shorter grace
                isolated.repeat_cancellation()
                remaining -= pause
                pause *= 2
    except asyncio.CancelledError:
        return  # who waits is told twice to end: no more grace
    finally:
        isolated.suspend_cancellation()


def _cancel_again(pending: CancellableCall | None) -> None:
    """We caught a cancellation that came only once: the call has it, or the next who waits."""
    task = asyncio.current_task()
    if task is None or anyio.current_effective_deadline() == -math.inf:
        return  # a scope's, which comes again by itself
    if pending is not None:
        pending.mark_host_cancelled()
    elif task.cancelling():
        task.uncancel()
        task.cancel()


async def wait_uninterrupted(wait: Callable[[], Awaitable[object]], until: Callable[[], bool]) -> None:
    """Wait until something is so, however often this task is told to end."""
    cancellation: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not until():
            try:
                await wait()
            except anyio.get_cancelled_exc_class() as error:
                cancellation = error
    if cancellation is not None:
        raise cancellation
