"""TodoWrite and TodoRead: the model's todo list.

The list belongs to the conversation and is stored in its context; the oldest clients also keep a
copy in a file. Each write replaces the whole list. A list in which every item is completed is
stored as an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from anyio import to_thread

from toolspan.errors import ToolError
from toolspan.runtime.context import CallContext, ToolContext
from toolspan.runtime.profiles import Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Valid
from toolspan.runtime.tool import Output, Tool
from toolspan.tools.files.atomic_replace import atomic_replace
from toolspan.tools.files.safe_read import FileVersion, stat_path
from toolspan.tools.schemas import object_schema, text

Todo = dict[str, object]

_CONTEXT_KEY = "toolspan.todos"
"""The key of the list in `CallContext.values`."""
_READ_SCHEMA = object_schema({})
_WRITTEN_MESSAGE = (
    "Todos have been modified successfully. Ensure that you continue to use the todo list to track"
    " your progress. Please proceed with the current tasks if applicable"
)


def todo_write_tool(profile: Profile) -> Tool:
    """Return the TodoWrite tool for a client version."""
    item = {
        "content": text("What is to be done", minLength=1),
        "status": text("How it stands", enum=["pending", "in_progress", "completed"]),
        "activeForm": text("The same, as it is said while it is being done", minLength=1),
    }
    required = recorded_keys = ["content", "status", "activeForm"]
    if profile.todo.loose_items:
        item |= {"id": text("A name for the item"), "priority": text("How urgent it is")}
        required = ["content", "status"]
        recorded_keys = ["id", "content", "status", "priority", "activeForm"]
    todos = {
        "type": "array",
        "description": "The whole new list",
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
        description="Write down what is to be done, and how each item stands: the whole new list.",
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
        description="Show the list of what is to be done.",
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
    values = ctx.profile.todo
    open_todos = [] if all(item["status"] == "completed" for item in todos) else todos
    if values.stores_todos:
        await to_thread.run_sync(_save_copy, open_todos, ctx)
    record: dict[str, object] = {"oldTodos": _current_todos(ctx.context), "newTodos": todos}
    if values.records_nudge:
        record["verificationNudgeNeeded"] = False

    def store_todos(context: CallContext) -> CallContext:
        return replace(context, values={**context.values, _CONTEXT_KEY: tuple(open_todos)})

    return Output(_WRITTEN_MESSAGE, record, modify=store_todos)


async def _read_todos(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    todos = _current_todos(ctx.context)
    content = json.dumps(todos, ensure_ascii=False) if todos else "The todo list is empty"
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
