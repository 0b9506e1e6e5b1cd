"""Start `toolspan` in a process of its own without importing it each time.

`TOOLSPAN` replaces `python -m toolspan` in the arguments of a process, and `PYTHON` replaces `python` before a file or
`-c` and code; the test, or its module, uses the fixture `fork_server`. A small program passes its arguments, folder,
environment and standard files to the server, which has imported the commands and forks. It forwards signals and exits
as the command does; if it is killed, so is the command. With `TERMINAL` in its environment, a command takes the
terminal at its standard error as its controlling terminal. Tests of job control, of closed standard files and of
imports start Python itself.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolspan.cli import main

ADDRESS = f"{tempfile.gettempdir()}/toolspan-fork-server-{os.getpid()}"
PYTHON = (sys.executable, "-IS", str(Path(__file__).with_name("fork_client.py")), ADDRESS)
TOOLSPAN = (*PYTHON, "-m", "toolspan")
TERMINAL = "TOOLSPAN_FORK_TERMINAL"
LAZILY_IMPORTED = (
    "anthropic",
    "anyio._backends._asyncio",
    "mcp.server.stdio",
    "openai",
    "toolspan.integrations.mcp_client",
)


@contextmanager
def run_server() -> Iterator[None]:
    """Run the server for the commands of this process."""
    program = [sys.executable, "-m", "tests.fork_server", ADDRESS]
    root = Path(__file__).parent.parent
    with subprocess.Popen(program, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdout.readline()  # it listens
        yield
        server.stdin.close()  # it ends


def serve(address: str) -> None:
    """Run commands until standard input is closed."""
    from toolspan.cli.app import COMMANDS, app
    from toolspan.shell.readonly import is_read_only

    for name in COMMANDS:
        app.get_command(None, name)  # type: ignore[arg-type]
    for module in LAZILY_IMPORTED:
        importlib.import_module(module)
    is_read_only("true")  # reads the tables of programs
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        listener.listen(64)
        running: list[int] = []
        print("listening", flush=True)  # noqa: T201
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            running = [process_id for process_id in running if os.waitpid(process_id, os.WNOHANG) == (0, 0)]
            if listener not in readable:
                Path(address).unlink()
                return
            connection, _ = listener.accept()
            if process_id := os.fork():
                running.append(process_id)
                connection.close()
            else:
                listener.close()
                run_command(connection)


def run_command(connection: socket.socket) -> None:
    """Run one command in a fork of this process and tell the client how it ended."""
    length, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
    process_id = os.fork()
    if process_id == 0:
        connection.close()
        arguments, folder, environment = json.loads(request)
        become_command(arguments, folder, environment, descriptors)
    for descriptor in (*descriptors, 0, 1):
        os.close(descriptor)
    connection.sendall(process_id.to_bytes(8))
    ended = os.pidfd_open(process_id)
    readable, _, _ = select.select([ended, connection.fileno()], [], [])
    if ended not in readable:  # the client was killed
        os.kill(process_id, signal.SIGKILL)
    _, status = os.waitpid(process_id, 0)
    if ended in readable:
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))
    os._exit(0)


def become_command(arguments: list[str], folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if environment.pop(TERMINAL, None):
        os.setsid()
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # as in a new process, TMPDIR decides
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    code: int | str | None = 0
    try:
        run_program(*arguments)
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))  # a normal exit would free the large heap


def run_program(*arguments: str) -> None:
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv = [*arguments[1:]]
        main()
    else:
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
