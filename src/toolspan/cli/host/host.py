"""A session under the settings of its place: what the command line and settings files make of it.

In: options, the same for every command that runs calls. Out: a session with tools, rules, hooks,
servers and, if wanted, a person to be asked. Read `Host.session` first.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import msgspec

from toolspan.builtin import coding_tools
from toolspan.cli.host.heads import SkillHooks
from toolspan.cli.host.settings import SOURCES, HookWishes, HostSettings, host_settings
from toolspan.cli.host.strange import strange_rules, strange_tools
from toolspan.cli.options import options
from toolspan.cli.output import complain
from toolspan.cli.prompt.approver import TerminalApprover, notice_of_question
from toolspan.cli.prompt.grants import Keeper, Standing
from toolspan.cli.prompt.tty import Terminal
from toolspan.errors import ToolspanError
from toolspan.hooks.fire import Compose
from toolspan.mcp import McpServers, prompt_tool_approver
from toolspan.permission import MODES, Permissions, Rules
from toolspan.permission.decide import Approver
from toolspan.permission.modes import Mode
from toolspan.permission.source import split_rules
from toolspan.profile import DEFAULT, VERSIONS, Profile, profile
from toolspan.run.grants import apply
from toolspan.run.sinks import Sink
from toolspan.run.toolset import Toolset
from toolspan.session import Session
from toolspan.session.mind import Mind
from toolspan.session.subagents import Staff, load_kinds
from toolspan.session.subagents.staff import FindModel
from toolspan.settings import TrustStore, default_store

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


class HostWishes(msgspec.Struct, frozen=True, kw_only=True):
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
    def place(self) -> str | None:
        """Where it is to be recorded."""
        return None if self.transcript == "none" else self.transcript

    @property
    def named_tools(self) -> list[str] | None:
        """The tools there are to be; None for those that the client has by itself."""
        if self.tools is None:
            return None
        return [name.strip() for name in self.tools.split(",") if name.strip()]

    def rules(self) -> Rules:
        """The rules of the command line."""
        return Rules(
            allow=split_rules(self.allowed_tools),
            deny=split_rules(self.disallowed_tools),
            origin="cliArg",
        )


host_options = options(
    click.option("--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT,
                 help="The client version to behave like."),
    click.option("--settings", "settings_file", type=_PATH,
                 help="Also use this settings file."),
    click.option("--setting-sources", default=",".join(SOURCES),
                 help="Which settings files to look for: user, project, local."),
    click.option("--permission-mode", "mode", type=click.Choice(MODES),
                 help="What happens to calls no rule speaks of."),
    click.option("--allowed-tools", default="",
                 help="Rules that allow, with spaces or commas."),
    click.option("--disallowed-tools", default="", help="Rules that deny."),
    click.option("--tools", help="Only these tools, by name, with commas."),
    click.option("--permission-prompt-tool", help="An MCP tool that gives consent."),
    click.option("--ask", is_flag=True, help="Ask the person at the terminal for consent."),
    click.option("--mcp-config", type=_PATH, help="MCP servers to connect to."),
    click.option("--cwd", type=_FOLDER, default=Path(), help="Where the calls run."),
    click.option("--transcript", default="home", help="File to record to, `none`, or `home`:"
                 " where the client keeps its sessions."),
    click.option("--compose", type=click.Choice(["parallel", "chain"]), default="parallel",
                 help="Hooks at the same time, or one after the other on what the one before"
                 " left."),
    click.option("--fail-closed", is_flag=True,
                 help="A hook that fails refuses what it guards."),
)  # fmt: skip
"""Adds these options to a command, which gets them as keywords."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation it is."""

    session_id: str | None = None
    transcript: Path | str | None = "home"
    history: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """What is there for a session: settings, servers, a terminal."""

    wishes: HostWishes
    settings: HostSettings
    servers: McpServers
    terminal: Terminal | None
    mind: Mind | None = None
    """Whom hooks can ask."""

    @property
    def mode(self) -> Mode:
        """What happens to calls nobody speaks of."""
        return self.wishes.mode or self.settings.mode

    def session(
        self, story: Story, *, model: str | None = None, direct: Iterable[Sink] = ()
    ) -> Session:
        """The session.

        Raises:
            ToolspanError: the settings do not allow it so.
        """
        wishes, settings = self.wishes, self.settings
        chosen = profile(wishes.name, model=model)
        settings.check(self.mode)
        standing = Standing(self._permissions(chosen))
        rules = standing.permissions.rules
        person = self._person(standing, chosen)
        approver = person or self._approver()
        hook_wishes = self._hook_wishes(person=person is not None)
        tools = self._tools(chosen, rules, person=approver is not None)
        self._check_names(rules, [tool.name for tool in tools])
        session = Session(
            cwd=wishes.cwd,
            tools=tools,
            profile=chosen,
            model=model,
            hooks=settings.hooks(chosen, self.servers, hook_wishes),
            policies=standing.policies,
            fallback=standing.fallback,
            approver=approver,
            permission_mode=self.mode,
            direct=direct,
            transcript=story.transcript,
            session_id=story.session_id,
            history=story.history,
        )
        standing.set_mode = partial(_set_mode, session)
        if person is not None:
            person.notify = partial(notice_of_question, session)
        space = session.runner.desk.workspace
        space.environment = {**space.environment, **settings.merged.env}
        if self.mind is not None:
            self.mind.look = partial(self._onlooker, chosen, standing)
        make = settings.maker(chosen, self.servers, hook_wishes)
        session.skills.make = SkillHooks(settings, make)
        self.servers.on_change = partial(self._renew_tools, session, rules)
        return session

    def staff(self, find_model: FindModel) -> Staff:
        """The agents that work can be given to; what is wrong with their files is told."""
        wishes = self._hook_wishes(person=self.terminal is not None)
        make = self.settings.maker(profile(self.wishes.name), self.servers, wishes)
        found = load_kinds(self.settings.agent_folders, partial(make, "agent"))
        for line in found.problems:
            complain(line)
        return Staff(found.kinds, find_model=find_model)

    def _hook_wishes(self, *, person: bool) -> HookWishes:
        compose, closed = self.wishes.compose, self.wishes.fail_closed
        return HookWishes(compose=compose, fail_closed=closed, person=person, mind=self.mind)

    def _onlooker(self, chosen: Profile, standing: Standing) -> Session:
        """A session that changes nothing, for an agent that a hook asks."""
        only = self.wishes.named_tools
        tools = [one for one in coding_tools(chosen, only=only) if one.read_only]
        return Session(
            cwd=self.wishes.cwd,
            tools=tools,
            profile=chosen,
            policies=standing.policies,
            fallback=standing.fallback,
            transcript=None,
        )

    def _check_names(self, rules: Rules, there: Sequence[str]) -> None:
        """Say which names of tools in rules are none, for they do nothing.

        Raises:
            ToolspanError: an option asks for a tool that there is not.
        """
        for line in strange_tools(self.wishes.named_tools or [], there):
            raise ToolspanError(f"--tools: {line}")
        for line in strange_rules(rules, there):
            complain(line)

    def _renew_tools(self, session: Session, rules: Rules) -> None:
        """A server has other tools now; the next reply finds them."""
        desk = session.runner.desk
        desk.tools = self._tools(session.profile, rules, person=desk.approver is not None)

    def _tools(self, chosen: Profile, rules: Rules, *, person: bool) -> Toolset:
        """The tools without those that are denied as a whole."""
        own = Toolset(coding_tools(chosen, only=self.wishes.named_tools, person=person))
        tools = own.combined(self.servers.tools())
        return tools.filtered(lambda one: not rules.removes(one.name))

    def _permissions(self, chosen: Profile) -> Permissions:
        """What the settings and the command line say together."""
        rules = self.settings.rules(chosen) + self.wishes.rules()
        more = self.settings.merged.permissions.additional_directories
        folders = tuple((self.wishes.cwd / Path(one).expanduser()).absolute() for one in more)
        return Permissions(rules, self.mode, folders, chosen.refusals)

    def _approver(self) -> Approver | None:
        tool = self.wishes.permission_prompt_tool
        return (
            None if tool is None else prompt_tool_approver(self.servers, tool, self.servers.profile)
        )

    def _person(self, standing: Standing, chosen: Profile) -> TerminalApprover | None:
        if self.terminal is None:
            return None
        keeper = Keeper(self.settings.places, TrustStore(default_store()))
        return TerminalApprover(
            terminal=self.terminal, standing=standing, keeper=keeper, profile=chosen
        )


@contextmanager
def open_terminal(*, wanted: bool) -> Iterator[Terminal | None]:
    """The terminal that we were started at; None where there is none."""
    found = Terminal.open() if wanted else None
    try:
        yield found
    finally:
        if found is not None:
            found.close()


@asynccontextmanager
async def open_host(
    wishes: HostWishes, *, model: str | None, terminal: Terminal | None, mind: Mind | None = None
) -> AsyncIterator[Host]:
    """Connect what is to be connected; `mind` is whom hooks can ask.

    Raises:
        ToolspanError: what was asked for cannot be had.
    """
    if wishes.ask and wishes.permission_prompt_tool is not None:
        raise ToolspanError("--ask and --permission-prompt-tool: only one can give consent")
    if wishes.ask and terminal is None:
        told = "--ask: there is no terminal, so nobody is asked and what needs consent is denied"
        complain(told)
    settings = host_settings(wishes.cwd, wishes.settings_file, wishes.setting_sources)
    chosen = profile(wishes.name, model=model)
    named = settings.servers(wishes.mcp_config)
    async with McpServers(named, profile=chosen, cwd=wishes.cwd) as servers:
        for name, health in servers.health.items():
            if health.state == "failed":
                complain(f"MCP server {name!r}: {health.reason}")
        yield Host(wishes, settings, servers, terminal, mind)


def _set_mode(session: Session, mode: Mode) -> None:
    """A person wants another mode: hooks and later calls hear of it."""
    apply([{"type": "setMode", "mode": mode}], session.runner.desk)
