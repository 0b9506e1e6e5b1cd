"""A shell in a tmux terminal.

It takes commands and keys, and returns the visible screen: without control codes, with wrapped lines
joined. Nothing waits for a fixed time: the screen is read when tmux reports new output.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TMUX = shutil.which("tmux")
PATIENCE = 180.0
"""Seconds until something is taken for missing; the machine may be busy with other things."""
COLUMNS = 100
_PROMPT = "$"
Seen = Callable[[list[str]], bool]
"""A condition on the lines of the screen."""


class Screen:
    """A shell at a terminal."""

    def __init__(self, socket: Path, news: int) -> None:
        self._socket = socket
        self._news = news
        self._typed = 0
        """The line in which the last command was typed."""

    def runs(self, command: str) -> str:
        """Type a command and wait for its end; what it printed."""
        self.starts(command)
        return self.ends()

    def starts(self, command: str) -> None:
        """Type a command."""
        self._wait(lambda lines: lines[-1] == _PROMPT, "the prompt")
        self._typed = len(self.lines()) - 1
        self.types(command)

    def types(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-t", "0", "-l", text)
        self._tmux("send-keys", "-t", "0", "Enter")

    def presses(self, key: str) -> None:
        """Press a key, by tmux's name for it."""
        self._tmux("send-keys", "-t", "0", key)

    def sees(self, text: str) -> str:
        """Wait until the command has printed a text; all that it has printed."""
        self._wait(lambda lines: text in _joined(lines, self._typed), repr(text))
        return _joined(self.lines(), self._typed)

    def ends(self) -> str:
        """Wait until the command has ended; what it printed."""
        first = self._typed + 1
        self._wait(lambda lines: len(lines) > first and lines[-1] == _PROMPT, "the prompt")
        return "\n".join(self.lines()[first:-1])

    def lines(self) -> list[str]:
        """Everything that is or was on the screen."""
        shown = self._tmux("capture-pane", "-t", "0", "-p", "-J", "-S", "-").rstrip()
        return [line.rstrip() for line in shown.split("\n")]

    def _wait(self, seen: Seen, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not seen(self.lines()):
            ready, _, _ = select.select([self._news], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{what} is not to be seen:\n" + "\n".join(self.lines())
            assert os.read(self._news, 1 << 16), "the terminal is gone"

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        return subprocess.run(
            [TMUX, "-u", "-S", str(self._socket), *words],
            capture_output=True, encoding="utf-8", check=True, timeout=PATIENCE,
        ).stdout  # fmt: skip


def _joined(lines: list[str], typed: int) -> str:
    return "\n".join(lines[typed + 1 :])


@contextmanager
def screen(folder: Path, cwd: Path, environment: Mapping[str, str]) -> Iterator[Screen]:
    """A shell in a folder; `folder` is for what tmux itself needs."""
    assert TMUX is not None
    socket, news = folder / "tmux", folder / "news"
    os.mkfifo(news)
    begun = folder / "begun.sh"
    begun.write_text(f"PS1='{_PROMPT} '\n", encoding="utf-8")  # the shell ignores a prompt in the environment
    shell = {"ENV": str(begun), "TERM": "screen", "LANG": "C.UTF-8", "TZ": "UTC", **environment}
    start = [TMUX, "-u", "-S", str(socket), "-f", "/dev/null", "new-session", "-d", "-c", str(cwd)]
    size = ["-x", str(COLUMNS), "-y", "50"]
    then = [";", "pipe-pane", "-t", "0", f"cat > '{news}'"]
    reader = os.open(news, os.O_RDONLY | os.O_NONBLOCK)
    try:
        subprocess.run([*start, *size, "sh", *then], env=shell, check=True, timeout=PATIENCE)
        yield Screen(socket, reader)
    finally:
        subprocess.run([TMUX, "-S", str(socket), "kill-server"], check=False, timeout=PATIENCE)
        os.close(reader)
