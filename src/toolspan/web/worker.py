"""Answer the questions of the API in child processes that exit after their answer.

`start_workers` forks a small process before the server has threads. This process imports the archive once and forks a
child for each question, so that the memory of a question is released after its answer and the event loop never blocks.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolspan.archive.reporter import Reporter
from toolspan.web.questions import Answer, Question, answer_question, collect_answer

if TYPE_CHECKING:
    from toolspan.reading.transcript import PartialRead

_PRELOADED = (
    *(f"archive.{name}" for name in ("sessions", "calls", "errors", "stats", "usage", "time", "search", "files",
                                     "session", "overview", "why", "compare", "doctor", "flows", "context")),
    "web.questions", "web.timeline", "web.call_records", "web.copies", "analysis.search.find", "formats.claude.narrow",
)  # fmt: skip
"""perf: modules imported before forking. Without them, opening a session took twice as long."""
_LENGTH = struct.Struct("!Q")
_MAX_GROWING_BYTES = 128 << 20
_GROWING_SECONDS = 60.0
"""The time without a question after which growing files are no longer kept in memory."""


class WorkerRequest(msgspec.Struct, frozen=True):
    """A question, and the large files that are growing."""

    question: Question
    growing: tuple[str, ...] = ()
    stays_at: str | None = None
    """The Unix socket at which the worker answers commands about the files that it has read; None for one answer.

    If set, the worker keeps running. The server then sends versions over the connection, and the worker answers each
    with the changes since that version. The worker exits when the connection is closed.
    """


def start_workers(address: str, folder: str) -> int:
    """Fork the process that listens at `address`, a Unix socket, and return its id. It ends when this process does.

    Commands run in `folder`, which is empty, so that a name from a request is never a file in the current folder.
    """
    listener = _listen(address)
    alive, held = os.pipe()  # the child reads the end of file when the server exits for any reason
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child may have done it
            os.setpgid(pid, pid)
        os.close(alive)
        listener.close()
        return pid
    os.close(held)
    try:
        os.setpgid(0, 0)  # a process group that includes the children and their processes
        os.chdir(folder)
        _serve(listener, alive)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    return listener


def _serve(listener: socket.socket, alive: int) -> None:
    import select

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, _reap_children)  # their CPU time counts as this process's
    for name in _PRELOADED:
        import_module(f"toolspan.{name}")
    growing = _GrowingFiles()
    gc.freeze()  # perf: children share these pages
    while True:
        ready, _, _ = select.select([listener.fileno(), alive], [], [], _GROWING_SECONDS if growing else None)
        if alive in ready:
            return
        if not ready:
            growing.clear()
            continue
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError, _ConnectionClosedError):
            request = _receive_request(connection)
            growing.catch_up(request.growing)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                if request.stays_at is None:
                    growing.continue_in_child()
                else:
                    growing.clear()
                _answer(connection, request)
                os._exit(0)


def _reap_children(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class _GrowingFiles:
    """Large growing files, read up to the end of their last complete line.

    perf: otherwise, each answer reads a growing session from the start (0.6 s of CPU time for 100 MB).
    """

    def __init__(self) -> None:
        self._files: dict[str, PartialRead] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def catch_up(self, paths: Sequence[str]) -> None:
        from toolspan.reading.transcript import PartialRead

        for path in paths:
            file = self._files.pop(path, None) or PartialRead(path)
            if file.catch_up():
                self._files[path] = file  # the newest last
        while len(self._files) > 1 and sum(file.size for file in self._files.values()) > _MAX_GROWING_BYTES:
            del self._files[next(iter(self._files))]

    def continue_in_child(self) -> None:
        """Make `read` continue these files. Called in a child process, which exits after its answer."""
        from toolspan.reading.transcript import partial_reads

        partial_reads.set(dict(self._files))

    def clear(self) -> None:
        self._files.clear()
        gc.collect()


class _ConnectionClosedError(Exception):
    """The server closed the connection."""


def _answer(connection: socket.socket, request: WorkerRequest) -> None:
    with connection, contextlib.suppress(_ConnectionClosedError):
        try:
            if request.stays_at is not None:
                _answer_versions(connection, request.question, request.stays_at)
                return
            answer = answer_question(request.question)
        except _ConnectionClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of a command must reach the page
            import traceback

            traceback.print_exc(file=sys.stderr)
            answer = Answer(error=f"{type(error).__name__}: {error}", status=500)
        _send(connection, answer)


def _answer_versions(connection: socket.socket, question: Question, address: str) -> None:
    """Answer each version that the server sends with the changes since then, until the server closes the connection.

    Commands arrive over separate connections and are answered by child processes.
    """
    import select

    from toolspan.reading.transcript import partial_reads
    from toolspan.web.timeline import SessionTimeline

    timeline: SessionTimeline | None = None

    def read_changes(reporter: Reporter) -> Sequence[bytes]:
        nonlocal timeline
        timeline = timeline or SessionTimeline(question.names, question.get("session"))
        timeline.reporter = reporter
        return [timeline.encode_changes(version)]

    signal.signal(signal.SIGCHLD, _reap_children)
    with _listen(address) as listener:
        while True:
            if listener in select.select([connection, listener], [], [])[0]:
                other, _ = listener.accept()
                with other, contextlib.suppress(_ConnectionClosedError):
                    request = _receive_request(other)
                    if os.fork() == 0:
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        partial_reads.set(timeline.grown_files() if timeline is not None else None)
                        _answer(other, request)
                        os._exit(0)
                continue
            version = _receive_frame(connection).decode()
            is_first = timeline is None
            _send(connection, collect_answer(question, read_changes))
            gc.freeze()  # perf: exclude the timeline from garbage collection
            if is_first:
                _return_memory()


def _return_memory() -> None:
    """Return free memory to the system, if the C library supports it (glibc). This saves 15 of 140 MB."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _send(connection: socket.socket, answer: Answer) -> None:
    try:
        data = msgspec.msgpack.encode(_packed(answer))
        connection.sendall(_LENGTH.pack(len(data)))
        connection.sendall(data)
    except OSError as error:
        raise _ConnectionClosedError from error


def _packed(answer: Answer) -> tuple[Sequence[memoryview], Sequence[str], str | None, int]:
    return [memoryview(row) for row in answer.rows], answer.warnings, answer.error, answer.status


async def ask_worker(address: str, request: WorkerRequest) -> Answer:
    """Send a request over a new connection and return the answer.

    Raises:
        OSError, asyncio.IncompleteReadError: the worker ended without an answer.
    """
    import asyncio

    reader, writer = await asyncio.open_unix_connection(address)
    try:
        writer.write(encode_frame(msgspec.msgpack.encode(request)))
        length = frame_length(await reader.readexactly(FRAME_HEAD))
        return decode_answer(await reader.readexactly(length))
    finally:
        writer.close()


def decode_answer(data: bytes) -> Answer:
    """Return the answer that a child sent."""
    packed_type = tuple[list[memoryview], list[str], str | None, int]  # rows are not copied
    rows, warnings, error, status = msgspec.msgpack.decode(data, type=packed_type)
    return Answer(tuple(map(msgspec.Raw, rows)), tuple(warnings), error, status)


def encode_frame(data: bytes) -> bytes:
    """Return the data preceded by its length."""
    return _LENGTH.pack(len(data)) + data


def frame_length(head: bytes) -> int:
    """Return the length of the data that follows a head of `FRAME_HEAD` bytes."""
    length: int = _LENGTH.unpack(head)[0]
    return length


FRAME_HEAD = _LENGTH.size


def _receive_request(connection: socket.socket) -> WorkerRequest:
    return msgspec.msgpack.decode(_receive_frame(connection), type=WorkerRequest)


def _receive_frame(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return _receive(connection, length)


def _receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = connection.recv(min(count - len(parts), 1 << 20))
        except OSError as error:
            raise _ConnectionClosedError from error
        if not part:
            raise _ConnectionClosedError
        parts += part
    return bytes(parts)


def stop_workers(pid: int, address: str) -> None:
    """End the process that `start_workers` forked, and all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    Path(address).unlink(missing_ok=True)
