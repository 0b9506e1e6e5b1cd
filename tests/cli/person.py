"""A person at a real terminal, in front of a real `toolspan exec`."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.fork_server import PYTHON, TERMINAL, TOOLSPAN

PATIENCE = 30.0
MENU = "c deny with a comment"


def message(*calls: tuple[str, str, Mapping[str, object]]) -> str:
    content = [{"type": "tool_use", "id": i, "name": n, "input": tool_input} for i, n, tool_input in calls]
    return json.dumps({"type": "assistant", "message": {"role": "assistant", "content": content}})


class Person:
    """A user at a pseudo-terminal: reads the screen, types, and sends the model's calls."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: int) -> None:
        self.child = child
        self._terminal = terminal
        self._seen = 0
        self.screen = ""
        """Everything that was ever shown."""
        self.rows: list[dict[str, object]] = []

    def ask(self, *calls: tuple[str, str, Mapping[str, object]]) -> None:
        """The model asks for calls."""
        stdin = _open(self.child.stdin)
        stdin.write(message(*calls).encode() + b"\n")
        stdin.flush()

    def sees(self, text: str) -> str:
        """Wait until a text appears after the previous one, and return the output up to it."""
        end = time.monotonic() + PATIENCE
        while text not in self.screen[self._seen :]:
            ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} is not in {self.screen[self._seen :]!r}"
            self.screen += self._shown()
        start, self._seen = self._seen, self.screen.index(text, self._seen) + len(text)
        return self.screen[start : self._seen]

    def _shown(self) -> str:
        try:
            return os.read(self._terminal, 1 << 16).decode("utf-8", "replace")
        except OSError:
            raise AssertionError(f"nobody is there any more: {self.screen}") from None

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def answers(self, text: str) -> str:
        """Answer the next question and return its text."""
        shown = self.sees(MENU)
        self.types(f"{text}\n")
        return shown

    def presses(self, key: str) -> None:
        """Press a key when the next answer is waited for."""
        self.sees("comment > ")
        self.types(key)

    def always(self, where: int) -> str:
        """Answer the next question with "always" for a scope and return its text."""
        shown = self.answers("a")
        self.sees("Where?")
        self.types(f"{where}\n")
        return shown

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def result(self, call_id: str) -> dict[str, object]:
        """Wait for the result of a call."""
        for row in self._read():
            if row["type"] == "result" and row["tool_use_id"] == call_id:
                return row
        raise AssertionError(f"no result of {call_id}: {self.rows}")

    def hears(self, kind: str, count: int) -> None:
        """Wait until so many events of a kind were printed."""
        for _ in self._read():
            if sum(row["type"] == kind for row in self.rows) == count:
                return
        raise AssertionError(f"too few of {kind}: {self.rows}")

    def leaves(self) -> list[dict[str, object]]:
        """No more calls: everything that was printed, once the command has ended."""
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
def person(folder: Path, *options: str, around: Sequence[str] = ()) -> Iterator[Person]:
    """Start `toolspan exec --ask` in `folder/project` at a terminal of 80 columns.

    `around` is a command that starts it in a new Python.
    """
    command = [*around, sys.executable, "-m", "toolspan"] if around else TOOLSPAN
    arguments = [*command, "exec", "--ask", "--events"]
    arguments += ["--transcript", str(folder / "t.jsonl"), *options]
    with seated(folder, arguments, home=folder / "home", piped=True) as somebody:
        yield somebody


@contextmanager
def seated(folder: Path, arguments: Sequence[str], *, home: Path, piped: bool = False) -> Iterator[Person]:
    """Start a command in `folder/project` at a terminal of 80 columns.

    The streams in `piped` are pipes; the others are the terminal.
    """
    project = folder / "project"
    project.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    ours, theirs = pty.openpty()
    is_forked = tuple(arguments[: len(PYTHON)]) == PYTHON

    def sit_down() -> None:
        if not is_forked:
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        arguments,
        cwd=project,
        stdin=subprocess.PIPE if piped else theirs,
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        bufsize=0,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm"} | ({TERMINAL: "1"} if is_forked else {}),
        start_new_session=True,
        preexec_fn=sit_down,  # noqa: PLW1509 - a terminal is taken between fork and exec
    )
    os.close(theirs)
    somebody = Person(child, ours)
    somebody.resize(80, 24)
    try:
        yield somebody
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        os.close(ours)
