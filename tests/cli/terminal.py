"""Run toolspan at a pseudo-terminal, and type answers to its questions."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.fork_server import PYTHON, TERMINAL, TOOLSPAN
from tests.limits import PATIENCE

MENU = "c deny with a comment"


def message(*calls: tuple[str, str, Mapping[str, object]]) -> str:
    content = [{"type": "tool_use", "id": i, "name": n, "input": tool_input} for i, n, tool_input in calls]
    return json.dumps({"type": "assistant", "message": {"role": "assistant", "content": content}})


class Terminal:
    """A command at a pseudo-terminal; calls of the model go to its standard input."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: int) -> None:
        self.child = child
        self._terminal = terminal
        self._offset = 0
        self.screen = ""
        """All output so far."""
        self.rows: list[dict[str, object]] = []

    def send_calls(self, *calls: tuple[str, str, Mapping[str, object]]) -> None:
        """Send calls of the model."""
        stdin = _open(self.child.stdin)
        stdin.write(message(*calls).encode() + b"\n")
        stdin.flush()

    def wait_for(self, text: str) -> str:
        """Wait until a text appears after the previous one, and return the output up to it."""
        end = time.monotonic() + PATIENCE
        while text not in self.screen[self._offset :]:
            ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} is not in {self.screen[self._offset :]!r}"
            self.screen += self._read_screen()
        start, self._offset = self._offset, self.screen.index(text, self._offset) + len(text)
        return self.screen[start : self._offset]

    def _read_screen(self) -> str:
        try:
            return os.read(self._terminal, 1 << 16).decode("utf-8", "replace")
        except OSError:
            raise AssertionError(f"the command has exited: {self.screen}") from None

    def write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def answer(self, text: str) -> str:
        """Answer the next question and return its text."""
        question = self.wait_for(MENU)
        self.write(f"{text}\n")
        return question

    def press(self, key: str) -> None:
        """Press a key at the next question."""
        self.wait_for("comment > ")
        self.write(key)

    def answer_always(self, scope: int) -> str:
        """Answer the next question with "always" for a scope and return its text."""
        question = self.answer("a")
        self.wait_for("Where?")
        self.write(f"{scope}\n")
        return question

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for_result(self, call_id: str) -> dict[str, object]:
        """Wait for the result of a call."""
        for row in self._read():
            if row["type"] == "result" and row["tool_use_id"] == call_id:
                return row
        raise AssertionError(f"no result of {call_id}: {self.rows}")

    def wait_for_events(self, kind: str, count: int) -> None:
        """Wait until this many events of a kind were printed."""
        for _ in self._read():
            if sum(row["type"] == kind for row in self.rows) == count:
                return
        raise AssertionError(f"too few of {kind}: {self.rows}")

    def finish(self) -> list[dict[str, object]]:
        """Close the input, wait for the end of the command, and return all rows."""
        _open(self.child.stdin).close()
        list(self._read())
        self.child.wait(PATIENCE)
        return self.rows

    def _read(self) -> Iterator[dict[str, object]]:
        stdout = _open(self.child.stdout)
        while select.select([stdout], [], [], PATIENCE)[0]:
            line = stdout.readline()
            if not line:
                return
            self.rows.append(json.loads(line))
            yield self.rows[-1]


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


@contextmanager
def exec_terminal(folder: Path, *options: str, wrapper: Sequence[str] = ()) -> Iterator[Terminal]:
    """Start `toolspan exec --ask` in `folder/project` at a terminal of 80 columns.

    `wrapper` is a command that starts it in a new Python.
    """
    command = [*wrapper, sys.executable, "-m", "toolspan"] if wrapper else TOOLSPAN
    arguments = [*command, "exec", "--ask", "--events"]
    arguments += ["--transcript", str(folder / "t.jsonl"), *options]
    with open_terminal(folder, arguments, home=folder / "home", piped=True) as terminal:
        yield terminal


@contextmanager
def open_terminal(folder: Path, arguments: Sequence[str], *, home: Path, piped: bool = False) -> Iterator[Terminal]:
    """Start a command in `folder/project` at a terminal of 80 columns.

    Standard error is the terminal; with `piped`, standard input and output are pipes.
    """
    project = folder / "project"
    project.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    controller, tty = pty.openpty()
    is_forked = tuple(arguments[: len(PYTHON)]) == PYTHON

    def take_terminal() -> None:
        if not is_forked:
            fcntl.ioctl(tty, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        arguments,
        cwd=project,
        stdin=subprocess.PIPE if piped else tty,
        stdout=subprocess.PIPE if piped else tty,
        stderr=tty,
        bufsize=0,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm"} | ({TERMINAL: "1"} if is_forked else {}),
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 - a terminal is taken between fork and exec
    )
    os.close(tty)
    terminal = Terminal(child, controller)
    terminal.resize(80, 24)
    try:
        yield terminal
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        os.close(controller)


def run_at_terminal(command: Sequence[str | Path], answer: bytes = b"", **variables: str) -> tuple[int, str]:
    """Run a command at a terminal, type the answer at once, and return the exit code and the output."""
    controller, tty = os.openpty()
    env = {**os.environ, **variables}
    with subprocess.Popen(list(map(str, command)), stdin=tty, stdout=tty, stderr=tty, env=env) as process:
        os.close(tty)
        os.write(controller, answer)
        text = b""
        with suppress(OSError):  # the read fails once the process has ended
            while piece := os.read(controller, 4_096):
                text += piece
        os.close(controller)
        return process.wait(30), text.decode()
