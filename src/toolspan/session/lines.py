"""Calls as they run, a line each: for agents that have no screen of their own.

In: what the runner emits. Out: a line when a call starts, one when it ends, with how it ended and
how long it took. `Session(direct=[CallLines()])`. Texts of models are never sent to the terminal as
they are. `toolspan run` shows more (`cli/run/live.py`).
"""

import sys
from typing import TextIO

from toolspan.ids import CallId
from toolspan.model.live import Finished, LiveEvent, Requested, Started
from toolspan.model.span import Call
from toolspan.model.state import SIGNS

_MOST = 80
"""Characters of what a call is about."""


class CallLines:
    """Prints a line for each call that starts, and one for each that ends."""

    def __init__(self, out: TextIO | None = None) -> None:
        """Print to `out`, or to what is the standard output then."""
        self._out = out
        self._calls: dict[CallId, Call] = {}

    def __call__(self, event: LiveEvent) -> None:
        """Take an event."""
        match event:
            case Requested():
                self._calls[event.call.id] = event.call
            case Started() if event.call_id in self._calls:
                self._print(f"▸ {_about(self._calls[event.call_id])}")
            case Finished():
                self._calls.pop(event.call_id, None)
                state = event.span.state
                told = f"{SIGNS[state]} {_about(event.span.call)}"
                why = "" if state == "succeeded" else f"  {state}"
                self._print(f"{told}  {_seconds(event.duration_ms)}{why}")
            case _:
                pass

    def _print(self, line: str) -> None:
        out = self._out or sys.stdout
        out.write(f"{line}\n")
        out.flush()


def _about(call: Call) -> str:
    return f"{_plain(call.tool)}  {_plain(call.target or '')}".rstrip()


def _plain(text: str) -> str:
    """One line, without anything that a terminal would obey."""
    line = "".join(c if c.isprintable() else "�" for c in " ".join(text[: _MOST * 4].split()))
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
