"""Events that the runner emits to every sink, in order.

Each call starts with one `Requested` and ends with one `Finished`; hooks, the permission decision, the start and
progress come in between. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from toolspan.types.decision import DecisionBasis
from toolspan.types.ids import CallId, SessionId
from toolspan.types.span import Call, HookOutcome, Span

Content = str | list[dict[str, object]]
"""Content for the model: a string or a list of blocks."""


class Requested(Struct, frozen=True, kw_only=True, tag="call.requested"):
    """Emitted when a call is accepted. It will get exactly one result."""

    call: Call
    at: float
    recovers: CallId | None = None
    """The failed call that this call is meant to recover."""


class HookReport(Struct, frozen=True, kw_only=True):
    """A report on one hook handler that ran at one hook point."""

    point: str
    name: str
    outcome: HookOutcome
    command: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    text: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    decision: str | None = None
    source: str | None = None
    """The settings scope that registered the handler; None if the program did."""
    timed_out: bool = False
    timeout_ms: float | None = None
    """The timeout, if the handler exceeded it."""
    fault: bool = False
    """True if the handler ran but its output was invalid."""


class HookRan(HookReport, frozen=True, kw_only=True, tag="hook.finished"):
    """Emitted after a hook handler has run for a call."""

    call_id: CallId
    at: float


class PermissionRequested(Struct, frozen=True, kw_only=True, tag="permission.waiting"):
    """Emitted when a call starts to wait for an approver."""

    call_id: CallId
    reason: str | None
    at: float


class Decided(Struct, frozen=True, kw_only=True, tag="permission.decided"):
    """Emitted when the permission decision on a call has been made."""

    call_id: CallId
    allowed: bool
    source: str
    reason: str | None = None
    rule: str | None = None
    """The rule that decided, as written."""
    origin: str | None = None
    """The source of that rule: `projectSettings`, `cliArg`, …"""
    basis: DecisionBasis | None = None
    """The basis of the decision; if an approver answered, the basis of the question."""
    missed: str | None = None
    """The client's code for the reason why a command line needed approval."""
    mode: str | None = None
    """The permission mode, if it determined the decision and a tool had set it."""
    asked: bool = False
    """True if the call needed an approver, even if none was present."""
    waited_ms: float = 0.0
    at: float


class Started(Struct, frozen=True, kw_only=True, tag="call.started"):
    """Emitted when a tool starts."""

    call_id: CallId
    at: float


class Progressed(Struct, frozen=True, kw_only=True, tag="call.progress"):
    """Emitted when a running tool reports progress."""

    call_id: CallId
    kind: str
    data: Mapping[str, object]
    at: float


class SandboxViolation(Struct, frozen=True, kw_only=True):
    """An access that the sandbox denied to a command, or a file that it could not protect."""

    action: Literal["write", "read", "connect", "socket", "planted"]
    """The denied access; `planted` if the command created a file from which other programs run code later."""
    target: str
    """A path, or a host with or without its port."""


class SandboxDenied(Struct, frozen=True, kw_only=True, tag="sandbox.denied"):
    """Emitted when the sandbox has denied a command access to files or hosts, or a command has planted a file."""

    call_id: CallId
    violations: tuple[SandboxViolation, ...]
    at: float


class Slow(Struct, frozen=True, kw_only=True, tag="call.slow"):
    """Emitted when a call has been running longer than is usual for its tool."""

    call_id: CallId
    tool: str
    expected_s: float
    at: float


class Finished(Struct, frozen=True, kw_only=True, tag="call.finished"):
    """Emitted when a call has its result."""

    span: Span
    content: Content
    structured: object | None
    """The structured result to record beside the content."""
    decision: Decided | None = None
    companions: tuple[Content, ...] = ()
    """Further content for the model, such as hook context and notes on images."""
    contexts: tuple[HookContext, ...] = ()
    structured_output: object | None = None
    """A final answer that follows the schema requested by the host."""
    beside: Mapping[str, object] = {}
    """Additional keys for the result's transcript record."""
    stop: str | None = None
    """The reason why the turn ends with this call, if any."""
    cwd: str | None = None
    """The working folder after the call, if it changed."""
    duration_ms: float
    at: float

    @property
    def call_id(self) -> CallId:
        """The id of the finished call."""
        return self.span.id


class HookContext(Struct, frozen=True, kw_only=True):
    """Text that a hook adds to the conversation."""

    point: str
    name: str
    text: str
    model_text: str | None = None
    """The text as the model reads it, if the hook objected."""


class Duplicate(Struct, frozen=True, kw_only=True, tag="call.duplicate"):
    """Emitted when a call is rejected without running, because its id was already used."""

    call_id: CallId
    tool: str
    at: float


class BatchFinished(Struct, frozen=True, kw_only=True, tag="batch.finished"):
    """Emitted when every call in an assistant message has its result."""

    call_ids: tuple[CallId, ...]
    stop: str | None
    """The reason why a hook or the user ended the turn, if any."""
    at: float


class Faulted(Struct, frozen=True, kw_only=True, tag="fault"):
    """Emitted when code around a call fails, such as a sink or a context modifier.

    The call is not affected.
    """

    where: str
    reason: str
    call_id: CallId | None = None
    at: float


class WriteFailed(Struct, frozen=True, kw_only=True, tag="transcript.write_failed"):
    """Emitted when a transcript record could not be written. The run continues."""

    path: str
    reason: str
    at: float


class LimitReached(Struct, frozen=True, kw_only=True, tag="limit.reached"):
    """Emitted when an agent's limit ends a turn, or prevents a call with side effects."""

    scope: Literal["turn", "session"]
    name: Literal["cost", "tokens", "seconds", "calls"]
    limit: float
    """US dollars for `cost`, otherwise a count."""
    spent: float
    at: float


class RecoveryApplied(Struct, frozen=True, kw_only=True, tag="recovery.applied"):
    """Emitted after a recovery policy has run further calls for a failed call."""

    call_id: CallId
    policy: str
    steps: tuple[CallId, ...]
    succeeded: bool
    at: float


class ModelReplied(Struct, frozen=True, kw_only=True, tag="model.replied"):
    """Emitted by an agent when a request to its model has ended, with a reply or a failure."""

    session_id: SessionId | None
    agent_id: str | None = None
    """The subagent that made the request; None for the main conversation."""
    model: str
    """The name in the request."""
    reply_model: str | None = None
    """The name in the reply, if there was one."""
    message_id: str | None = None
    tokens: Mapping[str, int] = {}
    """The usage, by field name of the Messages API."""
    stop_reason: str | None = None
    error: str | None = None
    """The kind of the failure, such as `rate_limit_error`; None if the reply is complete."""
    started: float
    at: float


RunnerEvent = (
    Requested | HookRan | PermissionRequested | Decided | Started | Progressed | SandboxDenied | Slow | Finished
    | Duplicate | BatchFinished | Faulted | WriteFailed | RecoveryApplied | LimitReached | ModelReplied
)  # fmt: skip


class Relayed(Struct, frozen=True, kw_only=True, tag="agent.event"):
    """An event from a subagent's runner, passed on to the parent's sinks."""

    agent_id: str
    agent_type: str
    call_id: CallId
    """The call that started the subagent."""
    event: RunnerEvent

    @property
    def at(self) -> float:
        """The time of the event."""
        return self.event.at


LiveEvent = RunnerEvent | Relayed
