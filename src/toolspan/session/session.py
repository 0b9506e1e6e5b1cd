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

import time
import uuid
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

import anyio

from toolspan.builtin import coding_tools
from toolspan.errors import ToolspanError
from toolspan.hooks.joined import joined
from toolspan.hooks.points import After, Firing, NoHooks, Occasion
from toolspan.ids import CallId
from toolspan.llm.blocks import call_ids
from toolspan.llm.model import ModelEvent, ModelFailed, Retrying
from toolspan.model.live import Content, Finished, HookRan, LiveEvent, Requested, WriteFailed
from toolspan.model.span import Call, Span
from toolspan.permission.decide import Approver, Policy
from toolspan.profile import Profile
from toolspan.profile import profile as named_profile
from toolspan.record import Compacted, Fsync, Origin, Recorder
from toolspan.run.batch import Batch, Recovery
from toolspan.run.blocks import call_block, read_block
from toolspan.run.desk import Cancel, Job
from toolspan.run.runner import Runner
from toolspan.run.sinks import Only, Sink
from toolspan.run.tool import Tool
from toolspan.session.around import Around, Aside
from toolspan.session.blocks import check_prompt, copied, result_blocks, words
from toolspan.session.conversation import Conversation
from toolspan.session.ground import AtHome, begun, make_scene, make_workspace, open_recorder
from toolspan.session.hearing import Hearing
from toolspan.session.incoming import Incoming
from toolspan.session.news import News
from toolspan.session.reply import Reply, accept, plain_reply
from toolspan.session.scribe import Scribe
from toolspan.session.skills import Skills

T = TypeVar("T")
INTERRUPTED_TURN = "interrupted by the user"
OnBlock = Callable[[Mapping[str, object], Mapping[str, object]], None]
"""Is told of each block of a reply that counts, with its message; before it is started. Must not
raise."""


class Session:
    """One conversation: what was said, which calls ran, and the transcript of both."""

    def __init__(  # noqa: PLR0913, PLR0915 - the parts of a session, each optional, each named by the caller
        self,
        *,
        cwd: Path | str = ".",
        tools: Iterable[Tool] | None = None,
        profile: Profile | str | None = None,
        model: str | None = None,
        hooks: Firing | None = None,
        policies: Sequence[Policy] = (),
        fallback: Policy | None = None,
        approver: Approver | None = None,
        sinks: Iterable[Sink] = (),
        direct: Iterable[Sink] = (),
        recoveries: Sequence[Recovery] = (),
        by_path: bool = False,
        transcript: Path | str | AtHome | Recorder | None = "home",
        session_id: str | None = None,
        history: Sequence[Mapping[str, object]] = (),
        aside: Aside | None = None,
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
        self.profile = _profile(profile, model)
        before = begun(transcript, session_id, folder, history)
        self.session_id = before.session_id
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
        self.deferred: Call | None = None
        """The call that a hook put off; `run_deferred` comes back to it."""
        self.broken: ModelFailed | None = None
        """Why the last reply broke off after some of its calls."""
        self.on_block: OnBlock = _nobody
        self._hearing: Hearing | None = None
        """The reply that streams now."""
        self._interrupted = False
        self._hooked: anyio.CancelScope | None = None
        """Around hooks that are about no call, while somebody can interrupt them."""
        self._aside = aside
        origin = Origin(
            profile=self.profile,
            session_id=self.session_id,
            cwd=folder,
            permission_mode=permission_mode,
            fsync=fsync,
            clock=clock,
        )
        self._recorder = open_recorder(before, origin, self._write_failed)
        self._conversation = Conversation(before.history, self._recorder)
        self._scribe = None if self._recorder is None else Scribe(self._recorder, folder)
        if tools is None:
            tools = coding_tools(self.profile, person=approver is not None)
        space = make_workspace(folder, self._recorder, aside, self._has_effects)
        space.session_id, space.model = self.session_id, model
        self._scene = make_scene(
            space, self._recorder, aside, permission_mode, lambda: self.runner.context
        )
        self.hooks: Firing = hooks or NoHooks()
        """The handlers, as they were given: a subagent has the same."""
        self.skills = Skills(self.adopt)
        """The handlers that skills bring along."""
        space.adopt = self.skills.launch
        bound = self.hooks.bind(self._scene)
        wanted = (Finished, HookRan, Requested) if recoveries else (Finished, HookRan)
        self.runner = Runner(
            tools,
            cwd=folder,
            profile=self.profile,
            hooks=bound,
            policies=policies,
            fallback=fallback,
            approver=approver,
            sinks=sinks,
            direct=(Only(self._take_in, wanted), *direct),
            workspace=space,
            recoveries=recoveries,
            by_path=by_path,
            clock=clock,
        )
        for call_id in call_ids(self._conversation.messages):
            self.runner.remember(CallId(call_id))
        self._around = Around(self.runner.desk, self._recorder, aside)
        self.news = News(space.tasks, self.profile, self._around.wake)
        """What the model has not heard yet."""

    async def __aenter__(self) -> Self:
        await self.runner.__aenter__()
        try:
            await self._around.begin("resume" if self._conversation.messages else "startup")
        except BaseException as error:
            await self.runner.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._around.end(self.end_reason)
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
        return self.since(0)

    def since(self, first: int) -> list[dict[str, object]]:
        """The messages from one on, as in `messages`; from the end when it is negative."""
        return copied(self._conversation.messages[first:])

    @property
    def length(self) -> int:
        """How many messages there are."""
        return len(self._conversation.messages)

    @property
    def transcript(self) -> Path | None:
        """The file it is recorded in; None when it is not recorded."""
        return self._recorder.path if self._recorder else None

    @property
    def main_transcript(self) -> Path | None:
        """The file of the main conversation: for a subagent, that of the session it is part of."""
        return self._scene.transcript

    @property
    def permission_mode(self) -> str:
        """What happens to calls nobody speaks of, in one word."""
        return self._scene.permission_mode()

    def child_recorder(self, agent_id: str, about: Mapping[str, object]) -> Recorder | None:
        """The recorder of a subagent of this session; None when nothing is recorded."""
        return self._recorder.agent(agent_id, about) if self._recorder is not None else None

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
        if self._around.listens("UserPromptSubmit"):
            raise ToolspanError("hooks want to see prompts first: use `await session.submit(...)`")
        self._check_prompt(content)
        self._begin_turn()
        self._say(content)

    async def submit(self, content: Content) -> bool:
        """As `say`, after the hooks for prompts; False when one of them took the prompt away.

        It is taken away too when somebody interrupts the hooks.

        Raises:
            ValueError: no server would take it.
            ToolspanError: a call was put off, which `run_deferred` comes back to.
        """
        self._check_prompt(content)
        self._begin_turn()
        if self._around.calls:
            await self.news.hear_hooks()
            self._around.spoken()
        if not self._around.listens("UserPromptSubmit"):
            self._say(content)
            return True
        asked = await self._unless_interrupted(self._around.prompt(content))
        if asked is None:
            return False
        if asked.refused is not None:
            self.stopped = asked.refused
            if self._recorder is not None:
                asked.record_refusal(content, self._recorder)
            return False
        said = self._say(content)
        said += words(asked.said())
        return True

    def _begin_turn(self) -> None:
        """Somebody speaks; while a reply is under way, that is within its turn."""
        self._around.spoken()
        if not self._conversation.is_held:
            self._interrupted = False
            self._scene.prompt_id = self._turn_id()

    def _turn_id(self) -> str:
        """A subagent's words belong to the turn in which it was started."""
        return (self._aside and self._aside.prompt_id) or str(uuid.uuid4())

    @property
    def prompt_id(self) -> str | None:
        """The turn it is in."""
        return self._scene.prompt_id

    def _check_prompt(self, content: Content) -> None:
        check_prompt(content)
        if self.deferred is not None:
            raise ToolspanError("a hook put a call off: `await session.run_deferred()` first")

    def _say(self, content: Content) -> list[dict[str, object]]:
        """The prompt as blocks in the conversation, now or when a reply has its results."""
        if self._conversation.is_held:
            return self._conversation.add_prompt(content, (), self._scene.prompt_id)
        self.stopped = None
        before = [*self._around.opening(), *self._told_news()]
        return self._conversation.add_prompt(content, before, self._scene.prompt_id)

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
        if self._conversation.is_held:
            raise ToolspanError("calls of the reply before have no results yet")
        self._interrupted = False
        self.feedback = ()
        self.notes = []
        self.broken = None
        if not isinstance(reply, dict) and isinstance(reply, AsyncIterable):
            return await self._run_stream(reply)
        message = plain_reply(reply)
        async with self.runner.batch(message) as batch:
            accepted = accept(message, batch)
            self._conversation.add_reply(message, accepted.blocks)
            if not accepted.jobs:
                return message.get("stop_reason") == "pause_turn" or await self._end_turn(message)
            return await self._run_jobs(batch, accepted.jobs)

    async def _run_jobs(self, batch: Batch, jobs: Iterable[Job]) -> bool:
        self._conversation.hold()
        try:
            for job in jobs:
                batch.enqueue(job)
            await batch.drain()
        finally:
            self._answer(batch)
        return self.stopped is None

    async def run_deferred(self) -> bool:
        """Ask the hooks again about the call that was put off, and run it if they agree.

        Raises:
            ToolspanError: no call was put off.
        """
        if self.deferred is None:
            raise ToolspanError("no call was put off")
        asked = read_block(call_block(self.deferred))
        self.deferred = self.stopped = None
        self.runner.forget(asked.id)
        async with self.runner.batch(self._conversation.reply or None) as batch:
            job = batch.accept(asked)
            return job is not None and await self._run_jobs(batch, (job,))

    async def compact(self, compacted: Compacted) -> None:
        """Go on from a summary of the conversation; what was said before is sent no more.

        Handlers for the beginning of a session hear of it, and may have words for the model.
        """
        self._conversation.note_compacted(compacted)
        await self._around.begin("compact")
        self._conversation.begin_anew(compacted.summary, self._around.opening())
        self.spans.clear()

    def failed(self, failure: ModelFailed) -> None:
        """There is no reply: that is told in the transcript, and not to the model."""
        self._conversation.note_failure(failure)

    def turns_spent(self, most: int, turns: int) -> None:
        """The model has spoken often enough; that is told in the transcript."""
        self._conversation.note_turns_spent(most, turns)

    async def fire(self, occasion: Occasion) -> After:
        """Fire a hook point that the host knows of: a notification, a subagent, a compaction."""
        return await self._around.fire(occasion)

    def adopt(self, hooks: Firing) -> None:
        """Further handlers from now on, also for agents that are started later."""
        desk = self.runner.desk
        self.hooks = joined(self.hooks, hooks)
        desk.hooks = joined(desk.hooks, hooks.bind(self._scene))

    def interrupt(self, *, by: Cancel = "user") -> None:
        """End every call that runs or waits; each still gets its result, and the turn ends.

        A reply that still streams ends where it is; what was said of it stays. Hooks that are asked
        about a prompt or the end of the turn are ended too.
        """
        if self.is_busy:
            self._interrupted = True
        if self._hearing is not None:
            self._hearing.interrupt()
        if self._hooked is not None:
            self._hooked.cancel()
        self.runner.cancel(by=by)

    @property
    def is_busy(self) -> bool:
        """Whether calls run, a reply comes in, or hooks are asked about the turn."""
        heard = self._hearing is not None or self._hooked is not None
        return heard or bool(self.runner.in_progress)

    @property
    def interrupted(self) -> bool:
        """Whether the last turn was."""
        return self._interrupted

    # Inside

    async def _run_stream(self, events: AsyncIterable[ModelEvent]) -> bool:
        self._hearing = hearing = Hearing(self.runner, self)
        self._conversation.hold()
        spoken = False
        try:
            await hearing.hear(events)
        finally:
            self._hearing = None
            spoken = self._close(hearing.incoming, hearing.batch)
        self.broken = hearing.broken
        if hearing.incoming.asks:
            return self.stopped is None
        if self._interrupted:
            return False
        message = {**hearing.incoming.head, "content": hearing.incoming.kept}
        if message["stop_reason"] == "pause_turn" or await self._end_turn(message):
            return True
        return spoken and self.stopped is None

    def keep_block(self, incoming: Incoming, block: dict[str, object], *, last: bool) -> None:
        """A block of a reply that streams counts."""
        self._conversation.add_block(incoming, block, last=last)
        self.on_block(incoming.head, block)

    def keep_retry(self, retry: Retrying) -> None:
        """A reply that streams begins anew."""
        self._conversation.note_retry(retry)

    def _close(self, incoming: Incoming, batch: Batch | None) -> bool:
        """The reply and its results stand in the conversation, whatever became of them.

        True when somebody spoke meanwhile.
        """
        self._conversation.add_heard(incoming.kept)
        if batch is not None:
            return self._answer(batch)
        if self._interrupted:
            self.stopped = INTERRUPTED_TURN
            self._conversation.add_interruption()
        return self._conversation.release()

    async def _end_turn(self, message: dict[str, object]) -> bool:
        """Whether the hooks at the end of a turn want the model to go on."""
        if message.get("role", "assistant") != "assistant":
            return False
        ended = await self._unless_interrupted(self._around.turn_ends(message))
        if ended is None:
            return False
        if ended.stop is not None:
            self.stopped = ended.stop
        self.feedback = ended.words or ended.news
        if self.feedback:
            self._conversation.note_news(ended.news)
            self._conversation.add_words(self.feedback)
        return bool(self.feedback)

    async def _unless_interrupted(self, hooks: Awaitable[T]) -> T | None:
        """What hooks say; None when somebody does not want to wait for it: the turn is over."""
        try:
            with anyio.CancelScope() as self._hooked:
                return await hooks
        finally:
            self._hooked = None
        self.stopped = INTERRUPTED_TURN
        return None

    def _answer(self, batch: Batch) -> bool:
        """The results as one user message, and whatever else the model is to read after them.

        True when somebody spoke meanwhile: that stands behind the results.
        """
        if batch.steps:
            self._conversation.extend_reply(batch.step_blocks())
        results = batch.results
        if batch.stop is not None:
            results = self._without_deferred(results)
        self.notes = self.notices(batch)
        blocks = [*result_blocks(results), *self.notes]
        self.stopped = INTERRUPTED_TURN if self._interrupted else batch.stop
        note = self.profile.refusals.interrupt_note if self._interrupted else None
        self._conversation.add_results(blocks, note)
        return self.deferred is None and self._conversation.release()

    def _without_deferred(self, results: list[Finished]) -> list[Finished]:
        """The results there are: a call that was put off has none."""
        for finished in results:
            if finished.span.deferred:
                self.deferred = finished.span.call
        return [finished for finished in results if not finished.span.deferred]

    def notices(self, batch: Batch) -> list[dict[str, object]]:
        """What hooks say of the batch, and news of work in the background."""
        self.news.mail.extend(batch.after.news)
        news = self._told_news()
        if not news and not batch.after.contexts:
            return []
        told = [f"PostToolBatch hook additional context: {text}" for text in batch.after.contexts]
        return words(told + news)

    def _told_news(self) -> list[str]:
        """News for the model within a turn, written down as such."""
        texts = self.news.take()
        if texts:
            self._conversation.note_news(texts)
        return texts

    def hear_news(self) -> bool:
        """Begin a turn with what came meanwhile; False when nothing did."""
        texts = self.news.take()
        if not texts:
            return False
        self._scene.prompt_id = self._turn_id()
        self.stopped = None
        self._conversation.add_news(texts, self._scene.prompt_id)
        return True

    async def woken(self) -> bool:
        """Wait for hooks that run on and want to wake the model: then a turn has begun.

        False when none does, none is left that could, or a call was put off.
        """
        if self.deferred is not None:
            return False
        return await self.news.hear_hooks() and self.hear_news()

    async def news_come(self) -> bool:
        """Wait for agents in the background and for hooks that run on; then a turn has begun.

        False when there is nothing to wait for, or nothing came of it.
        """
        while not self.hear_news():
            if not self.news.awaits_agents:
                return await self.woken()
            await self.news.wait()
        return True

    def _take_in(self, event: LiveEvent) -> None:
        """What the runner emits, before anything else sees it."""
        if isinstance(event, Finished):
            self.spans.append(event.span)
        if self._scribe is not None:
            self._scribe.take(event, self._conversation.reply)

    def _write_failed(self, failed: WriteFailed) -> None:
        self.failures.append(failed)
        self.runner.emit(failed)

    def _has_effects(self, name: str) -> bool:
        tool = self.runner.desk.tools.find(name)
        return tool is None or not tool.read_only


def _nobody(_message: Mapping[str, object], _block: Mapping[str, object]) -> None:
    """Nobody is told."""


def _profile(chosen: Profile | str | None, model: str | None) -> Profile:
    if isinstance(chosen, Profile):
        return chosen
    return named_profile(chosen, model=model) if chosen else named_profile(model=model)
