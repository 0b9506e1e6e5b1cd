"""A server as a child process: one message a line, in through its stdin, out through its stdout.

In: a `Command` and the custody that owns the process. Out: the two streams of messages that the
SDK's client takes. The process has ended, with all it started, when the block is left. Reading
waits for the reader, so that a flood stays in the pipe; a line that is too long, a closed pipe or
an ended process end the stream. What the process prints as errors is captured, bounded.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolspan.integrations.mcp_client.protocol import parse_message
from toolspan.runtime.process import ChildProcess, Command, ProcessSupervisor, TerminationError

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

LONGEST_LINE = 1 << 26
"""Bytes of one message; a server that sends more is not listened to any further."""
EXIT_SECONDS = 0.5
"""Seconds a server has to end by itself once its stdin is closed."""
GRACE = 1.0
"""Seconds it has after it was asked to."""
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StdioCallbacks:
    """Who is told of what is no message."""

    on_garbage: Callable[[], None]
    """A line that cannot be read."""
    on_stderr_end: Callable[[str], None]
    """The end of what the process printed as errors."""


@asynccontextmanager
async def stdio_streams(
    command: Command, supervisor: ProcessSupervisor, callbacks: StdioCallbacks
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the server, and end it.

    Raises:
        StartError: it cannot be started.
    """
    with ExitStack() as ours:
        writer, stdout, child = await _start_server(command, supervisor, ours)
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        reader = _StdoutReader(stdout, incoming, callbacks.on_garbage)
        async with incoming, outgoing, read, write, anyio.create_task_group() as group:
            group.start_soon(reader.run)
            group.start_soon(_write_messages, outgoing, writer, reader)
            group.start_soon(_wait_for_end, child, reader)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    read.close()  # what still comes is read and dropped, so that it can end
                    write.close()
                    await _end_child(child)
                callbacks.on_stderr_end(child.stderr.data.decode("utf-8", "replace"))
                group.cancel_scope.cancel()


async def _start_server(
    command: Command, supervisor: ProcessSupervisor, ours: ExitStack
) -> tuple[_StdinWriter, int, ChildProcess]:
    with ExitStack() as theirs:
        source, stdin = os.pipe()
        theirs.callback(os.close, source)
        writer = ours.enter_context(_StdinWriter(stdin))
        stdout, sink = os.pipe()
        theirs.callback(os.close, sink)
        ours.callback(os.close, stdout)
        os.set_blocking(stdout, False)
        child = await supervisor.start(replace(command, stdin=source, stdout=sink))
    return writer, stdout, child


class _StdinWriter:
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
        remaining = memoryview(data)
        while remaining and self._descriptor is not None:
            try:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._descriptor)
            except OSError:
                return False
        return not remaining


async def _write_messages(
    messages: MemoryObjectReceiveStream[SessionMessage], writer: _StdinWriter, reader: _StdoutReader
) -> None:
    """Pass messages on; when the server does not take them, nothing more will come from it."""
    with writer:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await writer.write(line.encode() + b"\n"):
                reader.finish()
                return


async def _wait_for_end(child: ChildProcess, reader: _StdoutReader) -> None:
    """A process that is left over may hold the pipe open; the server itself is gone."""
    await child.wait()
    reader.finish()


async def _end_child(child: ChildProcess) -> None:
    with anyio.move_on_after(EXIT_SECONDS):
        await child.wait()
    with suppress(TerminationError):  # the custody tries again, and tells
        await child.terminate(GRACE)


class _StdoutReader:
    """Turns what comes out of a pipe into messages, until its end."""

    def __init__(
        self,
        descriptor: int,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        on_garbage: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._incoming = incoming
        self._on_garbage = on_garbage
        self._buffer = bytearray()
        self._is_ending = False
        self._wait_scope: anyio.CancelScope | None = None

    def finish(self) -> None:
        """Nothing new will come; what is in the pipe is still heard."""
        self._is_ending = True
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    async def run(self) -> None:
        """Listen."""
        with self._incoming:
            while data := await self._read_chunk():
                for line in self._split_lines(data):
                    await self._handle_line(line)
                if len(self._buffer) > LONGEST_LINE:
                    return
                await anyio.lowlevel.checkpoint()

    async def _read_chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                if self._is_ending:
                    return b""
            except OSError:
                return b""
            with anyio.CancelScope() as self._wait_scope:
                await anyio.wait_readable(self._descriptor)
            self._wait_scope = None

    def _split_lines(self, data: bytes) -> list[bytes]:
        first, *others = data.split(b"\n")
        self._buffer += first
        if not others:
            return []
        lines = [bytes(self._buffer), *others[:-1]]
        self._buffer = bytearray(others[-1])
        return lines

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = parse_message(line)
        except ValueError:
            self._on_garbage()
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._incoming.send(SessionMessage(message))
