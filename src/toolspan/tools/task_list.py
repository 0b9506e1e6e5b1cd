"""The task list of a session (TaskCreate, TaskUpdate, TaskGet and TaskList) and its todo list (TodoWrite, TodoRead).

The tools come first, then `TaskStore`, which stores the list as clients do: one file per task,
`<home>/.claude/tasks/<session>/<n>.json`. Several processes may change it at the same time.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import CallContext, ToolContext, Workspace
from toolspan.runtime.hooks.events import HookPoint, SessionHookEvent
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, RunFunction, Tool
from toolspan.tools.files.atomic_replace import atomic_replace, make_folders
from toolspan.tools.files.paths import replace_surrogates, wrap_os_error
from toolspan.tools.files.safe_read import FileVersion, read_file, stat_path
from toolspan.tools.schemas import TEXTS, Schema, object_schema, text

_METADATA = {"type": "object", "additionalProperties": {}}
_CREATE_SCHEMA = object_schema(
    {
        "subject": text("The title of the task, in a few words."),
        "description": text("What must be done, in detail."),
        "activeForm": text("The title as shown while the task is in progress, such as `Running the tests`."),
        "metadata": {**_METADATA, "description": "Values to store with the task."},
    },
    required=["subject", "description"],
)
_UPDATE_SCHEMA = object_schema(
    {
        "taskId": text("The number of the task."),
        "subject": text("The new title."),
        "description": text("The new description."),
        "activeForm": text("The new title as shown while the task is in progress."),
        "status": {
            "anyOf": [
                {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                {"type": "string", "const": "deleted"},
            ],
            "description": "The new status: `pending`, `in_progress` or `completed`. `deleted` removes the task.",
        },
        "addBlocks": {**TEXTS, "description": "The numbers of tasks that must wait for this one."},
        "addBlockedBy": {**TEXTS, "description": "The numbers of tasks for which this one must wait."},
        "owner": text("The name of the person or agent who does the task."),
        "metadata": {**_METADATA, "description": "Values to store with the task. Null removes a value."},
    },
    required=["taskId"],
)
_GET_SCHEMA = object_schema({"taskId": text("The number of the task.")}, required=["taskId"])
_LIST_SCHEMA = object_schema({})
_CREATE_ALIASES = {"subject": ("title", "name"), "description": ("content",)}
_LIST_FIELDS = frozenset({"tasks", "todos"})
"""Fields for several tasks. Inputs with one of them are not repaired."""
_AGENT_FIELDS = frozenset({"prompt", "subagent_type"})
"""Fields of the Agent tool. Inputs with one of them are repaired only if subject and description are complete."""
_NOT_FOUND = "Task not found"
_BUSY_MESSAGE = "The task was not changed, because another process is changing the list. Try again."
_MAX_TRIES = 5
_MAX_TASK_BYTES = 16 << 20
_LOCK_TIMEOUT = 10.0
_LOCK_POLL_SECONDS = 0.01
_TEXT_FIELDS = ("subject", "description", "activeForm", "owner")
_KEY_ORDER = (
    "id", "subject", "description", "activeForm", "owner", "status", "blocks", "blockedBy", "metadata",
)  # fmt: skip
"""The order in which clients write a task's keys. Other keys follow."""


def task_create_tool(profile: Profile) -> Tool:
    """Return the TaskCreate tool for a client version."""
    description = (
        "Add a task to the task list of this session and return its number. Use the list for work of several steps."
    )
    return _task_tool(profile, "TaskCreate", description, _CREATE_SCHEMA, _create_task)


def task_update_tool(profile: Profile) -> Tool:
    """Return the TaskUpdate tool for a client version."""
    description = (
        "Change a task: its status, its texts, or the tasks that it waits for. Set it to `in_progress` when you start"
        " it and to `completed` when it is done."
    )
    return _task_tool(profile, "TaskUpdate", description, _UPDATE_SCHEMA, _update_task)


def task_get_tool(profile: Profile) -> Tool:
    """Return the TaskGet tool for a client version."""
    description = "Return one task with its description, its status and the tasks that it waits for or blocks."
    return _task_tool(profile, "TaskGet", description, _GET_SCHEMA, _get_task, changes=False)


def task_list_tool(profile: Profile) -> Tool:
    """Return the TaskList tool for a client version."""
    description = (
        "Return all tasks, each with its number, status, title and owner and the open tasks that it waits for."
    )
    return _task_tool(profile, "TaskList", description, _LIST_SCHEMA, _list_tasks, changes=False)


def _task_tool(
    profile: Profile, name: str, description: str, schema: Schema, run: RunFunction, *, changes: bool = True
) -> Tool:
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        return check(_repair_input(name, raw_input))

    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        parse=parse,
        run=run,
        concurrent=not changes,
        read_only=True,  # none of them changes the project, so they need no permission
        idempotent=not changes,
        kind="plan",
    )


def _repair_input(name: str, raw_input: Mapping[str, object]) -> Mapping[str, object]:
    """Return the input as the client interprets it: a new task may have unknown fields and needs only one text."""
    given = dict(raw_input)
    if name == "TaskUpdate":
        other = next((key for key in ("id", "task_id") if key in given), None)
        if other and "taskId" not in given:
            given = {"taskId" if key == other else key: item for key, item in given.items()}
    if name in ("TaskCreate", "TaskUpdate") and "active_form" in given and "activeForm" not in given:
        given["activeForm"] = given.pop("active_form")
    return _repair_new_task(given) if name == "TaskCreate" else given


def _repair_new_task(given: dict[str, object]) -> dict[str, object]:
    """Fill in the subject and the description of a new task, and drop unknown fields if both are texts."""
    texts = {key: item for key, item in given.items() if isinstance(item, str) and item.strip()}
    is_complete = {"subject", "description"} <= texts.keys()
    if not _LIST_FIELDS.isdisjoint(given) or (not is_complete and not _AGENT_FIELDS.isdisjoint(given)):
        return given
    for name, others in _CREATE_ALIASES.items():
        alias = next((texts[key] for key in others if key in texts), None)
        if name not in given and alias is not None:
            texts[name] = alias
    words = [texts[name] for name in _CREATE_ALIASES if name in texts]
    if not words or any(name in given and name not in texts for name in _CREATE_ALIASES):
        return given
    known = {key: item for key, item in given.items() if key in ("activeForm", "metadata") or item is None}
    if not isinstance(known.get("activeForm", ""), str):
        del known["activeForm"]
    return {**{name: texts.get(name, words[0]) for name in _CREATE_ALIASES}, **known}


def task_store(workspace: Workspace) -> TaskStore:
    """Return the task list of a session."""
    config = workspace.config
    if workspace.session_id is None or not config.is_absolute():
        return TaskStore(workspace.folder / "task-list")
    return TaskStore(config / "tasks" / workspace.session_id)


async def _create_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Create the task, and delete it again if a hook blocks it."""
    fields = {**value, "status": "pending", "blocks": [], "blockedBy": []}
    store = task_store(ctx.workspace)
    task = await to_thread.run_sync(store.create, fields)
    objection = await _hook_objection("TaskCreated", task, ctx)
    if objection is not None:
        await to_thread.run_sync(_update_with_retries, {"taskId": task.id, "status": "deleted"}, store)
        raise ToolError(objection)
    record = {"id": task.id, "subject": task.subject, "description": task.description}
    return Output(f"Task #{task.id} created successfully: {task.subject}", {"task": record})


async def _update_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Update the task unless a hook blocks its completion."""
    task_id = str(value["taskId"])
    store = task_store(ctx.workspace)
    error, update = _NOT_FOUND, None
    task = await to_thread.run_sync(store.find_task, task_id)
    if task is not None:
        completes = value.get("status") == "completed" != task.status
        objection = await _hook_objection("TaskCompleted", task, ctx) if completes else None
        if objection is not None:
            error = objection
        else:
            update = await to_thread.run_sync(_update_with_retries, value, store)
    if update is None:
        return Output(error, {"success": False, "taskId": task_id, "updatedFields": [], "error": error})
    old_status, updated_fields = update
    record: dict[str, object] = {"success": True, "taskId": task_id, "updatedFields": updated_fields}
    if old_status != (new_status := value.get("status", old_status)):
        record["statusChange"] = {"from": old_status, "to": new_status}
    return Output(f"Updated task #{task_id} {', '.join(updated_fields)}", record)


async def _hook_objection(point: HookPoint, task: _TaskEntry, ctx: ToolContext) -> str | None:
    fields = {"task_id": task.id, "task_subject": task.subject, "task_description": task.description}
    effects = await ctx.fire(SessionHookEvent(point=point, fields=fields))
    feedback = "\n".join(message.strip() for message in effects.feedback)
    return f"{point} hook feedback:\n{feedback}" if effects.feedback else None


def _update_with_retries(value: Mapping[str, object], store: TaskStore) -> tuple[str, list[str]] | None:
    """Update the task and return its old status and the changed fields, or None if it does not exist.

    If another process changes the task at the same time, the update is retried.
    """
    for _ in range(_MAX_TRIES):
        try:
            with store.transaction() as transaction:
                task = transaction.get(str(value["taskId"]))
                return None if task is None else (task.status, apply_task_update(transaction, task, value))
        except ToolError as error:
            if error.kind != "stale_file":
                raise
    raise ToolError(_BUSY_MESSAGE)


def apply_task_update(transaction: _TaskTransaction, task: _TaskEntry, value: Mapping[str, object]) -> list[str]:
    """Apply the input of TaskUpdate to a task, and return the names of the changed fields."""
    status = str(value.get("status", task.status))
    if status == "deleted":
        transaction.delete(task)
        return ["deleted"]
    changes = {name: value[name] for name in _TEXT_FIELDS if name in value and value[name] != task.fields.get(name)}
    if isinstance(metadata := value.get("metadata"), Mapping):
        old_metadata = task.fields.get("metadata")
        merged = {**(old_metadata if isinstance(old_metadata, Mapping) else {}), **metadata}
        removed = {key for key, item in metadata.items() if item is None}
        changes["metadata"] = {key: item for key, item in merged.items() if key not in removed}
    if status != task.status:
        changes["status"] = status
    if changes:
        transaction.put(task.with_fields(changes))
    # A task that does not exist counts as a change, though nothing is stored.
    new_blocks = [other_id for other_id in _id_list(value.get("addBlocks")) if other_id not in task.blocks]
    new_blockers = [other_id for other_id in _id_list(value.get("addBlockedBy")) if other_id not in task.blocked_by]
    for other_id in new_blocks:
        transaction.add_block(task.id, other_id)
    for other_id in new_blockers:
        transaction.add_block(other_id, task.id)
    return [*changes, *(["blocks"] if new_blocks else []), *(["blockedBy"] if new_blockers else [])]


async def _get_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = await to_thread.run_sync(task_store(ctx.workspace).find_task, str(value["taskId"]))
    if task is None:
        return Output(_NOT_FOUND, {"task": None})
    lines = [f"Task #{task.id}: {task.subject}", f"Status: {task.status}", f"Description: {task.description}"]
    if task.blocked_by:
        lines.append(f"Blocked by: {_format_ids(task.blocked_by)}")
    if task.blocks:
        lines.append(f"Blocks: {_format_ids(task.blocks)}")
    record = {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "status": task.status,
        "blocks": task.blocks,
        "blockedBy": task.blocked_by,
    }
    return Output("\n".join(lines), {"task": record})


async def _list_tasks(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    tasks = await to_thread.run_sync(task_store(ctx.workspace).read_tasks)
    open_ids = {task.id for task in tasks if task.status != "completed"}
    lines, records = [], []
    for task in tasks:
        blockers = [task_id for task_id in task.blocked_by if task_id in open_ids]
        owner = f" ({task.owner})" if task.owner else ""
        blocked = f" [blocked by {_format_ids(blockers)}]" if blockers else ""
        lines.append(f"#{task.id} [{task.status}] {task.subject}{owner}{blocked}")
        record: dict[str, object] = {"id": task.id, "subject": task.subject, "status": task.status}
        if isinstance(task.fields.get("owner"), str):
            record["owner"] = task.fields["owner"]
        records.append({**record, "blockedBy": blockers})
    return Output("\n".join(lines) or "No tasks found", {"tasks": records})


def _format_ids(ids: list[str]) -> str:
    return ", ".join(f"#{task_id}" for task_id in ids)


# The store


@dataclass(frozen=True, slots=True)
class _TaskEntry:
    fields: Mapping[str, object]
    """The content of the task's file, which may include keys written by other clients."""
    version: FileVersion | None = field(default=None, compare=False)
    """The version of the file when it was read, or None if it has not been written yet."""

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def subject(self) -> str:
        return str(self.fields.get("subject", ""))

    @property
    def description(self) -> str:
        return str(self.fields.get("description", ""))

    @property
    def status(self) -> str:
        return str(self.fields.get("status", "pending"))

    @property
    def owner(self) -> str | None:
        owner = self.fields.get("owner")
        return owner if isinstance(owner, str) and owner else None

    @property
    def blocks(self) -> list[str]:
        return _id_list(self.fields.get("blocks"))

    @property
    def blocked_by(self) -> list[str]:
        return _id_list(self.fields.get("blockedBy"))

    def with_fields(self, changes: Mapping[str, object]) -> _TaskEntry:
        return replace(self, fields={**self.fields, **changes})


def _id_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


class TaskStore:
    """The tasks of one session, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_tasks(self) -> list[_TaskEntry]:
        """Return all tasks ordered by number, skipping files that do not contain a task."""
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise wrap_os_error(error, "scandir", self._folder) from error
        tasks: list[_TaskEntry] = []
        for number in sorted(int(path.stem) for path in paths if path.stem.isascii() and path.stem.isdigit()):
            with suppress(ToolError, ValueError, RecursionError):
                loaded = read_file(self._folder / f"{number}.json", _MAX_TASK_BYTES)
                fields = json.loads(loaded.data)
                if isinstance(fields, dict):
                    tasks.append(_TaskEntry({**fields, "id": str(number)}, loaded.version))
        return tasks

    def find_task(self, task_id: str) -> _TaskEntry | None:
        """Return the task with this id, or None if there is none."""
        return next((task for task in self.read_tasks() if task.id == task_id), None)

    def create(self, fields: Mapping[str, object]) -> _TaskEntry:
        """Add a task with the next number. Numbers of deleted tasks are not reused.

        Raise ToolError if the task cannot be written.
        """
        with self._hold_lock():
            number = 1 + max([self._highest_number(), *(int(task.id) for task in self.read_tasks())])
            while True:
                try:
                    return self.write_task(_TaskEntry({**fields, "id": str(number)}))
                except ToolError as error:
                    if error.kind != "stale_file":
                        raise
                    number += 1  # a process that ignores the lock used this number

    @contextmanager
    def transaction(self) -> Iterator[_TaskTransaction]:
        """Lock the store and yield its tasks for reading and changing.

        Raise ToolError if the lock cannot be acquired or a file cannot be written. The kind is `stale_file` if a
        process that ignores the lock changed the file.
        """
        with self._hold_lock():
            yield _TaskTransaction(self, self.read_tasks())

    def write_task(self, task: _TaskEntry) -> _TaskEntry:
        """Write a task's file if it has not changed since it was read. The caller must hold the lock."""
        ordered = {key: task.fields[key] for key in _KEY_ORDER if key in task.fields}
        content = json.dumps({**ordered, **task.fields}, indent=2, ensure_ascii=False)
        data = replace_surrogates(content).encode()
        return replace(task, version=atomic_replace(self._folder / f"{task.id}.json", data, task.version))

    def delete_task(self, task: _TaskEntry) -> None:
        """Delete a task's file and remember its number. The caller must hold the lock."""
        path = self._folder / ".highwatermark"
        highest = max(self._highest_number(), int(task.id))
        stat_result = stat_path(path)
        atomic_replace(path, str(highest).encode(), None if stat_result is None else FileVersion.from_stat(stat_result))
        (self._folder / f"{task.id}.json").unlink(missing_ok=True)

    def _highest_number(self) -> int:
        with suppress(OSError, ValueError):
            return int((self._folder / ".highwatermark").read_text(encoding="utf-8"))
        return 0

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        make_folders(self._folder)
        path = self._folder / ".lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise wrap_os_error(error, "open", path) from error
        deadline = time.monotonic() + _LOCK_TIMEOUT
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ToolError(_BUSY_MESSAGE) from None
                    time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(lock)  # releases the lock


class _TaskTransaction:
    def __init__(self, store: TaskStore, tasks: Iterable[_TaskEntry]) -> None:
        self._store = store
        self._tasks = {task.id: task for task in tasks}

    def get(self, task_id: str) -> _TaskEntry | None:
        return self._tasks.get(task_id)

    def put(self, task: _TaskEntry) -> None:
        if task != self._tasks[task.id]:
            self._tasks[task.id] = self._store.write_task(task)

    def delete(self, task: _TaskEntry) -> None:
        self._store.delete_task(task)
        del self._tasks[task.id]
        for other in tuple(self._tasks.values()):
            if task.id in (*other.blocks, *other.blocked_by):
                links = {
                    "blocks": [task_id for task_id in other.blocks if task_id != task.id],
                    "blockedBy": [task_id for task_id in other.blocked_by if task_id != task.id],
                }
                self.put(other.with_fields(links))

    def add_block(self, blocker_id: str, blocked_id: str) -> bool:
        """Make one task wait for another, and return whether the link is new."""
        blocker, blocked = self.get(blocker_id), self.get(blocked_id)
        if blocker is None or blocked is None or blocked_id in blocker.blocks:
            return False
        self.put(blocker.with_fields({"blocks": [*blocker.blocks, blocked_id]}))
        blocked = self.get(blocked_id) or blocked  # a task may block itself
        self.put(blocked.with_fields({"blockedBy": [*blocked.blocked_by, blocker_id]}))
        return True


# The todo list: it belongs to the conversation and is stored in its context; the oldest clients also keep a copy in a
# file. Each write replaces the whole list. A list in which every item is completed is stored as an empty list.

Todo = dict[str, object]

_CONTEXT_KEY = "toolspan.todos"
_READ_SCHEMA = object_schema({})
_WRITTEN_MESSAGE = (
    "Todos have been modified successfully. Ensure that you continue to use the todo list to track"
    " your progress. Please proceed with the current tasks if applicable"
)


def todo_write_tool(profile: Profile) -> Tool:
    """Return the TodoWrite tool for a client version."""
    item = {
        "content": text("What must be done.", minLength=1, errorMessage="Content cannot be empty"),
        "status": text("The status of the item.", enum=["pending", "in_progress", "completed"]),
        "activeForm": text(
            "The text as shown while the item is in progress, such as `Running the tests`.",
            minLength=1,
            errorMessage="Active form cannot be empty",
        ),
    }
    required = recorded_keys = ["content", "status", "activeForm"]
    if profile.tasks.loose_items:
        item |= {"id": text("An id for the item."), "priority": text("The priority of the item.")}
        required = ["content", "status"]
        recorded_keys = ["id", "content", "status", "priority", "activeForm"]
    todos = {
        "type": "array",
        "description": "The complete new list, including the items that did not change.",
        "items": {"type": "object", "properties": item, "required": required},
    }
    schema = object_schema({"todos": todos}, required=["todos"])
    check = compile_checker(schema, coerce=profile.availability.coerces)

    def parse(raw_input: Mapping[str, object]) -> Valid | Invalid:
        checked = check(raw_input)
        if isinstance(checked, Invalid):
            return checked
        items = checked.value["todos"]
        value = {"todos": [{key: item[key] for key in recorded_keys if key in item} for item in items]}
        return Valid(value, value)

    return Tool(
        name="TodoWrite",
        description=(
            "Replace the todo list of this session. Use it for work of several steps: keep one item"
            " `in_progress`, and mark each item as `completed` when it is done."
        ),
        input_schema=schema,
        parse=parse,
        run=_write_todos,
        read_only=True,
        kind="plan",
        slow_after=2.0,
        replayable=True,
    )


def todo_read_tool(profile: Profile) -> Tool:
    """Return the TodoRead tool for a client version."""
    return Tool(
        name="TodoRead",
        description="Return the todo list of this session as JSON.",
        input_schema=_READ_SCHEMA,
        parse=compile_checker(_READ_SCHEMA, coerce=profile.availability.coerces),
        run=_read_todos,
        read_only=True,
        idempotent=True,
        kind="plan",
        slow_after=2.0,
        replayable=True,
    )


async def _write_todos(value: Mapping[str, object], ctx: ToolContext) -> Output:
    raw_todos = value["todos"]
    todos = [dict(item) for item in raw_todos] if isinstance(raw_todos, list) else []
    values = ctx.profile.tasks
    open_todos = [] if all(item["status"] == "completed" for item in todos) else todos
    if values.stores_todos:
        await to_thread.run_sync(_save_copy, open_todos, ctx)
    record: dict[str, object] = {"oldTodos": _current_todos(ctx.context), "newTodos": todos}

    def store_todos(context: CallContext) -> CallContext:
        return replace(context, values={**context.values, _CONTEXT_KEY: tuple(open_todos)})

    return Output(_WRITTEN_MESSAGE, record, modify=store_todos)


async def _read_todos(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    todos = _current_todos(ctx.context)
    content = json.dumps(todos, ensure_ascii=False) if todos else "The todo list is empty."
    return Output(content, {"todos": todos})


def _current_todos(context: CallContext) -> list[Todo]:
    stored = context.values.get(_CONTEXT_KEY)
    return [dict(item) for item in stored] if isinstance(stored, tuple) else []


def _save_copy(todos: list[Todo], ctx: ToolContext) -> None:
    """Write the copy of the list that older clients keep."""
    config, session = ctx.workspace.config, ctx.session_id
    if session is None or not config.is_absolute():
        return
    path = config / "todos" / f"{session}-agent-{ctx.agent_id or session}.json"
    data = json.dumps(todos, indent=2, ensure_ascii=False).encode("utf-8", "replace")
    with suppress(ToolError):  # the copy is optional
        stat_result = stat_path(path)
        atomic_replace(path, data, None if stat_result is None else FileVersion.from_stat(stat_result))
