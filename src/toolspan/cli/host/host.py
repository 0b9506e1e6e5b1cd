"""A session under the settings of its place: what the command line and settings files make of it.

In: options, the same for every command that runs calls. Out: a session with tools, rules, hooks,
servers and, if wanted, a person to be asked. Read `Host.session` first.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import click
import msgspec
from anyio.abc import TaskStatus

from toolspan.cli.app import EXIT_OUTPUT_CLOSED
from toolspan.cli.host.json_rows import JsonRow
from toolspan.cli.host.settings import (
    SETTING_SOURCES,
    HookOptions,
    HostSettings,
    SkillHooks,
    load_host_settings,
    rule_warnings,
    unknown_tool_warnings,
)
from toolspan.cli.output import combine_options, plain_line, warn
from toolspan.cli.prompt.approver import TerminalApprover, notify_permission_prompt
from toolspan.cli.prompt.grants import GrantWriter, SessionPermissions
from toolspan.cli.prompt.terminal import Terminal
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_client import McpServers, prompt_tool_approver
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.permissions import MODES, Permissions, PolicyStack, Rules
from toolspan.runtime.permissions.decide import Approver
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.permissions.rules import split_rules
from toolspan.runtime.profiles import DEFAULT, VERSIONS, Profile, profile
from toolspan.runtime.settings import TrustStore, default_trust_path
from toolspan.runtime.sinks import Sink
from toolspan.runtime.toolset import Toolset
from toolspan.session import Session
from toolspan.session.agent import HookModelAccess
from toolspan.session.subagents import SubagentConfig, load_agent_definitions
from toolspan.session.subagents.definitions import FindModel
from toolspan.tools import coding_tools
from toolspan.types.events import Faulted, HookRan, LiveEvent, Relayed, WriteFailed

_PATH_TYPE = click.Path(path_type=Path)
_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of a session's surroundings."""

    name: str
    settings_file: Path | None
    setting_sources: str
    compose: Compose
    fail_closed: bool
    mode: Mode | None
    allowed_tools: str
    disallowed_tools: str
    tools: str | None
    permission_prompt_tool: str | None
    ask: bool
    mcp_config: Path | None
    cwd: Path
    transcript: str

    @property
    def transcript_target(self) -> str | None:
        """Where it is to be recorded."""
        return None if self.transcript == "none" else self.transcript

    @property
    def named_tools(self) -> list[str] | None:
        """The tools there are to be; None for those that the client has by itself."""
        if self.tools is None:
            return None
        return [name.strip() for name in self.tools.split(",") if name.strip()]

    def command_line_rules(self) -> Rules:
        """The rules of the command line."""
        return Rules(allow=split_rules(self.allowed_tools), deny=split_rules(self.disallowed_tools), origin="cliArg")


host_options = combine_options(
    click.option("--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT,
                 help="The client version to behave like."),
    click.option("--settings", "settings_file", type=_PATH_TYPE,
                 help="Also use this settings file."),
    click.option("--setting-sources", default=",".join(SETTING_SOURCES),
                 help="Which settings files to look for: user, project, local."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="What happens to calls no rule speaks of."),
    click.option("--allowed-tools", default="",
                 help="Rules that allow, with spaces or commas."),
    click.option("--disallowed-tools", default="", help="Rules that deny."),
    click.option("--tools", help="Only these tools, by name, with commas."),
    click.option("--permission-prompt-tool", help="An MCP tool that gives consent."),
    click.option("--ask", is_flag=True, help="Ask the person at the terminal for consent."),
    click.option("--mcp-config", type=_PATH_TYPE, help="MCP servers to connect to."),
    click.option("--cwd", type=_FOLDER_TYPE, default=Path(), help="Where the calls run."),
    click.option("--transcript", default="home", help="File to record to, `none`, or `home`:"
                 " where the client keeps its sessions."),
    click.option("--compose", type=click.Choice(["parallel", "chain"]), default="parallel",
                 help="Hooks at the same time, or one after the other on what the one before"
                 " left."),
    click.option("--fail-closed", is_flag=True,
                 help="A hook that fails refuses what it guards."),
)  # fmt: skip
"""Adds these options to a command, which gets them as keywords."""


class SessionSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation it is."""

    session_id: str | None = None
    transcript: Path | str | None = "home"
    history: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """What is there for a session: settings, servers, a terminal."""

    options: HostOptions
    settings: HostSettings
    servers: McpServers
    terminal: Terminal | None
    model_access: HookModelAccess | None = None
    """Whom hooks can ask."""

    @property
    def permission_mode(self) -> Mode:
        """What happens to calls nobody speaks of."""
        return self.options.mode or self.settings.default_mode

    def make_session(self, source: SessionSource, *, model: str | None = None, direct: Iterable[Sink] = ()) -> Session:
        """The session.

        Raises:
            ToolspanError: the settings do not allow it so.
        """
        command_options, settings = self.options, self.settings
        client_profile = profile(command_options.name, model=model)
        settings.check_mode(self.permission_mode)
        permissions = SessionPermissions(self._build_permissions(client_profile))
        rules = permissions.current.rules
        terminal_approver = self._terminal_approver(permissions, client_profile)
        approver = terminal_approver or self._mcp_approver()
        hook_options = self._hook_options(person=terminal_approver is not None)
        tools = self._build_toolset(client_profile, rules, person=approver is not None)
        self._check_tool_names(rules, [tool.name for tool in tools])
        session = Session(
            cwd=command_options.cwd,
            tools=tools,
            profile=client_profile,
            model=model,
            hooks=settings.make_hooks(client_profile, self.servers, hook_options),
            permissions=PolicyStack(permissions.policies, permissions.fallback, approver, self.permission_mode),
            direct=direct,
            transcript=source.transcript,
            session_id=source.session_id,
            history=source.history,
        )
        permissions.set_mode = partial(_set_mode, session)
        if terminal_approver is not None:
            terminal_approver.notify = partial(notify_permission_prompt, session)
        workspace = session.runner.runner_context.workspace
        workspace.environment = {**workspace.environment, **settings.merged_settings.env}
        if self.model_access is not None:
            self.model_access.make_session = partial(self._read_only_session, client_profile, permissions)
        make_hooks = settings.hook_factory(client_profile, self.servers, hook_options)
        session.skills.make_hooks = SkillHooks(settings, make_hooks)
        self.servers.on_change = partial(self._refresh_tools, session, rules)
        return session

    def load_subagent_config(self, find_model: FindModel) -> SubagentConfig:
        """The agents that work can be given to; what is wrong with their files is told."""
        hook_options = self._hook_options(person=self.terminal is not None)
        make_hooks = self.settings.hook_factory(profile(self.options.name), self.servers, hook_options)
        loaded = load_agent_definitions(self.settings.agent_folders, partial(make_hooks, "agent"))
        for line in loaded.problems:
            warn(line)
        return SubagentConfig(loaded.definitions, find_model=find_model)

    def _hook_options(self, *, person: bool) -> HookOptions:
        compose, fail_closed = self.options.compose, self.options.fail_closed
        return HookOptions(compose=compose, fail_closed=fail_closed, person=person, model_access=self.model_access)

    def _read_only_session(self, client_profile: Profile, permissions: SessionPermissions) -> Session:
        """A session that changes nothing, for an agent that a hook asks."""
        only = self.options.named_tools
        tools = [tool for tool in coding_tools(client_profile, only=only) if tool.read_only]
        return Session(
            cwd=self.options.cwd,
            tools=tools,
            profile=client_profile,
            permissions=PolicyStack(permissions.policies, permissions.fallback),
            transcript=None,
        )

    def _check_tool_names(self, rules: Rules, available: Sequence[str]) -> None:
        """Say which names of tools in rules are none, for they do nothing.

        Raises:
            ToolspanError: an option asks for a tool that there is not.
        """
        for line in unknown_tool_warnings(self.options.named_tools or [], available):
            raise ToolspanError(f"--tools: {line}")
        for line in rule_warnings(rules, available):
            warn(line)

    def _refresh_tools(self, session: Session, rules: Rules) -> None:
        """A server has other tools now; the next reply finds them."""
        context = session.runner.runner_context
        context.tools = self._build_toolset(session.profile, rules, person=context.approver is not None)

    def _build_toolset(self, client_profile: Profile, rules: Rules, *, person: bool) -> Toolset:
        """The tools without those that are denied as a whole."""
        builtin_tools = Toolset(coding_tools(client_profile, only=self.options.named_tools, person=person))
        tools = builtin_tools.combined(self.servers.tools())
        return tools.filtered(lambda tool: not rules.denies_tool(tool.name))

    def _build_permissions(self, client_profile: Profile) -> Permissions:
        """What the settings and the command line say together."""
        rules = self.settings.permission_rules(client_profile) + self.options.command_line_rules()
        directories = self.settings.merged_settings.permissions.additional_directories
        folders = tuple((self.options.cwd / Path(directory).expanduser()).absolute() for directory in directories)
        return Permissions(rules, self.permission_mode, folders=folders, refusals=client_profile.refusals)

    def _mcp_approver(self) -> Approver | None:
        tool = self.options.permission_prompt_tool
        return None if tool is None else prompt_tool_approver(self.servers, tool, self.servers.profile)

    def _terminal_approver(self, permissions: SessionPermissions, client_profile: Profile) -> TerminalApprover | None:
        if self.terminal is None:
            return None
        grant_writer = GrantWriter(self.settings.settings_paths, TrustStore(default_trust_path()))
        return TerminalApprover(
            terminal=self.terminal, permissions=permissions, grant_writer=grant_writer, profile=client_profile
        )


@contextmanager
def open_terminal(*, enabled: bool) -> Iterator[Terminal | None]:
    """The terminal that we were started at; None where there is none."""
    terminal = Terminal.open() if enabled else None
    try:
        yield terminal
    finally:
        if terminal is not None:
            terminal.close()


@asynccontextmanager
async def open_host(
    command_options: HostOptions,
    *,
    model: str | None,
    terminal: Terminal | None,
    model_access: HookModelAccess | None = None,
) -> AsyncIterator[Host]:
    """Connect what is to be connected; `mind` is whom hooks can ask.

    Raises:
        ToolspanError: what was asked for cannot be had.
    """
    if command_options.ask and command_options.permission_prompt_tool is not None:
        raise ToolspanError("--ask and --permission-prompt-tool: only one can give consent")
    if command_options.ask and terminal is None:
        message = "--ask: there is no terminal, so nobody is asked and what needs consent is denied"
        warn(message)
    settings = load_host_settings(command_options.cwd, command_options.settings_file, command_options.setting_sources)
    client_profile = profile(command_options.name, model=model)
    server_config = settings.mcp_server_config(command_options.mcp_config)
    async with McpServers(server_config, profile=client_profile, cwd=command_options.cwd) as servers:
        for name, health in servers.health.items():
            if health.state == "failed":
                warn(f"MCP server {name!r}: {health.reason}")
        yield Host(command_options, settings, servers, terminal, model_access)


def _set_mode(session: Session, mode: Mode) -> None:
    """A person wants another mode: hooks and later calls hear of it."""
    apply_permission_updates([{"type": "setMode", "mode": mode}], session.runner.runner_context)


_MAX_REASONS = 3
"""How many different things are told of one file that cannot be written."""
_MAX_LINE_LENGTH = 400
"""Characters of a line that are told."""


def _write_stderr(line: str) -> None:
    click.echo(line, err=True)


class FaultReporter:
    """Tells what goes wrong beside the calls."""

    def __init__(self, name: str = "toolspan", write_line: Callable[[str], None] = _write_stderr) -> None:
        """Take the words that every line begins with, and who is told."""
        self._name = name
        self._write_line = write_line
        self._reasons_by_subject: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def on_event(self, event: LiveEvent) -> None:
        """Tell of it, if it is a fault."""
        match event:
            case WriteFailed():
                self._count_failure(f"not recorded: {event.path}", event.reason, _MAX_REASONS)
            case HookRan(outcome="error"):
                self._count_failure(_describe_hook(event), event.text or "no reason is known", 1)
            case HookRan(timed_out=True, decision=None):  # with one, it failed closed
                seconds = (event.timeout_ms or 0) / 1e3
                self._count_failure(_describe_hook(event), f"it did not end within {seconds:g} s", 1)
            case Faulted():
                self._report_line(f"{event.where}: {event.reason}")
            case Relayed():
                self.on_event(event.event)
            case _:
                pass

    def close(self) -> None:
        """Tell how often it was, where that was not told each time."""
        for subject, times in self._counts.items():
            if times > len(self._reasons_by_subject[subject]):
                self._report_line(f"{subject}: {times} times in all")
        self._counts.clear()

    def _count_failure(self, subject: str, reason: str, max_reasons: int) -> None:
        self._counts[subject] += 1
        reasons = self._reasons_by_subject.setdefault(subject, set())
        if reason not in reasons and len(reasons) < max_reasons:
            reasons.add(reason)
            self._report_line(f"{subject}: {reason}")

    def _report_line(self, line: str) -> None:
        self._write_line(f"{self._name}: {plain_line(line, _MAX_LINE_LENGTH)}")


def _describe_hook(ran: HookRan) -> str:
    """Which hook failed; what it guards goes on."""
    command = plain_line(ran.command or ran.name, _MAX_LINE_LENGTH // 3)
    return f"the {ran.point} hook {command!r} failed and has no say"


class Interruptible(Protocol):
    """A session, or an agent in one."""

    @property
    def is_busy(self) -> bool:
        """Whether there is something that can be interrupted."""
        ...

    def interrupt(self) -> None:
        """End what runs."""
        ...


class EarlyExit:
    """Why the command ends early: the exit code, once something has set it."""

    def __init__(self, target: Interruptible) -> None:
        self._target = target
        self.exit_code: int | None = None

    def request_exit(self, code: int) -> None:
        """End what runs, and then the command."""
        self.exit_code = self.exit_code or code
        self._target.interrupt()

    def on_signal(self, number: int) -> bool:
        """Somebody wants us to end; whether nothing is left to wait for."""
        must_wait = self._target.is_busy and self.exit_code is None
        self.request_exit(128 + number)
        return not must_wait


async def watch_signals(
    on_signal: Callable[[int], bool], scope: anyio.CancelScope, *, task_status: TaskStatus[None]
) -> None:
    """Tell of every signal that asks us to end; where that says so, cancel the scope."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if on_signal(number):
                scope.cancel()


EXIT_UNWRITABLE = 3
"""Exit code: the output cannot be written."""


class StandardOutput:
    """Standard output, where somebody may have gone away."""

    def __init__(self, name: str = "toolspan") -> None:
        """Take the words that a complaint begins with."""
        self._name = name
        self.on_broken: Callable[[int], None] = lambda _: None
        """Is told the exit code when nothing can be printed any more."""
        self._is_broken = False

    def write_row(self, row: JsonRow) -> None:
        """Print a row as a line."""
        self.write(msgspec.json.encode(row) + b"\n")

    def write(self, data: bytes) -> None:
        """Print bytes; none after some that could not be printed."""
        if self._is_broken:
            return
        remaining = memoryview(data)
        try:
            while remaining:
                remaining = remaining[os.write(sys.stdout.fileno(), remaining) :]
        except BrokenPipeError:
            self._is_broken = True
            self.on_broken(EXIT_OUTPUT_CLOSED)
        except OSError as error:
            self._is_broken = True
            click.echo(f"{self._name}: the output cannot be written: {error.strerror}", err=True)
            self.on_broken(EXIT_UNWRITABLE)
