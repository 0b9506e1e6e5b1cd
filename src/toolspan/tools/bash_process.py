"""Start a shell command for the Bash tool, with its limits and environment, and record the folder it ends in.

`start_command` is the entry point; `bash.py` waits for the command and formats the result. Each command runs in a new
shell, which writes its final folder to an inherited anonymous file. This affects neither exit code nor output and
works with `exit`, `set -e` and lines that do not parse. A shell that is killed or replaced writes nothing; the next
command then starts in the same folder.
"""

from __future__ import annotations

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

from toolspan.errors import ToolError
from toolspan.runtime.background import new_task_id
from toolspan.runtime.context import ToolContext
from toolspan.runtime.process import Capture, ChildProcess, Command, Spill
from toolspan.runtime.profiles import ShellValues

_DEFAULT_TIMEOUT_MS = 120_000
_MAX_TIMEOUT_MS = 600_000
_DEFAULT_OUTPUT_CHARS = 30_000
_MAX_OUTPUT_CHARS = 150_000
_MEMORY_LIMIT = 8 << 20
"""The maximum number of output bytes held in memory. Images and text for the model need at most half of it."""
_MAX_OUTPUT_FILE = 256 << 20
_PROGRESS_INTERVAL = 0.1
_HIGH_DESCRIPTORS = (700, 100, 10)
"""Descriptor numbers that scripts rarely use, in order of preference."""
_SIMPLE_COMMAND = re.compile(r"[^|&;<>()\n\\#]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class BashRequest:
    """A command and the limits that apply to it."""

    command: str
    description: str | None
    timeout_ms: float
    """The timeout in milliseconds. If it is negative, the command starts in the background."""
    background: bool
    can_move: bool
    """True if the command may move to the background when its timeout expires."""
    output_limit: int
    """The maximum number of characters returned to the model."""

    @classmethod
    def parse(cls, value: Mapping[str, object], environment: Mapping[str, str]) -> BashRequest:
        """Create the request from a validated input and the limits set in the environment."""
        disabled = environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "").lower()
        can_move = disabled not in {"1", "true", "yes", "on"}
        description, timeout = value.get("description"), value.get("timeout")
        default_timeout = _positive_setting(environment, "BASH_DEFAULT_TIMEOUT_MS", _DEFAULT_TIMEOUT_MS)
        max_timeout = max(default_timeout, _positive_setting(environment, "BASH_MAX_TIMEOUT_MS", _MAX_TIMEOUT_MS))
        output_limit = _positive_setting(environment, "BASH_MAX_OUTPUT_LENGTH", _DEFAULT_OUTPUT_CHARS)
        return cls(
            command=str(value["command"]),
            description=description if isinstance(description, str) else None,
            timeout_ms=min(timeout, max_timeout) if isinstance(timeout, int | float) and timeout else default_timeout,
            background=can_move and value.get("run_in_background") is True,
            can_move=can_move,
            output_limit=min(output_limit, _MAX_OUTPUT_CHARS),
        )


def _positive_setting(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


@dataclass(slots=True, kw_only=True)
class RunningCommand:
    """A started command."""

    request: BashRequest
    shell: ShellValues
    task_id: str
    """The command's id as a background task, which is also used in the names of its files."""
    output_path: Path
    """The output file, written only if the output is long or the command moves to the background."""
    child: ChildProcess
    output: Capture
    """Both streams, interleaved in the order printed."""
    meter: OutputMeter

    def discard_output(self) -> None:
        """Delete the output file, if it exists."""
        if self.output.path is not None:
            self.output.path.unlink(missing_ok=True)


@dataclass(slots=True)
class OutputMeter:
    """A meter that counts a command's output and reports progress."""

    report_progress: Callable[..., None]
    output: Capture | None = None
    """The merged output, if the child's streams are separate."""
    line_count: int = 0
    byte_count: int = 0
    last_report: float = float("-inf")

    def count_output(self, data: bytes) -> None:
        """Count a chunk of output and report progress at most ten times per second."""
        if self.output is not None:
            self.output.add(data)
        self.line_count += data.count(b"\n")
        self.byte_count += len(data)
        now = time.monotonic()  # not the loop's clock, because this runs outside of any task
        if now - self.last_report >= _PROGRESS_INTERVAL:
            self.last_report = now
            tail = data[-400:].decode("utf-8", "replace")
            self.report_progress("shell", lines=self.line_count, bytes=self.byte_count, tail=tail)


class CwdFile:
    """An anonymous file to which a shell writes its final folder."""

    def __init__(self) -> None:
        self.descriptor = _move_to_high_descriptor(_anonymous_file())

    def read(self) -> Path | None:
        """Return the folder that the shell wrote last, or None if it wrote nothing."""
        lines = os.pread(self.descriptor, 1 << 16, 0).rstrip(b"\n").split(b"\n")
        return Path(os.fsdecode(lines[-1])) if lines[-1].startswith(b"/") else None

    def close(self) -> None:
        """Close the descriptor, which deletes the file."""
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cwd")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _move_to_high_descriptor(descriptor: int) -> int:
    try:
        for lowest in _HIGH_DESCRIPTORS:
            try:
                return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
            except OSError:  # this process may have a lower descriptor limit
                continue
        raise ToolError("No file descriptor is left to start a command with", kind="internal")
    finally:
        os.close(descriptor)


async def start_command(
    request: BashRequest, cwd_file: CwdFile, ctx: ToolContext, shell: ShellValues
) -> RunningCommand:
    """Start the command in a new bash.

    Raises:
        StartError: the shell cannot be started in this folder.
        ToolError: no bash is installed.
    """
    task_id = new_task_id()
    output_path = ctx.workspace.tasks_folder / f"{task_id}.output"
    merge = shell.merges_streams or request.background
    spill = Spill(lambda: _make_parent(output_path), from_start=request.background, limit=_MAX_OUTPUT_FILE)
    meter = OutputMeter(ctx.progress, None if merge else Capture(_MEMORY_LIMIT, spill))
    script = _wrap_script(request.command, cwd_file.descriptor, shell)
    child = await ctx.workspace.supervisor.start(
        Command(
            argv=[_find_bash(ctx.workspace.environment), "-c", script],
            cwd=ctx.cwd,
            env=_command_environment(ctx, shell),
            tag=ctx.call.id,
            merge_streams=merge,
            pass_fds=[cwd_file.descriptor],
            on_output=meter.count_output,
            memory_limit=_MEMORY_LIMIT,
            spill=spill if merge else None,
        )
    )
    return RunningCommand(
        request=request,
        shell=shell,
        task_id=task_id,
        output_path=output_path,
        child=child,
        output=meter.output or child.stdout,
        meter=meter,
    )


def _make_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _find_bash(environment: Mapping[str, str]) -> str:
    user_shell = environment.get("SHELL", "")
    candidates = [user_shell] if user_shell.rpartition("/")[2] == "bash" else []
    for path in [*candidates, "/bin/bash", "/usr/bin/bash"]:
        if os.access(path, os.X_OK):
            return path
    bash_path = shutil.which("bash", path=environment.get("PATH"))
    if bash_path is None:
        raise ToolError("No bash was found here, neither in /bin nor on PATH", kind="internal")
    return bash_path


def _wrap_script(command: str, descriptor: int, shell: ShellValues) -> str:
    """Return a script that runs the command and writes the shell's final folder.

    The script is one line, so that line numbers in error messages match those in the command.
    """
    if shell.closes_stdin and _SIMPLE_COMMAND.fullmatch(command):
        command += " < /dev/null"  # stdin is closed anyway, but the shell quotes this in its error messages
    write_cwd = f"builtin pwd -P >&{descriptor} 2>/dev/null"
    return f"trap '{write_cwd}' EXIT; eval -- {shlex.quote(command)}; set -- $?; {write_cwd}; builtin exit $1"


def _command_environment(ctx: ToolContext, shell: ShellValues) -> dict[str, str]:
    environment = {**ctx.workspace.environment, **shell.environment, "PWD": str(ctx.cwd)}
    if shell.exports_session_id and ctx.session_id is not None:
        environment["CLAUDE_CODE_SESSION_ID"] = ctx.session_id
    return environment
