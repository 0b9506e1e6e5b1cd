"""Starting a command: the shell, its environment, and how we learn where it ended.

In: a `Request` and a call's surroundings. Out: a `Running`. Each command is a new shell; it writes
the folder it ends in to a file without a name that it inherits. That costs the command neither its
exit code nor its output, and holds for `exit`, `set -e` and lines that do not parse; a shell that
is killed or replaced tells nothing, and the next one starts where it did.
"""

import fcntl
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolspan.builtin.bash.request import Request
from toolspan.errors import ToolError
from toolspan.process import Capture, Child, Command, Spill
from toolspan.profile import ShellValues
from toolspan.run.context import ToolContext
from toolspan.run.tasks import new_task_id

MEMORY = 8 << 20
"""Bytes of output held in memory: a picture and any text that goes back fit into half of it."""
LARGEST_FILE = 256 << 20
"""Bytes of output kept in a file."""
_NEWS = 0.1
"""Seconds between two reports of progress."""
_HIGH = (700, 100, 10)
"""Descriptors that scripts do not choose for themselves, best first."""
_SIMPLE = re.compile(r"[^|&;<>()\n\\#]*")


class Whereabouts:
    """A file without a name, to which a shell writes the folder it ends in."""

    def __init__(self) -> None:
        self.descriptor = _out_of_the_way(_nameless_file())

    def read(self) -> Path | None:
        """What the shell wrote last; None when it wrote nothing."""
        text = os.pread(self.descriptor, 1 << 16, 0)
        lines = text.rstrip(b"\n").split(b"\n")
        return Path(os.fsdecode(lines[-1])) if lines[-1].startswith(b"/") else None

    def close(self) -> None:
        """Not needed any more."""
        os.close(self.descriptor)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cwd")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _out_of_the_way(descriptor: int) -> int:
    """The same file under a number that no script uses by accident."""
    try:
        for lowest in _HIGH:
            try:
                return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
            except OSError:  # fewer descriptors are allowed here
                continue
        raise ToolError("No file descriptor is left to start a command with", kind="internal")
    finally:
        os.close(descriptor)


@dataclass(slots=True, kw_only=True)
class Running:
    """A command that was started."""

    request: Request
    task_id: str
    """Its name, should it go to the background, and its files'."""
    file: Path
    """Where its output goes, once that is needed."""
    child: Child
    printed: Capture
    """Both streams."""
    meter: "Meter"

    def discard(self) -> None:
        """Its output is told; the file is not needed."""
        if self.printed.path is not None:
            self.printed.path.unlink(missing_ok=True)


@dataclass(slots=True)
class Meter:
    """Counts what is printed, and reports it now and then."""

    report: Callable[..., None]
    printed: Capture | None = None
    """Both streams, when the child keeps them apart."""
    lines: int = 0
    size: int = 0
    last: float = float("-inf")

    def take(self, data: bytes) -> None:
        """Count what came."""
        if self.printed is not None:
            self.printed.add(data)
        self.lines += data.count(b"\n")
        self.size += len(data)
        now = time.monotonic()  # not the loop's: this is called outside of any task
        if now - self.last >= _NEWS:
            self.last = now
            tail = data[-400:].decode("utf-8", "replace")
            self.report("shell", lines=self.lines, bytes=self.size, tail=tail)


async def launch(
    request: Request, where: Whereabouts, ctx: ToolContext, shell: ShellValues
) -> Running:
    """Start the command.

    Raises:
        StartError: the shell cannot be started in this folder.
        ToolError: there is no shell.
    """
    task_id = new_task_id()
    file = ctx.workspace.tasks_folder / f"{task_id}.output"
    merge = shell.merged or request.background
    spill = Spill(lambda: _prepared(file), early=request.background, limit=LARGEST_FILE)
    meter = Meter(ctx.progress, None if merge else Capture(MEMORY, spill))
    child = await ctx.workspace.custody.start(
        Command(
            argv=[
                _bash(ctx.workspace.environment),
                "-c",
                _script(request.command, where.descriptor, shell),
            ],
            cwd=ctx.cwd,
            env=_environment(ctx, shell),
            mark=ctx.call.id,
            merge=merge,
            pass_fds=[where.descriptor],
            on_output=meter.take,
            memory_limit=MEMORY,
            spill=spill if merge else None,
        )
    )
    return Running(
        request=request,
        task_id=task_id,
        file=file,
        child=child,
        printed=meter.printed or child.stdout,
        meter=meter,
    )


def _prepared(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return file


def _bash(environment: Mapping[str, str]) -> str:
    wanted = environment.get("SHELL", "")
    named = [wanted] if wanted.rpartition("/")[2] == "bash" else []
    for path in [*named, "/bin/bash", "/usr/bin/bash"]:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("bash", path=environment.get("PATH"))
    if found is None:
        raise ToolError("No bash was found here, neither in /bin nor on PATH", kind="internal")
    return found


def _script(command: str, descriptor: int, shell: ShellValues) -> str:
    """The command, between what tells us where it ends; on one line, for the numbers in errors."""
    if shell.closes_stdin and _SIMPLE.fullmatch(command):
        command += " < /dev/null"  # it is that already; the shell quotes it in its errors
    tell = f"builtin pwd -P >&{descriptor} 2>/dev/null"
    return f"trap '{tell}' EXIT; eval -- {shlex.quote(command)}; set -- $?; {tell}; builtin exit $1"


def _environment(ctx: ToolContext, shell: ShellValues) -> dict[str, str]:
    environment = {**ctx.workspace.environment, **shell.environment, "PWD": str(ctx.cwd)}
    if shell.names_session and ctx.session_id is not None:
        environment["CLAUDE_CODE_SESSION_ID"] = ctx.session_id
    return environment
