"""The calls in one assistant message: queue them, run each in its own task, return the results.

Start at `Batch.add` and `Batch.drain`. `queue.py` decides which calls may start; `pipeline.py` runs one call.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.authorization import find_hidden_files, may_read_unasked, preview_decision
from toolspan.runtime.context import CallContext, RunnerContext, ToolContext
from toolspan.runtime.hooks.events import HookEffects, SessionHookEvent
from toolspan.runtime.isolation import TaskSet, current_task_cancelled, wait_uninterrupted
from toolspan.runtime.outcome import finalize_call, format_timestamp, stopped_outcome
from toolspan.runtime.pending_call import (
    CallRequest,
    CancelSource,
    LiveBodyStore,
    PendingCall,
    call_target,
    parse_tool_use,
)
from toolspan.runtime.pipeline import run_call
from toolspan.runtime.queue import Queue, QueueItem
from toolspan.runtime.schema.issues import UNPARSED_KEY, Invalid, Valid, unparsed_text
from toolspan.runtime.tool import Input, Toolset
from toolspan.types.decision import Decision, Deny
from toolspan.types.events import BatchFinished, Duplicate, Finished, LiveEvent, Progressed, Requested, Slow
from toolspan.types.ids import CallId
from toolspan.types.span import Call

HEARTBEAT_SECONDS = 30.0
"""The interval in seconds between heartbeats of a running call."""
PROGRESS_INTERVAL = 0.1
"""The minimum interval in seconds between two progress events of a call."""
_NO_EFFECTS = HookEffects()

RunStep = Callable[[str, Input], Awaitable[Finished]]
"""A function that runs another call, given a tool name and an input. The call is recorded like any other."""


class Recovery(Protocol):
    """A policy that runs further calls to prevent a failure or to recover from one.

    Both methods run while their call holds its place in the queue. They must not raise because of a
    call's outcome.
    """

    async def before_call(self, call: Call, context: RunnerContext, run: RunStep) -> None:
        """Run the calls that `call` depends on."""
        ...

    async def on_failure(self, failed: Finished, context: RunnerContext, run: RunStep) -> None:
        """Run calls that may still achieve the purpose of the failed call."""
        ...


class Batch:
    """The calls in one assistant message."""

    def __init__(
        self,
        context: RunnerContext,
        task_set: TaskSet,
        *,
        message: Mapping[str, object] | None = None,
        by_path: bool = False,
        recoveries: Sequence[Recovery] = (),
        seen_ids: set[CallId],
    ) -> None:
        self.context = context
        self.message = message
        self.stop: str | None = None
        """The reason why the turn ends with this batch, if any."""
        self.effects = _NO_EFFECTS
        """The merged effects of the hooks that ran for the whole batch."""
        self._task_set = task_set
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._queue = Queue(max_running=context.profile.availability.max_concurrent, by_path=by_path)
        self._seen_ids = seen_ids
        self.calls: dict[CallId, PendingCall] = {}
        """The accepted calls in call order, each followed by its recovery steps."""
        # perf: avoid reference cycles with a batch, which the garbage collector would have to find.
        self._recovery = _RecoveryRunner(self, recoveries) if recoveries else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        """An exception that ended a call's task. `drain` raises it."""
        self._modifiers: list[CallId] = []
        self._cwd_hooks_running = 0
        self._changed = asyncio.Event()  # set whenever a call ends
        self._closed = False

    # Accepting calls

    def add(self, block: Mapping[str, object], *, truncated: bool = False) -> bool:
        """Accept a `tool_use` block and start every call that can start, or return False if the id is not new.

        `truncated` marks a block that was cut off at the end of the reply: it gets a result, but does not run.

        Raises:
            BadCall: the block is not a call.
        """
        pending = self.accept(parse_tool_use(block), truncated=truncated)
        if pending is None:
            return False
        self.enqueue(pending)
        self.start()
        return True

    def accept(
        self, request: CallRequest, *, truncated: bool = False, recovers: CallId | None = None
    ) -> PendingCall | None:
        """Create the pending call for a request without queueing it, or return None if its id was accepted before.

        `recovers` is the call of which this one is a recovery step, if any.
        """
        call_id, name, arguments = request
        context, now = self.context, self.context.clock()
        if call_id in self._seen_ids:
            if recovers is None:
                context.emit(Duplicate(call_id=call_id, tool=name, at=now))
            return None
        self._seen_ids.add(call_id)
        tool = context.tools.find_enabled(name)
        is_unparsed = UNPARSED_KEY in arguments and unparsed_text(arguments) is not None
        readable = {} if is_unparsed else arguments
        parsed: Valid | Invalid | None = tool.parse(readable) if tool is not None else None
        if is_unparsed and isinstance(parsed, Valid):
            parsed = Invalid(())
        body_store = LiveBodyStore(parsed.recorded if isinstance(parsed, Valid) else arguments)
        message_id = self.message.get("id") if self.message else None
        call = Call(
            id=call_id,
            tool=name,
            at=0,
            requested_at=format_timestamp(round(now * 1_000)),
            target=call_target(arguments),
            session_id=context.workspace.session_id,
            agent_id=context.workspace.agent_id,
            message_id=message_id if isinstance(message_id, str) else None,
            parent_call=context.workspace.parent_call,
            body_store=body_store,
        )
        return PendingCall(
            call=call,
            body_store=body_store,
            tool=tool,
            parsed=parsed,
            requested_at=now,
            message=self.message,
            recovers=recovers,
            truncated=truncated,
        )

    def enqueue(self, pending: PendingCall) -> None:
        """Queue an accepted call. `start` or `drain` runs it."""
        call_id, tool = pending.call.id, pending.tool
        if Requested in self.context.observed_events:
            self.context.emit(Requested(call=pending.call, at=pending.requested_at))
        self.calls[call_id] = pending
        overlaps: bool | Callable[[], bool] = tool is None
        paths = None
        if tool is not None and isinstance(pending.parsed, Valid):
            # A single call cannot overlap with another, so `may_overlap` is evaluated only when a second call waits.
            overlaps = partial(tool.may_overlap, pending.parsed.value)
            if isinstance(tool.concurrent, bool):
                overlaps = tool.concurrent
            if tool.paths is not None:
                with suppress(Exception):  # a function of the tool; without paths the call is exclusive
                    paths = tool.paths(pending.parsed.value)
        self._queue.add(QueueItem(call_id, overlaps, paths))
        if self.stop is not None:
            self._cancel_call(pending, "turn")

    def start(self) -> None:
        """Start the calls that the queue allows to start."""
        for call_id in self._queue.start():
            self._start_call(self.calls[call_id])

    def cancel(self, call_id: CallId | None = None, *, by: CancelSource = "user") -> None:
        """Cancel one call, or all unfinished calls if `call_id` is None. Each still gets its result."""
        for pending in list(self.calls.values()):
            if call_id is None or pending.call.id == call_id:
                self._cancel_call(pending, by)
        self.start()

    # Returning results

    def completed(self) -> list[Finished]:
        """Return the new results since the last invocation, in call order."""
        finished = [self.calls[call_id].finished for call_id in self._queue.take_completed()]
        return [result for result in finished if result is not None]

    async def remaining(self) -> AsyncIterator[Finished]:
        """Yield the results that have not been returned yet, until all calls have ended."""
        while True:
            for finished in self.completed():
                yield finished
            if self._queue.is_done:
                return
            await self._wait_for_end()

    async def drain(self) -> list[Finished]:
        """Run all calls and return their results in call order. Recovery steps follow the call that
        they belong to.
        """
        try:
            # perf: a call that runs alone runs in this task, which saves a third of the time of a no-op call.
            # Concurrent calls have their own tasks, so that a cancellation of this task reaches all of them at once,
            # and so has a call that must not be interrupted.
            ready = [self.calls[call_id] for call_id in self._queue.start()]
            runs_here = len(ready) == 1 and not (ready[0].tool and ready[0].tool.interrupt == "block")
            first = ready.pop() if runs_here else None
            for pending in ready:
                self._start_call(pending)
            if first is not None:
                await self._run_pending(first)
            while not self._queue.is_done or self._cwd_hooks_running or self._failure is not None:
                await self._wait_for_end()
        except BaseException:  # a cancellation, or a KeyboardInterrupt from user code
            await self.abandon()
            raise
        results, context = self.results, self.context
        if not self._closed:
            self._closed = True
            if context.profile.files.remembered_files is not None:
                context.workspace.files.look_up_all()
            if not context.hooks.is_empty:
                spans = [finished.span for finished in results]
                self.effects = await context.run_hook(context.hooks.run_post_tool_batch(spans))
                context.emit_hook_reports(CallId(str(uuid.uuid4())), self.effects.reports)
                self.stop = self.stop or self.effects.stop
            if BatchFinished in context.observed_events:
                ids = tuple(finished.call_id for finished in results)
                context.emit(BatchFinished(call_ids=ids, stop=self.stop, at=context.clock()))
        return results

    async def abandon(self) -> None:
        """Cancel every call on behalf of the host program, and wait for the results.

        An exception that ended a call's task is not raised, so that no other call is left without a result.
        """
        if not self._queue.is_done:
            self.cancel(by="host")
            await wait_uninterrupted(self._wait_for_change, lambda: self._queue.is_done)

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that are running."""
        return self._queue.running

    @property
    def results(self) -> list[Finished]:
        """The results so far, in call order."""
        return [pending.finished for pending in self.calls.values() if pending.finished is not None]

    def is_running(self, call_id: CallId) -> bool:
        """Return whether the call is running."""
        return self._queue.stage(call_id) == "executing"

    # Running calls

    def _start_call(self, pending: PendingCall) -> None:
        task = self._loop.create_task(self._run_pending(pending))
        self._tasks.add(task)  # the event loop has only weak references to its tasks
        task.add_done_callback(partial(self._release_task, pending))

    def _release_task(self, pending: PendingCall, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.is_running(pending.call.id):  # the task was cancelled before its first step
            self._end_call(pending)

    async def _run_pending(self, pending: PendingCall) -> None:
        try:
            try:
                if self._recovery is not None and pending.cancelled_by is None:
                    await self._recovery.run(pending)
                else:
                    await run_call(pending, self.context, self)
            finally:
                self._end_call(pending)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised by `drain`; here it would be lost, or stop the event loop
            self._failure = self._failure or error
            self._changed.set()
            self.cancel(by="host")  # `drain` may be waiting for another call

    def _end_call(self, pending: PendingCall) -> None:
        self._queue.finish(pending.call.id)
        finished = pending.finished
        if finished is None:  # cancelled before the pipeline began
            pending.cancelled_by = pending.cancelled_by or "host"
            finished = finalize_call(pending, stopped_outcome(pending, self.context), self.context)
        if pending.modify is not None:
            self._modifiers.append(pending.call.id)
        if self._modifiers and self._queue.is_idle:  # the calls of a parallel group do not affect each other
            for call_id in sorted(self._modifiers, key=self._queue.position):
                self.apply_modifier(self.calls[call_id])
            self._modifiers.clear()
        state, siblings = finished.span.state, self.context.profile.availability.siblings
        if finished.stop is not None and self.stop is None:
            self.stop = finished.stop
            if state == "denied":  # a user refused without a reason, so running calls are cancelled, too
                self.cancel(by="turn")
            else:
                for call_id in self._queue.waiting:
                    self._cancel_call(self.calls[call_id], "turn")
        elif state == "failed" and siblings != "independent" and _is_shell_call(pending):
            self.cancel(by="sibling")
        if not self._queue.is_done:
            self.start()
        self._changed.set()

    def _cancel_call(self, pending: PendingCall, by: CancelSource) -> None:
        """Cancel a running call, or finalize a waiting call immediately."""
        if self._recovery is not None:
            self._recovery.cancel(pending, by)
        if pending.finished is not None:
            return
        pending.cancel(by)
        if self._queue.withdraw(pending.call.id):
            finalize_call(pending, stopped_outcome(pending, self.context), self.context)
            self._changed.set()

    async def _wait_for_end(self) -> None:
        """Wait until a call ends, and raise the exception if a task failed."""
        if self._failure is None:
            await self._wait_for_change()
        if self._failure is not None:
            raise self._failure

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def apply_modifier(self, pending: PendingCall) -> None:
        """Apply the change that a finished call makes to the context of later calls."""
        if pending.modify is None:
            return
        try:
            changed = pending.modify(self.context.call_context)
            if not isinstance(changed, CallContext):
                raise TypeError(f"a modifier must return a CallContext, not {type(changed).__name__}")
        except Exception as error:  # noqa: BLE001 - a function of the tool; the context stays as it is
            self.report_error("context modifier", error, pending.call.id)
            return
        cwd = self.context.call_context.cwd
        self.context.call_context = changed
        if cwd != changed.cwd and self.context.hooks.has_handler("CwdChanged"):
            self._cwd_hooks_running += 1
            self._task_set.start_soon(self._run_cwd_hooks, cwd, changed.cwd)

    async def _run_cwd_hooks(self, old: Path, new: Path) -> None:
        hook_event = SessionHookEvent(point="CwdChanged", fields={"old_cwd": str(old), "new_cwd": str(new)})
        try:
            effects = await self.context.run_hook(self.context.hooks.run_session_event(hook_event))
            self.context.emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports)
        finally:
            self._cwd_hooks_running -= 1
            self._changed.set()

    def report_error(self, where: str, error: BaseException, call_id: CallId) -> None:
        """Emit an exception raised by user code around a call."""
        self.context.report_fault(where, f"{type(error).__name__}: {exception_text(error)}", call_id)

    def report_due_calls(self) -> None:
        """Emit heartbeats, held progress and slow-call events that are due. The runner calls this periodically."""
        for pending in self.calls.values():
            if pending.started_at is not None and pending.finished is None:
                report_due_events(pending, self.context.clock(), self.context.emit)

    # Services for running calls

    @property
    def tools(self) -> Toolset:
        """The tools of the session."""
        return self.context.tools

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Emit progress for an unfinished call. May be called from any thread."""
        if Progressed not in self.context.observed_events:
            return
        if threading.get_ident() != self._thread_id:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.progress, call_id, kind, data)
            return
        pending = self.calls.get(call_id)
        if pending is not None and pending.finished is None:
            report_progress(pending, kind, data, self.context.clock(), self.context.emit)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        """Return the policies' decision on another call, without asking an approver."""
        enabled_tool = self.context.tools.find_enabled(tool)
        if enabled_tool is None:
            return Deny(f"No such tool available: {tool}")
        call = Call(id=CallId(""), tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(input))
        return await preview_decision(call, enabled_tool, input, self.context)

    def find_hidden_files(self, tool_context: ToolContext) -> Callable[[str], bool] | None:
        """Return a predicate for files that rules hide from the model, or None if there are no such rules."""
        return find_hidden_files(tool_context, self.context)

    def may_read_unasked(self, path: str, tool_context: ToolContext) -> bool:
        """Return whether path rules or the mode allow reading the file without approval."""
        return may_read_unasked(path, tool_context, self.context)

    async def fire(self, call_id: CallId, hook_event: SessionHookEvent) -> HookEffects:
        """Run the hooks for an event that only the tool can detect."""
        hooks = self.context.hooks
        if hooks.is_empty or not hooks.has_handler(hook_event.point):
            return _NO_EFFECTS
        effects = await self.context.run_hook(hooks.run_session_event(hook_event), self.calls.get(call_id))
        self.context.emit_hook_reports(call_id, effects.reports)
        return effects


class _RecoveryRunner:
    """Runner for the recovery policies of each call in a batch."""

    def __init__(self, batch: Batch, policies: Sequence[Recovery]) -> None:
        self._batch = batch
        self.policies = tuple(policies)
        self._scopes: dict[CallId, anyio.CancelScope] = {}
        """The cancel scopes of the running policies, by the id of the call that they run for."""

    async def run(self, pending: PendingCall) -> None:
        """Run the policies before a call, the call itself, and, if it fails, the policies after it."""
        context, run_step = self._batch.context, partial(self._run_step, pending.call.id)
        for policy in self.policies:
            if not pending.cancelled_by:
                await self._run_policy(policy.before_call(pending.call, context, run_step), pending)
        finished = await run_call(pending, context, self._batch)
        for policy in self.policies:
            if finished.span.result is not None and finished.span.result.is_error and not pending.cancelled_by:
                await self._run_policy(policy.on_failure(finished, context, run_step), pending)

    def cancel(self, pending: PendingCall, by: CancelSource) -> None:
        """Cancel the policy that is running for a call."""
        scope = self._scopes.get(pending.call.id)
        if scope is not None:
            pending.cancelled_by = pending.cancelled_by or by
            scope.cancel()

    async def _run_policy(self, work: Awaitable[None], pending: PendingCall) -> None:
        """Run a policy. Its own errors are reported, and the call still gets its result."""
        context = self._batch.context
        grace = 2 * context.hook_grace  # a step may need one grace period to stop
        with anyio.CancelScope() as scope:
            self._scopes[pending.call.id] = scope
            try:
                await context.isolated_tasks.run(work, grace, "recovery", pending)
            except anyio.get_cancelled_exc_class() as error:
                if current_task_cancelled():
                    raise
                self._batch.report_error("recovery", error, pending.call.id)
            except Exception as error:  # noqa: BLE001 - user code
                self._batch.report_error("recovery", error, pending.call.id)
            finally:
                del self._scopes[pending.call.id]

    async def _run_step(self, origin: CallId, tool: str, arguments: Input) -> Finished:
        """Run another call while `origin` holds its place in the queue.

        Raises:
            ToolspanError: `origin` has ended, so its policy should have ended, too.
        """
        batch = self._batch
        if not batch.is_running(origin):
            raise ToolspanError(f"call {origin} has ended, so no further calls run for it")
        requests = (CallRequest(CallId(f"{origin}_r{number}"), tool, arguments) for number in itertools.count(1))
        pending = next(step for request in requests if (step := batch.accept(request, recovers=origin)) is not None)
        batch.context.emit(Requested(call=pending.call, at=pending.requested_at, recovers=origin))
        calls = [*batch.calls.values(), pending]
        batch.calls = {
            call.call.id: call
            for requested in calls
            if requested.recovers is None
            for call in (requested, *(step for step in calls if step.recovers == requested.call.id))
        }
        finished = await run_call(pending, batch.context, batch)
        batch.apply_modifier(pending)
        return finished


def report_progress(
    pending: PendingCall, kind: str, data: Mapping[str, object], now: float, emit: Callable[[LiveEvent], None]
) -> None:
    """Emit progress, or hold it if other progress was emitted shortly before. Only the latest is held."""
    event = Progressed(call_id=pending.call.id, kind=kind, data=data, at=now)
    if now - pending.progress_sent_at < PROGRESS_INTERVAL:
        pending.held_progress = event
        return
    pending.progress_sent_at, pending.held_progress = now, None
    emit(event)


def report_due_events(pending: PendingCall, now: float, emit: Callable[[LiveEvent], None]) -> None:
    """Emit the slow-call event, the held progress or the heartbeat of a running call, if it is due."""
    started = pending.requested_at if pending.started_at is None else pending.started_at
    slow_after = None if pending.tool is None else pending.tool.slow_after
    if slow_after and not pending.slow_reported and now - started >= slow_after:
        pending.slow_reported = True
        emit(Slow(call_id=pending.call.id, tool=pending.call.tool, expected_s=slow_after, at=now))
    if pending.held_progress is not None:
        if now - pending.progress_sent_at >= PROGRESS_INTERVAL:
            event, pending.held_progress, pending.progress_sent_at = pending.held_progress, None, now
            emit(event)
    elif now - max(pending.progress_sent_at, started) >= HEARTBEAT_SECONDS:
        pending.progress_sent_at = now
        data = {"elapsed_s": round(now - started, 1)}
        emit(Progressed(call_id=pending.call.id, kind="heartbeat", data=data, at=now))


def _is_shell_call(pending: PendingCall) -> bool:
    return pending.tool is not None and pending.tool.kind == "shell"
