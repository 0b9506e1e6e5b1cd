"""The session for a command that runs calls, made from the options of the command line.

Start at `make_session`. This module also contains fault reports, signal handling and unbuffered standard output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click
import msgspec

from toolspan.archive.words import plain_line
from toolspan.cli.app import EXIT_OUTPUT_CLOSED
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
from toolspan.session import Agent, Session
from toolspan.session.leftovers import Leftovers
from toolspan.session.models import make_model
from toolspan.session.models.base import Model
from toolspan.session.recording import Durability, StoredTranscript, StoreOptions, StoreTarget
from toolspan.session.storage import fork_stored
from toolspan.types.events import Faulted, HookRan, LiveEvent, Relayed, WriteFailed
from toolspan.types.ids import SessionId

JsonRow = dict[str, object]

_PATH_TYPE = click.Path(path_type=Path)
_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)
_EXIT_UNWRITABLE = 3
_MAX_REASONS = 3
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


class SessionSource(msgspec.Struct, frozen=True, kw_only=True):
    """A new or resumed session: its id, history and transcript."""

    session_id: str | None = None
    transcript: Path | str | None = "home"
    store: StoreTarget | StoredTranscript | None = None
    history: Sequence[Mapping[str, object]] = ()


def resolve_store(
    options: HostOptions,
    session_id: str | None,
    *,
    resume: str | None,
    newest: bool,
    fork: bool = False,
    until: str | None = None,
) -> SessionSource:
    """Return a new session in `--store`, or take over one whose id begins with `resume`, or the newest of the folder.

    With `fork`, return a copy of it, up to the record `until`.

    Raises:
        ToolspanError: the store has no such session, another host is running it, or `--transcript` is used too.
    """
    assert options.store is not None
    if options.transcript != "home":
        raise ToolspanError("use either --store or --transcript")
    if resume is None and not newest:
        return SessionSource(session_id=session_id, store=options.store)
    settings = StoreOptions(options.durability)
    if fork:
        new_id = SessionId(session_id or str(uuid.uuid4()))
        try:
            stored, history = fork_stored(
                options.store, resume, options.cwd.absolute(), settings, session_id=new_id, until=until
            )
        except OSError as error:
            raise ToolspanError(f"{error.filename}: {error.strerror}") from error
        return SessionSource(store=stored, history=history)
    return SessionSource(store=StoredTranscript.resume(options.store, resume, options.cwd.absolute(), settings))


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
            on_wait=_announce_question,
            grants=setup.page_grants,
            notify=setup.notify,
        )

    return make_approver


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


class SignalExit:
    """The exit code of a command that a signal ended; None if none did."""

    code: int | None = None


@contextmanager
def cancel_on_signal() -> Iterator[SignalExit]:
    """Run a block, and cancel it when a signal comes. See `handle_signals`."""
    ended = SignalExit()

    def on_signal(number: int) -> bool:
        ended.code = 128 + number
        return True

    with anyio.CancelScope() as scope:
        handle_signals(on_signal, scope)
        yield ended


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
