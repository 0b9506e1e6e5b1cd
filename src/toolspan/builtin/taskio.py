"""TaskOutput, TaskStop and KillShell: look at work in the background, and end it.

In: the id that Bash gave when the work went to the background. Out: how the task stands and what it
has printed, or that it was ended. What a task is, is known to `run/tasks.py`.
"""

import json
from collections.abc import Mapping
from typing import Literal

import anyio

from toolspan.errors import ToolError
from toolspan.process import NotEnded
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tasks import AgentTask, Work
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker
from toolspan.schema.issue import Invalid, Valid

MOST_OUTPUT = 30_000
"""Characters of a task's output that go back; of a longer one, the last."""
LONGEST_WAIT = 600_000
"""Milliseconds."""
_WAIT = 30_000

Retrieval = Literal["success", "not_ready", "timeout"]


def task_output_tool(profile: Profile) -> Tool:
    """TaskOutput as a client version has it."""
    schema = _output_schema()
    check = checker(schema, coerce=profile.offer.coerces)

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        return check(_renamed(given) if profile.tasks.old_input else given)

    return Tool(
        name="TaskOutput",
        description=(
            "Show how a task in the background stands and what it has printed. With `block` it"
            " waits for the end, `timeout` milliseconds at most; without, it looks and returns."
        ),
        input_schema=schema,
        parse=parse,
        run=_show,
        validate=_find_shown,
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
        parse=checker(schema, coerce=profile.offer.coerces),
        run=_stop,
        validate=_find_stopped,
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
        parse=checker(schema, coerce=profile.offer.coerces),
        run=_kill,
        validate=_find_killed,
        read_only=True,  # as TaskStop
    )


def _output_schema() -> dict[str, object]:
    return {
        "type": "object",
        "properties": {
            "task_id": {"type": "string", "description": "The task to look at"},
            "block": {
                "type": "boolean",
                "default": True,
                "description": "Wait until it has ended",
            },
            "timeout": {
                "type": "number",
                "default": _WAIT,
                "minimum": 0,
                "maximum": LONGEST_WAIT,
                "description": "Milliseconds to wait at most",
            },
        },
        "required": ["task_id"],
        "additionalProperties": False,
    }


def _renamed(given: Mapping[str, object]) -> Mapping[str, object]:
    """The input with today's name for the task, and without what only the older tool had."""
    if "bash_id" not in given or "task_id" in given:
        return given
    rest = {key: value for key, value in given.items() if key not in ("bash_id", "filter")}
    return {"task_id": given["bash_id"], "block": False, **rest}


# Looking


async def _find_shown(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    return _no_task(str(value["task_id"]), ctx)


def _no_task(task_id: str, ctx: ToolContext) -> Refusal | None:
    if ctx.workspace.tasks.get(task_id) is not None:
        return None
    return Refusal(f"No task found with ID: {task_id}", "not_found")


async def _show(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _task(str(value["task_id"]), ctx)
    block = value["block"] is True
    if block:
        await _await_end(task, value["timeout"])
    status: Retrieval = "success"
    if task.status == "running":
        status = "timeout" if block else "not_ready"
    output = _printed(task)
    record = {
        "task_id": task.id,
        "task_type": task.type,
        "status": task.status,
        "description": task.description or task.command,
        "output": output,
        "exitCode": task.exit_code,
    }
    return Output(_tags(task, status, output), {"retrieval_status": status, "task": record})


async def _await_end(task: Work, timeout: object) -> None:
    milliseconds = timeout if isinstance(timeout, int | float) else _WAIT
    with anyio.move_on_after(milliseconds / 1000):
        try:
            await task.wait()
        except NotEnded as problem:
            raise ToolError(str(problem), kind="internal") from problem


def _task(task_id: str, ctx: ToolContext) -> Work:
    task = ctx.workspace.tasks.get(task_id)
    if task is None:  # a sibling ended it meanwhile
        raise ToolError(f"No task found with ID: {task_id}", kind="not_found")
    return task


def _printed(task: Work) -> str:
    if isinstance(task, AgentTask):
        report = task.report
        return "" if report is None else "\n".join(filter(None, (report.text, report.error)))
    text = task.printed.data.decode("utf-8", "replace")
    if task.printed.dropped == 0 and len(text) <= MOST_OUTPUT:
        return text
    return f"[The end of a longer output, which is in {task.path}]\n{text[-MOST_OUTPUT:]}"


def _tags(task: Work, status: Retrieval, output: str) -> str:
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


def _named(value: Mapping[str, object]) -> str | None:
    named = value.get("task_id") or value.get("shell_id")
    return named if isinstance(named, str) else None


async def _find_stopped(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    named = _named(value)
    if named is None:
        return Refusal("Missing required parameter: task_id", "invalid_input")
    return _no_task(named, ctx) or _not_running(named, ctx)


def _not_running(task_id: str, ctx: ToolContext) -> Refusal | None:
    task = _task(task_id, ctx)
    if task.status == "running":
        return None
    return Refusal(f"Task {task_id} is not running (status: {task.status})", "invalid_input")


async def _stop(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _task(_named(value) or "", ctx)
    await _end(task)
    if ctx.profile.tasks.forgets_stopped:
        ctx.workspace.tasks.forget(task.id)
    return _told({
        "message": f"Successfully stopped task: {task.id} ({task.command})",
        "task_id": task.id,
        "task_type": task.type,
        "command": task.command,
    })  # fmt: skip


async def _find_killed(value: Mapping[str, object], ctx: ToolContext) -> Refusal | None:
    named = str(value["shell_id"])
    task = ctx.workspace.tasks.get(named)
    if task is None:
        return Refusal(f"No shell found with ID: {named}", "not_found")
    if task.status == "running":
        return None
    return Refusal(
        f"Shell {named} is not running, so cannot be killed (status: {task.status})",
        "invalid_input",
    )


async def _kill(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _task(str(value["shell_id"]), ctx)
    await _end(task)
    return _told({
        "message": f"Successfully killed shell: {task.id} ({task.command})",
        "shell_id": task.id,
    })  # fmt: skip


async def _end(task: Work) -> None:
    task.told = True  # by the result of this call
    try:
        await task.stop()
    except NotEnded as problem:
        raise ToolError(str(problem), kind="internal") from problem


def _told(record: dict[str, object]) -> Output:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return Output(text, record)
