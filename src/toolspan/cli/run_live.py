"""A conversation at the terminal: what the model says as it comes, calls as they run.

In: lines that are typed, what the model streams, what the runner emits. Out: texts, a line for each
call with its time, diffs of edits. While calls run, a few lines at the bottom tell for how long;
they are drawn only on a terminal. What models and tools say is never sent to it as it is.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from toolspan.cli.call_detail import result_diff
from toolspan.cli.host.host import FaultReporter, StandardOutput, watch_signals
from toolspan.cli.host.json_rows import end_line, init_line, reply_line, result_line, retry_line
from toolspan.cli.output import STATE_STYLES, diff_line, format_duration, make_console, plain_line, warn
from toolspan.cli.prompt.terminal import Terminal, escape_invisible
from toolspan.integrations.mcp_client import McpServers
from toolspan.session import Agent, Session, TurnResult
from toolspan.session.models.base import BlockDone, ModelEvent, Retrying, TextDelta, ThinkingDelta
from toolspan.types.events import Decided, Finished, LiveEvent, PermissionRequested, Relayed, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call, Span
from toolspan.types.state import STATE_SYMBOLS


class SessionDisplay(Protocol):
    """Shows a session. Nothing in it may raise."""

    def on_session_start(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """The session is entered."""
        ...

    def on_model_event(self, event: ModelEvent) -> None:
        """The model streams."""
        ...

    def on_event(self, event: LiveEvent) -> None:
        """The runner emits."""
        ...

    def on_turn_end(self, ended: TurnResult) -> None:
        """A turn is over."""
        ...


class TextOutput:
    """The model's last words, and nothing else."""

    def __init__(self, out: StandardOutput) -> None:
        self.out = out
        self._fault_reporter = FaultReporter()
        self._session: Session | None = None

    def on_session_start(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:  # noqa: ARG002 - the protocol's
        """Nothing is shown yet."""
        self._session = session

    def on_model_event(self, event: ModelEvent) -> None:
        """That it takes longer is told."""
        if isinstance(event, Retrying):
            wait = f"again in {event.wait_s:.1f} s ({event.attempt} of {event.max_retries})"
            warn(f"{event.failure.describe()}; {wait}")

    def on_event(self, event: LiveEvent) -> None:
        """Faults are told."""
        self._fault_reporter.on_event(event)

    def on_turn_end(self, ended: TurnResult) -> None:
        """The words; what went wrong is told apart."""
        if ended.text:
            self.out.write(ended.text.encode("utf-8", "replace") + b"\n")
        if ended.error is not None:
            warn(ended.error)

    def close(self) -> None:
        """The session is left."""
        self._fault_reporter.close()


class JsonOutput(TextOutput):
    """One object at the end."""

    def __init__(self, out: StandardOutput) -> None:
        super().__init__(out)
        self._denied_spans: list[Span] = []

    def on_event(self, event: LiveEvent) -> None:
        """Refused calls are told at the end, also those that a summary has taken the place of."""
        super().on_event(event)
        if isinstance(event, Finished) and event.span.state == "denied":
            self._denied_spans.append(event.span)

    def on_turn_end(self, ended: TurnResult) -> None:
        """The object."""
        if self._session is not None:
            self.out.write_row(end_line(self._session, ended, self._denied_spans))


class StreamJsonOutput(JsonOutput):
    """A line for everything that counts, as it comes."""

    def on_session_start(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """The first line: what the session is."""
        self._session = session
        session.conversation.on_block = self._write_block
        self.out.write_row(init_line(session, servers, model=model, mode=mode))

    def on_model_event(self, event: ModelEvent) -> None:
        """A request that is made again."""
        if isinstance(event, Retrying) and self._session is not None:
            self.out.write_row(retry_line(self._session, event))

    def on_event(self, event: LiveEvent) -> None:
        """The result of a call."""
        super().on_event(event)
        if isinstance(event, Finished) and self._session is not None and not event.span.deferred:
            self.out.write_row(result_line(self._session, event))
        elif isinstance(event, Relayed) and isinstance(event.event, Finished) and self._session:
            below = {"parent_tool_use_id": event.call_id, "agent_id": event.agent_id}
            self.out.write_row({**result_line(self._session, event.event), **below})

    def _write_block(self, head: Mapping[str, object], block: Mapping[str, object]) -> None:
        if self._session is not None:
            self.out.write_row(reply_line(self._session, head, block))


_PROMPT_MARK = "> "
_CONTINUATION_MARK = ". "
_WOKEN_BY_HOOK = "\0"
"""What nobody can type: a hook that ran on has woken the model."""
_EXIT_COMMANDS = frozenset({"/exit", "/quit"})
_HELP_TEXT = "/exit or Ctrl-D leaves, Ctrl-C ends a turn, \\ at the end goes on in the next line."
_MAX_DIFF_LINES = 40
"""Lines of a diff that are shown."""
_STATES_WITH_REASON = frozenset({"failed", "denied", "blocked_by_hook", "timed_out"})
"""States that call for a reason."""
_MAX_STATUS_ROWS = 8
"""Running calls that are shown at once."""


@dataclass(slots=True)
class _RunningCall:
    call: Call
    since: float | None = None


class TerminalDisplay:
    """Shows a session to a person."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._running_calls: dict[CallId, _RunningCall] = {}
        self._prompted_calls: set[CallId] = set()
        """Calls that somebody was asked about."""
        self._open_prompts: set[CallId] = set()
        """Those of them, and of agents below, whose question stands on the screen."""
        self._live_area: Live | None = None
        self._is_mid_line = False
        """The cursor stands behind words of the model."""
        self._is_thinking = False
        self._is_prompting = False
        """The cursor stands behind a prompt."""
        self._fault_reporter = FaultReporter(write_line=self._print_fault)

    def on_session_start(self, session: Session, servers: McpServers, *, model: str, mode: str) -> None:
        """Who is there, and where."""
        tools = len(session.schemas())
        self._out.print(
            Text(f"{escape_invisible(model)} · {tools} tools · {mode} · {escape_invisible(str(session.cwd))}", "dim")
        )
        if session.message_count:
            message = f"goes on with {session.session_id}, {session.message_count} messages"
            self._out.print(Text(message, "dim"))
        for name, health in servers.health.items():
            if health.state == "failed":
                self._out.print(Text(f"server {escape_invisible(name)} is not there", "yellow"))
        self._out.print(Text(_HELP_TEXT, "dim"))

    def on_model_event(self, event: ModelEvent) -> None:
        """Words as they come."""
        match event:
            case TextDelta():
                self._print_text(event.text)
            case ThinkingDelta() if not self._is_thinking:
                self._is_thinking = True
                self._print_line(Text("thinking …", "dim"))
            case BlockDone():
                self._is_thinking = False
                self._end_line()
            case Retrying():
                wait = f"again in {event.wait_s:.1f} s ({event.attempt} of {event.max_retries})"
                self._print_line(Text(f"! {escape_invisible(event.failure.describe())}; {wait}", "yellow"))
            case _:
                pass

    def on_event(self, event: LiveEvent) -> None:
        """Calls as they run."""
        match event:
            case Requested():
                self._running_calls[event.call.id] = _RunningCall(event.call)
            case Started():
                self._running_calls[event.call_id].since = event.at
                self._draw_status()
            case PermissionRequested():
                self._prompted_calls.add(event.call_id)
                self._open_prompt(event)
            case Decided():
                self._close_prompt(event)
            case Finished():
                self._running_calls.pop(event.call_id, None)
                self._print_finished(event)
                self._close_prompt(event)
            case Relayed():
                self._on_subagent_event(event.event)
            case _:
                self._fault_reporter.on_event(event)

    def _on_subagent_event(self, event: LiveEvent) -> None:
        match event:
            case PermissionRequested():
                self._open_prompt(event)
            case Decided():
                self._close_prompt(event)
            case Finished():
                self._print_finished(event, below=True)
                self._close_prompt(event)
            case _:
                self._fault_reporter.on_event(event)

    def on_turn_end(self, ended: TurnResult) -> None:
        """What came of the turn, if it was not what was wanted."""
        self._running_calls.clear()
        self._open_prompts.clear()
        self._end_line()
        if ended.error is not None:
            self._print_line(Text(f"! {escape_invisible(ended.error)}", "yellow"))
        used = sum(ended.tokens.values())
        usage = f"{format_duration(ended.duration_ms)} · {used:,} tokens" if used else ""
        self._print_line(Text(usage, "dim"))

    @contextmanager
    def prompt_context(self) -> Iterator[None]:
        """Somebody types, behind a prompt; agents in the background may have something to tell."""
        self._is_prompting = True
        try:
            yield
        finally:
            self._is_prompting = False

    def close(self) -> None:
        """The session is left."""
        self._fault_reporter.close()

    def print_note(self, text: str) -> None:
        """Tell the person something."""
        self._print_line(Text(text, "dim"))

    # Inside

    def _print_fault(self, line: str) -> None:
        """Something went wrong beside the calls; not in the middle of what is drawn or said."""
        self._stop_status()
        self._end_line()
        click.echo(line, err=True)
        self._draw_status()

    def _open_prompt(self, event: PermissionRequested) -> None:
        """A question is put on the screen: nothing may be drawn over it."""
        self._open_prompts.add(event.call_id)
        self._stop_status()

    def _close_prompt(self, event: Decided | Finished) -> None:
        """It has its answer, if there was one."""
        self._open_prompts.discard(event.call_id)
        self._draw_status()

    def _print_text(self, text: str) -> None:
        self._stop_status()
        visible_text = "\n".join(escape_invisible(line) for line in text.split("\n"))
        self._out.out(visible_text, end="", highlight=False)
        self._out.file.flush()
        self._is_mid_line = not visible_text.endswith("\n")

    def _print_line(self, text: Text) -> None:
        self._end_line()
        self._out.print(text, soft_wrap=True)

    def _end_line(self) -> None:
        if self._is_mid_line or self._is_prompting:
            self._is_mid_line = False
            self._out.out("")

    def _print_finished(self, event: Finished, *, below: bool = False) -> None:
        span = event.span
        target = (span.call.target or "").removeprefix(f"{event.cwd}/")
        style = STATE_STYLES[span.state]
        line = Text.assemble(
            ("  ↳ " if below else "", "dim"),
            (f"{STATE_SYMBOLS[span.state]} ", style),
            (plain_line(span.tool, 40), "bold"),
            f"  {plain_line(target, max(self._out.width // 2, 20))}",
            (f"  {format_duration(event.duration_ms)}", "dim"),
        )
        message_width = self._out.width - line.cell_len - 3
        if span.message and span.state in _STATES_WITH_REASON and message_width > 0:
            line.append(f"  {plain_line(span.message, message_width)}", "dim")
        self._print_line(line)
        if event.call_id not in self._prompted_calls and not below:  # the question has shown it
            for diff_text in _diff_lines(event):
                self._out.print(diff_text, soft_wrap=True)

    def _draw_status(self) -> None:
        """Show what runs, below everything else; not in the middle of a line or a question."""
        busy = any(running.since is not None for running in self._running_calls.values())
        if not busy or self._is_mid_line or self._open_prompts or not self._out.is_terminal:
            self._stop_status()
        elif self._live_area is None:
            self._live_area = Live(
                get_renderable=self._render_status,
                console=self._out,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live_area.start()

    def _stop_status(self) -> None:
        live, self._live_area = self._live_area, None
        if live is not None:
            live.stop()

    def _render_status(self) -> Text:
        now = time.time()
        started = [running for running in list(self._running_calls.values()) if running.since is not None]
        lines = [
            Text.assemble(
                ("▸ ", "cyan"),
                (plain_line(running.call.tool, 40), "bold"),
                f"  {plain_line(running.call.target, 60)}",
                (f"  {format_duration((now - (running.since or now)) * 1000)}", "dim"),
            )
            for running in started[:_MAX_STATUS_ROWS]
        ]
        if len(started) > _MAX_STATUS_ROWS:
            lines.append(Text(f"  and {len(started) - _MAX_STATUS_ROWS} more", "dim"))
        return Text("\n").join(lines)


def _diff_lines(event: Finished) -> Iterator[Text]:
    result = event.span.result
    diff = result_diff(result.structured) if result is not None else None
    lines = (diff or "").splitlines()
    for line in lines[:_MAX_DIFF_LINES]:
        styled = diff_line(escape_invisible(line))
        yield Text("  ").append_text(styled)
    if len(lines) > _MAX_DIFF_LINES:
        yield Text(f"  … {len(lines) - _MAX_DIFF_LINES} more lines", "dim")


SessionStartCallback = Callable[[SessionDisplay, Agent], None]


async def run_conversation(
    make: Callable[[SessionDisplay], Agent], begin: SessionStartCallback, terminal: Terminal
) -> int:
    """Talk until somebody leaves; the exit code."""
    show = TerminalDisplay(make_console())
    agent = make(show)
    stop = _InterruptHandler(agent, show)
    async with agent.session, anyio.create_task_group() as group:
        await group.start(watch_signals, stop.on_signal, group.cancel_scope)
        begin(show, agent)
        while (typed := await _wait_for_input(terminal, show, agent.session)) is not None:
            stop.press_count = 0
            if typed == "/help":
                show.print_note(_HELP_TEXT)
            elif typed == _WOKEN_BY_HOOK:
                show.on_turn_end(await agent.run_started_turn())
            elif typed:
                await _run_turn(typed, agent, show)
            stop.press_count = 0
        agent.session.end_reason = "prompt_input_exit"
        group.cancel_scope.cancel()
    show.close()
    return stop.exit_code


async def _run_turn(typed: str, agent: Agent, show: TerminalDisplay) -> None:
    """What was typed is said, once no call is put off any more."""
    if agent.session.deferred_call is not None:
        show.on_turn_end(await agent.resume_deferred())
    if agent.session.deferred_call is not None:
        show.print_note("A hook has put a call off; until it agrees, nothing else can be said.")
        return
    show.on_turn_end(await agent.prompt(typed))


class _InterruptHandler:
    """Ctrl-C ends a turn; pressed again, everything. Other signals are not asked twice."""

    def __init__(self, agent: Agent, show: TerminalDisplay) -> None:
        self._agent = agent
        self._show = show
        self.press_count = 0
        """How often Ctrl-C was pressed since the last line was typed or the turn ended."""
        self.exit_code = 0

    def on_signal(self, number: int) -> bool:
        """Somebody wants to end the turn, or everything; whether it is everything."""
        if number == signal.SIGINT:
            return self._handle_interrupt()
        self.exit_code = 128 + number
        return True

    def _handle_interrupt(self) -> bool:
        """Ctrl-C; whether it is meant to end everything."""
        self.press_count += 1
        if self.press_count > 1:
            self.exit_code = 128 + signal.SIGINT
            return True
        if self._agent.is_busy:
            self._agent.interrupt()
        else:
            self._show.print_note("Ctrl-C again leaves.")
        return False


async def _wait_for_input(terminal: Terminal, show: TerminalDisplay, session: Session) -> str | None:
    """What somebody wants; None when they leave, `_WOKEN` when a hook has begun a turn."""
    sys.stdout.flush()
    typed: str | None = _WOKEN_BY_HOOK

    async def wake_on_hook(scope: anyio.CancelScope) -> None:
        if await session.wait_for_wake():
            scope.cancel()

    with show.prompt_context():
        async with anyio.create_task_group() as group:
            group.start_soon(wake_on_hook, group.cancel_scope)
            typed = await _read_prompt_lines(terminal)
            group.cancel_scope.cancel()
    return typed


async def _read_prompt_lines(terminal: Terminal) -> str | None:
    line = await terminal.read_idle_line(_PROMPT_MARK)
    lines: list[str] = []
    while line is not None and line.endswith("\\"):
        lines.append(line[:-1])
        line = await terminal.read_idle_line(_CONTINUATION_MARK)
    if line is None or (not lines and line in _EXIT_COMMANDS):
        return None
    return "\n".join([*lines, line]).strip()
