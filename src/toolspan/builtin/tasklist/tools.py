"""The four tools of the task list.

In: what is to be noted, changed or shown. Out: the client's words. The list is the session's and
lies where clients keep it: `<home>/.claude/tasks/<session>/<n>.json`.
"""

from collections.abc import Callable, Mapping
from functools import partial

from anyio import to_thread

from toolspan.builtin.tasklist.store import STALE, Store, Task
from toolspan.builtin.tasklist.update import Updated, update
from toolspan.errors import ToolError
from toolspan.hooks.points import Occasion, Point
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Run, Tool
from toolspan.schema.check import checker

_TEXT = {"type": "string"}
_NAMES = {"type": "array", "items": _TEXT}
_NOTES = {"type": "object", "additionalProperties": {}}
_STATUS = {
    "anyOf": [
        {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        {"type": "string", "const": "deleted"},
    ],
    "description": "How it stands now; `deleted` takes it off the list",
}
_CREATE: dict[str, object] = {
    "type": "object",
    "properties": {
        "subject": {**_TEXT, "description": "What is to be done, in a few words"},
        "description": {**_TEXT, "description": "What is to be done"},
        "activeForm": {**_TEXT, "description": "The same, as it is said while it is being done"},
        "metadata": {**_NOTES, "description": "Anything else to keep with it"},
    },
    "required": ["subject", "description"],
    "additionalProperties": False,
}
_UPDATE: dict[str, object] = {
    "type": "object",
    "properties": {
        "taskId": {**_TEXT, "description": "The task's number"},
        "subject": {**_TEXT, "description": "A new subject"},
        "description": {**_TEXT, "description": "A new description"},
        "activeForm": {**_TEXT, "description": "A new form for while it is being done"},
        "status": _STATUS,
        "addBlocks": {**_NAMES, "description": "Tasks that are to wait for it"},
        "addBlockedBy": {**_NAMES, "description": "Tasks it is to wait for"},
        "owner": {**_TEXT, "description": "Who does it"},
        "metadata": {**_NOTES, "description": "Values to keep with it; null takes one away"},
    },
    "required": ["taskId"],
    "additionalProperties": False,
}
_GET: dict[str, object] = {
    "type": "object",
    "properties": {"taskId": {**_TEXT, "description": "The task's number"}},
    "required": ["taskId"],
    "additionalProperties": False,
}
_LIST: dict[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}
_NOT_FOUND = "Task not found"
_TRIES = 5


def task_create_tool(profile: Profile) -> Tool:
    """TaskCreate as a client version has it."""
    return Tool(
        name="TaskCreate",
        description="Put a task on the list of this session.",
        input_schema=_CREATE,
        parse=checker(_CREATE, coerce=profile.offer.coerces),
        run=_create,
        read_only=True,  # of the project: nobody has to consent to a note
    )


def task_update_tool(profile: Profile) -> Tool:
    """TaskUpdate as a client version has it."""
    return Tool(
        name="TaskUpdate",
        description="Change a task of the list: its state, its words, what it waits for.",
        input_schema=_UPDATE,
        parse=checker(_UPDATE, coerce=profile.offer.coerces),
        run=_update,
        read_only=True,
    )


def task_get_tool(profile: Profile) -> Tool:
    """TaskGet as a client version has it."""
    return Tool(
        name="TaskGet",
        description="Show one task of the list.",
        input_schema=_GET,
        parse=checker(_GET, coerce=profile.offer.coerces),
        run=_in_thread(_get),
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


def task_list_tool(profile: Profile) -> Tool:
    """TaskList as a client version has it."""
    return Tool(
        name="TaskList",
        description="Show all tasks of the list.",
        input_schema=_LIST,
        parse=checker(_LIST, coerce=profile.offer.coerces),
        run=_in_thread(_list),
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


def _in_thread(work: Callable[[Mapping[str, object], ToolContext], Output]) -> Run:
    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await to_thread.run_sync(partial(work, value, ctx))

    return run


def _store(ctx: ToolContext) -> Store:
    config = ctx.workspace.config
    if ctx.session_id is None or not config.is_absolute():
        return Store(ctx.workspace.folder / "task-list")
    return Store(config / "tasks" / ctx.session_id)


async def _create(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Put the task on the list; off again, if a hook objects to it."""
    new = {**value, "status": "pending", "blocks": [], "blockedBy": []}
    store = _store(ctx)
    task = await to_thread.run_sync(store.create, new)
    objection = await _objection("TaskCreated", task, ctx)
    if objection is not None:
        await to_thread.run_sync(_tried, {"taskId": task.id, "status": "deleted"}, store)
        raise ToolError(objection)
    record = {"id": task.id, "subject": task.subject}
    if ctx.profile.todo.tells_description:
        record["description"] = task.description
    text = f"Task #{task.id} created successfully: {task.subject}"
    return Output(text, {"task": record})


async def _update(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Change the task; not at all, if a hook objects to its being done."""
    task_id = str(value["taskId"])
    store = _store(ctx)
    if value.get("status") == "completed":
        task = await to_thread.run_sync(_task, task_id, store)
        if task is not None and task.status != "completed":
            objection = await _objection("TaskCompleted", task, ctx)
            if objection is not None:
                return Output(objection, _updated(task_id, (), error=objection))
    done = await to_thread.run_sync(_tried, value, store)
    if done is None:
        return Output(_NOT_FOUND, _updated(task_id, (), error=_NOT_FOUND))
    record = _updated(task_id, done.fields)
    if done.moved:
        record["statusChange"] = {"from": done.before, "to": done.after}
    return Output(f"Updated task #{task_id} {', '.join(done.fields)}", record)


async def _objection(point: Point, task: Task, ctx: ToolContext) -> str | None:
    """What hooks have against it."""
    fields = {
        "task_id": task.id,
        "task_subject": task.subject,
        "task_description": task.description,
    }
    after = await ctx.fire(Occasion(point=point, fields=fields))
    words = "\n".join(text.strip() for text in after.feedback)
    return f"{point} hook feedback:\n{words}" if after.feedback else None


def _task(task_id: str, store: Store) -> Task | None:
    return next((one for one in store.tasks() if one.id == task_id), None)


def _tried(value: Mapping[str, object], store: Store) -> Updated | None:
    """Make the change, again if somebody was faster; None: there is no such task."""
    for _ in range(_TRIES):
        try:
            with store.changing() as change:
                task = change.get(str(value["taskId"]))
                return None if task is None else update(change, task, value)
        except ToolError as error:
            if error.kind != STALE:
                raise
    raise ToolError("The task list is being changed by somebody else")


def _updated(
    task_id: str, fields: tuple[str, ...], error: str | None = None
) -> dict[str, object]:  # fmt: skip
    record: dict[str, object] = {
        "success": error is None,
        "taskId": task_id,
        "updatedFields": list(fields),
    }
    return record if error is None else {**record, "error": error}


def _get(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _task(str(value["taskId"]), _store(ctx))
    if task is None:
        return Output(_NOT_FOUND, {"task": None})
    lines = [
        f"Task #{task.id}: {task.subject}",
        f"Status: {task.status}",
        f"Description: {task.description}",
    ]
    if task.blocked_by:
        lines.append(f"Blocked by: {_numbers(task.blocked_by)}")
    if task.blocks:
        lines.append(f"Blocks: {_numbers(task.blocks)}")
    record = {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "status": task.status,
        "blocks": task.blocks,
        "blockedBy": task.blocked_by,
    }
    return Output("\n".join(lines), {"task": record})


def _list(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    tasks = _store(ctx).tasks()
    open_ones = {task.id for task in tasks if task.status != "completed"}
    lines, records = [], []
    for task in tasks:
        waits = [one for one in task.blocked_by if one in open_ones]
        lines.append(_line(task, waits))
        record: dict[str, object] = {
            "id": task.id,
            "subject": task.subject,
            "status": task.status,
        }
        if task.owner:
            record["owner"] = task.owner
        records.append({**record, "blockedBy": waits})
    return Output("\n".join(lines) or "No tasks found", {"tasks": records})


def _line(task: Task, waits: list[str]) -> str:
    owner = f" ({task.owner})" if task.owner else ""
    blocked = f" [blocked by {_numbers(waits)}]" if waits else ""
    return f"#{task.id} [{task.status}] {task.subject}{owner}{blocked}"


def _numbers(ids: list[str]) -> str:
    return ", ".join(f"#{one}" for one in ids)
