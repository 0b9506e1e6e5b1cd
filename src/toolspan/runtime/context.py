"""Values and services that calls share: `RunnerContext` for the runner, `ToolContext` for a tool.

`CallContext` is the state that a call can change for later calls. `Workspace` contains the
resources shared by all calls in a session.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import Struct, structs

from toolspan.formats.registry import recorded_format
from toolspan.runtime.background import BackgroundTasks, SubagentLauncher
from toolspan.runtime.hooks.events import HookEffects, HookRunner, SessionHookEvent
from toolspan.runtime.isolation import IsolatedTasks
from toolspan.runtime.permissions.paths import LinkResolver, OwnRepository
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile
from toolspan.types.decision import Decision
from toolspan.types.events import Faulted, HookRan, HookReport
from toolspan.types.ids import CallId, SessionId
from toolspan.types.span import Call

if TYPE_CHECKING:
    from toolspan.runtime.batch import Batch
    from toolspan.runtime.pending_call import PendingCall
    from toolspan.runtime.permissions.decide import Approver, Policy
    from toolspan.runtime.sandbox.active import ActiveSandbox
    from toolspan.runtime.sinks import Emitter
    from toolspan.runtime.tool import Toolset
    from toolspan.tools.working_tree import WorkingTree


T = TypeVar("T")
MAX_DECISIONS = 1_000


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file when a call last read or wrote it."""

    digest: str
    mtime_ns: int
    size: int
    whole: bool
    """False if only some lines were read."""
    call_id: CallId | None = None
    """The call that saw the file."""
    range: tuple[int, int | None] | None = None
    """The offset and limit of a partial read."""


class FileStates:
    """The files that the calls in a conversation have read or written."""

    def __init__(self) -> None:
        self._states: dict[str, FileState] = {}  # least recently used first

    def get(self, path: Path | str) -> FileState | None:
        """Return the last state of a file, or None if no call has seen it."""
        key = str(path)
        state = self._states.get(key)
        if state is not None:
            self._states[key] = self._states.pop(key)
        return state

    def set_state(self, path: Path | str, state: FileState, limit: int | None = None) -> None:
        """Record that a call read or wrote the file. If the limit is exceeded, forget the least recently used file."""
        key = str(path)
        self._states.pop(key, None)
        self._states[key] = state
        while limit is not None and len(self._states) > limit:
            del self._states[next(iter(self._states))]

    def look_up_all(self) -> None:
        """Reverse the order in which files are forgotten.

        Some clients check all known files for changes between turns, the most recent first.
        """
        self._states = dict(reversed(self._states.items()))

    def forget(self, path: Path | str) -> None:
        """Remove a file, so that it must be read again."""
        self._states.pop(str(path), None)

    def __iter__(self) -> Iterator[Path]:
        return map(Path, self._states)


@dataclass(frozen=True, slots=True)
class CallContext:
    """The state in which each call starts. A call can change it for later calls."""

    cwd: Path
    values: Mapping[str, object] = field(default_factory=dict)
    """Values that tools store for later calls."""
    granted_rules: tuple[str, ...] = ()
    """Rules that allow calls until the next prompt, granted by the skills that were launched since the last one."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """The position of a call in a chain of queries."""

    chain_id: str
    depth: int = 0
    """0 for the main conversation, plus one for each level of subagents."""


@dataclass(slots=True, kw_only=True)
class Workspace:
    """The resources shared by the calls in one session."""

    project: Path
    """The folder in which the session started; `CallContext.cwd` may differ."""
    supervisor: ProcessSupervisor
    folder: Path
    """The session's own folder for spilled outputs, created when the first file is written."""
    added_folders: tuple[Path, ...] = ()
    """Folders outside the project that belong to the session. A command may leave the shell in one of them."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    files: FileStates = field(default_factory=FileStates)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    session_id: SessionId | None = None
    agent_id: str | None = None
    parent_call: CallId | None = None
    """The call that started this agent, if it is a subagent."""
    subagents: SubagentLauncher | None = None
    """The launcher for subagents; None if there is no model to run them."""
    tracking: Tracking = field(default_factory=lambda: Tracking("main"))
    model: str | None = None
    permission_mode: str = "default"
    """The mode in which the session started; a call may have changed it since."""
    working_tree: WorkingTree | None = None
    """The files in the git repository as of the last command, if their changes are recorded."""
    adopt_hooks: AdoptHooks | None = None
    """A function that registers the hooks of a launched skill; None to ignore them."""
    uses_project_skills: bool = True
    """False if the project's skills are not used, because it is not trusted."""
    sandbox: ActiveSandbox | None = None
    """The sandbox in which commands run; None to run them with the user's own permissions."""
    intent_log: IntentRecorder | None = None
    """The log that records each call with side effects just before it runs."""
    repository: OwnRepository = field(init=False)
    """The repository of the project when the session started. git in one made later is not read-only."""

    def __post_init__(self) -> None:
        self.repository = OwnRepository.find(str(self.project))

    @property
    def config(self) -> Path:
        """The client's configuration folder."""
        return recorded_format().home(self.environment)

    @property
    def outside_environment(self) -> Mapping[str, str]:
        """The variables for programs that run outside the sandbox."""
        if self.sandbox is None:
            return self.environment
        return self.sandbox.restrict_environment(self.environment, (self.project, *self.added_folders))

    @property
    def results_folder(self) -> Path:
        """The folder for outputs too large for the conversation."""
        return self.folder / "tool-results"

    @property
    def tasks_folder(self) -> Path:
        """The folder for the output of background tasks."""
        return self.folder / "tasks"


AdoptHooks = Callable[[str, Path], None]
"""A function that registers the hooks in a file's frontmatter, given the file's text and path.

Raises:
    ToolspanError: the hooks cannot be used.
"""


class IntentRecorder(Protocol):
    """A log of calls with side effects, written before they start."""

    def begin(self, call_id: str, tool: str, **change: str | None) -> None:
        """Record that a call is about to start. `change` contains `path` and the digests `before` and `after`."""
        ...

    @property
    def is_stored(self) -> bool:
        """True if a store has a copy of the log, so that another host may judge the call by it."""
        ...

    async def wait_until_stored(self, call_id: str) -> None:
        """Wait until the start of a call is where the log is kept. Raise ToolspanError if the call must not start."""
        ...

    def record_process(self, call_id: str, pid: int) -> None:
        """Record the process of a call's command, so that it can be ended if this process is killed."""
        ...


class RunnerContext:
    """The settings and services shared by the calls of one runner.

    Tools, hooks, policies, approver and call context can change during a session, and running calls
    see the change.
    """

    def __init__(
        self,
        *,
        tools: Toolset,
        profile: Profile,
        workspace: Workspace,
        call_context: CallContext,
        hooks: HookRunner,
        policies: tuple[Policy, ...],
        fallback: Policy | None,
        approver: Approver | None,
        emitter: Emitter,
        clock: Callable[[], float],
        grace: float,
        hook_grace: float,
    ) -> None:
        """Create a context.

        `fallback` decides on calls on which no policy and no hook has decided; without it, such
        calls are allowed. `grace` is the number of seconds that checks, policies and approvers have
        to stop after being cancelled, and `hook_grace` is the same for hooks.
        """
        self.profile: Final = profile
        self.workspace: Final = workspace
        self.fallback: Final = fallback
        self.clock: Final = clock
        self.grace: Final = grace
        self.hook_grace: Final = hook_grace
        self.emit: Final = emitter.emit
        self.observed_events: Final = emitter.observed_events
        self.isolated_tasks: Final = IsolatedTasks(self.report_fault)
        self.decisions: Final[dict[CallId, Decision]] = {}
        self.tools = tools
        self.hooks = hooks
        self.policies = policies
        self.approver = approver
        self.call_context = call_context
        """The state in which the next call starts."""

    @property
    def permission_mode(self) -> str | None:
        """The permission mode that a tool, a hook or a user has set for the session, if any."""
        mode = self.call_context.values.get("permission_mode")
        return mode if isinstance(mode, str) else None

    def set_permission_mode(self, mode: str) -> None:
        """Set the permission mode of the session."""
        values = {**self.call_context.values, "permission_mode": mode}
        self.call_context = replace(self.call_context, values=values)

    def run_check(self, work: Awaitable[T], label: str, pending: PendingCall) -> Awaitable[T]:
        """Await a check, a policy or an approver in its own task."""
        return self.isolated_tasks.run(work, self.grace, label, pending)

    def run_hook(self, work: Awaitable[T], pending: PendingCall | None = None) -> Awaitable[T]:
        """Await hooks in their own task."""
        return self.isolated_tasks.run(work, self.hook_grace, "hook", pending)

    def report_fault(self, where: str, reason: str, call_id: CallId | None) -> None:
        """Emit a fault in user code."""
        self.emit(Faulted(where=where, reason=reason, call_id=call_id, at=self.clock()))

    def emit_hook_reports(self, call_id: CallId, reports: tuple[HookReport, ...]) -> None:
        """Emit one event for each hook handler that ran."""
        for report in reports:
            self.emit(HookRan(**structs.asdict(report), call_id=call_id, at=self.clock()))


class ToolContext(Struct, kw_only=True, eq=False):
    """The context of one call. A tool function receives it through a parameter with this annotation."""

    call: Call
    context: CallContext
    """The state in which the call starts."""
    workspace: Workspace
    profile: Profile
    """The client version to imitate."""
    services: Batch
    """The batch of the call, with the runner's services."""
    message: Mapping[str, object] | None = None
    """The assistant message that contains the call."""
    partial: Callable[[], str] | None = None
    """A function that returns the output so far, for a call that is interrupted. The tool sets it."""
    cached_links: LinkResolver | None = None
    is_unapproved: bool = False
    """True if neither a rule nor a person allowed the command: every word of it was understood to be harmless."""

    @property
    def links(self) -> LinkResolver:
        """The targets of symbolic links at the time the call was authorized."""
        if self.cached_links is None:
            self.cached_links = LinkResolver()
        return self.cached_links

    @property
    def cwd(self) -> Path:
        """The folder in which the call starts."""
        return self.context.cwd

    @property
    def files(self) -> FileStates:
        """The files that the conversation has read or written."""
        return self.workspace.files

    @property
    def session_id(self) -> SessionId | None:
        """The session of the call."""
        return self.workspace.session_id

    @property
    def agent_id(self) -> str | None:
        """The subagent that made the call; None for the main conversation."""
        return self.workspace.agent_id

    @property
    def tracking(self) -> Tracking:
        """The position of the call in a chain of queries."""
        return self.workspace.tracking

    def find_hidden_files(self) -> Callable[[str], bool] | None:
        """Return a predicate for files that rules hide from the model, or None if there are no such rules."""
        return self.services.find_hidden_files(self)

    def may_read_unasked(self, path: str) -> bool:
        """Return whether path rules or the mode allow reading the file without approval."""
        return self.services.may_read_unasked(path, self)

    @property
    def cancelled(self) -> bool:
        """True if the call was cancelled. Sync tools, which cannot be interrupted, can check this."""
        pending = self.services.calls.get(self.call.id)
        return pending is not None and pending.cancelled_by is not None

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that are running, including this one."""
        return self.services.in_progress

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """The permission decisions on the latest thousand calls."""
        return self.services.context.decisions

    def progress(self, kind: str, **data: object) -> None:
        """Emit progress for the call. At most ten events per second are sent, and the last one is always sent."""
        self.services.progress(self.call.id, kind, data)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        """Return the policies' decision on a further call, without asking an approver."""
        return await self.services.can_use_tool(tool, input)

    async def fire(self, hook_event: SessionHookEvent) -> HookEffects:
        """Run the hooks for an event that only the tool can detect. The tool must apply the returned effects."""
        return await self.services.fire(self.call.id, hook_event)

    def resolve(self, path: str) -> Path:
        """Convert a path from the model to an absolute path, resolving `~` and the current folder."""
        target = Path(path)
        if path.startswith("~"):
            target = Path(self.workspace.environment.get("HOME", "~")) / path[1:].lstrip("/")
        return Path(os.path.normpath(self.cwd / target))
