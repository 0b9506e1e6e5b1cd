"""A runner: tools, the user's say over them, and the calls of one conversation.

In: assistant messages, or the `tool_use` blocks of one. Out: one result per call, in call order;
events to the sinks. `run` takes a whole message, `batch` one that still streams. Used as a context
manager a runner keeps what outlives a batch (background work, async sinks) and ends it at the end;
without, each `run` begins and ends by itself.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import anyio
import anyio.abc

from toolspan.errors import BadCall, ToolspanError
from toolspan.hooks.points import Firing, NoHooks
from toolspan.hooks.scene import Scene
from toolspan.ids import CallId
from toolspan.model.live import Faulted, Finished, LiveEvent
from toolspan.model.span import Result
from toolspan.permission.decide import Approver, Policy
from toolspan.process import Custody
from toolspan.profile import Profile, profile
from toolspan.run.batch import Batch, Recovery
from toolspan.run.blocks import read_block
from toolspan.run.context import Context, Workspace
from toolspan.run.desk import Cancel, Desk
from toolspan.run.door import Door
from toolspan.run.rooms import Rooms
from toolspan.run.scratch import scratch_folder
from toolspan.run.sinks import Emitter, Sink
from toolspan.run.thread import Home
from toolspan.run.tool import Tool
from toolspan.run.toolset import Toolset

Message = Mapping[str, object]
SINK_GRACE = 2.0
"""Seconds that slow sinks get at the end."""


class Runner:
    """Runs the calls of one conversation."""

    def __init__(  # noqa: PLR0913 - the parts of a runner, each optional, each named by the caller
        self,
        tools: Iterable[Tool] = (),
        *,
        cwd: Path | str | None = None,
        profile: Profile | None = None,
        hooks: Firing | None = None,
        policies: Sequence[Policy] = (),
        fallback: Policy | None = None,
        approver: Approver | None = None,
        sinks: Iterable[Sink] = (),
        direct: Iterable[Sink] = (),
        workspace: Workspace | None = None,
        recoveries: Sequence[Recovery] = (),
        by_path: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a runner of tools, and of everybody who has a say.

        Args:
            tools: What can be called.
            cwd: The folder the first call starts in; else the current one.
            profile: The client version that is followed; else the newest that is known.
            hooks: User code around calls.
            policies: Have opinions on whether a call may run: deny wins over ask, ask over allow.
            fallback: Decides where none has an opinion; without it such calls run.
            approver: Answers what has to be asked; without one the answer is no.
            sinks: Get every event in their own time.
            direct: Get every event at once, before the call goes on.
            workspace: What is known of files, and where outputs go; else a new one.
            recoveries: What is tried when a call fails; nothing unless it is named here.
            by_path: Calls that name the files they touch wait only for those of the same files.
            clock: Tells the time in seconds.
        """
        folder = Path(cwd or Path.cwd()).absolute()
        self._sinks = tuple(sinks)
        self._direct = tuple(direct)
        self._recoveries = tuple(recoveries)
        self._by_path = by_path
        self._seen: set[CallId] = set()
        self._open: list[Batch] = []
        self._stack: AsyncExitStack | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._leaving: anyio.Event | None = None
        """Set when the runner was left, after it was used as a context manager."""
        self.door = Door(self)
        """The way in for batches when nobody has entered it."""
        self._emitter = Emitter(clock=clock)
        self.desk = Desk(
            tools=tools if isinstance(tools, Toolset) else Toolset(tools),
            profile=profile or _default_profile(),
            workspace=workspace or new_workspace(folder),
            context=Context(cwd=folder),
            hooks=hooks or NoHooks(),
            policies=tuple(policies),
            fallback=fallback,
            approver=approver,
            emit=self.emit,
            rooms=Rooms(self._fault),
            clock=clock,
        )

        if hooks is not None and not hooks.silent:
            self.desk.hooks = hooks.bind(self._scene())

    def _scene(self) -> Scene:
        space = self.desk.workspace
        return Scene(
            project=space.project,
            custody=space.custody,
            folder=space.folder,
            cwd=lambda: self.desk.context.cwd,
            environment=space.environment,
            session_id=space.session_id,
            agent_id=space.agent_id,
        )

    # Beginning and end

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise ToolspanError("this runner is entered already; it can be left once only")
        self._emitter = Emitter(self._sinks, direct=self._direct, clock=self.desk.clock)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.desk.workspace.custody)
            stack.push_async_callback(self._empty_rooms)
            self._group = await stack.enter_async_context(anyio.create_task_group())
            stack.push_async_callback(self._wind_up, self._group)
            self._emitter.start(self._group, self.desk.rooms)
            self._group.start_soon(self._listen)
            self.desk.emit, self.desk.hears = self._emitter.emit, self._emitter.hears
            self.desk.home = Home()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        stack, self._stack = self._stack, None
        if stack is None:
            return
        self._leaving = anyio.Event()
        try:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                await stack.__aexit__(type(error), error, error.__traceback__)
            else:  # an error is the host's own, and a task group would wrap it
                await stack.aclose()
        finally:
            self._leaving.set()

    async def _wind_up(self, group: anyio.abc.TaskGroup) -> None:
        """End what still runs, and give slow sinks a last while; then the tasks and processes end.

        Runs from the exit stack, which goes on with those even if this is cut off.
        """
        try:
            with anyio.CancelScope(shield=True):
                for batch in list(self._open):
                    await batch.abandon()
                await self.desk.workspace.tasks.end()
                await self.desk.rooms.close(self.desk.grace)
                await self._emitter.close(SINK_GRACE)
        finally:
            self._group = None
            group.cancel_scope.cancel()

    async def _listen(self) -> None:
        """Hear it when the host is cancelled: calls have tasks of their own, which do not."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancel(by="host")
            raise

    async def _empty_rooms(self) -> None:
        """End what sinks have left; everything else has ended before."""
        await self.desk.rooms.close(self.desk.grace, quiet=True)

    def _fault(self, where: str, reason: str, call_id: CallId | None) -> None:
        now = self.desk.clock()
        self.desk.emit(Faulted(where=where, reason=reason, call_id=call_id, at=now))

    # Running

    async def run(self, calls: Message | Iterable[Message]) -> list[Result]:
        """The results of a message's calls, in the order they were asked for.

        A call whose id was there before is not run again, and has no result here.

        Raises:
            BadCall: a block is no call; none of the message's calls was run.
        """
        finished = await self.finish(calls)
        return [one.span.result for one in finished if one.span.result is not None]

    async def finish(self, calls: Message | Iterable[Message]) -> list[Finished]:
        """As `run`, with all that is known of each call.

        Raises:
            BadCall: a block is no call; none of the message's calls was run.
        """
        asked = [read_block(block) for block in blocks_of(calls)]
        async with self.batch(calls if isinstance(calls, Mapping) else None) as batch:
            for one in asked:
                job = batch.accept(one)
                if job is not None:
                    batch.enqueue(job)
            return await batch.drain()

    def batch(self, message: Message | None = None) -> "OpenBatch":
        """A batch to add calls to while the message still streams; left, all have their results."""
        return OpenBatch(self, message)

    def cancel(self, call_id: CallId | str | None = None, *, by: Cancel = "user") -> None:
        """End one call, or with no id everything that runs or waits: the turn."""
        for batch in self._open:
            batch.cancel(None if call_id is None else CallId(call_id), by=by)

    def open(self, message: Message | None) -> Batch:
        """A batch in this runner, which is entered."""
        if self._group is None:
            raise RuntimeError("a batch needs a runner that is entered")
        batch = Batch(
            self.desk,
            self._group,
            message=message,
            by_path=self._by_path,
            recoveries=self._recoveries,
            seen=self._seen,
        )
        self._open.append(batch)
        return batch

    def close(self, batch: Batch) -> None:
        """The batch is over."""
        self._open.remove(batch)

    def start_soon(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Have something done beside the calls; it must not raise.

        Whoever gives it sees to it that it is over when `Tasks.end` is.
        """
        if self._group is None:
            raise RuntimeError("work beside the calls needs a runner that is entered")
        self._group.start_soon(work)

    def remember(self, call_id: CallId) -> None:
        """The call was there before: should it come again, it is not run."""
        self._seen.add(call_id)

    def forget(self, call_id: CallId) -> None:
        """The call may come again: it was put off, and has no result."""
        self._seen.discard(call_id)

    async def left(self) -> None:
        """Wait until whoever is leaving the runner has left it."""
        while self._leaving is not None and not self._leaving.is_set():
            await self._leaving.wait()

    @property
    def is_left(self) -> bool:
        """Whether somebody leaves it, or has left it."""
        return self._leaving is not None

    @property
    def is_entered(self) -> bool:
        """Whether it is used as a context manager now."""
        return self._group is not None

    # Around

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        return frozenset().union(*(batch.in_progress for batch in self._open))

    @property
    def context(self) -> Context:
        """Where the next call starts from."""
        return self.desk.context

    @property
    def dropped(self) -> int:
        """Events that some sink was too slow for."""
        return self._emitter.dropped

    def emit(self, event: LiveEvent) -> None:
        """Tell every sink; never raises, never waits."""
        self._emitter.emit(event)

    def schemas(self, *, defer: bool = False) -> list[dict[str, object]]:
        """The tools as a Messages API request offers them.

        With `defer`, those that the profile defers are marked with `defer_loading`: a server that
        knows it shows them to the model only when ToolSearch has found them.
        """
        found = self.desk.tools.schemas()
        if not defer or self.desk.tools.find("ToolSearch") is None:
            return found
        offer = self.desk.profile.offer
        return [
            {**one, "defer_loading": True} if offer.defers(str(one["name"])) else one
            for one in found
        ]


class OpenBatch:
    """A batch that is left with every result there; if nobody has entered the runner, it is."""

    def __init__(self, runner: Runner, message: Message | None) -> None:
        self._runner = runner
        self._message = message
        self._through_door = False
        self._batch: Batch | None = None

    async def __aenter__(self) -> Batch:
        runner = self._runner
        if runner.is_left:
            await runner.left()
        if runner.door.is_held or not runner.is_entered:
            await runner.door.come_in()
            self._through_door = True
        self._batch = batch = runner.open(self._message)
        return batch

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        batch = self._batch
        try:
            if batch is not None and not batch.is_over:
                await (batch.drain() if error is None else batch.abandon())
        finally:
            if batch is not None:
                self._runner.close(batch)
            if self._through_door:
                await self._runner.door.go_out()


def blocks_of(calls: Message | Iterable[Message]) -> list[Message]:
    """The `tool_use` blocks of a message, or the blocks themselves; an SDK's objects are as good.

    Raises:
        BadCall: it is neither, or there is something else in it that wants to be a call.
    """
    given = _plain(calls)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise BadCall(f"calls are a message or its tool_use blocks, not {type(given).__name__}")
    if not isinstance(given, Mapping):
        return [_block(block) for block in given]
    if given.get("type") == "tool_use":
        return [given]
    content = given.get("content")
    if isinstance(content, str):
        return []
    if not isinstance(content, Sequence):
        raise BadCall("an assistant message has its content as a text or a list of blocks")
    blocks = map(_plain, content)
    return [b for b in blocks if isinstance(b, Mapping) and b.get("type") == "tool_use"]


def _plain(given: object) -> object:
    """An object of an SDK as plain values, anything else as it is."""
    if isinstance(given, dict) or not hasattr(given, "model_dump"):
        return given
    return given.model_dump(mode="json", exclude_none=True)


def _block(given: object) -> Message:
    found = _plain(given)
    if not isinstance(found, Mapping):
        raise BadCall(f"a call is a tool_use block, not {type(found).__name__}")
    return found


def new_workspace(project: Path) -> Workspace:
    """A workspace for calls in a folder, with a scratch folder that is made when it is needed."""
    return Workspace(project=project, custody=Custody(), folder=scratch_folder())


def _default_profile() -> Profile:
    return profile()
