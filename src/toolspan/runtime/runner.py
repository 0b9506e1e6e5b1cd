"""A runner: tools, the user's say over them, and the calls of one conversation.

In: assistant messages, or the `tool_use` blocks of one. Out: one result per call, in call order;
events to the sinks. `run` takes a whole message, `batch` one that still streams. Used as a context
manager a runner keeps what outlives a batch (background work, async sinks) and ends it at the end;
without, each `run` begins and ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.abc

from toolspan.errors import BadCall, ToolspanError
from toolspan.runtime.batch import Batch, Recovery
from toolspan.runtime.blocks import parse_tool_use
from toolspan.runtime.context import CallContext, Workspace
from toolspan.runtime.hooks.events import HookEnvironment, HookRunner, NoHooks
from toolspan.runtime.isolation import IsolatedTasks, wait_uninterrupted
from toolspan.runtime.pending_call import CancelSource, RunnerContext
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile, profile
from toolspan.runtime.sinks import Emitter, LoopThread, Sink
from toolspan.runtime.tool import Tool
from toolspan.runtime.toolset import Toolset
from toolspan.types.events import Faulted, Finished, LiveEvent
from toolspan.types.ids import CallId
from toolspan.types.span import Result


class _SharedEntry:
    """Enters a runner for the first batch, and leaves it after the last."""

    def __init__(self, runner: AbstractAsyncContextManager[object]) -> None:
        self._runner = runner
        self._users = 0
        self._holder_task: asyncio.Task[None] | None = None
        """Has entered the runner, and leaves it."""
        self._entered: asyncio.Future[None] | None = None
        self._no_users = asyncio.Event()
        """Nobody is inside any more."""

    @property
    def is_active(self) -> bool:
        """Whether the runner is entered through here."""
        return self._holder_task is not None

    async def enter_runner(self) -> None:
        """The runner is entered when this returns; `go_out` follows, whatever happens."""
        while self._holder_task is not None and self._no_users.is_set():  # it closes just now
            await asyncio.wait({self._holder_task})
        self._users += 1
        try:
            await asyncio.shield(self._entered or self._start_holder())
        except BaseException:
            await self.leave_runner()
            raise

    async def leave_runner(self) -> None:
        """One batch less; after the last one the runner is left."""
        self._users -= 1
        holder = self._holder_task
        if self._users or holder is None:
            return
        self._no_users.set()
        await wait_uninterrupted(lambda: asyncio.wait({holder}), holder.done)
        holder.result()

    def _start_holder(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self._no_users = asyncio.Event()
        self._entered = entered = loop.create_future()
        self._holder_task = loop.create_task(self._hold_runner(entered))
        return entered

    async def _hold_runner(self, entered: asyncio.Future[None]) -> None:
        try:
            async with self._runner:
                entered.set_result(None)
                await self._no_users.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)  # whoever wants to come in has it
        finally:
            self._holder_task = self._entered = None


_MAX_AGE_S = 7 * 24 * 3600.0
_SWEEP_INTERVAL_S = 3600.0
"""How long nobody looks again for what can be removed."""
_MAX_REMOVED = 500
"""So many folders are removed at once; the next session goes on."""
_SWEEP_MARKER = ".swept"
_SESSION_FOLDER_NAME = re.compile(r"[0-9a-f]{32}")


def scratch_folder() -> Path:
    """A folder of its own for one session; not made yet."""
    name = uuid.uuid4().hex
    temp_folder = Path(tempfile.gettempdir()).absolute()
    user_folder = temp_folder / f"toolspan-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with suppress(OSError):  # who writes there tells why that cannot be
        if not _ensure_private(user_folder):
            return temp_folder / f"toolspan-{name}"  # a name that nobody could have taken before
        _remove_old_folders(user_folder)
    return user_folder / name


def _ensure_private(user_folder: Path) -> bool:
    """Make the folder for its owner only; False when it is somebody else's, or leads elsewhere."""
    with suppress(FileExistsError):
        user_folder.mkdir(mode=0o700)
    status = user_folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return False
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            return False
        if stat.S_IMODE(status.st_mode) & 0o077:
            user_folder.chmod(0o700)
    return True


def _remove_old_folders(user_folder: Path) -> None:
    """Remove what earlier sessions left, unless somebody has just done so.

    Raises:
        OSError: the disk does not let us.
    """
    now = time.time()
    marker = user_folder / _SWEEP_MARKER
    if marker.exists() and abs(now - marker.stat().st_mtime) < _SWEEP_INTERVAL_S:
        return
    marker.touch(mode=0o600)
    with os.scandir(user_folder) as entries:
        old = [entry.path for entry in entries if _is_expired(entry, now - _MAX_AGE_S)]
    for path in old[:_MAX_REMOVED]:
        shutil.rmtree(path, ignore_errors=True)
    if len(old) > _MAX_REMOVED:
        marker.unlink(missing_ok=True)


def _is_expired(entry: os.DirEntry[str], limit: float) -> bool:
    """Whether it is a session's folder, and nothing in it was written to since then."""
    if not _SESSION_FOLDER_NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    if entry.stat(follow_symlinks=False).st_mtime >= limit:
        return False
    return all(
        Path(folder, name).lstat().st_mtime < limit
        for folder, folders, files in os.walk(entry.path)
        for name in (*folders, *files)
    )


Message = Mapping[str, object]
SINK_GRACE = 2.0
"""Seconds that slow sinks get at the end."""


class Runner:
    """Runs the calls of one conversation."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        cwd: Path | str | None = None,
        profile: Profile | None = None,
        hooks: HookRunner | None = None,
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
        self._seen_ids: set[CallId] = set()
        self._open_batches: list[Batch] = []
        self._stack: AsyncExitStack | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._closed_event: anyio.Event | None = None
        """Set when the runner was left, after it was used as a context manager."""
        self.shared_entry = _SharedEntry(self)
        """The way in for batches when nobody has entered it."""
        self._emitter = Emitter(clock=clock)
        self.runner_context = RunnerContext(
            tools=tools if isinstance(tools, Toolset) else Toolset(tools),
            profile=profile or _default_profile(),
            workspace=workspace or new_workspace(folder),
            call_context=CallContext(cwd=folder),
            hooks=hooks or NoHooks(),
            policies=tuple(policies),
            fallback=fallback,
            approver=approver,
            emit=self.emit,
            isolated_tasks=IsolatedTasks(self._emit_fault),
            clock=clock,
        )

        if hooks is not None and not hooks.is_empty:
            self.runner_context.hooks = hooks.bind(self._hook_environment())

    def _hook_environment(self) -> HookEnvironment:
        workspace = self.runner_context.workspace
        return HookEnvironment(
            project=workspace.project,
            supervisor=workspace.supervisor,
            session_folder=workspace.folder,
            cwd=lambda: self.runner_context.call_context.cwd,
            env_vars=workspace.environment,
            session_id=workspace.session_id,
            agent_id=workspace.agent_id,
        )

    # Beginning and end

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise ToolspanError("this runner is entered already; it can be left once only")
        self._emitter = Emitter(self._sinks, direct=self._direct, clock=self.runner_context.clock)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.runner_context.workspace.supervisor)
            stack.push_async_callback(self._close_isolated_tasks)
            self._group = await stack.enter_async_context(anyio.create_task_group())
            stack.push_async_callback(self._shut_down, self._group)
            self._emitter.start(self._group, self.runner_context.isolated_tasks)
            self._group.start_soon(self._cancel_with_host)
            self.runner_context.emit, self.runner_context.observed_events = (
                self._emitter.emit,
                self._emitter.observed_events,
            )
            self.runner_context.loop_thread = LoopThread()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        stack, self._stack = self._stack, None
        if stack is None:
            return
        self._closed_event = anyio.Event()
        try:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                await stack.__aexit__(type(error), error, error.__traceback__)
            else:  # an error is the host's own, and a task group would wrap it
                await stack.aclose()
        finally:
            self._closed_event.set()

    async def _shut_down(self, group: anyio.abc.TaskGroup) -> None:
        """End what still runs, and give slow sinks a last while; then the tasks and processes end.

        Runs from the exit stack, which goes on with those even if this is cut off.
        """
        try:
            with anyio.CancelScope(shield=True):
                for batch in list(self._open_batches):
                    await batch.abandon()
                await self.runner_context.workspace.tasks.stop_all()
                await self.runner_context.isolated_tasks.close(self.runner_context.grace)
                await self._emitter.close(SINK_GRACE)
        finally:
            self._group = None
            group.cancel_scope.cancel()

    async def _cancel_with_host(self) -> None:
        """Hear it when the host is cancelled: calls have tasks of their own, which do not."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancel(by="host")
            raise

    async def _close_isolated_tasks(self) -> None:
        """End what sinks have left; everything else has ended before."""
        await self.runner_context.isolated_tasks.close(self.runner_context.grace, quiet=True)

    def _emit_fault(self, where: str, reason: str, call_id: CallId | None) -> None:
        now = self.runner_context.clock()
        self.runner_context.emit(Faulted(where=where, reason=reason, call_id=call_id, at=now))

    # Running

    async def run(self, calls: Message | Iterable[Message]) -> list[Result]:
        """The results of a message's calls, in the order they were asked for.

        A call whose id was there before is not run again, and has no result here.

        Raises:
            BadCall: a block is no call; none of the message's calls was run.
        """
        finished = await self.finish(calls)
        return [call.span.result for call in finished if call.span.result is not None]

    async def finish(self, calls: Message | Iterable[Message]) -> list[Finished]:
        """As `run`, with all that is known of each call.

        Raises:
            BadCall: a block is no call; none of the message's calls was run.
        """
        requests = [parse_tool_use(block) for block in tool_use_blocks(calls)]
        async with self.batch(calls if isinstance(calls, Mapping) else None) as batch:
            for request in requests:
                pending = batch.accept(request)
                if pending is not None:
                    batch.enqueue(pending)
            return await batch.drain()

    def batch(self, message: Message | None = None) -> OpenBatch:
        """A batch to add calls to while the message still streams; left, all have their results."""
        return OpenBatch(self, message)

    def cancel(self, call_id: CallId | str | None = None, *, by: CancelSource = "user") -> None:
        """End one call, or with no id everything that runs or waits: the turn."""
        for batch in self._open_batches:
            batch.cancel(None if call_id is None else CallId(call_id), by=by)

    def open_batch(self, message: Message | None) -> Batch:
        """A batch in this runner, which is entered."""
        if self._group is None:
            raise RuntimeError("a batch needs a runner that is entered")
        batch = Batch(
            self.runner_context,
            self._group,
            message=message,
            by_path=self._by_path,
            recoveries=self._recoveries,
            seen_ids=self._seen_ids,
        )
        self._open_batches.append(batch)
        return batch

    def close_batch(self, batch: Batch) -> None:
        """The batch is over."""
        self._open_batches.remove(batch)

    def start_soon(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Have something done beside the calls; it must not raise.

        Whoever gives it sees to it that it is over when `Tasks.end` is.
        """
        if self._group is None:
            raise RuntimeError("work beside the calls needs a runner that is entered")
        self._group.start_soon(work)

    def mark_seen(self, call_id: CallId) -> None:
        """The call was there before: should it come again, it is not run."""
        self._seen_ids.add(call_id)

    def forget_call(self, call_id: CallId) -> None:
        """The call may come again: it was put off, and has no result."""
        self._seen_ids.discard(call_id)

    async def wait_closed(self) -> None:
        """Wait until whoever is leaving the runner has left it."""
        while self._closed_event is not None and not self._closed_event.is_set():
            await self._closed_event.wait()

    @property
    def is_closing(self) -> bool:
        """Whether somebody leaves it, or has left it."""
        return self._closed_event is not None

    @property
    def is_entered(self) -> bool:
        """Whether it is used as a context manager now."""
        return self._group is not None

    # Around

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        return frozenset().union(*(batch.in_progress for batch in self._open_batches))

    @property
    def context(self) -> CallContext:
        """Where the next call starts from."""
        return self.runner_context.call_context

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
        schemas = self.runner_context.tools.schemas()
        if not defer or self.runner_context.tools.find("ToolSearch") is None:
            return schemas
        offer = self.runner_context.profile.availability
        return [
            {**schema, "defer_loading": True} if offer.is_deferred(str(schema["name"])) else schema
            for schema in schemas
        ]


class OpenBatch:
    """A batch that is left with every result there; if nobody has entered the runner, it is."""

    def __init__(self, runner: Runner, message: Message | None) -> None:
        self._runner = runner
        self._message = message
        self._uses_shared_entry = False
        self._batch: Batch | None = None

    async def __aenter__(self) -> Batch:
        runner = self._runner
        if runner.is_closing:
            await runner.wait_closed()
        if runner.shared_entry.is_active or not runner.is_entered:
            await runner.shared_entry.enter_runner()
            self._uses_shared_entry = True
        self._batch = batch = runner.open_batch(self._message)
        return batch

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        batch = self._batch
        try:
            if batch is not None and not batch.is_over:
                await (batch.drain() if error is None else batch.abandon())
        finally:
            if batch is not None:
                self._runner.close_batch(batch)
            if self._uses_shared_entry:
                await self._runner.shared_entry.leave_runner()


def tool_use_blocks(calls: Message | Iterable[Message]) -> list[Message]:
    """The `tool_use` blocks of a message, or the blocks themselves; an SDK's objects are as good.

    Raises:
        BadCall: it is neither, or there is something else in it that wants to be a call.
    """
    value = _to_builtins(calls)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise BadCall(f"calls are a message or its tool_use blocks, not {type(value).__name__}")
    if not isinstance(value, Mapping):
        return [_require_block(block) for block in value]
    if value.get("type") == "tool_use":
        return [value]
    content = value.get("content")
    if isinstance(content, str):
        return []
    if not isinstance(content, Sequence):
        raise BadCall("an assistant message has its content as a text or a list of blocks")
    blocks = map(_to_builtins, content)
    return [b for b in blocks if isinstance(b, Mapping) and b.get("type") == "tool_use"]


def _to_builtins(value: object) -> object:
    """An object of an SDK as plain values, anything else as it is."""
    if isinstance(value, dict) or not hasattr(value, "model_dump"):
        return value
    return value.model_dump(mode="json", exclude_none=True)


def _require_block(value: object) -> Message:
    block = _to_builtins(value)
    if not isinstance(block, Mapping):
        raise BadCall(f"a call is a tool_use block, not {type(block).__name__}")
    return block


def new_workspace(project: Path) -> Workspace:
    """A workspace for calls in a folder, with a scratch folder that is made when it is needed."""
    return Workspace(project=project, supervisor=ProcessSupervisor(), folder=scratch_folder())


def _default_profile() -> Profile:
    return profile()
