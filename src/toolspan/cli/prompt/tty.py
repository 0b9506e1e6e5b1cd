"""The terminal of the person who is there: lines out, lines in, whatever our own streams are.

In: texts that are fit for a terminal. Out: the lines that are typed. Standard input and output may
be pipes; the terminal is opened by itself. Nothing is drawn and no key is read by itself, so that
a resized, slow or dumb terminal makes no difference. Read `Terminal.line` first.
"""

import os
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import anyio

TTY = "/dev/tty"
_SIZE = os.terminal_size((80, 24))
_PIECE = 4096
_LOCAL = 3
"""Where the local modes are in what `tcgetattr` gives."""

_Modes = list[int | list[bytes | int]]


class Terminal:
    """The terminal that a person sits at."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._typed = b""
        self._reader = anyio.Lock()
        """One at a time can wait for what is typed."""
        self._idle: anyio.CancelScope | None = None
        """Around a wait that makes way for questions."""

    @classmethod
    def open(cls, path: str = TTY) -> Self | None:
        """The terminal this process belongs to; None if there is none."""
        try:
            found = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        if os.isatty(found):
            return cls(found)
        os.close(found)
        return None

    def close(self) -> None:
        """It is not needed any more."""
        os.close(self._descriptor)

    @property
    def size(self) -> os.terminal_size:
        """How large it is now."""
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return _SIZE
        return os.terminal_size((size.columns or _SIZE.columns, size.lines or _SIZE.lines))

    @property
    def colours(self) -> bool:
        """Whether colours are wanted."""
        return os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")

    @property
    def listens_to_us(self) -> bool:
        """Whether we are in front: in the background, asking for a line would only stop us."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """A question is about to be asked: what was typed before it is no answer to it.

        Whoever waits in `idle_line` makes way.
        """
        if self._idle is not None:
            self._idle.cancel()
        async with self._reader:
            self._typed = b""
            before = self._modes()
            if before is not None:
                self._set(_by_lines(before), termios.TCSAFLUSH)
            try:
                yield
            finally:
                if before is not None:
                    self._set(before, termios.TCSADRAIN)

    async def write(self, text: str) -> None:
        """Print a text.

        Raises:
            OSError: the terminal is gone.
        """
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)

    async def line(self, prompt: str) -> str | None:
        """What is typed, up to the end of the line; None when nothing more comes."""
        await self.write(prompt)
        while b"\n" not in self._typed:
            await anyio.wait_readable(self._descriptor)
            try:
                came = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                continue
            if not came:
                return None
            self._typed += came
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    async def idle_line(self, prompt: str) -> str | None:
        """As `line`, but questions go before; after them the prompt is shown again."""
        while True:
            async with self._reader:
                try:
                    with anyio.CancelScope() as self._idle:
                        return await self.line(prompt)
                finally:
                    self._idle = None

    def _modes(self) -> _Modes | None:
        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error:
            return None

    def _set(self, modes: _Modes, when: int) -> None:
        with suppress(termios.error):  # it is gone, which whoever reads from it will notice
            termios.tcsetattr(self._descriptor, when, modes)


def _by_lines(modes: _Modes) -> _Modes:
    """The modes in which lines are typed, seen, and Ctrl-C is a signal."""
    local = modes[_LOCAL]
    wanted = termios.ICANON | termios.ECHO | termios.ISIG
    lines = local | wanted if isinstance(local, int) else wanted
    return [*modes[:_LOCAL], lines, *modes[_LOCAL + 1 :]]
