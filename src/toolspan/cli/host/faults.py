"""What goes wrong beside the calls of a command that runs some, in words for people.

In: the events of a runner. Out: lines on the error output. A hook that fails is told of once, a
file that cannot be written once for each of the first three reasons; how often it was is told at
the end, where that is more. Knows nothing of results.
"""

from collections import Counter
from collections.abc import Callable

import click

from toolspan.cli.draw import plain_line
from toolspan.model.live import Faulted, HookRan, LiveEvent, Relayed, WriteFailed

_REASONS = 3
"""How many different things are told of one file that cannot be written."""
_WIDTH = 400
"""Characters of a line that are told."""


def _on_error_output(line: str) -> None:
    click.echo(line, err=True)


class Faults:
    """Tells what goes wrong beside the calls."""

    def __init__(
        self, name: str = "toolspan", tell: Callable[[str], None] = _on_error_output
    ) -> None:
        """Take the words that every line begins with, and who is told."""
        self._name = name
        self._tell = tell
        self._told: dict[str, set[str]] = {}
        self._times: Counter[str] = Counter()

    def take(self, event: LiveEvent) -> None:
        """Tell of it, if it is a fault."""
        match event:
            case WriteFailed():
                self._count(f"not recorded: {event.path}", event.reason, _REASONS)
            case HookRan(outcome="error"):
                self._count(_hook(event), event.text or "no reason is known", 1)
            case HookRan(timed_out=True, decision=None):  # with one, it failed closed
                seconds = (event.timeout_ms or 0) / 1e3
                self._count(_hook(event), f"it did not end within {seconds:g} s", 1)
            case Faulted():
                self._say(f"{event.where}: {event.reason}")
            case Relayed():
                self.take(event.event)
            case _:
                pass

    def end(self) -> None:
        """Tell how often it was, where that was not told each time."""
        for what, times in self._times.items():
            if times > len(self._told[what]):
                self._say(f"{what}: {times} times in all")
        self._times.clear()

    def _count(self, what: str, reason: str, most: int) -> None:
        self._times[what] += 1
        told = self._told.setdefault(what, set())
        if reason not in told and len(told) < most:
            told.add(reason)
            self._say(f"{what}: {reason}")

    def _say(self, line: str) -> None:
        self._tell(f"{self._name}: {plain_line(line, _WIDTH)}")


def _hook(ran: HookRan) -> str:
    """Which hook failed; what it guards goes on."""
    command = plain_line(ran.command or ran.name, _WIDTH // 3)
    return f"the {ran.point} hook {command!r} failed and has no say"
