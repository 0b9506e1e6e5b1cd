"""Subagents: sessions that an agent's calls start.

    agent = Agent(session, model)
    Subagents(agent, SubagentConfig(definitions))

makes the Agent tool (`tools/agent.py`) work. A subagent has its own messages and its own view of files, some of the
tools, optionally another model, and a transcript beside the session's. It shares rules, hooks and approver with its
parent, which emits its events as `Relayed`. Start at `Subagents.run`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import msgspec

from toolspan.errors import ToolError, ToolspanError
from toolspan.formats.side_files import meta_path
from toolspan.runtime.background import (
    AgentReport,
    AgentTask,
    DeliveredMessage,
    KeptWorktree,
    LaunchedSubagent,
    ProgressCallback,
    SubagentOutcome,
    SubagentRequest,
)
from toolspan.runtime.hooks.events import SessionHookEvent
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.runtime.permissions import PolicyStack
from toolspan.runtime.tool import Tool
from toolspan.session.agent import Agent, ToolSchema, TurnResult
from toolspan.session.environment import SubagentInfo
from toolspan.session.models.base import Model
from toolspan.session.recording import Recorder, agent_path
from toolspan.session.resume import load_history
from toolspan.session.session import Session
from toolspan.session.subagents.definitions import (
    GENERAL_AGENT,
    AgentDefinition,
    SubagentConfig,
    new_agent_id,
    subagent_mode,
    subagent_prompt,
)
from toolspan.session.subagents.worktree import (
    GitRunner,
    HookWorktree,
    Worktree,
    hook_worktree,
    identify_repository,
    open_worktree,
)
from toolspan.types.events import Finished, LiveEvent, Relayed, Requested
from toolspan.types.ids import CallId


@dataclass(slots=True, kw_only=True)
class Subagent:
    """A subagent that is running or can be resumed."""

    info: SubagentInfo
    definition: AgentDefinition
    model: Model
    description: str
    cwd: Path
    recorder: Recorder | None
    metadata: dict[str, object]
    """The content of the metadata file next to the transcript."""
    worktree: Worktree | HookWorktree | None = None
    kept_worktree: KeptWorktree | None = None
    history: list[dict[str, object]] = field(default_factory=list)
    messages: deque[str] = field(default_factory=deque)
    accepts_messages: bool = False
    """True if the subagent is running and will read messages."""
    finished: anyio.Event | None = None
    """The event that is set after the subagent's cleanup. None unless the subagent is running."""

    def mark_started(self) -> None:
        """Mark the subagent as running."""
        self.accepts_messages, self.finished = True, anyio.Event()

    def mark_finished(self) -> None:
        """Mark the subagent as finished and cleaned up."""
        finished, self.finished, self.accepts_messages = self.finished, None, False
        if finished is not None:
            finished.set()

    @property
    def id(self) -> str:
        """The agent id, which determines the name of its transcript."""
        return self.info.agent_id


@dataclass(slots=True)
class SubagentMonitor:
    """A monitor that relays a subagent's events and counts its work."""

    parent: Session
    info: SubagentInfo
    on_progress: ProgressCallback
    tools: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0

    def handle_event(self, event: LiveEvent) -> None:
        """Relay an event from the subagent."""
        match event:
            case Relayed():
                self.parent.runner.emit(event)
                return
            case Requested():
                progress = {"agent_id": self.info.agent_id, "tool": event.call.tool}
                self.on_progress({**progress, "target": event.call.target, "calls": len(self.tools) + 1})
            case Finished():
                self.tools.append(event.span.tool)
                structured = event.structured
                hunks = structured.get("structuredPatch") if isinstance(structured, Mapping) else None
                for hunk in hunks if isinstance(hunks, list) else ():
                    lines = [str(line) for line in hunk.get("lines", ())]
                    self.added += sum(line.startswith("+") for line in lines)
                    self.removed += sum(line.startswith("-") for line in lines)
            case _:
                pass
        self.parent.runner.emit(
            Relayed(
                agent_id=self.info.agent_id,
                agent_type=self.info.agent_type,
                call_id=self.info.call_id or CallId(""),
                event=event,
            )
        )


_LIMIT_REASONS = ("max_turns", "max_tokens")
"""Turn end reasons after which the report may be incomplete."""
_MESSAGE_PREFIX = "A message from the agent that started you:\n"


class Subagents:
    """The subagents that one agent can start and resume."""

    def __init__(self, agent: Agent, config: SubagentConfig | None = None) -> None:
        """Make subagents available to an agent. They share `config`."""
        self.config = config or SubagentConfig()
        self._agent = agent
        self._session = agent.session
        self._agent_profile = agent.session.profile.agents
        self._depth = agent.session.runner.runner_context.workspace.tracking.depth
        self._subagents: dict[str, Subagent] = {}
        self._repository = identify_repository(agent.session.cwd)
        self._session.runner.runner_context.workspace.subagents = self
        agent.describe_tools = self.add_agent_list

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the agent definitions."""
        return tuple(self.config.definitions)

    def runs_in_background(self, kind: str) -> bool:
        """Return whether agents of this kind run in the background by default."""
        return self._agent_profile.in_background or self.config.definitions[kind].in_background

    def add_agent_list(self, schemas: list[ToolSchema]) -> list[ToolSchema]:
        """Add the list of agents to the Agent tool's description."""
        listing = self.config.describe_agents()
        return [
            {**schema, "description": f"{schema['description']}\n\n{listing}"}
            if schema["name"] == self._agent_profile.name
            else schema
            for schema in schemas
        ]

    async def run(self, request: SubagentRequest) -> SubagentOutcome:
        """Run a subagent to the end of its turn. Its errors are reported in the outcome, not raised."""
        self.config.acquire_slot()
        try:
            subagent = await self._prepare_subagent(request, in_background=False)
            return await self._run_subagent(subagent, request.prompt, request.on_progress)
        finally:
            self.config.release_slot()

    async def launch(self, request: SubagentRequest) -> LaunchedSubagent:
        """Start a subagent as a background task."""
        self.config.acquire_slot()
        try:
            subagent = await self._prepare_subagent(request, in_background=True)
            task = self._start_background(subagent, request.prompt, request.call_id)
        except BaseException:
            self.config.release_slot()
            raise
        return LaunchedSubagent(agent_id=subagent.id, path=task.path, model=subagent.model.name)

    async def send_message(self, agent_id: str, message: str, call_id: CallId) -> DeliveredMessage:
        """Send a message to a subagent. A finished subagent is resumed in the background."""
        subagent = self._find_subagent(agent_id)
        if subagent.accepts_messages:
            subagent.messages.append(_MESSAGE_PREFIX + message)
            return DeliveredMessage(how="queued", agent_id=subagent.id, path=self._output_path(subagent))
        while subagent.finished is not None:
            await subagent.finished.wait()
        self.config.acquire_slot()
        try:
            subagent.mark_started()
            await self._restore_worktree(subagent)
            task = self._start_background(subagent, message, call_id)
        except BaseException:
            subagent.mark_finished()
            self.config.release_slot()
            raise
        return DeliveredMessage(how="resumed", agent_id=subagent.id, path=task.path)

    # Creating and finding

    async def _prepare_subagent(self, request: SubagentRequest, *, in_background: bool) -> Subagent:
        intent_log = None if self._session.recorder is None else self._session.recorder.open_intent_log()
        if intent_log is not None:  # the tool itself counts as read-only, so nothing else records this call there
            intent_log.record_requested([request.call_id])
            intent_log.begin(request.call_id, self._agent_profile.name)
        if request.resumes is not None:
            subagent = self._find_subagent(request.resumes)
            if subagent.finished is not None:
                raise ToolError(f"Agent {subagent.id} is still running. Wait until it finishes.", kind="invalid_input")
            subagent.mark_started()
            try:
                await self._restore_worktree(subagent)
            except BaseException:
                subagent.mark_finished()
                raise
            return subagent
        definition = self.config.definitions[request.kind]
        model = self.config.resolve_model(request.model or definition.model, self._agent.model)
        if not any(self._allows_tool(definition, tool) for tool in self._session.runner.runner_context.tools):
            raise ToolError(
                f"Agent type '{definition.name}' has no tools that are available here", kind="invalid_input"
            )
        info = self._subagent_info(new_agent_id(self._session.profile.shape.agent_digits), definition, request.call_id)
        values, parent_id = self._agent_profile, self._session.runner.runner_context.workspace.agent_id
        metadata: dict[str, object] = {"agentType": info.agent_type}
        if values.records_request and definition.path is None:
            metadata["isBuiltIn"] = True
        metadata["description"] = request.description
        if values.records_request:
            metadata |= {"toolUseId": request.call_id, "spawnDepth": info.depth}
            metadata |= {"parentAgentId": parent_id} if parent_id is not None else {}
        if values.records_request:
            metadata["requestShape"] = "background" if in_background else "foreground"
            metadata["requestNonInteractive"] = True
        subagent = Subagent(
            info=info,
            definition=definition,
            model=model,
            description=request.description,
            cwd=request.cwd,
            recorder=None,
            metadata=metadata,
        )
        if request.isolated or definition.is_isolated:
            await self._create_worktree(subagent)
        subagent.recorder = self._make_recorder(subagent.id, subagent.metadata)
        self._subagents[subagent.id] = subagent
        subagent.mark_started()
        return subagent

    def _make_recorder(self, agent_id: str, metadata: Mapping[str, object]) -> Recorder | None:
        parent = self._session.recorder
        return None if parent is None else parent.subagent_recorder(agent_id, metadata)

    def _subagent_info(self, agent_id: str, definition: AgentDefinition, call_id: CallId) -> SubagentInfo:
        workspace = self._session.runner.runner_context.workspace
        return SubagentInfo(
            agent_id,
            definition.name,
            call_id=call_id,
            depth=self._depth + 1,
            prompt_id=self._session.hook_environment.prompt_id,
            folder=workspace.folder,
            environment=workspace.environment,
            transcript=self._session.hook_environment.transcript_path,
        )

    def _allows_tool(self, definition: AgentDefinition, tool: Tool) -> bool:
        """Return whether an agent may use a tool. At the maximum depth, it cannot start other agents."""
        max_depth = self.config.limits.max_depth or self._agent_profile.depth
        starts_agents = tool.name in (self._agent_profile.name, "SendMessage")
        return definition.allows_tool(tool) and not (starts_agents and self._depth + 1 >= max_depth)

    async def _create_worktree(self, subagent: Subagent) -> None:
        """Create a worktree, using WorktreeCreate hooks if there are any."""
        workspace, name = self._session.runner.runner_context.workspace, f"agent-{subagent.id}"
        if self._session.hooks.has_handler("WorktreeCreate"):
            event = SessionHookEvent(point="WorktreeCreate", fields={"name": name})
            subagent.worktree = hook_worktree(await self._session.fire_hook_event(event))
        else:
            git = GitRunner(
                workspace.supervisor,
                workspace.outside_environment,
                subagent.info.call_id or subagent.id,
                workspace.sandbox,
                self._repository,
            )
            subagent.worktree = await open_worktree(git, subagent.cwd, name)
        subagent.kept_worktree = None
        subagent.metadata |= KeptWorktree(path=subagent.worktree.path, branch=subagent.worktree.branch).to_record()

    def _find_subagent(self, agent_id: str) -> Subagent:
        subagent = self._subagents.get(agent_id) or self._load_subagent(agent_id)
        if subagent is None:
            known_ids = ", ".join(self._subagents) or "none"
            raise ToolError(
                f"There is no agent with the id {agent_id}. The agents of this conversation: {known_ids}",
                kind="not_found",
            )
        self._subagents[subagent.id] = subagent
        return subagent

    def _load_subagent(self, agent_id: str) -> Subagent | None:
        """Load a subagent that an earlier process ran in this session."""
        main, profile = self._session.hook_environment.transcript_path, self._session.profile
        if main is None or not agent_id.isalnum():
            return None
        path = agent_path(main, agent_id, profile.shape.agents)
        try:
            history = load_history(path) if path.is_file() else []
        except ToolspanError:
            return None
        if not history:
            return None
        metadata: dict[str, object] = {}
        with suppress(OSError, ValueError):
            metadata = msgspec.json.decode(meta_path(path).read_bytes(), type=dict[str, object])
        definition = self.config.definitions.get(str(metadata.get("agentType")), GENERAL_AGENT)
        return Subagent(
            info=self._subagent_info(agent_id, definition, CallId(str(metadata.get("toolUseId") or ""))),
            definition=definition,
            model=self.config.resolve_model(definition.model, self._agent.model),
            description=str(metadata.get("description") or agent_id),
            cwd=self._session.cwd,
            recorder=self._make_recorder(agent_id, metadata),
            metadata=metadata,
            history=history,
        )

    async def _restore_worktree(self, subagent: Subagent) -> None:
        """Create the worktree again if it was removed."""
        if subagent.worktree is not None and subagent.kept_worktree is None:
            await self._create_worktree(subagent)

    # Running

    def _start_background(self, subagent: Subagent, prompt: str, call_id: CallId) -> AgentTask:
        task = AgentTask(
            id=subagent.id, call_id=call_id, description=subagent.description, path=self._output_path(subagent)
        )

        async def run_in_background() -> None:
            try:
                with task.scope:
                    task.report = _background_report(await self._run_subagent(subagent, prompt))
            except Exception as error:  # noqa: BLE001 - only the model can be informed
                task.report = AgentReport(text="", error=f"{type(error).__name__}: {error}")
            finally:
                self.config.release_slot()
                task.finished.set()

        self._session.runner.start_soon(run_in_background)
        self._session.runner.runner_context.workspace.tasks.add(task)
        return task

    async def _run_subagent(
        self, subagent: Subagent, prompt: str, on_progress: ProgressCallback | None = None
    ) -> SubagentOutcome:
        """Run a subagent in its own session until its turn ends or the time limit is reached."""
        monitor = SubagentMonitor(self._session, subagent.info, on_progress or (lambda _news: None))
        clock = self._session.runner.runner_context.clock
        started_at = clock()
        result: TurnResult | None = None
        session: Session | None = None
        try:
            session = self._make_session(subagent, monitor)
            agent = Agent(
                session,
                subagent.model,
                system=subagent_prompt(subagent.definition, session.cwd),
                limits=replace(self._agent.limits, turns=subagent.definition.max_turns),
                meter=self._agent.meter,
            )
            Subagents(agent, self.config)
            with anyio.move_on_after(self.config.limits.timeout):
                async with session:
                    session.notifications.pending = subagent.messages
                    try:
                        turns = await agent.run_to_completion(prompt)
                        while subagent.messages and not turns.is_error:  # they arrived after the last reply
                            next_turn = await agent.wait_for_notifications()
                            turns = turns if next_turn is None else turns.merge(next_turn)
                        result = turns
                    finally:
                        subagent.accepts_messages = False
        finally:
            subagent.history = subagent.history if session is None else session.messages
            await self._clean_up(subagent)
            subagent.mark_finished()
        self._agent.subagent_tokens.update(result.tokens if result else {})
        seconds = self.config.limits.timeout
        error = f"its time limit of {seconds:g} seconds has passed" if seconds else None
        return SubagentOutcome(
            agent_id=subagent.id,
            kind=subagent.definition.name,
            text=result.text if result else "",
            error=_failure_message(result) if result else error,
            limit_reason=result.error if result and result.reason in _LIMIT_REASONS else None,
            timed_out=result is None,
            model=subagent.model.name,
            tools=tuple(monitor.tools),
            changed_lines=(monitor.added, monitor.removed),
            tokens=agent.context_tokens,
            usage=agent.usage,
            duration_ms=(clock() - started_at) * 1000,
            worktree=subagent.kept_worktree,
        )

    def _make_session(self, subagent: Subagent, monitor: SubagentMonitor) -> Session:
        parent, parent_context = self._session, self._session.runner.runner_context
        definition = subagent.definition
        mode = subagent_mode(definition, parent.permission_mode)
        session = Session(
            cwd=subagent.worktree.cwd if subagent.worktree else subagent.cwd,
            tools=parent_context.tools.filtered(lambda tool: self._allows_tool(definition, tool)),
            profile=parent.profile,
            model=subagent.model.name,
            hooks=combine_hooks(parent.hooks, definition.hooks),
            permissions=PolicyStack(
                parent_context.policies,
                parent_context.fallback,
                parent_context.approver,
                mode,
                parent_context.workspace.added_folders,
            ),
            direct=[monitor.handle_event],
            transcript=subagent.recorder,
            session_id=parent.session_id,
            history=subagent.history,
            subagent=subagent.info,
            sandbox=parent_context.workspace.sandbox,
            clock=parent_context.clock,
        )
        session.skills.make_hooks = parent.skills.make_hooks
        session.runner.runner_context.workspace.uses_project_skills = parent_context.workspace.uses_project_skills
        if subagent.worktree is None:  # a repository that the main session made is not the user's own
            session.runner.runner_context.workspace.repository = parent_context.workspace.repository
        if mode != parent.permission_mode or "permission_mode" in parent_context.call_context.values:
            session.runner.set_permission_mode(mode)
        return session

    async def _clean_up(self, subagent: Subagent) -> None:
        if subagent.worktree is not None:
            subagent.kept_worktree = await subagent.worktree.close()
            if subagent.kept_worktree is None:
                subagent.metadata.pop("worktreePath", None)
                subagent.metadata.pop("worktreeBranch", None)
        if self._agent_profile.records_request:
            subagent.metadata["finished"] = True
        if subagent.recorder is not None:
            subagent.recorder.write_metadata(subagent.metadata)

    def _output_path(self, subagent: Subagent) -> Path:
        """Return the background task's output file, which is a link to the transcript."""
        folder = self._session.runner.runner_context.workspace.tasks_folder
        path = folder / f"{subagent.id}.output"
        if subagent.recorder is None:
            return path
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.unlink(missing_ok=True)
            path.symlink_to(subagent.recorder.path.absolute())
            return path
        return subagent.recorder.path


def _failure_message(result: TurnResult) -> str | None:
    """Return the reason the turn has no usable report, or None if it has one."""
    match result.reason:
        case "completed" | "max_turns" | "max_tokens":
            return None
        case "tool_deferred":
            return "a hook deferred one of its calls, which cannot be continued"
        case "aborted_tools" | "aborted_streaming":
            return "it was interrupted"
        case _:
            return result.error or result.reason


def _background_report(outcome: SubagentOutcome) -> AgentReport:
    cut = f"\n\n[Ended early: {outcome.limit_reason}]" if outcome.limit_reason else ""
    worktree_lines = "\n".join(["", "", *outcome.worktree.text_lines()]) if outcome.worktree else ""
    return AgentReport(
        text=f"{outcome.text.strip()}{cut}{worktree_lines}",
        error=outcome.error,
        tokens=outcome.tokens,
        calls=len(outcome.tools),
        duration_ms=outcome.duration_ms,
    )
