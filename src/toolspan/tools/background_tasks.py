"""TaskOutput, TaskStop and KillShell: read the output of background tasks, and stop them.

The input is the id that Bash or Agent returned when the work moved to the background; `runtime/background.py` defines
the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.background import AgentTask, BackgroundTask
from toolspan.runtime.context import ToolContext
from toolspan.runtime.process import TerminationError
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool, ToolHints
from toolspan.tools.schemas import flag, number, object_schema, text

MAX_OUTPUT_CHARS = 30_000
"""The maximum number of output characters returned for a task. Longer output loses its beginning."""
_DEFAULT_WAIT_MS = 30_000
_OUTPUT_SCHEMA = object_schema(
    {
        "task_id": text("The id of the background task."),
        "block": flag("Wait until the task ends. If false, return at once.", default=True),
        "timeout": number(
            "The maximum time to wait, in milliseconds.", default=_DEFAULT_WAIT_MS, minimum=0, maximum=600_000
        ),
    },
    required=["task_id"],
)
_OUTPUT_FIELDS = ("task_id", "block", "timeout")
_STOP_SCHEMA = object_schema(
    {"task_id": text("The id of the background task to stop."), "shell_id": text("An older name of `task_id`.")}
)
_KILL_SCHEMA = object_schema({"shell_id": text("The id of the background task to stop.")}, required=["shell_id"])


def task_output_tool(profile: Profile) -> Tool:
    """Return the TaskOutput tool for a client version."""
    check = compile_checker(_OUTPUT_SCHEMA, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        if profile.tasks.loose_output:
            known = {key: value for key, value in raw_input.items() if key in _OUTPUT_FIELDS}
            raw_input = {"task_id": "", **known}
        return check(raw_input)

    return Tool(
        name="TaskOutput",
        description=(
            "Return the status and the output of a background task. By default, wait until the task ends or `timeout`"
            f" has passed. Of an output above {MAX_OUTPUT_CHARS:,} characters, only the end is returned."
        ),
        input_schema=_OUTPUT_SCHEMA,
        parse=parse,
        run=_show_output,
        validate=_validate_output,
        concurrent=True,
        read_only=True,
        hints=ToolHints("Output of a background command", read_only=True),
    )


def task_stop_tool(profile: Profile) -> Tool:
    """Return the TaskStop tool for a client version."""
    return Tool(
        name="TaskStop",
        description="Stop a background task and all processes that it started.",
        input_schema=_STOP_SCHEMA,
        parse=compile_checker(_STOP_SCHEMA, coerce=profile.availability.coerces),
        run=_stop_task,
        validate=_validate_stop,
        read_only=True,  # it stops only this session's work, so it needs no permission
        hints=ToolHints("Stop a background command", destructive=True, idempotent=True),
    )


def kill_shell_tool(profile: Profile) -> Tool:
    """Return the KillShell tool for an older client version."""
    return Tool(
        name="KillShell",
        description="Stop a background command and all processes that it started.",
        input_schema=_KILL_SCHEMA,
        parse=compile_checker(_KILL_SCHEMA, coerce=profile.availability.coerces),
        run=_kill_shell,
        validate=_validate_kill,
        concurrent=True,  # a call that waits for the task ends with it
        read_only=True,  # see TaskStop
        kind="shell",
        hints=ToolHints("Stop a background command", destructive=True, idempotent=True),
    )


async def _validate_output(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    if ctx.profile.tasks.loose_output and not value["task_id"]:
        return Refusal("Task ID is required", "invalid_input")
    return _missing_task_refusal(str(value["task_id"]), ctx)


def _missing_task_refusal(task_id: str, ctx: ToolContext) -> Refusal | None:
    is_missing = ctx.workspace.tasks.get(task_id) is None
    return Refusal(f"No task found with ID: {task_id}", "not_found") if is_missing else None


async def _show_output(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(str(value["task_id"]), ctx)
    block, timeout = value["block"] is True, value["timeout"]
    if block:
        milliseconds = timeout if isinstance(timeout, int | float) else _DEFAULT_WAIT_MS
        with anyio.move_on_after(milliseconds / 1000):
            try:
                await task.wait()
            except TerminationError as problem:
                raise ToolError(str(problem), kind="internal") from problem
    retrieval = "success"
    if task.status == "running":
        retrieval = "timeout" if block else "not_ready"
    if isinstance(task, AgentTask):
        report = task.report
        output = "" if report is None else "\n".join(filter(None, (report.text, report.error)))
    else:
        output = task.output.text
        if task.output.dropped or len(output) > MAX_OUTPUT_CHARS:
            output = f"[This is the end of the output. All of it is in {task.path}]\n{output[-MAX_OUTPUT_CHARS:]}"
        if task.sandbox_note:
            output = f"{output.rstrip()}\n{task.sandbox_note}".lstrip()
    # The oldest client has no exit code for a command that it killed.
    is_unknown = task.status == "killed" and not ctx.profile.shell.merges_streams
    exit_code = None if is_unknown else task.exit_code
    record = {
        "task_id": task.id,
        "task_type": task.type,
        "status": task.status,
        "description": task.description or task.command,
        "output": output,
        "exitCode": exit_code,
    }
    parts = [
        f"<retrieval_status>{retrieval}</retrieval_status>",
        f"<task_id>{task.id}</task_id>",
        f"<task_type>{task.type}</task_type>",
        f"<status>{task.status}</status>",
    ]
    if exit_code is not None:
        parts.append(f"<exit_code>{exit_code}</exit_code>")
    if output.strip():
        parts.append(f"<output>\n{output.rstrip()}\n</output>")
    return Output("\n\n".join(parts), {"retrieval_status": retrieval, "task": record})


def _require_task(task_id: str, ctx: ToolContext) -> BackgroundTask:
    task = ctx.workspace.tasks.get(task_id)
    if task is None:  # a sibling call stopped it
        raise ToolError(f"No task found with ID: {task_id}", kind="not_found")
    return task


def _requested_id(value: Mapping[str, object]) -> str | None:
    task_id = value.get("task_id", value.get("shell_id"))
    return task_id if isinstance(task_id, str) and task_id else None


async def _validate_stop(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    task_id = _requested_id(value)
    if task_id is None:
        return Refusal("Missing required parameter: task_id", "invalid_input")
    if refusal := _missing_task_refusal(task_id, ctx):
        return refusal
    status = _require_task(task_id, ctx).status
    if status == "running":
        return None
    if ctx.profile.tasks.forgets_ended:
        return Refusal(f"No task found with ID: {task_id}", "not_found")
    return Refusal(f"Task {task_id} is not running (status: {status})", "invalid_input")


async def _stop_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(_requested_id(value) or "", ctx)
    await _end_task(task)
    if ctx.profile.tasks.forgets_ended:
        ctx.workspace.tasks.forget(task.id)
    return _json_output(
        {
            "message": f"Successfully stopped task: {task.id} ({task.command})",
            "task_id": task.id,
            "task_type": task.type,
            "command": task.command,
        }
    )


async def _validate_kill(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    shell_id = str(value["shell_id"])
    task = ctx.workspace.tasks.get(shell_id)
    if task is None:
        return Refusal(f"No shell found with ID: {shell_id}", "not_found")
    if task.status == "running":
        return None
    message = f"Shell {shell_id} is not running, so cannot be killed (status: {task.status})"
    return Refusal(message, "invalid_input", wrapped=False)


async def _kill_shell(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(str(value["shell_id"]), ctx)
    await _end_task(task)
    message = f"Successfully killed shell: {task.id} ({task.command})"
    return _json_output({"message": message, "shell_id": task.id})


async def _end_task(task: BackgroundTask) -> None:
    task.reported = True  # the result of this call reports it
    try:
        await task.stop()
    except TerminationError as problem:
        raise ToolError(str(problem), kind="internal") from problem


def _json_output(record: dict[str, object]) -> Output:
    return Output(json.dumps(record, ensure_ascii=False, separators=(",", ":")), record)
