"""The background tasks of a session: commands and subagents that continue after their call.

Start at `BackgroundTasks`. `format_notification` builds the message that informs the model about the end of a task.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import anyio

from toolspan.runtime.process import Capture, ChildProcess, ExitStatus, TerminationError
from toolspan.runtime.profiles import Profile
from toolspan.types.ids import CallId

Status = Literal["running", "completed", "failed", "killed"]

_ALPHABET = string.ascii_lowercase + string.digits


def new_task_id() -> str:
    """Return a random id: `b` followed by eight letters or digits."""
    return "b" + "".join(secrets.choice(_ALPHABET) for _ in range(8))


@dataclass(slots=True, kw_only=True)
class CommandTask:
    """A command that runs in the background."""

    type: ClassVar = "local_bash"  # the task type that clients record
    id: str
    call_id: CallId
    command: str
    description: str | None
    child: ChildProcess
    output: Capture  # the combined output of stdout and stderr
    path: Path  # the file that receives the output
    has_exit_line: bool = False  # the last line of the file says how the command ended
    stopped: bool = False  # `stop` ended the command
    reported: bool = False  # the model has been notified that the task ended
    find_violations: Callable[[ExitStatus], str] = lambda _: ""
    """A function that returns the note about the sandbox's refusals, called once the command has ended."""
    _sandbox_note: str | None = None

    def __post_init__(self) -> None:
        if self.has_exit_line:
            self.child.call_at_exit(self._write_exit_line)

    @property
    def sandbox_note(self) -> str:
        """The note about the sandbox's refusals; empty if there were none, and while the command runs."""
        if self._sandbox_note is None and self.child.exit is not None and not self.stopped:
            self._sandbox_note = self.find_violations(self.child.exit)
        return self._sandbox_note or ""

    @property
    def status(self) -> Status:
        """The status of the task."""
        if self.child.exit is None:
            return "running"
        if self.stopped:
            return "killed"
        return "completed" if self.child.exit.code == 0 else "failed"

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell would report it; None while the command is running."""
        return self.child.exit_code

    async def wait(self) -> None:
        """Wait until the command has ended and its output has been written to the file."""
        await self.child.wait()
        self.output.finish()

    async def stop(self) -> None:
        """Terminate the command and all its processes, if it is running.

        Raises:
            TerminationError: a process belongs to another user or is stuck in the kernel.
        """
        self.stopped = self.stopped or self.child.exit is None
        try:
            await self.child.terminate()
        finally:
            self.output.finish()

    def _write_exit_line(self) -> None:
        """Append the exit line. As in the clients, processes that the command leaves behind may write after it."""
        line = "killed" if self.stopped else f"exited with code {self.exit_code}"
        self.output.append_to_file(f"\n[{line}]\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """The final report from a subagent that ran in the background."""

    text: str
    error: str | None = None  # the reason for the subagent's failure; None if it succeeded
    tokens: int = 0
    calls: int = 0
    duration_ms: float = 0.0


@dataclass(slots=True, kw_only=True)
class AgentTask:
    """A subagent that runs in the background."""

    type: ClassVar = "local_agent"
    id: str
    call_id: CallId
    description: str
    path: Path  # the file that contains the output
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)  # the scope in which the subagent runs
    finished: anyio.Event = field(default_factory=anyio.Event)  # set by the launcher when the subagent has ended
    report: AgentReport | None = None
    stopped: bool = False
    reported: bool = False

    @property
    def command(self) -> str:
        """The description of the task."""
        return self.description

    @property
    def status(self) -> Status:
        """The status of the task."""
        if not self.finished.is_set():
            return "running"
        if self.report is None:
            return "killed"
        return "completed" if self.report.error is None else "failed"

    @property
    def exit_code(self) -> None:
        """Always None, because only processes have an exit code."""

    async def wait(self) -> None:
        """Wait until the subagent has ended."""
        await self.finished.wait()

    async def stop(self) -> None:
        """Cancel the subagent after its calls have received their results."""
        self.stopped = self.stopped or not self.finished.is_set()
        self.scope.cancel()
        await self.finished.wait()


BackgroundTask = CommandTask | AgentTask


def format_notification(task: BackgroundTask, profile: Profile) -> str:
    """Return the message that notifies the model of a task that ended by itself."""
    lines = [
        "<task-notification>",
        f"<task-id>{task.id}</task-id>",
        f"<tool-use-id>{task.call_id}</tool-use-id>",
        f"<output-file>{task.path}</output-file>",
        f"<status>{task.status}</status>",
    ]
    if isinstance(task, CommandTask):
        endings = {
            "completed": "completed (exit code {})",
            "failed": "failed with exit code {}",
            "killed": "was stopped",
        }
        ending = endings.get(task.status, "is running").format(task.exit_code)
        summary = f'Background command "{task.description or task.command}" {ending}'
        note = f"\n{task.sandbox_note}" if task.sandbox_note else ""  # on a separate line, as in a result
        lines.append(f"<summary>{summary}{note}</summary>")
    else:
        values, report = profile.agents, task.report or AgentReport(text="")
        ending = profile.messages.agent_ended if report.error is None else f"failed: {report.error}"
        lines.append(f'<summary>Agent "{task.description}" {ending}</summary>')
        if values.framed:
            lines.append("<note>This is the report of an agent, not a message from the user.</note>")
        if report.text:
            lines.append(f"<result>{report.text}</result>")
        word = "subagent_tokens" if values.framed else "total_tokens"
        lines.append(
            f"<usage><{word}>{report.tokens}</{word}><tool_uses>{report.calls}</tool_uses>"
            f"<duration_ms>{round(report.duration_ms)}</duration_ms></usage>"
        )
    return "\n".join([*lines, "</task-notification>"])


class BackgroundTasks:
    """The background tasks of one session."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}

    def __iter__(self) -> Iterator[BackgroundTask]:
        """Iterate over the tasks in the order in which they were added."""
        return iter(tuple(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, task_id: str) -> BackgroundTask | None:
        """Return the task with this id, running or not."""
        return self._tasks.get(task_id)

    def add(self, task: BackgroundTask) -> None:
        """Add a task."""
        self._tasks[task.id] = task

    def forget(self, task_id: str) -> None:
        """Remove a task that has ended."""
        self._tasks.pop(task_id, None)

    @property
    def running(self) -> tuple[BackgroundTask, ...]:
        """The tasks that have not ended."""
        return tuple(task for task in self if task.status == "running")

    def take_finished(self) -> tuple[BackgroundTask, ...]:
        """Return the tasks that ended by themselves, each only once."""
        tasks = self._tasks.values()
        ended = tuple(task for task in tasks if task.status in ("completed", "failed") and not task.reported)
        for task in ended:
            task.reported = True
        return ended

    async def wait_any(self) -> None:
        """Wait until a running task ends; return immediately if none is running."""

        async def wait_for(task: BackgroundTask, scope: anyio.CancelScope) -> None:
            with suppress(TerminationError):
                await task.wait()
            scope.cancel()

        async with anyio.create_task_group() as group:
            for task in self.running:
                group.start_soon(wait_for, task, group.cancel_scope)

    async def stop_all(self) -> None:
        """Stop all running tasks. Processes that cannot be terminated are left to the process supervisor."""

        async def stop(task: BackgroundTask) -> None:
            with suppress(TerminationError):
                await task.stop()

        async with anyio.create_task_group() as group:
            for task in self:
                group.start_soon(stop, task)


ProgressCallback = Callable[[Mapping[str, object]], None]
"""A callback that receives progress from a subagent. It must not raise."""
NO_MODEL_MESSAGE = "The agent was not started, because this session has no model. `toolspan run` has one."
"""The error message used when there is no launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentRequest:
    """A request to run a subagent."""

    call_id: CallId  # the call that starts the subagent, recorded beside the subagent's transcript
    kind: str  # the name of the agent definition
    description: str
    prompt: str
    cwd: Path
    model: str | None = None  # the model; None for the parent's model
    isolated: bool = False  # the subagent works in its own copy of the repository
    resumes: str | None = None  # the id of an earlier subagent to continue
    on_progress: ProgressCallback = lambda _progress: None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorktree:
    """A copy of the repository that is kept after its subagent has ended."""

    path: Path
    branch: str | None = None  # the branch; None if a hook created the copy, in which case it is not a git worktree

    def to_record(self) -> dict[str, str]:
        """Return the keys that clients record."""
        fields = {"worktreePath": str(self.path)}
        return fields if self.branch is None else {**fields, "worktreeBranch": self.branch}

    def text_lines(self) -> list[str]:
        """Return the path and the branch as lines for the model."""
        return [f"{key}: {value}" for key, value in self.to_record().items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentOutcome:
    """The result of a subagent's turn."""

    agent_id: str
    kind: str
    text: str  # the last message from the subagent
    error: str | None = None  # the reason for the subagent's failure; None if it succeeded
    limit_reason: str | None = None
    """The limit that ended the turn early, if any. The text may then be incomplete."""
    timed_out: bool = False
    model: str
    tools: Sequence[str] = ()  # the tool name of each call, in order of completion
    changed_lines: tuple[int, int] = (0, 0)  # the numbers of lines added to and removed from files
    tokens: int = 0  # the token count of the last request, which is the length of the conversation
    usage: Mapping[str, object] = field(default_factory=dict)  # the usage reported by the API
    duration_ms: float = 0.0
    worktree: KeptWorktree | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedSubagent:
    """A subagent that runs in the background."""

    agent_id: str
    path: Path  # the file that contains the output
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredMessage:
    """The result of sending a message to a subagent."""

    how: Literal["queued", "resumed"]
    """`queued` for a running subagent, `resumed` for a finished one that continues in the background."""
    agent_id: str
    path: Path


class SubagentLauncher(Protocol):
    """Interface for starting subagents and sending messages to them.

    Several calls may use it concurrently. When a call is cancelled, its subagent is cancelled too:
    the subagent's calls receive their results before the cancellation is raised. A request that
    cannot be fulfilled raises `ToolError`; failures inside a subagent do not raise.
    """

    @property
    def kinds(self) -> Sequence[str]:
        """The names of the available agent definitions."""
        ...

    def runs_in_background(self, kind: str) -> bool:
        """Return whether subagents of this kind run in the background by default."""
        ...

    async def run(self, request: SubagentRequest) -> SubagentOutcome:
        """Run a subagent until its turn ends."""
        ...

    async def launch(self, request: SubagentRequest) -> LaunchedSubagent:
        """Start a subagent as a background task."""
        ...

    async def send_message(self, agent_id: str, message: str, call_id: CallId) -> DeliveredMessage:
        """Send a message to a subagent, whether it is running or has ended."""
        ...
