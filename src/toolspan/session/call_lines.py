"""An event sink that prints a line when a call starts and when it ends."""

from __future__ import annotations

import sys
from typing import TextIO

from toolspan.types.events import Finished, LiveEvent, Requested, Started
from toolspan.types.ids import CallId
from toolspan.types.span import Call
from toolspan.types.state import STATE_SYMBOLS

_MAX_LENGTH = 80


class CallLines:
    """A sink that prints calls as they start and end; pass it as a `direct` sink of a session."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to `out`, or to the current standard output."""
        self._out = out
        self._calls: dict[CallId, Call] = {}

    def __call__(self, event: LiveEvent) -> None:
        """Print the line for an event, if there is one."""
        match event:
            case Requested():
                self._calls[event.call.id] = event.call
            case Started() if event.call_id in self._calls:
                self._print_line(f"▸ {_describe_call(self._calls[event.call_id])}")
            case Finished():
                self._calls.pop(event.call_id, None)
                state, ms = event.span.state, event.duration_ms
                duration = f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
                suffix = "" if state == "succeeded" else f"  {state}"
                self._print_line(f"{STATE_SYMBOLS[state]} {_describe_call(event.span.call)}  {duration}{suffix}")
            case _:
                pass

    def _print_line(self, line: str) -> None:
        out = self._out or sys.stdout
        out.write(f"{line}\n")
        out.flush()


def _describe_call(call: Call) -> str:
    return f"{_sanitize_line(call.tool)}  {_sanitize_line(call.target or '')}".rstrip()


def _sanitize_line(text: str) -> str:
    """Shorten a text to one line without control characters, which could affect the terminal."""
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text[: _MAX_LENGTH * 4].split()))
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
