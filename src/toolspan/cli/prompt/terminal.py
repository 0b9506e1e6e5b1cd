"""The controlling terminal: write text and read lines, even if standard input and output are redirected.

Only whole lines are read and written, without cursor movement or single-key input, so resized, slow and dumb
terminals work. Start at `Terminal`.
"""

from __future__ import annotations

import os
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

import anyio

from toolspan.types.visible_text import Fold, escape_invisible

TTY_PATH = "/dev/tty"
_DEFAULT_SIZE = os.terminal_size((80, 24))
_READ_SIZE = 4096
_LOCAL_FLAGS_INDEX = 3


class Terminal:
    """The user's terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._read_lock = anyio.Lock()
        self._idle_scope: anyio.CancelScope | None = None
        """The scope of an idle read, cancelled when a question needs the terminal."""
        self._waiting_questions = 0

    @classmethod
    def open(cls, path: str = TTY_PATH) -> Self | None:
        """Open the controlling terminal, or return None if there is none."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        if os.isatty(descriptor):
            return cls(descriptor)
        os.close(descriptor)
        return None

    def close(self) -> None:
        """Close the descriptor; the terminal itself stays open for the program."""
        os.close(self._descriptor)

    @property
    def size(self) -> os.terminal_size:
        """The current terminal size."""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return _DEFAULT_SIZE
        return os.terminal_size((size.columns or _DEFAULT_SIZE.columns, size.lines or _DEFAULT_SIZE.lines))

    @property
    def has_colours(self) -> bool:
        """True if colours should be used."""
        return os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")

    @property
    def is_foreground(self) -> bool:
        """True if this process is in the foreground. Reading in the background would stop it."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    @asynccontextmanager
    async def begin_question(self) -> AsyncIterator[None]:
        """Reserve the terminal for a question and discard earlier input.

        Interrupts a task that waits in `read_idle_line`. Its prompt is shown again afterwards.
        """
        if self._idle_scope is not None:
            self._idle_scope.cancel()
        self._waiting_questions += 1
        try:
            await self._read_lock.acquire()
        finally:
            self._waiting_questions -= 1
        try:
            self._buffer = b""
            before = None
            with suppress(termios.error):  # the terminal was closed; the next read fails
                before = termios.tcgetattr(self._descriptor)
                modes = list(before)
                modes[_LOCAL_FLAGS_INDEX] |= termios.ICANON | termios.ECHO | termios.ISIG
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, modes)
            try:
                yield
            finally:
                if before is not None:
                    with suppress(termios.error):
                        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)
        finally:
            self._read_lock.release()

    async def write(self, text: str) -> None:
        """Write text to the terminal."""
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)

    async def read_line(self, prompt: str) -> str | None:
        """Read a line, or return None at the end of the input."""
        await self.write(prompt)
        while b"\n" not in self._buffer:
            await anyio.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, _READ_SIZE)
            except BlockingIOError:
                continue
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    async def read_idle_line(self, prompt: str) -> str | None:
        """Read a line, giving way to questions. The prompt is shown again after each question."""
        while True:
            async with self._read_lock:
                if self._waiting_questions:  # one arrived while the lock was being acquired
                    continue
                try:
                    with anyio.CancelScope() as self._idle_scope:
                        return await self.read_line(prompt)
                finally:
                    self._idle_scope = None


def style_pieces(pieces: Sequence[str], *, colours: bool) -> str:
    """Return pieces of `split_invisible` as one text; with colours, escapes are reversed."""
    if not colours:
        return "".join(pieces)
    return "".join(f"\x1b[7m{piece}\x1b[27m" if index % 2 else piece for index, piece in enumerate(pieces))


def cut_middle(lines: Sequence[str], max_lines: int, hint: str = "") -> list[str]:
    """Return at most `max_lines` lines, with the middle cut out. `hint` explains how to see the rest."""
    fold = Fold.of(len(lines), max_lines)
    notice = [f"... {fold.hidden} lines not shown{hint} ..."] if fold.hidden else []
    return [*lines[: fold.head], *notice, *lines[len(lines) - fold.tail :]]


ReadLine = Callable[[str], Awaitable[str | None]]
"""A function that shows a prompt and returns the line, or None at the end of the input."""
WriteText = Callable[[str], Awaitable[None]]


async def ask_questions(
    tool_input: Mapping[str, object], write_text: WriteText, read_line: ReadLine
) -> Mapping[str, object] | None:
    """Ask the questions in an AskUserQuestion call. Return the input with the answers, or None if unanswered."""
    questions = tool_input.get("questions")
    replies: dict[str, str] = {}
    for question in questions if isinstance(questions, list) else []:
        lines = ["", f"  {escape_invisible(str(question['question']))}"]
        for number, option in enumerate(question["options"], 1):
            label, description = (escape_invisible(str(option[key])) for key in ("label", "description"))
            lines.append(f"    {number} {label}: {description}".removesuffix(": "))
        await write_text("\n".join(lines) + "\n")
        labels = [str(option["label"]) for option in question["options"]]
        several, optional = question.get("multiSelect") is True, question.get("optional") is True
        answer = await _read_answer(labels, read_line, several=several, optional=optional)
        if answer is None:
            return None
        replies[str(question["question"])] = answer
    return {**tool_input, "answers": replies}


async def _read_answer(labels: Sequence[str], read_line: ReadLine, *, several: bool, optional: bool) -> str | None:
    how = f"with {'numbers' if several else 'a number'}, or in your own words" if labels else "in your own words"
    end = "leave it out" if optional else "no answer"
    while True:
        reply = await read_line(f"Answer {how} (empty: {end}): ")
        if not reply:
            return "" if optional and reply is not None else None
        tokens = reply.replace(",", " ").split()
        if not labels or not all(token.isdecimal() for token in tokens):
            return reply
        numbers = [int(token) for token in tokens]
        fits = all(1 <= number <= len(labels) for number in numbers)
        if fits and (several or len(numbers) == 1):
            return ", ".join(labels[number - 1] for number in numbers)
