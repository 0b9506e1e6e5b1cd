"""Start `toolspan` in a process of its own without importing it each time.

The test, or its module, uses the fixture `fork_server`, which has imported the commands and forks. `run_toolspan` runs
a command to its end. For a process that a test talks to, `TOOLSPAN` replaces `python -m toolspan` in its arguments, and
`PYTHON` replaces `python` before a file or `-c` and code: a small program passes its arguments, folder, environment and
standard files to the server, forwards signals and exits as the command does; if it is killed, so is the command. With
`TERMINAL` in its environment, a command takes the terminal at its standard error as its controlling terminal. Tests of
job control, of closed standard files and of imports start Python itself.
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
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

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


def run_toolspan(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Without `env`, it has the environment of this process."""
    return run_python("-m", "toolspan", *arguments, cwd=cwd, env=env, stdin=stdin)


def run_python(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a file with its arguments, or `-c` and code, in a process that has imported toolspan."""
    words = [str(argument) for argument in arguments]
    request = json.dumps([words, str(cwd or Path.cwd()), dict(os.environ if env is None else env)]).encode()
    (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
    stdin_end, writer = (os.open(os.devnull, os.O_RDONLY), None) if stdin is None else os.pipe()
    with ThreadPoolExecutor(2) as threads, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(ADDRESS)
        socket.send_fds(connection, [len(request).to_bytes(8)], [stdin_end, stdout_end, stderr_end])
        connection.sendall(request)
        for descriptor in (stdin_end, stdout_end, stderr_end):
            os.close(descriptor)
        if writer is not None:
            threads.submit(_write_all, writer, (stdin or "").encode())
        errors = threads.submit(_read_all, stderr)
        output = _read_all(stdout)
        connection.recv(8, socket.MSG_WAITALL)  # the id of the process
        code = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), signed=True)
        return subprocess.CompletedProcess(words, code, output, errors.result())


def _write_all(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as stream, suppress(BrokenPipeError):
        stream.write(data)


def _read_all(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as stream:
        return stream.read()


def serve(address: str) -> None:
    """Run commands until standard input is closed."""
    from toolspan.cli.app import COMMANDS, app
    from toolspan.shell.plans import is_read_only

    for name in COMMANDS:
        app.get_command(None, name)  # type: ignore[arg-type]
    for module in LAZILY_IMPORTED:
        if find_spec(module.partition(".")[0]):  # `make test` does not install all
            importlib.import_module(module)
    is_read_only("true")  # reads the tables of programs
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        listener.listen(64)
        running: dict[int, RunningCommand] = {}
        print("listening", flush=True)  # noqa: T201
        while True:
            commands = [command.connection for command in running.values()]
            readable, _, _ = select.select([listener, sys.stdin, *running, *commands], [], [])
            for ended, command in list(running.items()):
                if ended in readable:
                    _, status = os.waitpid(command.process_id, 0)
                    with suppress(BrokenPipeError):
                        command.connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))
                elif command.connection in readable:  # the client was killed
                    os.kill(command.process_id, signal.SIGKILL)
                    os.waitpid(command.process_id, 0)
                else:
                    continue
                command.connection.close()
                os.close(ended)
                del running[ended]
            if sys.stdin in readable:
                Path(address).unlink()
                return
            if listener in readable:
                command = start_command(
                    listener, [*running, *(other.connection.fileno() for other in running.values())]
                )
                running[os.pidfd_open(command.process_id)] = command


class RunningCommand(NamedTuple):
    """A command and the connection to the client that started it."""

    process_id: int
    connection: socket.socket


def start_command(listener: socket.socket, others: list[int]) -> RunningCommand:
    """Run the next command in a fork of this process. It closes its copies of the files of `others`."""
    connection, _ = listener.accept()
    length, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
    process_id = os.fork()
    if process_id == 0:
        for descriptor in (listener.fileno(), connection.fileno(), *others):
            os.close(descriptor)
        arguments, folder, environment = json.loads(request)
        become_command(arguments, folder, environment, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(process_id.to_bytes(8))
    return RunningCommand(process_id, connection)


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
