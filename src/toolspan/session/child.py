"""The door for a tool that starts an agent of its own.

A child is a session below a session: its own context, fewer tools, perhaps another model, its own
transcript in the place that the parent's recorder names (`Recorder.agent`). The tool that wants one
(it belongs here, in `session/`, because it needs sessions) is given a `Children` and knows nothing
of models. `Session(transcript=recorder)` records into a recorder that is made already, so the whole
of a child is:

    about = {"agentType": wish.kind, "description": wish.description, "toolUseId": wish.call_id}
    async with Session(
        tools=..., transcript=parent.child_recorder(agent_id, about),
        session_id=parent.session_id, aside=Aside(agent_id, wish.kind),
    ) as session:
        ended = await Agent(session, model, system=..., limits=wish.limits).prompt(wish.prompt)

With `aside`, its calls and hooks name the subagent, the end of its turn is SubagentStop, and there
is no start and end of a session. SubagentStart is the tool's to fire (`parent.fire`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from toolspan.ids import CallId
from toolspan.run.tool import Tool
from toolspan.session.agent import Ended, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWish:
    """What a call asks of a child."""

    call_id: CallId
    """The call that started it; it is named beside the child's transcript."""
    kind: str
    """Which of the agents that there are."""
    description: str
    prompt: str
    model: str | None = None
    """Another model than the parent's, by the name that `llm.choose` knows it by."""
    keeps: Callable[[Tool], bool]
    """Which of the parent's tools it has."""
    system: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """What became of it."""

    agent_id: str
    ended: Ended
    calls: int
    """How many tools it has used."""


class Children(Protocol):
    """Starts children. The host makes one, and gives it to the tool.

    May be called for several calls at once. When the call is cancelled, the child ends with it: its
    calls get their results before the cancellation goes on.
    """

    async def run(self, wish: ChildWish) -> ChildEnd:
        """Run a child to the end of its turn; what goes wrong in it does not raise."""
        ...
