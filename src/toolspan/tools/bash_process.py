"""Starting a command: the shell, its environment, and how we learn where it ended.

In: a `Request` and a call's surroundings. Out: a `Running`. Each command is a new shell; it writes
the folder it ends in to a file without a name that it inherits. That costs the command neither its
exit code nor its output, and holds for `exit`, `set -e` and lines that do not parse; a shell that
is killed or replaced tells nothing, and the next one starts where it did.
"""

from __future__ import annotations

import base64
import binascii
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

_BLANK_CHARS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_IMAGE_DATA_URI = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


def decode_capture(capture: Capture) -> str:
    """What is in memory of a stream; what is no UTF-8 is replaced."""
    return capture.data.decode("utf-8", "replace")


def trim_output(text: str) -> str:
    """Without blank lines before it and blanks behind it; the first line keeps its indent."""
    body = text.lstrip(_BLANK_CHARS)
    lead = text[: len(text) - len(body)]
    return (lead[lead.rfind("\n") + 1 :] + body).rstrip(_BLANK_CHARS)


def trim_end(text: str) -> str:
    """Without blanks behind it."""
    return text.rstrip(_BLANK_CHARS)


def join_nonempty(*parts: str) -> str:
    """The parts that are not empty, one below the other."""
    return "\n".join(part for part in parts if part)


def image_block(text: str) -> dict[str, object] | None:
    """A picture that was printed as a data URI; None when it is none that a model could see."""
    match = _IMAGE_DATA_URI.fullmatch(text)
    if match is None:
        return None
    try:
        base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    source = {"type": "base64", "media_type": match[1], "data": match[2]}
    return {"type": "image", "source": source}


def truncate_lines(text: str, limit: int, unread_lines: int = 0) -> str:
    """The beginning of a text that is over the limit, and how many lines are gone.

    `lost` are those that were not even kept in memory.
    """
    if len(text) <= limit:
        return text
    removed = text.count("\n", limit) + 1 + unread_lines
    return f"{text[:limit]}\n\n... [{removed} lines truncated] ..."


def format_duration(milliseconds: float, *, tenths: bool) -> str:
    """A time in words: `1s`, `2m 0s`; with tenths `2m 0.0s`."""
    seconds = milliseconds / 1000
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    seconds_text = f"{rest:.1f}s" if tenths else f"{int(rest)}s"
    if hours:
        return f"{hours}h {minutes}m {seconds_text}"
    return f"{minutes}m {seconds_text}" if minutes else seconds_text


DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 600_000
DEFAULT_OUTPUT_CHARS = 30_000
MAX_OUTPUT_CHARS = 150_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BashRequest:
    """One command, as it is to be run."""

    command: str
    description: str | None
    timeout_ms: float
    """Below 0: the command goes to the background at once."""
    background: bool
    can_move: bool
    """There is a background that it can go to."""
    output_limit: int
    """Characters of output that go back to the model."""


def parse_bash_request(value: Mapping[str, object], environment: Mapping[str, str]) -> BashRequest:
    """The request of an input that fits the schema."""
    disabled = environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "").lower()
    can_move = disabled not in {"1", "true", "yes", "on"}
    description = value.get("description")
    return BashRequest(
        command=str(value["command"]),
        description=description if isinstance(description, str) else None,
        timeout_ms=_effective_timeout(value.get("timeout"), environment),
        background=can_move and value.get("run_in_background") is True,
        can_move=can_move,
        output_limit=min(
            _positive_setting(environment, "BASH_MAX_OUTPUT_LENGTH", DEFAULT_OUTPUT_CHARS), MAX_OUTPUT_CHARS
        ),
    )


def _effective_timeout(requested: object, environment: Mapping[str, str]) -> float:
    default = _positive_setting(environment, "BASH_DEFAULT_TIMEOUT_MS", DEFAULT_TIMEOUT_MS)
    maximum = max(default, _positive_setting(environment, "BASH_MAX_TIMEOUT_MS", MAX_TIMEOUT_MS))
    if not isinstance(requested, int | float) or not requested:
        return default
    return min(requested, maximum)


def _positive_setting(environment: Mapping[str, str], name: str, default: int) -> int:
    """A setting above 0; what is no such number counts as not set."""
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


MEMORY_LIMIT = 8 << 20
"""Bytes of output held in memory: a picture and any text that goes back fit into half of it."""
MAX_OUTPUT_FILE = 256 << 20
"""Bytes of output kept in a file."""
_PROGRESS_INTERVAL = 0.1
"""Seconds between two reports of progress."""
_HIGH_DESCRIPTORS = (700, 100, 10)
"""Descriptors that scripts do not choose for themselves, best first."""
_SIMPLE_COMMAND = re.compile(r"[^|&;<>()\n\\#]*")


class CwdFile:
    """A file without a name, to which a shell writes the folder it ends in."""

    def __init__(self) -> None:
        self.descriptor = _move_descriptor(_anonymous_file())

    def read(self) -> Path | None:
        """What the shell wrote last; None when it wrote nothing."""
        text = os.pread(self.descriptor, 1 << 16, 0)
        lines = text.rstrip(b"\n").split(b"\n")
        return Path(os.fsdecode(lines[-1])) if lines[-1].startswith(b"/") else None

    def close(self) -> None:
        """Not needed any more."""
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cwd")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _move_descriptor(descriptor: int) -> int:
    """The same file under a number that no script uses by accident."""
    try:
        for lowest in _HIGH_DESCRIPTORS:
            try:
                return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
            except OSError:  # fewer descriptors are allowed here
                continue
        raise ToolError("No file descriptor is left to start a command with", kind="internal")
    finally:
        os.close(descriptor)


@dataclass(slots=True, kw_only=True)
class RunningCommand:
    """A command that was started."""

    request: BashRequest
    task_id: str
    """Its name, should it go to the background, and its files'."""
    output_path: Path
    """Where its output goes, once that is needed."""
    child: ChildProcess
    output: Capture
    """Both streams."""
    meter: OutputMeter

    def discard_output(self) -> None:
        """Its output is told; the file is not needed."""
        if self.output.path is not None:
            self.output.path.unlink(missing_ok=True)


@dataclass(slots=True)
class OutputMeter:
    """Counts what is printed, and reports it now and then."""

    report_progress: Callable[..., None]
    output: Capture | None = None
    """Both streams, when the child keeps them apart."""
    line_count: int = 0
    byte_count: int = 0
    last_report: float = float("-inf")

    def count_output(self, data: bytes) -> None:
        """Count what came."""
        if self.output is not None:
            self.output.add(data)
        self.line_count += data.count(b"\n")
        self.byte_count += len(data)
        now = time.monotonic()  # not the loop's: this is called outside of any task
        if now - self.last_report >= _PROGRESS_INTERVAL:
            self.last_report = now
            tail = data[-400:].decode("utf-8", "replace")
            self.report_progress("shell", lines=self.line_count, bytes=self.byte_count, tail=tail)


async def launch_command(
    request: BashRequest, cwd_file: CwdFile, ctx: ToolContext, shell: ShellValues
) -> RunningCommand:
    """Start the command.

    Raises:
        StartError: the shell cannot be started in this folder.
        ToolError: there is no shell.
    """
    task_id = new_task_id()
    output_path = ctx.workspace.tasks_folder / f"{task_id}.output"
    merge = shell.merges_streams or request.background
    spill = Spill(lambda: _make_parent(output_path), from_start=request.background, limit=MAX_OUTPUT_FILE)
    meter = OutputMeter(ctx.progress, None if merge else Capture(MEMORY_LIMIT, spill))
    child = await ctx.workspace.supervisor.start(
        Command(
            argv=[
                _find_bash(ctx.workspace.environment),
                "-c",
                _wrap_script(request.command, cwd_file.descriptor, shell),
            ],
            cwd=ctx.cwd,
            env=_command_environment(ctx, shell),
            tag=ctx.call.id,
            merge_streams=merge,
            pass_fds=[cwd_file.descriptor],
            on_output=meter.count_output,
            memory_limit=MEMORY_LIMIT,
            spill=spill if merge else None,
        )
    )
    return RunningCommand(
        request=request,
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
    """The command, between what tells us where it ends; on one line, for the numbers in errors."""
    if shell.closes_stdin and _SIMPLE_COMMAND.fullmatch(command):
        command += " < /dev/null"  # it is that already; the shell quotes it in its errors
    write_cwd = f"builtin pwd -P >&{descriptor} 2>/dev/null"
    return f"trap '{write_cwd}' EXIT; eval -- {shlex.quote(command)}; set -- $?; {write_cwd}; builtin exit $1"


def _command_environment(ctx: ToolContext, shell: ShellValues) -> dict[str, str]:
    environment = {**ctx.workspace.environment, **shell.environment, "PWD": str(ctx.cwd)}
    if shell.exports_session_id and ctx.session_id is not None:
        environment["CLAUDE_CODE_SESSION_ID"] = ctx.session_id
    return environment
