"""The session for a command that runs calls, made from the options of the command line.

Start at `make_session`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click
import msgspec

from toolspan.cli.output import combine_options, warn
from toolspan.cli.profile_type import ProfileType
from toolspan.cli.prompt.approver import TerminalApprover
from toolspan.cli.prompt.terminal import Terminal
from toolspan.errors import ToolspanError
from toolspan.integrations.host_settings import SETTING_SOURCES
from toolspan.integrations.settings_session import ApproverSetup, SettingsOptions
from toolspan.integrations.web_approver import WebApprover
from toolspan.runtime.hooks.configured import Compose
from toolspan.runtime.permissions import MODES, Rules
from toolspan.runtime.permissions.decide import Approver
from toolspan.runtime.permissions.modes import Mode
from toolspan.runtime.permissions.rule import split_rules
from toolspan.runtime.profiles import DEFAULT
from toolspan.runtime.sinks import Sink
from toolspan.session import Session
from toolspan.session.leftovers import Leftovers
from toolspan.session.models import make_model
from toolspan.session.models.base import Model
from toolspan.session.recording import Durability
from toolspan.session.storage import SessionSource

_PATH_TYPE = click.Path(path_type=Path)
_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)


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
    store: str | None
    durability: Durability
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
    click.option("--store", metavar="URL", help="Record to a store instead, so that another host can"
                 " resume the session: sqlite:///FILE, postgresql://, redis:// or s3://."),
    click.option("--durability", type=click.Choice(["store", "local"]), default="store",
                 help="With --store: wait until it has each result, or let it follow."),
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


model_options = combine_options(
    click.option("--model", "model_spec", envvar="TOOLSPAN_MODEL", metavar="KIND:NAME",
                 help="anthropic:NAME, openai:NAME, gemini:NAME, bedrock:NAME or scripted:FILE."
                 "  [env: TOOLSPAN_MODEL]"),
    click.option("--base-url", help="The URL of another server with the same API."),
)  # fmt: skip


def open_model(model_spec: str | None, base_url: str | None) -> Model:
    """Return the model that `--model` names."""
    if model_spec is None:
        raise ToolspanError(
            "no model named; use --model anthropic:NAME, openai:NAME, gemini:NAME, bedrock:NAME or scripted:FILE,"
            " or set TOOLSPAN_MODEL"
        )
    return make_model(model_spec, base_url=base_url)


def new_source(options: HostOptions, session_id: str | None = None) -> SessionSource:
    """Return a new session that is recorded as the options say."""
    if options.store is not None and options.transcript != "home":
        raise ToolspanError("use either --store or --transcript")
    return SessionSource(session_id=session_id, transcript=options.transcript_target, store=options.store)


@contextmanager
def open_terminal(*, enabled: bool) -> Iterator[Terminal | None]:
    """Open this process's terminal. Yields None if there is no terminal or `enabled` is False."""
    terminal = Terminal.open() if enabled else None
    try:
        yield terminal
    finally:
        if terminal is not None:
            terminal.close()


def make_session(
    options: HostOptions,
    source: SessionSource,
    *,
    terminal: Terminal | None,
    model: Model | str | None = None,
    direct: Iterable[Sink] = (),
    guards_unattended: bool = False,
) -> Session:
    """Return a session with the settings of the folder and the options of the command line.

    With `guards_unattended`, commands run in a sandbox if nobody is asked about them and the settings mention none, and
    a rule that should deny something and matches nothing is an error.
    """
    if (options.ask or options.approve) and options.permission_prompt_tool is not None:
        raise ToolspanError(f"use either {'--ask' if options.ask else '--approve'} or --permission-prompt-tool")
    if options.ask and options.approve == "web":
        raise ToolspanError("use either --ask or --approve web")
    if options.asks_at_terminal and terminal is None:
        warn("--ask: there is no terminal to ask at, so calls that need permission are denied")
    settings: SettingsOptions = {
        **settings_options(options),
        "model": model,
        "make_approver": _approver_factory(options, terminal),
        "permission_tool": options.permission_prompt_tool,
        "sandbox_if_unattended": guards_unattended,
        "refuse_useless_denials": guards_unattended,
        "transcript": source.transcript,
        "store": source.store,
        "session_id": source.session_id,
        "history": source.history,
        "direct": direct,
    }
    return Session.from_settings(options.cwd, **settings)


def settings_options(options: HostOptions) -> SettingsOptions:
    """Return the arguments of `Session.from_settings` that the command line names, except those of a conversation."""
    if options.sandbox is not None and options.no_sandbox:
        raise ToolspanError("use either --sandbox or --no-sandbox")
    logging.getLogger("toolspan").addHandler(logging.NullHandler())  # the command itself reports what is logged
    return {
        "profile": options.profile_name,
        "mode": options.mode,
        "rules": options.command_line_rules(),
        "tools": options.named_tools,
        "compose": options.compose,
        "fail_closed": options.fail_closed,
        "settings_file": options.settings_file,
        "sources": [source.strip() for source in options.setting_sources.split(",") if source.strip()],
        "mcp_config": options.mcp_config,
        "sandbox": "off" if options.no_sandbox else options.sandbox,
        "durability": options.durability,
        "leftovers": options.leftover,
        "warn": warn,
    }


def _approver_factory(options: HostOptions, terminal: Terminal | None) -> Callable[[ApproverSetup], Approver] | None:
    """Return the function that makes the approver of a session; None if nobody is asked."""
    if terminal is None and options.approve != "web":
        return None

    def make_approver(setup: ApproverSetup) -> Approver:
        approver = None
        if terminal is not None:
            approver = TerminalApprover(
                terminal=terminal,
                permissions=setup.permissions,
                grant_writer=setup.grant_writer,
                profile=setup.profile,
                notify=setup.notify,
            )
        if approver is not None and options.approve != "web":
            return approver
        return WebApprover(
            fallback=approver,
            profile=setup.profile,
            on_wait=lambda tool, url: warn(f"{tool} waits for your permission at {url}"),
            grants=setup.page_grants,
            notify=setup.notify,
        )

    return make_approver
