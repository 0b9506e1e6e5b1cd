"""Bash: run a command in a new shell.

Start at `_run_bash`. The result is the command's output, or a notice that the command continues in
the background. Only the current folder of the shell's state is kept after the call.
`bash_process.py` starts the command.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.background import CommandTask
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.output_limits import ERROR_LIMIT, format_size, spill_notice, truncate_middle
from toolspan.runtime.process import Capture, ExitStatus, StartError, TerminationError
from toolspan.runtime.profiles import Profile, ShellValues
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, Tool, ToolFailure, ToolHints, ToolSubject
from toolspan.shell.exit_status import found_nothing
from toolspan.shell.programs import find_simple_commands
from toolspan.shell.readonly import explain_exit_code, is_read_only, prints_nothing
from toolspan.tools.bash_process import BashRequest, CwdFile, RunningCommand, start_command
from toolspan.tools.schemas import FLAG, TEXT, flag, number, object_schema, result_schema, text

_DESCRIPTION = """\
Run a command in bash and return what it prints.

Every call is a new shell: the current folder is kept for the next call as long as it lies in the
project, variables and functions are not. Nothing can be typed into a command. A command that takes
longer than its timeout is moved to the background or ended."""
_SCHEMA = object_schema(
    {
        "command": text("What bash is to run"),
        "timeout": number("Milliseconds it may take: 120000 unless given, 600000 at most"),
        "description": text("In a few words, what the command is for"),
        "run_in_background": flag("Start it and go on; its output goes to a file"),
        "dangerouslyDisableSandbox": flag("Run it outside the sandbox, where there is one"),
    },
    required=["command"],
)
_GRACE_SECONDS = 0.2
"""The number of seconds that a terminated command has to exit."""
_BACKGROUND_WAIT = 0.25
"""The number of seconds to wait for output when a command starts in the background."""
_BLANK_CHARS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_IMAGE_DATA_URI = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


def bash_tool(profile: Profile) -> Tool:
    """Return the Bash tool for a client version."""

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output | ToolFailure:
        return await _run_bash(BashRequest.parse(value, ctx.workspace.environment), ctx, profile.shell)

    return Tool(
        name="Bash",
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        parse=compile_checker(_SCHEMA, coerce=profile.availability.coerces),
        run=run,
        concurrent=_can_overlap,
        output_limit=None,
        render_result=_render_record,
        kind="shell",
        subject=ToolSubject("command", "command"),
        hints=ToolHints("Run a command", destructive=True, open_world=True),
        output_schema=result_schema({"stdout": TEXT, "stderr": TEXT, "interrupted": FLAG}, backgroundTaskId=TEXT),
        replayable=True,
    )


def _can_overlap(value: Mapping[str, object]) -> bool:
    return not value.get("run_in_background") and is_read_only(str(value["command"]))


def _render_record(record: Mapping[str, object]) -> str:
    """Format a record replaced by a hook, for the model."""
    return _join_nonempty(_trim_output(str(record.get("stdout", ""))), _trim_end(str(record.get("stderr", ""))))


async def _run_bash(request: BashRequest, ctx: ToolContext, shell: ShellValues) -> Output | ToolFailure:
    cwd_file = CwdFile()
    try:
        running = await start_command(request, cwd_file, ctx, shell)
        ctx.partial = lambda: _partial_output(running)
        if request.background or request.timeout_ms < 0:
            return await _start_in_background(running, ctx)
        exit = await _wait_for_exit(running)
        if exit is None:
            return await _handle_timeout(running, ctx)
        return _finished_output(running, exit, _follow_cwd(cwd_file.read(), ctx), ctx.workspace)
    except StartError as problem:
        return _start_failure(problem, ctx)
    finally:
        cwd_file.close()


async def _start_in_background(running: RunningCommand, ctx: ToolContext) -> Output:
    output = ""
    _leave_in_background(running, ctx)
    if not running.request.background and running.shell.merges_streams:
        with anyio.move_on_after(_BACKGROUND_WAIT):
            await running.child.wait()
            output = _partial_output(running)
    return _background_output(running, by_timeout=False, output=output)


async def _wait_for_exit(running: RunningCommand) -> ExitStatus | None:
    """Wait for the command to exit, or return None if its timeout expires first."""
    exit = None
    try:
        with anyio.move_on_after(running.request.timeout_ms / 1000):
            exit = await running.child.wait()
    except anyio.get_cancelled_exc_class():
        await _terminate(running)
        raise
    if exit is not None:
        running.output.finish()
    return exit


async def _handle_timeout(running: RunningCommand, ctx: ToolContext) -> Output | ToolFailure:
    if running.request.can_move and not _is_killed_at_timeout(running):
        output = _partial_output(running) if running.shell.moved_keeps_output else ""
        _leave_in_background(running, ctx)
        return _background_output(running, by_timeout=True, output=output)
    await _terminate(running)
    duration = _format_duration(running.request.timeout_ms, tenths=running.shell.tenths)
    message = _join_nonempty("Exit code 143", f"Command timed out after {duration}", _failed_streams(running))
    running.discard_output()
    return ToolFailure(
        truncate_middle(_trim_end(message), ERROR_LIMIT), kind="command_timeout", timed_out=True, exit_code=143
    )


def _is_killed_at_timeout(running: RunningCommand) -> bool:
    commands = find_simple_commands(running.request.command)
    return bool(commands) and not commands[0].variables and commands[0].name in running.shell.killed_at_timeout


async def _terminate(running: RunningCommand) -> None:
    with anyio.CancelScope(shield=True):
        with suppress(TerminationError):  # the supervisor tries again and reports the error
            await running.child.terminate(_GRACE_SECONDS)
        running.output.finish()


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


# The current folder


class _CwdChange(NamedTuple):
    modify: Callable[[CallContext], CallContext] | None = None
    notice: str = ""


def _follow_cwd(final_cwd: Path | None, ctx: ToolContext) -> _CwdChange:
    """Make the shell's final folder the current one unless it is outside the project."""
    project = ctx.workspace.project
    if final_cwd is None:
        return _CwdChange()
    project_root = Path(os.path.realpath(project))
    if not final_cwd.is_relative_to(project_root):
        return _CwdChange(_set_cwd(project), f"Shell cwd was reset to {project}")
    folder = project / final_cwd.relative_to(project_root)  # the project path may contain symbolic links
    return _CwdChange() if folder == ctx.cwd else _CwdChange(_set_cwd(folder))


def _set_cwd(folder: Path) -> Callable[[CallContext], CallContext]:
    return lambda context: replace(context, cwd=folder)


def _start_failure(problem: StartError, ctx: ToolContext) -> ToolFailure:
    cwd, project = ctx.cwd, ctx.workspace.project
    if cwd.is_dir():
        raise ToolError(f"The command was not run. {problem}", kind="internal")
    message = f"The command was not run: its folder {cwd} does not exist any more."
    if cwd == project or not project.is_dir():
        return ToolFailure(message, kind="not_found")
    return ToolFailure(f"{message} The next one starts in {project}.", kind="not_found", modify=_set_cwd(project))


# The result


def _finished_output(
    running: RunningCommand, exit: ExitStatus, cwd_change: _CwdChange, workspace: Workspace
) -> Output | ToolFailure:
    # Clients show exit code 1 for a shell that was killed, except by SIGTERM.
    code = exit.status if exit.signal in (None, signal.SIGTERM) else 1
    meaning = explain_exit_code(running.request.command, code) if code else None
    if code and meaning is None:
        streams = _failed_streams(running)
        message = _trim_end(_join_nonempty(f"Exit code {code}", streams, cwd_change.notice))
        running.discard_output()
        return ToolFailure(
            truncate_middle(message, ERROR_LIMIT),
            kind="nothing_found" if found_nothing(running.request.command, code, streams.strip()) else None,
            exit_code=code,
            modify=cwd_change.modify,
        )
    output = _combined_output(running)
    record = _build_record(running, output, meaning=meaning, notice=cwd_change.notice)
    image = _image_block(output)
    if image is not None:
        running.discard_output()
        return Output([image], record | {"isImage": True}, None, cwd_change.modify, exit_code=code)
    content, record = _fit_to_limit(running, output, record, workspace)
    content = _join_nonempty(content, cwd_change.notice)
    if running.shell.exit_line:
        content = f"{content}\n\n[Exit code: {code}]".lstrip("\n")
    return Output(content, record, flag=False, modify=cwd_change.modify, exit_code=code)


def _background_output(running: RunningCommand, *, by_timeout: bool, output: str) -> Output:
    shell, request = running.shell, running.request
    template = (shell.moved_text if by_timeout else "") or shell.started_text
    notice = template.format(id=running.task_id, path=running.output_path, seconds=f"{request.timeout_ms / 1000:g}")
    problem = running.output.spill_error
    if problem is not None:
        notice += f" (nothing more can be written there: {problem.strerror or problem})"
    record = _build_record(running, output) | {"backgroundTaskId": running.task_id}
    if by_timeout and shell.moved_keeps_output:
        record |= {"timedOutAfterMs": request.timeout_ms}
    if by_timeout and shell.records_auto_move:
        record |= {"assistantAutoBackgrounded": False}
    return Output(_join_nonempty(output, notice), record, flag=False, background_task=running.task_id)


def _build_record(
    running: RunningCommand, stdout: str, *, meaning: str | None = None, notice: str = ""
) -> dict[str, object]:
    if notice and running.shell.notice_on_new_line:
        notice = "\n" + notice
    record: dict[str, object] = {"stdout": stdout, "stderr": notice, "interrupted": False, "isImage": False}
    if meaning is not None:
        record["returnCodeInterpretation"] = meaning
    if running.shell.expects_output:
        record["noOutputExpected"] = prints_nothing(running.request.command)
    return record


def _fit_to_limit(
    running: RunningCommand, output: str, record: dict[str, object], workspace: Workspace
) -> tuple[str, dict[str, object]]:
    """Return the model's text and the record. Output over the limit is truncated or saved to a file."""
    limit = running.request.output_limit
    if len(output) <= limit:
        running.discard_output()
        return output, record
    if running.shell.overflow == "lines":
        removed = output.count("\n", limit) + 1
        if running.output.dropped:  # some lines were not even kept in memory
            removed += max(0, running.meter.line_count - output.count("\n") - 1)
        running.discard_output()
        output = f"{output[:limit]}\n\n... [{removed} lines truncated] ..."
        return output, record | {"stdout": output}
    head = _partial_output(running)
    try:
        path = _persist_output(running, workspace.results_folder)
    except OSError as problem:
        running.discard_output()
        return f"{truncate_middle(output, limit)}\n[Not kept whole: {problem}]", record | {"stdout": head}
    content = spill_notice(output, running.output.total, path)
    if running.output.path is not None and running.output.spilled != running.output.total:
        # The file reached its size limit, so it is not the full output.
        content = content.replace("Full output", f"The first {format_size(running.output.spilled)}", 1)
    persisted = {"persistedOutputPath": str(path), "persistedOutputSize": running.output.total}
    return content, record | {"stdout": head} | persisted


def _persist_output(running: RunningCommand, folder: Path) -> Path:
    """Save the whole output to a file that outlives the command. Raise `OSError` if that fails."""
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


# Text


def _combined_output(running: RunningCommand) -> str:
    if running.shell.merges_streams:
        return _trim_output(_decode(running.output))
    return _join_nonempty(_trim_output(_decode(running.child.stdout)), _trim_output(_decode(running.child.stderr)))


def _failed_streams(running: RunningCommand) -> str:
    """Return a failed command's output, with stderr first if the streams are separate."""
    if running.shell.merges_streams:
        return _decode(running.output)[: running.request.output_limit]
    return _trim_end(_join_nonempty(_decode(running.child.stderr), _decode(running.child.stdout)))


def _partial_output(running: RunningCommand) -> str:
    return _trim_output(_decode(running.output)[: running.request.output_limit])


def _decode(capture: Capture) -> str:
    return capture.data.decode("utf-8", "replace")


def _trim_output(output: str) -> str:
    """Strip leading blank lines and trailing whitespace. The first line keeps its indentation."""
    body = output.lstrip(_BLANK_CHARS)
    lead = output[: len(output) - len(body)]
    return _trim_end(lead[lead.rfind("\n") + 1 :] + body)


def _trim_end(output: str) -> str:
    return output.rstrip(_BLANK_CHARS)


def _join_nonempty(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _image_block(output: str) -> dict[str, object] | None:
    """Return the image that the command printed as a data URI, or None for any other output."""
    match = _IMAGE_DATA_URI.fullmatch(output)
    if match is None:
        return None
    try:
        base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": match[1], "data": match[2]}}


def _format_duration(milliseconds: float, *, tenths: bool) -> str:
    """Format a duration as `1s` or `2m 0s`, or as `2m 0.0s` with `tenths`."""
    minutes, rest = divmod(milliseconds / 1000, 60)
    hours, minutes = divmod(int(minutes), 60)
    seconds = f"{rest:.1f}s" if tenths else f"{int(rest)}s"
    if hours:
        return f"{hours}h {minutes}m {seconds}"
    return f"{minutes}m {seconds}" if minutes else seconds
