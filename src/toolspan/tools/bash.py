"""Bash: run a command in a new shell.

Start at `_run_bash`. The result is the command's output, or a notice that the command continues in the background.

Each command runs in a new shell, which writes its final folder to an inherited anonymous file. This affects neither
exit code nor output and works with `exit`, `set -e` and lines that do not parse. A shell that is killed or replaced
writes nothing; the next command then starts in the same folder.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import math
import os
import re
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from toolspan.errors import ToolError
from toolspan.runtime.background import CommandTask, new_task_id
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.output_limits import (
    ERROR_LIMIT,
    format_size,
    safe_file_name,
    spill_notice,
    truncate_middle,
    utf16_length,
)
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.process import Capture, ChildProcess, Command, ExitStatus, Spill, StartError, TerminationError
from toolspan.runtime.profiles import Messages, Profile, ShellValues
from toolspan.runtime.profiles.messages import INTERRUPT_NOTE
from toolspan.runtime.sandbox.settings import SandboxUnavailable
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Issue, Valid
from toolspan.runtime.tool import Output, Tool, ToolFailure, ToolHints, ToolSubject
from toolspan.shell.environment import command_environment, harden_environment
from toolspan.shell.exit_status import explain_exit_code, found_nothing, prints_nothing
from toolspan.shell.plans import find_simple_commands, is_read_only
from toolspan.shell.syntax import NO_CONTROL_CHARACTERS
from toolspan.tools.files.changes import rename_inputs
from toolspan.tools.files.shell_views import describe_rewritten_files, record_shell_views
from toolspan.tools.ripgrep import find_ripgrep
from toolspan.tools.schemas import FLAG, TEXT, flag, number, object_schema, result_schema, text
from toolspan.tools.working_tree import FindChanges, watch_command
from toolspan.types.error_kinds import ErrorKind, find_sandbox_note
from toolspan.types.events import SandboxDenied

if TYPE_CHECKING:
    from toolspan.runtime.sandbox.active import SandboxedCommand

_DESCRIPTION = """\
Run a command line in bash and return its output and, if it fails, its exit code.

Each call starts a new shell. The next call starts in the folder where this one ends, if that is inside the project;
variables, functions and aliases are lost. Commands cannot read from a terminal. A command that exceeds its timeout
moves to the background or is stopped. Output above 30,000 characters is shortened or saved to a file.

Prefer Read, Edit and Write to shell commands that show or change files."""
_SCHEMA = object_schema(
    {
        "command": text("The command line to run."),
        "timeout": number("The timeout in milliseconds. The default is 120000, the maximum 600000."),
        "description": text("What the command does, in a few words."),
        "run_in_background": flag("Return at once, while the command continues and writes its output to a file."),
        "dangerouslyDisableSandbox": flag(
            "Run the command outside the sandbox, if there is one. The user may be asked first."
        ),
    },
    required=["command"],
)
_DEFAULT_TIMEOUT_MS = 120_000
_MAX_TIMEOUT_MS = 600_000
_DEFAULT_OUTPUT_CHARS = 30_000
_MAX_OUTPUT_CHARS = 150_000
_MEMORY_LIMIT = 8 << 20
"""The maximum number of output bytes held in memory. Images and text for the model need at most half of it."""
_MAX_OUTPUT_FILE = 256 << 20
_TAIL_BYTES = 2_000
"""The maximum size of the output that is shown of a command that is moved to the background."""
_PROGRESS_INTERVAL = 0.1
_GRACE_SECONDS = 0.2
_BACKGROUND_WAIT = 0.25
"""The number of seconds to wait for output when a command starts in the background."""
_HIGH_DESCRIPTORS = (700, 100, 10)
"""Descriptor numbers that scripts rarely use, in order of preference."""
_DEFINES_PWD = re.compile(r"\bpwd\s*\(|\bfunction\s+pwd\b")
_HIDDEN_CHARACTERS = "command contains control characters that would be hidden in the approval dialog"
_BACKGROUND_FOLDER = (
    "Session cwd remains {cwd}; directory changes made by the backgrounded command do not apply to subsequent commands."
)
_SEARCHES = re.compile(r"\brg\b")
_WITHOUT_INPUT = re.compile(r"[^|<\n]*")
"""Commands that some clients end with ` < /dev/null`."""
_TERMINATED_CODE = 144
"""The exit code that clients show for a shell killed by SIGTERM. For other signals it is 1."""
_TIMED_OUT_CODE, _KILLED_CODE = 143, 137
_CLOCK_LAG_NS = 20_000_000
_BLANK_CHARS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_IMAGE_DATA_URI = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


def bash_tool(profile: Profile) -> Tool:
    """Return the Bash tool for a client version."""
    check = compile_checker(_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(
            rename_inputs(raw_input, {"timeout_ms": "timeout"})[0] if profile.files.newer_inputs else raw_input
        )
        if not profile.shell.rejects_control_characters or isinstance(checked, Invalid):
            return checked
        is_hiding = NO_CONTROL_CHARACTERS.fullmatch(str(checked.value["command"])) is None
        return Invalid((Issue("other", ("command",), _HIDDEN_CHARACTERS),)) if is_hiding else checked

    return Tool(
        name="Bash",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=parse,
        run=lambda value, ctx: _run_bash(_BashRequest.parse(value, ctx.workspace.environment), ctx, profile.shell),
        concurrent=_only_reads,
        only_reads=lambda value, _workspace: _only_reads(value),
        output_limit=None,
        render_result=_render_record,
        kind="shell",
        sandboxed=True,
        subject=ToolSubject("command", "command"),
        hints=ToolHints("Run a command", destructive=True, open_world=True),
        output_schema=result_schema({"stdout": TEXT, "stderr": TEXT, "interrupted": FLAG}, backgroundTaskId=TEXT),
        replayable=True,
    )


def _only_reads(value: Mapping[str, object]) -> bool:
    return not value.get("run_in_background") and is_read_only(str(value["command"]))


def _render_record(record: Mapping[str, object]) -> str:
    stdout, stderr = str(record.get("stdout", "")), str(record.get("stderr", ""))
    return _join_nonempty(_trim_output(stdout), stderr.rstrip(_BLANK_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BashRequest:
    command: str
    description: str | None
    timeout_ms: float
    """The timeout in milliseconds. If it is negative, the command starts in the background."""
    background: bool
    can_move: bool
    """True if the command may move to the background when its timeout expires."""
    output_limit: int
    input: Mapping[str, object]

    @classmethod
    def parse(cls, value: Mapping[str, object], environment: Mapping[str, str]) -> _BashRequest:
        def positive_setting(name: str, default: int) -> int:
            text = environment.get(name, "")
            return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default

        disabled = environment.get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "").lower()
        can_move = disabled not in {"1", "true", "yes", "on"}
        description, timeout = value.get("description"), value.get("timeout")
        default_timeout = positive_setting("BASH_DEFAULT_TIMEOUT_MS", _DEFAULT_TIMEOUT_MS)
        max_timeout = max(default_timeout, positive_setting("BASH_MAX_TIMEOUT_MS", _MAX_TIMEOUT_MS))
        return cls(
            command=str(value["command"]),
            description=description if isinstance(description, str) else None,
            timeout_ms=min(timeout, max_timeout) if isinstance(timeout, int | float) and timeout else default_timeout,
            background=can_move and value.get("run_in_background") is True,
            can_move=can_move,
            output_limit=min(positive_setting("BASH_MAX_OUTPUT_LENGTH", _DEFAULT_OUTPUT_CHARS), _MAX_OUTPUT_CHARS),
            input=value,
        )


async def _run_bash(request: _BashRequest, ctx: ToolContext, shell: ShellValues) -> Output | ToolFailure:
    is_watched = shell.records_edits and not request.background and not is_read_only(request.command)
    find_changes = await watch_command(ctx) if is_watched else None
    with _open_cwd_file() as cwd_file:
        try:
            running = await _start_command(request, cwd_file, ctx, shell)
        except SandboxUnavailable as problem:
            raise ToolError(f"The command was not run. {problem}", kind="sandbox_denied") from problem
        except StartError as problem:
            cwd, project = ctx.cwd, ctx.workspace.project
            if cwd.is_dir():
                raise ToolError(f"The command was not run. {problem}", kind="internal") from problem
            message = f"The command was not run: the current folder {cwd} no longer exists."
            if cwd == project or not project.is_dir():
                return ToolFailure(message, kind="not_found")
            message += f" The next command starts in {project}."
            return ToolFailure(message, kind="not_found", modify=lambda context: replace(context, cwd=project))
        ctx.partial = running.partial_output
        if request.background or request.timeout_ms < 0:
            output = ""
            _leave_in_background(running, ctx)
            if not request.background and shell.merges_streams:
                with anyio.move_on_after(_BACKGROUND_WAIT):
                    await running.child.wait()
                    output = running.partial_output()
            return _background_output(running, ctx.profile.messages, by_timeout=False, output=output, cwd=ctx.cwd)
        exit = None
        try:
            with anyio.move_on_after(request.timeout_ms / 1000):
                exit = await running.child.wait()
        except anyio.get_cancelled_exc_class():
            await running.terminate()
            raise
        if exit is None:
            return await _handle_timeout(running, ctx)
        running.output.finish()
        lines = os.pread(cwd_file, 1 << 16, 0).rstrip(b"\n").split(b"\n")
    if running.sandboxed is not None and lines == [b""]:
        exit = _read_sandbox_exit(running, exit)
    final_cwd = Path(os.fsdecode(lines[-1])) if lines[-1].startswith(b"/") else None
    result = _finished_output(running, exit, final_cwd, ctx)
    if find_changes is not None and exit.code == 0 and isinstance(result, Output):
        result = await _record_changes(result, find_changes)
    return result if running.sandboxed is None else _report_violations(running, result, exit, ctx)


async def _record_changes(output: Output, find_changes: FindChanges) -> Output:
    changes = await find_changes()
    if changes is None or not isinstance(output.structured, dict):
        return output
    return structs.replace(output, structured={**output.structured, "bashEditDiff": changes})


def _read_sandbox_exit(running: _RunningCommand, exit: ExitStatus) -> ExitStatus:
    """Return the exit status of a shell that did not write its folder. The sandbox reports a signal as an exit code.

    Raises:
        ToolError: the shell did not start.
    """
    first_line = running.output.text.partition("\n")[0]
    if exit.code == 1 and first_line.startswith(("bwrap: ", "nsenter: ")):
        raise ToolError(f"The command was not run, because its sandbox could not be created: {first_line}")
    if exit.code is not None and 128 < exit.code <= 128 + signal.SIGRTMAX:
        return ExitStatus(None, exit.code - 128)
    return exit


def _report_violations(
    running: _RunningCommand, output: Output | ToolFailure, exit: ExitStatus, ctx: ToolContext
) -> Output | ToolFailure:
    """Add a note about sandbox violations to the result."""
    note = _find_violations(running, exit, ctx)
    beside = {"sandboxed": True}
    if isinstance(output, ToolFailure):
        text = _join_nonempty(output.text, note)
        kind: ErrorKind | None = "sandbox_denied" if find_sandbox_note(note) else output.kind
        return replace(output, beside=beside, text=text, kind=kind)
    if note and isinstance(output.content, str):
        return structs.replace(output, content=_join_nonempty(output.content, note), beside=beside)
    return structs.replace(output, beside=beside)


def _find_violations(running: _RunningCommand, exit: ExitStatus, ctx: ToolContext) -> str:
    """Return a note about a finished command's sandbox violations, or "". Emit an event if there are any."""
    sandbox, inside = ctx.workspace.sandbox, running.sandboxed
    if sandbox is None or inside is None:
        return ""
    text = _join_nonempty(running.child.stdout.text, running.child.stderr.text, running.output.text)
    if exit.status == 0 and is_read_only(running.request.command):
        text = ""  # its output may quote error messages of other commands
    violations = sandbox.find_violations(inside, running.request.command, text, failed=exit.status != 0)
    if not violations:
        return ""
    services = ctx.services.context
    services.emit(SandboxDenied(call_id=ctx.call.id, violations=violations, at=services.clock()))
    from toolspan.runtime.sandbox.violations import describe_violations  # only for calls inside a sandbox

    return describe_violations(violations, sandbox.settings)


async def _handle_timeout(running: _RunningCommand, ctx: ToolContext) -> Output | ToolFailure:
    request, shell = running.request, running.shell
    commands = find_simple_commands(request.command)
    is_killed = commands and not commands[0].variables and commands[0].name in shell.killed_at_timeout
    if request.can_move and not is_killed:
        output = running.last_output() if shell.moved_keeps_output else ""
        _leave_in_background(running, ctx)
        return _background_output(running, ctx.profile.messages, by_timeout=True, output=output, cwd=ctx.cwd)
    await running.terminate()
    message = _join_nonempty(f"Exit code {_TIMED_OUT_CODE}", _timeout_text(running), running.failed_streams())
    running.output.discard()
    return ToolFailure(
        truncate_middle(message.rstrip(_BLANK_CHARS), ERROR_LIMIT),
        kind="command_timeout",
        timed_out=True,
        exit_code=_TIMED_OUT_CODE,
    )


def _timeout_text(running: _RunningCommand) -> str:
    minutes, rest = divmod(running.request.timeout_ms / 1000, 60)
    hours, minutes = divmod(int(minutes), 60)
    duration = f"{rest:.1f}s" if running.shell.tenths and not (hours or minutes) else f"{int(rest)}s"
    if hours or minutes:
        duration = f"{minutes}m {duration}"
    return f"Command timed out after {hours}h {duration}" if hours else f"Command timed out after {duration}"


def _leave_in_background(running: _RunningCommand, ctx: ToolContext) -> None:
    running.output.spill_to_file()
    ctx.workspace.tasks.add(
        CommandTask(
            id=running.task_id,
            call_id=ctx.call.id,
            command=running.request.command,
            description=running.request.description,
            child=running.child,
            output=running.output,
            path=running.output_path,
            has_exit_line=ctx.profile.tasks.has_exit_line,
            find_violations=lambda exit: _find_violations(running, exit, ctx),
        )
    )


# The process


@contextmanager
def _open_cwd_file() -> Iterator[int]:
    """Open an anonymous file to which a shell writes its final folder."""
    if hasattr(os, "memfd_create"):
        low_descriptor = os.memfd_create("cwd")
    else:
        with tempfile.TemporaryFile() as file:
            low_descriptor = os.dup(file.fileno())
    descriptor = None
    for lowest in _HIGH_DESCRIPTORS:
        with suppress(OSError):  # this process may have a lower descriptor limit
            descriptor = fcntl.fcntl(low_descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
            break
    os.close(low_descriptor)
    if descriptor is None:
        raise ToolError("The command was not run, because too many files are open.", kind="internal")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_ERROR_MARK = b"[stderr] "


@dataclass(slots=True)
class _OutputMeter:
    report_progress: Callable[..., None]
    output: Capture | None = None
    """The merged output, if the child's streams are separate."""
    line_count: int = 0
    byte_count: int = 0
    last_report: float = float("-inf")

    def count_errors(self, data: bytes) -> None:
        """Count a chunk of stderr, which is marked in the output of background commands."""
        self.count_output(_ERROR_MARK + data)

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


@dataclass(slots=True, kw_only=True)
class _RunningCommand:
    request: _BashRequest
    shell: ShellValues
    task_id: str
    """The command's id as a background task, which is also used in the names of its files."""
    output_path: Path
    """The output file, written only if the output is long or the command moves to the background."""
    child: ChildProcess
    output: Capture
    """Both streams, interleaved in the order printed."""
    meter: _OutputMeter
    sandboxed: SandboxedCommand | None
    """The sandboxed form of the command; None if it runs outside the sandbox."""
    started_ns: int
    """The time before the command started, minus the possible lag of a file system's clock."""

    async def terminate(self) -> None:
        with anyio.CancelScope(shield=True):
            with suppress(TerminationError):  # the supervisor tries again and reports the error
                await self.child.terminate(_GRACE_SECONDS)
            self.output.finish()

    def partial_output(self) -> str:
        if self.shell.marks_errors:
            return _trim_output(self.failed_streams()[: self.request.output_limit])
        return _trim_output(self._first_output())

    def last_output(self) -> str:
        """Return the last lines of the output, which show how far a command is, after a notice if there are more."""
        data = self.output.data
        if self.output.total <= _TAIL_BYTES:
            return _trim_output(self._first_output())
        tail = data[-_TAIL_BYTES:].decode("utf-8", "replace")
        first_break = tail.find("\n")
        if 0 <= first_break < len(tail) - 1:
            tail = tail[first_break + 1 :]
        notice = f"[\u2026 earlier output omitted; full output: {self.output_path}]"
        return f"{notice}\n{tail}".rstrip(_BLANK_CHARS)

    def _first_output(self) -> str:
        """Return the beginning of the output. As in the client, its limit is in bytes."""
        return self.output.data[: self.request.output_limit].decode("utf-8", "replace")

    def failed_streams(self) -> str:
        """Return a failed command's output, with stderr first if the streams are separate."""
        if self.shell.merges_streams:
            return self._first_output()
        return _join_nonempty(self.child.stderr.text, self.child.stdout.text).rstrip(_BLANK_CHARS)


async def _start_command(request: _BashRequest, cwd_file: int, ctx: ToolContext, shell: ShellValues) -> _RunningCommand:
    workspace, task_id = ctx.workspace, new_task_id()
    output_path = workspace.tasks_folder / f"{task_id}.output"

    def prepare_output_file() -> Path:
        output_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return output_path

    environment = {**command_environment(workspace.environment), **shell.environment, "PWD": str(ctx.cwd)}
    if ctx.is_unapproved:
        environment = harden_environment(environment)
    if shell.exports_session_id and workspace.session_id is not None:
        environment["CLAUDE_CODE_SESSION_ID"] = workspace.session_id
    script = request.command
    if shell.closes_stdin and _WITHOUT_INPUT.fullmatch(script):
        script += " < /dev/null"  # stdin is closed anyway, but the shell quotes this in its error messages
    # As in the clients, only a successful command changes the folder, and a command that removes its folder fails.
    # The script is one line, so that line numbers in error messages match those in the command.
    print_folder = "builtin pwd -P" if _DEFINES_PWD.search(script) else "pwd -P"  # it is visible after `set -x`
    script = f"eval -- {shlex.quote(script)} && {print_folder} >&{cwd_file}"
    if _SEARCHES.search(request.command) and shutil.which("rg", path=environment.get("PATH")) is None:
        with suppress(ToolError):  # clients provide their own, too
            script = f'rg() {{ {shlex.quote(find_ripgrep(None))} "$@"; }}; {script}'
    sandbox = workspace.sandbox
    is_inside = sandbox is not None and sandbox.confines(
        PermissionRequest(ctx.call, request.input, ctx.cwd, workspace.project, known_as="Bash")
    )
    if is_inside:  # a line in the file proves that the shell itself was not killed
        script += f" || builtin exit $? $(builtin echo x >&{cwd_file})"
    merge = shell.merges_streams or (request.background and not shell.marks_errors)
    spill = Spill(prepare_output_file, from_start=request.background, limit=_MAX_OUTPUT_FILE)
    started_ns = time.time_ns() - _CLOCK_LAG_NS
    meter = _OutputMeter(ctx.progress, None if merge else Capture(_MEMORY_LIMIT, spill))
    command = Command(
        argv=[_find_bash(workspace.environment), "-c", script],
        cwd=ctx.cwd,
        env=environment,
        tag=safe_file_name(ctx.call.id),
        merge_streams=merge,
        pass_fds=[cwd_file],
        on_output=meter.count_output,
        on_error_output=meter.count_errors if shell.marks_errors else None,
        memory_limit=_MEMORY_LIMIT,
        spill=spill if merge else None,
    )
    sandboxed = None
    if sandbox is not None and is_inside:
        folders = (workspace.project, *workspace.added_folders)
        async with sandbox.wrap(command, folders) as sandboxed:
            child = await workspace.supervisor.start(sandboxed.command)
    else:
        child = await workspace.supervisor.start(command)
    if workspace.intent_log is not None:
        workspace.intent_log.record_process(ctx.call.id, child.pid)
    return _RunningCommand(
        request=request,
        shell=shell,
        task_id=task_id,
        output_path=output_path,
        child=child,
        output=meter.output or child.stdout,
        meter=meter,
        sandboxed=sandboxed,
        started_ns=started_ns,
    )


def _find_bash(environment: Mapping[str, str]) -> str:
    user_shell = environment.get("SHELL", "")
    candidates = [user_shell] if user_shell.rpartition("/")[2] == "bash" else []
    for path in [*candidates, "/bin/bash", "/usr/bin/bash"]:
        if os.access(path, os.X_OK):
            return path
    bash_path = shutil.which("bash", path=environment.get("PATH"))
    if bash_path is None:
        raise ToolError(
            "The command was not run, because bash was not found in /bin, in /usr/bin or on PATH.", kind="internal"
        )
    return bash_path


# The result


def _next_folder(final_cwd: Path, workspace: Workspace) -> tuple[Path, str]:
    """Return the folder for the next command, and a notice if it is not the shell's final one.

    A final folder outside the session's folders is ignored.
    """
    project = workspace.project
    project_root = Path(os.path.realpath(project))  # the project path may contain symbolic links
    if final_cwd.is_relative_to(project_root):
        return project / final_cwd.relative_to(project_root), ""
    if any(final_cwd.is_relative_to(os.path.realpath(added)) for added in workspace.added_folders):
        return final_cwd, ""
    return project, f"Shell cwd was reset to {project}"


def _finished_output(
    running: _RunningCommand, exit: ExitStatus, final_cwd: Path | None, ctx: ToolContext
) -> Output | ToolFailure:
    shell, child = running.shell, running.child
    folder, notice = (ctx.cwd, "") if final_cwd is None else _next_folder(final_cwd, ctx.workspace)

    def set_cwd(context: CallContext) -> CallContext:
        return replace(context, cwd=folder)

    modify = set_cwd if notice or folder != ctx.cwd else None
    code = exit.status
    if exit.signal is not None:
        code = _TERMINATED_CODE if exit.signal == signal.SIGTERM else 1
    command = running.request.command
    meaning = explain_exit_code(command, code) if code else None
    if code and meaning is None:
        return replace(_failed_output(running, code, notice, ctx), modify=modify)
    if shell.merges_streams:
        output = _trim_output(running.output.text)
    else:
        output = _join_nonempty(_trim_output(child.stdout.text), _trim_output(child.stderr.text))
    record = _build_record(running, output, meaning=meaning, notice=notice)
    data_uri = _IMAGE_DATA_URI.fullmatch(output)
    if data_uri is not None and _is_base64(data_uri[2]):
        running.output.discard()
        source = {"type": "base64", "media_type": data_uri[1], "data": data_uri[2]}
        image: dict[str, object] = {"type": "image", "source": source}
        return Output([image], record | {"isImage": True}, None, modify, exit_code=code)
    hint = ""
    if ctx.profile.files.shell_views:
        if not code and len(output) <= running.request.output_limit:
            record_shell_views(command, ctx)
        hint = describe_rewritten_files(command, folder, running.started_ns, ctx)
    if hint:
        record["staleReadFileStateHint"] = hint
    content = output
    size = utf16_length(output) if shell.overflow == "lines" else len(output.encode("utf-8", "replace"))
    if size > running.request.output_limit:
        content, record = _cut_output(running, output, record, ctx.workspace.results_folder)
    running.output.discard()
    content = _join_nonempty(content, notice, hint)
    if shell.exit_line:
        content = f"{content}\n\n[Exit code: {code}]".lstrip("\n")
    return Output(content, record, flag=False, modify=modify, exit_code=code)


def _failed_output(running: _RunningCommand, code: int, notice: str, ctx: ToolContext) -> ToolFailure:
    streams, cause = running.failed_streams(), ""
    if ctx.profile.shell.interrupted_keeps_output:  # the oldest client assumes that it caused these codes itself
        causes = {_KILLED_CODE: INTERRUPT_NOTE, _TIMED_OUT_CODE: _timeout_text(running)}
        cause = causes.get(code, "")
    message = _join_nonempty(f"Exit code {code}", cause, streams, notice).rstrip(_BLANK_CHARS)
    running.output.discard()
    if utf16_length(streams) > ERROR_LIMIT + running.shell.error_slack or not running.shell.error_slack:
        message = truncate_middle(message, ERROR_LIMIT)
    is_search = found_nothing(running.request.command, code, streams.strip())
    return ToolFailure(message, kind="nothing_found" if is_search else None, exit_code=code)


def _background_output(
    running: _RunningCommand, messages: Messages, *, by_timeout: bool, output: str, cwd: Path
) -> Output:
    shell, request = running.shell, running.request
    template = messages.command_moved if by_timeout else messages.command_started
    seconds = max(1, math.floor(request.timeout_ms / 1000 + 0.5))
    notice = template.format(id=running.task_id, path=running.output_path, seconds=seconds)
    problem = running.output.spill_error
    if problem is not None:
        notice += f" (the output can no longer be written there: {problem.strerror or problem})"
    record = _build_record(running, output) | {"backgroundTaskId": running.task_id}
    if by_timeout and shell.moved_keeps_output:
        record |= {"timedOutAfterMs": request.timeout_ms}
    hint = ""
    if shell.moved_keeps_output and any(part.name == "cd" for part in find_simple_commands(request.command) or ()):
        hint = _BACKGROUND_FOLDER.format(cwd=cwd)
        record |= {"backgroundCwdHint": hint}
    return Output(_join_nonempty(output, notice, hint), record, flag=False, background_task=running.task_id)


def _build_record(
    running: _RunningCommand, stdout: str, *, meaning: str | None = None, notice: str = ""
) -> dict[str, object]:
    if notice and running.shell.expects_output:
        notice = "\n" + notice
    record: dict[str, object] = {"stdout": stdout, "stderr": notice, "interrupted": False, "isImage": False}
    if meaning is not None:
        record["returnCodeInterpretation"] = meaning
    if running.shell.expects_output:
        record["noOutputExpected"] = prints_nothing(running.request.command)
    if running.request.input.get("dangerouslyDisableSandbox") is True:
        record["dangerouslyDisableSandbox"] = True
    return record


def _cut_output(
    running: _RunningCommand, output: str, record: dict[str, object], folder: Path
) -> tuple[str, dict[str, object]]:
    """Truncate output that exceeds the limit or save it to a file, and return the model's text and the record."""
    limit, captured = running.request.output_limit, running.output
    if running.shell.overflow == "lines":
        removed = output.count("\n", limit) + 1
        if captured.dropped:  # some lines are not in memory
            removed += max(0, running.meter.line_count - output.count("\n") - 1)
        output = f"{output[:limit]}\n\n... [{removed} lines truncated] ..."
        return output, record | {"stdout": output}
    head = running.partial_output()
    path = folder / f"{running.task_id}.txt"  # this file outlives the command
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if captured.path is not None:
            shutil.move(captured.path, path)
        elif captured.dropped:
            raise captured.spill_error or OSError("it exceeded the memory limit")
        else:
            path.write_bytes(captured.data)
    except OSError as problem:
        content = f"{truncate_middle(output, limit)}\n[The full output could not be saved: {problem}]"
        return content, record | {"stdout": head}
    content = spill_notice(output, captured.total, path)
    if captured.path is not None and captured.spilled != captured.total:
        # The file reached its size limit, so it is not the full output.
        content = content.replace("Full output", f"The first {format_size(captured.spilled)}", 1)
    persisted = {"persistedOutputPath": str(path), "persistedOutputSize": captured.total}
    return content, record | {"stdout": head} | persisted


# Text


def _trim_output(output: str) -> str:
    """Strip leading blank lines and trailing whitespace. The first line keeps its indentation."""
    body = output.lstrip(_BLANK_CHARS)
    lead = output[: len(output) - len(body)]
    return (lead[lead.rfind("\n") + 1 :] + body).rstrip(_BLANK_CHARS)


def _join_nonempty(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error:
        return False
    return True
