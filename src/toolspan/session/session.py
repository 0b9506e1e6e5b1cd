"""A session: one conversation whose calls are run and recorded.

    async with Session(tools=coding_tools(), permissions=Permissions(rules, mode="default")) as session:
        session.say("Why does the build fail?")
        while True:
            reply = await client.messages.create(messages=session.messages, tools=session.schemas(), ...)
            if not await session.run(reply):
                break

You call the model; `Session.run` runs the calls of its reply. The API always accepts `session.messages`, and the
client can resume the transcript. `agent.py` contains this loop.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, cast

import anyio

from toolspan.errors import ToolspanError
from toolspan.formats.evidence import read_workspace, unfinished_folders
from toolspan.runtime.batch import Batch
from toolspan.runtime.hooks.events import HookEffects, HookRunner, SessionHookEvent
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.runtime.pending_call import CancelSource, PendingCall, call_block, parse_tool_use
from toolspan.runtime.profiles.messages import INTERRUPT_NOTE
from toolspan.runtime.runner import check_event_loop
from toolspan.session.conversation import check_prompt, copy_messages, text_blocks
from toolspan.session.environment import (
    AgentOptions,
    SessionOptions,
    SessionSettings,
    SubagentInfo,
    log_rule_warnings,
)
from toolspan.session.leftovers import recover_calls
from toolspan.session.models.base import ModelEvent, ModelFailed
from toolspan.session.parts import ConversationArguments, build_parts, check_arguments
from toolspan.session.recording import (
    BackgroundNotice,
    Compaction,
    Interruption,
    Recorder,
    StoredTranscript,
    StoreTarget,
)
from toolspan.session.recording.entries import INTERRUPTED
from toolspan.session.reply import Reply, StreamedReply, accept_reply, normalize_reply
from toolspan.session.resume import DefaultLocation, find_resumed_file
from toolspan.session.storage import open_stored, record_workspace, resume_stored, wait_until_stored
from toolspan.session.workspace_digest import WorkspaceDigest, describe_difference
from toolspan.tools.files.atomic_replace import remove_stale_temporaries
from toolspan.types.events import Content, Faulted, Finished, LiveEvent, WriteFailed
from toolspan.types.span import Call, Span

if TYPE_CHECKING:
    from toolspan.integrations.settings_session import SettingsOptions
    from toolspan.session.agent import Agent

INTERRUPTED_BY_USER = "interrupted by the user"
_LOGGER = logging.getLogger("toolspan")
HookResultT = TypeVar("HookResultT")


class Session:
    """One conversation: its messages, its calls, and the transcript of both."""

    was_interrupted: bool
    """True if the last turn was interrupted."""
    failures: list[WriteFailed | Faulted]
    """Records that could not be written, and the first exception of each sink that raised."""
    stopped: str | None
    """The reason the last turn ended early: a hook, a refusal or an interruption."""
    feedback: tuple[str, ...]
    """Messages from hooks that make the model continue after the end of its turn."""
    end_reason: str
    """The reason passed to SessionEnd hooks."""
    notes: list[dict[str, object]]
    """The blocks that follow the last results, such as context from hooks and notifications."""
    spans: list[Span]
    """The calls that finished since the conversation began or was last compacted, in order of completion."""
    deferred_call: Call | None
    """The call that a hook deferred, which `run_deferred` runs."""
    stream_failure: ModelFailed | None
    """The error that ended the last streamed reply after some of its calls were complete."""
    recovered_results: dict[str, Content]
    """The results that interrupted calls got when this session was resumed, by call id."""
    hooks: HookRunner
    """The hooks before they are bound to this session."""

    settings: SessionSettings | None
    """The settings of a session made with `from_settings`."""

    def __init__(
        self,
        *,
        cwd: Path | str = ".",
        transcript: Path | str | DefaultLocation | Recorder | None = "home",
        store: StoreTarget | StoredTranscript | None = None,
        session_id: str | None = None,
        history: Sequence[Mapping[str, object]] = (),
        subagent: SubagentInfo | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        """Create a session. Nothing is written before the session is entered and gets a prompt.

        Args:
            cwd: The folder in which the first call runs.
            transcript: A file, `"home"` for the client's own folder, or None to record nothing. For a subagent,
                this is its recorder. A transcript with content is continued.
            store: A store that keeps the session instead of a file: one of `open_store`, its URL, or any other store
                of the Agent SDK's interface.
            session_id: The id, by default that of the continued transcript or a new one.
            history: Earlier messages, by default those in the transcript.
            subagent: The position of the session, if another session started it.
            options: Tools, permissions, hooks, sandbox and everything else; see `SessionOptions`.

        Raises:
            ToolspanError: the folder does not exist, the id cannot be a file name, or the transcript cannot be
                continued.
            TypeError, ValueError: an argument is not of its type.
            InUse: another process, or another session in this process, is writing to the transcript. For a new
                transcript, this is raised when the session is entered.
        """
        self.failures, self.notes, self.spans, self.recovered_results = [], [], [], {}
        self.stopped = self.deferred_call = self.stream_failure = self.settings = None
        self.feedback, self.end_reason = (), "other"
        self._streamed_reply: StreamedReply | None = None
        self._hook_scope: anyio.CancelScope | None = None
        self.was_interrupted = self._is_open = self._is_closed = False
        conversation = ConversationArguments(transcript, store, session_id, history)
        setup = check_arguments(cwd, conversation, subagent, options)
        parts = build_parts(setup, self)
        self.session_id, self.profile, self.hooks = setup.start.session_id, setup.profile, setup.hooks
        self.recorder = parts.recorder
        self.conversation = parts.conversation
        self.hook_environment = parts.hook_environment
        self.skills = parts.skills
        self.runner = parts.runner
        self.notifications = parts.notifications
        self._session_hooks = parts.session_hooks
        self._own_sandbox = parts.own_sandbox
        self._stored, self._workspace_digest = setup.stored, WorkspaceDigest(setup.folder)
        self._subagent, self._leftovers = subagent, setup.leftovers
        log_rule_warnings(options.get("permissions"), self.runner.runner_context.tools)

    @classmethod
    def resume(
        cls,
        cwd: Path | str = ".",
        *,
        session: str | None = None,
        store: StoreTarget | None = None,
        **options: Unpack[SessionOptions],
    ) -> Self:
        """Continue the newest session in a folder, or the one whose id begins with `session`.

        A session in a `store` is taken over from a host that has died or closed it.

        A folder without sessions gets a new one, unless `session` is set. No call is run again: an
        interrupted call gets a result with the available evidence.

        Raises:
            NotFound: no session has that id.
            Ambiguous: several sessions have that id prefix.
            SourceError: the transcript cannot be read.
            ToolspanError: its conversation cannot be continued.
            InUse: another host is running the session.
            StoreUnavailable: the store cannot be reached.
        """
        folder = Path(cwd).expanduser().resolve()
        if store is not None:
            return cls(cwd=folder, store=resume_stored(store, session, folder, options), **options)
        path = find_resumed_file(session, folder)
        if path is None:
            return cls(cwd=folder, **options)
        return cls(cwd=folder, transcript=path, session_id=path.stem, **options)

    @classmethod
    async def resume_async(
        cls,
        cwd: Path | str = ".",
        *,
        session: str | None = None,
        store: StoreTarget | None = None,
        **options: Unpack[SessionOptions],
    ) -> Self:
        """Do the same as `resume` in a thread, for programs that do other things meanwhile: a store may be far away."""
        is_wanted = True

        def resume(cls: type[Self]) -> Self:
            resumed = cls.resume(cwd, session=session, store=store, **options)
            if not is_wanted and resumed._stored is not None:
                resumed._stored.close()  # so that the session is free at once
            return resumed

        try:
            return await asyncio.to_thread(resume, cls)
        except asyncio.CancelledError:
            is_wanted = False
            raise

    @classmethod
    def from_settings(cls, cwd: Path | str = ".", **options: Unpack[SettingsOptions]) -> Self:
        """Create a session as `toolspan run` does, from the settings of the user and of a folder.

        It has their rules, hooks, environment, sandbox, MCP servers and skills. What a folder brings is used only if
        the user trusts it. Servers and the sandbox start when the session is entered, and end with it. Problems are
        logged as warnings of the logger `toolspan`, or passed to `warn`. See `SettingsOptions`.

        Raises:
            ToolspanError: the settings are invalid or forbid an option, or the session cannot be resumed.
        """
        from toolspan.integrations.settings_session import build_session

        return build_session(cls, cwd, options)

    def make_agent(self, **options: Unpack[AgentOptions]) -> Agent:
        """Return the agent of a session made with `from_settings`: with its model, instructions and subagents.

        Raises:
            ToolspanError: the session has no settings or no model; use `Agent(session, model)`.
        """
        if self.settings is None:
            raise ToolspanError("this session was not made with `Session.from_settings`; use `Agent(session, model)`")
        return self.settings.make_agent(self, options)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def open(self) -> Self:
        """Enter the session, as `async with` does. In a notebook, where each cell is a task, end it with `close`."""
        check_event_loop()
        if self._is_open:
            raise ToolspanError("this session is already entered; close it before you enter it again")
        if self.recorder is not None:
            self.recorder.claim()
        if self._subagent is None:  # remove temporary files that killed sessions have left here or where they wrote
            folders = [] if self.recorder is None else unfinished_folders(self.recorder.path)
            for folder in dict.fromkeys([self.cwd, *folders]):
                remove_stale_temporaries(folder)
        try:
            if self._stored is not None:
                await open_stored(self._stored, self.handle_store_problem, self.interrupt)
            if self.recorder is not None and self._subagent is None and not self._is_closed:
                await self._recover_calls(self.recorder)
            if self._own_sandbox is not None:
                self._own_sandbox.open()
            if self.settings is not None:
                await self.settings.open(self)
            await self.runner.open()
            self._is_open, self._is_closed = True, False
            try:
                await wait_until_stored(self._stored, self.recorder)
                await self._session_hooks.fire_session_start("resume" if self.conversation.messages else "startup")
            except BaseException as error:
                self._is_open = False
                await self.runner.__aexit__(type(error), error, error.__traceback__)
                raise
        except BaseException:
            await self._close_services()
            raise
        return self

    async def _close_services(self) -> None:
        """Close everything that calls use: MCP servers, the sandbox, the transcript and the store."""
        if self.settings is not None:
            await self.settings.close()
        if self._own_sandbox is not None:
            await self._own_sandbox.close()
        await record_workspace(self._stored, self.recorder, self._workspace_digest)
        if self.recorder is not None:
            self.recorder.close()
        if self._stored is not None:
            await asyncio.to_thread(self._stored.close)

    async def _recover_calls(self, recorder: Recorder) -> None:
        """Record a result for each call that a killed session has left without one."""
        recovered = await recover_calls(recorder, self.conversation.messages, self._leftovers)
        self.recovered_results = recovered.results
        if self._stored is not None:
            digest = await asyncio.to_thread(self._workspace_digest.compute)
            if (difference := describe_difference(read_workspace(recorder.path), digest)) is not None:
                self.notifications.pending.append(difference)
        self.notifications.pending.extend(recovered.notices)

    async def close(self) -> None:
        """End the session, as leaving its `async with` block does. Any task may call this, any number of times."""
        await self.__aexit__(None, None, None)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._is_open:
            return
        self._is_open, self._is_closed = False, True
        try:
            await self._session_hooks.fire_session_end(self.end_reason)
        finally:
            try:
                await self.runner.__aexit__(kind, error, trace)
            finally:
                await self._close_services()
                if self.recorder is None and self._subagent is None:  # nothing refers to its output files any more
                    shutil.rmtree(self.runner.runner_context.workspace.folder, ignore_errors=True)

    def describe_sandbox(self) -> dict[str, str]:
        """Return `{"sandbox": …}` with a description for users, or an empty dict if commands run without a sandbox."""
        sandbox = self.runner.runner_context.workspace.sandbox
        return {} if sandbox is None else {"sandbox": sandbox.description}

    @property
    def messages(self) -> list[dict[str, object]]:
        """A copy of the messages, suitable for a Messages API request."""
        return self.messages_since(0)

    def messages_since(self, first: int) -> list[dict[str, object]]:
        """Return a copy of the messages starting at index `first`, which may be negative."""
        return copy_messages(self.conversation.messages[first:])

    @property
    def transcript(self) -> Path | None:
        """The transcript file, or None if the session is not recorded."""
        return self.recorder.path if self.recorder else None

    @property
    def permission_mode(self) -> str:
        """The current permission mode, which a call may have changed."""
        return self.hook_environment.permission_mode()

    @property
    def cwd(self) -> Path:
        """The folder in which the next call runs."""
        return self.runner.context.cwd

    def schemas(self, *, defer: bool = False) -> list[dict[str, object]]:
        """Return the tools for a Messages API request. See `Runner.schemas`."""
        return self.runner.schemas(defer=defer)

    @property
    def is_busy(self) -> bool:
        """True if calls, a streaming reply or hooks outside calls are running."""
        return bool(self._streamed_reply or self._hook_scope or self.runner.in_progress)

    # Prompts

    def say(self, content: Content) -> None:
        """Add a prompt, given as a string or a list of content blocks.

        During `run`, the prompt is held until the calls have their results; then `run` returns True.

        Raises:
            ValueError: the API would not accept the prompt.
            ToolspanError: the session has hooks for prompts (use `submit` instead), or a call was deferred.
        """
        if self._session_hooks.has_handlers("UserPromptSubmit"):
            raise ToolspanError("this session has hooks for prompts; use `await session.submit(...)` instead of `say`")
        self._begin_turn(content)
        self._add_prompt(content)

    async def submit(self, content: Content) -> bool:
        """Run the hooks for a prompt and add it. Return False if a hook refused it.

        The prompt is also dropped if the hooks are interrupted.

        Raises:
            ValueError: the API would not accept the prompt.
            ToolspanError: a call was deferred.
        """
        self._begin_turn(content)
        if self._session_hooks.has_wake_request:
            await self.notifications.collect_hook_texts()
            self._session_hooks.reset_wake_count()
        if not self._session_hooks.has_handlers("UserPromptSubmit"):
            self._add_prompt(content)
            return True
        review = await self._unless_interrupted(self._session_hooks.review_prompt(content))
        if review is None:
            return False
        if review.refusal is not None:
            self.stopped = review.refusal
            if self.recorder is not None:
                review.record_refusal(content, self.recorder)
            return False
        blocks = self._add_prompt(content)
        blocks += text_blocks(review.accept())
        return True

    def _begin_turn(self, content: Content) -> None:
        """Check a prompt and start its turn. A prompt sent during a reply belongs to the current turn."""
        check_prompt(content)
        if self.deferred_call is not None:
            raise ToolspanError("a hook deferred a call: run `await session.run_deferred()` first")
        self._session_hooks.reset_wake_count()
        if not self.conversation.is_reply_pending:
            self.was_interrupted = False
            self._set_prompt_id()

    def _set_prompt_id(self) -> None:
        # The turns of a subagent belong to the turn that started it.
        self.hook_environment.prompt_id = (self._subagent and self._subagent.prompt_id) or str(uuid.uuid4())
        context = self.runner.runner_context  # what a skill grants ends with the turn that launched it
        context.call_context = replace(context.call_context, granted_rules=())

    def _add_prompt(self, content: Content) -> list[dict[str, object]]:
        contexts: list[str] = []
        if not self.conversation.is_reply_pending:
            self.stopped = None
            contexts = [*self._session_hooks.take_start_contexts(), *self.notifications.take_texts()]
        return self.conversation.add_prompt(content, contexts, self.hook_environment.prompt_id)

    # Replies

    async def run(self, reply: Reply | AsyncIterable[ModelEvent]) -> bool:
        """Run the calls in a reply. Return True if the model must be called again.

        When this returns, the results are in `messages` and in the transcript, even after an
        interruption. False means that the turn is over: the reply had no calls, or `stopped`
        contains the reason. Calls of a streamed reply start while it streams, if the profile's
        client does that.

        Raises:
            BadCall: the reply is not an assistant message, or contains a malformed call.
            ForeignReply: the reply comes from an OpenAI API; `make_model("openai:NAME")` translates it.
            ModelFailed: the stream failed before any call was complete; the reply is dropped.
            LeaseLost: another host has taken over the session, whose running calls were stopped here.
            ToolspanError: the calls of the previous reply are still running, or the session is closed.
        """
        if self._stored is not None:
            self._stored.check_lease()
        try:
            must_continue = await self._run_reply(reply)
            if not must_continue:
                await record_workspace(self._stored, self.recorder, self._workspace_digest)
            return must_continue
        finally:
            await wait_until_stored(self._stored, self.recorder)

    async def _run_reply(self, reply: Reply | AsyncIterable[ModelEvent]) -> bool:
        if self._is_closed:
            raise ToolspanError("this session is closed; `Session.resume` continues its transcript")
        if self.conversation.is_reply_pending:
            raise ToolspanError("the previous reply still has unanswered tool calls")
        self.was_interrupted, self.feedback, self.notes, self.stream_failure = False, (), [], None
        if not isinstance(reply, dict) and isinstance(reply, AsyncIterable):
            return await self._run_stream(reply)
        message = normalize_reply(reply)
        async with self.runner.batch(message) as batch:
            blocks, pending_calls, repeated_ids = accept_reply(message, batch)
            self.conversation.add_reply(blocks, message)
            if repeated_ids and not pending_calls:
                self.stopped = f"no call was run: the id {repeated_ids[0]} was used before in this conversation"
                return False
            if not pending_calls:
                return message.get("stop_reason") == "pause_turn" or await self._end_turn(message)
            return await self._run_pending_calls(batch, pending_calls)

    async def run_deferred(self) -> bool:
        """Run the hooks for the deferred call again, and run the call if they allow it.

        Raises:
            ToolspanError: no call was deferred.
        """
        if self.deferred_call is None:
            raise ToolspanError("there is no deferred call")
        call = parse_tool_use(call_block(self.deferred_call))
        self.deferred_call = self.stopped = None
        self.runner.forget_call(call.id)
        try:
            async with self.runner.batch(self.conversation.last_reply or None) as batch:
                pending_call = batch.accept(call)
                return pending_call is not None and await self._run_pending_calls(batch, (pending_call,))
        finally:
            await wait_until_stored(self._stored, self.recorder)

    async def _run_pending_calls(self, batch: Batch, pending_calls: Iterable[PendingCall]) -> bool:
        self.conversation.is_reply_pending = True
        try:
            for pending_call in pending_calls:
                batch.enqueue(pending_call)
            await batch.drain()
        finally:
            self._add_results(batch)
        return self.stopped is None

    async def _run_stream(self, events: AsyncIterable[ModelEvent]) -> bool:
        self._streamed_reply = reply = StreamedReply(self.runner, self.conversation)
        self.conversation.is_reply_pending = True
        has_prompt = False
        try:
            await reply.run(events)
        finally:
            self._streamed_reply = None
            self.conversation.add_reply(reply.partial.blocks)
            if reply.batch is not None:
                has_prompt = self._add_results(reply.batch)
            else:
                if self.was_interrupted:
                    self.stopped = INTERRUPTED_BY_USER
                    self.conversation.add_user_texts([INTERRUPTED])
                    self.conversation.record(Interruption(during_tool_use=False))
                has_prompt = self.conversation.release_prompts()
        self.stream_failure = reply.failure
        if reply.partial.has_calls:
            return self.stopped is None
        if self.was_interrupted:
            return False
        message = {**reply.partial.head, "content": reply.partial.blocks}
        if message["stop_reason"] == "pause_turn" or await self._end_turn(message):
            return True
        return has_prompt and self.stopped is None

    def _add_results(self, batch: Batch) -> bool:
        """Add a batch's results as one user message, and return whether held prompts followed."""
        for pending_call in batch.calls.values():
            if pending_call.recovers is not None:  # the calls of recovery policies belong to the reply
                cast("list[object]", self.conversation.messages[-1]["content"]).append(call_block(pending_call.call))
        results = batch.results
        if batch.stop is not None:
            for finished in results:
                if finished.span.deferred:
                    self.deferred_call = finished.span.call
            results = [finished for finished in results if not finished.span.deferred]
        self.notes = self.take_notices(batch)
        self.stopped = INTERRUPTED_BY_USER if self.was_interrupted else batch.stop
        note = INTERRUPT_NOTE if self.was_interrupted else None
        self.conversation.add_results(results, self.notes, note)
        return self.deferred_call is None and self.conversation.release_prompts()

    async def _end_turn(self, message: dict[str, object]) -> bool:
        """Run the hooks at the end of a turn, and return whether the model must continue."""
        if message.get("role", "assistant") != "assistant":
            return False
        turn_end = await self._unless_interrupted(self._session_hooks.fire_turn_end(message))
        if turn_end is None:
            return False
        if turn_end.stop is not None:
            self.stopped = turn_end.stop
        self.feedback = turn_end.feedback or turn_end.notifications
        if self.feedback:
            for text in turn_end.notifications:
                self.conversation.record(BackgroundNotice(text))
            self.conversation.add_user_texts(self.feedback)
        return bool(self.feedback)

    async def _unless_interrupted(self, hooks: Awaitable[HookResultT]) -> HookResultT | None:
        """Return the hooks' result, or None if an interruption cancelled them and ended the turn."""
        try:
            with anyio.CancelScope() as self._hook_scope:
                return await hooks
        finally:
            self._hook_scope = None
        self.stopped = INTERRUPTED_BY_USER
        return None

    def interrupt(self, *, by: CancelSource = "user") -> None:
        """End the turn. Running and waiting calls still get a result.

        A streaming reply is cut off and its text is kept. Hooks for a prompt or the end of the turn
        are cancelled as well.
        """
        if self.is_busy:
            self.was_interrupted = True
        if self._streamed_reply is not None:
            self._streamed_reply.interrupt()
        if self._hook_scope is not None:
            self._hook_scope.cancel()
        self.runner.cancel(by=by)

    async def compact(self, compaction: Compaction) -> None:
        """Replace the conversation with a summary and run the SessionStart hooks."""
        self.conversation.record(compaction)
        await self._session_hooks.fire_session_start("compact")
        self.conversation.messages = []
        self.conversation.add_user_texts([compaction.summary, *self._session_hooks.take_start_contexts()])
        self.spans.clear()

    # Hooks

    async def fire_hook_event(self, event: SessionHookEvent) -> HookEffects:
        """Run the hooks for an event reported by the host: a notification, a subagent or a compaction."""
        return await self._session_hooks.fire_event(event)

    def add_hooks(self, hooks: HookRunner) -> None:
        """Add hooks to this session and to subagents started later."""
        self.hooks = combine_hooks(self.hooks, hooks)
        self.runner.add_hooks(hooks.bind(self.hook_environment))

    # Notifications

    def take_notices(self, batch: Batch) -> list[dict[str, object]]:
        """Return the blocks that follow a batch's results: context from hooks, and notifications."""
        self.notifications.pending.extend(batch.effects.wake_messages)
        contexts = [f"PostToolBatch hook additional context: {text}" for text in batch.effects.contexts]
        return text_blocks(contexts + self.notifications.take_texts())

    def begin_notification_turn(self) -> bool:
        """Start a turn with the pending notifications. Return False if there are none."""
        if not (texts := self.notifications.take_texts(as_prompts=True)):
            return False
        self._set_prompt_id()
        self.stopped = None
        self.conversation.add_user_texts(texts)
        for text in texts:
            if self.recorder is not None:
                self.recorder.record_prompt(text, prompt_id=self.hook_environment.prompt_id, is_notification=True)
        return True

    async def wait_for_wake(self) -> bool:
        """Wait until an asynchronous hook wakes the model, and start a turn.

        Return False if no such hook is left or a call was deferred.
        """
        if self.deferred_call is not None:
            return False
        return await self.notifications.collect_hook_texts() and self.begin_notification_turn()

    async def wait_for_notifications(self) -> bool:
        """Wait for background agents and asynchronous hooks, and start a turn with their notifications.

        Return False if there was nothing to wait for, or if the wait produced no notification.
        """
        while not self.begin_notification_turn():
            if not self.notifications.has_running_agents:
                return await self.wait_for_wake()
            await self.notifications.wait_for_next()
        return True

    # Callbacks of the parts; see `SessionCallbacks`

    def handle_event(self, event: LiveEvent) -> None:
        """Record an event of a call."""
        if isinstance(event, Finished):
            self.spans.append(event.span)
        if self.recorder is not None:
            self.recorder.handle(event)

    def handle_sink_fault(self, fault: Faulted) -> None:
        """Keep the first exception of each sink."""
        if all(failure.where != fault.where for failure in self.failures if isinstance(failure, Faulted)):
            self.failures.append(fault)

    def handle_store_problem(self, reason: str) -> None:
        """Keep, log and report that the store has begun to fail, or that the lease was lost."""
        assert self._stored is not None
        at = self.runner.runner_context.clock()
        url = self._stored.store.url
        self.handle_write_failure(WriteFailed(path=url, reason=reason.removeprefix(f"{url}: "), at=at))

    def handle_write_failure(self, failure: WriteFailed) -> None:
        """Keep and report a record that could not be written. Without a store, only the first one is logged."""
        if self._stored is not None:
            _LOGGER.warning("%s: %s", failure.path, failure.reason)
        elif not any(isinstance(earlier, WriteFailed) for earlier in self.failures):
            _LOGGER.warning("the transcript is incomplete, so that the session cannot be resumed: %s", failure.reason)
        self.failures.append(failure)
        self.runner.emit(failure)
