"""A conversation at the terminal: what the model says as it comes, calls as they run.

In: lines that are typed, what the model streams, what the runner emits. Out: texts, a line for each
call with its time, diffs of edits. While calls run, a few lines at the bottom tell for how long;
they are drawn only on a terminal. What models and tools say is never sent to it as it is.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from toolspan.cli.draw import diff_line, plain_line
from toolspan.cli.host.faults import Faults
from toolspan.cli.host.stop import watch_signals
from toolspan.cli.output import STATE_STYLE, console, duration
from toolspan.cli.prompt.text import visible
from toolspan.cli.prompt.tty import Terminal
from toolspan.cli.run.show import Show
from toolspan.cli.summary import diff_of
from toolspan.ids import CallId
from toolspan.llm.model import BlockDone, ModelEvent, Retrying, TextDelta, ThinkingDelta
from toolspan.mcp import McpServers
from toolspan.model.live import Asked, Decided, Finished, LiveEvent, Relayed, Requested, Started
from toolspan.model.span import Call
from toolspan.model.state import SIGNS
from toolspan.session import Agent, Ended, Session

_PROMPT = "> "
_MORE = ". "
_WOKEN = "\0"
"""What nobody can type: a hook that ran on has woken the model."""
_LEAVE = frozenset({"/exit", "/quit"})
_HELP = "/exit or Ctrl-D leaves, Ctrl-C ends a turn, \\ at the end goes on in the next line."
_DIFF = 40
"""Lines of a diff that are shown."""
_EXPLAINED = frozenset({"failed", "denied", "blocked_by_hook", "timed_out"})
"""States that call for a reason."""
_WAITING = 8
"""Running calls that are shown at once."""


@dataclass(slots=True)
class _Running:
    call: Call
    since: float | None = None


class LiveShow:
    """Shows a session to a person."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._calls: dict[CallId, _Running] = {}
        self._asked: set[CallId] = set()
        """Calls that somebody was asked about."""
        self._open: set[CallId] = set()
        """Those of them, and of agents below, whose question stands on the screen."""
        self._live: Live | None = None
        self._in_line = False
        """The cursor stands behind words of the model."""
        self._thinks = False
        self._waits = False
        """The cursor stands behind a prompt."""
        self._faults = Faults(tell=self._complain)

    def begin(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """Who is there, and where."""
        tools = len(session.schemas())
        self._out.print(
            Text(f"{visible(model)} · {tools} tools · {mode} · {visible(str(session.cwd))}", "dim")
        )
        if session.length:
            told = f"goes on with {session.session_id}, {session.length} messages"
            self._out.print(Text(told, "dim"))
        for name, health in servers.health.items():
            if health.state == "failed":
                self._out.print(Text(f"server {visible(name)} is not there", "yellow"))
        self._out.print(Text(_HELP, "dim"))

    def heard(self, event: ModelEvent) -> None:
        """Words as they come."""
        match event:
            case TextDelta():
                self._say(event.text)
            case ThinkingDelta() if not self._thinks:
                self._thinks = True
                self._line(Text("thinking …", "dim"))
            case BlockDone():
                self._thinks = False
                self._new_line()
            case Retrying():
                wait = f"again in {event.wait_s:.1f} s ({event.attempt} of {event.of})"
                self._line(Text(f"! {visible(event.failure.told())}; {wait}", "yellow"))
            case _:
                pass

    def take(self, event: LiveEvent) -> None:
        """Calls as they run."""
        match event:
            case Requested():
                self._calls[event.call.id] = _Running(event.call)
            case Started():
                self._calls[event.call_id].since = event.at
                self._draw()
            case Asked():
                self._asked.add(event.call_id)
                self._ask(event)
            case Decided():
                self._close(event)
            case Finished():
                self._calls.pop(event.call_id, None)
                self._finished(event)
                self._close(event)
            case Relayed():
                self._take_below(event.event)
            case _:
                self._faults.take(event)

    def _take_below(self, event: LiveEvent) -> None:
        match event:
            case Asked():
                self._ask(event)
            case Decided():
                self._close(event)
            case Finished():
                self._finished(event, below=True)
                self._close(event)
            case _:
                self._faults.take(event)

    def end(self, ended: Ended) -> None:
        """What came of the turn, if it was not what was wanted."""
        self._calls.clear()
        self._open.clear()
        self._new_line()
        if ended.error is not None:
            self._line(Text(f"! {visible(ended.error)}", "yellow"))
        used = sum(ended.tokens.values())
        told = f"{duration(ended.duration_ms)} · {used:,} tokens" if used else ""
        self._line(Text(told, "dim"))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody types, behind a prompt; agents in the background may have something to tell."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def over(self) -> None:
        """The session is left."""
        self._faults.end()

    def note(self, text: str) -> None:
        """Tell the person something."""
        self._line(Text(text, "dim"))

    # Inside

    def _complain(self, line: str) -> None:
        """Something went wrong beside the calls; not in the middle of what is drawn or said."""
        self._rest()
        self._new_line()
        click.echo(line, err=True)
        self._draw()

    def _ask(self, event: Asked) -> None:
        """A question is put on the screen: nothing may be drawn over it."""
        self._open.add(event.call_id)
        self._rest()

    def _close(self, event: Decided | Finished) -> None:
        """It has its answer, if there was one."""
        self._open.discard(event.call_id)
        self._draw()

    def _say(self, text: str) -> None:
        self._rest()
        shown = "\n".join(visible(line) for line in text.split("\n"))
        self._out.out(shown, end="", highlight=False)
        self._out.file.flush()
        self._in_line = not shown.endswith("\n")

    def _line(self, text: Text) -> None:
        self._new_line()
        self._out.print(text, soft_wrap=True)

    def _new_line(self) -> None:
        if self._in_line or self._waits:
            self._in_line = False
            self._out.out("")

    def _finished(self, event: Finished, *, below: bool = False) -> None:
        span = event.span
        target = (span.call.target or "").removeprefix(f"{event.cwd}/")
        style = STATE_STYLE[span.state]
        line = Text.assemble(
            ("  ↳ " if below else "", "dim"),
            (f"{SIGNS[span.state]} ", style),
            (plain_line(span.tool, 40), "bold"),
            f"  {plain_line(target, max(self._out.width // 2, 20))}",
            (f"  {duration(event.duration_ms)}", "dim"),
        )
        room = self._out.width - line.cell_len - 3
        if span.message and span.state in _EXPLAINED and room > 0:
            line.append(f"  {plain_line(span.message, room)}", "dim")
        self._line(line)
        if event.call_id not in self._asked and not below:  # the question has shown it
            for shown in _diff(event):
                self._out.print(shown, soft_wrap=True)

    def _draw(self) -> None:
        """Show what runs, below everything else; not in the middle of a line or a question."""
        busy = any(running.since is not None for running in self._calls.values())
        if not busy or self._in_line or self._open or not self._out.is_terminal:
            self._rest()
        elif self._live is None:
            self._live = Live(
                get_renderable=self._bottom,
                console=self._out,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _rest(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _bottom(self) -> Text:
        now = time.time()
        started = [one for one in list(self._calls.values()) if one.since is not None]
        lines = [
            Text.assemble(
                ("▸ ", "cyan"),
                (plain_line(one.call.tool, 40), "bold"),
                f"  {plain_line(one.call.target, 60)}",
                (f"  {duration((now - (one.since or now)) * 1000)}", "dim"),
            )
            for one in started[:_WAITING]
        ]
        if len(started) > _WAITING:
            lines.append(Text(f"  and {len(started) - _WAITING} more", "dim"))
        return Text("\n").join(lines)


def _diff(event: Finished) -> Iterator[Text]:
    result = event.span.result
    diff = diff_of(result.structured) if result is not None else None
    lines = (diff or "").splitlines()
    for line in lines[:_DIFF]:
        shown = diff_line(visible(line))
        yield Text("  ").append_text(shown)
    if len(lines) > _DIFF:
        yield Text(f"  … {len(lines) - _DIFF} more lines", "dim")


Enter = Callable[[Show, Agent], None]


async def converse(make: Callable[[Show], Agent], begin: Enter, terminal: Terminal) -> int:
    """Talk until somebody leaves; the exit code."""
    show = LiveShow(console())
    agent = make(show)
    stop = _Presses(agent, show)
    async with agent.session, anyio.create_task_group() as group:
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        begin(show, agent)
        while (typed := await _typed(terminal, show, agent.session)) is not None:
            stop.presses = 0
            if typed == "/help":
                show.note(_HELP)
            elif typed == _WOKEN:
                show.end(await agent.work())
            elif typed:
                await _turn(typed, agent, show)
            stop.presses = 0
        agent.session.end_reason = "prompt_input_exit"
        group.cancel_scope.cancel()
    show.over()
    return stop.code


async def _turn(typed: str, agent: Agent, show: LiveShow) -> None:
    """What was typed is said, once no call is put off any more."""
    if agent.session.deferred is not None:
        show.end(await agent.go_on())
    if agent.session.deferred is not None:
        show.note("A hook has put a call off; until it agrees, nothing else can be said.")
        return
    show.end(await agent.prompt(typed))


class _Presses:
    """Ctrl-C ends a turn; pressed again, everything. Other signals are not asked twice."""

    def __init__(self, agent: Agent, show: LiveShow) -> None:
        self._agent = agent
        self._show = show
        self.presses = 0
        """How often Ctrl-C was pressed since the last line was typed or the turn ended."""
        self.code = 0

    def on_signal(self, number: int) -> bool:
        """Somebody wants to end the turn, or everything; whether it is everything."""
        if number == signal.SIGINT:
            return self._press()
        self.code = 128 + number
        return True

    def _press(self) -> bool:
        """Ctrl-C; whether it is meant to end everything."""
        self.presses += 1
        if self.presses > 1:
            self.code = 128 + signal.SIGINT
            return True
        if self._agent.is_busy:
            self._agent.interrupt()
        else:
            self._show.note("Ctrl-C again leaves.")
        return False


async def _typed(terminal: Terminal, show: LiveShow, session: Session) -> str | None:
    """What somebody wants; None when they leave, `_WOKEN` when a hook has begun a turn."""
    sys.stdout.flush()
    typed: str | None = _WOKEN

    async def listen(scope: anyio.CancelScope) -> None:
        if await session.woken():
            scope.cancel()

    with show.waiting():
        async with anyio.create_task_group() as group:
            group.start_soon(listen, group.cancel_scope)
            typed = await _read(terminal)
            group.cancel_scope.cancel()
    return typed


async def _read(terminal: Terminal) -> str | None:
    line = await terminal.idle_line(_PROMPT)
    lines: list[str] = []
    while line is not None and line.endswith("\\"):
        lines.append(line[:-1])
        line = await terminal.idle_line(_MORE)
    if line is None or (not lines and line in _LEAVE):
        return None
    return "\n".join([*lines, line]).strip()
