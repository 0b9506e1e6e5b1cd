"""The hook points around a call and a session, and what the handlers there may answer.

Whoever is at a point fires it and gets one merged answer: `Before` or `After`. How handlers are
found and run (functions, commands, servers) is behind the protocol `Firing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Self

from msgspec import Struct

from toolspan.runtime.process import ProcessSupervisor
from toolspan.types.decision import Decision
from toolspan.types.events import Content
from toolspan.types.events import HookReport as Report
from toolspan.types.span import Call, Span

ExportVariables = Callable[[Mapping[str, str | None]], Mapping[str, str | None]]


@dataclass(slots=True, kw_only=True)
class HookEnvironment:
    """A session, as far as handlers may see it. Only the session changes it."""

    project: Path
    """Where the session began."""
    supervisor: ProcessSupervisor
    """Every process that a handler starts."""
    session_folder: Path
    """The session's own folder; what is too long for the model is kept there."""
    cwd: Callable[[], Path]
    """The folder the session is in now."""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    session_id: str | None = None
    transcript_path: Path | None = None
    permission_mode: Callable[[], str] = field(default=lambda: "default")
    prompt_id: str | None = None
    effort: str | None = None
    """How hard the model thinks; None: as the client version does by itself."""
    agent_id: str | None = None
    agent_type: str | None = None
    export_variables: ExportVariables = field(default=lambda _found: {})
    """Sets variables of later commands; None takes one away. Gives what they were."""


HookPoint = Literal[
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest",
    "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact",
    "SessionStart", "SessionEnd", "Notification", "CwdChanged", "TaskCreated", "TaskCompleted",
    "StopFailure", "PermissionDenied", "WorktreeCreate", "FileChanged",
]  # fmt: skip
"""Where user code is called."""


class PreToolDecision(Struct, frozen=True, kw_only=True):
    """What all handlers before a call say together."""

    decision: Decision | None = None
    """Deny before ask before allow; None is no opinion."""
    input: Mapping[str, object] | None = None
    """Run with this instead; complete, not a difference."""
    defer: bool = False
    """Neither yes nor no: the call is put off, and the turn ends."""
    permission_updates: tuple[Mapping[str, object], ...] = ()
    """Changes to the rules that a consent comes with, in the client's words."""
    contexts: tuple[str, ...] = ()
    """For the model to read beside the result."""
    stop: str | None = None
    """End the turn after this call, with this reason."""
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacedOutput:
    """Another output instead of the tool's."""

    content: Content | None
    """None: as the tool shows a result like `structured`."""
    structured: object | None = None


class HookEffects(Struct, frozen=True, kw_only=True):
    """What all handlers after a call, or a batch, say together."""

    output: ReplacedOutput | None = None
    contexts: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    """Objections: the result stays, the model reads them beside it; or the turn does not end, the
    prompt does not count."""
    feedback_sources: tuple[str, ...] = ()
    """Who objects: the handler of each feedback."""
    stop: str | None = None
    retry: bool = False
    """After a refusal: the model may ask for the same call again."""
    wake_messages: tuple[str, ...] = ()
    """What the model is woken with, by handlers that nobody waited for."""
    reports: tuple[Report, ...] = ()


class ToolHookEvent(Struct, frozen=True, kw_only=True):
    """A call at a hook point."""

    call: Call
    input: Mapping[str, object]
    """As it is going to run, or ran."""
    cwd: Path
    known_as: str | None = None
    """The tool's own name, when the model used another one for it."""
    suggestions: tuple[Mapping[str, object], ...] = ()
    """Where somebody is asked: what they could say beside yes and no, in the client's words."""
    output: object | None = None
    """After a success: the structured result, else the text."""
    error: str | None = None
    interrupted: bool = False
    duration_ms: float | None = None

    @property
    def tool(self) -> str:
        """The tool's own name."""
        return self.known_as or self.call.tool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHookEvent:
    """A point that is about no single call."""

    point: HookPoint
    subject: str | None = None
    """What matchers are compared with: a source, a reason, a kind of agent."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """What handlers are told beside what they always are."""
    tool_event: ToolHookEvent | None = None
    """The call that it is about after all."""


class HookRunner(Protocol):
    """Runs the handlers of a point. Never raises for what a handler did: that is in the reports."""

    @property
    def is_empty(self) -> bool:
        """True when there is no handler at all, so that firing can be skipped."""
        ...

    def has_handler(self, point: HookPoint) -> bool:
        """Whether there is a handler at this point."""
        ...

    def bind(self, hook_environment: HookEnvironment) -> HookRunner:
        """The same handlers for one session; those that have one keep it."""
        ...

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """PreToolUse."""
        ...

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:
        """PostToolUse."""
        ...

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:
        """PostToolUseFailure: not for calls that a user ended."""
        ...

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:
        """PostToolBatch."""
        ...

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:
        """PermissionRequest: somebody is about to be asked."""
        ...

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:
        """Any other point."""
        ...

    @property
    def has_wake_request(self) -> bool:
        """Whether a handler that nobody waited for wants the model to be woken now."""
        ...

    async def wait_for_wake_request(self) -> bool:
        """Wait for such a handler; False when none runs that could be one. May be cancelled."""
        ...

    async def collect_wake_requests(self) -> HookEffects:
        """Hear those that want it now: their `news`, each once."""
        ...


@dataclass(frozen=True, slots=True)
class NoHooks:
    """Nobody listens."""

    is_empty: bool = field(default=True, init=False)
    has_wake_request: bool = field(default=False, init=False)

    def has_handler(self, point: HookPoint) -> bool:  # noqa: ARG002 - the protocol's
        """Nobody does."""
        return False

    def bind(self, hook_environment: HookEnvironment) -> Self:  # noqa: ARG002
        """The same nobody."""
        return self

    async def run_pre_tool_use(self, tool_event: ToolHookEvent) -> PreToolDecision:  # noqa: ARG002
        """No opinion."""
        return PreToolDecision()

    async def run_post_tool_use(self, tool_event: ToolHookEvent) -> HookEffects:  # noqa: ARG002
        """Nothing to add."""
        return HookEffects()

    async def run_post_tool_use_failure(self, tool_event: ToolHookEvent) -> HookEffects:  # noqa: ARG002
        """Nothing to add."""
        return HookEffects()

    async def run_post_tool_batch(self, spans: Sequence[Span]) -> HookEffects:  # noqa: ARG002
        """Nothing to add."""
        return HookEffects()

    async def run_permission_request(self, tool_event: ToolHookEvent) -> PreToolDecision:  # noqa: ARG002
        """No opinion."""
        return PreToolDecision()

    async def run_session_event(self, session_event: SessionHookEvent) -> HookEffects:  # noqa: ARG002
        """Nothing to add."""
        return HookEffects()

    async def wait_for_wake_request(self) -> bool:
        """Nobody is waited for."""
        return False

    async def collect_wake_requests(self) -> HookEffects:
        """Nothing to add."""
        return HookEffects()
