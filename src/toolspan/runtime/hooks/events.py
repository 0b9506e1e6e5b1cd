"""The hook points around a call and a session, and the responses that hooks can give.

Callers use a `HookRunner`, which runs the handlers for a point and returns one merged response: a
`PreToolDecision` before a call, `HookEffects` elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from toolspan.runtime.process import ProcessSupervisor
from toolspan.types.decision import Decision
from toolspan.types.events import Content, HookReport
from toolspan.types.span import Call, Span
from toolspan.types.tool_kinds import ToolKind

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox
    from toolspan.runtime.tool import Tool

ExportVariables = Callable[[Mapping[str, str | None]], Mapping[str, str | None]]

HookPoint = Literal[
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
    "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact",
    "SessionStart", "SessionEnd", "Notification", "CwdChanged", "TaskCreated", "TaskCompleted",
    "StopFailure", "PermissionDenied", "WorktreeCreate", "FileChanged", "Elicitation", "ElicitationResult",
]  # fmt: skip


@dataclass(slots=True, kw_only=True)
class HookEnvironment:
    """The session state that hook handlers can access. Only the session modifies it."""

    project: Path
    """The folder in which the session started."""
    supervisor: ProcessSupervisor
    """The owner of all processes that handlers start."""
    session_folder: Path
    """The folder for messages that are too long for the model."""
    cwd: Callable[[], Path]
    """A function that returns the current folder of the session."""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    session_id: str | None = None
    transcript_path: Path | None = None
    permission_mode: Callable[[], str] = field(default=lambda: "default")
    prompt_id: str | None = None
    effort: str | None = None
    """The model's effort; None for the client version's default."""
    agent_id: str | None = None
    agent_type: str | None = None
    sandbox: ActiveSandbox | None = None
    """The session's sandbox, for handlers that run inside it."""
    export_variables: ExportVariables = field(default=lambda _variables: {})
    """A function that sets variables for later commands, or removes those whose value is None, and
    returns the former values.
    """


class ToolHookEvent(Struct, frozen=True, kw_only=True):
    """A call at a hook point."""

    call: Call
    input: Mapping[str, object]
    """The input with which the call runs or ran."""
    cwd: Path
    known_as: str | None = None
    """The name of the tool, if the model used an alias."""
    definition: Tool | None = None
    """The tool; None if the event was not made for a call of this session."""
    suggestions: tuple[Mapping[str, object], ...] = ()
    """The permission updates that the user could choose at PermissionRequest, in the client's format."""
    output: object | None = None
    """The result of a successful call: structured if available, otherwise text."""
    error: str | None = None
    interrupted: bool = False
    duration_ms: float | None = None

    @property
    def tool(self) -> str:
        """The name of the tool, even if the model used an alias."""
        return self.known_as or self.call.tool

    @property
    def kind(self) -> ToolKind:
        """The kind of the tool, as the tool declares it."""
        return self.call.kind if self.definition is None else self.definition.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHookEvent:
    """An event at a hook point that does not belong to a call."""

    point: HookPoint
    subject: str | None = None
    """The string that matchers are compared with, such as a source, a reason or an agent type."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """The input fields specific to this event, in addition to those common to all points."""
    tool_event: ToolHookEvent | None = None
    """The call that the event is about, if any."""


class PreToolDecision(Struct, frozen=True, kw_only=True):
    """The merged response from all handlers before a call."""

    decision: Decision | None = None
    """The merged decision: deny takes precedence over ask, and ask over allow. None leaves it to the
    permission rules.
    """
    input: Mapping[str, object] | None = None
    """The complete input that replaces the call's input."""
    defer: bool = False
    """True to postpone the call and end the turn."""
    permission_updates: tuple[Mapping[str, object], ...] = ()
    """Rule changes that accompany an approval, in the client's format."""
    contexts: tuple[str, ...] = ()
    """Messages that the model reads with the result."""
    stop: str | None = None
    """The reason to end the turn after this call."""
    reports: tuple[HookReport, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacedOutput:
    """An output that replaces the tool's output."""

    content: Content | None
    """The content; None to have the tool format `structured`."""
    structured: object | None = None


class HookEffects(Struct, frozen=True, kw_only=True):
    """The merged response from all handlers after a call, or at any other point."""

    output: ReplacedOutput | None = None
    contexts: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    """Objections. The model reads them with a call's result; at other points they reject a prompt or continue a
    turn.
    """
    feedback_sources: tuple[str, ...] = ()
    """The name of the handler that gave each item in `feedback`."""
    stop: str | None = None
    retry: bool = False
    """True if the model may request the same call again after a denial."""
    wake_messages: tuple[str, ...] = ()
    """Messages from asynchronous handlers that wake the model."""
    reports: tuple[HookReport, ...] = ()


class HookRunner(Protocol):
    """Interface for running the handlers at each hook point.

    A failing handler never raises; its failure is in the reports. The methods here are those of a runner without
    handlers, for subclasses to override.
    """

    @property
    def is_empty(self) -> bool:
        """True if there are no handlers at all, so that calls can skip their hooks."""
        return True

    def has_handler(self, point: HookPoint) -> bool:  # noqa: ARG002
        """Return whether there is a handler at this point."""
        return False

    def bind(self, hook_environment: HookEnvironment) -> HookRunner:  # noqa: ARG002
        """Return the same handlers, bound to one session. Handlers that are already bound keep their session."""
        return self

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:  # noqa: ARG002
        """Run the PreToolUse handlers."""
        return PreToolDecision()

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:  # noqa: ARG002
        """Run the PostToolUse handlers."""
        return HookEffects()

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:  # noqa: ARG002
        """Run the PostToolUseFailure handlers. Not used for calls that the user interrupted."""
        return HookEffects()

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:  # noqa: ARG002
        """Run the PostToolBatch handlers."""
        return HookEffects()

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:  # noqa: ARG002
        """Run the PermissionRequest handlers before the approver is asked."""
        return PreToolDecision()

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:  # noqa: ARG002
        """Run the handlers for a point that is not about a call, such as Stop."""
        return HookEffects()

    @property
    def has_wake_request(self) -> bool:
        """True if an asynchronous handler requests that the model be woken."""
        return False

    async def wait_for_wake_request(self) -> bool:
        """Wait for a wake request, or return False if no running handler can make one. The wait can be cancelled."""
        return False

    async def collect_wake_requests(self) -> HookEffects:
        """Return the pending `wake_messages`, each once."""
        return HookEffects()


class NoHooks(HookRunner):
    """A runner without handlers."""

    is_empty = True  # perf: read three times per call
