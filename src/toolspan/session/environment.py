"""The options of a session, and the resources and hook environment that a subagent shares with its session."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from toolspan.runtime.batch import Recovery
from toolspan.runtime.context import AdoptHooks, Tracking, Workspace
from toolspan.runtime.hooks.events import HookEnvironment, HookRunner
from toolspan.runtime.permissions import Permissions, PolicyStack
from toolspan.runtime.process import ProcessSupervisor
from toolspan.runtime.profiles import Profile
from toolspan.runtime.runner import scratch_folder
from toolspan.runtime.sandbox import Sandbox
from toolspan.runtime.sinks import Sink
from toolspan.runtime.tool import Tool
from toolspan.session.leftovers import Leftovers
from toolspan.session.recording import Durability, Fsync, Recorder, results_folder
from toolspan.session.rule_problems import RuleNames, find_rule_problems
from toolspan.types.ids import CallId, SessionId

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox
    from toolspan.runtime.sandbox.proxy import AskDomain
    from toolspan.session.agent import Agent, AgentLimits
    from toolspan.session.models.base import ModelEvent
    from toolspan.session.session import Session
    from toolspan.session.subagents.definitions import FindModel


class SessionOptions(TypedDict, total=False):
    """The arguments of `Session` that do not identify the conversation. All of them may be left out."""

    tools: Iterable[Tool] | None
    """The tools that the model may call, by default those of the profile's client version."""
    profile: Profile | str | None
    """The client version to imitate, or its name. The default is the newest."""
    model: str | None
    """The name of the model, on which some tools and messages depend."""
    hooks: HookRunner | None
    """User code around calls and turns."""
    permissions: Permissions | PolicyStack | None
    """The rules that decide which calls may run. By default, only calls that read inside the session's folders run,
    because there is no approver to ask about others. `Permissions.allow_all()` runs everything."""
    sinks: Iterable[Sink]
    """Receivers of every event, each in its own task."""
    direct: Iterable[Sink]
    """Receivers that get every event immediately, before the call continues."""
    recoveries: Sequence[Recovery]
    """Policies to try when a call fails. The default is none."""
    by_path: bool
    """Let calls that name their files wait only for calls on the same files."""
    sandbox: Sandbox | ActiveSandbox | None
    """The sandbox in which commands run. By default, they run with your own permissions."""
    leftovers: Leftovers
    """The treatment of commands that a killed session of the transcript has left running: `end` them, or `wait` for
    those of unanswered calls (ten minutes at most). The results of the calls say so."""
    fsync: Fsync
    """The records to sync to disk: `never`, `results` or `always`."""
    durability: Durability
    """With `store`, results are given to the model, and calls with side effects start, only when the store has them.
    With `local`, it follows."""
    lease_seconds: float
    """The seconds after which another host may resume a session of a store if this one dies."""
    spool_bytes: int
    """The bytes that may wait for the store before a call with side effects waits too."""
    clock: Callable[[], float]
    """A function that returns seconds since the epoch."""


class AgentOptions(TypedDict, total=False):
    """The arguments of `Session.make_agent`. All of them may be left out."""

    system: str | None
    """The system prompt before the instructions, by default a general one."""
    extra: str
    """More text for the system prompt."""
    limits: AgentLimits | None
    """Limits of turns and of the session."""
    on_event: Callable[[ModelEvent], None]
    """Receives every event that the model streams. It must not raise."""
    find_model: FindModel
    """Returns the model that an agent definition names, or None to use the model of the session."""


class SessionSettings(Protocol):
    """The settings that a session was made from, and what they start: MCP servers and a sandbox."""

    async def open(self, session: Session) -> None:
        """Start the sandbox and the servers, and give the session their tools."""
        ...

    async def close(self) -> None:
        """End them. May be called more than once."""
        ...

    def make_agent(self, session: Session, options: AgentOptions) -> Agent:
        """Return an agent with the model, the instructions and the subagents of the settings."""
        ...

    @property
    def server_states(self) -> Mapping[str, str]:
        """The state of each MCP server, by name."""
        ...


@dataclass(frozen=True, slots=True)
class SubagentInfo:
    """A subagent session's relation to the session that started it."""

    agent_id: str
    agent_type: str
    call_id: CallId | None = None
    depth: int = 1
    """The number of sessions above the subagent."""
    prompt_id: str | None = None
    """The turn in which the subagent was started."""
    folder: Path | None = None
    """The main session's folder, which the subagent shares."""
    environment: Mapping[str, str] | None = None
    transcript: Path | None = None
    """The main conversation's transcript, which is passed to hooks."""


def make_workspace(
    project: Path,
    recorder: Recorder | None,
    subagent: SubagentInfo | None,
    sandbox: Sandbox | ActiveSandbox | None,
    *,
    session_id: SessionId,
    model: str | None,
    permission_mode: str,
    added_folders: tuple[Path, ...],
    adopt_hooks: AdoptHooks,
    ask_about_domain: AskDomain,
) -> Workspace:
    """Return the workspace for a session in `project`.

    A recorded session keeps its files beside the transcript. A sandbox passed as settings is created, but not
    opened. Subagents use the sandbox of the main session, which protects that session's files.
    """
    supervisor = ProcessSupervisor()
    intent_log = recorder.open_intent_log() if recorder else None
    if intent_log is not None:
        intent_log.add_tag(supervisor.tag)
    if isinstance(sandbox, Sandbox):
        from toolspan.runtime.sandbox.active import ActiveSandbox  # imports the proxy, which few sessions need

        sandbox = ActiveSandbox(sandbox)
    folder = subagent.folder if subagent else None
    environment = subagent.environment if subagent else None
    workspace = Workspace(
        project=project,
        supervisor=supervisor,
        folder=folder or (results_folder(recorder.path).parent if recorder else scratch_folder()),
        added_folders=added_folders,
        environment=dict(os.environ) if environment is None else environment,
        session_id=session_id,
        agent_id=subagent.agent_id if subagent else None,
        parent_call=subagent.call_id if subagent else None,
        tracking=Tracking("main", subagent.depth) if subagent else Tracking("main"),
        model=model,
        permission_mode=permission_mode,
        adopt_hooks=adopt_hooks,
        sandbox=sandbox,
        intent_log=intent_log,
    )
    if sandbox is not None and subagent is None:
        transcript = recorder.path.absolute() if recorder else None
        sandbox.attach_session(
            config=workspace.config, session_folder=workspace.folder, transcript=transcript, ask=ask_about_domain
        )
    return workspace


def make_hook_environment(
    workspace: Workspace,
    recorder: Recorder | None,
    subagent: SubagentInfo | None,
    *,
    cwd: Callable[[], Path],
    permission_mode: Callable[[], str],
) -> HookEnvironment:
    """Return the session state that hooks can access."""

    def export_variables(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
        before = workspace.environment
        unchanged = {name: value for name, value in before.items() if name not in variables}
        workspace.environment = unchanged | {k: v for k, v in variables.items() if v is not None}
        return {name: before.get(name) for name in variables}

    transcript = recorder.path.absolute() if recorder else None
    return HookEnvironment(
        project=workspace.project,
        supervisor=workspace.supervisor,
        session_folder=workspace.folder,
        cwd=cwd,
        env_vars=workspace.environment,
        session_id=workspace.session_id,
        transcript_path=transcript if subagent is None else subagent.transcript or transcript,
        permission_mode=permission_mode,
        export_variables=export_variables,
        sandbox=workspace.sandbox,
        agent_id=workspace.agent_id,
        agent_type=subagent.agent_type if subagent else None,
    )


class SkillHookLoader:
    """Loader that adds each skill's hooks to a session once."""

    def __init__(self, add_hooks: Callable[[HookRunner], None]) -> None:
        self.make_hooks: Callable[[str, Path], HookRunner | None] | None = None
        """A function that creates hooks from a skill's frontmatter and path, or returns None if it has none.
        It may raise ToolspanError. None ignores hooks defined by skills.
        """
        self._add_hooks = add_hooks
        self._loaded_paths: set[Path] = set()

    def load_skill_hooks(self, frontmatter: str, path: Path) -> None:
        """Add a skill's hooks to the session."""
        if self.make_hooks is None or path in self._loaded_paths:
            return
        hooks = self.make_hooks(frontmatter, path)
        self._loaded_paths.add(path)
        if hooks is not None:
            self._add_hooks(hooks)


def log_rule_warnings(permissions: Permissions | PolicyStack | None, tools: Iterable[Tool]) -> None:
    """Log a warning for each rule about an unknown tool, and for each rule that has no effect."""
    if isinstance(permissions, Permissions):
        for problem in find_rule_problems(permissions.rules, RuleNames.from_tools(tools)):
            logging.getLogger("toolspan").warning("%s", problem.text)
