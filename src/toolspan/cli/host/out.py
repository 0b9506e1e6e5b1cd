"""Standard output of a command that runs calls: whole pieces at once, and no trouble if it breaks.

In: bytes or rows. Out: the same on the descriptor; the exit code to whoever ends the command when
nobody reads on.
"""

import os
import sys
from collections.abc import Callable

import click
import msgspec

from toolspan.cli.app import CLOSED
from toolspan.cli.host.rows import Row

UNWRITABLE = 3
"""Exit code: the output cannot be written."""


class Out:
    """Standard output, where somebody may have gone away."""

    def __init__(self, name: str = "toolspan") -> None:
        """Take the words that a complaint begins with."""
        self._name = name
        self.on_broken: Callable[[int], None] = lambda _: None
        """Is told the exit code when nothing can be printed any more."""
        self._is_broken = False

    def put(self, row: Row) -> None:
        """Print a row as a line."""
        self.write(msgspec.json.encode(row) + b"\n")

    def write(self, data: bytes) -> None:
        """Print bytes; none after some that could not be printed."""
        if self._is_broken:
            return
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(sys.stdout.fileno(), left) :]
        except BrokenPipeError:
            self._is_broken = True
            self.on_broken(CLOSED)
        except OSError as error:
            self._is_broken = True
            click.echo(f"{self._name}: the output cannot be written: {error.strerror}", err=True)
            self.on_broken(UNWRITABLE)
