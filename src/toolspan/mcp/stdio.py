"""A server as a child process: one message a line, in through its stdin, out through its stdout.

In: a `Command` and the custody that owns the process. Out: the two streams of messages that the
SDK's client takes. The process has ended, with all it started, when the block is left. Reading
waits for the reader, so that a flood stays in the pipe; a line that is too long, a closed pipe or
an ended process end the stream. What the process prints as errors is captured, bounded.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolspan.mcp.misfit import message_of
from toolspan.process import Child, Command, Custody, NotEnded

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

LONGEST_LINE = 1 << 26
"""Bytes of one message; a server that sends more is not listened to any further."""
PATIENCE = 0.5
"""Seconds a server has to end by itself once its stdin is closed."""
GRACE = 1.0
"""Seconds it has after it was asked to."""
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told of what is no message."""

    garbage: Callable[[], None]
    """A line that cannot be read."""
    last_words: Callable[[str], None]
    """The end of what the process printed as errors."""


@asynccontextmanager
async def stdio_streams(
    command: Command, custody: Custody, ears: Ears
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the server, and end it.

    Raises:
        StartError: it cannot be started.
    """
    with ExitStack() as ours:
        pen, stdout, child = await _start(command, custody, ours)
        heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, said = anyio.create_memory_object_stream[SessionMessage](0)
        listener = _Listener(stdout, heard, ears.garbage)
        async with heard, said, read, write, anyio.create_task_group() as group:
            group.start_soon(listener.run)
            group.start_soon(_speak, said, pen, listener)
            group.start_soon(_wait_for_end, child, listener)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    read.close()  # what still comes is read and dropped, so that it can end
                    write.close()
                    await _part(child)
                ears.last_words(child.stderr.data.decode("utf-8", "replace"))
                group.cancel_scope.cancel()


async def _start(command: Command, custody: Custody, ours: ExitStack) -> "tuple[_Pen, int, Child]":
    with ExitStack() as theirs:
        source, stdin = os.pipe()
        theirs.callback(os.close, source)
        pen = ours.enter_context(_Pen(stdin))
        stdout, sink = os.pipe()
        theirs.callback(os.close, sink)
        ours.callback(os.close, stdout)
        os.set_blocking(stdout, False)
        child = await custody.start(replace(command, stdin=source, stdout=sink))
    return pen, stdout, child


class _Pen:
    """Our end of the server's stdin; closing it tells the server to end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    async def write(self, data: bytes) -> bool:
        """Write all of it; False when the server does not want to hear any more."""
        left = memoryview(data)
        while left and self._descriptor is not None:
            try:
                left = left[os.write(self._descriptor, left) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._descriptor)
            except OSError:
                return False
        return not left


async def _speak(
    messages: MemoryObjectReceiveStream[SessionMessage], pen: _Pen, listener: "_Listener"
) -> None:
    """Pass messages on; when the server does not take them, nothing more will come from it."""
    with pen:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await pen.write(line.encode() + b"\n"):
                listener.finish()
                return


async def _wait_for_end(child: Child, listener: "_Listener") -> None:
    """A process that is left over may hold the pipe open; the server itself is gone."""
    await child.wait()
    listener.finish()


async def _part(child: Child) -> None:
    with anyio.move_on_after(PATIENCE):
        await child.wait()
    with suppress(NotEnded):  # the custody tries again, and tells
        await child.end(GRACE)


class _Listener:
    """Turns what comes out of a pipe into messages, until its end."""

    def __init__(
        self,
        descriptor: int,
        heard: MemoryObjectSendStream[SessionMessage | Exception],
        garbage: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._heard = heard
        self._garbage = garbage
        self._rest = bytearray()
        self._last = False
        self._waiting: anyio.CancelScope | None = None

    def finish(self) -> None:
        """Nothing new will come; what is in the pipe is still heard."""
        self._last = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def run(self) -> None:
        """Listen."""
        with self._heard:
            while data := await self._read():
                for line in self._lines(data):
                    await self._hear(line)
                if len(self._rest) > LONGEST_LINE:
                    return
                await anyio.lowlevel.checkpoint()

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _PIECE)
            except (BlockingIOError, InterruptedError):
                if self._last:
                    return b""
            except OSError:
                return b""
            with anyio.CancelScope() as self._waiting:
                await anyio.wait_readable(self._descriptor)
            self._waiting = None

    def _lines(self, data: bytes) -> list[bytes]:
        first, *others = data.split(b"\n")
        self._rest += first
        if not others:
            return []
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return lines

    async def _hear(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = message_of(line)
        except ValueError:
            self._garbage()
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._heard.send(SessionMessage(message))
