"""What a tool is handed beside its input.

`Context` is what calls can change for those after them (a frozen value, changed by modifiers).
`Workspace` is what all calls of a session share. `ToolContext` is one call's view on both, and on
the runner: progress, cancellation, consent.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from toolspan.formats.claude.paths import config_dir
from toolspan.runtime.background import BackgroundTasks
from toolspan.runtime.hooks.events import HookEffects, SessionHookEvent
from toolspan.runtime.permissions.paths import LinkResolver
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile
from toolspan.runtime.subagents import SubagentLauncher
from toolspan.types.decision import Decision
from toolspan.types.ids import CallId, SessionId
from toolspan.types.span import Call


@dataclass(frozen=True, slots=True)
class FileState:
    """One file as a call last saw it."""

    digest: str
    mtime_ns: int
    size: int
    whole: bool
    """False when only some lines were read."""
    call_id: CallId | None = None
    """The call that saw it."""
    range: tuple[int, int | None] | None = None
    """Offset and limit of a partial read."""


class FileStates:
    """The files a conversation has seen."""

    def __init__(self) -> None:
        self._states: dict[Path, FileState] = {}

    def get(self, path: Path) -> FileState | None:
        """What is known of a file; None when no call has seen it."""
        return self._states.get(path)

    def set_state(self, path: Path, state: FileState) -> None:
        """A call read or wrote the file."""
        self._states[path] = state

    def forget(self, path: Path) -> None:
        """The file is to be read anew."""
        self._states.pop(path, None)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._states)


@dataclass(frozen=True, slots=True)
class CallContext:
    """Where the next call starts from."""

    cwd: Path
    values: Mapping[str, object] = field(default_factory=dict)
    """What tools of the same author leave for each other."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """Which chain of queries a call belongs to."""

    chain_id: str
    depth: int = 0
    """0 for the main conversation, one more for each subagent below it."""


@dataclass(slots=True, kw_only=True)
class Workspace:
    """What the calls of one session share."""

    project: Path
    """Where the session began; `Context.cwd` may wander from it."""
    supervisor: ProcessSupervisor
    """Every process that a call starts."""
    folder: Path
    """The session's own folder, made when it is first written to: spilled outputs and the like."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    files: FileStates = field(default_factory=FileStates)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    """What goes on in the background."""
    session_id: SessionId | None = None
    agent_id: str | None = None
    parent_call: CallId | None = None
    """The call that started this agent."""
    subagents: SubagentLauncher | None = None
    """Who starts agents below this one; None where no model is at hand."""
    tracking: Tracking = field(default_factory=lambda: Tracking("main"))
    model: str | None = None
    adopt_hooks: AdoptHooks | None = None
    """Takes on the hooks of a skill that is launched; None: skills bring none along here."""
    intent_log: IntentRecorder | None = None
    """Told of every call that may do something, right before; None: nobody keeps that."""

    @property
    def config(self) -> Path:
        """Where the client keeps its own files."""
        return config_dir(self.environment)

    @property
    def results_folder(self) -> Path:
        """Where outputs too large for the conversation go."""
        return self.folder / "tool-results"

    @property
    def tasks_folder(self) -> Path:
        """Where the output of work in the background goes."""
        return self.folder / "tasks"


AdoptHooks = Callable[[str, Path], None]
"""Takes on the hooks in the head of a file, if there are any: its lines, and where it lies.

Raises:
    ToolspanError: there are some, and they cannot be used.
"""


class IntentRecorder(Protocol):
    """Where it is written down that a call begins, before it does."""

    def begin(self, call_id: str, tool: str, input: object, **change: str | None) -> None:
        """A call that may do something starts; `change`: `path`, digests `before` and `after`."""
        ...


class ListedTool(Protocol):
    """A tool, as far as another one may look at it."""

    @property
    def name(self) -> str:
        """What it is called by."""
        ...

    @property
    def description(self) -> str:
        """What the model reads of it."""
        ...


class CallServices(Protocol):
    """What a running call may ask of its runner."""

    @property
    def tools(self) -> Iterable[ListedTool]:
        """What the session has."""
        ...

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now."""
        ...

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """How the permission question of the latest thousand calls was answered."""
        ...

    def progress(self, call_id: CallId, kind: str, data: Mapping[str, object]) -> None:
        """Emit news of a call."""
        ...

    def is_cancelled(self, call_id: CallId) -> bool:
        """Whether somebody wants the call to end."""
        ...

    def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Awaitable[Decision]:
        """Ask whether a further call would be allowed."""
        ...

    def fire(self, call_id: CallId, hook_event: SessionHookEvent) -> Awaitable[HookEffects]:
        """Fire a hook point that only the tool knows of."""
        ...


class ToolContext(Struct, kw_only=True, eq=False):
    """One call's view on its surroundings; a tool function asks for it by annotation."""

    call: Call
    """The call that runs."""
    context: CallContext
    """What the call starts from."""
    workspace: Workspace
    """What all calls of the conversation share."""
    profile: Profile
    """The client version that is followed."""
    services: CallServices
    """The runner, as far as a call may ask it something."""
    message: Mapping[str, object] | None = None
    """The assistant message the call came in."""
    partial: Callable[[], str] | None = None
    """Set by a tool that has something to show when it is cut off."""
    cached_links: LinkResolver | None = None

    @property
    def links(self) -> LinkResolver:
        """Where paths led to when consent to the call was given."""
        if self.cached_links is None:
            self.cached_links = LinkResolver()
        return self.cached_links

    @property
    def cwd(self) -> Path:
        """The folder the call starts in."""
        return self.context.cwd

    @property
    def files(self) -> FileStates:
        """What the conversation knows of files."""
        return self.workspace.files

    @property
    def session_id(self) -> SessionId | None:
        """The session the call belongs to."""
        return self.workspace.session_id

    @property
    def agent_id(self) -> str | None:
        """The subagent that asked; None for the main conversation."""
        return self.workspace.agent_id

    @property
    def tracking(self) -> Tracking:
        """Which chain of queries the call belongs to."""
        return self.workspace.tracking

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants the call to end: for sync tools, which nobody can interrupt."""
        return self.services.is_cancelled(self.call.id)

    @property
    def in_progress(self) -> frozenset[CallId]:
        """The calls that run now, this one among them."""
        return self.services.in_progress

    @property
    def decisions(self) -> Mapping[CallId, Decision]:
        """How the permission question of the latest thousand calls was answered."""
        return self.services.decisions

    def progress(self, kind: str, **data: object) -> None:
        """Tell what the call is doing; at most ten a second are passed on, the last one always."""
        self.services.progress(self.call.id, kind, data)

    async def can_use_tool(self, tool: str, input: Mapping[str, object]) -> Decision:
        """Ask whether a further call would be allowed."""
        return await self.services.can_use_tool(tool, input)

    async def fire(self, hook_event: SessionHookEvent) -> HookEffects:
        """Fire a hook point that only the tool knows of; what its handlers want is for it to do."""
        return await self.services.fire(self.call.id, hook_event)

    def resolve(self, path: str) -> Path:
        """A path as the model wrote it, made absolute: `~` and the current folder are filled in."""
        target = Path(path)
        if path.startswith("~"):
            target = Path(self.workspace.environment.get("HOME", "~")) / path[1:].lstrip("/")
        return Path(os.path.normpath(self.cwd / target))
