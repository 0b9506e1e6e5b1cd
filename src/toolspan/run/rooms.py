"""Where the code of others is awaited, so that nobody has to wait for it longer than they want.

In: what a tool, a check, a hook, a policy, an approver, a recovery or a sink gave to be awaited.
Out: what comes of it, as if it had been awaited in place. It runs in a room, a task of its own: who
waits can be cancelled and, should the code inside not stop when it is told to, leave it there after
a grace. What comes of it then is told of as a fault and is nobody's result. Rooms are used again:
what never waits, as most of it, is run through at once in a spare one and costs no task. Read
`Rooms.run` first.

Only asyncio has tasks that can be left; elsewhere all is awaited in place.
"""

import asyncio
import math
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from toolspan.errors import words_of
from toolspan.ids import CallId
from toolspan.model.span import Call

T = TypeVar("T")
Work = Coroutine[Any, Any, Any]
Tell = Callable[[str, str, CallId | None], None]
"""Takes where a fault was, what it was, and the call it was beside."""

FIRST_PAUSE = 0.01
"""Seconds after which code that was told to stop is told again; the pauses grow."""
SPARE = 16
"""So many rooms are kept for what comes next."""
ROOM = "toolspan-room"
"""The name of every room's task."""
_WAITS: Final = object()
_NOTHING: Final = object()


class Guest(Protocol):
    """A call whose code is awaited."""

    @property
    def call(self) -> Call:
        """What was asked for."""
        ...

    @property
    def is_blocking(self) -> bool:
        """Whether it is not to be interrupted now."""
        ...

    def wait_for(self, room: "Room | None") -> None:
        """From now on this is what it waits for; None: it waits no more.

        When the call is to end, or is already, `Room.call_off` is called.
        """
        ...

    def lose_host(self) -> None:
        """The program around us is gone."""
        ...


class Room(Coroutine[Any, Any, None]):
    """A task for one piece of code at a time, and the coroutine that this task runs.

    The first step of the code is taken at once, by whoever brings it; only if it waits then, the
    task goes on with it. The task is the same from the first step on, for scopes and timeouts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stays: Callable[[], bool]) -> None:
        """Take whom to ask at the end of a piece of code whether there is to be another."""
        self._loop = loop
        self._stays = stays
        self._idle = loop.create_future()
        """What the task waits for while nobody is inside."""
        self._work: Work | None = None
        self._context: Context = copy_context()
        self._wanted: object = _NOTHING
        """What the code waits for, as long as the task does not know of it yet."""
        self._closing = False
        self._host = _current_task(loop)
        """Whose step the first one of the code was taken in."""
        self._outer = anyio.CancelScope()
        """Tells the code to stop."""
        self._inner = type(self._outer)()  # the same, without asking for the backend again
        """Shielded while it is not to be told: a scope tells at every turn of the loop."""
        self._value: object = None
        self.error: BaseException | None = None
        """What the code raised."""
        self.is_over = False
        """The code has ended."""
        self.rests = False
        """It has, and the task waits for another."""
        self._is_called_off = False
        self._waiter: asyncio.Future[None] | None = None
        """Whoever waits for the end of the code."""
        self.late: Callable[[Room], None] | None = None
        """Called at the end, if everybody has left by then."""
        self.task = asyncio.Task(self, loop=loop, name=ROOM)
        self._inside(self._enter_scopes)

    # For those outside

    def begin(self, work: Work) -> Any:
        """Take the first step; what came of it, or `_WAITS` when the task goes on with it."""
        self._context = context = copy_context()
        loop, task = self._loop, self.task
        try:
            _leave_task(loop, self._host)
        except RuntimeError:  # somebody else than last time; to look for them takes longer
            self._host = _current_task(loop)
            _leave_task(loop, self._host)
        host = self._host
        _enter_task(loop, task)
        try:
            wanted = context.run(work.send, None)
        except StopIteration as done:
            return done.value
        finally:
            _leave_task(loop, task)
            _enter_task(loop, host)
        self._work, self._wanted = work, wanted
        self._value = self.error = None  # of the last one, should nobody have wanted to know
        self.is_over = self.rests = self._is_called_off = False
        if not self._idle.done():
            self._idle.set_result(None)
        return _WAITS

    async def wait(self) -> bool:
        """Wait for the end of the code; False when somebody calls that off."""
        while not self.is_over:
            if self._is_called_off:
                self._is_called_off = False
                return False
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    def call_off(self) -> None:
        """Whoever waits for the end of the code is not to."""
        self._is_called_off = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self) -> None:
        """Tell the code to stop, at every turn of the loop until `hush`."""
        self._outer.cancel()

    def hush(self) -> None:
        """Do not tell it again."""
        self._inner.shield = True

    def remind(self) -> None:
        """Tell it once more."""
        self._inner.shield = False
        self._inner.shield = True

    def outcome(self) -> object:
        """What came of the code: its value, or its exception raised."""
        value, self._value = self._value, None
        error, self.error = self.error, None
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it knows this frame

    def dismiss(self) -> None:
        """Nobody is inside, and nobody will be: the task ends."""
        self._closing = True
        if not self._idle.done():
            self._idle.set_result(None)

    def drop(self) -> None:
        """Close the code where it stands; the task ends, whatever the code thinks of it."""
        work, self._work = self._work, None
        self._closing = True
        if work is not None:
            with suppress(BaseException):  # even its last words must not harm anybody
                self._inside(self._context.run, work.close)
        self.task.cancel()

    def _inside(self, do: Callable[..., T], *given: object) -> T:
        """Do something as if the room's task did it."""
        host = _current_task(self._loop)
        _leave_task(self._loop, host)
        _enter_task(self._loop, self.task)
        try:
            return do(*given)
        finally:
            _leave_task(self._loop, self.task)
            _enter_task(self._loop, host)

    def _enter_scopes(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    # For the task

    def send(self, value: object) -> object:
        """Take the next step."""
        if self._work is None:
            return self._rest()
        if self._wanted is not _NOTHING:
            wanted, self._wanted = self._wanted, _NOTHING
            return wanted
        return self._go_on(self._work.send, value)

    def throw(self, error: BaseException) -> object:  # type: ignore[override]  # all a task gives
        """Take the next step with an exception: the task is cancelled."""
        if self._work is None:
            self._leave()
            raise error
        wanted, self._wanted = self._wanted, _NOTHING
        if isinstance(wanted, asyncio.Future) and wanted.cancel():
            return wanted  # as the task would have done, had it known of it
        return self._go_on(self._work.throw, error)

    def close(self) -> None:
        """The task is no more: nothing to do."""

    def __await__(self) -> Any:
        raise RuntimeError("a room is run by its task")

    def _rest(self) -> object:
        if self._closing:
            self._leave()
            raise StopIteration
        self._idle._asyncio_future_blocking = True
        return self._idle

    def _go_on(self, step: Callable[[Any], object], given: object) -> object:
        try:
            return self._context.run(step, given)
        except StopIteration as done:
            self._value = done.value
        except GeneratorExit as error:
            self.error = _own(error)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, or is told of it
            self.error = error
        self._work = None
        if self._can_stay() and self._stays():
            self._idle = self._loop.create_future()
            self.rests = self.is_over = True
            self._wake()
            return self._rest()
        self._leave()
        raise StopIteration

    def _can_stay(self) -> bool:
        """Whether the task is as it was before the code: nothing in it is about to end."""
        if self.late is not None or self.task.cancelling():
            return False
        return anyio.current_effective_deadline() == math.inf  # no scope that was left open has one

    def _leave(self) -> None:
        with suppress(RuntimeError):  # scopes that the code has left open
            self._inner.__exit__(None, None, None)
            self._outer.__exit__(None, None, None)
        self.is_over = True
        self._wake()
        if self.late is not None:
            self.late(self)


class _CalledOffError(asyncio.CancelledError):
    """The call is to end, and so nobody waits for its code any longer."""


class Rooms:
    """The rooms of one runner."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._spare: list[Room] = []
        self._promised = 0
        """Those that will be spare as soon as somebody has seen what came of their code."""
        self._left: dict[Room, tuple[str, CallId | None]] = {}
        """Those whose code did not stop: what it is, and the call it was for."""

    async def run(self, work: Awaitable[T], grace: float, what: str, job: Guest | None = None) -> T:
        """Await `work`; when that is cancelled, wait for its end for `grace` seconds at most.

        `what` and `job` say whose code it is; the end of the call ends the wait.
        """
        room = self._take()
        if room is None:
            return await work
        try:
            given: T = room.begin(work if type(work) is CoroutineType else _awaiting(work))
        except GeneratorExit as error:
            self._put_back(room)
            raise _own(error) from error
        except BaseException:
            self._put_back(room)
            raise
        if given is _WAITS:
            return cast("T", await self._wait(room, grace, what, job))
        self._put_back(room)
        return given

    def _take(self) -> Room | None:
        """A room in which nobody is; None where there are none."""
        while self._spare:
            room = self._spare.pop()
            if not room.task.cancelling():
                return room
            room.dismiss()
        try:
            return Room(asyncio.get_running_loop(), self._promise)
        except RuntimeError:  # another backend
            return None

    def _put_back(self, room: Room) -> None:
        """Nobody is in the room any more."""
        if len(self._spare) < SPARE:
            self._spare.append(room)
        else:
            room.dismiss()

    def _promise(self) -> bool:
        """Whether to keep one room more, once somebody has seen what came of its code."""
        if len(self._spare) + self._promised >= SPARE:
            return False
        self._promised += 1
        return True

    def is_left(self, call_id: CallId) -> bool:
        """Whether something of this call did not stop and was left to itself."""
        return any(left == call_id for _, left in self._left.values())

    async def close(self, grace: float, *, quiet: bool = False) -> None:
        """End what was left: tell it a last time to stop, and close it where it stands.

        `quiet` is for when nobody is left to hear of it.
        """
        spare, self._spare = self._spare, []
        for room in spare:
            room.dismiss()
        left = list(self._left)
        tasks = [room.task for room in left]
        with anyio.CancelScope(shield=True):
            if left:
                for room in left:
                    room.remind()
                await asyncio.wait(tasks, timeout=grace)
            for room in left:
                self._drop(room, quiet=quiet)
            tasks += [room.task for room in spare]
            if tasks:
                await asyncio.wait(tasks, timeout=grace)

    async def _wait(self, room: Room, grace: float, what: str, job: Guest | None) -> object:
        if job is None or job.is_blocking:
            return await self._stay(room, grace, what, job)
        job.wait_for(room)
        try:
            return await self._stay(room, grace, what, job)
        finally:
            job.wait_for(None)

    async def _stay(self, room: Room, grace: float, what: str, job: Guest | None) -> object:
        try:
            if not await room.wait():
                raise _CalledOffError
        except asyncio.CancelledError as cancelled:
            if not room.is_over:
                await _stop(room, grace)
            if not room.is_over:
                self._leave(room, what, None if job is None else job.call.id)
                raise
            if isinstance(room.error, asyncio.CancelledError):
                raise
            if not isinstance(cancelled, _CalledOffError):
                _cancel_again(job)
        finally:
            if room.rests:
                self._promised -= 1
                self._put_back(room)
        return room.outcome()

    def _leave(self, room: Room, what: str, call_id: CallId | None) -> None:
        self._left[room] = (what, call_id)
        room.late = self._ended_late
        self._tell(what, "it did not stop when it was told to, and is left to itself", call_id)

    def _ended_late(self, room: Room) -> None:
        what, call_id = self._left.pop(room, (None, None))
        if what is None:
            return
        error = room.error
        if error is None:
            reason = "it ended after everybody had left; what it gave is lost"
        else:
            reason = f"it ended after everybody had left: {type(error).__name__}: {words_of(error)}"
        self._tell(what, reason, call_id)

    def _drop(self, room: Room, *, quiet: bool) -> None:
        what, call_id = self._left.pop(room, (None, None))
        if what is None:
            return
        room.drop()
        if not quiet:
            self._tell(what, "it never stopped, and was closed with the runner", call_id)


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any]:
    """The task that asks: rooms are for tasks only."""
    return cast("asyncio.Task[Any]", asyncio.current_task(loop))


def _own(error: GeneratorExit) -> RuntimeError:
    """What stands for an exception that, passed on, would mean that whoever waits is closed."""
    return RuntimeError(f"GeneratorExit {words_of(error)}".strip())


async def _awaiting(work: Awaitable[T]) -> T:
    return await work


async def _stop(room: Room, grace: float) -> None:
    """Tell the code to stop, at growing intervals; it has stopped, or the grace is over."""
    room.stop()
    pause, left = FIRST_PAUSE, grace
    try:
        with anyio.CancelScope(shield=True):
            while left > 0 and not room.is_over:
                with anyio.move_on_after(min(pause, left)):
                    while not await room.wait():
                        pass  # it is called off already: that is no reason for a shorter grace
                room.remind()
                left -= pause
                pause *= 2
    except asyncio.CancelledError:
        return  # who waits is told twice to end: no more grace
    finally:
        room.hush()


def _cancel_again(job: Guest | None) -> None:
    """We caught a cancellation that came only once: the call has it, or the next who waits."""
    task = asyncio.current_task()
    if task is None or anyio.current_effective_deadline() == -math.inf:
        return  # a scope's, which comes again by itself
    if job is not None:
        job.lose_host()
    elif task.cancelling():
        task.uncancel()
        task.cancel()
