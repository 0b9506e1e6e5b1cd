"""What calls are run with: the desk they share, and the job that each of them is."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from msgspec import Struct

from toolspan.hooks.points import Before, Firing
from toolspan.ids import CallId
from toolspan.model.decision import Decision
from toolspan.model.live import Decided, Finished, LiveEvent, Progressed
from toolspan.model.span import Call
from toolspan.permission.decide import Approver, Policy
from toolspan.profile import Profile
from toolspan.run.context import Context, ToolContext, Workspace
from toolspan.run.ending import Ending
from toolspan.run.rooms import Room, Rooms
from toolspan.run.shelf import LiveShelf
from toolspan.run.thread import Home
from toolspan.run.tool import GRACE, PROCESS_GRACE, Tool, Valid
from toolspan.run.toolset import Toolset
from toolspan.schema.issue import Invalid

T = TypeVar("T")
Cancel = Literal["user", "host", "turn", "sibling", "discarded"]
"""Who ended a call: a person, the program around us, the end of the turn, a failed sibling, or the
reply being streamed anew."""
MOST_DECISIONS = 1_000


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the calls of a session are run with."""

    tools: Toolset
    profile: Profile
    workspace: Workspace
    context: Context
    hooks: Firing
    policies: tuple[Policy, ...]
    fallback: Policy | None
    """Decides when no policy and no hook has an opinion; None allows."""
    approver: Approver | None
    emit: Callable[[LiveEvent], None]
    rooms: Rooms
    """Where the code of users is awaited."""
    home: Home = field(default_factory=Home)
    """The thread in which events are told."""
    hears: frozenset[type[LiveEvent]] = frozenset()
    """The kinds of events that somebody hears; the frequent ones are made only for those."""
    decisions: dict[CallId, Decision] = field(default_factory=dict)
    """How the permission question of the latest calls was answered; see `remember`."""
    clock: Callable[[], float] = time.time
    grace: float = GRACE
    """Seconds that checks, policies and approvers get to stop when they are told to."""
    hooks_grace: float = PROCESS_GRACE
    """As much for hooks, which may be processes."""

    def remember(self, call_id: CallId, decision: Decision) -> None:
        """Keep a decision for calls that ask about it; a session may be long, so not for ever."""
        self.decisions[call_id] = decision
        if len(self.decisions) > MOST_DECISIONS:
            del self.decisions[next(iter(self.decisions))]

    def checked(self, work: Awaitable[T], what: str, job: "Job") -> Awaitable[T]:
        """What a check, a policy or an approver says."""
        return self.rooms.run(work, self.grace, what, job)

    def hooked(self, work: Awaitable[T], job: "Job | None" = None) -> Awaitable[T]:
        """What hooks say."""
        return self.rooms.run(work, self.hooks_grace, "hook", job)


NO_OPINION = Before()


class Job(Struct, kw_only=True, eq=False):
    """One accepted call on its way."""

    call: Call
    shelf: LiveShelf
    tool: Tool | None
    parsed: Valid | Invalid | None
    requested: float
    message: Mapping[str, object] | None = None
    cut: bool = False
    """The reply ended in the middle of it, so nobody knows what was asked for."""
    room: Room | None = None
    """What it waits for."""
    cancelled: Cancel | None = None
    started: float | None = None
    view: ToolContext | None = None
    decided: Decided | None = None
    before: Before = NO_OPINION
    news: Progressed | None = None
    """The latest progress, held back because others came just before."""
    told: float = 0.0
    """When progress was last passed on."""
    slow_told: bool = False
    ending: Ending | None = None
    """How the tool itself ended: it stays, even if what comes after it is cut off or fails."""
    modify: Callable[[Context], Context] | None = None
    finished: Finished | None = None

    @property
    def is_blocking(self) -> bool:
        """Whether it is in its tool, and that is not to be interrupted."""
        blocks = self.tool is not None and self.tool.interrupt == "block"
        return blocks and self.started is not None and self.ending is None

    def wait_for(self, room: Room | None) -> None:
        """From now on this is what it waits for; not at all, if it is to end."""
        self.room = room
        if room is not None and self.cancelled:
            room.call_off()

    def lose_host(self) -> None:
        """The program around us is gone."""
        self.cancelled = self.cancelled or "host"

    def cancel(self, by: Cancel) -> None:
        """End it; the first who says so is remembered."""
        if self.cancelled is None:
            self.cancelled = by
            if self.room is not None:
                self.room.call_off()


class Prepared(Struct, frozen=True):
    """A call that may run, with the input it runs with."""

    tool: Tool
    valid: Valid
    view: ToolContext
