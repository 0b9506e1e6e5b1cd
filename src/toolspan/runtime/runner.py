"""The runner, which runs the calls in one conversation with its tools, hooks and permissions.

Start at `Runner.run`, which takes a complete message, or `Runner.batch` for a message that is still
streaming. Used as a context manager, a runner owns everything that outlives a batch (background
tasks, async sinks) and ends it on exit.
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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio

from toolspan.errors import BadCall, ForeignReply, ToolspanError
from toolspan.runtime.batch import Batch, Recovery
from toolspan.runtime.context import CallContext, RunnerContext, Workspace
from toolspan.runtime.hooks.events import HookEnvironment, HookRunner, NoHooks
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.runtime.isolation import TaskSet, wait_uninterrupted
from toolspan.runtime.pending_call import CancelSource, parse_tool_use
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile
from toolspan.runtime.profiles import profile as newest_profile
from toolspan.runtime.sinks import Emitter, Sink
from toolspan.runtime.tool import GRACE, PROCESS_GRACE, Tool, Toolset
from toolspan.types.events import Faulted, Finished, LiveEvent
from toolspan.types.ids import CallId
from toolspan.types.span import Result

Message = Mapping[str, object]
WATCH_INTERVAL = 0.1
"""The interval in seconds between two checks of the running calls."""
SINK_GRACE = 2.0
"""The time in seconds that slow sinks have when the runner exits."""


class Runner:
    """A runner for the calls in one conversation."""

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
        on_sink_fault: Callable[[Faulted], None] = lambda _: None,
        workspace: Workspace | None = None,
        recoveries: Sequence[Recovery] = (),
        by_path: bool = False,
        clock: Callable[[], float] = time.time,
        grace: float | None = None,
        hook_grace: float | None = None,
    ) -> None:
        """Create a runner.

        Args:
            tools: The tools that can be called.
            cwd: The folder in which the first call starts. Defaults to the current folder.
            profile: The client version to imitate. Defaults to the newest one.
            hooks: User code that runs around calls.
            policies: Functions that decide whether a call may run. Deny takes precedence over ask,
            and ask over allow.
            fallback: A policy for calls on which no other policy decides. Without it, they run.
            approver: The function that is asked when a policy returns `Ask`. Without it, such calls
            are refused.
            sinks: Receivers of every event, each in its own thread or task.
            direct: Receivers that are called with every event immediately, before the call continues.
            on_sink_fault: A function that gets the exceptions that sinks raise. It must not raise.
            workspace: The session's files and folders. Defaults to new ones.
            recoveries: Policies for failed calls. Defaults to none.
            by_path: Let calls that declare the files they access wait only for calls that access
            the same files.
            clock: A function that returns the time in seconds.
            grace: The seconds that checks, policies and approvers have to stop after being cancelled.
            hook_grace: The same for hooks.
        """
        folder = Path(cwd or Path.cwd()).absolute()
        workspace = workspace or new_workspace(folder)
        hooks = hooks or NoHooks()
        if not hooks.is_empty:
            hook_environment = HookEnvironment(
                project=workspace.project,
                supervisor=workspace.supervisor,
                session_folder=workspace.folder,
                cwd=lambda: self.context.cwd,
                env_vars=workspace.environment,
                session_id=workspace.session_id,
                agent_id=workspace.agent_id,
            )
            hooks = hooks.bind(hook_environment)
        self._recoveries = tuple(recoveries)
        self._by_path = by_path
        self._seen_ids: set[CallId] = set()
        self._open_batches: dict[Batch, bool] = {}  # True for a batch that uses the shared entry
        self._stack: AsyncExitStack | None = None
        self._task_set: TaskSet | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._closed_event: anyio.Event | None = None  # set when the context manager has exited
        self._shared_entry = _SharedEntry(self)
        """The entry for batches that are opened while the runner has not been entered."""
        self._emitter = Emitter(sinks, direct=direct, on_sink_fault=on_sink_fault, clock=clock)
        self.runner_context = RunnerContext(
            tools=tools if isinstance(tools, Toolset) else Toolset(tools),
            profile=profile or newest_profile(),
            workspace=workspace,
            call_context=CallContext(cwd=folder),
            hooks=hooks,
            policies=tuple(policies),
            fallback=fallback,
            approver=approver,
            emitter=self._emitter,
            clock=clock,
            grace=GRACE if grace is None else grace,
            hook_grace=PROCESS_GRACE if hook_grace is None else hook_grace,
        )

    # Entering and exiting

    async def __aenter__(self) -> Self:
        await self.open()
        if self._stack is not None:
            group = await self._stack.enter_async_context(anyio.create_task_group())
            self._stack.callback(group.cancel_scope.cancel)
            group.start_soon(self._cancel_with_host)
        return self

    async def open(self) -> None:
        """Enter the runner so that any task can exit it with `close`.

        Unlike in an `async with` block, calls that another or a shielded task is waiting for are not cancelled with
        the current task.

        Raises:
            ToolspanError: the runner is already entered, or asyncio does not run the current task.
        """
        if self._task_set is not None:
            raise ToolspanError("this runner is already entered; exit it before you enter it again")
        check_event_loop()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.runner_context.workspace.supervisor)
            # Closes the abandoned tasks of sinks; all other tasks are closed before.
            isolated_tasks, grace = self.runner_context.isolated_tasks, self.runner_context.grace
            stack.push_async_callback(isolated_tasks.close, grace, quiet=True)
            self._task_set = TaskSet()
            stack.push_async_callback(self._task_set.close)
            stack.push_async_callback(self._shut_down)
            self._emitter.start(self._task_set, isolated_tasks)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Exit a runner that was entered with `open`. Does nothing if it is not entered."""
        await self.__aexit__(None, None, None)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        stack, self._stack = self._stack, None
        if stack is None:
            return
        self._closed_event = anyio.Event()
        try:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                await stack.__aexit__(type(error), error, error.__traceback__)
            else:  # a task group would wrap an exception from the host in an exception group
                await stack.aclose()
        finally:
            self._closed_event.set()

    async def _shut_down(self) -> None:
        """Cancel everything that is still running and flush the sinks.

        Called by the exit stack, which ends the tasks and processes even if this is interrupted.
        """
        try:
            with anyio.CancelScope(shield=True):
                for batch in list(self._open_batches):
                    await batch.abandon()
                await self.runner_context.workspace.tasks.stop_all()
                await self.runner_context.isolated_tasks.close(self.runner_context.grace)
                await self._emitter.close(SINK_GRACE)
        finally:
            if self._watch_timer is not None:
                self._watch_timer.cancel()
                self._watch_timer = None
            self._task_set = None

    async def _cancel_with_host(self) -> None:
        """Cancel all calls when the host is cancelled, because they run in tasks outside its cancel scope."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancel(by="host")
            raise

    # Running

    async def run(self, calls: Message | Iterable[Message]) -> list[Result]:
        """Run the calls in a message and return their results in call order.

        A call whose id was accepted before is not run again and has no result here.

        Raises:
            BadCall: a block is not a call; no call was run.
        """
        finished = await self.finish(calls)
        return [call.span.result for call in finished if call.span.result is not None]

    async def finish(self, calls: Message | Iterable[Message]) -> list[Finished]:
        """Run the calls in a message and return each with its span, decision and hook messages.

        Raises:
            BadCall: a block is not a call; no call was run.
        """
        requests = [parse_tool_use(block) for block in tool_use_blocks(calls)]
        batch = await self._open_batch(calls if isinstance(calls, (dict, Mapping)) else None)
        try:
            for request in requests:
                pending = batch.accept(request)
                if pending is not None:
                    batch.enqueue(pending)
            return await batch.drain()
        finally:
            if self._open_batches.pop(batch):
                await self._shared_entry.leave_runner()

    @asynccontextmanager
    async def batch(self, message: Message | None = None) -> AsyncIterator[Batch]:
        """Open a batch. Calls can be added while the message is still streaming.

        Enters the runner if needed, and drains the batch at the end.
        """
        batch = await self._open_batch(message)
        try:
            try:
                yield batch
            except BaseException:
                await batch.abandon()
                raise
            await batch.drain()
        finally:
            if self._open_batches.pop(batch):
                await self._shared_entry.leave_runner()

    async def _open_batch(self, message: Message | None) -> Batch:
        """Return a new batch, and enter the runner if needed.

        The caller must remove the batch from `_open_batches`, and leave the shared entry if the batch uses it.
        """
        while self._closed_event is not None and not self._closed_event.is_set():
            await self._closed_event.wait()
        uses_shared_entry = self._task_set is None or self._shared_entry.holder_task is not None
        if uses_shared_entry:
            check_event_loop()
            await self._shared_entry.enter_runner()
        if self._task_set is None:
            await self._shared_entry.leave_runner()
            raise RuntimeError("the runner is not entered")
        batch = Batch(
            self.runner_context,
            self._task_set,
            message=message,
            by_path=self._by_path,
            recoveries=self._recoveries,
            seen_ids=self._seen_ids,
        )
        self._open_batches[batch] = uses_shared_entry
        if self._watch_timer is None:
            self._watch_calls()
        return batch

    def cancel(self, call_id: CallId | str | None = None, *, by: CancelSource = "user") -> None:
        """Cancel one call, or all running and waiting calls if `call_id` is None."""
        for batch in self._open_batches:
            batch.cancel(None if call_id is None else CallId(call_id), by=by)

    def _watch_calls(self) -> None:
        """Report slow calls periodically while a batch is open."""
        for batch in self._open_batches:
            batch.report_due_calls()
        loop = asyncio.get_running_loop()
        self._watch_timer = loop.call_later(WATCH_INTERVAL, self._watch_calls) if self._open_batches else None

    def start_soon(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a coroutine alongside the calls.

        It must not raise, and must end when `BackgroundTasks.stop_all` is called.
        """
        if self._task_set is None:
            raise RuntimeError("the runner is not entered")
        self._task_set.start_soon(work)

    def mark_seen(self, *call_ids: CallId) -> None:
        """Mark ids as accepted, so that no call with one of them is run."""
        self._seen_ids.update(call_ids)

    def forget_call(self, call_id: CallId) -> None:
        """Allow a call with this id to be accepted again, because it was deferred and has no result."""
        self._seen_ids.discard(call_id)

    # Settings and state

    def set_tools(self, tools: Toolset) -> None:
        """Replace the tools for calls that are accepted from now on."""
        self.runner_context.tools = tools

    def add_hooks(self, hooks: HookRunner) -> None:
        """Add hooks after the registered ones. They must already be bound."""
        self.runner_context.hooks = combine_hooks(self.runner_context.hooks, hooks)

    def set_approver(self, approver: Approver | None) -> None:
        """Replace the approver."""
        self.runner_context.approver = approver

    def set_permission_mode(self, mode: str) -> None:
        """Set the permission mode of the session."""
        self.runner_context.set_permission_mode(mode)

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that are running."""
        return frozenset().union(*(batch.in_progress for batch in self._open_batches))

    @property
    def context(self) -> CallContext:
        """The state in which the next call starts."""
        return self.runner_context.call_context

    @property
    def dropped(self) -> int:
        """The number of events that slow sinks missed."""
        return self._emitter.dropped

    def emit(self, event: LiveEvent) -> None:
        """Send an event to every sink. Never raises or blocks."""
        self._emitter.emit(event)

    def schemas(self, *, defer: bool = False) -> list[dict[str, object]]:
        """Return the schemas of the enabled tools for a Messages API request.

        With `defer`, tools that the profile defers are marked with `defer_loading`: the API shows
        them to the model only after ToolSearch has found them.
        """
        schemas = self.runner_context.tools.schemas()
        if defer and any(tool.finds_deferred for tool in self.runner_context.tools):
            for schema in schemas:
                if self.runner_context.profile.availability.is_deferred(str(schema["name"])):
                    schema["defer_loading"] = True
        return schemas


def tool_use_blocks(calls: Message | Iterable[Message]) -> list[Message]:
    """Return the `tool_use` blocks in a message or an iterable of blocks. SDK objects are converted.

    Raises:
        BadCall: `calls` is neither, or one of the blocks is not an object.
        TypeError: `calls` is a reply from an OpenAI API.
    """
    value = _to_builtins(calls)
    if isinstance(value, (dict, Mapping)):
        if value.get("type") == "tool_use":
            return [value]
        check_message_shape(value)
        content = value.get("content")
        if isinstance(content, str):
            return []
        if not isinstance(content, (list, Sequence)):
            raise BadCall("the content of an assistant message must be a string or a list of blocks")
        blocks = [_to_builtins(block) for block in content]
        return [b for b in blocks if isinstance(b, (dict, Mapping)) and b.get("type") == "tool_use"]
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise BadCall(f"calls must be a message or its tool_use blocks, not {type(value).__name__}")
    blocks = [_to_builtins(block) for block in value]
    for block in blocks:
        if not isinstance(block, Mapping):
            raise BadCall(f"a call must be a tool_use block, not {type(block).__name__}")
    return [block for block in blocks if isinstance(block, Mapping)]


_CHAT_KEYS = ("choices", "tool_calls", "function_call")
_RESPONSE_ITEMS = frozenset({"message", "function_call", "reasoning"})


def check_message_shape(message: Mapping[str, object]) -> None:
    """Reject a reply from another API, in which no calls would be found.

    Raises:
        ForeignReply: the reply comes from the chat completions API or the responses API.
    """
    if message.keys().isdisjoint((*_CHAT_KEYS, "output")):
        return
    chat_key = next((key for key in _CHAT_KEYS if message.get(key)), None)
    output = message.get("output")
    items = output if isinstance(output, list) else []
    is_response = any(isinstance(item, Mapping) and item.get("type") in _RESPONSE_ITEMS for item in items)
    if chat_key is not None or is_response:
        raise ForeignReply(
            f"this reply has {chat_key or 'output'!r}, so it comes from an OpenAI API, and a session needs a message of"
            " the Anthropic Messages API; let toolspan call the model, which translates both directions:"
            " `Agent(session, make_model('openai:MODEL'))` with the adapter `make_model` of `toolspan.session`"
        )


def _to_builtins(value: object) -> object:
    """Convert an SDK object to builtins, and return any other value unchanged."""
    if isinstance(value, dict) or not hasattr(value, "model_dump"):
        return value
    return value.model_dump(mode="json", exclude_none=True)


def check_event_loop() -> None:
    """Check that asyncio runs the current task.

    Raises:
        ToolspanError: another library, such as trio, runs it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ToolspanError(
            "sessions and runners need asyncio, and another event loop, such as trio, is running;"
            " start the program with asyncio.run() or anyio.run(..., backend='asyncio')"
        ) from None


def new_workspace(project: Path) -> Workspace:
    """Return a workspace for calls in `project`, with a scratch folder that is created when needed."""
    return Workspace(project=project, supervisor=ProcessSupervisor(), folder=scratch_folder())


class _SharedEntry:
    """An entry into a runner that several batches share, from the first to the last one."""

    def __init__(self, runner: AbstractAsyncContextManager[object]) -> None:
        self._runner = runner
        self._users = 0
        self.holder_task: asyncio.Task[None] | None = None
        """The task that enters and exits the runner, because a task group must be exited in the task
        that entered it. None if the runner was not entered through this object.
        """
        self._entered: asyncio.Future[None] | None = None
        self._no_users = asyncio.Event()

    async def enter_runner(self) -> None:
        """Enter the runner for the first user. Every call must be followed by `leave_runner`."""
        while self.holder_task is not None and self._no_users.is_set():  # the runner is exiting
            await asyncio.wait({self.holder_task})
        self._users += 1
        if self._entered is None:
            loop = asyncio.get_running_loop()
            self._no_users = asyncio.Event()
            self._entered = loop.create_future()
            self.holder_task = loop.create_task(self._hold_runner(self._entered))
        try:
            await asyncio.shield(self._entered)
        except BaseException:
            await self.leave_runner()
            raise

    async def leave_runner(self) -> None:
        """Remove one user, and exit the runner after the last one."""
        self._users -= 1
        holder = self.holder_task
        if self._users or holder is None:
            return
        self._no_users.set()
        await wait_uninterrupted(lambda: asyncio.wait({holder}), holder.done)
        holder.result()

    async def _hold_runner(self, entered: asyncio.Future[None]) -> None:
        try:
            async with self._runner:
                entered.set_result(None)
                await self._no_users.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)  # raised by `enter_runner`
        finally:
            self.holder_task = self._entered = None


# Scratch folders

_MAX_AGE_S = 7 * 24 * 3600.0
_SWEEP_INTERVAL_S = 3600.0  # the interval in seconds between two searches for old folders
_MAX_REMOVED = 500  # the maximum number of folders that one session removes
_SWEEP_MARKER = ".swept"
_SESSION_FOLDER_NAME = re.compile(r"[0-9a-f]{32}")


def scratch_folder() -> Path:
    """Return the path of a new folder for one session, without creating it."""
    name = uuid.uuid4().hex
    temp_folder = Path(tempfile.gettempdir()).absolute()
    user_folder = temp_folder / f"toolspan-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with suppress(OSError):  # reported by the first write
        if not _ensure_private(user_folder):
            return temp_folder / f"toolspan-{name}"  # a name that no other user could have taken
        _remove_old_folders(user_folder)
    return user_folder / name


def _ensure_private(user_folder: Path) -> bool:
    """Create a folder that only its owner can access. Return False if another user owns it or it is a link."""
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
    """Remove the folders of earlier sessions, at most once an hour.

    Raises:
        OSError: a folder cannot be read.
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
    """Return whether `entry` is a session folder that has not been written to since `limit`."""
    if not _SESSION_FOLDER_NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    if entry.stat(follow_symlinks=False).st_mtime >= limit:
        return False
    return all(
        Path(folder, name).lstat().st_mtime < limit
        for folder, folders, files in os.walk(entry.path)
        for name in (*folders, *files)
    )
