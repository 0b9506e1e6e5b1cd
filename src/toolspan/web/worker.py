"""Run commands for the API in child processes that end with their answer.

`start_workers` forks a small process before the server has threads. It imports the commands once and forks a child
for each question, so that a command's memory is released when it has answered and the event loop never waits.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

_PRELOADED = (
    *(f"cli.{name}" for name in ("sessions", "calls", "errors", "show", "stats", "usage", "time", "search", "files")),
    "cli.overview", "cli.permissions", "cli.compare", "web.timeline", "web.call_records",
)  # fmt: skip
"""perf: modules that children find imported; opening a session took twice as long without them."""
_LENGTH = struct.Struct("!Q")
_MAX_GROWING = 4


class Question(msgspec.Struct, frozen=True):
    """A command and its arguments.

    `overview` stands for `toolspan` without a command; `web.NAME` calls `answer` of a module in this folder.
    """

    command: str
    arguments: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The transcripts to read; only the server's own paths and checked ids."""
    fields: tuple[str, ...] = ()
    """The only fields of each row to return; all if empty."""
    as_json: bool = True
    """False for a command that writes a file."""


class WorkerRequest(msgspec.Struct, frozen=True):
    """A question, and the large files that have grown since the server started."""

    question: Question
    growing: tuple[str, ...] = ()
    stays: bool = False
    """True if versions follow, each to be answered with what changed since; the worker ends with the connection."""


class Answer(msgspec.Struct, frozen=True):
    """The rows that a command printed with `--json`, or the reason why it failed."""

    rows: tuple[msgspec.Raw, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    status: int = 200
    """HTTP status: 400 for a wrong option, 404 for a name that does not exist."""


def run_command(question: Question) -> Answer:
    """Run a command in this process and return what it prints with `--json`."""
    import click

    from toolspan.cli.app import app

    def run() -> Sequence[bytes]:
        if question.command == "overview":
            from toolspan.cli.overview import print_overview

            print_overview(question.names, as_json=True)
        elif question.command.startswith("web."):  # a question that no command answers
            answered: Sequence[bytes] = import_module(f"toolspan.{question.command}").answer(question)
            return answered
        else:
            command = app.get_command(click.Context(app), question.command)
            assert command is not None
            words = [*(["--json"] if question.as_json else []), *question.arguments, "--", *question.names]
            command.main(words, prog_name=f"toolspan {question.command}", standalone_mode=False)
        return ()

    printed = io.StringIO()
    with contextlib.redirect_stderr(printed if not question.as_json else sys.stderr):
        answer = _collect_answer(run)
    rows: Sequence[bytes] = [bytes(row) for row in answer.rows]
    if question.fields:
        rows = [_select_fields(row, question.fields) for row in rows]
    warnings = (*answer.warnings, *filter(None, printed.getvalue().splitlines()))
    return Answer(tuple(map(msgspec.Raw, rows)), warnings, answer.error, answer.status)


def _collect_answer(run: Callable[[], Sequence[bytes]]) -> Answer:
    """Return the rows that a function returns, or that a command prints within it, or its error."""
    import click

    from toolspan.cli.output import collect_json
    from toolspan.errors import NotFound, ToolspanError

    rows: list[bytes] = []
    warnings: list[str] = []
    error, status = None, 200
    with collect_json(rows, warnings):
        try:
            rows += run()
        except NotFound as problem:
            error, status = str(problem), 404
        except (ToolspanError, click.ClickException) as problem:
            error, status = problem.format_message() if isinstance(problem, click.ClickException) else str(problem), 400
    return Answer(tuple(map(msgspec.Raw, rows)), tuple(warnings), error, status)


def _select_fields(row: bytes, fields: Sequence[str]) -> bytes:
    values = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: values[name] for name in fields if name in values})


def start_workers(address: str, folder: str) -> int:
    """Fork the process that listens at `address`, a Unix socket, and return its id. It ends when this process does.

    Commands run in `folder`, which is empty, so that a name from a request is never a file in the current folder.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(64)
    alive, held = os.pipe()  # the child reads end of file when the server ends, however it ends
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # the child may have done it
            os.setpgid(pid, pid)
        os.close(alive)
        listener.close()
        return pid
    os.close(held)
    try:
        os.setpgid(0, 0)  # with the children, and with what they start
        os.chdir(folder)
        _serve(listener, alive)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _serve(listener: socket.socket, alive: int) -> None:
    import select

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    for name in _PRELOADED:
        import_module(f"toolspan.{name}")
    growing = _GrowingFiles()
    gc.freeze()  # perf: children share these pages
    while True:
        ready, _, _ = select.select([listener.fileno(), alive], [], [])
        if alive in ready:
            return
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
            request = msgspec.msgpack.decode(_receive(connection, length), type=WorkerRequest)
            growing.catch_up(request.growing)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _answer(connection, request)
                os._exit(0)


class _GrowingFiles:
    """Large files that have grown, read up to their last line.

    perf: without it, each answer reads a growing session from its beginning (100 MB: 0.6 s of CPU more for each).
    """

    def __init__(self) -> None:
        from toolspan.reading.transcript import PartialRead, partial_reads

        self._new = PartialRead
        self._files: dict[str, PartialRead] = {}
        partial_reads.set(self._files)  # a child gets a copy of its own

    def catch_up(self, paths: Sequence[str]) -> None:
        for path in paths:
            file = self._files.pop(path, None) or self._new(path)
            if file.catch_up():
                self._files[path] = file  # the newest last
        for path in list(self._files)[:-_MAX_GROWING]:
            del self._files[path]


class _ConnectionClosedError(Exception):
    """The server closed the connection."""


def _answer(connection: socket.socket, request: WorkerRequest) -> None:
    with connection, contextlib.suppress(_ConnectionClosedError):
        try:
            if request.stays:
                _answer_versions(connection, request.question)
                return
            answer = run_command(request.question)
        except _ConnectionClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of a command must reach the page
            import traceback

            traceback.print_exc(file=sys.stderr)
            answer = Answer(error=f"{type(error).__name__}: {error}", status=500)
        _send(connection, answer)


def _answer_versions(connection: socket.socket, question: Question) -> None:
    """Answer each version that the server sends with what changed since, until it closes the connection."""
    keep_answering = import_module(f"toolspan.{question.command}").keep_answering
    answer_version: Callable[[str], list[bytes]] | None = None

    def run() -> Sequence[bytes]:
        nonlocal answer_version
        answer_version = answer_version or keep_answering(question)
        assert answer_version is not None
        return answer_version(version)

    while True:
        (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
        version = _receive(connection, length).decode()
        _send(connection, _collect_answer(run))
        gc.freeze()  # perf: exclude the timeline from garbage collection


def _send(connection: socket.socket, answer: Answer) -> None:
    try:
        connection.sendall(encode_frame(msgspec.msgpack.encode(_packed(answer))))
    except OSError as error:
        raise _ConnectionClosedError from error


def _packed(answer: Answer) -> tuple[Sequence[bytes], Sequence[str], str | None, int]:
    return [bytes(row) for row in answer.rows], answer.warnings, answer.error, answer.status


def decode_answer(data: bytes) -> Answer:
    """Return the answer that a child sent."""
    rows, warnings, error, status = msgspec.msgpack.decode(data, type=tuple[list[bytes], list[str], str | None, int])
    return Answer(tuple(map(msgspec.Raw, rows)), tuple(warnings), error, status)


def encode_frame(data: bytes) -> bytes:
    """Return data with its length in front."""
    return _LENGTH.pack(len(data)) + data


def frame_length(head: bytes) -> int:
    """Return the length of the data that follows a head of `FRAME_HEAD` bytes."""
    length: int = _LENGTH.unpack(head)[0]
    return length


FRAME_HEAD = _LENGTH.size


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
    """End the process that `start_workers` forked, with all children that still compute an answer."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    Path(address).unlink(missing_ok=True)
