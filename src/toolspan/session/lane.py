"""Calls that come one by one, from a loop that is not ours: another agent's, a protocol's.

In: a tool's name and its input, from as many tasks at once as there are. Out: exactly one `Answer`
for each. Every call is a batch of its own, so that none takes another along; those that may not
overlap still wait for each other. Calls that are under way at the same time stand in the transcript
as blocks of one message, as if a model had asked for them together. Read `Lane.call` first.
"""

import uuid
from collections.abc import Callable
from typing import NamedTuple

import anyio

from toolspan.errors import ToolspanError
from toolspan.ids import CallId
from toolspan.model.live import Finished
from toolspan.run.batch import Batch
from toolspan.run.blocks import Asked
from toolspan.run.desk import Job
from toolspan.run.queue import Item, Queue
from toolspan.run.runner import Runner
from toolspan.run.tool import Input, Valid
from toolspan.session.blocks import beside
from toolspan.session.incoming import Incoming
from toolspan.session.session import Session


class Answer(NamedTuple):
    """What became of a call."""

    finished: Finished
    beside: list[dict[str, object]]
    """Blocks that the model reads after the result: words of hooks, news of the background."""

    @property
    def is_error(self) -> bool:
        """Whether the result is an error."""
        result = self.finished.span.result
        return self.finished.span.deferred or (result is not None and result.is_error is True)

    def blocks(self) -> list[dict[str, object]]:
        """All that the model reads, the result first."""
        content = self.finished.content
        if self.finished.span.deferred:
            content = "A hook has put this call off: it was not run."
        own = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return [*own, *self.beside]


class Lane:
    """Runs single calls in a session, or in a runner without a record."""

    def __init__(self, host: Session | Runner) -> None:
        self._session = host if isinstance(host, Session) else None
        self.runner = host.runner if isinstance(host, Session) else host
        self._gate = Gate(self.runner.desk.profile.offer.cap)
        self._reply = Incoming(early=True)
        self._under_way = 0

    async def call(
        self,
        tool: str,
        given: Input,
        *,
        call_id: str | None = None,
        watch: Callable[[Job], None] | None = None,
    ) -> Answer:
        """Run a call when it is its turn; what it did never raises.

        When the task is cancelled, the call is ended and recorded before the cancellation goes on.
        `watch` gets the call while it is on its way, to look at how far it is.

        Raises:
            ToolspanError: a call of this id was there before.
        """
        asked = Asked(CallId(call_id or f"toolu_{uuid.uuid4().hex[:24]}"), tool, given)
        reply = self._begin()
        try:
            async with self.runner.batch(reply.head) as batch:
                job = self._accept(asked, reply, batch)
                if watch is not None:
                    watch(job)
                await self._run(job, batch)
                return self._answer(job, batch)
        finally:
            self._under_way -= 1

    def _begin(self) -> Incoming:
        """The message that the call belongs to: a new one, unless others are under way."""
        if not self._under_way:
            self._reply = Incoming(early=True)
            self._reply.head["stop_reason"] = "tool_use"
        self._under_way += 1
        return self._reply

    def _accept(self, asked: Asked, reply: Incoming, batch: Batch) -> Job:
        job = batch.accept(asked)
        if job is None:
            raise ToolspanError(f"call {asked.id} was there before and is not run again")
        if self._session is not None:
            block: dict[str, object] = {"type": "tool_use", "id": asked.id, "name": asked.tool}
            block["input"] = job.shelf.arguments_
            self._session.keep_block(reply, block, last=False)
        return job

    async def _run(self, job: Job, batch: Batch) -> None:
        try:
            await self._gate.enter(_item(job))
        except anyio.get_cancelled_exc_class():
            batch.enqueue(job)  # it was asked for, so it gets its result
            await batch.abandon()
            raise
        try:
            batch.enqueue(job)
            await batch.drain()
        finally:
            self._gate.leave(job.call.id)

    def _answer(self, job: Job, batch: Batch) -> Answer:
        if job.finished is None:
            raise RuntimeError(f"call {job.call.id} ended without a result")
        told = beside(job.finished)
        if self._session is not None:
            told += self._session.notices(batch)
        return Answer(job.finished, told)


class Gate:
    """Lets calls of different batches in, in the order they came, as one queue would."""

    def __init__(self, cap: int | None) -> None:
        self._cap = cap
        self._queue = Queue(cap=cap)
        self._waiting: dict[CallId, anyio.Event] = {}

    async def enter(self, item: Item) -> None:
        """Wait until the call may run; `leave` when it has."""
        if self._queue.is_done:  # a queue remembers what it had
            self._queue = Queue(cap=self._cap)
        self._queue.add(item)
        turn = self._waiting[item.id] = anyio.Event()
        self._let_in()
        try:
            await turn.wait()
        except anyio.get_cancelled_exc_class():
            self.leave(item.id)
            raise

    def leave(self, call_id: CallId) -> None:
        """The call is over, or does not want to wait any more."""
        self._waiting.pop(call_id, None)
        if not self._queue.withdraw(call_id):
            self._queue.finish(call_id)
        self._let_in()

    def _let_in(self) -> None:
        for call_id in self._queue.start():
            self._waiting.pop(call_id).set()


def _item(job: Job) -> Item:
    if job.tool is None or not isinstance(job.parsed, Valid):
        return Item(job.call.id, overlaps=True)  # it is answered, and nothing is run
    return Item(job.call.id, overlaps=job.tool.may_overlap(job.parsed.value))
