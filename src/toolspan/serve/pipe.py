"""The wire: JSON-RPC messages, one a line, over two descriptors that are ours alone.

In: what a client writes, whatever that is. Out: messages, and an error to the client for a line
that is none. Reading and writing block in threads of their own, which nobody waits for at the end:
a client that neither closes its side nor reads cannot keep us. Read `Wire.streams` first.
"""

import json
import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, jsonrpc_message_adapter

from toolspan.mcp.halves import without_halves
from toolspan.process.feed import feed

LONGEST = 64 * 2**20
"""Bytes of a line; a longer one is no message."""
_PIECE = 1 << 16
_NO_JSON = -32700
_NO_MESSAGE = -32600

Read = MemoryObjectReceiveStream[SessionMessage | Exception]
Write = MemoryObjectSendStream[SessionMessage]
_Token = anyio.lowlevel.EventLoopToken


@contextmanager
def private_wire() -> Iterator["Wire"]:
    """Input and output as a wire; whatever else is read or printed meanwhile goes elsewhere."""
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    try:
        yield Wire(source, sink)
    finally:
        os.dup2(sink, 1)  # threads may still use the copies: they are left open


@dataclass(frozen=True, slots=True)
class Wire:
    """Where messages come from and where they go to."""

    source: int
    sink: int

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Read, Write]]:
        """Messages in and out; the end of the input closes the first one.

        When nothing can be written any more, the block is cancelled: the client is gone.
        """
        into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, out = anyio.create_memory_object_stream[SessionMessage](0)
        pen = _Pen(self.sink, anyio.lowlevel.current_token())
        pen.start()
        async with anyio.create_task_group() as group:
            group.start_soon(_take_in, self.source, into, pen, group.cancel_scope)
            group.start_soon(_give_out, out, pen, group.cancel_scope)
            yield read, write
            group.cancel_scope.cancel()


class GoneError(Exception):
    """The client does not read any more."""


class _Pen:
    """Writes lines, whole and in order."""

    def __init__(self, sink: int, token: _Token) -> None:
        self._sink = sink
        self._token = token
        self._lines: queue.SimpleQueue[_Line] = queue.SimpleQueue()
        self._gone = False

    def start(self) -> None:
        """Begin; a daemon, for it may hang on a client that reads no more."""
        threading.Thread(target=self._work, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write a line.

        Raises:
            GoneError: nobody reads.
        """
        line = _Line(data)
        self._lines.put(line)
        await line.written.wait()
        if self._gone:
            raise GoneError

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            rest = memoryview(line.data)
            try:
                while rest and not self._gone:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                self._gone = True
            try:
                anyio.from_thread.run_sync(line.written.set, token=self._token)
            except (anyio.RunFinishedError, RuntimeError):
                return  # nobody waits any more


@dataclass(frozen=True, slots=True)
class _Line:
    data: bytes
    written: anyio.Event = field(default_factory=anyio.Event)


async def _give_out(
    out: MemoryObjectReceiveStream[SessionMessage], pen: _Pen, scope: anyio.CancelScope
) -> None:
    async with out:
        async for one in out:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await pen.write(text.encode(errors="replace") + b"\n")
            except GoneError:
                scope.cancel()
                return


async def _take_in(
    source: int,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    pen: _Pen,
    scope: anyio.CancelScope,
) -> None:
    try:
        async with into, feed(_split(source)) as lines:
            async for line in lines:
                message = _message(line)
                if isinstance(message, SessionMessage):
                    await into.send(message)
                elif message is not None:
                    await pen.write(message.model_dump_json(by_alias=True).encode() + b"\n")
    except GoneError:
        scope.cancel()
    except anyio.BrokenResourceError:
        return  # the server has ended


def _message(line: bytes | None) -> SessionMessage | JSONRPCError | None:
    """A line as a message, or what its sender is told; None for an empty one."""
    if line is None:
        return _complaint(_NO_MESSAGE, f"Invalid request: a line over {LONGEST} bytes")
    if not line.strip():
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _mended(line)
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        return _complaint(_NO_MESSAGE, "Invalid request: an id is a text or a whole number")
    return SessionMessage(message)


def _mended(line: bytes) -> SessionMessage | JSONRPCError:
    """The message of a line that is none to a strict reader, or what its sender is told."""
    try:
        found, whole = without_halves(line)
    except ValueError:
        return _complaint(_NO_JSON, "Parse error: the line is not JSON")
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
    except ValueError:
        about = found.get("id") if isinstance(found, dict) else None
        return _complaint(_NO_MESSAGE, "Invalid request: the line is no JSON-RPC message", about)


def _complaint(code: int, text: str, about: object = None) -> JSONRPCError:
    known = about if isinstance(about, str | int) and not isinstance(about, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=text))


def _split(source: int) -> Iterator[bytes | None]:
    """The lines of a descriptor; None for one that is too long."""
    rest: list[bytes] = []
    size = 0
    while data := _piece(source):
        *whole, last = data.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)) if size <= LONGEST else None
            rest, size = [], 0
        size += len(last)
        if size <= LONGEST:
            rest.append(last)
        else:
            rest = []
    if size:
        yield b"".join(rest) if size <= LONGEST else None


def _piece(source: int) -> bytes:
    try:
        return os.read(source, _PIECE)
    except OSError:  # as good as the end
        return b""
