"""A page of docs/journeys while it is built: text and terminal output."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.journeys.screen import Screen

WIDTH = 110
NOTE = "<!-- Written by scripts/journeys.py from a run; `make test` runs it again. -->"


class Page:
    """Paragraphs, code blocks and console sessions, in order."""

    def __init__(self, title: str, normalize: Callable[[str], str], screen: Screen) -> None:
        self._parts = [f"# {title}", NOTE]
        self._normalize = normalize
        self._screen = screen

    def add_text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(textwrap.fill(text, WIDTH, break_on_hyphens=False))

    def run(self, command: str) -> str:
        """Run a command, add it with its output, and return the output."""
        output = self._screen.run(command)
        self.add_console(command, output)
        return output

    def add_console(self, command: str, output: str) -> None:
        """Add a command and its output."""
        console = f"$ {command}\n{output}".rstrip()
        self._parts.append(f"```console\n{self._normalize(console)}\n```")

    def add_code(self, language: str, text: str) -> None:
        """Add a code block."""
        self._parts.append(f"```{language}\n{text.rstrip()}\n```")

    @property
    def text(self) -> str:
        """The Markdown of the page."""
        return "\n\n".join(self._parts) + "\n"
