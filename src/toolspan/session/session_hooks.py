"""The points of a session that are about no call: its start and end, prompts, the end of a turn.

In: what happens in the conversation. Out: what the handlers there want: words for the model, an
objection, the end of it all. Every handler is told of and recorded. Read `Around.turn_ends` first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from msgspec import structs

from toolspan.runtime.background import BackgroundTask, CommandTask
from toolspan.runtime.context import RunnerContext
from toolspan.runtime.hooks.events import HookEffects, HookPoint, HookRunner, SessionHookEvent
from toolspan.runtime.outcome import content_text
from toolspan.session.recording import Recorder, RefusedPrompt, StopSummary
from toolspan.types.events import Content, HookReport
from toolspan.types.ids import CallId

_MAIN_SESSION_EVENTS: frozenset[HookPoint] = frozenset({
    "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure",
})  # fmt: skip
"""Points that a subagent has no part in."""
_DEFAULT_MAX_WAKES = 8
SESSION_END_TIMEOUT = 62.0
"""Seconds after which handlers at the end of a session are given up, should they not give up
themselves."""


@dataclass(frozen=True, slots=True)
class TurnEndEffects:
    """What became of the end of a turn."""

    feedback: tuple[str, ...] = ()
    """What the model is to go on with; nothing when the turn is over."""
    notifications: tuple[str, ...] = ()
    """The same, by handlers that nobody waited for."""
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class SubagentInfo:
    """A session that another one has started: a subagent."""

    agent_id: str
    agent_type: str
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


class SessionHooks:
    """Fires the points around a conversation; one aside has no start and end of its own."""

    def __init__(
        self, runner_context: RunnerContext, recorder: Recorder | None, subagent: SubagentInfo | None = None
    ) -> None:
        self._runner_context = runner_context
        self._recorder = recorder
        self._subagent = subagent
        self._start_effects: HookEffects | None = None
        """What was said when the session began; told with the first words in it."""
        self._blocked_stops = 0
        """How often in a row the turn was not allowed to end."""
        self._wake_count = 0
        """How often the model was woken since somebody spoke."""

    @property
    def _hook_runner(self) -> HookRunner:
        """Those of the calls: a session may get further ones."""
        return self._runner_context.hooks

    def has_handlers(self, point: HookPoint) -> bool:
        """Whether there is a handler at this point."""
        if self._hook_runner.is_empty or (self._subagent is not None and point in _MAIN_SESSION_EVENTS):
            return False
        return self._hook_runner.has_handler(point)

    async def fire_event(self, event: SessionHookEvent) -> HookEffects:
        """Fire a point, and tell what its handlers did."""
        if not self.has_handlers(event.point):
            return HookEffects()
        effects = await self._runner_context.run_hook(self._hook_runner.run_session_event(event))
        self._report_effects(event, effects)
        return effects

    async def fire_session_start(self, source: str) -> None:
        """The session begins."""
        event = self._start_event(source)
        if self.has_handlers(event.point):
            self._start_effects = await self._runner_context.run_hook(self._hook_runner.run_session_event(event))

    def _start_event(self, source: str) -> SessionHookEvent:
        if self._subagent is None:
            return SessionHookEvent(point="SessionStart", subject=source, fields={"source": source})
        return SessionHookEvent(point="SubagentStart", subject=self._subagent.agent_type)

    def take_start_contexts(self) -> tuple[str, ...]:
        """What the model is to read before anything else; told once."""
        effects, self._start_effects = self._start_effects, None
        if effects is None:
            return ()
        event = self._start_event("")
        self._report_effects(event, effects)
        return _format_contexts(event.point, effects.contexts)

    async def review_prompt(self, content: Content) -> PromptReview:
        """Somebody wants to say something: may it be said, and with what beside it?"""
        event = SessionHookEvent(point="UserPromptSubmit", fields={"prompt": content_text(content)})
        effects = await self._runner_context.run_hook(self._hook_runner.run_session_event(event))
        return PromptReview(self, event, effects)

    async def fire_turn_end(self, reply: Mapping[str, object]) -> TurnEndEffects:
        """The model has nothing more to do: may the turn end?"""
        effects = await self._fire_stop(reply)
        if effects.feedback or effects.stop is not None or not self.has_wake_request:
            return effects
        return TurnEndEffects(notifications=await self.wait_for_wake())

    async def _fire_stop(self, reply: Mapping[str, object]) -> TurnEndEffects:
        point: HookPoint = "Stop" if self._subagent is None else "SubagentStop"
        if not self.has_handlers(point):
            return TurnEndEffects()
        event = SessionHookEvent(
            point=point,
            subject=self._subagent.agent_type if self._subagent else None,
            fields={
                "stop_hook_active": self._blocked_stops + self._wake_count > 0,
                "last_assistant_message": _reply_text(reply.get("content")),
                "background_tasks": [_describe_task(task) for task in self._runner_context.workspace.tasks.running],
                "session_crons": [],
                **self._transcript_field(),
            },
        )
        effects = await self._runner_context.run_hook(self._hook_runner.run_session_event(event))
        turn_end = self._decide_turn_end(effects)
        if turn_end.feedback and self._recorder is not None:
            for message in turn_end.feedback:
                self._recorder.record_prompt(message, meta=True)
        report_id = self._report_effects(event, effects)
        has_summary = self._runner_context.profile.hooks.summarizes_stop and self._subagent is None
        if self._recorder is not None and has_summary:
            self._recorder.record_turn_end(_summarize_stop(effects, report_id))
        return turn_end

    def _transcript_field(self) -> Mapping[str, object]:
        if self._subagent is None or self._recorder is None:
            return {}
        return {"agent_transcript_path": str(self._recorder.path.absolute())}

    def _decide_turn_end(self, effects: HookEffects) -> TurnEndEffects:
        max_blocks = self._runner_context.profile.hooks.max_stop_blocks
        messages = tuple(f"Stop hook feedback:\n{text}" for text in effects.feedback)
        messages += _format_contexts("Stop", effects.contexts)
        is_limit_reached = max_blocks is not None and self._blocked_stops >= max_blocks
        if effects.stop is not None or not messages or is_limit_reached:
            self._blocked_stops = 0
            return TurnEndEffects(stop=effects.stop)
        self._blocked_stops += 1
        return TurnEndEffects(messages)

    async def fire_session_end(self, reason: str) -> None:
        """The session ends; handlers have a short while, whoever else is in a hurry."""
        if not self.has_handlers("SessionEnd"):
            return
        event = SessionHookEvent(point="SessionEnd", subject=reason, fields={"reason": reason})
        with anyio.CancelScope(shield=True), anyio.move_on_after(SESSION_END_TIMEOUT):
            await self.fire_event(event)

    def reset_wake_count(self) -> None:
        """Somebody speaks: from now on the model can be woken again."""
        self._wake_count = 0

    @property
    def has_wake_request(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken, and may."""
        return self._hook_runner.has_wake_request and self._can_wake

    @property
    def _can_wake(self) -> bool:
        """Handlers that wake the model whenever its turn ends would keep it awake for ever."""
        return self._wake_count < (self._runner_context.profile.hooks.max_stop_blocks or _DEFAULT_MAX_WAKES)

    async def wait_for_wake(self) -> tuple[str, ...]:
        """Wait for such a handler: what the model is to read; nothing when none is to be heard."""
        if not self._can_wake or not await self._hook_runner.wait_for_wake_request():
            return ()
        with anyio.CancelScope(shield=True):  # what was heard must not be lost
            effects = await self._hook_runner.collect_wake_requests()
        self._wake_count += bool(effects.wake_messages)
        self._runner_context.emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports)
        return effects.wake_messages

    def report_effects(self, event: SessionHookEvent, effects: HookEffects) -> None:
        """Tell what the handlers of a point did."""
        self._report_effects(event, effects)

    def _report_effects(self, event: SessionHookEvent, effects: HookEffects) -> str:
        report_id = str(uuid.uuid4())
        ordered_reports = sorted(effects.reports, key=lambda hook_report: hook_report.outcome != "stopped")
        self._runner_context.emit_hook_reports(CallId(report_id), tuple(ordered_reports))
        context_reports = (
            HookReport(point=event.point, name=event.point, outcome="context", text=text)
            for text in _unreported_contexts(effects)
        )
        self._runner_context.emit_hook_reports(CallId(f"hook-{report_id}"), tuple(context_reports))
        return report_id


@dataclass(frozen=True, slots=True)
class PromptReview:
    """A prompt that handlers were asked about; nothing is written of it yet."""

    session_hooks: SessionHooks
    event: SessionHookEvent
    effects: HookEffects

    @property
    def refusal(self) -> str | None:
        """Why it does not count."""
        return "\n".join(self.effects.feedback) or self.effects.stop

    @property
    def is_stop(self) -> bool:
        """A handler ends it all, without an objection to the prompt."""
        return not self.effects.feedback

    def record_refusal(self, prompt: Content, recorder: Recorder) -> None:
        """It was not said: that is all a transcript tells."""
        message = self.refusal or ""
        source = self.effects.feedback_sources[0] if self.effects.feedback_sources else ""
        reason = message.removeprefix(f"[{source}]: ").strip()
        refused_prompt = RefusedPrompt(
            prompt=content_text(prompt), message=message, reason=reason, is_stop=self.is_stop
        )
        recorder.record_refused_prompt(refused_prompt)

    def accept(self) -> tuple[str, ...]:
        """It was said: tell of the handlers; what the model is to read beside it."""
        # Clients tell of an answer's words there, not of the answer.
        reports = tuple(hook_report for hook_report in self.effects.reports if hook_report.outcome != "decision")
        self.session_hooks.report_effects(self.event, structs.replace(self.effects, reports=reports))
        return _format_contexts("UserPromptSubmit", self.effects.contexts)


def _format_contexts(point: str, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{point} hook additional context: {text}" for text in texts)


def _unreported_contexts(effects: HookEffects) -> Sequence[str]:
    """The contexts that no report tells of already: plain output is told with its handler."""
    reported_texts = {hook_report.text for hook_report in effects.reports if hook_report.outcome == "success"}
    return [text for text in effects.contexts if text not in reported_texts]


def _reply_text(content: object) -> str:
    blocks = content if isinstance(content, list) else []
    texts = (str(block.get("text")) for block in blocks if block.get("type") == "text")
    return content if isinstance(content, str) else "\n".join(texts)


def _describe_task(task: BackgroundTask) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": task.id,
        "type": "shell" if isinstance(task, CommandTask) else "subagent",
        "status": task.status,
        "description": task.description or task.command,
    }
    return {**fields, "command": task.command} if isinstance(task, CommandTask) else fields


def _summarize_stop(effects: HookEffects, report_id: str) -> StopSummary:
    handler_reports = [
        hook_report for hook_report in effects.reports if hook_report.outcome not in ("message", "stopped", "context")
    ]
    return StopSummary(
        handlers=tuple(
            (
                hook_report.command or hook_report.name,
                None if hook_report.outcome == "blocked" else hook_report.duration_ms,
            )
            for hook_report in handler_reports
        ),
        errors=effects.feedback,
        contexts=effects.contexts,
        stop=effects.stop,
        has_output=any(hook_report.stdout or hook_report.outcome == "blocked" for hook_report in handler_reports),
        report_id=report_id,
    )


MakeSkillHooks = Callable[[str, Path], HookRunner | None]
"""Makes handlers of a file's head: its lines, and where it lies.

Raises:
    ToolspanError: there are some, and they cannot be used.
"""


class SkillHookLoader:
    """What the skills of a session have brought along."""

    def __init__(self, add_hooks: Callable[[HookRunner], None]) -> None:
        self.make_hooks: MakeSkillHooks | None = None
        """None: skills bring nothing along here."""
        self._add_hooks = add_hooks
        self._loaded_paths: set[Path] = set()

    def load_skill_hooks(self, frontmatter: str, path: Path) -> None:
        """Take the handlers of a skill on.

        Raises:
            ToolspanError: they cannot be used.
        """
        if self.make_hooks is None or path in self._loaded_paths:
            return
        hooks = self.make_hooks(frontmatter, path)
        self._loaded_paths.add(path)
        if hooks is not None:
            self._add_hooks(hooks)
