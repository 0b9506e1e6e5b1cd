"""The process of a command that runs calls: signals, faults outside of results, and unbuffered standard output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import click
import msgspec

from toolspan.archive.words import plain_line
from toolspan.cli.app import EXIT_OUTPUT_CLOSED
from toolspan.session import Agent, Session
from toolspan.types.events import Faulted, HookRan, LiveEvent, Relayed, WriteFailed

JsonRow = dict[str, object]

_EXIT_UNWRITABLE = 3
_MAX_REASONS = 3
_MAX_LINE_LENGTH = 400


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
