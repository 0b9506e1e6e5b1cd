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

from tests.limits import PATIENCE

TMUX = shutil.which("tmux")
COLUMNS = 100
_PROMPT = "$"
Condition = Callable[[list[str]], bool]
"""A condition on the lines of the screen."""


class Screen:
    """A shell at a terminal."""

    def __init__(self, socket: Path, output_fd: int) -> None:
        self._socket = socket
        self._output_fd = output_fd
        self._command_line = 0
        """Number of the line in which the last command was typed."""

    def run(self, command: str) -> str:
        """Type a command, wait for its end and return its output."""
        self.start(command)
        return self.wait_for_exit()

    def start(self, command: str) -> None:
        """Type a command."""
        self._wait(lambda lines: lines[-1] == _PROMPT, "the prompt")
        self._command_line = len(self.lines()) - 1
        self.type_line(command)

    def type_line(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-t", "0", "-l", text)
        self._tmux("send-keys", "-t", "0", "Enter")

    def press(self, key: str) -> None:
        """Press a key, by tmux's name for it."""
        self._tmux("send-keys", "-t", "0", key)

    def wait_for(self, text: str) -> str:
        """Wait until the command has printed a text; return its output so far."""
        self._wait(lambda lines: text in _output(lines, self._command_line), repr(text))
        return _output(self.lines(), self._command_line)

    def wait_for_exit(self) -> str:
        """Wait until the command has ended and return its output."""
        first = self._command_line + 1
        self._wait(lambda lines: len(lines) > first and lines[-1] == _PROMPT, "the prompt")
        return "\n".join(self.lines()[first:-1])

    def lines(self) -> list[str]:
        """Return the lines of the screen and its scrollback."""
        text = self._tmux("capture-pane", "-t", "0", "-p", "-J", "-S", "-").rstrip()
        return [line.rstrip() for line in text.split("\n")]

    def _wait(self, condition: Condition, description: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition(self.lines()):
            ready, _, _ = select.select([self._output_fd], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{description} did not appear:\n" + "\n".join(self.lines())
            assert os.read(self._output_fd, 1 << 16), "the terminal has exited"

    def _tmux(self, *arguments: str) -> str:
        assert TMUX is not None
        return subprocess.run(
            [TMUX, "-u", "-S", str(self._socket), *arguments],
            capture_output=True, encoding="utf-8", check=True, timeout=PATIENCE,
        ).stdout  # fmt: skip


def _output(lines: list[str], command_line: int) -> str:
    return "\n".join(lines[command_line + 1 :])


@contextmanager
def open_screen(folder: Path, cwd: Path, environment: Mapping[str, str]) -> Iterator[Screen]:
    """Open a shell in `cwd`; tmux keeps its own files in `folder`."""
    assert TMUX is not None
    socket, fifo = folder / "tmux", folder / "output"
    os.mkfifo(fifo)
    startup = folder / "startup.sh"
    startup.write_text(f"PS1='{_PROMPT} '\n", encoding="utf-8")  # the shell ignores a prompt in the environment
    variables = {"ENV": str(startup), "TERM": "screen", "LANG": "C.UTF-8", "TZ": "UTC", **environment}
    new_session = [TMUX, "-u", "-S", str(socket), "-f", "/dev/null", "new-session", "-d", "-c", str(cwd)]
    size = ["-x", str(COLUMNS), "-y", "50"]
    pipe_output = [";", "pipe-pane", "-t", "0", f"cat > '{fifo}'"]
    output_fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        subprocess.run([*new_session, *size, "sh", *pipe_output], env=variables, check=True, timeout=PATIENCE)
        yield Screen(socket, output_fd)
    finally:
        subprocess.run([TMUX, "-S", str(socket), "kill-server"], check=False, timeout=PATIENCE)
        os.close(output_fd)
