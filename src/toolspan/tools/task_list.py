"""The four tools of the task list.

In: what is to be noted, changed or shown. Out: the client's words. The list is the session's and
lies where clients keep it: `<home>/.claude/tasks/<session>/<n>.json`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.files.atomic_replace import atomic_replace, make_folders
from toolspan.files.paths import os_error_message, replace_surrogates
from toolspan.files.safe_read import FileVersion, read_file, stat_path
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks.events import HookPoint, SessionHookEvent
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.tool import Output, RunFunction, Tool

TaskFields = Mapping[str, object]

_KEY_ORDER = (
    "id", "subject", "description", "activeForm", "owner", "status", "blocks", "blockedBy",
    "metadata",
)  # fmt: skip
"""In which clients write the keys; others follow."""
STALE_KIND = "stale_file"
_MAX_TASK_BYTES = 16 << 20
_LOCK_TIMEOUT = 10.0
"""Seconds to wait for another writer."""
_LOCK_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task."""

    fields: TaskFields
    """Everything in its file."""
    version: FileVersion | None = field(default=None, compare=False)
    """How its file looked when it was read; None: it has none yet."""

    @property
    def id(self) -> str:
        """Its number, as text."""
        return str(self.fields["id"])

    @property
    def subject(self) -> str:
        """What it is about, in short."""
        return str(self.fields.get("subject", ""))

    @property
    def description(self) -> str:
        """What it is about."""
        return str(self.fields.get("description", ""))

    @property
    def status(self) -> str:
        """How it stands."""
        return str(self.fields.get("status", "pending"))

    @property
    def owner(self) -> str | None:
        """Who does it."""
        owner = self.fields.get("owner")
        return owner if isinstance(owner, str) and owner else None

    @property
    def blocks(self) -> list[str]:
        """The tasks that wait for it."""
        return _id_list(self.fields.get("blocks"))

    @property
    def blocked_by(self) -> list[str]:
        """The tasks it waits for."""
        return _id_list(self.fields.get("blockedBy"))

    def with_fields(self, changes: TaskFields) -> TaskEntry:
        """The same task with some fields changed."""
        return replace(self, fields={**self.fields, **changes})

    def without_link(self, task_id: str) -> TaskEntry:
        """The same task, not hanging on another one any more."""
        return self.with_fields({
            "blocks": [other_id for other_id in self.blocks if other_id != task_id],
            "blockedBy": [other_id for other_id in self.blocked_by if other_id != task_id],
        })  # fmt: skip

    def to_json(self) -> bytes:
        """Its file's content."""
        ordered = {key: self.fields[key] for key in _KEY_ORDER if key in self.fields}
        fields = {**ordered, **self.fields}
        return replace_surrogates(json.dumps(fields, indent=2, ensure_ascii=False)).encode()


def _id_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


class TaskStore:
    """The tasks of one session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_tasks(self) -> list[TaskEntry]:
        """All tasks, in the order of their numbers; files that hold none are passed over."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise os_error_message(error, "scandir", self._folder) from error
        numbers = sorted(int(stem) for name in names if (stem := _file_number(name)))
        return [task for number in numbers if (task := self._read_task(number))]

    def create(self, fields: TaskFields) -> TaskEntry:
        """Add a task, with the next number.

        Raises:
            ToolError: it cannot be written.
        """
        with self._hold_lock():
            number = 1 + max([self._highest_number(), *(int(task.id) for task in self.read_tasks())])
            while True:
                try:
                    return self.write_task(TaskEntry({**fields, "id": str(number)}))
                except ToolError as error:
                    if error.kind != STALE_KIND:
                        raise
                    number += 1  # somebody who does not care for the lock has this one

    @contextmanager
    def transaction(self) -> Iterator[TaskTransaction]:
        """The tasks, to be looked at and changed while nobody else does.

        Raises:
            ToolError: somebody else does not come to an end, or a file cannot be written; of kind
                `STALE` when somebody who does not care for the lock was faster.
        """
        with self._hold_lock():
            yield TaskTransaction(self, self.read_tasks())

    def write_task(self, task: TaskEntry) -> TaskEntry:
        """Write a task's file, if it is as it was when it was read; for `Change`."""
        return replace(task, version=atomic_replace(self._task_path(int(task.id)), task.to_json(), task.version))

    def delete_task(self, task: TaskEntry) -> None:
        """Delete a task's file, but not its number; for `Change`."""
        path = self._folder / ".highwatermark"
        highest = max(self._highest_number(), int(task.id))
        stat_result = stat_path(path)
        atomic_replace(path, str(highest).encode(), None if stat_result is None else FileVersion.from_stat(stat_result))
        self._task_path(int(task.id)).unlink(missing_ok=True)

    def _read_task(self, number: int) -> TaskEntry | None:
        with suppress(ToolError, ValueError, RecursionError):
            loaded = read_file(self._task_path(number), _MAX_TASK_BYTES)
            fields = json.loads(loaded.data)
            if isinstance(fields, dict):
                return TaskEntry({**fields, "id": str(number)}, loaded.version)
        return None

    def _highest_number(self) -> int:
        with suppress(OSError, ValueError):
            return int((self._folder / ".highwatermark").read_text(encoding="utf-8"))
        return 0

    def _task_path(self, number: int) -> Path:
        return self._folder / f"{number}.json"

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        make_folders(self._folder)
        path = self._folder / ".lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise os_error_message(error, "open", path) from error
        try:
            _acquire_lock(lock)
            yield
        finally:
            os.close(lock)  # which also lets go of it


def _acquire_lock(lock: int) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ToolError("The task list is being changed by somebody else") from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _file_number(name: str) -> str | None:
    """The number in a task's file name."""
    stem, _, ending = name.partition(".")
    return stem if ending == "json" and stem.isascii() and stem.isdigit() else None


class TaskTransaction:
    """The tasks while nobody else changes them."""

    def __init__(self, store: TaskStore, tasks: Iterable[TaskEntry]) -> None:
        self._store = store
        self._tasks = {task.id: task for task in tasks}

    def get(self, task_id: str) -> TaskEntry | None:
        """The task of this number."""
        return self._tasks.get(task_id)

    def put(self, task: TaskEntry) -> None:
        """Keep a task as it is now."""
        if task != self._tasks[task.id]:
            self._tasks[task.id] = self._store.write_task(task)

    def delete(self, task: TaskEntry) -> None:
        """Delete a task; no other one hangs on it any more."""
        self._store.delete_task(task)
        del self._tasks[task.id]
        for other in tuple(self._tasks.values()):
            if task.id in (*other.blocks, *other.blocked_by):
                self.put(other.without_link(task.id))


_TEXT_FIELDS = ("subject", "description", "activeForm", "owner")


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """What an update did."""

    fields: tuple[str, ...]
    old_status: str
    """The status the task had."""
    new_status: str

    @property
    def has_new_status(self) -> bool:
        """The status changed."""
        return self.old_status != self.new_status


def apply_task_update(transaction: TaskTransaction, task: TaskEntry, value: Mapping[str, object]) -> UpdateOutcome:
    """Change a task as asked."""
    status = str(value.get("status", task.status))
    if status == "deleted":
        transaction.delete(task)
        return UpdateOutcome(("deleted",), task.status, "deleted")
    changes: dict[str, object] = {
        name: value[name] for name in _TEXT_FIELDS if name in value and value[name] != task.fields.get(name)
    }
    if isinstance(metadata := value.get("metadata"), Mapping):
        changes["metadata"] = _merge_metadata(task.fields.get("metadata"), metadata)
    if status != task.status:
        changes["status"] = status
    if changes:
        transaction.put(task.with_fields(changes))
    links = [name for name, key in (("blocks", "addBlocks"), ("blockedBy", "addBlockedBy"))
             if _link_tasks(transaction, task.id, value.get(key), back=name == "blockedBy")]  # fmt: skip
    return UpdateOutcome((*changes, *links), task.status, status)


def _merge_metadata(old: object, new: Mapping[str, object]) -> dict[str, object]:
    """The old values with the new ones; null takes one away."""
    merged = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _link_tasks(transaction: TaskTransaction, task_id: str, others: object, *, back: bool) -> bool:
    """Let tasks wait for this one, or, `back`, this one for them; whether anything was new."""
    has_new_link = False
    for other in others if isinstance(others, list) else ():
        blocker_id, blocked_id = (str(other), task_id) if back else (task_id, str(other))
        has_new_link = _add_block(transaction, blocker_id, blocked_id) or has_new_link
    return has_new_link


def _add_block(transaction: TaskTransaction, blocker_id: str, blocked_id: str) -> bool:
    blocker, blocked = transaction.get(blocker_id), transaction.get(blocked_id)
    if blocker is None or blocked is None or blocked_id in blocker.blocks:
        return False
    transaction.put(blocker.with_fields({"blocks": [*blocker.blocks, blocked_id]}))
    blocked = transaction.get(blocked_id) or blocked  # a task may block itself
    transaction.put(blocked.with_fields({"blockedBy": [*blocked.blocked_by, blocker_id]}))
    return True


_TEXT_SCHEMA = {"type": "string"}
_IDS_SCHEMA = {"type": "array", "items": _TEXT_SCHEMA}
_METADATA_SCHEMA = {"type": "object", "additionalProperties": {}}
_STATUS_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        {"type": "string", "const": "deleted"},
    ],
    "description": "How it stands now; `deleted` takes it off the list",
}
_CREATE_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "subject": {**_TEXT_SCHEMA, "description": "What is to be done, in a few words"},
        "description": {**_TEXT_SCHEMA, "description": "What is to be done"},
        "activeForm": {**_TEXT_SCHEMA, "description": "The same, as it is said while it is being done"},
        "metadata": {**_METADATA_SCHEMA, "description": "Anything else to keep with it"},
    },
    "required": ["subject", "description"],
    "additionalProperties": False,
}
_UPDATE_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "taskId": {**_TEXT_SCHEMA, "description": "The task's number"},
        "subject": {**_TEXT_SCHEMA, "description": "A new subject"},
        "description": {**_TEXT_SCHEMA, "description": "A new description"},
        "activeForm": {**_TEXT_SCHEMA, "description": "A new form for while it is being done"},
        "status": _STATUS_SCHEMA,
        "addBlocks": {**_IDS_SCHEMA, "description": "Tasks that are to wait for it"},
        "addBlockedBy": {**_IDS_SCHEMA, "description": "Tasks it is to wait for"},
        "owner": {**_TEXT_SCHEMA, "description": "Who does it"},
        "metadata": {**_METADATA_SCHEMA, "description": "Values to keep with it; null takes one away"},
    },
    "required": ["taskId"],
    "additionalProperties": False,
}
_GET_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"taskId": {**_TEXT_SCHEMA, "description": "The task's number"}},
    "required": ["taskId"],
    "additionalProperties": False,
}
_LIST_SCHEMA: dict[str, object] = {"type": "object", "properties": {}, "additionalProperties": False}
_NOT_FOUND = "Task not found"
_MAX_TRIES = 5


def task_create_tool(profile: Profile) -> Tool:
    """TaskCreate as a client version has it."""
    return Tool(
        name="TaskCreate",
        description="Put a task on the list of this session.",
        input_schema=_CREATE_SCHEMA,
        parse=compile_checker(_CREATE_SCHEMA, coerce=profile.availability.coerces),
        run=_create_task,
        read_only=True,  # of the project: nobody has to consent to a note
    )


def task_update_tool(profile: Profile) -> Tool:
    """TaskUpdate as a client version has it."""
    return Tool(
        name="TaskUpdate",
        description="Change a task of the list: its state, its words, what it waits for.",
        input_schema=_UPDATE_SCHEMA,
        parse=compile_checker(_UPDATE_SCHEMA, coerce=profile.availability.coerces),
        run=_update_task,
        read_only=True,
    )


def task_get_tool(profile: Profile) -> Tool:
    """TaskGet as a client version has it."""
    return Tool(
        name="TaskGet",
        description="Show one task of the list.",
        input_schema=_GET_SCHEMA,
        parse=compile_checker(_GET_SCHEMA, coerce=profile.availability.coerces),
        run=_run_in_thread(_get_task),
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


def task_list_tool(profile: Profile) -> Tool:
    """TaskList as a client version has it."""
    return Tool(
        name="TaskList",
        description="Show all tasks of the list.",
        input_schema=_LIST_SCHEMA,
        parse=compile_checker(_LIST_SCHEMA, coerce=profile.availability.coerces),
        run=_run_in_thread(_list_tasks),
        concurrent=True,
        read_only=True,
        idempotent=True,
    )


def _run_in_thread(work: Callable[[Mapping[str, object], ToolContext], Output]) -> RunFunction:
    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output:
        return await to_thread.run_sync(partial(work, value, ctx))

    return run


def _task_store(ctx: ToolContext) -> TaskStore:
    config = ctx.workspace.config
    if ctx.session_id is None or not config.is_absolute():
        return TaskStore(ctx.workspace.folder / "task-list")
    return TaskStore(config / "tasks" / ctx.session_id)


async def _create_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Put the task on the list; off again, if a hook objects to it."""
    fields = {**value, "status": "pending", "blocks": [], "blockedBy": []}
    store = _task_store(ctx)
    task = await to_thread.run_sync(store.create, fields)
    objection = await _hook_objection("TaskCreated", task, ctx)
    if objection is not None:
        await to_thread.run_sync(_update_with_retries, {"taskId": task.id, "status": "deleted"}, store)
        raise ToolError(objection)
    record = {"id": task.id, "subject": task.subject}
    if ctx.profile.todo.records_description:
        record["description"] = task.description
    text = f"Task #{task.id} created successfully: {task.subject}"
    return Output(text, {"task": record})


async def _update_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    """Change the task; not at all, if a hook objects to its being done."""
    task_id = str(value["taskId"])
    store = _task_store(ctx)
    if value.get("status") == "completed":
        task = await to_thread.run_sync(_find_task, task_id, store)
        if task is not None and task.status != "completed":
            objection = await _hook_objection("TaskCompleted", task, ctx)
            if objection is not None:
                return Output(objection, _update_record(task_id, (), error=objection))
    outcome = await to_thread.run_sync(_update_with_retries, value, store)
    if outcome is None:
        return Output(_NOT_FOUND, _update_record(task_id, (), error=_NOT_FOUND))
    record = _update_record(task_id, outcome.fields)
    if outcome.has_new_status:
        record["statusChange"] = {"from": outcome.old_status, "to": outcome.new_status}
    return Output(f"Updated task #{task_id} {', '.join(outcome.fields)}", record)


async def _hook_objection(point: HookPoint, task: TaskEntry, ctx: ToolContext) -> str | None:
    """What hooks have against it."""
    fields = {"task_id": task.id, "task_subject": task.subject, "task_description": task.description}
    effects = await ctx.fire(SessionHookEvent(point=point, fields=fields))
    feedback = "\n".join(text.strip() for text in effects.feedback)
    return f"{point} hook feedback:\n{feedback}" if effects.feedback else None


def _find_task(task_id: str, store: TaskStore) -> TaskEntry | None:
    return next((task for task in store.read_tasks() if task.id == task_id), None)


def _update_with_retries(value: Mapping[str, object], store: TaskStore) -> UpdateOutcome | None:
    """Make the change, again if somebody was faster; None: there is no such task."""
    for _ in range(_MAX_TRIES):
        try:
            with store.transaction() as transaction:
                task = transaction.get(str(value["taskId"]))
                return None if task is None else apply_task_update(transaction, task, value)
        except ToolError as error:
            if error.kind != STALE_KIND:
                raise
    raise ToolError("The task list is being changed by somebody else")


def _update_record(
    task_id: str, fields: tuple[str, ...], error: str | None = None
) -> dict[str, object]:  # fmt: skip
    record: dict[str, object] = {"success": error is None, "taskId": task_id, "updatedFields": list(fields)}
    return record if error is None else {**record, "error": error}


def _get_task(value: Mapping[str, object], ctx: ToolContext) -> Output:
    task = _find_task(str(value["taskId"]), _task_store(ctx))
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


def _list_tasks(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    tasks = _task_store(ctx).read_tasks()
    open_ids = {task.id for task in tasks if task.status != "completed"}
    lines, records = [], []
    for task in tasks:
        blockers = [task_id for task_id in task.blocked_by if task_id in open_ids]
        lines.append(_format_task(task, blockers))
        record: dict[str, object] = {"id": task.id, "subject": task.subject, "status": task.status}
        if task.owner:
            record["owner"] = task.owner
        records.append({**record, "blockedBy": blockers})
    return Output("\n".join(lines) or "No tasks found", {"tasks": records})


def _format_task(task: TaskEntry, blockers: list[str]) -> str:
    owner = f" ({task.owner})" if task.owner else ""
    blocked = f" [blocked by {_format_ids(blockers)}]" if blockers else ""
    return f"#{task.id} [{task.status}] {task.subject}{owner}{blocked}"


def _format_ids(ids: list[str]) -> str:
    return ", ".join(f"#{task_id}" for task_id in ids)
