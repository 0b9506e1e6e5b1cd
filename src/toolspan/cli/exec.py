"""`toolspan exec`: a runner over a pipe. Assistant messages in, results out, JSON lines."""

import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import click
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from toolspan.builtin import coding_tools
from toolspan.cli.app import CLOSED
from toolspan.cli.house import SOURCES, HookWishes, House, house
from toolspan.cli.live_json import Row, event_row, init_row, result_row
from toolspan.cli.prompt import TerminalApprover, notice_of_question
from toolspan.cli.prompt_grants import Keeper, Standing
from toolspan.cli.prompt_tty import Terminal
from toolspan.cli.strange import strange_rules, strange_tools
from toolspan.errors import ToolspanError
from toolspan.hooks.fire import Compose
from toolspan.mcp import McpServers, prompt_tool_approver
from toolspan.model.live import Duplicate, Faulted, Finished, LiveEvent, WriteFailed
from toolspan.permission import MODES, Permissions, Rules
from toolspan.permission.decide import Approver
from toolspan.permission.modes import Mode
from toolspan.permission.source import split_rules
from toolspan.process import become_subreaper
from toolspan.profile import DEFAULT, VERSIONS, Profile, profile
from toolspan.run.grants import apply
from toolspan.run.toolset import Toolset
from toolspan.session import Session
from toolspan.settings import TrustStore, default_store

UNWRITABLE = 3
_PIECE = 1 << 16
_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command("exec")
@click.option(
    "--profile",
    "name",
    type=click.Choice(VERSIONS),
    default=DEFAULT,
    help="The client version to behave like.",
)
@click.option("--model", help="The model's name; some behaviour hangs on it.")
@click.option("--settings", "settings_file", type=_PATH, help="Also use this settings file.")
@click.option(
    "--setting-sources",
    default=",".join(SOURCES),
    help="Which settings files to look for: user, project, local.",
)
@click.option(
    "--permission-mode",
    "mode",
    type=click.Choice(MODES),
    help="What happens to calls no rule speaks of.",
)
@click.option("--allowed-tools", default="", help="Rules that allow, with spaces or commas.")
@click.option("--disallowed-tools", default="", help="Rules that deny.")
@click.option("--tools", help="Only these tools, by name, with commas.")
@click.option("--permission-prompt-tool", help="An MCP tool that gives consent.")
@click.option("--ask", is_flag=True, help="Ask the person at the terminal for consent.")
@click.option("--mcp-config", type=_PATH, help="MCP servers to connect to.")
@click.option("--cwd", type=_FOLDER, default=Path(), help="Where the calls run.")
@click.option(
    "--transcript",
    default="home",
    help="File to record to, `none`, or `home`: where the client keeps its sessions.",
)
@click.option(
    "--compose",
    type=click.Choice(["parallel", "chain"]),
    default="parallel",
    help="Hooks at the same time, or one after the other on what the one before left.",
)
@click.option("--fail-closed", is_flag=True, help="A hook that fails refuses what it guards.")
@click.option("--events", is_flag=True, help="Also print what happens on the way.")
@click.option(
    "--json", is_flag=True, expose_value=False, help="As always here: the output is JSON lines."
)
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> None:
    """Run tool calls from standard input, a message per line, and print their results.

    A line is {"type":"assistant","message":{"content":[{"type":"tool_use",...}]}}; every call in
    it gets one line {"type":"result","tool_use_id":...}. A line that cannot be read gets an error
    line. At the end of the input everything is finished, background work is ended, and the command
    ends. Ctrl-C ends the running calls, prints their results, and exits with 130.

    Further lines, for the sake of hooks: {"type":"user","message":{"content":"..."}} is a prompt
    and gets {"type":"prompt","accepted":...}; {"type":"run_deferred"} comes back to a call that was
    put off. A turn that hooks end gets {"type":"stopped"}, one they want to go on
    {"type":"feedback"} with the words for the model.
    """
    become_subreaper()
    ctx.exit(anyio.run(_main, msgspec.convert(ctx.params, _Wishes)))


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    name: str
    model: str | None
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
    events: bool


async def _main(wishes: _Wishes) -> int:
    if sys.stdout is None:
        raise ToolspanError("the output is closed, so no result could be printed")
    printer = Printer(sys.stdout.fileno(), events=wishes.events)
    settings = house(wishes.cwd, wishes.settings_file, wishes.setting_sources)
    with _terminal(wishes) as terminal:
        async with _servers(wishes, settings) as servers:
            _tell_missing(servers)
            session = _session(wishes, printer, servers, settings, terminal)
            _tell_strange(wishes, session, settings)
            denied = settings.rules(session.profile) + _own_rules(wishes)
            servers.on_change = partial(_renew_tools, session, wishes, servers, denied)
            return await _serve(session, printer)


@contextmanager
def _terminal(wishes: _Wishes) -> Iterator[Terminal | None]:
    """The terminal of whoever is to be asked; None where nobody is.

    Raises:
        ToolspanError: somebody else is to be asked, too, or messages are typed there.
    """
    if wishes.ask and wishes.permission_prompt_tool is not None:
        raise ToolspanError("--ask and --permission-prompt-tool: only one can give consent")
    if wishes.ask and sys.stdin is not None and sys.stdin.isatty():
        raise ToolspanError("--ask needs the terminal for answers: messages come from a pipe then")
    found = Terminal.open() if wishes.ask else None
    if wishes.ask and found is None:
        told = "--ask: there is no terminal, so nobody is asked and what needs consent is denied"
        click.echo(f"toolspan exec: {told}", err=True)
    try:
        yield found
    finally:
        if found is not None:
            found.close()


def _renew_tools(session: Session, wishes: _Wishes, servers: McpServers, rules: Rules) -> None:
    """A server has other tools now; the next message finds them."""
    person = session.runner.desk.approver is not None
    tools = _tools(session.profile, wishes, person=person).combined(servers.tools())
    session.runner.desk.tools = _offered(tools, rules)


async def _serve(session: Session, printer: "Printer") -> int:
    stop = _Stop(session)
    printer.on_broken = stop.with_code
    async with session, anyio.create_task_group() as group:
        printer.begin(session)
        group.start_soon(_watch_signals, stop, group.cancel_scope)
        async for number, line in _lines(None if sys.stdin is None else sys.stdin.fileno()):
            await turn(number, line, session, printer)
            if stop.code is not None:
                break
        group.cancel_scope.cancel()
    return stop.code or 0


class _Stop:
    """Why the command ends early: the exit code, once something has set it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.code: int | None = None

    def with_code(self, code: int) -> None:
        """End the running calls, and then the command."""
        self.code = self.code or code
        self._session.interrupt()

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        return bool(self._session.runner.in_progress)


def _servers(wishes: _Wishes, settings: House) -> McpServers:
    chosen = profile(wishes.name, model=wishes.model)
    return McpServers(settings.servers(wishes.mcp_config), profile=chosen, cwd=wishes.cwd)


def _tell_missing(servers: McpServers) -> None:
    for name, health in servers.health.items():
        if health.state == "failed":
            click.echo(f"toolspan exec: MCP server {name!r}: {health.reason}", err=True)


def _tell_strange(wishes: _Wishes, session: Session, settings: House) -> None:
    """Say which names of tools are none, for they do nothing."""
    own = [tool.name for tool in session.runner.desk.tools]
    rules = settings.rules(session.profile) + _own_rules(wishes)
    named = [name.strip() for name in (wishes.tools or "").split(",") if name.strip()]
    for line in (*strange_tools(named, own), *strange_rules(rules, own)):
        click.echo(f"toolspan exec: {line}", err=True)


def _session(
    wishes: _Wishes,
    printer: "Printer",
    servers: McpServers,
    settings: House,
    terminal: Terminal | None,
) -> Session:
    chosen = profile(wishes.name, model=wishes.model)
    mode = wishes.mode or settings.mode
    settings.check(mode)
    standing = Standing(_permissions(settings, wishes, chosen, mode))
    person = None
    if terminal is not None:
        keeper = Keeper(settings.places, TrustStore(default_store()))
        person = TerminalApprover(
            terminal=terminal, standing=standing, keeper=keeper, profile=chosen
        )
    approver = person or _approver(wishes, servers)
    tools = _tools(chosen, wishes, person=approver is not None).combined(servers.tools())
    hook_wishes = HookWishes(
        compose=wishes.compose, fail_closed=wishes.fail_closed, person=person is not None
    )
    session = Session(
        cwd=wishes.cwd,
        tools=_offered(tools, standing.permissions.rules),
        profile=chosen,
        model=wishes.model,
        hooks=settings.hooks(chosen, servers, hook_wishes),
        policies=standing.policies,
        fallback=standing.fallback,
        approver=approver,
        permission_mode=mode,
        direct=[printer.take],
        transcript=None if wishes.transcript == "none" else wishes.transcript,
    )
    standing.set_mode = partial(_set_mode, session)
    if person is not None:
        person.notify = partial(notice_of_question, session)
    space = session.runner.desk.workspace
    space.environment = {**space.environment, **settings.merged.env}
    return session


def _set_mode(session: Session, mode: Mode) -> None:
    """A person wants another mode: hooks and later calls hear of it."""
    apply([{"type": "setMode", "mode": mode}], session.runner.desk)


def _approver(wishes: _Wishes, servers: McpServers) -> Approver | None:
    name = wishes.permission_prompt_tool
    return None if name is None else prompt_tool_approver(servers, name, servers.profile)


def _permissions(settings: House, wishes: _Wishes, chosen: Profile, mode: Mode) -> Permissions:
    """What the settings and the command line say together."""
    rules = settings.rules(chosen) + _own_rules(wishes)
    more = settings.merged.permissions.additional_directories
    folders = tuple((wishes.cwd / Path(one).expanduser()).absolute() for one in more)
    return Permissions(rules, mode, folders, chosen.refusals)


def _own_rules(wishes: _Wishes) -> Rules:
    return Rules(
        allow=split_rules(wishes.allowed_tools),
        deny=split_rules(wishes.disallowed_tools),
        origin="cliArg",
    )


def _offered(tools: Toolset, rules: Rules) -> Toolset:
    """The tools without those that are denied as a whole."""
    return tools.filtered(lambda one: not rules.removes(one.name))


def _tools(chosen: Profile, wishes: _Wishes, *, person: bool) -> Toolset:
    names = wishes.tools
    only = None if names is None else [name.strip() for name in names.split(",")]
    return Toolset(coding_tools(chosen, only=only, person=person))


class Printer:
    """Writes rows as lines, whole and at once."""

    def __init__(self, out: int, *, events: bool) -> None:
        self._out = out
        self._events = events
        self.on_broken: Callable[[int], None] = lambda _: None
        """Is told the exit code when nothing can be printed any more."""

    def begin(self, session: Session) -> None:
        """With the events, first of all what the session is and which tools it has."""
        if self._events:
            self.put(init_row(session))

    def take(self, event: LiveEvent) -> None:
        """An event of the runner: results always, the rest when asked for, faults on stderr."""
        if self._events:
            self.put(event_row(event))
        match event:
            case Finished():
                self.put(result_row(event))
            case Duplicate():
                message = f"call {event.call_id} was there before and is not run again"
                self.put({"type": "error", "tool_use_id": event.call_id, "message": message})
            case WriteFailed():
                click.echo(f"toolspan exec: {event.path}: {event.reason}", err=True)
            case Faulted():
                click.echo(f"toolspan exec: {event.where}: {event.reason}", err=True)
            case _:
                pass

    def put(self, row: Row) -> None:
        """Print a row."""
        data = memoryview(msgspec.json.encode(row) + b"\n")
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except BrokenPipeError:
            self.on_broken(CLOSED)
        except OSError as error:
            click.echo(f"toolspan exec: the output cannot be written: {error.strerror}", err=True)
            self.on_broken(UNWRITABLE)


async def turn(number: int, line: bytes, session: Session, printer: Printer) -> None:
    """One line of the input: run its calls, or say what is wrong with it."""
    if not line.strip():
        return
    try:
        await _take(msgspec.json.decode(line, type=dict[str, object]), session, printer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        printer.put({"type": "error", "line": number, "message": f"not a JSON object: {error}"})
    except (ToolspanError, ValueError) as error:
        printer.put({"type": "error", "line": number, "message": str(error)})


async def _take(message: dict[str, object], session: Session, printer: Printer) -> None:
    match message:
        case {"type": "user", "message": {"content": str() | list() as content}}:
            accepted = await session.submit(content)
            row: Row = {"type": "prompt", "accepted": accepted}
            row["content"] = session.messages[-1]["content"] if accepted else []
            printer.put(row)
        case {"type": "run_deferred"}:
            await session.run_deferred()
        case _:
            await session.run(message)
    if session.feedback:
        printer.put({"type": "feedback", "content": list(session.feedback)})
    if session.stopped is not None:
        printer.put({"type": "stopped", "reason": session.stopped})


async def _lines(source: int | None) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of the input, until its end; none when there is no input."""
    if source is None:
        return
    send, receive = anyio.create_memory_object_stream[bytes]()
    token = anyio.lowlevel.current_token()
    # A daemon: it may block on an input that never ends, and must not keep us from ending.
    threading.Thread(target=_pump, args=(source, send, token), daemon=True).start()
    number = 0
    async with receive:
        async for line in receive:
            number += 1
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _pump(
    source: int, send: MemoryObjectSendStream[bytes], token: anyio.lowlevel.EventLoopToken
) -> None:
    """Bring lines to the event loop, one at a time."""
    try:
        for line in _split(source):
            anyio.from_thread.run(send.send, line, token=token)
        anyio.from_thread.run(send.aclose, token=token)
    except (anyio.BrokenResourceError, anyio.RunFinishedError, RuntimeError):
        return  # nobody listens any more


def _split(source: int) -> Iterator[bytes]:
    """The lines of a descriptor; without a buffer object, whose lock a daemon would take along."""
    rest: list[bytes] = []
    while data := os.read(source, _PIECE):
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line))
            rest = []
        rest.append(last)
    if any(rest):
        yield b"".join(rest)


async def _watch_signals(stop: _Stop, scope: anyio.CancelScope) -> None:
    """Ctrl-C, a closed terminal or a request to end ends the calls; a second one does not wait."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            wait = stop.is_busy and stop.code is None
            stop.with_code(128 + number)
            if not wait:
                scope.cancel()
