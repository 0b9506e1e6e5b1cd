"""Run calls one by one for an external loop, such as another agent framework or an MCP server.

Calls may come from several tasks at once. Each is a separate batch, so that a failure does not affect the others;
calls that must not overlap still wait for each other. Calls that run at the same time are recorded as blocks of one
message. Start at `SingleCallRunner.run_call`.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from typing import NamedTuple, TextIO

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.batch import Batch
from toolspan.runtime.pending_call import CallRequest, PendingCall
from toolspan.runtime.queue import Queue, QueueItem
from toolspan.runtime.runner import Runner
from toolspan.runtime.schema.issues import Valid
from toolspan.runtime.tool import Input
from toolspan.session.conversation import companion_blocks
from toolspan.session.models.history import sanitize_tool_name, valid_call_id
from toolspan.session.reply import PartialReply
from toolspan.session.session import Session
from toolspan.types.events import Finished, LiveEvent, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.state import STATE_SYMBOLS


class SingleCallResult(NamedTuple):
    """The outcome of a call, and the blocks that the model reads after it."""

    finished: Finished
    companions: list[dict[str, object]]
    """Blocks that follow the result, such as context from hooks and background notifications."""

    @property
    def is_error(self) -> bool:
        """True if the call failed or was deferred."""
        result = self.finished.span.result
        return self.finished.span.deferred or (result is not None and result.is_error is True)

    def all_blocks(self) -> list[dict[str, object]]:
        """Return all blocks that the model reads, the result first."""
        content = self.finished.content
        if self.finished.span.deferred:
            content = "A hook deferred this call, so it was not run."
        result_blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return [*result_blocks, *self.companions]


class SingleCallRunner:
    """A runner for single calls, in a session or in a runner that records nothing."""

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
        """Run a call when its turn comes. Tool errors are reported in the result, not raised.

        If the task is cancelled, the call is finished and recorded before the cancellation
        continues. `on_accepted` receives the pending call, which reports progress.

        Raises:
            ToolspanError: the call id was used before.
        """
        new_id = valid_call_id(call_id) if call_id else f"toolu_{uuid.uuid4().hex[:24]}"
        call = CallRequest(CallId(new_id), sanitize_tool_name(tool), arguments)
        if not self._running_count:  # concurrent calls belong to one message
            self._reply = PartialReply(starts_early=True)
            self._reply.head["stop_reason"] = "tool_use"
        reply = self._reply
        self._running_count += 1
        try:
            async with self.runner.batch(reply.head) as batch:
                pending_call = batch.accept(call)
                if pending_call is None:
                    raise ToolspanError(f"call {call.id} was not run, because its id was used before")
                if self._session is not None:
                    block: dict[str, object] = {"type": "tool_use", "id": call.id, "name": call.tool}
                    block["input"] = pending_call.body_store.arguments_
                    self._session.conversation.record_block(reply, block, last=False)
                if on_accepted is not None:
                    on_accepted(pending_call)
                finished = await self._run_pending(pending_call, batch)
                companions = companion_blocks(finished)
                if self._session is not None:
                    companions += self._session.take_notices(batch)
                return SingleCallResult(finished, companions)
        finally:
            self._running_count -= 1

    async def _run_pending(self, pending_call: PendingCall, batch: Batch) -> Finished:
        overlaps = True  # an invalid call gets an error without running
        if pending_call.tool is not None and isinstance(pending_call.parsed, Valid):
            overlaps = pending_call.tool.may_overlap(pending_call.parsed.value)
        call_id = pending_call.call.id
        try:
            await self._call_gate.wait_for_turn(QueueItem(call_id, overlaps=overlaps))
        except anyio.get_cancelled_exc_class():
            batch.enqueue(pending_call)  # it was accepted, so it gets a result
            await batch.abandon()
            raise
        try:
            batch.enqueue(pending_call)
            await batch.drain()
        finally:
            self._call_gate.finish_call(call_id)
        if pending_call.finished is None:
            raise RuntimeError(f"call {call_id} ended without a result")
        return pending_call.finished


class CallGate:
    """Gate that admits calls from different batches in the order in which a single queue would start them."""

    def __init__(self, max_running: int | None) -> None:
        self._max_running = max_running
        self._queue = Queue(max_running=max_running)
        self._waiting: dict[CallId, anyio.Event] = {}

    async def wait_for_turn(self, item: QueueItem) -> None:
        """Wait until the call may run. The caller must call `finish_call` afterwards."""
        if self._queue.is_done:  # a queue keeps its finished calls, so start a new one
            self._queue = Queue(max_running=self._max_running)
        self._queue.add(item)
        turn = self._waiting[item.id] = anyio.Event()
        self._start_ready()
        try:
            await turn.wait()
        except anyio.get_cancelled_exc_class():
            self.finish_call(item.id)
            raise

    def finish_call(self, call_id: CallId) -> None:
        """Remove a call that has finished or was cancelled while waiting."""
        self._waiting.pop(call_id, None)
        if not self._queue.withdraw(call_id):
            self._queue.finish(call_id)
        self._start_ready()

    def _start_ready(self) -> None:
        for call_id in self._queue.start():
            self._waiting.pop(call_id).set()


_MAX_LENGTH = 80


class CallLines:
    """A sink that prints calls as they start and finish. Pass it to a session as a `direct` sink."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to `out`, or to the current standard output."""
        self._out = out
        self._calls: dict[CallId, Call] = {}

    def __call__(self, event: LiveEvent) -> None:
        """Print the line for an event, if there is one."""
        match event:
            case Requested():
                self._calls[event.call.id] = event.call
            case Started() if event.call_id in self._calls:
                self._print_line(f"▸ {_describe_call(self._calls[event.call_id])}")
            case Finished():
                self._calls.pop(event.call_id, None)
                state, ms = event.span.state, event.duration_ms
                duration = f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
                suffix = "" if state == "succeeded" else f"  {state}"
                self._print_line(f"{STATE_SYMBOLS[state]} {_describe_call(event.span.call)}  {duration}{suffix}")
            case _:
                pass

    def _print_line(self, line: str) -> None:
        out = self._out or sys.stdout
        out.write(f"{line}\n")
        out.flush()


def _describe_call(call: Call) -> str:
    return f"{_sanitize_line(call.tool)}  {_sanitize_line(call.target or '')}".rstrip()


def _sanitize_line(text: str) -> str:
    """Shorten text to one line, without control characters that could affect the terminal."""
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text[: _MAX_LENGTH * 4].split()))
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
