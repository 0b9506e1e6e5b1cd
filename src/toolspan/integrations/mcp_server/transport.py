"""Stdio transport for JSON-RPC messages, one per line.

Reads and writes block in daemon threads, so that a client that neither reads nor closes its side cannot keep the
server alive. Start at `StdioTransport.open_streams`.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, jsonrpc_message_adapter

from toolspan.integrations.mcp_client.protocol import replace_lone_surrogates
from toolspan.runtime.process.output import stream_from_thread

MAX_LINE_BYTES = 64 * 2**20
"""The maximum length of a line in bytes. Longer lines are rejected."""
_CHUNK_BYTES = 1 << 16
_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600

ReadStream = MemoryObjectReceiveStream[SessionMessage | Exception]
WriteStream = MemoryObjectSendStream[SessionMessage]


@contextmanager
def private_stdio() -> Iterator[StdioTransport]:
    """Use stdin and stdout as the transport and redirect all other input and output."""
    source, sink = os.dup(0), os.dup(1)
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    os.close(null_device)
    os.dup2(2, 1)
    try:
        yield StdioTransport(source, sink)
    finally:
        os.dup2(sink, 1)  # the copies stay open, because threads may still use them


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """The file descriptors connected to a client."""

    source: int
    sink: int

    @asynccontextmanager
    async def open_streams(self) -> AsyncIterator[tuple[ReadStream, WriteStream]]:
        """Open the streams. The end of the input closes the read stream.

        The context is cancelled when writing to the client is no longer possible.
        """
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        writer = _LineWriter(self.sink, anyio.lowlevel.current_token())

        async def send_messages() -> None:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    if not await writer.write(text.encode(errors="replace") + b"\n"):
                        group.cancel_scope.cancel()

        async def receive_messages() -> None:
            # If the receiving end is closed, the server has ended.
            with suppress(anyio.BrokenResourceError):
                async with incoming, stream_from_thread(_read_lines(self.source)) as lines:
                    async for line in lines:
                        message = _parse_line(line)
                        if isinstance(message, SessionMessage):
                            await incoming.send(message)
                        elif message is not None:
                            error = message.model_dump_json(by_alias=True).encode()
                            if not await writer.write(error + b"\n"):
                                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(receive_messages)
            group.start_soon(send_messages)
            yield read, write
            group.cancel_scope.cancel()


class _LineWriter:
    """A writer that writes whole lines in order, in a thread."""

    def __init__(self, sink: int, token: anyio.lowlevel.EventLoopToken) -> None:
        self._sink = sink
        self._token = token
        self._lines: queue.SimpleQueue[tuple[bytes, anyio.Event]] = queue.SimpleQueue()
        self._is_gone = False
        threading.Thread(target=self._write_lines, daemon=True).start()

    async def write(self, data: bytes) -> bool:
        """Write a line, or return False if the client no longer reads."""
        written = anyio.Event()
        self._lines.put((data, written))
        await written.wait()
        return not self._is_gone

    def _write_lines(self) -> None:
        while True:
            data, written = self._lines.get()
            rest = memoryview(data)
            try:
                while rest and not self._is_gone:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                self._is_gone = True
            try:
                anyio.from_thread.run_sync(written.set, token=self._token)
            except (anyio.RunFinishedError, RuntimeError):
                return  # nothing waits for the result any more


def _parse_line(line: bytes | None) -> SessionMessage | JSONRPCError | None:
    """Parse a line into a message or an error for its sender, or return None for an empty line."""
    if line is None:
        return _error_response(_INVALID_REQUEST, f"Invalid request: a line over {MAX_LINE_BYTES} bytes")
    if not line.strip():
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:  # it may contain lone surrogates
        try:
            value, repaired = replace_lone_surrogates(line)
        except ValueError:
            return _error_response(_PARSE_ERROR, "Parse error: the line is not JSON")
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(repaired, by_name=False))
        except ValueError:
            request_id = value.get("id") if isinstance(value, dict) else None
            return _error_response(_INVALID_REQUEST, "Invalid request: the line is not a JSON-RPC message", request_id)
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        return _error_response(_INVALID_REQUEST, "Invalid request: an id must be a string or an integer")
    return SessionMessage(message)


def _error_response(code: int, text: str, request_id: object = None) -> JSONRPCError:
    response_id = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=response_id, error=ErrorData(code=code, message=text))


def _read_lines(source: int) -> Iterator[bytes | None]:
    """Yield the lines read from a descriptor, with None for a line that is too long."""
    rest: list[bytes] = []
    size = 0
    while True:
        data = b""
        with suppress(OSError):  # treated as the end of the input
            data = os.read(source, _CHUNK_BYTES)
        if not data:
            break
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)) if size <= MAX_LINE_BYTES else None
            rest, size = [], 0
        size += len(last)
        if size <= MAX_LINE_BYTES:
            rest.append(last)
        else:
            rest = []
    if size:
        yield b"".join(rest) if size <= MAX_LINE_BYTES else None
