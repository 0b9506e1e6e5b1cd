"""The interface between tools and subagents: requests, outcomes, and the `SubagentLauncher` protocol.

`session/subagents/` implements the launcher and puts it into the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from toolspan.types.ids import CallId

NO_MODEL_MESSAGE = "There is no model here to run a subagent with: calls come from outside. `toolspan run` has one"
"""The error message if there is no launcher."""
ProgressCallback = Callable[[Mapping[str, object]], None]
"""A callback that receives progress of a subagent. It must not raise."""


def _ignore_progress(_progress: Mapping[str, object]) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRequest:
    """A request to run a subagent."""

    call_id: CallId
    """The call that starts the subagent; recorded beside its transcript."""
    kind: str
    """The name of the agent definition."""
    description: str
    prompt: str
    cwd: Path
    model: str | None = None
    """The model; None for the parent's."""
    isolated: bool = False
    """True if the subagent works in its own copy of the repository."""
    resumes: str | None = None
    """The id of an earlier subagent to continue."""
    on_progress: ProgressCallback = _ignore_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorktree:
    """A copy of the repository that still exists after its subagent has ended."""

    path: Path
    branch: str | None = None
    """The branch; None if a hook created the copy, which is then not a git worktree."""

    def to_record(self) -> dict[str, str]:
        """Return the keys that clients record."""
        fields = {"worktreePath": str(self.path)}
        return fields if self.branch is None else {**fields, "worktreeBranch": self.branch}

    def text_lines(self) -> list[str]:
        """Return the same data as lines for the model."""
        return [f"{key}: {value}" for key, value in self.to_record().items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentOutcome:
    """The end of a subagent's turn."""

    agent_id: str
    kind: str
    text: str
    """The last message of the subagent."""
    error: str | None = None
    """The reason why the subagent failed, if it did."""
    limit_reason: str | None = None
    """The limit that ended the turn early, so that the text may be incomplete."""
    timed_out: bool = False
    model: str
    tools: Sequence[str] = ()
    """The tool of each call, in order of completion."""
    changed_lines: tuple[int, int] = (0, 0)
    """The number of lines added to files, and the number removed."""
    tokens: int = 0
    """The tokens of the last request, which is the length of the conversation."""
    usage: Mapping[str, object] = field(default_factory=dict)
    """The usage as the API reports it."""
    duration_ms: float = 0.0
    worktree: KeptWorktree | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedSubagent:
    """A subagent that runs in the background."""

    agent_id: str
    path: Path
    """The file that contains the output."""
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredMessage:
    """The delivery of a message to a subagent."""

    how: Literal["queued", "resumed"]
    """`queued` for a running subagent, `resumed` for a finished one that continues in the background."""
    agent_id: str
    path: Path


class SubagentLauncher(Protocol):
    """A launcher that starts subagents and sends messages to them.

    Several calls may use it at once. When a call is cancelled, its subagent ends with it: the calls of the subagent
    get their results before the cancellation is raised. A request that cannot be fulfilled raises `ToolError`;
    failures of a subagent do not raise.
    """

    @property
    def kinds(self) -> Sequence[str]:
        """The names of the available agent definitions."""
        ...

    def runs_in_background(self, kind: str) -> bool:
        """Return whether subagents of this kind run in the background by default."""
        ...

    async def run(self, request: SubagentRequest) -> SubagentOutcome:
        """Run a subagent to the end of its turn."""
        ...

    async def launch(self, request: SubagentRequest) -> LaunchedSubagent:
        """Start a subagent as a background task."""
        ...

    async def send_message(self, agent_id: str, message: str, call_id: CallId) -> DeliveredMessage:
        """Send a message to a subagent, whether it is running or has ended."""
        ...
