"""A page of docs/journeys while it is built: text and terminal output."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.journeys.screen import Screen

WIDTH = 110
NOTE = "<!-- Written by scripts/journeys.py from a run; `make test` runs it again. -->"


class Page:
    """Text for people, in the order in which it came."""

    def __init__(self, title: str, settled: Callable[[str], str], shell: Screen) -> None:
        self._parts = [f"# {title}", NOTE]
        self._settled = settled
        self._shell = shell

    def says(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(textwrap.fill(text, WIDTH, break_on_hyphens=False))

    def runs(self, command: str) -> str:
        """Run a command and show it; what it printed."""
        shown = self._shell.runs(command)
        self.shows(command, shown)
        return shown

    def shows(self, command: str, output: str) -> None:
        """A command, and what it printed."""
        told = f"$ {command}\n{output}".rstrip()
        self._parts.append(f"```console\n{self._settled(told)}\n```")

    def code(self, language: str, text: str) -> None:
        """A file."""
        self._parts.append(f"```{language}\n{text.rstrip()}\n```")

    @property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join(self._parts) + "\n"
