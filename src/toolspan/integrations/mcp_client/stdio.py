"""A server as a child process, with one message per line on its stdin and stdout.

The process and its children are stopped when the context exits. A line that is too long, a closed
pipe or an exited process ends the stream. The last part of standard error is kept.
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
"""The maximum size of a message in bytes. A longer line ends the stream."""
EXIT_SECONDS = 0.5
"""The number of seconds that the server has to exit after its stdin is closed."""
GRACE = 1.0
"""The number of seconds between SIGTERM and SIGKILL."""
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StdioCallbacks:
    """Callbacks for output that is not a message."""

    on_garbage: Callable[[], None]
    """Called for a line that is not a message."""
    on_stderr_end: Callable[[str], None]
    """Called with the last part of the process's standard error."""


@asynccontextmanager
async def stdio_streams(
    command: Command, supervisor: ProcessSupervisor, callbacks: StdioCallbacks
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Start the server, yield its message streams, and stop it on exit.

    Raises:
        StartError: the server cannot be started.
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
                    read.close()  # remaining output is discarded, so that the process can exit
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
    """The server's stdin. Closing it asks the server to exit."""

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
        """Write all bytes, or return False if the server closed its stdin."""
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
    """Forward messages to the server, and stop reading its output if it closes its stdin."""
    with writer:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if not await writer.write(line.encode() + b"\n"):
                reader.finish()
                return


async def _wait_for_end(child: ChildProcess, reader: _StdoutReader) -> None:
    """Stop reading when the server has exited, even if a child process keeps the pipe open."""
    await child.wait()
    reader.finish()


async def _end_child(child: ChildProcess) -> None:
    with anyio.move_on_after(EXIT_SECONDS):
        await child.wait()
    with suppress(TerminationError):  # the supervisor retries and reports the error
        await child.terminate(GRACE)


class _StdoutReader:
    """A reader that parses messages from a pipe until the pipe is closed."""

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
        """Read the bytes remaining in the pipe and stop."""
        self._is_ending = True
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    async def run(self) -> None:
        """Read until the pipe is closed."""
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
