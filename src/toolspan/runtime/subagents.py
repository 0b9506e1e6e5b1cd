"""Agents below this one, as the tools that start them and speak to them see them.

In: what a call asks of an agent. Out: what became of it. Sessions and models are not known here;
whoever has them (`session/subagents/`) puts a `Children` into the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from toolspan.types.ids import CallId

NO_MODEL_MESSAGE = "There is no model here to run a subagent with: calls come from outside. `toolspan run` has one"
"""What is said where nobody starts agents."""
ProgressCallback = Callable[[Mapping[str, object]], None]
"""Takes news of an agent's work. Must not raise."""


def _ignore_progress(_news: Mapping[str, object]) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRequest:
    """What a call asks of an agent."""

    call_id: CallId
    """The call that starts it; it is named beside the agent's transcript."""
    kind: str
    """Which of the agents that there are."""
    description: str
    prompt: str
    cwd: Path
    model: str | None = None
    """Another model than that of the agent above."""
    isolated: bool = False
    """It gets a copy of the repository for itself."""
    resumes: str | None = None
    """The agent that goes on, instead of a new one."""
    on_progress: ProgressCallback = _ignore_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorktree:
    """A copy of the repository that has changes in it, and is still there."""

    path: Path
    branch: str | None = None
    """None: it is no git worktree, a hook has made it."""

    def to_record(self) -> dict[str, str]:
        """What is told of it, in the client's words."""
        fields = {"worktreePath": str(self.path)}
        return fields if self.branch is None else {**fields, "worktreeBranch": self.branch}

    def text_lines(self) -> list[str]:
        """The same for a model."""
        return [f"{key}: {value}" for key, value in self.to_record().items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentOutcome:
    """What became of an agent."""

    agent_id: str
    kind: str
    text: str
    """What it said last."""
    error: str | None = None
    """Why it did not come to its own end."""
    limit_reason: str | None = None
    """Why there might be more to say than it said: a limit."""
    timed_out: bool = False
    model: str
    tools: Sequence[str] = ()
    """The tool of each call, in the order in which they ended."""
    changed_lines: tuple[int, int] = (0, 0)
    """Lines that it added to files, and took away."""
    tokens: int = 0
    """Of its last request: how long its conversation is."""
    usage: Mapping[str, object] = field(default_factory=dict)
    """The same, in the API's words."""
    duration_ms: float = 0.0
    worktree: KeptWorktree | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedSubagent:
    """An agent that works in the background."""

    agent_id: str
    path: Path
    """The file to follow it by."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredMessage:
    """What became of words for an agent."""

    how: Literal["queued", "resumed"]
    """It reads them with its next results; or it was done, and goes on in the background."""
    agent_id: str
    path: Path


class SubagentLauncher(Protocol):
    """Starts agents, and speaks to them.

    May be asked by several calls at once. When a call is cancelled, its agent ends with it: the
    agent's calls get their results before the cancellation goes on. All of them raise `ToolError`
    when there is nobody to do it; what goes wrong in an agent's work does not raise.
    """

    @property
    def kinds(self) -> Sequence[str]:
        """The names of the agents that there are."""
        ...

    def runs_in_background(self, kind: str) -> bool:
        """Whether agents of this kind work in the background unless told otherwise."""
        ...

    async def run(self, request: SubagentRequest) -> SubagentOutcome:
        """Let an agent work to the end of its turn."""
        ...

    async def launch(self, request: SubagentRequest) -> LaunchedSubagent:
        """Send an agent off; what becomes of it is told by a task in the background."""
        ...

    async def send_message(self, agent_id: str, message: str, call_id: CallId) -> DeliveredMessage:
        """Tell an agent something, while it works or when it is done."""
        ...
