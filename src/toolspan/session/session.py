"""A session: the conversation, live.

    async with Session(cwd=".", tools=coding_tools()) as session:
        session.say("Why does the build fail?")
        while True:
            reply = await client.messages.create(..., messages=session.messages)
            if not await session.run(reply):
                break

In: prompts and replies. Out: `messages`, always a history that a server takes, and a transcript on
disk that the client can resume. The model is the caller's; `run` says whether it is its turn again.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from toolspan.builtin import coding_tools
from toolspan.hooks.points import Firing
from toolspan.ids import SessionId
from toolspan.model.live import Content, Finished, HookRan, LiveEvent, Requested, WriteFailed
from toolspan.model.span import Span
from toolspan.permission.decide import Approver, Policy
from toolspan.process import Custody
from toolspan.profile import Profile
from toolspan.profile import profile as named_profile
from toolspan.record import Fsync, Origin, Recorder, results_folder, transcript_path
from toolspan.run.batch import Batch, Recovery
from toolspan.run.blocks import call_block
from toolspan.run.context import Workspace
from toolspan.run.desk import Cancel, Job
from toolspan.run.runner import Runner, new_workspace
from toolspan.run.sinks import Only, Sink
from toolspan.run.tasks import notice
from toolspan.run.tool import Tool
from toolspan.session.reply import Reply, calls_checked, plain_reply

AtHome = Literal["home"]


class Session:
    """One conversation: what was said, which calls ran, and the transcript of both."""

    def __init__(  # noqa: PLR0913 - the parts of a session, each optional, each named by the caller
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
        transcript: Path | str | AtHome | None = "home",
        session_id: str | None = None,
        permission_mode: str = "default",
        fsync: Fsync = "never",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a session; nothing is opened or written before it is entered and spoken to.

        `sinks` get every event in their own time; `direct` ones at once, before the call goes on.
        `transcript` is a file, `"home"` for the place where the client keeps its sessions, or None
        for no record.
        """
        folder = Path(cwd).expanduser().resolve()
        self.profile = _profile(profile, model)
        self.session_id = SessionId(session_id or str(uuid.uuid4()))
        self.failures: list[WriteFailed] = []
        """Lines that could not be written."""
        self.stopped: str | None = None
        """Why the last turn ended early: a hook, a refusal, an interruption."""
        self.spans: list[Span] = []
        """Every call that ended, in the order they ended."""
        self._messages: list[dict[str, object]] = []
        self._reply: dict[str, object] = {}
        self._recorded_cwd = str(folder)
        self._interrupted = False
        self._model = model
        self._recorder = self._make_recorder(folder, transcript, permission_mode, fsync, clock)
        if tools is None:
            tools = coding_tools(self.profile, person=approver is not None)
        wanted = (Finished, HookRan, Requested) if recoveries else (Finished, HookRan)
        self.runner = Runner(
            tools,
            cwd=folder,
            profile=self.profile,
            hooks=hooks,
            policies=policies,
            fallback=fallback,
            approver=approver,
            sinks=sinks,
            direct=(Only(self._take_in, wanted), *direct),
            workspace=self._workspace(folder),
            recoveries=recoveries,
            by_path=by_path,
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        await self.runner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.runner.__aexit__(kind, error, traceback)
        finally:
            if self._recorder is not None:
                self._recorder.close()

    # The conversation

    @property
    def messages(self) -> list[dict[str, object]]:
        """The history as a Messages API request takes it; a copy, so that it can be changed."""
        return [dict(message) for message in self._messages]

    @property
    def transcript(self) -> Path | None:
        """The file it is recorded in; None when it is not recorded."""
        return self._recorder.path if self._recorder else None

    @property
    def cwd(self) -> Path:
        """The folder the next call starts in."""
        return self.runner.context.cwd

    def schemas(self) -> list[dict[str, object]]:
        """The tools as a Messages API request offers them."""
        return self.runner.schemas()

    def say(self, content: Content) -> None:
        """A person speaks: a text, or a list of blocks."""
        if not content or (isinstance(content, str) and not content.strip()):
            raise ValueError("a prompt needs some words")
        self.stopped = None
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self._messages.append({"role": "user", "content": blocks})
        if self._recorder is not None:
            self._recorder.prompt(content)

    async def run(self, reply: Reply) -> bool:
        """Take in the model's reply and run its calls; True when it is the model's turn again.

        The calls have their results in `messages` and on disk when this returns, also when it was
        interrupted. False means that the turn is over: no calls were asked for, or `stopped` says
        why.

        Raises:
            BadCall: the reply is no assistant message, or holds a block that cannot be answered.
        """
        message = plain_reply(reply)
        self._interrupted = False
        async with self.runner.batch(message) as batch:
            jobs = self._accept(message, batch)
            if not jobs:
                return message.get("stop_reason") == "pause_turn"
            try:
                for job in jobs:
                    batch.enqueue(job)
                await batch.drain()
            finally:
                self._answer(batch)
        return self.stopped is None

    def interrupt(self, *, by: Cancel = "user") -> None:
        """End every call that runs or waits; each still gets its result, and the turn ends."""
        if self.runner.in_progress:
            self._interrupted = True
        self.runner.cancel(by=by)

    # Inside

    def _accept(self, message: dict[str, object], batch: Batch) -> list[Job]:
        """Write the reply down; its calls, without those whose id was there before."""
        blocks = calls_checked(message)
        cut = blocks[-1] if blocks and message.get("stop_reason") == "max_tokens" else None
        jobs: list[Job] = []
        kept: list[dict[str, object]] = []
        for read in blocks:
            block, asked = read
            if asked is None:
                kept.append(block)
                continue
            job = batch.accept(asked, cut=read is cut)
            if job is not None:
                jobs.append(job)
                block["input"] = job.shelf.arguments_
                kept.append(block)
        message["content"] = kept
        if kept:
            self._messages.append({"role": "assistant", "content": kept})
            self._record_reply(message)
        return jobs

    def _record_reply(self, message: dict[str, object]) -> None:
        if self._recorder is not None:
            if "id" not in message:
                message["id"] = f"msg_{uuid.uuid4().hex[:24]}"
            self._reply = message
            self._recorder.reply(message)

    def _answer(self, batch: Batch) -> None:
        """The results as one user message, and whatever else the model is to read after them."""
        if batch.steps:
            self._add_steps(batch)
        results = batch.results
        blocks = [_result_block(finished) for finished in results]
        for finished in results:
            if finished.companions or finished.contexts:
                blocks += _beside(finished)
        blocks += self._notices()
        self.stopped = batch.stop
        if self._interrupted:
            self.stopped = "interrupted by the user"
            note = self.profile.refusals.interrupt_note
            blocks.append({"type": "text", "text": note})
            if self._recorder is not None:
                self._recorder.interrupted()
        if blocks:
            self._messages.append({"role": "user", "content": blocks})

    def _notices(self) -> list[dict[str, object]]:
        """What the model is told of work in the background that has ended since."""
        tasks = self.runner.desk.workspace.tasks
        if not tasks or not self.profile.tasks.tells:
            return []
        texts = [notice(task, self.profile.tasks) for task in tasks.news()]
        for text in texts:
            if self._recorder is not None:
                self._recorder.notice(text)
        return [{"type": "text", "text": text} for text in texts]

    def _add_steps(self, batch: Batch) -> None:
        """Calls that a recovery made stand in the reply like those the model asked for."""
        content = self._messages[-1]["content"]
        if isinstance(content, list):
            content.extend(batch.step_blocks())

    def _take_in(self, event: LiveEvent) -> None:
        """What the runner emits, before anything else sees it."""
        recorder = self._recorder
        match event:
            case Finished():
                self.spans.append(event.span)
                if recorder is not None:
                    self._record_result(event, recorder)
            case HookRan() if recorder is not None:
                recorder.hook(event)
            case Requested() if recorder is not None and event.recovers is not None:
                recorder.reply_block(self._reply, call_block(event.call), last=False)
            case _:
                pass

    def _record_result(self, finished: Finished, recorder: Recorder) -> None:
        if finished.cwd is not None and finished.cwd != self._recorded_cwd:
            recorder.move(Path(finished.cwd))
            self._recorded_cwd = finished.cwd
        recorder.result(finished)

    def _make_recorder(
        self,
        folder: Path,
        transcript: Path | str | AtHome | None,
        permission_mode: str,
        fsync: Fsync,
        clock: Callable[[], float],
    ) -> Recorder | None:
        if transcript is None:
            return None
        origin = Origin(
            profile=self.profile,
            session_id=self.session_id,
            cwd=folder,
            permission_mode=permission_mode,
            fsync=fsync,
            clock=clock,
        )
        path = (
            transcript_path(self.session_id, folder) if transcript == "home" else Path(transcript)
        )
        return Recorder(path, origin, self._write_failed)

    def _write_failed(self, failed: WriteFailed) -> None:
        self.failures.append(failed)
        self.runner.emit(failed)

    def _workspace(self, folder: Path) -> Workspace:
        if self._recorder is None:
            space = new_workspace(folder)
        else:
            place = results_folder(self._recorder.path).parent
            space = Workspace(project=folder, custody=Custody(), folder=place)
        space.session_id = self.session_id
        space.model = self._model
        return space


def _profile(chosen: Profile | str | None, model: str | None) -> Profile:
    if isinstance(chosen, Profile):
        return chosen
    return named_profile(chosen, model=model) if chosen else named_profile(model=model)


def _result_block(finished: Finished) -> dict[str, object]:
    result = finished.span.result
    block: dict[str, object] = {
        "type": "tool_result",
        "tool_use_id": finished.span.call.id,
        "content": finished.content,
    }
    if result is not None and result.is_error is not None:
        block["is_error"] = result.is_error
    return block


def _beside(finished: Finished) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    for companion in finished.companions:
        blocks += [{"type": "text", "text": companion}] if isinstance(companion, str) else companion
    for context in finished.contexts:
        text = f"{context.name} hook additional context: {context.text}"
        blocks.append({"type": "text", "text": text})
    return blocks
