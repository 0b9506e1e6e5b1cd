"""The calls of one assistant message: queued, run, handed out.

In: `tool_use` blocks, all at once or while the message still streams. Out: one `Finished` per
accepted call, in any of three ways: `completed` (what is there now), `remaining` (until all are
there), `drain` (all, in the order they were asked for). The queue decides what starts; calls that
never wait are run one after the other in one task; when one waits, the others go on in a new one.
Read `add`, then `_work`.
"""

import itertools
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from toolspan.errors import ToolspanError, words_of
from toolspan.hooks.points import After, Occasion
from toolspan.hooks.stray import is_cancelled
from toolspan.ids import CallId
from toolspan.model.decision import Decision, Deny
from toolspan.model.live import (
    BatchFinished,
    Duplicate,
    Faulted,
    Finished,
    Requested,
)
from toolspan.model.span import Call, Span
from toolspan.model.toolkind import tool_kind
from toolspan.run.blocks import Asked, call_block, message_id, read_block, target_of
from toolspan.run.consent import consent_for
from toolspan.run.context import Context
from toolspan.run.crew import Crew
from toolspan.run.desk import Cancel, Desk, Job
from toolspan.run.insist import insist
from toolspan.run.pipeline import run_call
from toolspan.run.queue import Item, Queue
from toolspan.run.review import report
from toolspan.run.settle import iso, settle_unstarted
from toolspan.run.shelf import LiveShelf
from toolspan.run.telling import telling
from toolspan.run.tool import Input, Tool, Valid
from toolspan.run.toolset import Toolset
from toolspan.run.watch import Watch
from toolspan.schema.explain import raw_of
from toolspan.schema.issue import Invalid

PATIENCE = 0.05
"""Seconds after which calls that never wait let others have a turn, and others are watched."""

_NOTHING_SAID = After()
Step = Callable[[str, Input], Awaitable[Finished]]
"""Runs one further call, visible like any other."""


class Recovery(Protocol):
    """A policy that mends failed calls by further ones, or prevents the failure.

    Both are called in the failed call's place in the queue; neither may raise for what a call did.
    """

    async def prevent(self, call: Call, desk: Desk, run: Step) -> None:
        """Before a call runs: run what it will need."""
        ...

    async def mend(self, failed: Finished, desk: Desk, run: Step) -> None:
        """After a call failed: run what may still bring it about."""
        ...


class Batch:
    """The calls of one assistant message."""

    def __init__(
        self,
        desk: Desk,
        group: anyio.abc.TaskGroup,
        *,
        message: Mapping[str, object] | None = None,
        by_path: bool = False,
        recoveries: Sequence[Recovery] = (),
        seen: set[CallId] | None = None,
    ) -> None:
        self.desk = desk
        self.message = message
        self._message_id = message_id(message)
        self.stop: str | None = None
        self.after = _NOTHING_SAID
        """What hooks said of the whole batch."""
        self._group = group
        self._crew = Crew(group)
        self._queue = Queue(cap=desk.profile.offer.cap, by_path=by_path)
        self._recoveries = tuple(recoveries)
        self._seen = set() if seen is None else seen
        self._jobs: dict[CallId, Job] = {}
        self._steps: dict[CallId, Job] = {}
        self._helping: dict[CallId, anyio.CancelScope] = {}
        """Recoveries at work, by the call they are for."""
        self._origins: dict[CallId, CallId] = {}
        """The call in whose place each step is run."""
        self._order: list[CallId] = []
        self._ready: deque[Job] = deque()
        """Started, and waiting for a task to run them."""
        self._modifiers: list[CallId] = []
        self._moves = 0
        """How often handlers are just being told that the session is in another folder."""
        self._news: anyio.Event | None = None
        """Set when a call ended; there once somebody waits for that."""
        self._unwatch: Callable[[], None] | None = None
        """Keeps somebody from watching calls that wait; there since one did."""
        self._is_watched = False
        self._closed = False

    # Asking

    def add(self, block: Mapping[str, object], *, cut: bool = False) -> bool:
        """Accept a `tool_use` block and start what can start; False for an id that was there.

        `cut` is for a block in whose middle the reply ended: it is answered, not run.

        Raises:
            BadCall: the block is no call.
        """
        job = self.accept(read_block(block), cut=cut)
        if job is None:
            return False
        self.enqueue(job)
        self.start()
        return True

    def accept(self, asked: Asked, *, cut: bool = False) -> Job | None:
        """What a block asks for as a job that is not in the queue yet; None for an id again."""
        call_id, name, given = asked
        if call_id in self._seen:
            self.desk.emit(Duplicate(call_id=call_id, tool=name, at=self.desk.clock()))
            return None
        self._seen.add(call_id)
        job = self._job(call_id, name, given)
        job.cut = cut
        return job

    def enqueue(self, job: Job) -> None:
        """Put an accepted call into the queue; `drain` runs it."""
        call_id = job.call.id
        if Requested in self.desk.hears:
            self.desk.emit(Requested(call=job.call, at=job.requested))
        self._order.append(call_id)
        self._jobs[call_id] = job
        self._queue.add(self._item(job))
        if self.stop is not None:
            self._cancel(job, "turn")

    def start(self) -> None:
        """Start what can start: for calls in the queue of a message that still streams."""
        self._start_tasks()

    def cancel(self, call_id: CallId | None = None, *, by: Cancel = "user") -> None:
        """End one call, or all that have not ended; each still gets its result."""
        if call_id is None:
            for job in (*self._jobs.values(), *self._steps.values()):
                self._cancel(job, by)
        else:
            found = self._steps.get(call_id) or self._jobs.get(call_id)
            if found is not None:
                self._cancel(found, by)
        self._start_tasks()

    # Handing out

    def completed(self) -> list[Finished]:
        """The results that are there now and were not handed out before, in call order."""
        return [self._finished(call_id) for call_id in self._queue.hand_out()]

    async def remaining(self) -> AsyncIterator[Finished]:
        """Every result not handed out yet, as they come, until all calls have ended."""
        while True:
            for finished in self.completed():
                yield finished
            if self._queue.is_done:
                return
            await self._wait()

    async def drain(self) -> list[Finished]:
        """All results, in the order the calls were asked for; steps of a recovery after theirs."""
        try:
            self._take_ready()
            while not self._queue.is_done or self._moves:
                await (self._work() if self._ready else self._wait())
        except anyio.get_cancelled_exc_class():
            await self.abandon()
            raise
        results = self.results
        if not self._closed:
            self._closed = True
            if not self.desk.hooks.silent:
                await self._fire_after(results)
            if BatchFinished in self.desk.hears:
                self._tell_end(results)
        return results

    async def abandon(self) -> None:
        """The host ended us: end every call, wait until each has its result."""
        if not self._queue.is_done:
            self.cancel(by="host")
            await insist(self._wait, lambda: self._queue.is_done)

    async def _fire_after(self, results: list[Finished]) -> None:
        """Fire the hooks for the batch; they may end the turn."""
        fired = self.desk.hooks.after_batch([finished.span for finished in results])
        after = await self.desk.hooked(fired)
        if after.reports:
            report(CallId(str(uuid.uuid4())), after.reports, self.desk)
        self.stop = self.stop or after.stop
        self.after = after

    def _tell_end(self, results: list[Finished]) -> None:
        ids = tuple(finished.call_id for finished in results)
        self.desk.emit(BatchFinished(call_ids=ids, stop=self.stop, at=self.desk.clock()))

    @property
    def is_over(self) -> bool:
        """Whether every call has ended and everybody was told."""
        return self._closed and self._queue.is_done

    @property
    def results(self) -> list[Finished]:
        """The results so far, in call order."""
        jobs: Iterable[Job] = self._jobs.values()
        if self._steps:
            jobs = (self._steps.get(one) or self._jobs[one] for one in self._order)
        return [job.finished for job in jobs if job.finished is not None]

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
        jobs = [self._steps[one] for one in self._order if one in self._steps]
        return [call_block(job.call) for job in jobs]

    # What running calls may ask: the Bench

    @property
    def tools(self) -> Toolset:
        """What the session has."""
        return self.desk.tools

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        return self._queue.running

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """How the permission question of each call was answered."""
        return self.desk.decisions

    def is_cancelled(self, call_id: CallId) -> bool:
        """Whether somebody wants the call to end."""
        job = self._steps.get(call_id) or self._jobs.get(call_id)
        return job is not None and job.cancelled is not None

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Pass news on, at most ten a second; the latest waits for its turn or for the end."""
        self.desk.home.tell(self._progress, call_id, kind, data)

    def _progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        job = self._steps.get(call_id) or self._jobs.get(call_id)
        if job is None or job.finished is not None:
            return
        Watch(self.desk.emit, self.desk.clock).progress(job, kind, data)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        """What the answer would be if this were asked for; nobody is asked."""
        found = self._tool(tool)
        if found is None:
            return Deny(f"No such tool available: {tool}")
        call = Call(
            id=CallId(""),
            tool=tool,
            at=0,
            requested_at=None,
            target=None,
            shelf=LiveShelf(input),
        )
        return await consent_for(call, found, input, self.desk)

    async def fire(self, call_id: CallId, occasion: Occasion) -> After:
        """Fire a hook point that only a tool knows of, and tell what its handlers did."""
        hooks = self.desk.hooks
        if hooks.silent or not hooks.listens(occasion.point):
            return After()
        job = self._steps.get(call_id) or self._jobs.get(call_id)
        after = await self.desk.hooked(hooks.fire(occasion), job)
        report(call_id, after.reports, self.desk)
        return after

    # Running

    def _job(self, call_id: CallId, name: str, given: Input) -> Job:
        tool = self._tool(name)
        readable = given if raw_of(given) is None else {}
        parsed: Valid | Invalid | None = tool.parse(readable) if tool is not None else None
        if readable is not given and isinstance(parsed, Valid):
            parsed = Invalid(())
        shelf = LiveShelf(parsed.recorded if isinstance(parsed, Valid) else given)
        now, space = self.desk.clock(), self.desk.workspace
        call = Call(
            id=call_id,
            tool=name,
            at=0,
            requested_at=iso(now),
            target=target_of(given),
            session_id=space.session_id,
            agent_id=space.agent_id,
            message_id=self._message_id,
            parent_call=space.parent_call,
            shelf=shelf,
        )
        return Job(
            call=call,
            shelf=shelf,
            tool=tool,
            parsed=parsed,
            requested=now,
            message=self.message,
        )

    def _tool(self, name: str) -> Tool | None:
        """The tool of this name or alias, unless it is switched off."""
        tool = self.desk.tools.find(name)
        return tool if tool is not None and tool.enabled else None

    def _item(self, job: Job) -> Item:
        if job.tool is None or not isinstance(job.parsed, Valid):
            return Item(job.call.id, overlaps=job.tool is None)
        tool, value = job.tool, job.parsed.value
        paths = None if tool.paths is None else _paths(tool.paths, value)
        return Item(job.call.id, tool.may_overlap(value), paths)

    def _take_ready(self) -> None:
        for call_id in self._queue.start():
            job = self._jobs[call_id]
            if job.tool is not None and job.tool.interrupt == "block":
                self._group.start_soon(self._work, job)  # it must not end with who drains
            else:
                self._ready.append(job)

    def _start_tasks(self) -> None:
        """Start what can start, in a task: nobody may be draining."""
        self._take_ready()
        if self._ready:
            self._crew.start(self._work)

    async def _work(self, first: Job | None = None) -> None:
        """Run what is ready, one after the other; when one has to wait, others do not.

        A call that never waits, as most of a busy session are, needs no task of its own.
        """
        await telling(self._run_ready(first), self._on_wait)
        while self._ready:
            await anyio.lowlevel.checkpoint()
            await telling(self._run_ready(), self._on_wait)

    async def _run_ready(self, first: Job | None = None) -> None:
        """Run what is ready until it is the turn of others."""
        since = self.desk.clock()
        while first or self._ready:
            job, first = first or self._ready.popleft(), None
            await self._run(job)
            if self.desk.clock() - since > PATIENCE:
                return

    def _on_wait(self) -> None:
        """A call waits for something: others that are ready get a task, and somebody watches."""
        if self._ready:
            self._crew.start(self._work)
        if self._unwatch is None:
            self._unwatch = self._crew.start_late(self._begin_watch, PATIENCE)

    async def _run(self, job: Job) -> None:
        try:
            if self._recoveries and job.cancelled is None:
                await self._recover(job)
            else:
                await run_call(job, self.desk, self)
        finally:
            self._ended(job)

    async def _recover(self, job: Job) -> None:
        run = partial(self.run_step, job.call.id)
        for recovery in self._recoveries:
            if not job.cancelled:
                await self._guarded(recovery.prevent(job.call, self.desk, run), job)
        finished = await run_call(job, self.desk, self)
        for recovery in self._recoveries:
            if _is_error(finished) and not job.cancelled:
                await self._guarded(recovery.mend(finished, self.desk, run), job)

    async def _guarded(self, work: Awaitable[None], job: Job) -> None:
        """A policy's own fault is told of and costs no call its result; it ends with the call."""
        with anyio.CancelScope() as scope:
            self._helping[job.call.id] = scope
            try:
                await self._in_room(work, job)
            except anyio.get_cancelled_exc_class() as error:
                if is_cancelled():
                    raise
                self._fault("recovery", error, job.call.id)
            except Exception as error:  # noqa: BLE001 - user code beside a call
                self._fault("recovery", error, job.call.id)
            finally:
                del self._helping[job.call.id]

    def _in_room(self, work: Awaitable[None], job: Job) -> Awaitable[None]:
        grace = 2 * self.desk.hooks_grace  # a step of it may need one to end
        return self.desk.rooms.run(work, grace, "recovery", job)

    def _fault(self, where: str, error: BaseException, call_id: CallId) -> None:
        reason = f"{type(error).__name__}: {words_of(error)}"
        now = self.desk.clock()
        self.desk.emit(Faulted(where=where, reason=reason, call_id=call_id, at=now))

    async def run_step(self, origin: CallId, name: str, given: Input) -> Finished:
        """Run a further call in the place of `origin`, visible like any other.

        Raises:
            ToolspanError: that call has ended, and whoever asks should have.
        """
        if self._queue.stage(origin) != "executing":
            raise ToolspanError(f"call {origin} has ended: nothing more is run for it")
        numbered = (CallId(f"{origin}_r{number}") for number in itertools.count(1))
        call_id = next(one for one in numbered if one not in self._seen)
        self._seen.add(call_id)
        job = self._job(call_id, name, given)
        self.desk.emit(Requested(call=job.call, at=job.requested, recovers=origin))
        self._origins[call_id] = origin
        after = max(
            n
            for n, one in enumerate(self._order)
            if one == origin or self._origins.get(one) == origin
        )
        self._order.insert(after + 1, call_id)
        self._steps[call_id] = job
        finished = await run_call(job, self.desk, self)
        self._apply(job)
        return finished

    def _ended(self, job: Job) -> None:
        self._queue.finish(job.call.id)
        if job.finished is None:  # cut off while others prepared the ground for it
            job.cancelled = job.cancelled or "host"
            settle_unstarted(job, self.desk)
        if job.finished is not None:
            self._take_in(job, job.finished)
        if self._queue.is_waiting:
            self._take_ready()
        self._note_news()

    def _note_news(self) -> None:
        """A call has ended: who waits for that may go on; after the last one, nobody watches."""
        if self._news is not None:
            self._news.set()
        if self._unwatch is not None and not self._is_watched and self._queue.is_done:
            self._unwatch()
            self._unwatch = None

    def _take_in(self, job: Job, finished: Finished) -> None:
        if job.modify is not None:
            self._modifiers.append(job.call.id)
        if self._modifiers and self._queue.is_idle:
            self._apply_modifiers()
        if finished.stop is not None and self.stop is None:
            self.stop = finished.stop
            if finished.span.state == "denied":  # by a person who wants none of it
                self.cancel(by="turn")
            else:
                self._end_waiting("turn")
        elif finished.span.state == "failed" and _takes_siblings_along(finished, self.desk):
            self.cancel(by="sibling")

    def _end_waiting(self, by: Cancel) -> None:
        for call_id in self._queue.waiting:
            self._cancel(self._jobs[call_id], by)

    def _cancel(self, job: Job, by: Cancel) -> None:
        """A running call is told to end; one that waits has its result at once."""
        helping = self._helping.get(job.call.id)
        if helping is not None:
            job.cancelled = job.cancelled or by
            helping.cancel()
        if job.finished is not None:
            return
        job.cancel(by)
        if self._queue.withdraw(job.call.id):
            settle_unstarted(job, self.desk)
            self._note_news()

    def _apply_modifiers(self) -> None:
        """What the calls of a parallel group change, in call order, once none of them runs."""
        for call_id in sorted(self._modifiers, key=self._queue.position):
            self._apply(self._jobs[call_id])
        self._modifiers.clear()

    def _apply(self, job: Job) -> None:
        if job.modify is None:
            return
        try:
            changed = job.modify(self.desk.context)
            if not isinstance(changed, Context):
                raise TypeError(f"a modifier gives a Context, not {type(changed).__name__}")
        except Exception as error:  # noqa: BLE001 - a tool's own function; the context stays
            self._fault("context modifier", error, job.call.id)
            return
        before, self.desk.context = self.desk.context.cwd, changed
        if before != changed.cwd and self.desk.hooks.listens("CwdChanged"):
            self._moves += 1
            self._group.start_soon(self._tell_move, before, changed.cwd)

    async def _tell_move(self, before: Path, now: Path) -> None:
        """The session is in another folder: handlers hear of it, and have no say."""
        fields = {"old_cwd": str(before), "new_cwd": str(now)}
        occasion = Occasion(point="CwdChanged", fields=fields)
        try:
            after = await self.desk.hooked(self.desk.hooks.fire(occasion))
            report(CallId(str(uuid.uuid4())), after.reports, self.desk)
        finally:
            self._moves -= 1
            if self._news is not None:
                self._news.set()

    def _finished(self, call_id: CallId) -> Finished:
        finished = self._jobs[call_id].finished
        if finished is None:
            raise RuntimeError(f"call {call_id} ended without a result")
        return finished

    async def _wait(self) -> None:
        """Until a call has ended."""
        if self._news is None or self._news.is_set():
            self._news = anyio.Event()
        await self._news.wait()

    async def _begin_watch(self) -> None:
        """Calls have waited for a while: most have ended before, and cost nobody who watches."""
        if not self._queue.is_done:
            self._group.start_soon(self._keep_watch)

    async def _keep_watch(self) -> None:
        """Tell of calls that take long, until all have ended."""
        self._is_watched = True
        watch = Watch(self.desk.emit, self.desk.clock)
        try:
            while not self._queue.is_done:
                with anyio.move_on_after(watch.next_look(self._running())):
                    await self._wait()
                watch.look(self._running())
        finally:
            self._is_watched, self._unwatch = False, None

    def _running(self) -> list[Job]:
        jobs = [self._jobs[one] for one in self._queue.running]
        jobs += self._steps.values()
        return [job for job in jobs if job.started is not None and job.finished is None]


def _is_error(finished: Finished) -> bool:
    return finished.span.result is not None and finished.span.result.is_error is True


def _takes_siblings_along(finished: Finished, desk: Desk) -> bool:
    """Whether the failure of this call ends those beside it."""
    if desk.profile.offer.siblings == "independent":
        return False
    return tool_kind(finished.span.tool) == "shell"


def _paths(find: Callable[[object], frozenset[str]], value: object) -> frozenset[str] | None:
    try:
        return find(value)
    except Exception:  # noqa: BLE001 - a tool's own function; without paths it is exclusive
        return None
