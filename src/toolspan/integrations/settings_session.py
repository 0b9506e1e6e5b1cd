"""A session made from settings files, with everything they start: MCP servers, the sandbox, hooks, agents.

    async with Session.from_settings("~/app", model=model, approver=ask) as session:
        ended = await session.make_agent().prompt("Fix the test.")

The commands that run calls make their sessions here too. Start at `build_session`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

import anyio

from toolspan.errors import ToolspanError
from toolspan.integrations.grants import GrantWriter, PageGrants, SessionPermissions
from toolspan.integrations.host_settings import SETTING_SOURCES, HookOptions, load_host_settings, load_skill_hooks
from toolspan.integrations.mcp_client import McpServers, prompt_tool_approver
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.hooks.events import HookRunner, SessionHookEvent
from toolspan.runtime.hooks.merge import combine_hooks
from toolspan.runtime.permissions import Permissions, PolicyStack, Rules
from toolspan.runtime.permissions.decide import Approver
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.permissions.rules import added_folders
from toolspan.runtime.profiles import DEFAULT, Profile
from toolspan.runtime.profiles import profile as named_profile
from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox, merge_sandbox_settings, unattended_sandbox
from toolspan.runtime.settings import TrustStore, default_trust_path
from toolspan.runtime.sinks import Sink
from toolspan.runtime.tool import Tool, Toolset
from toolspan.session.agent import Agent, HookModelAccess, system_prompt
from toolspan.session.environment import AgentOptions, SessionOptions
from toolspan.session.instructions import Instructions, load_instructions
from toolspan.session.leftovers import Leftovers
from toolspan.session.models import make_subagent_model
from toolspan.session.models.base import Model
from toolspan.session.recording import Durability, StoredTranscript, StoreTarget
from toolspan.session.resume import DefaultLocation, find_resumed_file
from toolspan.session.rule_problems import RuleNames, find_rule_problems, unknown_tool_warnings
from toolspan.session.session import Session
from toolspan.session.storage import resume_stored
from toolspan.session.subagents import SubagentConfig, Subagents, load_agent_definitions
from toolspan.session.subagents.definitions import FindModel
from toolspan.tools import client_tools, coding_tools
from toolspan.types.decision import Allow, Ask, Deny
from toolspan.types.tool_kinds import sanitize_name

if TYPE_CHECKING:
    from toolspan.runtime.permissions.decide import PermissionRequest
    from toolspan.runtime.sandbox.active import ActiveSandbox

SessionT = TypeVar("SessionT", bound=Session)
_UNATTENDED_MODES: tuple[Mode, ...] = ("dontAsk", "bypassPermissions")
"""The permission modes in which nobody is asked."""
_LOGGER = logging.getLogger("toolspan")


@dataclass(frozen=True, slots=True)
class ApproverSetup:
    """A session's parts for an approver that offers the answer "always"."""

    permissions: SessionPermissions
    grant_writer: GrantWriter
    profile: Profile
    notify: Callable[[str], Coroutine[None, None, None]]
    """Runs the Notification hooks. To be called with the tool name when a question is shown, and cancelled when it is
    answered."""

    @property
    def page_grants(self) -> PageGrants:
        """The offers for "always", as a `WebApprover` needs them."""
        return PageGrants(self.permissions, self.grant_writer)


class SettingsOptions(TypedDict, total=False):
    """The arguments of `Session.from_settings`. All of them may be left out."""

    model: Model | str | None
    """The model that will reply, or its name. With a model, it also answers hooks of type `prompt` and `agent`."""
    profile: str | None
    """The client version to imitate. The default is the newest."""
    approver: Approver | None
    """Decides the calls that need permission. Without one, they are denied."""
    make_approver: Callable[[ApproverSetup], Approver] | None
    """Returns an approver that offers "always", from the parts that it needs for that."""
    permission_tool: str | None
    """The MCP tool that decides the calls that need permission."""
    mode: Mode | None
    """The mode that decides calls without a matching rule, by default that of the settings."""
    rules: Rules | None
    """Rules in addition to those of the settings."""
    tools: Sequence[str] | None
    """The names of the built-in tools to offer, by default those of the client version."""
    more_tools: Iterable[Tool]
    """Tools in addition to the built-in ones and those of the MCP servers."""
    hooks: HookRunner | None
    """Hooks in addition to those of the settings."""
    compose: Compose
    """Run hooks of the settings in parallel, or as a chain in which each gets the input changed by the one before."""
    fail_closed: bool
    """Deny a call if one of the hooks of the settings fails."""
    settings_file: Path | str | None
    """A settings file to read too."""
    sources: Collection[str]
    """The settings files to read: `user`, `project`, `local`. By default all of them."""
    mcp_config: Path | str | Mapping[str, object] | None
    """A file with MCP servers, or its content, in addition to those of a trusted project."""
    sandbox: Literal["strict", "open", "on", "off"] | None
    """Run commands in a sandbox that hides secrets, in one that shows all files, or in none. By default, the settings
    decide."""
    sandbox_if_unattended: bool
    """Use a sandbox if nobody is asked about commands and the settings do not mention one."""
    refuse_useless_denials: bool
    """Raise an error for a rule that should deny something and matches no call. By default, it is a warning."""
    resume: str | bool
    """True to continue the newest session of the folder if there is one; an id prefix to continue that session."""
    transcript: Path | str | DefaultLocation | None
    store: StoreTarget | StoredTranscript | None
    session_id: str | None
    history: Sequence[Mapping[str, object]]
    durability: Durability
    leftovers: Leftovers
    sinks: Iterable[Sink]
    direct: Iterable[Sink]
    warn: Callable[[str], None]
    """Receives a line for each problem, by default the logger `toolspan`."""


_SESSION_OPTIONS = SessionOptions.__annotations__.keys() & SettingsOptions.__annotations__.keys()
_OWN_MEANING = {"model", "profile", "tools", "hooks", "sandbox"}
"""Options that `Session` has too, with other values."""


def build_session(session_type: type[SessionT], cwd: Path | str, options: SettingsOptions) -> SessionT:
    """Return a session with the settings of the user and the folder. It starts nothing before it is entered."""
    if unknown := sorted(options.keys() - SettingsOptions.__annotations__.keys()):
        raise TypeError(f"from_settings() got an unexpected keyword argument {unknown[0]!r}")
    folder = Path(cwd).expanduser().absolute()
    if not folder.is_dir():
        raise ToolspanError(f"{folder}: no such folder")
    return SettingsRuntime(folder, options).build_session(session_type)


class SettingsRuntime:
    """The settings of a session, and the servers and the sandbox that they start."""

    def __init__(self, folder: Path, options: SettingsOptions) -> None:
        """Load the settings.

        Raises:
            ToolspanError: they are invalid, or forbid an option.
        """
        model = options.get("model")
        self.model = None if isinstance(model, str) else model
        self._folder = folder
        self._options = options
        self._warn = options.get("warn") or (lambda text: _LOGGER.warning("%s", text))
        self._sources = frozenset(options.get("sources", SETTING_SOURCES))
        settings_file, mcp_config = options.get("settings_file"), options.get("mcp_config")
        self._mcp_config = Path(mcp_config) if isinstance(mcp_config, str) else mcp_config
        self.settings = load_host_settings(
            folder, None if settings_file is None else Path(settings_file), self._sources, self._warn
        )
        model_name = model if isinstance(model, str) or model is None else model.name
        self._profile = named_profile(options.get("profile") or DEFAULT, model=model_name)
        self._rules = self.settings.permission_rules(self._profile) + (options.get("rules") or Rules())
        self.mode: Mode = options.get("mode") or self.settings.default_mode
        self.settings.check_mode(self.mode)
        self._sandbox_note: str | None = None
        """A sentence for the user about a sandbox that no option and no setting requested."""
        self._sandbox = self._make_sandbox()
        server_config = self.settings.mcp_server_config(self._mcp_config)
        self.servers = McpServers(server_config, profile=self._profile, cwd=folder, sandbox=self._sandbox)
        self._check_rules()
        self._model_access = None if self.model is None else HookModelAccess(self.model)
        self._prompt_tool: Approver | None = None
        self._subagents: list[SubagentConfig] = []
        self._server_task: asyncio.Task[None] | None = None
        self._stop_servers = asyncio.Event()

    # The session

    def build_session(self, session_type: type[SessionT]) -> SessionT:
        """Return a session with these settings."""
        options = self._options
        refusals = self._profile.refusals
        folders = added_folders(self.settings.merged_settings.permissions, self._folder, refusals)
        permissions = SessionPermissions(Permissions(self._rules, self.mode, folders=folders, refusals=refusals))

        async def notify(tool: str) -> None:
            await notify_permission_prompt(session, tool)

        approver = self._make_approver(permissions, notify)
        hooks = self.settings.make_hooks(self._profile, self.servers, self._hook_options)
        session_options: SessionOptions = {
            "tools": self._build_toolset(),
            "profile": self._profile,
            "model": None if self.model is None else self.model.name,
            "hooks": hooks if (more := options.get("hooks")) is None else combine_hooks(hooks, more),
            "permissions": PolicyStack(tuple(permissions.policies), permissions.fallback, approver, self.mode, folders),
            "sandbox": self._sandbox,
        }
        if isinstance(model := options.get("model"), str):
            session_options["model"] = model
        for name in _SESSION_OPTIONS - _OWN_MEANING:
            if name in options:
                session_options[name] = options[name]  # type: ignore[literal-required] # a name of both
        session = self._construct(session_type, session_options)
        session.settings = self
        asked = None if options.get("permission_tool") is not None else approver
        self.servers.let_servers_ask(asked, session.fire_hook_event)

        def set_mode(mode: Mode) -> None:
            apply_permission_updates([{"type": "setMode", "mode": mode}], session.runner.runner_context)

        permissions.set_mode = set_mode
        workspace = session.runner.runner_context.workspace
        workspace.environment = {**workspace.environment, **self.settings.merged_settings.env}
        workspace.uses_project_skills = self.settings.is_trusted
        if self._model_access is not None:
            self._model_access.make_session = partial(self._read_only_session, permissions)
        make_hooks = self.settings.hook_factory(self._profile, self.servers, self._hook_options)
        session.skills.make_hooks = partial(load_skill_hooks, make_hooks)
        return session

    def _construct(self, session_type: type[SessionT], session_options: SessionOptions) -> SessionT:
        options = self._options
        resume, store = options.get("resume", False), options.get("store")
        transcript, session_id = options.get("transcript", "home"), options.get("session_id")
        if resume is not False:
            if session_id is not None or transcript != "home":
                raise ToolspanError("use either `resume` or `transcript` and `session_id`")
            prefix = None if resume is True else resume
            if store is not None and not isinstance(store, StoredTranscript):
                store = resume_stored(store, prefix, self._folder, session_options)
            elif (path := find_resumed_file(prefix, self._folder)) is not None:
                transcript, session_id = path, path.stem
        return session_type(
            cwd=self._folder,
            transcript=transcript,
            store=store,
            session_id=session_id,
            history=options.get("history", ()),
            **session_options,
        )

    def _make_approver(
        self, permissions: SessionPermissions, notify: Callable[[str], Coroutine[None, None, None]]
    ) -> Approver | None:
        options = self._options
        names = [name for name in ("approver", "make_approver", "permission_tool") if options.get(name) is not None]
        if len(names) > 1:
            raise ToolspanError(f"use either {' or '.join(names)}")
        if (make_approver := options.get("make_approver")) is not None:
            grant_writer = GrantWriter(self.settings.settings_paths, TrustStore(default_trust_path()))
            return make_approver(ApproverSetup(permissions, grant_writer, self._profile, notify))
        return self._ask_prompt_tool if options.get("permission_tool") is not None else options.get("approver")

    async def _ask_prompt_tool(self, request: PermissionRequest, ask: Ask) -> Allow | Deny:
        assert self._prompt_tool is not None, "the session is not open"
        decision = self._prompt_tool(request, ask)
        return decision if isinstance(decision, Allow | Deny) else await decision

    @property
    def _has_approver(self) -> bool:
        return any(self._options.get(name) is not None for name in ("approver", "make_approver", "permission_tool"))

    @property
    def _hook_options(self) -> HookOptions:
        options = self._options
        return HookOptions(
            compose=options.get("compose", "parallel"),
            fail_closed=options.get("fail_closed", False),
            person=self._has_approver and options.get("permission_tool") is None,
            model_access=self._model_access,
        )

    def _build_toolset(self) -> Toolset:
        options = self._options
        builtin_tools = coding_tools(self._profile, only=options.get("tools"), person=self._has_approver)
        tools = Toolset(builtin_tools).combined(options.get("more_tools", ())).combined(self.servers.tools())
        return tools.filtered(lambda tool: not self._rules.denies_tool(tool.name))

    def _read_only_session(self, permissions: SessionPermissions) -> Session:
        """Return a session with read-only tools for an agent that runs on behalf of a hook."""
        tools = coding_tools(self._profile, only=self._options.get("tools"))
        return Session(
            cwd=self._folder,
            tools=[tool for tool in tools if tool.read_only],
            profile=self._profile,
            permissions=PolicyStack(tuple(permissions.policies), permissions.fallback),
            transcript=None,
            sandbox=self._sandbox,
        )

    # The agent

    def make_agent(self, session: Session, options: AgentOptions) -> Agent:
        """Return an agent with the model, the instructions and the subagents of these settings.

        Raises:
            ToolspanError: the session has no model.
        """
        if self.model is None:
            raise ToolspanError("this session has no model; pass one to `Session.from_settings(model=...)`")
        instructions = self._load_instructions()
        session.add_hooks(instructions.hooks())
        extra = "\n\n".join(part for part in (options.get("extra", ""), instructions.text) if part)
        system = options.get("system")
        if system is None:
            system = system_prompt(session.cwd, extra=extra)
        else:
            system = "\n\n".join(part for part in (system, extra) if part)
        agent = Agent(
            session,
            self.model,
            system=system,
            limits=options.get("limits"),
            on_event=options.get("on_event", lambda _: None),
        )
        Subagents(agent, self._load_subagents(options.get("find_model", make_subagent_model)))
        return agent

    def _load_instructions(self) -> Instructions:
        """Load CLAUDE.md and AGENTS.md, warning about files that cannot be used as they are."""
        instructions = load_instructions(self._folder, trusted=self.settings.is_trusted, sources=self._sources)
        for line in instructions.problems:
            self._warn(line)
        return instructions

    def _load_subagents(self, find_model: FindModel) -> SubagentConfig:
        """Load the agent definitions, warning about invalid files. Their models are closed with the session."""
        make_hooks = self.settings.hook_factory(self._profile, self.servers, self._hook_options)
        loaded = load_agent_definitions(self.settings.agent_folders, partial(make_hooks, "agent"))
        for line in loaded.problems:
            self._warn(line)
        config = SubagentConfig(loaded.definitions, find_model=find_model)
        self._subagents.append(config)
        if self._model_access is not None and self.model is not None:
            self._model_access.find_model = partial(config.resolve_model, parent_model=self.model)
        return config

    # What opens and closes with the session

    async def open(self, session: Session) -> None:
        """Start the sandbox and the servers, and give the session their tools."""
        if self._sandbox is not None:
            self._sandbox.open()
            if self._sandbox.warning is not None:
                self._warn(f"commands run WITHOUT a sandbox: {self._sandbox.warning}")
        if self.servers.names:
            self._stop_servers.clear()
            ready = asyncio.get_running_loop().create_future()
            self._server_task = asyncio.create_task(self._run_servers(ready))
            await ready
        for name, health in self.servers.health.items():
            if health.state == "failed":
                self._warn(f"MCP server {name!r}: {health.reason}")
        tools = self._build_toolset()
        for line in unknown_tool_warnings(self._options.get("tools") or (), [tool.name for tool in tools]):
            raise ToolspanError(f"tools: {line}")
        session.runner.set_tools(tools)
        self.servers.on_change = lambda: session.runner.set_tools(self._build_toolset())
        if (prompt_tool := self._options.get("permission_tool")) is not None:
            self._prompt_tool = prompt_tool_approver(self.servers, prompt_tool, self._profile)
        if self._sandbox_note is not None:
            self._warn(self._sandbox_note)

    async def _run_servers(self, ready: asyncio.Future[None]) -> None:
        """Keep the servers connected. This is a task of its own, so that any task may close the session."""
        try:
            async with self.servers:
                if not ready.done():
                    ready.set_result(None)
                await self._stop_servers.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def close(self) -> None:
        """End the servers and the sandbox, and close the models of subagents."""
        with anyio.CancelScope(shield=True):
            task, self._server_task = self._server_task, None
            self._stop_servers.set()
            try:
                if task is not None:
                    await task
            finally:
                if self._sandbox is not None:
                    await self._sandbox.close()
                subagents, self._subagents = self._subagents, []
                for config in subagents:
                    await config.close()

    @property
    def server_states(self) -> Mapping[str, str]:
        """The state of each MCP server, by name."""
        return {name: health.state for name, health in self.servers.health.items()}

    # Checks and the sandbox

    def _check_rules(self) -> None:
        """Warn about rules that cannot have an effect, before a server or a hook runs."""
        rules = self._rules
        if not (rules.allow or rules.ask or rules.deny):
            return
        # A rule may name a tool of another client version, or an optional one.
        tools = [*client_tools().values(), *self._options.get("more_tools", ())]
        names = RuleNames.from_tools(tools, servers=map(sanitize_name, self.servers.names))
        for problem in find_rule_problems(rules, names):
            if problem.is_useless_denial and self._options.get("refuse_useless_denials"):
                raise ToolspanError(f"{problem.text} (a rule that denies nothing does not protect you)")
            self._warn(problem.text)

    def _make_sandbox(self) -> ActiveSandbox | None:
        choice, settings = self._options.get("sandbox"), self.settings
        enabled, config = merge_sandbox_settings(
            settings.sandbox_layers(), self._rules, self._folder, strict=choice != "open"
        )
        is_requested = choice not in (None, "off")
        if enabled and not is_requested and not settings.merged_settings.is_sandbox_trusted:
            config = replace(config, auto_allow=False)  # an untrusted project may enable the sandbox, but frees nothing
        if choice == "off":
            if settings.requires_sandbox:
                raise ToolspanError("--no-sandbox: the administrator's settings require a sandbox")
            return None
        is_unattended = self.mode in _UNATTENDED_MODES or not self._has_approver
        if enabled is None and not is_requested and is_unattended and self._options.get("sandbox_if_unattended"):
            config = unattended_sandbox(settings.sandbox_layers(), config)
            is_requested, self._sandbox_note = _describe_default(config, self._folder)
        if not (enabled or is_requested):
            return None
        from toolspan.runtime.sandbox.active import ActiveSandbox  # imports the proxy, which few sessions need

        sandbox = ActiveSandbox(config)
        server_commands = settings.server_commands(self._mcp_config)
        sandbox.protected = replace(
            sandbox.protected, hook_commands=settings.hook_commands, server_commands=server_commands
        )
        return sandbox


def _describe_default(config: Sandbox, project: Path) -> tuple[bool, str]:
    """Return whether commands can run in a sandbox that nobody requested, and the sentence that says so."""
    found = detect_bubblewrap(config)
    problem, fix = found.problem, found.fix
    if project.resolve() == Path("/"):
        problem, fix = "the project is the root folder", None
    if problem is not None:
        hint = f"; to fix it, run `{fix}`" if fix else ""
        return False, f"commands run WITHOUT a sandbox: {problem}{hint} (--no-sandbox hides this warning)"
    network = "network open" if "*:*" in config.allowed_domains else "network as in the settings"
    limits = f"project writable, secrets hidden, {network}"
    return True, f"commands run in a sandbox: {limits} (--no-sandbox switches it off)"


async def notify_permission_prompt(session: Session, tool: str) -> None:
    """Run the Notification hooks when a permission prompt is shown."""
    fields = {"message": f"Claude needs your permission to use {tool}", "notification_type": "permission_prompt"}
    await session.fire_hook_event(SessionHookEvent(point="Notification", subject="permission_prompt", fields=fields))
