"""The session for a command that runs calls, built from the command line and the settings files.

Start at `open_host` and `Host.make_session`. This module also contains fault reports, signal handling and
unbuffered standard output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import click
import msgspec

from toolspan.archive.words import plain_line
from toolspan.cli.app import EXIT_OUTPUT_CLOSED
from toolspan.cli.host.settings import (
    SETTING_SOURCES,
    HookOptions,
    HostSettings,
    load_host_settings,
    load_skill_hooks,
)
from toolspan.cli.output import combine_options, warn
from toolspan.cli.profile_type import ProfileType
from toolspan.cli.prompt.approver import (
    GrantWriter,
    PageGrants,
    SessionPermissions,
    TerminalApprover,
    notify_permission_prompt,
)
from toolspan.cli.prompt.terminal import Terminal
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_client import McpServers, prompt_tool_approver
from toolspan.integrations.web_approver import WebApprover
from toolspan.runtime.authorization import apply_permission_updates
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.permissions import MODES, Permissions, PolicyStack, Rules
from toolspan.runtime.permissions.decide import Approver
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.permissions.rule import split_rules
from toolspan.runtime.permissions.rules import added_folders
from toolspan.runtime.profiles import DEFAULT, Profile, profile
from toolspan.runtime.sandbox.bubblewrap import detect_bubblewrap
from toolspan.runtime.sandbox.settings import Sandbox, merge_sandbox_settings, unattended_sandbox
from toolspan.runtime.settings import TrustStore, default_trust_path
from toolspan.runtime.sinks import Sink
from toolspan.runtime.tool import Toolset
from toolspan.session import Agent, Session
from toolspan.session.agent import HookModelAccess
from toolspan.session.environment import rule_warnings, unknown_tool_warnings
from toolspan.session.leftovers import Leftovers
from toolspan.session.subagents import SubagentConfig, load_agent_definitions
from toolspan.session.subagents.definitions import FindModel
from toolspan.tools import coding_tools
from toolspan.types.events import Faulted, HookRan, LiveEvent, Relayed, WriteFailed

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import ActiveSandbox

JsonRow = dict[str, object]

_PATH_TYPE = click.Path(path_type=Path)
_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)
_EXIT_UNWRITABLE = 3
_MAX_REASONS = 3
_UNATTENDED_MODES: tuple[Mode, ...] = ("dontAsk", "bypassPermissions")
"""The permission modes in which nobody is asked."""
_MAX_LINE_LENGTH = 400


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options added by `host_options`."""

    profile_name: str
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
    approve: Literal["terminal", "web"] | None
    mcp_config: Path | None
    cwd: Path
    transcript: str
    leftover: Leftovers
    sandbox: Literal["strict", "open", "on"] | None
    no_sandbox: bool

    @property
    def transcript_target(self) -> str | None:
        """The transcript in which to record the session; None if it is not recorded."""
        return None if self.transcript == "none" else self.transcript

    @property
    def asks_at_terminal(self) -> bool:
        """True if permission requests are answered at the terminal."""
        return self.ask or self.approve == "terminal"

    @property
    def has_remote_approver(self) -> bool:
        """True if permission requests are answered on a page or by an MCP tool."""
        return self.approve == "web" or self.permission_prompt_tool is not None

    @property
    def named_tools(self) -> list[str] | None:
        """The tools in `--tools`; None for the client's default tools."""
        if self.tools is None:
            return None
        return [name.strip() for name in self.tools.split(",") if name.strip()]

    def command_line_rules(self) -> Rules:
        """Return the rules from `--allowed-tools` and `--disallowed-tools`."""
        return Rules(allow=split_rules(self.allowed_tools), deny=split_rules(self.disallowed_tools), origin="cliArg")


host_options = combine_options(
    click.option("--profile", "profile_name", type=ProfileType(), default=DEFAULT,
                 help="The client version to imitate."),
    click.option("--settings", "settings_file", type=_PATH_TYPE,
                 help="Also read this settings file."),
    click.option("--setting-sources", default=",".join(SETTING_SOURCES),
                 help="Which settings files to read: user, project, local."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="The mode that decides calls without a matching rule."),
    click.option("--allowed-tools", default="",
                 help="Rules that allow, separated by spaces or commas."),
    click.option("--disallowed-tools", default="", help="Rules that deny."),
    click.option("--tools", help="Only these tools, separated by commas."),
    click.option("--permission-prompt-tool", help="An MCP tool that answers permission requests."),
    click.option("--approve", type=click.Choice(["terminal", "web"]), help="Ask you for permission at the terminal,"
                 " or on the page of a running `toolspan ui` (if none is running, at the terminal)."),
    click.option("--ask", is_flag=True, help="The same as --approve terminal."),
    click.option("--mcp-config", type=_PATH_TYPE, help="A file with MCP servers to connect to."),
    click.option("--cwd", type=_FOLDER_TYPE, default=Path(), help="The working folder of the calls."),
    click.option("--transcript", default="home", help="The file to record to, `none`, or `home`"
                 " for the client's own folder."),
    click.option("--leftover", type=click.Choice(["end", "wait"]), default="end",
                 help="If a killed session is resumed: end its commands that still run, or wait for them."),
    click.option("--sandbox", type=click.Choice(["strict", "open", "on"]), is_flag=False, flag_value="strict",
                 metavar="[=open]", help="Run commands in a sandbox that hides secrets; with `=open`, in one that shows"
                 " all files, where they need permission.  [default: the setting sandbox.enabled]"),
    click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox."),
    click.option("--compose", type=click.Choice(["parallel", "chain"]), default="parallel",
                 help="Run hooks in parallel, or as a chain in which each gets the input"
                 " changed by the one before."),
    click.option("--fail-closed", is_flag=True,
                 help="Deny a call if one of its hooks fails."),
)  # fmt: skip


class SessionSource(msgspec.Struct, frozen=True, kw_only=True):
    """A new or resumed session: its id, history and transcript."""

    session_id: str | None = None
    transcript: Path | str | None = "home"
    history: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """The settings, MCP servers and terminal used by a command."""

    options: HostOptions
    settings: HostSettings
    servers: McpServers
    terminal: Terminal | None
    model_access: HookModelAccess | None = None
    sandbox: ActiveSandbox | None = None
    sandbox_note: str | None = None
    """A sentence for the user about a sandbox that no option and no setting requested."""

    @property
    def permission_mode(self) -> Mode:
        """The mode that applies to calls without a matching rule."""
        return self.options.mode or self.settings.default_mode

    def make_session(self, source: SessionSource, *, model: str | None = None, direct: Iterable[Sink] = ()) -> Session:
        """Return a session with tools, permissions, hooks and an approver."""
        options, settings = self.options, self.settings
        client_profile = profile(options.profile_name, model=model)
        settings.check_mode(self.permission_mode)
        rules = settings.permission_rules(client_profile) + options.command_line_rules()
        folders = added_folders(settings.merged_settings.permissions, options.cwd.absolute(), client_profile.refusals)
        permissions = SessionPermissions(
            Permissions(rules, self.permission_mode, folders=folders, refusals=client_profile.refusals)
        )
        approver: TerminalApprover | WebApprover | Approver | None = None
        grant_writer = GrantWriter(settings.settings_paths, TrustStore(default_trust_path()))
        if self.terminal is not None:
            approver = TerminalApprover(
                terminal=self.terminal, permissions=permissions, grant_writer=grant_writer, profile=client_profile
            )
        elif (tool := options.permission_prompt_tool) is not None:
            approver = prompt_tool_approver(self.servers, tool, self.servers.profile)
        if options.approve == "web":
            approver = WebApprover(
                fallback=approver, profile=client_profile, on_wait=_announce_question,
                grants=PageGrants(permissions, grant_writer),
            )  # fmt: skip
        hook_options = self._hook_options(person=isinstance(approver, TerminalApprover | WebApprover))
        tools = self._build_toolset(client_profile, rules, person=approver is not None)
        available = [tool.name for tool in tools]
        for line in unknown_tool_warnings(options.named_tools or [], available):
            raise ToolspanError(f"--tools: {line}")
        for line in rule_warnings(rules, available):
            warn(line)
        session = Session(
            cwd=options.cwd,
            tools=tools,
            profile=client_profile,
            model=model,
            hooks=settings.make_hooks(client_profile, self.servers, hook_options),
            permissions=PolicyStack(
                tuple(permissions.policies), permissions.fallback, approver, self.permission_mode, folders
            ),
            direct=direct,
            transcript=source.transcript,
            session_id=source.session_id,
            history=source.history,
            sandbox=self.sandbox,
            leftovers=options.leftover,
        )

        def set_mode(mode: Mode) -> None:
            apply_permission_updates([{"type": "setMode", "mode": mode}], session.runner.runner_context)

        permissions.set_mode = set_mode
        if isinstance(approver, TerminalApprover | WebApprover):
            approver.notify = partial(notify_permission_prompt, session)
        workspace = session.runner.runner_context.workspace
        workspace.environment = {**workspace.environment, **settings.merged_settings.env}
        workspace.uses_project_skills = settings.is_trusted
        if self.model_access is not None:
            self.model_access.make_session = partial(self._read_only_session, client_profile, permissions)
        make_hooks = settings.hook_factory(client_profile, self.servers, hook_options)
        session.skills.make_hooks = partial(load_skill_hooks, make_hooks)
        self.servers.on_change = lambda: session.runner.set_tools(
            self._build_toolset(client_profile, rules, person=approver is not None)
        )
        return session

    def load_subagent_config(self, find_model: FindModel) -> SubagentConfig:
        """Load the agent definitions, warning about invalid files."""
        hook_options = self._hook_options(person=self.terminal is not None or self.options.approve == "web")
        make_hooks = self.settings.hook_factory(profile(self.options.profile_name), self.servers, hook_options)
        loaded = load_agent_definitions(self.settings.agent_folders, partial(make_hooks, "agent"))
        for line in loaded.problems:
            warn(line)
        return SubagentConfig(loaded.definitions, find_model=find_model)

    def _hook_options(self, *, person: bool) -> HookOptions:
        compose, fail_closed = self.options.compose, self.options.fail_closed
        return HookOptions(compose=compose, fail_closed=fail_closed, person=person, model_access=self.model_access)

    def _read_only_session(self, client_profile: Profile, permissions: SessionPermissions) -> Session:
        """Return a session with read-only tools for an agent that runs on behalf of a hook."""
        tools = coding_tools(client_profile, only=self.options.named_tools)
        return Session(
            cwd=self.options.cwd,
            tools=[tool for tool in tools if tool.read_only],
            profile=client_profile,
            permissions=PolicyStack(tuple(permissions.policies), permissions.fallback),
            transcript=None,
            sandbox=self.sandbox,
        )

    def _build_toolset(self, client_profile: Profile, rules: Rules, *, person: bool) -> Toolset:
        builtin_tools = Toolset(coding_tools(client_profile, only=self.options.named_tools, person=person))
        tools = builtin_tools.combined(self.servers.tools())
        return tools.filtered(lambda tool: not rules.denies_tool(tool.name))


@contextmanager
def open_terminal(*, enabled: bool) -> Iterator[Terminal | None]:
    """Open this process's terminal. Yields None if there is no terminal or `enabled` is False."""
    terminal = Terminal.open() if enabled else None
    try:
        yield terminal
    finally:
        if terminal is not None:
            terminal.close()


@asynccontextmanager
async def open_host(
    options: HostOptions,
    *,
    model: str | None,
    terminal: Terminal | None,
    model_access: HookModelAccess | None = None,
    sandbox_if_unattended: bool = False,
) -> AsyncIterator[Host]:
    """Load the settings and connect to the MCP servers.

    With `sandbox_if_unattended`, commands run in a sandbox if nobody is asked about them and the settings mention none.
    """
    if (options.ask or options.approve) and options.permission_prompt_tool is not None:
        raise ToolspanError(f"use either {'--ask' if options.ask else '--approve'} or --permission-prompt-tool")
    if options.ask and options.approve == "web":
        raise ToolspanError("use either --ask or --approve web")
    if options.asks_at_terminal and terminal is None:
        warn("--ask: there is no terminal to ask at, so calls that need permission are denied")
    logging.getLogger("toolspan").addHandler(logging.NullHandler())  # the command itself reports what is logged
    settings = load_host_settings(options.cwd, options.settings_file, options.setting_sources)
    client_profile = profile(options.profile_name, model=model)
    server_config = settings.mcp_server_config(options.mcp_config)
    mode = options.mode or settings.default_mode
    is_unattended = mode in _UNATTENDED_MODES or (terminal is None and not options.has_remote_approver)
    restrict = sandbox_if_unattended and is_unattended
    async with (
        _open_sandbox(options, settings, client_profile, restrict=restrict) as (sandbox, sandbox_note),
        McpServers(server_config, profile=client_profile, cwd=options.cwd, sandbox=sandbox) as servers,
    ):
        for name, health in servers.health.items():
            if health.state == "failed":
                warn(f"MCP server {name!r}: {health.reason}")
        yield Host(options, settings, servers, terminal, model_access, sandbox, sandbox_note)


@asynccontextmanager
async def _open_sandbox(
    options: HostOptions, settings: HostSettings, client_profile: Profile, *, restrict: bool
) -> AsyncIterator[tuple[ActiveSandbox | None, str | None]]:
    """Yield the sandbox, if there is one, and a note for the user about a sandbox that nobody requested."""
    if options.sandbox is not None and options.no_sandbox:
        raise ToolspanError("use either --sandbox or --no-sandbox")
    rules = settings.permission_rules(client_profile) + options.command_line_rules()
    strict = options.sandbox != "open"
    enabled, config = merge_sandbox_settings(settings.sandbox_layers(), rules, options.cwd.absolute(), strict=strict)
    if enabled and not options.sandbox and not settings.merged_settings.is_sandbox_trusted:
        config = replace(config, auto_allow=False)  # an untrusted project may enable the sandbox, but frees nothing
    if options.no_sandbox and settings.requires_sandbox:
        raise ToolspanError("--no-sandbox: the administrator's settings require a sandbox")
    is_requested = not options.no_sandbox and bool(enabled or options.sandbox)
    note = None
    if restrict and enabled is None and not options.no_sandbox and not is_requested:
        config = unattended_sandbox(settings.sandbox_layers(), config)
        is_requested, note = _describe_default(config, options.cwd)
    if not is_requested:
        yield None, note
        return
    from toolspan.runtime.sandbox.active import ActiveSandbox  # imports the proxy, which few commands need

    sandbox = ActiveSandbox(config)
    sandbox.open()
    if sandbox.warning is not None:
        warn(f"commands run WITHOUT a sandbox: {sandbox.warning}")
    sandbox.protected = replace(
        sandbox.protected,
        hook_commands=settings.hook_commands,
        server_commands=settings.server_commands(options.mcp_config),
    )
    try:
        yield sandbox, note
    finally:
        await sandbox.close()


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


def _announce_question(tool: str, url: str) -> None:
    warn(f"{tool} waits for your permission at {url}")


class FaultReporter:
    """Reporter for faults outside of call results, such as failed hooks and transcripts that cannot be written."""

    def __init__(self, name: str = "toolspan", write_line: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._write_line = write_line or partial(click.echo, err=True)
        self._reasons_by_subject: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def on_event(self, event: LiveEvent) -> None:
        """Report the event if it is a fault. Repeated faults are only counted."""
        match event:
            case WriteFailed():
                self._count_failure(f"not recorded: {event.path}", event.reason, _MAX_REASONS)
            case HookRan(outcome="error"):
                self._count_failure(_describe_hook(event), event.text or "unknown reason", 1)
            case HookRan(timed_out=True, decision=None):  # with a decision, the hook failed closed
                seconds = (event.timeout_ms or 0) / 1e3
                self._count_failure(_describe_hook(event), f"timed out after {seconds:g} s", 1)
            case Faulted():
                self._report_line(f"{event.where}: {event.reason}")
            case Relayed():
                self.on_event(event.event)
            case _:
                pass

    def close(self) -> None:
        """Report the totals of repeated faults."""
        for subject, times in self._counts.items():
            if times > len(self._reasons_by_subject[subject]):
                self._report_line(f"{subject}: {times} times in total")
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
    command = plain_line(ran.command or ran.name, _MAX_LINE_LENGTH // 3)
    return f"the {ran.point} hook {command!r} failed and is ignored"


class EarlyExit:
    """An early exit from a command. `exit_code` is set once an exit has been requested."""

    def __init__(self, target: Session | Agent) -> None:
        self._target = target
        self.exit_code: int | None = None

    def request_exit(self, code: int) -> None:
        """Interrupt the running calls. The command then exits with `code`."""
        self.exit_code = self.exit_code or code
        self._target.interrupt()

    def on_signal(self, number: int) -> bool:
        """Handle a signal and return whether the command may exit immediately."""
        must_wait = self._target.is_busy and self.exit_code is None
        self.request_exit(128 + number)
        return not must_wait


def handle_signals(on_signal: Callable[[int], bool], scope: anyio.CancelScope) -> None:
    """Call `on_signal` for SIGINT, SIGTERM and SIGHUP, and cancel the scope when it returns True.

    The handlers stay until the event loop is closed: one more signal does not end the process while it records results
    and ends the processes of calls. SIGQUIT still does.
    """

    def handle(number: int) -> None:
        if on_signal(number):
            scope.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, handle, number)


class StandardOutput:
    """A wrapper for standard output that reports a write failure once."""

    def __init__(self, name: str = "toolspan") -> None:
        self._name = name
        self.on_broken: Callable[[int], None] = lambda _: None
        self._is_broken = False

    def write_row(self, row: JsonRow) -> None:
        """Write a row as a line of JSON."""
        self.write(msgspec.json.encode(row) + b"\n")

    def write(self, data: bytes) -> None:
        """Write bytes without buffering. After a failure, do nothing."""
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
            click.echo(f"{self._name}: cannot write to standard output: {error.strerror}", err=True)
            self.on_broken(_EXIT_UNWRITABLE)
