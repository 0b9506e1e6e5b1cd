"""The conversation of `toolspan run` at the terminal.

Start at `run_conversation` and `TerminalDisplay`. Text from models and tools is always escaped before it reaches the
terminal.
"""

from __future__ import annotations

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

from toolspan.archive.call_detail import result_diff
from toolspan.archive.words import format_duration, plain_line
from toolspan.cli.output import STATE_STYLES, diff_line, make_console
from toolspan.cli.process import FaultReporter, handle_signals
from toolspan.cli.prompt.terminal import Terminal
from toolspan.cli.session_output import TextOutput, describe_retry, server_states
from toolspan.session import Agent, Session, TurnResult
from toolspan.session.models.base import BlockDone, ModelEvent, Retrying, TextDelta, ThinkingDelta
from toolspan.types.events import Decided, Finished, LiveEvent, PermissionRequested, Relayed, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.state import STATE_SYMBOLS
from toolspan.types.visible_text import escape_invisible

_PROMPT_MARK = "> "
_CONTINUATION_MARK = ". "
_WOKEN_BY_HOOK = "\0"
"""Returned instead of a typed line when an asynchronous hook has started a turn. It cannot be typed."""
_EXIT_COMMANDS = frozenset({"/exit", "/quit"})
_HELP_TEXT = "/exit or Ctrl-D quits, Ctrl-C interrupts a turn, \\ at the end of a line continues it."
_MAX_DIFF_LINES = 40
_STATES_WITH_REASON = frozenset({"failed", "denied", "blocked_by_hook", "timed_out"})
_MAX_STATUS_ROWS = 8


@dataclass(slots=True)
class _RunningCall:
    call: Call
    since: float | None = None


class TerminalDisplay:
    """A display for conversations at the terminal."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._running_calls: dict[CallId, _RunningCall] = {}
        self._prompted_calls: set[CallId] = set()
        self._open_prompts: set[CallId] = set()
        """Calls, including subagents' calls, whose permission prompt is on the screen."""
        self._live_area: Live | None = None
        self._is_mid_line = False
        """True if the cursor is at the end of model output."""
        self._is_thinking = False
        self._is_prompting = False
        """True if the cursor is after the input prompt."""
        self._fault_reporter = FaultReporter(write_line=self._print_fault)

    def on_session_start(self, session: Session, *, model: str, mode: str) -> None:
        """Print the model, mode, folder and failed MCP servers."""
        tools = len(session.schemas())
        self._out.print(
            Text(f"{escape_invisible(model)} · {tools} tools · {mode} · {escape_invisible(str(session.cwd))}", "dim")
        )
        for text in session.describe_sandbox().values():
            self._out.print(Text(f"sandbox: {text}", "yellow" if text.startswith("none") else "dim"))
        if count := len(session.conversation.messages):
            message = f"resuming {session.session_id}, {count} messages"
            self._out.print(Text(message, "dim"))
        for name, state in server_states(session).items():
            if state == "failed":
                self._out.print(Text(f"MCP server {escape_invisible(name)} is not available", "yellow"))
        self._out.print(Text(_HELP_TEXT, "dim"))

    def on_model_event(self, event: ModelEvent) -> None:
        """Print text as it streams."""
        match event:
            case TextDelta():
                self._stop_status()
                visible_text = "\n".join(escape_invisible(line) for line in event.text.split("\n"))
                self._out.out(visible_text, end="", highlight=False)
                self._out.file.flush()
                self._is_mid_line = not visible_text.endswith("\n")
            case ThinkingDelta() if not self._is_thinking:
                self._is_thinking = True
                self._print_line(Text("thinking …", "dim"))
            case BlockDone():
                self._is_thinking = False
                self._end_line()
            case Retrying():
                self._print_line(Text(f"! {escape_invisible(describe_retry(event))}", "yellow"))
            case _:
                pass

    def on_event(self, event: LiveEvent) -> None:
        """Show calls as they run and finish."""
        is_below = isinstance(event, Relayed)
        if isinstance(event, Relayed):
            event = event.event
        match event:
            case Requested() if not is_below:
                self._running_calls[event.call.id] = _RunningCall(event.call)
            case Started() if not is_below:
                self._running_calls[event.call_id].since = event.at
                self._draw_status()
            case PermissionRequested():  # the status area must not overwrite the question
                if not is_below:
                    self._prompted_calls.add(event.call_id)
                self._open_prompts.add(event.call_id)
                self._stop_status()
            case Decided():
                self._open_prompts.discard(event.call_id)
                self._draw_status()
            case Finished():
                if not is_below:
                    self._running_calls.pop(event.call_id, None)
                self._print_finished(event, below=is_below)
                self._open_prompts.discard(event.call_id)
                self._draw_status()
            case _:
                self._fault_reporter.on_event(event)

    def on_turn_end(self, ended: TurnResult) -> None:
        """Print the turn's error and token count."""
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
        """Mark that the user is typing, because background tasks may print in the meantime."""
        self._is_prompting = True
        try:
            yield
        finally:
            self._is_prompting = False

    def close(self) -> None:
        """Report faults that were counted but not printed."""
        self._fault_reporter.close()

    def print_note(self, text: str) -> None:
        """Print a dimmed line."""
        self._print_line(Text(text, "dim"))

    def _print_fault(self, line: str) -> None:
        self._stop_status()
        self._end_line()
        click.echo(line, err=True)
        self._draw_status()

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
        if event.call_id in self._prompted_calls or below:  # the permission prompt has shown the diff
            return
        lines = ((result_diff(span.result.structured) if span.result else None) or "").splitlines()
        for diff_text in lines[:_MAX_DIFF_LINES]:
            self._out.print(Text("  ").append_text(diff_line(escape_invisible(diff_text))), soft_wrap=True)
        if len(lines) > _MAX_DIFF_LINES:
            self._out.print(Text(f"  … {len(lines) - _MAX_DIFF_LINES} more lines", "dim"), soft_wrap=True)

    def _draw_status(self) -> None:
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


SessionDisplay = TextOutput | TerminalDisplay
"""A receiver of a session's events. Its methods must not raise."""


async def run_conversation(
    make: Callable[[SessionDisplay], Agent], begin: Callable[[SessionDisplay, Agent], None], terminal: Terminal
) -> int:
    """Read prompts and run turns until the user quits, and return the exit code."""
    display = TerminalDisplay(make_console())
    agent = make(display)
    stop = _InterruptHandler(agent, display)
    async with agent.session, anyio.create_task_group() as group:
        handle_signals(stop.on_signal, group.cancel_scope)
        begin(display, agent)
        while (typed := await _wait_for_input(terminal, display, agent.session)) is not None:
            stop.press_count = 0
            if typed == "/help":
                display.print_note(_HELP_TEXT)
            elif typed == _WOKEN_BY_HOOK:
                display.on_turn_end(await agent.run_started_turn())
            elif typed:
                if agent.session.deferred_call is not None:
                    display.on_turn_end(await agent.resume_deferred())
                if agent.session.deferred_call is None:
                    display.on_turn_end(await agent.prompt(typed))
                else:
                    display.print_note("A hook has deferred a call; you cannot send a prompt until it allows the call.")
            stop.press_count = 0
        agent.session.end_reason = "prompt_input_exit"
        group.cancel_scope.cancel()
    display.close()
    return stop.exit_code


class _InterruptHandler:
    """A signal handler: the first Ctrl-C interrupts the turn, a second one or any other signal ends the command."""

    def __init__(self, agent: Agent, display: TerminalDisplay) -> None:
        self._agent = agent
        self._display = display
        self.press_count = 0
        """Number of times Ctrl-C was pressed since the last line was typed or the turn ended."""
        self.exit_code = 0

    def on_signal(self, number: int) -> bool:
        self.press_count += number == signal.SIGINT
        if number != signal.SIGINT or self.press_count > 1:
            self.exit_code = 128 + number
            return True
        if self._agent.is_busy:
            self._agent.interrupt()
        else:
            self._display.print_note("Press Ctrl-C again to quit.")
        return False


async def _wait_for_input(terminal: Terminal, display: TerminalDisplay, session: Session) -> str | None:
    """Return the typed prompt, `_WOKEN_BY_HOOK`, or None if the user quits."""
    sys.stdout.flush()
    typed: str | None = _WOKEN_BY_HOOK

    async def wake_on_hook(scope: anyio.CancelScope) -> None:
        if await session.wait_for_wake():
            scope.cancel()

    with display.prompt_context():
        async with anyio.create_task_group() as group:
            group.start_soon(wake_on_hook, group.cancel_scope)
            line = await terminal.read_idle_line(_PROMPT_MARK)
            lines: list[str] = []
            while line is not None and line.endswith("\\"):
                lines.append(line[:-1])
                line = await terminal.read_idle_line(_CONTINUATION_MARK)
            is_exit = line is None or (not lines and line in _EXIT_COMMANDS)
            typed = None if is_exit else "\n".join([*lines, line or ""]).strip()
            group.cancel_scope.cancel()
    return typed
