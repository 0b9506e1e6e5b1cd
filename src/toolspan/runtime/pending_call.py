"""What calls are run with: the desk they share, and the job that each of them is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from msgspec import Struct

from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.hooks.events import HookRunner, PreToolDecision
from toolspan.runtime.isolation import IsolatedTask, IsolatedTasks
from toolspan.runtime.live_bodies import LiveBodyStore
from toolspan.runtime.outcome import Outcome
from toolspan.runtime.permissions.decide import Approver, Policy
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.sinks import LoopThread
from toolspan.runtime.tool import GRACE, PROCESS_GRACE, Tool
from toolspan.runtime.toolset import Toolset
from toolspan.types.decision import Decision
from toolspan.types.events import Decided, Finished, LiveEvent, Progressed
from toolspan.types.ids import CallId
from toolspan.types.span import Call

T = TypeVar("T")
CancelSource = Literal["user", "host", "turn", "sibling", "discarded"]
"""Who ended a call: a person, the program around us, the end of the turn, a failed sibling, or the
reply being streamed anew."""
MAX_DECISIONS = 1_000


@dataclass(slots=True, kw_only=True)
class RunnerContext:
    """What the calls of a session are run with."""

    tools: Toolset
    profile: Profile
    workspace: Workspace
    call_context: CallContext
    hooks: HookRunner
    policies: tuple[Policy, ...]
    fallback: Policy | None
    """Decides when no policy and no hook has an opinion; None allows."""
    approver: Approver | None
    emit: Callable[[LiveEvent], None]
    isolated_tasks: IsolatedTasks
    """Where the code of users is awaited."""
    loop_thread: LoopThread = field(default_factory=LoopThread)
    """The thread in which events are told."""
    observed_events: frozenset[type[LiveEvent]] = frozenset()
    """The kinds of events that somebody hears; the frequent ones are made only for those."""
    decisions: dict[CallId, Decision] = field(default_factory=dict)
    """How the permission question of the latest calls was answered; see `remember`."""
    clock: Callable[[], float] = time.time
    grace: float = GRACE
    """Seconds that checks, policies and approvers get to stop when they are told to."""
    hooks_grace: float = PROCESS_GRACE
    """As much for hooks, which may be processes."""

    def remember_decision(self, call_id: CallId, decision: Decision) -> None:
        """Keep a decision for calls that ask about it; a session may be long, so not for ever."""
        self.decisions[call_id] = decision
        if len(self.decisions) > MAX_DECISIONS:
            del self.decisions[next(iter(self.decisions))]

    def run_check(self, work: Awaitable[T], label: str, pending: PendingCall) -> Awaitable[T]:
        """What a check, a policy or an approver says."""
        return self.isolated_tasks.run(work, self.grace, label, pending)

    def run_hook(self, work: Awaitable[T], pending: PendingCall | None = None) -> Awaitable[T]:
        """What hooks say."""
        return self.isolated_tasks.run(work, self.hooks_grace, "hook", pending)


NO_DECISION = PreToolDecision()


class PendingCall(Struct, kw_only=True, eq=False):
    """One accepted call on its way."""

    call: Call
    body_store: LiveBodyStore
    tool: Tool | None
    parsed: Valid | Invalid | None
    requested_at: float
    message: Mapping[str, object] | None = None
    truncated: bool = False
    """The reply ended in the middle of it, so nobody knows what was asked for."""
    isolated_task: IsolatedTask | None = None
    """What it waits for."""
    cancelled_by: CancelSource | None = None
    started_at: float | None = None
    tool_context: ToolContext | None = None
    decision_event: Decided | None = None
    pre_tool_decision: PreToolDecision = NO_DECISION
    held_progress: Progressed | None = None
    """The latest progress, held back because others came just before."""
    progress_sent_at: float = 0.0
    """When progress was last passed on."""
    slow_reported: bool = False
    outcome: Outcome | None = None
    """How the tool itself ended: it stays, even if what comes after it is cut off or fails."""
    modify: Callable[[CallContext], CallContext] | None = None
    finished: Finished | None = None

    @property
    def is_blocking(self) -> bool:
        """Whether it is in its tool, and that is not to be interrupted."""
        blocks = self.tool is not None and self.tool.interrupt == "block"
        return blocks and self.started_at is not None and self.outcome is None

    def set_waiting_on(self, isolated: IsolatedTask | None) -> None:
        """From now on this is what it waits for; not at all, if it is to end."""
        self.isolated_task = isolated
        if isolated is not None and self.cancelled_by:
            isolated.cancel_wait()

    def mark_host_cancelled(self) -> None:
        """The program around us is gone."""
        self.cancelled_by = self.cancelled_by or "host"

    def cancel(self, by: CancelSource) -> None:
        """End it; the first who says so is remembered."""
        if self.cancelled_by is None:
            self.cancelled_by = by
            if self.isolated_task is not None:
                self.isolated_task.cancel_wait()


class PreparedCall(Struct, frozen=True):
    """A call that may run, with the input it runs with."""

    tool: Tool
    valid: Valid
    tool_context: ToolContext
