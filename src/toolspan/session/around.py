"""The points of a session that are about no call: its start and end, prompts, the end of a turn.

In: what happens in the conversation. Out: what the handlers there want: words for the model, an
objection, the end of it all. Every handler is told of and recorded. Read `Around.turn_ends` first.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from msgspec import structs

from toolspan.hooks.points import After, Firing, Occasion, Point, Report
from toolspan.ids import CallId
from toolspan.model.live import Content
from toolspan.record import Recorder, RefusedPrompt, StopSummary
from toolspan.run.desk import Desk
from toolspan.run.ending import text_of
from toolspan.run.review import report
from toolspan.run.tasks import Task, Work

_OF_THE_SESSION: frozenset[Point] = frozenset({
    "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure",
})  # fmt: skip
"""Points that a subagent has no part in."""
_MOST_WAKES = 8
END_PATIENCE = 62.0
"""Seconds after which handlers at the end of a session are given up, should they not give up
themselves."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What became of the end of a turn."""

    words: tuple[str, ...] = ()
    """What the model is to go on with; nothing when the turn is over."""
    news: tuple[str, ...] = ()
    """The same, by handlers that nobody waited for."""
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Aside:
    """A session that another one has started: a subagent."""

    agent_id: str
    kind: str
    call_id: CallId | None = None
    """The call that started it."""
    depth: int = 1
    """How far below the main conversation it is."""
    prompt_id: str | None = None
    """The turn in which it was started."""
    folder: Path | None = None
    """The session's own folder, which it shares."""
    environment: Mapping[str, str] | None = None
    transcript: Path | None = None
    """Of the main conversation: handlers are told of that one."""


class Around:
    """Fires the points around a conversation; one aside has no start and end of its own."""

    def __init__(self, desk: Desk, recorder: Recorder | None, aside: Aside | None = None) -> None:
        self._desk = desk
        self._recorder = recorder
        self._aside = aside
        self._opening: After | None = None
        """What was said when the session began; told with the first words in it."""
        self._refused_ends = 0
        """How often in a row the turn was not allowed to end."""
        self._woken = 0
        """How often the model was woken since somebody spoke."""

    @property
    def _hooks(self) -> Firing:
        """Those of the calls: a session may get further ones."""
        return self._desk.hooks

    def listens(self, point: Point) -> bool:
        """Whether there is a handler at this point."""
        if self._hooks.silent or (self._aside is not None and point in _OF_THE_SESSION):
            return False
        return self._hooks.listens(point)

    async def fire(self, occasion: Occasion) -> After:
        """Fire a point, and tell what its handlers did."""
        if not self.listens(occasion.point):
            return After()
        after = await self._desk.hooked(self._hooks.fire(occasion))
        self._tell(occasion, after)
        return after

    async def begin(self, source: str) -> None:
        """The session begins."""
        occasion = self._beginning(source)
        if self.listens(occasion.point):
            self._opening = await self._desk.hooked(self._hooks.fire(occasion))

    def _beginning(self, source: str) -> Occasion:
        if self._aside is None:
            return Occasion(point="SessionStart", about=source, fields={"source": source})
        return Occasion(point="SubagentStart", about=self._aside.kind)

    def opening(self) -> tuple[str, ...]:
        """What the model is to read before anything else; told once."""
        after, self._opening = self._opening, None
        if after is None:
            return ()
        occasion = self._beginning("")
        self._tell(occasion, after)
        return _words(occasion.point, after.contexts)

    async def prompt(self, content: Content) -> "Asked":
        """Somebody wants to say something: may it be said, and with what beside it?"""
        occasion = Occasion(point="UserPromptSubmit", fields={"prompt": text_of(content)})
        after = await self._desk.hooked(self._hooks.fire(occasion))
        return Asked(self, occasion, after)

    async def turn_ends(self, reply: Mapping[str, object]) -> TurnEnd:
        """The model has nothing more to do: may the turn end?"""
        ended = await self._asked_to_end(reply)
        if ended.words or ended.stop is not None or not self.calls:
            return ended
        return TurnEnd(news=await self.wake())

    async def _asked_to_end(self, reply: Mapping[str, object]) -> TurnEnd:
        point: Point = "Stop" if self._aside is None else "SubagentStop"
        if not self.listens(point):
            return TurnEnd()
        occasion = Occasion(
            point=point,
            about=self._aside.kind if self._aside else None,
            fields={
                "stop_hook_active": self._refused_ends + self._woken > 0,
                "last_assistant_message": _text(reply.get("content")),
                "background_tasks": [_task(task) for task in self._desk.workspace.tasks.running],
                "session_crons": [],
                **self._own_transcript(),
            },
        )
        after = await self._desk.hooked(self._hooks.fire(occasion))
        ended = self._turn_end(after)
        if ended.words and self._recorder is not None:
            for words in ended.words:
                self._recorder.prompt(words, meta=True)
        about = self._tell(occasion, after)
        summed_up = self._desk.profile.hooks.summarizes_stop and self._aside is None
        if self._recorder is not None and summed_up:
            self._recorder.turn_ended(_summary(after, about))
        return ended

    def _own_transcript(self) -> Mapping[str, object]:
        if self._aside is None or self._recorder is None:
            return {}
        return {"agent_transcript_path": str(self._recorder.path.absolute())}

    def _turn_end(self, after: After) -> TurnEnd:
        most = self._desk.profile.hooks.stop_blocks
        words = tuple(f"Stop hook feedback:\n{text}" for text in after.feedback)
        words += _words("Stop", after.contexts)
        over = most is not None and self._refused_ends >= most
        if after.stop is not None or not words or over:
            self._refused_ends = 0
            return TurnEnd(stop=after.stop)
        self._refused_ends += 1
        return TurnEnd(words)

    async def end(self, reason: str) -> None:
        """The session ends; handlers have a short while, whoever else is in a hurry."""
        if not self.listens("SessionEnd"):
            return
        occasion = Occasion(point="SessionEnd", about=reason, fields={"reason": reason})
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_PATIENCE):
            await self.fire(occasion)

    def spoken(self) -> None:
        """Somebody speaks: from now on the model can be woken again."""
        self._woken = 0

    @property
    def calls(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken, and may."""
        return self._hooks.calls and self._may_wake

    @property
    def _may_wake(self) -> bool:
        """Handlers that wake the model whenever its turn ends would keep it awake for ever."""
        return self._woken < (self._desk.profile.hooks.stop_blocks or _MOST_WAKES)

    async def wake(self) -> tuple[str, ...]:
        """Wait for such a handler: what the model is to read; nothing when none is to be heard."""
        if not self._may_wake or not await self._hooks.called():
            return ()
        with anyio.CancelScope(shield=True):  # what was heard must not be lost
            after = await self._hooks.wake()
        self._woken += bool(after.news)
        report(CallId(str(uuid.uuid4())), after.reports, self._desk)
        return after.news

    def tell(self, occasion: Occasion, after: After) -> None:
        """Tell what the handlers of a point did."""
        self._tell(occasion, after)

    def _tell(self, occasion: Occasion, after: After) -> str:
        about = str(uuid.uuid4())
        told = sorted(after.reports, key=lambda one: one.outcome != "stopped")
        report(CallId(about), tuple(told), self._desk)
        added = (
            Report(point=occasion.point, name=occasion.point, outcome="context", text=text)
            for text in _added(after)
        )
        report(CallId(f"hook-{about}"), tuple(added), self._desk)
        return about


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt that handlers were asked about; nothing is written of it yet."""

    around: Around
    occasion: Occasion
    after: After

    @property
    def refused(self) -> str | None:
        """Why it does not count."""
        return "\n".join(self.after.feedback) or self.after.stop

    @property
    def is_stop(self) -> bool:
        """A handler ends it all, without an objection to the prompt."""
        return not self.after.feedback

    def record_refusal(self, prompt: Content, recorder: Recorder) -> None:
        """It was not said: that is all a transcript tells."""
        words = self.refused or ""
        by = self.after.by[0] if self.after.by else ""
        reason = words.removeprefix(f"[{by}]: ").strip()
        told = RefusedPrompt(
            prompt=text_of(prompt), words=words, reason=reason, is_stop=self.is_stop
        )
        recorder.refused(told)

    def said(self) -> tuple[str, ...]:
        """It was said: tell of the handlers; what the model is to read beside it."""
        # Clients tell of an answer's words there, not of the answer.
        kept = tuple(one for one in self.after.reports if one.outcome != "decision")
        self.around.tell(self.occasion, structs.replace(self.after, reports=kept))
        return _words("UserPromptSubmit", self.after.contexts)


def _words(point: str, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{point} hook additional context: {text}" for text in texts)


def _added(after: After) -> Sequence[str]:
    """The contexts that no report tells of already: plain output is told with its handler."""
    plain = {one.text for one in after.reports if one.outcome == "success"}
    return [text for text in after.contexts if text not in plain]


def _text(content: object) -> str:
    blocks = content if isinstance(content, list) else []
    texts = (str(block.get("text")) for block in blocks if block.get("type") == "text")
    return content if isinstance(content, str) else "\n".join(texts)


def _task(task: Work) -> dict[str, object]:
    told: dict[str, object] = {
        "id": task.id,
        "type": "shell" if isinstance(task, Task) else "subagent",
        "status": task.status,
        "description": task.description or task.command,
    }
    return {**told, "command": task.command} if isinstance(task, Task) else told


def _summary(after: After, about: str) -> StopSummary:
    ran = [one for one in after.reports if one.outcome not in ("message", "stopped", "context")]
    return StopSummary(
        handlers=tuple(
            (one.command or one.name, None if one.outcome == "blocked" else one.duration_ms)
            for one in ran
        ),
        errors=after.feedback,
        contexts=after.contexts,
        stop=after.stop,
        has_output=any(one.stdout or one.outcome == "blocked" for one in ran),
        about=about,
    )
