"""What goes wrong beside the calls of a command that runs some, in words for people.

In: the events of a runner. Out: lines on the error output. Knows nothing of results.
"""

import click

from toolspan.model.live import Faulted, LiveEvent, WriteFailed

_REASONS = 3
"""How many different things are told of one file that cannot be written."""


class Faults:
    """What goes wrong beside the calls, on the error output; a full disk is told of once."""

    def __init__(self, name: str = "toolspan") -> None:
        """Take the words that every line begins with."""
        self._name = name
        self._told: dict[str, set[str]] = {}

    def take(self, event: LiveEvent) -> None:
        """Tell of it, if it is a fault."""
        match event:
            case WriteFailed():
                self._tell_lost(str(event.path), event.reason)
            case Faulted():
                click.echo(f"{self._name}: {event.where}: {event.reason}", err=True)
            case _:
                pass

    def _tell_lost(self, path: str, reason: str) -> None:
        told = self._told.setdefault(path, set())
        if reason not in told and len(told) < _REASONS:
            told.add(reason)
            click.echo(f"{self._name}: not recorded: {path}: {reason}", err=True)
