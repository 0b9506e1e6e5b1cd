"""The calls in one assistant message: queue them, run each in its own task, return the results.

Start at `Batch.add` and `Batch.drain`. `queue.py` decides which calls may start; `pipeline.py` runs one call.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.abc

from toolspan.errors import ToolspanError, exception_text
from toolspan.runtime.authorization import preview_decision
from toolspan.runtime.context import CallContext, RunnerContext
from toolspan.runtime.hooks.callbacks import current_task_cancelled
from toolspan.runtime.hooks.events import HookEffects, SessionHookEvent
from toolspan.runtime.isolation import wait_uninterrupted
from toolspan.runtime.outcome import finalize_call, format_timestamp, stopped_outcome
from toolspan.runtime.pending_call import (
    CallRequest,
    CancelSource,
    LiveBodyStore,
    PendingCall,
    call_block,
    call_target,
    parse_tool_use,
)
from toolspan.runtime.pipeline import run_call
from toolspan.runtime.queue import Queue, QueueItem
from toolspan.runtime.schema.issues import Invalid, Valid, unparsed_text
from toolspan.runtime.sinks import LoopThread
from toolspan.runtime.tool import Input, Tool, Toolset
from toolspan.types.decision import Decision, Deny
from toolspan.types.events import BatchFinished, Duplicate, Finished, LiveEvent, Progressed, Requested, Slow
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Span
from toolspan.types.tool_kinds import tool_kind

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
        """Run calls that may still achieve what the failed call was meant to do."""
        ...


class Batch:
    """The calls in one assistant message."""

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
        self.stop: str | None = None
        """The reason why the turn ends with this batch, if any."""
        self.effects = _NO_EFFECTS
        """The merged effects of the hooks that ran for the whole batch."""
        self._group = group
        self._queue = Queue(max_running=context.profile.availability.max_concurrent, by_path=by_path)
        self._seen_ids = set() if seen_ids is None else seen_ids
        self._pending_calls: dict[CallId, PendingCall] = {}
        # perf: avoid reference cycles with a batch, which the garbage collector would have to find.
        self._recovery = _RecoveryRunner(self, recoveries) if recoveries else None
        self._loop_thread = LoopThread()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        """An exception that ended a call's task. `drain` raises it."""
        self._modifiers: list[CallId] = []
        self._cwd_hooks_running = 0
        self._changed = asyncio.Event()
        """Set whenever a call ends."""
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

    def accept(self, request: CallRequest, *, truncated: bool = False) -> PendingCall | None:
        """Create the pending call for a request without queueing it, or return None if its id was accepted before."""
        if request.id in self._seen_ids:
            self.context.emit(Duplicate(call_id=request.id, tool=request.tool, at=self.context.clock()))
            return None
        self._seen_ids.add(request.id)
        pending = self.make_pending_call(request)
        pending.truncated = truncated
        return pending

    def enqueue(self, pending: PendingCall) -> None:
        """Queue an accepted call. `start` or `drain` runs it."""
        if Requested in self.context.observed_events:
            self.context.emit(Requested(call=pending.call, at=pending.requested_at))
        self._pending_calls[pending.call.id] = pending
        self._queue.add(_queue_item(pending))
        if self.stop is not None:
            self._cancel_call(pending, "turn")

    def start(self) -> None:
        """Start the calls that the queue allows to start."""
        self._start_calls(self._queue.start())

    def _start_calls(self, call_ids: Iterable[CallId]) -> None:
        for call_id in call_ids:
            self._start_call(self._pending_calls[call_id])

    def cancel(self, call_id: CallId | None = None, *, by: CancelSource = "user") -> None:
        """Cancel one call, or all unfinished calls if `call_id` is None. Each still gets its result."""
        for pending in self._all_calls() if call_id is None else filter(None, [self.find_call(call_id)]):
            self._cancel_call(pending, by)
        self.start()

    # Returning results

    def completed(self) -> list[Finished]:
        """Return the available results that have not been returned before, in call order."""
        return [_require_finished(self._pending_calls[call_id]) for call_id in self._queue.take_completed()]

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
            await self._run_first_inline()
            while not self._queue.is_done or self._cwd_hooks_running:
                await self._wait_for_end()
        except anyio.get_cancelled_exc_class():
            await self.abandon()
            raise
        results = self.results
        if not self._closed:
            self._closed = True
            if not self.context.hooks.is_empty:
                await self._run_batch_hooks()
            if BatchFinished in self.context.observed_events:
                ids = tuple(finished.call_id for finished in results)
                self.context.emit(BatchFinished(call_ids=ids, stop=self.stop, at=self.context.clock()))
        return results

    async def abandon(self) -> None:
        """Cancel every call on behalf of the host program, and wait for the results."""
        if not self._queue.is_done:
            self.cancel(by="host")
            await wait_uninterrupted(self._wait_for_end, lambda: self._queue.is_done)

    @property
    def is_over(self) -> bool:
        """True if every call has ended and the batch's end event has been emitted."""
        return self._closed and self._queue.is_done

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that are running."""
        return self._queue.running

    @property
    def results(self) -> list[Finished]:
        """The results so far, in call order."""
        return [pending.finished for pending in self._all_calls() if pending.finished is not None]

    @property
    def spans(self) -> list[Span]:
        """The spans so far, in call order."""
        return [finished.span for finished in self.results]

    def step_blocks(self) -> list[dict[str, object]]:
        """Return the calls made by recovery policies as blocks for an assistant message."""
        return [call_block(pending.call) for pending in self._all_calls() if pending.recovers is not None]

    def _all_calls(self) -> list[PendingCall]:
        """Return the calls in the message, each followed by its recovery steps."""
        if self._recovery is None:
            return list(self._pending_calls.values())
        steps, calls = self._recovery.steps.values(), list[PendingCall]()
        for call_id, pending in self._pending_calls.items():
            calls += [pending, *(step for step in steps if step.recovers == call_id)]
        return calls

    def find_call(self, call_id: CallId) -> PendingCall | None:
        """Return the call or recovery step with this id, or None if there is none."""
        pending = self._pending_calls.get(call_id)
        return self._recovery.steps.get(call_id) if pending is None and self._recovery is not None else pending

    async def _run_batch_hooks(self) -> None:
        effects = await self.context.run_hook(self.context.hooks.run_post_tool_batch(self.spans))
        self.context.emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports)
        self.stop = self.stop or effects.stop
        self.effects = effects

    # Running calls

    def make_pending_call(self, request: CallRequest, *, recovers: CallId | None = None) -> PendingCall:
        """Create a pending call: look up the tool and parse the input."""
        call_id, name, arguments = request
        tool = self.context.tools.find_enabled(name)
        readable = arguments if unparsed_text(arguments) is None else {}
        parsed: Valid | Invalid | None = tool.parse(readable) if tool is not None else None
        if readable is not arguments and isinstance(parsed, Valid):
            parsed = Invalid(())
        body_store = LiveBodyStore(parsed.recorded if isinstance(parsed, Valid) else arguments)
        now, workspace = self.context.clock(), self.context.workspace
        message_id = self.message.get("id") if self.message else None
        call = Call(
            id=call_id,
            tool=name,
            at=0,
            requested_at=format_timestamp(now),
            target=call_target(arguments),
            session_id=workspace.session_id,
            agent_id=workspace.agent_id,
            message_id=message_id if isinstance(message_id, str) else None,
            parent_call=workspace.parent_call,
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
        )

    def accept_step(self, request: CallRequest, origin: CallId) -> PendingCall | None:
        """Create the pending call for a recovery step of `origin`, or return None if its id was accepted before."""
        if request.id in self._seen_ids:
            return None
        self._seen_ids.add(request.id)
        pending = self.make_pending_call(request, recovers=origin)
        self.context.emit(Requested(call=pending.call, at=pending.requested_at, recovers=origin))
        return pending

    def is_running(self, call_id: CallId) -> bool:
        """Return whether the call is running."""
        return self._queue.stage(call_id) == "executing"

    def run_pipeline(self, pending: PendingCall) -> Coroutine[Any, Any, Finished]:
        """Run one call, whether or not it is in the queue."""
        return run_call(pending, self.context, _BatchServices(self))

    async def _run_first_inline(self) -> None:
        """Start the calls that the queue allows to start, and run the first of them in this task.

        perf: a batch of one call needs no extra task, which saves a third of the time of a call
        that does nothing. A call that must not be interrupted always has its own task, because this
        one can be cancelled.
        """
        ready = self._queue.start()
        first = self._pending_calls[ready[0]] if ready else None
        if first is None or (first.tool is not None and first.tool.interrupt == "block"):
            self._start_calls(ready)
            return
        self._start_calls(ready[1:])
        await self._run_pending(first)

    def _start_call(self, pending: PendingCall) -> None:
        task = asyncio.get_running_loop().create_task(self._run_pending(pending))
        self._tasks.add(task)  # the event loop has only weak references to its tasks
        task.add_done_callback(partial(self._release_task, pending))

    async def _run_pending(self, pending: PendingCall) -> None:
        try:
            try:
                if self._recovery is not None and pending.cancelled_by is None:
                    await self._recovery.run(pending)
                else:
                    await self.run_pipeline(pending)
            finally:
                self._end_call(pending)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised by `drain`; here it would be lost, or stop the event loop
            self._failure = self._failure or error
            self._changed.set()

    def _release_task(self, pending: PendingCall, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.is_running(pending.call.id):  # the task was cancelled before its first step
            self._end_call(pending)

    def _end_call(self, pending: PendingCall) -> None:
        self._queue.finish(pending.call.id)
        if pending.finished is None:  # cancelled before the pipeline began
            pending.mark_host_cancelled()
            finalize_call(pending, stopped_outcome(pending, self.context), self.context)
        self._handle_end(pending, _require_finished(pending))
        self.start()
        self._changed.set()

    def _handle_end(self, pending: PendingCall, finished: Finished) -> None:
        if pending.modify is not None:
            self._modifiers.append(pending.call.id)
        if self._modifiers and self._queue.is_idle:  # the calls of a parallel group do not affect each other
            for call_id in sorted(self._modifiers, key=self._queue.position):
                self.apply_modifier(self._pending_calls[call_id])
            self._modifiers.clear()
        if finished.stop is not None and self.stop is None:
            self.stop = finished.stop
            if finished.span.state == "denied":  # a user refused without a reason, so running calls are cancelled, too
                self.cancel(by="turn")
            else:
                for call_id in self._queue.waiting:
                    self._cancel_call(self._pending_calls[call_id], "turn")
        elif finished.span.state == "failed" and _cancels_siblings(finished, self.context):
            self.cancel(by="sibling")

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
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

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
        self.context.set_call_context(changed)
        if cwd != changed.cwd and self.context.hooks.has_handler("CwdChanged"):
            self._cwd_hooks_running += 1
            self._group.start_soon(self._run_cwd_hooks, cwd, changed.cwd)

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

    # Watching slow calls

    def report_progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Emit progress for an unfinished call. May be called from any thread."""
        self._loop_thread.run_in_loop(self._report_progress, call_id, kind, data)

    def _report_progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        pending = self.find_call(call_id)
        if pending is None or pending.finished is not None:
            return
        ProgressReporter(self.context.emit, self.context.clock).report_progress(pending, kind, data)

    def report_due_calls(self) -> None:
        """Emit heartbeats, held progress and slow-call events that are due. The runner calls this periodically."""
        running = [pending for pending in self._all_calls() if _is_inside_tool(pending)]
        ProgressReporter(self.context.emit, self.context.clock).report_due_calls(running)


class _RecoveryRunner:
    """A runner for the recovery policies that apply to each call in a batch."""

    def __init__(self, batch: Batch, policies: Sequence[Recovery]) -> None:
        self._batch = batch
        self.policies = tuple(policies)
        self.steps: dict[CallId, PendingCall] = {}
        """The calls that policies made, by id."""
        self._scopes: dict[CallId, anyio.CancelScope] = {}
        """The cancel scopes of the running policies, by the id of the call that they run for."""

    async def run(self, pending: PendingCall) -> None:
        """Run the policies before a call, the call itself, and, if it fails, the policies after it."""
        context, run_step = self._batch.context, partial(self._run_step, pending.call.id)
        for policy in self.policies:
            if not pending.cancelled_by:
                await self._run_policy(policy.before_call(pending.call, context, run_step), pending)
        finished = await self._batch.run_pipeline(pending)
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
        ids = (CallRequest(CallId(f"{origin}_r{number}"), tool, arguments) for number in itertools.count(1))
        pending = next(step for request in ids if (step := batch.accept_step(request, origin)) is not None)
        self.steps[pending.call.id] = pending
        finished = await batch.run_pipeline(pending)
        batch.apply_modifier(pending)
        return finished


class _BatchServices:
    """The services that a batch provides to its running calls; see `CallServices`."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._context = batch.context

    @property
    def tools(self) -> Toolset:
        return self._context.tools

    @property
    def in_progress(self) -> frozenset[CallId]:
        return self._batch.in_progress

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        return self._context.decisions

    def is_cancelled(self, call_id: CallId) -> bool:
        pending = self._batch.find_call(call_id)
        return pending is not None and pending.cancelled_by is not None

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        self._batch.report_progress(call_id, kind, data)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        enabled_tool = self._context.tools.find_enabled(tool)
        if enabled_tool is None:
            return Deny(f"No such tool available: {tool}")
        call = Call(id=CallId(""), tool=tool, at=0, requested_at=None, target=None, body_store=LiveBodyStore(input))
        return await preview_decision(call, enabled_tool, input, self._context)

    async def fire(self, call_id: CallId, hook_event: SessionHookEvent) -> HookEffects:
        hooks = self._context.hooks
        if hooks.is_empty or not hooks.has_handler(hook_event.point):
            return HookEffects()
        pending = self._batch.find_call(call_id)
        effects = await self._context.run_hook(hooks.run_session_event(hook_event), pending)
        self._context.emit_hook_reports(call_id, effects.reports)
        return effects


class ProgressReporter:
    """A reporter for progress, heartbeats and slow calls. It has no timer; the runner calls it periodically."""

    def __init__(self, emit: Callable[[LiveEvent], None], clock: Callable[[], float]) -> None:
        self._emit = emit
        self._clock = clock

    def report_progress(self, pending: PendingCall, kind: str, data: Mapping[str, object]) -> None:
        """Emit progress, or hold it if other progress was emitted shortly before. Only the latest is held."""
        now = self._clock()
        event = Progressed(call_id=pending.call.id, kind=kind, data=data, at=now)
        if now - pending.progress_sent_at < PROGRESS_INTERVAL:
            pending.held_progress = event
            return
        pending.progress_sent_at, pending.held_progress = now, None
        self._emit(event)

    def report_due_calls(self, pending_calls: Iterable[PendingCall]) -> None:
        """Emit the events that are due for each call."""
        now = self._clock()
        for pending in pending_calls:
            if _next_due(pending) <= now:
                self._report_call(pending, now)

    def _report_call(self, pending: PendingCall, now: float) -> None:
        started = _start_time(pending)
        expected = expected_seconds(pending.call.tool)
        if expected and not pending.slow_reported and now - started >= expected:
            pending.slow_reported = True
            self._emit(Slow(call_id=pending.call.id, tool=pending.call.tool, expected_s=expected, at=now))
        if pending.held_progress is not None:
            event, pending.held_progress, pending.progress_sent_at = pending.held_progress, None, now
            self._emit(event)
        elif now - max(pending.progress_sent_at, started) >= HEARTBEAT_SECONDS:
            pending.progress_sent_at = now
            data = {"elapsed_s": round(now - started, 1)}
            self._emit(Progressed(call_id=pending.call.id, kind="heartbeat", data=data, at=now))


_SLOW_AFTER_SECONDS: dict[str, float] = {
    **dict.fromkeys(("LS", "Read", "TodoRead", "TodoWrite"), 2.0),
    **dict.fromkeys(("Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Write"), 5.0),
    **dict.fromkeys(("WebFetch", "WebSearch"), 30.0),
}


def expected_seconds(tool: str) -> float | None:
    """Return the number of seconds after which a call to this tool is slow, or None if any duration is normal."""
    return _SLOW_AFTER_SECONDS.get(tool)


def _next_due(pending: PendingCall) -> float:
    if pending.held_progress is not None:
        return pending.progress_sent_at + PROGRESS_INTERVAL
    beat = max(pending.progress_sent_at, _start_time(pending)) + HEARTBEAT_SECONDS
    expected = expected_seconds(pending.call.tool)
    return min(beat, _start_time(pending) + expected) if expected and not pending.slow_reported else beat


def _is_inside_tool(pending: PendingCall) -> bool:
    return pending.started_at is not None and pending.finished is None


def _start_time(pending: PendingCall) -> float:
    return pending.started_at if pending.started_at is not None else pending.requested_at


def _queue_item(pending: PendingCall) -> QueueItem:
    tool = pending.tool
    if tool is None or not isinstance(pending.parsed, Valid):
        return QueueItem(pending.call.id, overlaps=tool is None)
    value = pending.parsed.value
    return QueueItem(pending.call.id, tool.may_overlap(value), _touched_paths(tool, value))


def _touched_paths(tool: Tool, value: object) -> frozenset[str] | None:
    try:
        return None if tool.paths is None else tool.paths(value)
    except Exception:  # noqa: BLE001 - a function of the tool; without paths the call is exclusive
        return None


def _require_finished(pending: PendingCall) -> Finished:
    if pending.finished is None:
        raise RuntimeError(f"call {pending.call.id} ended without a result")
    return pending.finished


def _cancels_siblings(finished: Finished, context: RunnerContext) -> bool:
    """Return whether the failure of this call cancels its sibling calls."""
    return context.profile.availability.siblings != "independent" and tool_kind(finished.span.tool) == "shell"
