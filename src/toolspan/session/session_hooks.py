"""Hooks around a conversation: session start and end, prompts, the end of a turn.

`SessionHooks` runs them, and reports and records their effects. `NotificationQueue` collects
messages that the model must read when a turn begins, from finished background work and from hooks
that wake the model.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import anyio
from msgspec import structs

from toolspan.runtime.background import AgentTask, BackgroundTask, BackgroundTasks, CommandTask, format_notification
from toolspan.runtime.context import RunnerContext
from toolspan.runtime.hooks.events import HookEffects, HookPoint, HookRunner, SessionHookEvent
from toolspan.runtime.outcome import content_text
from toolspan.runtime.profiles import Profile
from toolspan.session.conversation import Conversation
from toolspan.session.environment import SubagentInfo
from toolspan.session.recording import BackgroundNotice, Recorder, RefusedPrompt, StopSummary
from toolspan.types.events import Content, HookReport
from toolspan.types.ids import CallId

SESSION_END_TIMEOUT = 62.0
"""The number of seconds after which SessionEnd hooks that ignore their own timeouts are abandoned."""
_MAIN_SESSION_EVENTS: frozenset[HookPoint] = frozenset({
    "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop", "StopFailure",
})  # fmt: skip
"""Hook points that do not apply to subagents."""
_DEFAULT_MAX_WAKES = 8


@dataclass(frozen=True, slots=True)
class TurnEndEffects:
    """The effects of hooks at the end of a turn. Without feedback and notifications, the turn is over."""

    feedback: tuple[str, ...] = ()
    """Messages that make the model continue."""
    notifications: tuple[str, ...] = ()
    """Messages from asynchronous hooks, which also make the model continue."""
    stop: str | None = None


class SessionHooks:
    """The hooks around one conversation."""

    def __init__(
        self, runner_context: RunnerContext, recorder: Recorder | None, subagent: SubagentInfo | None = None
    ) -> None:
        self._runner_context = runner_context
        self._recorder = recorder
        self._subagent = subagent
        self._start_effects: HookEffects | None = None
        """The effects of the start hooks, which are reported with the first prompt."""
        self._blocked_stops = 0
        """The number of consecutive times that hooks have kept the turn from ending."""
        self._wake_count = 0
        """The number of times that hooks have woken the model since the last prompt."""

    @property
    def _hook_runner(self) -> HookRunner:
        return self._runner_context.hooks  # not cached, because a session may add hooks

    def has_handlers(self, point: HookPoint) -> bool:
        """Return whether there are any hooks at this point."""
        if self._hook_runner.is_empty or (self._subagent is not None and point in _MAIN_SESSION_EVENTS):
            return False
        return self._hook_runner.has_handler(point)

    async def fire_event(self, event: SessionHookEvent) -> HookEffects:
        """Run the hooks for an event and report their effects."""
        if not self.has_handlers(event.point):
            return HookEffects()
        effects = await self._run_event(event)
        self.report_effects(event, effects)
        return effects

    async def _run_event(self, event: SessionHookEvent) -> HookEffects:
        return await self._runner_context.run_hook(self._hook_runner.run_session_event(event))

    async def fire_session_start(self, source: str) -> None:
        """Run the hooks at the start of a session or subagent."""
        event = self._start_event(source)
        if self.has_handlers(event.point):
            self._start_effects = await self._run_event(event)

    def take_start_contexts(self) -> tuple[str, ...]:
        """Return the context from start hooks for the model. Later calls return nothing."""
        effects, self._start_effects = self._start_effects, None
        if effects is None:
            return ()
        event = self._start_event("")
        self.report_effects(event, effects)
        return _format_contexts(event.point, effects.contexts)

    def _start_event(self, source: str) -> SessionHookEvent:
        if self._subagent is None:
            return SessionHookEvent(point="SessionStart", subject=source, fields={"source": source})
        return SessionHookEvent(point="SubagentStart", subject=self._subagent.agent_type)

    async def fire_session_end(self, reason: str) -> None:
        """Run the hooks at the end of the session, shielded from cancellation."""
        event = SessionHookEvent(point="SessionEnd", subject=reason, fields={"reason": reason})
        if self.has_handlers(event.point):
            with anyio.CancelScope(shield=True), anyio.move_on_after(SESSION_END_TIMEOUT):
                await self.fire_event(event)

    async def review_prompt(self, content: Content) -> PromptReview:
        """Run the hooks for a prompt."""
        event = SessionHookEvent(point="UserPromptSubmit", fields={"prompt": content_text(content)})
        return PromptReview(self, event, await self._run_event(event))

    async def fire_turn_end(self, reply: Mapping[str, object]) -> TurnEndEffects:
        """Run the hooks at the end of a turn and wait for a pending wake request."""
        point: HookPoint = "Stop" if self._subagent is None else "SubagentStop"
        effects = await self._fire_stop(point, reply) if self.has_handlers(point) else TurnEndEffects()
        if effects.feedback or effects.stop is not None or not self.has_wake_request:
            return effects
        return TurnEndEffects(notifications=await self.wait_for_wake())

    async def _fire_stop(self, point: HookPoint, reply: Mapping[str, object]) -> TurnEndEffects:
        subagent, recorder, values = self._subagent, self._recorder, self._runner_context.profile.hooks
        fields: dict[str, object] = {
            "stop_hook_active": self._blocked_stops + self._wake_count > 0,
            "last_assistant_message": _reply_text(reply.get("content")),
            "background_tasks": [_describe_task(task) for task in self._runner_context.workspace.tasks.running],
            "session_crons": [],
        }
        if subagent is not None and recorder is not None:
            fields["agent_transcript_path"] = str(recorder.path.absolute())
        event = SessionHookEvent(point=point, subject=subagent.agent_type if subagent else None, fields=fields)
        effects = await self._run_event(event)
        feedback = tuple(f"Stop hook feedback:\n{text}" for text in effects.feedback)
        feedback += _format_contexts("Stop", effects.contexts)
        is_limit_reached = values.max_stop_blocks is not None and self._blocked_stops >= values.max_stop_blocks
        if effects.stop is not None or is_limit_reached:
            feedback = ()
        self._blocked_stops = self._blocked_stops + 1 if feedback else 0
        for message in feedback:
            if recorder is not None:
                recorder.record_prompt(message, meta=True)
        report_id = self.report_effects(event, effects)
        if recorder is not None and subagent is None and values.summarizes_stop:
            recorder.handle(_summarize_stop(effects, report_id))
        return TurnEndEffects(feedback, stop=effects.stop)

    def reset_wake_count(self) -> None:
        """Reset the wake count after a prompt, so that hooks may wake the model again."""
        self._wake_count = 0

    @property
    def has_wake_request(self) -> bool:
        """True if an asynchronous hook requests to wake the model and may do so."""
        return self._hook_runner.has_wake_request and self._can_wake

    @property
    def _can_wake(self) -> bool:
        # A hook that wakes the model whenever its turn ends would keep it running forever.
        return self._wake_count < (self._runner_context.profile.hooks.max_stop_blocks or _DEFAULT_MAX_WAKES)

    async def wait_for_wake(self) -> tuple[str, ...]:
        """Wait for an asynchronous hook to wake the model and return its messages; empty if no such hook is left."""
        if not self._can_wake or not await self._hook_runner.wait_for_wake_request():
            return ()
        with anyio.CancelScope(shield=True):  # a collected request must not be lost
            effects = await self._hook_runner.collect_wake_requests()
        self._wake_count += bool(effects.wake_messages)
        self._runner_context.emit_hook_reports(CallId(str(uuid.uuid4())), effects.reports)
        return effects.wake_messages

    def report_effects(self, event: SessionHookEvent, effects: HookEffects) -> str:
        """Report the effects of an event's hooks, and return the report's id."""
        report_id = str(uuid.uuid4())
        ordered_reports = sorted(effects.reports, key=lambda report: report.outcome != "stopped")
        self._runner_context.emit_hook_reports(CallId(report_id), tuple(ordered_reports))
        reported_texts = {report.text for report in effects.reports if report.outcome == "success"}
        context_reports = (
            HookReport(point=event.point, name=event.point, outcome="context", text=text)
            for text in effects.contexts
            if text not in reported_texts  # plain output is reported with its hook
        )
        self._runner_context.emit_hook_reports(CallId(f"hook-{report_id}"), tuple(context_reports))
        return report_id


@dataclass(frozen=True, slots=True)
class PromptReview:
    """The hooks' response to a prompt, which is not recorded yet."""

    session_hooks: SessionHooks
    event: SessionHookEvent
    effects: HookEffects

    @property
    def refusal(self) -> str | None:
        """The reason the prompt is refused, or None if it is accepted."""
        return "\n".join(self.effects.feedback) or self.effects.stop

    def record_refusal(self, prompt: Content, recorder: Recorder) -> None:
        """Record the refused prompt."""
        message, effects = self.refusal or "", self.effects
        source = effects.feedback_sources[0] if effects.feedback_sources else ""
        reason = message.removeprefix(f"[{source}]: ").strip()
        is_stop = not effects.feedback
        recorder.handle(RefusedPrompt(prompt=content_text(prompt), message=message, reason=reason, is_stop=is_stop))

    def accept(self) -> tuple[str, ...]:
        """Report the hooks' effects and return their context for the model."""
        # Clients report the text of a decision here, not the decision.
        reports = tuple(report for report in self.effects.reports if report.outcome != "decision")
        self.session_hooks.report_effects(self.event, structs.replace(self.effects, reports=reports))
        return _format_contexts("UserPromptSubmit", self.effects.contexts)


def _format_contexts(point: str, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{point} hook additional context: {text}" for text in texts)


def _reply_text(content: object) -> str:
    blocks = content if isinstance(content, list) else []
    texts = (str(block.get("text")) for block in blocks if block.get("type") == "text")
    return content if isinstance(content, str) else "\n".join(texts)


def _describe_task(task: BackgroundTask) -> dict[str, object]:
    is_command = isinstance(task, CommandTask)
    fields: dict[str, object] = {"id": task.id, "type": "shell" if is_command else "subagent", "status": task.status}
    fields["description"] = task.description or task.command
    return {**fields, "command": task.command} if is_command else fields


def _summarize_stop(effects: HookEffects, report_id: str) -> StopSummary:
    reports = [report for report in effects.reports if report.outcome not in ("message", "stopped", "context")]
    return StopSummary(
        handlers=tuple(
            (report.command or report.name, None if report.outcome == "blocked" else report.duration_ms)
            for report in reports
        ),
        errors=effects.feedback,
        contexts=effects.contexts,
        stop=effects.stop,
        has_output=any(report.stdout or report.outcome == "blocked" for report in reports),
        report_id=report_id,
    )


class NotificationQueue:
    """Messages that the model has not read yet: sent messages, finished background work and wake requests."""

    def __init__(
        self, tasks: BackgroundTasks, profile: Profile, hooks: SessionHooks, conversation: Conversation
    ) -> None:
        self.pending: deque[str] = deque()
        """Messages that the model reads with the next results."""
        self._tasks = tasks
        self._notifies = profile.tasks.notifies
        self._profile = profile
        self._hooks = hooks
        self._conversation = conversation

    def take_texts(self, *, as_prompts: bool = False) -> list[str]:
        """Remove and return all messages, and record them, unless the caller records them as prompts."""
        texts = list(self.pending)
        self.pending.clear()
        if self._notifies:
            texts += [format_notification(task, self._profile) for task in self._tasks.take_finished()]
        if not as_prompts:
            for text in texts:
                self._conversation.record(BackgroundNotice(text))
        return texts

    async def collect_hook_texts(self) -> bool:
        """Wait for hooks that wake the model, and return whether any messages are pending."""
        self.pending.extend(await self._hooks.wait_for_wake())
        return bool(self.pending)

    @property
    def has_running_agents(self) -> bool:
        """True if background agents that will notify the model are running."""
        return self._notifies and any(isinstance(task, AgentTask) for task in self._tasks.running)

    async def wait_for_next(self) -> None:
        """Wait until background work finishes or a hook wakes the model."""

        async def wait_for_task() -> None:
            await self._tasks.wait_any()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_task)
            if await self.collect_hook_texts():
                group.cancel_scope.cancel()
