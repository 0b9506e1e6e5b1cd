"""A session: the conversation, live.

    async with Session(cwd=".", tools=coding_tools()) as session:
        session.say("Why does the build fail?")
        while True:
            reply = await client.messages.create(..., messages=session.messages)
            if not await session.run(reply):
                break

In: prompts and replies, whole or as they stream. Out: `messages`, always a history that a server
takes, and a transcript on disk that the client can resume. The model is the caller's; `run` says
whether it is its turn again. `agent.py` has the loop above, whole.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

import anyio

from toolspan.errors import ToolspanError
from toolspan.runtime.batch import Batch, Recovery
from toolspan.runtime.hooks.events import HookEffects, HookRunner, NoHooks, SessionHookEvent
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.runtime.pending_call import CancelSource, PendingCall, call_block, parse_tool_use
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.profiles import Profile
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.sinks import FilteredSink, Sink
from toolspan.runtime.tool import Tool
from toolspan.session.conversation import Conversation, check_prompt, copy_messages, result_blocks, text_blocks
from toolspan.session.models.base import ModelEvent, ModelFailed, Retrying
from toolspan.session.models.blocks import iter_call_ids
from toolspan.session.notifications import EventRecorder, NotificationQueue
from toolspan.session.recording import Compaction, Fsync, Recorder, RecorderConfig
from toolspan.session.reply import PartialReply, Reply, StreamedReply, accept_reply, normalize_reply
from toolspan.session.session_hooks import SessionHooks, SkillHookLoader, SubagentInfo
from toolspan.session.setup import DefaultLocation, make_hook_environment, make_workspace, open_recorder, resolve_start
from toolspan.tools import coding_tools
from toolspan.types.events import Content, Finished, HookRan, LiveEvent, Requested, WriteFailed
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Span

HookResultT = TypeVar("HookResultT")
INTERRUPTED_BY_USER = "interrupted by the user"
OnBlock = Callable[[Mapping[str, object], Mapping[str, object]], None]
"""Is told of each block of a reply that counts, with its message; before it is started. Must not
raise."""


class Session:
    """One conversation: what was said, which calls ran, and the transcript of both."""

    def __init__(
        self,
        *,
        cwd: Path | str = ".",
        tools: Iterable[Tool] | None = None,
        profile: Profile | str | None = None,
        model: str | None = None,
        hooks: HookRunner | None = None,
        policies: Sequence[Policy] = (),
        fallback: Policy | None = None,
        approver: Approver | None = None,
        sinks: Iterable[Sink] = (),
        direct: Iterable[Sink] = (),
        recoveries: Sequence[Recovery] = (),
        by_path: bool = False,
        transcript: Path | str | DefaultLocation | Recorder | None = "home",
        session_id: str | None = None,
        history: Sequence[Mapping[str, object]] = (),
        subagent: SubagentInfo | None = None,
        permission_mode: str = "default",
        fsync: Fsync = "never",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a session; nothing is opened or written before it is entered and spoken to.

        Args:
            cwd: The folder it works in.
            tools: What the model may call; else the tools of the profile's client version.
            profile: The client version that is followed, or its name; else the newest.
            model: The model's name, where tools and texts depend on it.
            hooks: User code around calls and turns.
            policies: Have opinions on whether a call may run: deny wins over ask, ask over allow.
            fallback: Decides where none has an opinion; without it such calls run.
            approver: Answers what has to be asked; without one the answer is no.
            sinks: Get every event in their own time.
            direct: Get every event at once, before the call goes on.
            recoveries: What is tried when a call fails; nothing unless it is named here.
            by_path: Calls that name the files they touch wait only for those of the same files.
            transcript: A file; `"home"` for the place where the client keeps its sessions; a
                recorder that is made already (a subagent's); or None for no record. With a
                transcript that is there, the conversation in it goes on.
            session_id: Its id; else that of the transcript that goes on, or a new one.
            history: What was said before; else what the transcript says (`past.py` reads it).
            aside: Names a session that another one has started (`subagents/`).
            permission_mode: What hooks and the record are told of the mode.
            fsync: Which lines are forced to the disk: `never`, `results`, `always`.
            clock: Tells the time in seconds.

        Raises:
            ToolspanError: the id names no file in one folder; or the file that is named cannot be
                read, holds no conversation that could go on, or something else (`UnknownDialect`).
            InUse: another process records to it.
        """
        folder = Path(cwd).expanduser().resolve()
        self.profile = _resolve_profile(profile, model)
        start = resolve_start(transcript, session_id, folder, history)
        self.session_id = start.session_id
        self.failures: list[WriteFailed] = []
        """Lines that could not be written."""
        self.stopped: str | None = None
        """Why the last turn ended early: a hook, a refusal, an interruption."""
        self.feedback: tuple[str, ...] = ()
        """What hooks want the model to go on with, though its turn seemed over."""
        self.end_reason = "other"
        """What hooks at the session's end are told."""
        self.notes: list[dict[str, object]] = []
        """What the model reads beside the last results: words of hooks on all of them, news."""
        self.spans: list[Span] = []
        """The calls that ended since the conversation began, or was last cut, in this order.
        They hold what went in and came out, so they go with the messages."""
        self.deferred_call: Call | None = None
        """The call that a hook put off; `run_deferred` comes back to it."""
        self.stream_failure: ModelFailed | None = None
        """Why the last reply broke off after some of its calls."""
        self.on_block: OnBlock = _ignore_block
        self._streamed_reply: StreamedReply | None = None
        """The reply that streams now."""
        self._interrupted = False
        self._hook_scope: anyio.CancelScope | None = None
        """Around hooks that are about no call, while somebody can interrupt them."""
        self._subagent = subagent
        recorder_config = RecorderConfig(
            profile=self.profile,
            session_id=self.session_id,
            cwd=folder,
            permission_mode=permission_mode,
            fsync=fsync,
            clock=clock,
        )
        self._recorder = open_recorder(start, recorder_config, self._write_failed)
        self._conversation = Conversation(start.history, self._recorder)
        self._event_recorder = None if self._recorder is None else EventRecorder(self._recorder, folder)
        if tools is None:
            tools = coding_tools(self.profile, person=approver is not None)
        workspace = make_workspace(folder, self._recorder, subagent, self._has_effects)
        workspace.session_id, workspace.model = self.session_id, model
        self._hook_environment = make_hook_environment(
            workspace, self._recorder, subagent, permission_mode, lambda: self.runner.context
        )
        self.hooks: HookRunner = hooks or NoHooks()
        """The handlers, as they were given: a subagent has the same."""
        self.skills = SkillHookLoader(self.add_hooks)
        """The handlers that skills bring along."""
        workspace.adopt_hooks = self.skills.load_skill_hooks
        hook_runner = self.hooks.bind(self._hook_environment)
        recorded_events = (Finished, HookRan, Requested) if recoveries else (Finished, HookRan)
        self.runner = Runner(
            tools,
            cwd=folder,
            profile=self.profile,
            hooks=hook_runner,
            policies=policies,
            fallback=fallback,
            approver=approver,
            sinks=sinks,
            direct=(FilteredSink(self._handle_event, recorded_events), *direct),
            workspace=workspace,
            recoveries=recoveries,
            by_path=by_path,
            clock=clock,
        )
        for call_id in iter_call_ids(self._conversation.messages):
            self.runner.mark_seen(CallId(call_id))
        self._session_hooks = SessionHooks(self.runner.runner_context, self._recorder, subagent)
        self.notifications = NotificationQueue(workspace.tasks, self.profile, self._session_hooks.wait_for_wake)
        """What the model has not heard yet."""

    async def __aenter__(self) -> Self:
        await self.runner.__aenter__()
        try:
            await self._session_hooks.fire_session_start("resume" if self._conversation.messages else "startup")
        except BaseException as error:
            await self.runner.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._session_hooks.fire_session_end(self.end_reason)
        finally:
            try:
                await self.runner.__aexit__(kind, error, trace)
            finally:
                if self._recorder is not None:
                    self._recorder.close()

    # The conversation

    @property
    def messages(self) -> list[dict[str, object]]:
        """The history as a Messages API request takes it; a copy, so that it can be changed."""
        return self.messages_since(0)

    def messages_since(self, first: int) -> list[dict[str, object]]:
        """The messages from one on, as in `messages`; from the end when it is negative."""
        return copy_messages(self._conversation.messages[first:])

    @property
    def message_count(self) -> int:
        """How many messages there are."""
        return len(self._conversation.messages)

    @property
    def transcript(self) -> Path | None:
        """The file it is recorded in; None when it is not recorded."""
        return self._recorder.path if self._recorder else None

    @property
    def main_transcript(self) -> Path | None:
        """The file of the main conversation: for a subagent, that of the session it is part of."""
        return self._hook_environment.transcript_path

    @property
    def permission_mode(self) -> str:
        """What happens to calls nobody speaks of, in one word."""
        return self._hook_environment.permission_mode()

    def child_recorder(self, agent_id: str, metadata: Mapping[str, object]) -> Recorder | None:
        """The recorder of a subagent of this session; None when nothing is recorded."""
        return self._recorder.subagent_recorder(agent_id, metadata) if self._recorder is not None else None

    @property
    def cwd(self) -> Path:
        """The folder the next call starts in."""
        return self.runner.context.cwd

    def schemas(self, *, defer: bool = False) -> list[dict[str, object]]:
        """The tools as a Messages API request offers them; see `Runner.schemas`."""
        return self.runner.schemas(defer=defer)

    def say(self, content: Content) -> None:
        """A person speaks: a text, or a list of blocks.

        Words that come while `run` is under way are put behind the results of its calls; then it
        is the model's turn again.

        Raises:
            ValueError: no server would take it.
            ToolspanError: there are hooks for prompts, which `submit` waits for; or a call was put
                off, which `run_deferred` comes back to.
        """
        if self._session_hooks.has_handlers("UserPromptSubmit"):
            raise ToolspanError("hooks want to see prompts first: use `await session.submit(...)`")
        self._check_prompt(content)
        self._begin_turn()
        self._add_prompt(content)

    async def submit(self, content: Content) -> bool:
        """As `say`, after the hooks for prompts; False when one of them took the prompt away.

        It is taken away too when somebody interrupts the hooks.

        Raises:
            ValueError: no server would take it.
            ToolspanError: a call was put off, which `run_deferred` comes back to.
        """
        self._check_prompt(content)
        self._begin_turn()
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
            if self._recorder is not None:
                review.record_refusal(content, self._recorder)
            return False
        blocks = self._add_prompt(content)
        blocks += text_blocks(review.accept())
        return True

    def _begin_turn(self) -> None:
        """Somebody speaks; while a reply is under way, that is within its turn."""
        self._session_hooks.reset_wake_count()
        if not self._conversation.is_reply_pending:
            self._interrupted = False
            self._hook_environment.prompt_id = self._new_prompt_id()

    def _new_prompt_id(self) -> str:
        """A subagent's words belong to the turn in which it was started."""
        return (self._subagent and self._subagent.prompt_id) or str(uuid.uuid4())

    @property
    def prompt_id(self) -> str | None:
        """The turn it is in."""
        return self._hook_environment.prompt_id

    def _check_prompt(self, content: Content) -> None:
        check_prompt(content)
        if self.deferred_call is not None:
            raise ToolspanError("a hook put a call off: `await session.run_deferred()` first")

    def _add_prompt(self, content: Content) -> list[dict[str, object]]:
        """The prompt as blocks in the conversation, now or when a reply has its results."""
        if self._conversation.is_reply_pending:
            return self._conversation.add_prompt(content, (), self._hook_environment.prompt_id)
        self.stopped = None
        contexts = [*self._session_hooks.take_start_contexts(), *self._take_notifications()]
        return self._conversation.add_prompt(content, contexts, self._hook_environment.prompt_id)

    async def run(self, reply: Reply | AsyncIterable[ModelEvent]) -> bool:
        """Take in the model's reply and run its calls; True when it is the model's turn again.

        The calls have their results in `messages` and on disk when this returns, also when it was
        interrupted. False means that the turn is over: no calls were asked for, or `stopped` says
        why. Calls of a reply that streams are started while it does, where the profile says so.

        Raises:
            BadCall: the reply is no assistant message, or holds a block that cannot be answered.
            ModelFailed: the stream broke off before any call was complete; nothing of it counts.
            ToolspanError: calls of the reply before have no results yet.
        """
        if self._conversation.is_reply_pending:
            raise ToolspanError("calls of the reply before have no results yet")
        self._interrupted = False
        self.feedback = ()
        self.notes = []
        self.stream_failure = None
        if not isinstance(reply, dict) and isinstance(reply, AsyncIterable):
            return await self._run_stream(reply)
        message = normalize_reply(reply)
        async with self.runner.batch(message) as batch:
            accepted = accept_reply(message, batch)
            self._conversation.add_reply(message, accepted.blocks)
            if not accepted.pending_calls:
                return message.get("stop_reason") == "pause_turn" or await self._end_turn(message)
            return await self._run_pending_calls(batch, accepted.pending_calls)

    async def _run_pending_calls(self, batch: Batch, pending_calls: Iterable[PendingCall]) -> bool:
        self._conversation.hold_prompts()
        try:
            for pending_call in pending_calls:
                batch.enqueue(pending_call)
            await batch.drain()
        finally:
            self._add_results(batch)
        return self.stopped is None

    async def run_deferred(self) -> bool:
        """Ask the hooks again about the call that was put off, and run it if they agree.

        Raises:
            ToolspanError: no call was put off.
        """
        if self.deferred_call is None:
            raise ToolspanError("no call was put off")
        call = parse_tool_use(call_block(self.deferred_call))
        self.deferred_call = self.stopped = None
        self.runner.forget_call(call.id)
        async with self.runner.batch(self._conversation.last_reply or None) as batch:
            pending_call = batch.accept(call)
            return pending_call is not None and await self._run_pending_calls(batch, (pending_call,))

    async def compact(self, compaction: Compaction) -> None:
        """Go on from a summary of the conversation; what was said before is sent no more.

        Handlers for the beginning of a session hear of it, and may have words for the model.
        """
        self._conversation.record_compaction(compaction)
        await self._session_hooks.fire_session_start("compact")
        self._conversation.restart_from_summary(compaction.summary, self._session_hooks.take_start_contexts())
        self.spans.clear()

    def record_failure(self, failure: ModelFailed) -> None:
        """There is no reply: that is told in the transcript, and not to the model."""
        self._conversation.record_failure(failure)

    def record_turn_limit(self, max_turns: int, turns: int) -> None:
        """The model has spoken often enough; that is told in the transcript."""
        self._conversation.record_turn_limit(max_turns, turns)

    async def fire_hook_event(self, event: SessionHookEvent) -> HookEffects:
        """Fire a hook point that the host knows of: a notification, a subagent, a compaction."""
        return await self._session_hooks.fire_event(event)

    def add_hooks(self, hooks: HookRunner) -> None:
        """Further handlers from now on, also for agents that are started later."""
        self.hooks = combine_hooks(self.hooks, hooks)
        self.runner.add_hooks(hooks.bind(self._hook_environment))

    def interrupt(self, *, by: CancelSource = "user") -> None:
        """End every call that runs or waits; each still gets its result, and the turn ends.

        A reply that still streams ends where it is; what was said of it stays. Hooks that are asked
        about a prompt or the end of the turn are ended too.
        """
        if self.is_busy:
            self._interrupted = True
        if self._streamed_reply is not None:
            self._streamed_reply.interrupt()
        if self._hook_scope is not None:
            self._hook_scope.cancel()
        self.runner.cancel(by=by)

    @property
    def is_busy(self) -> bool:
        """Whether calls run, a reply comes in, or hooks are asked about the turn."""
        is_waiting = self._streamed_reply is not None or self._hook_scope is not None
        return is_waiting or bool(self.runner.in_progress)

    @property
    def was_interrupted(self) -> bool:
        """Whether the last turn was."""
        return self._interrupted

    # Inside

    async def _run_stream(self, events: AsyncIterable[ModelEvent]) -> bool:
        self._streamed_reply = reply = StreamedReply(self.runner, self)
        self._conversation.hold_prompts()
        has_prompt = False
        try:
            await reply.run(events)
        finally:
            self._streamed_reply = None
            has_prompt = self._close_stream(reply.partial, reply.batch)
        self.stream_failure = reply.failure
        if reply.partial.has_calls:
            return self.stopped is None
        if self._interrupted:
            return False
        message = {**reply.partial.head, "content": reply.partial.blocks}
        if message["stop_reason"] == "pause_turn" or await self._end_turn(message):
            return True
        return has_prompt and self.stopped is None

    def record_block(self, reply: PartialReply, block: dict[str, object], *, last: bool) -> None:
        """A block of a reply that streams counts."""
        self._conversation.add_block(reply, block, last=last)
        self.on_block(reply.head, block)

    def record_retry(self, retry: Retrying) -> None:
        """A reply that streams begins anew."""
        self._conversation.record_retry(retry)

    def _close_stream(self, reply: PartialReply, batch: Batch | None) -> bool:
        """The reply and its results stand in the conversation, whatever became of them.

        True when somebody spoke meanwhile.
        """
        self._conversation.add_reply_message(reply.blocks)
        if batch is not None:
            return self._add_results(batch)
        if self._interrupted:
            self.stopped = INTERRUPTED_BY_USER
            self._conversation.add_interruption()
        return self._conversation.release_prompts()

    async def _end_turn(self, message: dict[str, object]) -> bool:
        """Whether the hooks at the end of a turn want the model to go on."""
        if message.get("role", "assistant") != "assistant":
            return False
        turn_end = await self._unless_interrupted(self._session_hooks.fire_turn_end(message))
        if turn_end is None:
            return False
        if turn_end.stop is not None:
            self.stopped = turn_end.stop
        self.feedback = turn_end.feedback or turn_end.notifications
        if self.feedback:
            self._conversation.record_notifications(turn_end.notifications)
            self._conversation.add_user_texts(self.feedback)
        return bool(self.feedback)

    async def _unless_interrupted(self, hooks: Awaitable[HookResultT]) -> HookResultT | None:
        """What hooks say; None when somebody does not want to wait for it: the turn is over."""
        try:
            with anyio.CancelScope() as self._hook_scope:
                return await hooks
        finally:
            self._hook_scope = None
        self.stopped = INTERRUPTED_BY_USER
        return None

    def _add_results(self, batch: Batch) -> bool:
        """The results as one user message, and whatever else the model is to read after them.

        True when somebody spoke meanwhile: that stands behind the results.
        """
        if step_blocks := batch.step_blocks():
            self._conversation.extend_reply(step_blocks)
        results = batch.results
        if batch.stop is not None:
            results = self._without_deferred(results)
        self.notes = self.take_notices(batch)
        blocks = [*result_blocks(results), *self.notes]
        self.stopped = INTERRUPTED_BY_USER if self._interrupted else batch.stop
        note = self.profile.refusals.interrupt_note if self._interrupted else None
        self._conversation.add_results(blocks, note)
        return self.deferred_call is None and self._conversation.release_prompts()

    def _without_deferred(self, results: list[Finished]) -> list[Finished]:
        """The results there are: a call that was put off has none."""
        for finished in results:
            if finished.span.deferred:
                self.deferred_call = finished.span.call
        return [finished for finished in results if not finished.span.deferred]

    def take_notices(self, batch: Batch) -> list[dict[str, object]]:
        """What hooks say of the batch, and news of work in the background."""
        self.notifications.pending.extend(batch.effects.wake_messages)
        notifications = self._take_notifications()
        if not notifications and not batch.effects.contexts:
            return []
        contexts = [f"PostToolBatch hook additional context: {text}" for text in batch.effects.contexts]
        return text_blocks(contexts + notifications)

    def _take_notifications(self) -> list[str]:
        """News for the model within a turn, written down as such."""
        texts = self.notifications.take_texts()
        if texts:
            self._conversation.record_notifications(texts)
        return texts

    def begin_notification_turn(self) -> bool:
        """Begin a turn with what came meanwhile; False when nothing did."""
        texts = self.notifications.take_texts()
        if not texts:
            return False
        self._hook_environment.prompt_id = self._new_prompt_id()
        self.stopped = None
        self._conversation.add_notifications(texts, self._hook_environment.prompt_id)
        return True

    async def wait_for_wake(self) -> bool:
        """Wait for hooks that run on and want to wake the model: then a turn has begun.

        False when none does, none is left that could, or a call was put off.
        """
        if self.deferred_call is not None:
            return False
        return await self.notifications.collect_hook_texts() and self.begin_notification_turn()

    async def wait_for_notifications(self) -> bool:
        """Wait for agents in the background and for hooks that run on; then a turn has begun.

        False when there is nothing to wait for, or nothing came of it.
        """
        while not self.begin_notification_turn():
            if not self.notifications.has_running_agents:
                return await self.wait_for_wake()
            await self.notifications.wait_for_next()
        return True

    def _handle_event(self, event: LiveEvent) -> None:
        """What the runner emits, before anything else sees it."""
        if isinstance(event, Finished):
            self.spans.append(event.span)
        if self._event_recorder is not None:
            self._event_recorder.record_event(event, self._conversation.last_reply)

    def _write_failed(self, failed: WriteFailed) -> None:
        self.failures.append(failed)
        self.runner.emit(failed)

    def _has_effects(self, name: str) -> bool:
        tool = self.runner.runner_context.tools.find(name)
        return tool is None or not tool.read_only


def _ignore_block(_message: Mapping[str, object], _block: Mapping[str, object]) -> None:
    """Nobody is told."""


def _resolve_profile(profile: Profile | str | None, model: str | None) -> Profile:
    if isinstance(profile, Profile):
        return profile
    return named_profile(profile, model=model) if profile else named_profile(model=model)
