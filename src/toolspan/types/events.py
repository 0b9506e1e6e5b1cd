"""What the runner emits while calls live: the events that every sink receives, in order.

`Requested` comes first for a call and `Finished` last, exactly once each. Between them stand hooks,
the permission question, the start and progress. Times are seconds since the epoch. The values are
frozen: a sink may keep them, and cannot harm a call with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolspan.types.decision import DecisionBasis
from toolspan.types.ids import CallId
from toolspan.types.span import Call, HookOutcome, Span

Content = str | list[dict[str, object]]
"""What the model reads: a text or a list of blocks."""


class Requested(Struct, frozen=True, kw_only=True, tag="call.requested"):
    """A call was accepted: it will get exactly one result."""

    call: Call
    at: float
    recovers: CallId | None = None
    """The failed call that this one was made to mend."""


class HookReport(Struct, frozen=True, kw_only=True):
    """What one handler at one hook point did."""

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
    """What it decided, in one word."""
    source: str | None = None
    """Who put the handler there: a scope of the settings, or None for the program itself."""
    timed_out: bool = False
    timeout_ms: float | None = None
    """What it was given, when it did not end in time."""
    fault: bool = False
    """It ran, and what it said could not be used."""


class HookRan(HookReport, frozen=True, kw_only=True, tag="hook.finished"):
    """One handler at one hook point was run for a call."""

    call_id: CallId
    at: float


class PermissionRequested(Struct, frozen=True, kw_only=True, tag="permission.waiting"):
    """Somebody is asked whether the call may run."""

    call_id: CallId
    reason: str | None
    at: float


class Decided(Struct, frozen=True, kw_only=True, tag="permission.decided"):
    """The call may run, or may not."""

    call_id: CallId
    allowed: bool
    source: str
    reason: str | None = None
    rule: str | None = None
    """The rule that decided, as it was written."""
    origin: str | None = None
    """Where that rule comes from."""
    basis: DecisionBasis | None = None
    """What the decision rests on; for an answer, what the question rested on."""
    missed: str | None = None
    """Why a command line is not free, in the client's word."""
    mode: str | None = None
    """The permission mode, when it decided and a tool had set it."""
    asked: bool = False
    """Somebody was asked, or would have been."""
    waited_ms: float = 0.0
    at: float


class Started(Struct, frozen=True, kw_only=True, tag="call.started"):
    """The tool itself begins."""

    call_id: CallId
    at: float


class Progressed(Struct, frozen=True, kw_only=True, tag="call.progress"):
    """A running tool has news."""

    call_id: CallId
    kind: str
    data: Mapping[str, object]
    at: float


class Slow(Struct, frozen=True, kw_only=True, tag="call.slow"):
    """A call runs longer than its tool usually does."""

    call_id: CallId
    tool: str
    expected_s: float
    at: float


class Finished(Struct, frozen=True, kw_only=True, tag="call.finished"):
    """A call has its result; `span` is its whole life."""

    span: Span
    content: Content
    structured: object | None
    """As it is recorded: the JSON value beside the result."""
    decision: Decided | None = None
    companions: tuple[Content, ...] = ()
    """What is told to the model beside the result: context of hooks, notes on pictures."""
    contexts: tuple[HookContext, ...] = ()
    structured_output: object | None = None
    """An answer in a shape the host asked for."""
    beside: Mapping[str, object] = {}
    """Further keys of the result's record."""
    stop: str | None = None
    """Set when the turn ends with this call, with the reason."""
    cwd: str | None = None
    """The folder in which the call leaves the session."""
    duration_ms: float
    at: float

    @property
    def call_id(self) -> CallId:
        """The call."""
        return self.span.id


class HookContext(Struct, frozen=True, kw_only=True):
    """What a hook adds for the model to read."""

    point: str
    name: str
    text: str
    model_text: str | None = None
    """As the model reads it, when it is an objection; that is recorded with its handler."""


class Duplicate(Struct, frozen=True, kw_only=True, tag="call.duplicate"):
    """A call came with an id that was there before; it was not accepted and not run."""

    call_id: CallId
    tool: str
    at: float


class BatchFinished(Struct, frozen=True, kw_only=True, tag="batch.finished"):
    """Every call of an assistant message has its result."""

    call_ids: tuple[CallId, ...]
    stop: str | None
    """Set when a hook or a person ended the turn, with the reason."""
    at: float


class Faulted(Struct, frozen=True, kw_only=True, tag="fault"):
    """Code beside a call failed: a sink, a context modifier. The call itself is not harmed."""

    where: str
    reason: str
    call_id: CallId | None = None
    at: float


class WriteFailed(Struct, frozen=True, kw_only=True, tag="transcript.write_failed"):
    """A line could not be written to the transcript; the run goes on."""

    path: str
    reason: str
    at: float


class RecoveryApplied(Struct, frozen=True, kw_only=True, tag="recovery.applied"):
    """A policy mended a failed call by further calls."""

    call_id: CallId
    policy: str
    steps: tuple[CallId, ...]
    succeeded: bool
    at: float


RunnerEvent = (
    Requested | HookRan | PermissionRequested | Decided | Started | Progressed | Slow | Finished | Duplicate
    | BatchFinished | Faulted | WriteFailed | RecoveryApplied
)  # fmt: skip
"""What a runner emits of its own calls."""


class Relayed(Struct, frozen=True, kw_only=True, tag="agent.event"):
    """What the runner of a subagent emits, for those who watch the conversation above it."""

    agent_id: str
    agent_type: str
    call_id: CallId
    """The call that started the subagent."""
    event: RunnerEvent

    @property
    def at(self) -> float:
        """When it happened."""
        return self.event.at


LiveEvent = RunnerEvent | Relayed
