"""TaskOutput, TaskStop and KillShell: look at work in the background, and end it.

In: the id that Bash gave when the work went to the background. Out: how the task stands and what it
has printed, or that it was ended. What a task is, is known to `run/tasks.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

import anyio

from toolspan.errors import ToolError
from toolspan.runtime.background import AgentTask, BackgroundTask
from toolspan.runtime.context import ToolContext
from toolspan.runtime.process import TerminationError
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Refusal, Tool

MAX_OUTPUT_CHARS = 30_000
"""Characters of a task's output that go back; of a longer one, the last."""
MAX_WAIT_MS = 600_000
"""Milliseconds."""
_DEFAULT_WAIT_MS = 30_000

RetrievalStatus = Literal["success", "not_ready", "timeout"]


def task_output_tool(profile: Profile) -> Tool:
    """TaskOutput as a client version has it."""
    schema = _output_schema()
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        return check(_rename_old_input(raw_input) if profile.tasks.old_input else raw_input)

    return Tool(
        name="TaskOutput",
        description=(
            "Show how a task in the background stands and what it has printed. With `block` it"
            " waits for the end, `timeout` milliseconds at most; without, it looks and returns."
        ),
        input_schema=schema,
        parse=parse,
        run=_show_output,
        validate=_validate_output,
        concurrent=True,
        read_only=True,
    )


def task_stop_tool(profile: Profile) -> Tool:
    """TaskStop as a client version has it."""
    schema: Mapping[str, object] = {
        "type": "object",
        "properties": {
            "task_id": {"type": "string", "description": "The task to end"},
            "shell_id": {"type": "string", "description": "An older name for task_id"},
        },
        "additionalProperties": False,
    }
    return Tool(
        name="TaskStop",
        description="End a task in the background, with everything it started.",
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=_stop_task,
        validate=_validate_stop,
        read_only=True,  # it ends only what this session began: nobody has to be asked
    )


def kill_shell_tool(profile: Profile) -> Tool:
    """KillShell as older clients have it."""
    schema: Mapping[str, object] = {
        "type": "object",
        "properties": {"shell_id": {"type": "string", "description": "The task to end"}},
        "required": ["shell_id"],
        "additionalProperties": False,
    }
    return Tool(
        name="KillShell",
        description="End a command in the background, with everything it started.",
        input_schema=schema,
        parse=compile_checker(schema, coerce=profile.availability.coerces),
        run=_kill_shell,
        validate=_validate_kill,
        read_only=True,  # as TaskStop
    )


def _output_schema() -> dict[str, object]:
    return {
        "type": "object",
        "properties": {
            "task_id": {"type": "string", "description": "The task to look at"},
            "block": {"type": "boolean", "default": True, "description": "Wait until it has ended"},
            "timeout": {
                "type": "number",
                "default": _DEFAULT_WAIT_MS,
                "minimum": 0,
                "maximum": MAX_WAIT_MS,
                "description": "Milliseconds to wait at most",
            },
        },
        "required": ["task_id"],
        "additionalProperties": False,
    }


def _rename_old_input(raw_input: Mapping[str, object]) -> Mapping[str, object]:
    """The input with today's name for the task, and without what only the older tool had."""
    if "bash_id" not in raw_input or "task_id" in raw_input:
        return raw_input
    rest = {key: value for key, value in raw_input.items() if key not in ("bash_id", "filter")}
    return {"task_id": raw_input["bash_id"], "block": False, **rest}


# Looking


async def _validate_output(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return _missing_task_refusal(str(value["task_id"]), ctx)


def _missing_task_refusal(task_id: str, ctx: ToolContext) -> Refusal | None:
    if ctx.workspace.tasks.get(task_id) is not None:
        return None
    return Refusal(f"No task found with ID: {task_id}", "not_found")


async def _show_output(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(str(value["task_id"]), ctx)
    block = value["block"] is True
    if block:
        await _await_end(task, value["timeout"])
    status: RetrievalStatus = "success"
    if task.status == "running":
        status = "timeout" if block else "not_ready"
    output = _task_output(task)
    record = {
        "task_id": task.id,
        "task_type": task.type,
        "status": task.status,
        "description": task.description or task.command,
        "output": output,
        "exitCode": task.exit_code,
    }
    return Output(_format_tags(task, status, output), {"retrieval_status": status, "task": record})


async def _await_end(task: BackgroundTask, timeout: object) -> None:
    milliseconds = timeout if isinstance(timeout, int | float) else _DEFAULT_WAIT_MS
    with anyio.move_on_after(milliseconds / 1000):
        try:
            await task.wait()
        except TerminationError as problem:
            raise ToolError(str(problem), kind="internal") from problem


def _require_task(task_id: str, ctx: ToolContext) -> BackgroundTask:
    task = ctx.workspace.tasks.get(task_id)
    if task is None:  # a sibling ended it meanwhile
        raise ToolError(f"No task found with ID: {task_id}", kind="not_found")
    return task


def _task_output(task: BackgroundTask) -> str:
    if isinstance(task, AgentTask):
        report = task.report
        return "" if report is None else "\n".join(filter(None, (report.text, report.error)))
    text = task.output.data.decode("utf-8", "replace")
    if task.output.dropped == 0 and len(text) <= MAX_OUTPUT_CHARS:
        return text
    return f"[The end of a longer output, which is in {task.path}]\n{text[-MAX_OUTPUT_CHARS:]}"


def _format_tags(task: BackgroundTask, status: RetrievalStatus, output: str) -> str:
    parts = [
        f"<retrieval_status>{status}</retrieval_status>",
        f"<task_id>{task.id}</task_id>",
        f"<task_type>{task.type}</task_type>",
        f"<status>{task.status}</status>",
    ]
    if task.exit_code is not None:
        parts.append(f"<exit_code>{task.exit_code}</exit_code>")
    if output.strip():
        parts.append(f"<output>\n{output.rstrip()}\n</output>")
    return "\n\n".join(parts)


# Ending


def _requested_id(value: Mapping[str, object]) -> str | None:
    task_id = value.get("task_id") or value.get("shell_id")
    return task_id if isinstance(task_id, str) else None


async def _validate_stop(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    task_id = _requested_id(value)
    if task_id is None:
        return Refusal("Missing required parameter: task_id", "invalid_input")
    return _missing_task_refusal(task_id, ctx) or _not_running_refusal(task_id, ctx)


def _not_running_refusal(task_id: str, ctx: ToolContext) -> Refusal | None:
    task = _require_task(task_id, ctx)
    if task.status == "running":
        return None
    return Refusal(f"Task {task_id} is not running (status: {task.status})", "invalid_input")


async def _stop_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(_requested_id(value) or "", ctx)
    await _end_task(task)
    if ctx.profile.tasks.forgets_stopped:
        ctx.workspace.tasks.forget(task.id)
    return _json_output({
        "message": f"Successfully stopped task: {task.id} ({task.command})",
        "task_id": task.id,
        "task_type": task.type,
        "command": task.command,
    })  # fmt: skip


async def _validate_kill(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    shell_id = str(value["shell_id"])
    task = ctx.workspace.tasks.get(shell_id)
    if task is None:
        return Refusal(f"No shell found with ID: {shell_id}", "not_found")
    if task.status == "running":
        return None
    return Refusal(f"Shell {shell_id} is not running, so cannot be killed (status: {task.status})", "invalid_input")


async def _kill_shell(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _require_task(str(value["shell_id"]), ctx)
    await _end_task(task)
    return _json_output({
        "message": f"Successfully killed shell: {task.id} ({task.command})",
        "shell_id": task.id,
    })  # fmt: skip


async def _end_task(task: BackgroundTask) -> None:
    task.reported = True  # by the result of this call
    try:
        await task.stop()
    except TerminationError as problem:
        raise ToolError(str(problem), kind="internal") from problem


def _json_output(record: dict[str, object]) -> Output:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return Output(text, record)
