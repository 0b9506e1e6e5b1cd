"""Bash: run a command in a new shell.

In: a command, and how long it may take. Out: what it printed, or that it goes on in the background.
Of a shell, only the folder it ends in survives. Read `_run` first.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.background import CommandTask
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.output_limits import ERROR_LIMIT, format_size, spill_notice, truncate_middle
from toolspan.runtime.process import ExitStatus, StartError, TerminationError
from toolspan.runtime.profiles import Profile, ShellValues
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool, ToolFailure
from toolspan.shell.programs import find_simple_commands
from toolspan.shell.readonly import explain_exit_code, is_read_only, prints_nothing
from toolspan.tools.bash_process import (
    BashRequest,
    CwdFile,
    RunningCommand,
    decode_capture,
    format_duration,
    image_block,
    join_nonempty,
    launch_command,
    parse_bash_request,
    trim_end,
    trim_output,
    truncate_lines,
)


@dataclass(frozen=True, slots=True)
class CwdChange:
    """Where the next command starts, and what is said about that."""

    modify: Callable[[CallContext], CallContext] | None = None
    notice: str = ""


def follow_cwd(final_cwd: Path | None, cwd: Path, project: Path) -> CwdChange:
    """Follow the shell to the folder it ended in, unless it left the project."""
    if final_cwd is None:
        return CwdChange()
    project_root = Path(os.path.realpath(project))
    if not final_cwd.is_relative_to(project_root):
        return CwdChange(set_cwd(project), f"Shell cwd was reset to {project}")
    folder = project / final_cwd.relative_to(project_root)  # the project may be known by another name
    return CwdChange() if folder == cwd else CwdChange(set_cwd(folder))


def set_cwd(folder: Path) -> Callable[[CallContext], CallContext]:
    """The next command starts there."""
    return lambda context: replace(context, cwd=folder)


def finished_output(
    running: RunningCommand, exit: ExitStatus, cwd_change: CwdChange, formatter: BashFormatter
) -> Output | ToolFailure:
    """What is told of a command that came to its end."""
    code = _exit_code(exit)
    meaning = explain_exit_code(running.request.command, code) if code else None
    if code and meaning is None:
        return _failed_output(running, code, cwd_change, formatter.shell)
    return formatter.success_output(running, code, meaning, cwd_change)


def _exit_code(exit: ExitStatus) -> int:
    """The number clients show: a shell that was killed has none of its own."""
    if exit.signal is None:
        return exit.status
    return exit.status if exit.signal == signal.SIGTERM else 1


def _failed_output(running: RunningCommand, code: int, cwd_change: CwdChange, shell: ShellValues) -> ToolFailure:
    text = join_nonempty(f"Exit code {code}", _error_output(running, shell), cwd_change.notice)
    running.discard_output()
    return ToolFailure(truncate_middle(trim_end(text), ERROR_LIMIT), exit_code=code, modify=cwd_change.modify)


def _error_output(running: RunningCommand, shell: ShellValues) -> str:
    """Errors first where the streams are apart, as they came where they are not."""
    if shell.merges_streams:
        return decode_capture(running.output)[: running.request.output_limit]
    return trim_end(join_nonempty(decode_capture(running.child.stderr), decode_capture(running.child.stdout)))


def format_record(record: Mapping[str, object]) -> str:
    """What the model reads of a record that somebody else made."""
    return join_nonempty(trim_output(str(record.get("stdout", ""))), trim_end(str(record.get("stderr", ""))))


def timeout_failure(running: RunningCommand, shell: ShellValues) -> ToolFailure:
    """What is told of a command that was ended by its timeout."""
    after = format_duration(running.request.timeout_ms, tenths=shell.tenths)
    text = join_nonempty("Exit code 143", f"Command timed out after {after}", _error_output(running, shell))
    running.discard_output()
    return ToolFailure(
        truncate_middle(trim_end(text), ERROR_LIMIT), kind="command_timeout", timed_out=True, exit_code=143
    )


@dataclass(frozen=True, slots=True)
class BashFormatter:
    """Says what happened, in the words of one client version."""

    shell: ShellValues
    workspace: Workspace

    def success_output(self, running: RunningCommand, code: int, meaning: str | None, cwd_change: CwdChange) -> Output:
        """A command that did what it should."""
        text = self._combined_output(running)
        image = image_block(text)
        record = self._build_record(running, text, meaning=meaning, notice=cwd_change.notice)
        if image is not None:
            running.discard_output()
            return Output([image], record | {"isImage": True}, None, cwd_change.modify, exit_code=code)
        visible_text, record = self._fit_to_limit(running, text, record)
        visible_text = join_nonempty(visible_text, cwd_change.notice)
        if self.shell.exit_line:
            visible_text = f"{visible_text}\n\n[Exit code: {code}]".lstrip("\n")
        return Output(visible_text, record, flag=False, modify=cwd_change.modify, exit_code=code)

    def background_output(self, running: RunningCommand, *, by_timeout: bool, output: str = "") -> Output:
        """A command that goes on."""
        shell, request = self.shell, running.request
        template = (shell.moved_text if by_timeout else "") or shell.started_text
        text = template.format(id=running.task_id, path=running.output_path, seconds=f"{request.timeout_ms / 1000:g}")
        problem = running.output.spill_error
        if problem is not None:
            text += f" (nothing more can be written there: {problem.strerror or problem})"
        record = self._build_record(running, output) | {"backgroundTaskId": running.task_id}
        if by_timeout and shell.moved_keeps_output:
            record |= {"timedOutAfterMs": request.timeout_ms}
        if by_timeout and shell.records_auto_move:
            record |= {"assistantAutoBackgrounded": False}
        return Output(join_nonempty(output, text), record, flag=False, background_task=running.task_id)

    def partial_output(self, running: RunningCommand) -> str:
        """What a command has printed until now."""
        return trim_output(decode_capture(running.output)[: running.request.output_limit])

    def _combined_output(self, running: RunningCommand) -> str:
        if self.shell.merges_streams:
            return trim_output(decode_capture(running.output))
        child = running.child
        return join_nonempty(trim_output(decode_capture(child.stdout)), trim_output(decode_capture(child.stderr)))

    def _build_record(
        self, running: RunningCommand, stdout: str, *, meaning: str | None = None, notice: str = ""
    ) -> dict[str, object]:
        if notice and self.shell.notice_on_new_line:
            notice = "\n" + notice
        record: dict[str, object] = {"stdout": stdout, "stderr": notice, "interrupted": False, "isImage": False}
        if meaning is not None:
            record["returnCodeInterpretation"] = meaning
        if self.shell.expects_output:
            record["noOutputExpected"] = prints_nothing(running.request.command)
        return record

    def _fit_to_limit(
        self, running: RunningCommand, text: str, record: dict[str, object]
    ) -> tuple[str, dict[str, object]]:
        """What goes back of an output, and the record of it."""
        limit = running.request.output_limit
        if len(text) <= limit:
            running.discard_output()
            return text, record
        if self.shell.overflow == "lines":
            unread_lines = max(0, running.meter.line_count - text.count("\n") - 1)
            running.discard_output()
            text = truncate_lines(text, limit, unread_lines=unread_lines if running.output.dropped else 0)
            return text, record | {"stdout": text}
        head = trim_output(decode_capture(running.output)[:limit])
        try:
            path = self._persist_output(running)
        except OSError as problem:
            running.discard_output()
            return f"{truncate_middle(text, limit)}\n[Not kept whole: {problem}]", record | {"stdout": head}
        persisted: dict[str, object] = {"stdout": head}
        persisted |= {"persistedOutputPath": str(path), "persistedOutputSize": running.output.total}
        return _frame_output(running, text, path), record | persisted

    def _persist_output(self, running: RunningCommand) -> Path:
        """Put the whole output where it outlives the command.

        Raises:
            OSError: that cannot be done.
        """
        folder = self.workspace.results_folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{running.task_id}.txt"
        output = running.output
        if output.path is not None:
            shutil.move(output.path, path)
        elif output.dropped:
            raise output.spill_error or OSError("it is not in memory any more")
        else:
            path.write_bytes(output.data)
        return path


def _frame_output(running: RunningCommand, text: str, path: Path) -> str:
    """The beginning of an output in its frame; a file that stopped growing is not called full."""
    output = running.output
    framed = spill_notice(text, output.total, path)
    if output.path is None or output.spilled == output.total:
        return framed
    return framed.replace("Full output", f"The first {format_size(output.spilled)}", 1)


_DESCRIPTION = """\
Run a command in bash and return what it prints.

Every call is a new shell: the current folder is kept for the next call as long as it lies in the
project, variables and functions are not. Nothing can be typed into a command. A command that takes
longer than its timeout is moved to the background or ended."""

_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What bash is to run"},
        "timeout": {"type": "number", "description": "Milliseconds it may take: 120000 unless given, 600000 at most"},
        "description": {"type": "string", "description": "In a few words, what the command is for"},
        "run_in_background": {"type": "boolean", "description": "Start it and go on; its output goes to a file"},
        "dangerouslyDisableSandbox": {
            "type": "boolean",
            "description": "Run it outside the sandbox, where there is one",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

_GRACE_SECONDS = 0.2
"""Seconds that an interrupted command has to end by itself."""
_BACKGROUND_WAIT = 0.25
"""Seconds to wait for the output of a command that was sent to the background at once."""


def bash_tool(profile: Profile) -> Tool:
    """Bash as one client version has it."""

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output | ToolFailure:
        return await _run_bash(parse_bash_request(value, ctx.workspace.environment), ctx, profile.shell)

    return Tool(
        name="Bash",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=run,
        concurrent=_can_overlap,
        output_limit=None,
        render_result=format_record,
    )


def _can_overlap(value: Mapping[str, object]) -> bool:
    return not value.get("run_in_background") and is_read_only(str(value["command"]))


async def _run_bash(request: BashRequest, ctx: ToolContext, shell: ShellValues) -> Output | ToolFailure:
    cwd_file = CwdFile()
    try:
        running = await launch_command(request, cwd_file, ctx, shell)
        formatter = BashFormatter(shell, ctx.workspace)
        ctx.partial = lambda: formatter.partial_output(running)
        if request.background or request.timeout_ms < 0:
            return await _start_in_background(running, ctx, formatter)
        exit = await _wait_for_exit(running)
        if exit is None:
            return await _handle_timeout(running, ctx, formatter)
        return finished_output(running, exit, follow_cwd(cwd_file.read(), ctx.cwd, ctx.workspace.project), formatter)
    except StartError as problem:
        return _start_failure(problem, ctx)
    finally:
        cwd_file.close()


async def _wait_for_exit(running: RunningCommand) -> ExitStatus | None:
    """Wait for the end; None when the timeout came first."""
    exit = None
    try:
        with anyio.move_on_after(running.request.timeout_ms / 1000):
            exit = await running.child.wait()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _end_command(running, _GRACE_SECONDS)
        raise
    if exit is not None:
        running.output.finish()
    return exit


async def _end_command(running: RunningCommand, grace: float) -> None:
    with suppress(TerminationError):  # the custody tries again, and says so
        await running.child.terminate(grace)
    running.output.finish()


async def _handle_timeout(running: RunningCommand, ctx: ToolContext, formatter: BashFormatter) -> Output | ToolFailure:
    if not running.request.can_move or _is_killed_at_timeout(running.request.command, formatter.shell):
        with anyio.CancelScope(shield=True):
            await _end_command(running, _GRACE_SECONDS)
        return timeout_failure(running, formatter.shell)
    output = formatter.partial_output(running) if formatter.shell.moved_keeps_output else ""
    _leave_in_background(running, ctx)
    return formatter.background_output(running, by_timeout=True, output=output)


async def _start_in_background(running: RunningCommand, ctx: ToolContext, formatter: BashFormatter) -> Output:
    output = ""
    _leave_in_background(running, ctx)
    if not running.request.background and formatter.shell.merges_streams:
        with anyio.move_on_after(_BACKGROUND_WAIT):
            await running.child.wait()
            output = formatter.partial_output(running)
    return formatter.background_output(running, by_timeout=False, output=output)


def _is_killed_at_timeout(command: str, shell: ShellValues) -> bool:
    commands = find_simple_commands(command)
    return bool(commands) and not commands[0].variables and commands[0].name in shell.killed_at_timeout


def _leave_in_background(running: RunningCommand, ctx: ToolContext) -> None:
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
        )
    )


def _start_failure(problem: StartError, ctx: ToolContext) -> ToolFailure:
    cwd, project = ctx.cwd, ctx.workspace.project
    if cwd.is_dir():
        raise ToolError(f"The command was not run. {problem}", kind="internal")
    text = f"The command was not run: its folder {cwd} does not exist any more."
    if cwd == project or not project.is_dir():
        return ToolFailure(text, kind="not_found")
    text += f" The next one starts in {project}."
    return ToolFailure(text, kind="not_found", modify=set_cwd(project))
