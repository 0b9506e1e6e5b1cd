"""The calls of one assistant message: queued, run, handed out.

In: `tool_use` blocks, all at once or while the message still streams. Out: one `Finished` per
accepted call, in any of three ways: `completed` (what is there now), `remaining` (until all are
there), `drain` (all, in the order they were asked for). The queue decides what starts; calls that
never wait are run one after the other in one task; when one waits, the others go on in a new one.
Read `add`, then `_work`.
"""

from __future__ import annotations

import asyncio
import itertools
import types
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import anyio
import anyio.abc
import anyio.lowlevel

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.authorization import preview_decision
from toolspan.runtime.blocks import CallRequest, call_block, call_target, message_id, parse_tool_use
from toolspan.runtime.context import CallContext
from toolspan.runtime.finalize import finalize_unstarted, format_timestamp
from toolspan.runtime.hooks.callbacks import current_task_cancelled
from toolspan.runtime.hooks.events import HookEffects, SessionHookEvent
from toolspan.runtime.isolation import wait_uninterrupted
from toolspan.runtime.live_bodies import LiveBodyStore
from toolspan.runtime.pending_call import CancelSource, PendingCall, RunnerContext
from toolspan.runtime.pipeline import run_call
from toolspan.runtime.post_hooks import emit_hook_reports
from toolspan.runtime.progress import ProgressReporter
from toolspan.runtime.queue import Queue, QueueItem
from toolspan.runtime.schema.issues import Invalid, Valid, unparsed_text
from toolspan.runtime.tool import Input, Tool
from toolspan.runtime.toolset import Toolset
from toolspan.types.decision import Decision, Deny
from toolspan.types.events import BatchFinished, Duplicate, Faulted, Finished, Requested
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Span
from toolspan.types.tool_kinds import tool_kind

TaskFunction = Callable[[], Coroutine[object, object, None]]


class _TaskStarter:
    """Tasks that end by themselves: nothing but their calls keeps them."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []
        """A loop alone would not keep them."""

    def start(self, run: TaskFunction) -> None:
        """Have something run beside everything else; nobody tells it to end."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another backend
            self._group.start_soon(run)
            return
        self._tasks.append(loop.create_task(self._run_guarded(run)))

    def start_later(self, run: TaskFunction, seconds: float) -> Callable[[], None]:
        """The same in so many seconds; gives what keeps it from that."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another backend
            self._group.start_soon(run)
            return _do_nothing
        return loop.call_later(seconds, self.start, run).cancel

    async def _run_guarded(self, run: TaskFunction) -> None:
        try:
            await run()
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - our own fault: it ends the runner
            self._group.start_soon(_raise_error, error)


def _do_nothing() -> None:
    """It has begun."""


async def _raise_error(error: BaseException) -> None:
    raise error


_T = TypeVar("_T")


@types.coroutine
def run_until_first_wait(work: Coroutine[Any, Any, _T], on_wait: Callable[[], None]) -> Generator[Any, Any, _T]:
    """The result of `work`; `waits` is called whenever it is suspended."""
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return cast(_T, done.value)
    while True:
        on_wait()
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for `work`
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            awaited = step()
        except StopIteration as done:
            return cast(_T, done.value)


YIELD_AFTER_SECONDS = 0.05
"""Seconds after which calls that never wait let others have a turn, and others are watched."""

_NO_EFFECTS = HookEffects()
RunStep = Callable[[str, Input], Awaitable[Finished]]
"""Runs one further call, visible like any other."""


class Recovery(Protocol):
    """A policy that mends failed calls by further ones, or prevents the failure.

    Both are called in the failed call's place in the queue; neither may raise for what a call did.
    """

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:
        """Before a call runs: run what it will need."""
        ...

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """After a call failed: run what may still bring it about."""
        ...


class Batch:
    """The calls of one assistant message."""

    def __init__(
        self,
        context: RunnerContext,
        group: anyio.abc.TaskGroup,
        *,
        message: Mapping[str, object] | None = None,
        by_path: bool = False,
        recoveries: Sequence[Recovery] = (),
        seen_ids: set[CallId] | None = None,
    ) -> None:
        self.context = context
        self.message = message
        self._message_id = message_id(message)
        self.stop: str | None = None
        self.effects = _NO_EFFECTS
        """What hooks said of the whole batch."""
        self._group = group
        self._task_starter = _TaskStarter(group)
        self._queue = Queue(max_running=context.profile.availability.max_concurrent, by_path=by_path)
        self._recoveries = tuple(recoveries)
        self._seen_ids = set() if seen_ids is None else seen_ids
        self._pending_calls: dict[CallId, PendingCall] = {}
        self._steps: dict[CallId, PendingCall] = {}
        self._recovery_scopes: dict[CallId, anyio.CancelScope] = {}
        """Recoveries at work, by the call they are for."""
        self._origins: dict[CallId, CallId] = {}
        """The call in whose place each step is run."""
        self._order: list[CallId] = []
        self._ready: deque[PendingCall] = deque()
        """Started, and waiting for a task to run them."""
        self._modifiers: list[CallId] = []
        self._cwd_hooks_running = 0
        """How often handlers are just being told that the session is in another folder."""
        self._call_ended: anyio.Event | None = None
        """Set when a call ended; there once somebody waits for that."""
        self._cancel_watch_start: Callable[[], None] | None = None
        """Keeps somebody from watching calls that wait; there since one did."""
        self._is_watched = False
        self._closed = False

    # Asking

    def add(self, block: Mapping[str, object], *, truncated: bool = False) -> bool:
        """Accept a `tool_use` block and start what can start; False for an id that was there.

        `cut` is for a block in whose middle the reply ended: it is answered, not run.

        Raises:
            BadCall: the block is no call.
        """
        pending = self.accept(parse_tool_use(block), truncated=truncated)
        if pending is None:
            return False
        self.enqueue(pending)
        self.start()
        return True

    def accept(self, request: CallRequest, *, truncated: bool = False) -> PendingCall | None:
        """What a block asks for as a job that is not in the queue yet; None for an id again."""
        call_id, name, arguments = request
        if call_id in self._seen_ids:
            self.context.emit(Duplicate(call_id=call_id, tool=name, at=self.context.clock()))
            return None
        self._seen_ids.add(call_id)
        pending = self._make_pending_call(call_id, name, arguments)
        pending.truncated = truncated
        return pending

    def enqueue(self, pending: PendingCall) -> None:
        """Put an accepted call into the queue; `drain` runs it."""
        call_id = pending.call.id
        if Requested in self.context.observed_events:
            self.context.emit(Requested(call=pending.call, at=pending.requested_at))
        self._order.append(call_id)
        self._pending_calls[call_id] = pending
        self._queue.add(self._queue_item(pending))
        if self.stop is not None:
            self._cancel_pending(pending, "turn")

    def start(self) -> None:
        """Start what can start: for calls in the queue of a message that still streams."""
        self._start_tasks()

    def cancel(self, call_id: CallId | None = None, *, by: CancelSource = "user") -> None:
        """End one call, or all that have not ended; each still gets its result."""
        if call_id is None:
            for pending in (*self._pending_calls.values(), *self._steps.values()):
                self._cancel_pending(pending, by)
        else:
            selected = self._steps.get(call_id) or self._pending_calls.get(call_id)
            if selected is not None:
                self._cancel_pending(selected, by)
        self._start_tasks()

    # Handing out

    def completed(self) -> list[Finished]:
        """The results that are there now and were not handed out before, in call order."""
        return [self._require_finished(call_id) for call_id in self._queue.take_completed()]

    async def remaining(self) -> AsyncIterator[Finished]:
        """Every result not handed out yet, as they come, until all calls have ended."""
        while True:
            for finished in self.completed():
                yield finished
            if self._queue.is_done:
                return
            await self._wait_for_end()

    async def drain(self) -> list[Finished]:
        """All results, in the order the calls were asked for; steps of a recovery after theirs."""
        try:
            self._collect_ready()
            while not self._queue.is_done or self._cwd_hooks_running:
                await (self._run_worker() if self._ready else self._wait_for_end())
        except anyio.get_cancelled_exc_class():
            await self.abandon()
            raise
        results = self.results
        if not self._closed:
            self._closed = True
            if not self.context.hooks.is_empty:
                await self._run_batch_hooks(results)
            if BatchFinished in self.context.observed_events:
                self._emit_batch_finished(results)
        return results

    async def abandon(self) -> None:
        """The host ended us: end every call, wait until each has its result."""
        if not self._queue.is_done:
            self.cancel(by="host")
            await wait_uninterrupted(self._wait_for_end, lambda: self._queue.is_done)

    async def _run_batch_hooks(self, results: list[Finished]) -> None:
        """Fire the hooks for the batch; they may end the turn."""
        hook_run = self.context.hooks.run_post_tool_batch([finished.span for finished in results])
        effects = await self.context.run_hook(hook_run)
        if effects.reports:
            emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports, self.context)
        self.stop = self.stop or effects.stop
        self.effects = effects

    def _emit_batch_finished(self, results: list[Finished]) -> None:
        ids = tuple(finished.call_id for finished in results)
        self.context.emit(BatchFinished(call_ids=ids, stop=self.stop, at=self.context.clock()))

    @property
    def is_over(self) -> bool:
        """Whether every call has ended and everybody was told."""
        return self._closed and self._queue.is_done

    @property
    def results(self) -> list[Finished]:
        """The results so far, in call order."""
        pending_calls: Iterable[PendingCall] = self._pending_calls.values()
        if self._steps:
            pending_calls = (self._steps.get(call_id) or self._pending_calls[call_id] for call_id in self._order)
        return [pending.finished for pending in pending_calls if pending.finished is not None]

    @property
    def spans(self) -> list[Span]:
        """The spans so far, in call order."""
        return [finished.span for finished in self.results]

    @property
    def steps(self) -> tuple[CallId, ...]:
        """The calls that recoveries made."""
        return tuple(self._steps)

    def step_blocks(self) -> list[dict[str, object]]:
        """The calls that recoveries made, as blocks of the reply."""
        pending_calls = [self._steps[call_id] for call_id in self._order if call_id in self._steps]
        return [call_block(pending.call) for pending in pending_calls]

    # What running calls may ask: the Bench

    @property
    def tools(self) -> Toolset:
        """What the session has."""
        return self.context.tools

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        return self._queue.running

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """How the permission question of each call was answered."""
        return self.context.decisions

    def is_cancelled(self, call_id: CallId) -> bool:
        """Whether somebody wants the call to end."""
        pending = self._steps.get(call_id) or self._pending_calls.get(call_id)
        return pending is not None and pending.cancelled_by is not None

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Pass news on, at most ten a second; the latest waits for its turn or for the end."""
        self.context.loop_thread.run_in_loop(self._report_progress, call_id, kind, data)

    def _report_progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        pending = self._steps.get(call_id) or self._pending_calls.get(call_id)
        if pending is None or pending.finished is not None:
            return
        ProgressReporter(self.context.emit, self.context.clock).report_progress(pending, kind, data)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        """What the answer would be if this were asked for; nobody is asked."""
        known_tool = self._find_tool(tool)
        if known_tool is None:
            return Deny(f"No such tool available: {tool}")
        call = Call(id=CallId(""), tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(input))
        return await preview_decision(call, known_tool, input, self.context)

    async def fire(self, call_id: CallId, hook_event: SessionHookEvent) -> HookEffects:
        """Fire a hook point that only a tool knows of, and tell what its handlers did."""
        hooks = self.context.hooks
        if hooks.is_empty or not hooks.has_handler(hook_event.point):
            return HookEffects()
        pending = self._steps.get(call_id) or self._pending_calls.get(call_id)
        effects = await self.context.run_hook(hooks.run_session_event(hook_event), pending)
        emit_hook_reports(call_id, effects.reports, self.context)
        return effects

    # Running

    def _make_pending_call(self, call_id: CallId, name: str, arguments: Input) -> PendingCall:
        tool = self._find_tool(name)
        readable = arguments if unparsed_text(arguments) is None else {}
        parsed: Valid | Invalid | None = tool.parse(readable) if tool is not None else None
        if readable is not arguments and isinstance(parsed, Valid):
            parsed = Invalid(())
        body_store = LiveBodyStore(parsed.recorded if isinstance(parsed, Valid) else arguments)
        now, workspace = self.context.clock(), self.context.workspace
        call = Call(
            id=call_id,
            tool=name,
            at=0,
            requested_at=format_timestamp(now),
            target=call_target(arguments),
            session_id=workspace.session_id,
            agent_id=workspace.agent_id,
            message_id=self._message_id,
            parent_call=workspace.parent_call,
            body_store=body_store,
        )
        return PendingCall(
            call=call, body_store=body_store, tool=tool, parsed=parsed, requested_at=now, message=self.message
        )

    def _find_tool(self, name: str) -> Tool | None:
        """The tool of this name or alias, unless it is switched off."""
        tool = self.context.tools.find(name)
        return tool if tool is not None and tool.enabled else None

    def _queue_item(self, pending: PendingCall) -> QueueItem:
        if pending.tool is None or not isinstance(pending.parsed, Valid):
            return QueueItem(pending.call.id, overlaps=pending.tool is None)
        tool, value = pending.tool, pending.parsed.value
        paths = None if tool.paths is None else _touched_paths(tool.paths, value)
        return QueueItem(pending.call.id, tool.may_overlap(value), paths)

    def _collect_ready(self) -> None:
        for call_id in self._queue.start():
            pending = self._pending_calls[call_id]
            if pending.tool is not None and pending.tool.interrupt == "block":
                self._group.start_soon(self._run_worker, pending)  # it must not end with who drains
            else:
                self._ready.append(pending)

    def _start_tasks(self) -> None:
        """Start what can start, in a task: nobody may be draining."""
        self._collect_ready()
        if self._ready:
            self._task_starter.start(self._run_worker)

    async def _run_worker(self, first: PendingCall | None = None) -> None:
        """Run what is ready, one after the other; when one has to wait, others do not.

        A call that never waits, as most of a busy session are, needs no task of its own.
        """
        await run_until_first_wait(self._run_ready(first), self._on_wait)
        while self._ready:
            await anyio.lowlevel.checkpoint()
            await run_until_first_wait(self._run_ready(), self._on_wait)

    async def _run_ready(self, first: PendingCall | None = None) -> None:
        """Run what is ready until it is the turn of others."""
        since = self.context.clock()
        while first or self._ready:
            pending, first = first or self._ready.popleft(), None
            await self._run_pending(pending)
            if self.context.clock() - since > YIELD_AFTER_SECONDS:
                return

    def _on_wait(self) -> None:
        """A call waits for something: others that are ready get a task, and somebody watches."""
        if self._ready:
            self._task_starter.start(self._run_worker)
        if self._cancel_watch_start is None:
            self._cancel_watch_start = self._task_starter.start_later(self._start_watch, YIELD_AFTER_SECONDS)

    async def _run_pending(self, pending: PendingCall) -> None:
        try:
            if self._recoveries and pending.cancelled_by is None:
                await self._run_with_recovery(pending)
            else:
                await run_call(pending, self.context, self)
        finally:
            self._finish_pending(pending)

    async def _run_with_recovery(self, pending: PendingCall) -> None:
        run = partial(self.run_step, pending.call.id)
        for recovery in self._recoveries:
            if not pending.cancelled_by:
                await self._run_recovery(recovery.before_call(pending.call, self.context, run), pending)
        finished = await run_call(pending, self.context, self)
        for recovery in self._recoveries:
            if _is_error(finished) and not pending.cancelled_by:
                await self._run_recovery(recovery.on_failure(finished, self.context, run), pending)

    async def _run_recovery(self, work: Awaitable[None], pending: PendingCall) -> None:
        """A policy's own fault is told of and costs no call its result; it ends with the call."""
        with anyio.CancelScope() as scope:
            self._recovery_scopes[pending.call.id] = scope
            try:
                await self._run_isolated(work, pending)
            except anyio.get_cancelled_exc_class() as error:
                if current_task_cancelled():
                    raise
                self._emit_fault("recovery", error, pending.call.id)
            except Exception as error:  # noqa: BLE001 - user code beside a call
                self._emit_fault("recovery", error, pending.call.id)
            finally:
                del self._recovery_scopes[pending.call.id]

    def _run_isolated(self, work: Awaitable[None], pending: PendingCall) -> Awaitable[None]:
        grace = 2 * self.context.hooks_grace  # a step of it may need one to end
        return self.context.isolated_tasks.run(work, grace, "recovery", pending)

    def _emit_fault(self, where: str, error: BaseException, call_id: CallId) -> None:
        reason = f"{type(error).__name__}: {exception_text(error)}"
        now = self.context.clock()
        self.context.emit(Faulted(where=where, reason=reason, call_id=call_id, at=now))

    async def run_step(self, origin: CallId, name: str, arguments: Input) -> Finished:
        """Run a further call in the place of `origin`, visible like any other.

        Raises:
            ToolspanError: that call has ended, and whoever asks should have.
        """
        if self._queue.stage(origin) != "executing":
            raise ToolspanError(f"call {origin} has ended: nothing more is run for it")
        numbered = (CallId(f"{origin}_r{number}") for number in itertools.count(1))
        call_id = next(candidate for candidate in numbered if candidate not in self._seen_ids)
        self._seen_ids.add(call_id)
        pending = self._make_pending_call(call_id, name, arguments)
        self.context.emit(Requested(call=pending.call, at=pending.requested_at, recovers=origin))
        self._origins[call_id] = origin
        last_position = max(
            position
            for position, candidate in enumerate(self._order)
            if candidate == origin or self._origins.get(candidate) == origin
        )
        self._order.insert(last_position + 1, call_id)
        self._steps[call_id] = pending
        finished = await run_call(pending, self.context, self)
        self._apply_modifier(pending)
        return finished

    def _finish_pending(self, pending: PendingCall) -> None:
        self._queue.finish(pending.call.id)
        if pending.finished is None:  # cut off while others prepared the ground for it
            pending.cancelled_by = pending.cancelled_by or "host"
            finalize_unstarted(pending, self.context)
        if pending.finished is not None:
            self._handle_finished(pending, pending.finished)
        if self._queue.is_waiting:
            self._collect_ready()
        self._signal_call_ended()

    def _signal_call_ended(self) -> None:
        """A call has ended: who waits for that may go on; after the last one, nobody watches."""
        if self._call_ended is not None:
            self._call_ended.set()
        if self._cancel_watch_start is not None and not self._is_watched and self._queue.is_done:
            self._cancel_watch_start()
            self._cancel_watch_start = None

    def _handle_finished(self, pending: PendingCall, finished: Finished) -> None:
        if pending.modify is not None:
            self._modifiers.append(pending.call.id)
        if self._modifiers and self._queue.is_idle:
            self._apply_modifiers()
        if finished.stop is not None and self.stop is None:
            self.stop = finished.stop
            if finished.span.state == "denied":  # by a person who wants none of it
                self.cancel(by="turn")
            else:
                self._cancel_waiting("turn")
        elif finished.span.state == "failed" and _cancels_siblings(finished, self.context):
            self.cancel(by="sibling")

    def _cancel_waiting(self, by: CancelSource) -> None:
        for call_id in self._queue.waiting:
            self._cancel_pending(self._pending_calls[call_id], by)

    def _cancel_pending(self, pending: PendingCall, by: CancelSource) -> None:
        """A running call is told to end; one that waits has its result at once."""
        recovery_scope = self._recovery_scopes.get(pending.call.id)
        if recovery_scope is not None:
            pending.cancelled_by = pending.cancelled_by or by
            recovery_scope.cancel()
        if pending.finished is not None:
            return
        pending.cancel(by)
        if self._queue.withdraw(pending.call.id):
            finalize_unstarted(pending, self.context)
            self._signal_call_ended()

    def _apply_modifiers(self) -> None:
        """What the calls of a parallel group change, in call order, once none of them runs."""
        for call_id in sorted(self._modifiers, key=self._queue.position):
            self._apply_modifier(self._pending_calls[call_id])
        self._modifiers.clear()

    def _apply_modifier(self, pending: PendingCall) -> None:
        if pending.modify is None:
            return
        try:
            changed = pending.modify(self.context.call_context)
            if not isinstance(changed, CallContext):
                raise TypeError(f"a modifier gives a Context, not {type(changed).__name__}")
        except Exception as error:  # noqa: BLE001 - a tool's own function; the context stays
            self._emit_fault("context modifier", error, pending.call.id)
            return
        before, self.context.call_context = self.context.call_context.cwd, changed
        if before != changed.cwd and self.context.hooks.has_handler("CwdChanged"):
            self._cwd_hooks_running += 1
            self._group.start_soon(self._run_cwd_hooks, before, changed.cwd)

    async def _run_cwd_hooks(self, before: Path, now: Path) -> None:
        """The session is in another folder: handlers hear of it, and have no say."""
        fields = {"old_cwd": str(before), "new_cwd": str(now)}
        hook_event = SessionHookEvent(point="CwdChanged", fields=fields)
        try:
            effects = await self.context.run_hook(self.context.hooks.run_session_event(hook_event))
            emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports, self.context)
        finally:
            self._cwd_hooks_running -= 1
            if self._call_ended is not None:
                self._call_ended.set()

    def _require_finished(self, call_id: CallId) -> Finished:
        finished = self._pending_calls[call_id].finished
        if finished is None:
            raise RuntimeError(f"call {call_id} ended without a result")
        return finished

    async def _wait_for_end(self) -> None:
        """Until a call has ended."""
        if self._call_ended is None or self._call_ended.is_set():
            self._call_ended = anyio.Event()
        await self._call_ended.wait()

    async def _start_watch(self) -> None:
        """Calls have waited for a while: most have ended before, and cost nobody who watches."""
        if not self._queue.is_done:
            self._group.start_soon(self._watch_running)

    async def _watch_running(self) -> None:
        """Tell of calls that take long, until all have ended."""
        self._is_watched = True
        reporter = ProgressReporter(self.context.emit, self.context.clock)
        try:
            while not self._queue.is_done:
                with anyio.move_on_after(reporter.seconds_until_due(self._running_calls())):
                    await self._wait_for_end()
                reporter.report_due_calls(self._running_calls())
        finally:
            self._is_watched, self._cancel_watch_start = False, None

    def _running_calls(self) -> list[PendingCall]:
        pending_calls = [self._pending_calls[call_id] for call_id in self._queue.running]
        pending_calls += self._steps.values()
        return [pending for pending in pending_calls if pending.started_at is not None and pending.finished is None]


def _is_error(finished: Finished) -> bool:
    return finished.span.result is not None and finished.span.result.is_error is True


def _cancels_siblings(finished: Finished, context: RunnerContext) -> bool:
    """Whether the failure of this call ends those beside it."""
    if context.profile.availability.siblings == "independent":
        return False
    return tool_kind(finished.span.tool) == "shell"


def _touched_paths(find_paths: Callable[[object], frozenset[str]], value: object) -> frozenset[str] | None:
    try:
        return find_paths(value)
    except Exception:  # noqa: BLE001 - a tool's own function; without paths it is exclusive
        return None
