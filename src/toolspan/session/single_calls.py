"""Calls that come one by one, from a loop that is not ours: another agent's, a protocol's.

In: a tool's name and its input, from as many tasks at once as there are. Out: exactly one `Answer`
for each. Every call is a batch of its own, so that none takes another along; those that may not
overlap still wait for each other. Calls that are under way at the same time stand in the transcript
as blocks of one message, as if a model had asked for them together. Read `Lane.call` first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NamedTuple

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.batch import Batch
from toolspan.runtime.pending_call import CallRequest, PendingCall
from toolspan.runtime.queue import Queue, QueueItem
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import Valid
from toolspan.runtime.tool import Input
from toolspan.session.conversation import companion_blocks
from toolspan.session.reply import PartialReply
from toolspan.session.session import Session
from toolspan.types.events import Finished
from toolspan.types.ids import CallId


class SingleCallResult(NamedTuple):
    """What became of a call."""

    finished: Finished
    companions: list[dict[str, object]]
    """Blocks that the model reads after the result: words of hooks, news of the background."""

    @property
    def is_error(self) -> bool:
        """Whether the result is an error."""
        result = self.finished.span.result
        return self.finished.span.deferred or (result is not None and result.is_error is True)

    def all_blocks(self) -> list[dict[str, object]]:
        """All that the model reads, the result first."""
        content = self.finished.content
        if self.finished.span.deferred:
            content = "A hook has put this call off: it was not run."
        result_blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return [*result_blocks, *self.companions]


class SingleCallRunner:
    """Runs single calls in a session, or in a runner without a record."""

    def __init__(self, host: Session | Runner) -> None:
        self._session = host if isinstance(host, Session) else None
        self.runner = host.runner if isinstance(host, Session) else host
        self._call_gate = CallGate(self.runner.runner_context.profile.availability.max_concurrent)
        self._reply = PartialReply(starts_early=True)
        self._running_count = 0

    async def run_call(
        self,
        tool: str,
        arguments: Input,
        *,
        call_id: str | None = None,
        on_accepted: Callable[[PendingCall], None] | None = None,
    ) -> SingleCallResult:
        """Run a call when it is its turn; what it did never raises.

        When the task is cancelled, the call is ended and recorded before the cancellation goes on.
        `watch` gets the call while it is on its way, to look at how far it is.

        Raises:
            ToolspanError: a call of this id was there before.
        """
        call = CallRequest(CallId(call_id or f"toolu_{uuid.uuid4().hex[:24]}"), tool, arguments)
        reply = self._join_reply()
        try:
            async with self.runner.batch(reply.head) as batch:
                job = self._accept_call(call, reply, batch)
                if on_accepted is not None:
                    on_accepted(job)
                await self._run_pending(job, batch)
                return self._build_result(job, batch)
        finally:
            self._running_count -= 1

    def _join_reply(self) -> PartialReply:
        """The message that the call belongs to: a new one, unless others are under way."""
        if not self._running_count:
            self._reply = PartialReply(starts_early=True)
            self._reply.head["stop_reason"] = "tool_use"
        self._running_count += 1
        return self._reply

    def _accept_call(self, call: CallRequest, reply: PartialReply, batch: Batch) -> PendingCall:
        job = batch.accept(call)
        if job is None:
            raise ToolspanError(f"call {call.id} was there before and is not run again")
        if self._session is not None:
            block: dict[str, object] = {"type": "tool_use", "id": call.id, "name": call.tool}
            block["input"] = job.body_store.arguments_
            self._session.record_block(reply, block, last=False)
        return job

    async def _run_pending(self, job: PendingCall, batch: Batch) -> None:
        try:
            await self._call_gate.wait_for_turn(_queue_item(job))
        except anyio.get_cancelled_exc_class():
            batch.enqueue(job)  # it was asked for, so it gets its result
            await batch.abandon()
            raise
        try:
            batch.enqueue(job)
            await batch.drain()
        finally:
            self._call_gate.finish_call(job.call.id)

    def _build_result(self, job: PendingCall, batch: Batch) -> SingleCallResult:
        if job.finished is None:
            raise RuntimeError(f"call {job.call.id} ended without a result")
        companions = companion_blocks(job.finished)
        if self._session is not None:
            companions += self._session.take_notices(batch)
        return SingleCallResult(job.finished, companions)


class CallGate:
    """Lets calls of different batches in, in the order they came, as one queue would."""

    def __init__(self, cap: int | None) -> None:
        self._cap = cap
        self._queue = Queue(max_running=cap)
        self._waiting: dict[CallId, anyio.Event] = {}

    async def wait_for_turn(self, item: QueueItem) -> None:
        """Wait until the call may run; `leave` when it has."""
        if self._queue.is_done:  # a queue remembers what it had
            self._queue = Queue(max_running=self._cap)
        self._queue.add(item)
        turn = self._waiting[item.id] = anyio.Event()
        self._start_ready()
        try:
            await turn.wait()
        except anyio.get_cancelled_exc_class():
            self.finish_call(item.id)
            raise

    def finish_call(self, call_id: CallId) -> None:
        """The call is over, or does not want to wait any more."""
        self._waiting.pop(call_id, None)
        if not self._queue.withdraw(call_id):
            self._queue.finish(call_id)
        self._start_ready()

    def _start_ready(self) -> None:
        for call_id in self._queue.start():
            self._waiting.pop(call_id).set()


def _queue_item(job: PendingCall) -> QueueItem:
    if job.tool is None or not isinstance(job.parsed, Valid):
        return QueueItem(job.call.id, overlaps=True)  # it is answered, and nothing is run
    return QueueItem(job.call.id, overlaps=job.tool.may_overlap(job.parsed.value))
