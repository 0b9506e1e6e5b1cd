"""TodoWrite and TodoRead: the model's own list of what is to be done.

In: the whole new list. Out: the list before and after. It belongs to the conversation and lies in
its context; the oldest clients keep a copy in a file. A list with nothing left to do counts as
empty from then on.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from anyio import to_thread

from toolspan.disk.load import Stamp, look
from toolspan.disk.swap import swap
from toolspan.errors import ToolError
from toolspan.profile import Profile, TodoValues
from toolspan.run.context import Context, ToolContext
from toolspan.run.tool import Output, Tool
from toolspan.schema.check import checker
from toolspan.schema.issue import Invalid, Valid

Todo = dict[str, object]

_KEY = "toolspan.todos"
"""Where the list lies in `Context.values`."""
_STATES = ["pending", "in_progress", "completed"]
_KEPT = ("id", "content", "status", "priority", "activeForm")
_WRITTEN = (
    "Todos have been modified successfully. Ensure that you continue to use the todo list to track"
    " your progress. Please proceed with the current tasks if applicable"
)


def todo_write_tool(profile: Profile) -> Tool:
    """TodoWrite as a client version has it."""
    schema = _schema(profile.todo)
    check = checker(schema, coerce=profile.offer.coerces)

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        checked = check(given)
        return checked if isinstance(checked, Invalid) else _stripped(checked, profile.todo)

    return Tool(
        name="TodoWrite",
        description="Write down what is to be done, and how each item stands: the whole new list.",
        input_schema=schema,
        parse=parse,
        run=_write,
        read_only=True,
    )


def todo_read_tool(profile: Profile) -> Tool:
    """TodoRead, for the profile that has it."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    return Tool(
        name="TodoRead",
        description="Show the list of what is to be done.",
        input_schema=schema,
        parse=checker(schema, coerce=profile.offer.coerces),
        run=_read,
        read_only=True,
        idempotent=True,
    )


def _schema(values: TodoValues) -> dict[str, object]:
    words: dict[str, object] = {"type": "string", "minLength": 1}
    item: dict[str, object] = {
        "content": {**words, "description": "What is to be done"},
        "status": {"type": "string", "enum": _STATES, "description": "How it stands"},
        "activeForm": {**words, "description": "The same, as it is said while it is being done"},
    }
    required = ["content", "status", "activeForm"]
    if values.loose_items:
        item |= {
            "id": {"type": "string", "description": "A name for the item"},
            "priority": {"type": "string", "description": "How urgent it is"},
        }
        required.remove("activeForm")
    return {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": "The whole new list",
                "items": {"type": "object", "properties": item, "required": required},
            }
        },
        "required": ["todos"],
        "additionalProperties": False,
    }


def _stripped(valid: Valid, values: TodoValues) -> Valid:
    """The input without what no client keeps of an item."""
    kept = _KEPT if values.loose_items else ("content", "status", "activeForm")
    todos = [{key: item[key] for key in kept if key in item} for item in valid.value["todos"]]
    value = {"todos": todos}
    return Valid(value, value)


async def _write(value: Mapping[str, object], ctx: ToolContext) -> Output:
    given = value["todos"]
    todos = [dict(item) for item in given] if isinstance(given, list) else []
    values = ctx.profile.todo
    left = [] if all(item["status"] == "completed" for item in todos) else todos
    if values.stores_todos:
        await to_thread.run_sync(partial(_store, left, ctx))
    record: dict[str, object] = {"oldTodos": _todos(ctx.context), "newTodos": todos}
    if values.tells_nudge:
        record["verificationNudgeNeeded"] = False
    return Output(_WRITTEN, record, modify=partial(_changed, left))


async def _read(_value: Mapping[str, object], ctx: ToolContext) -> Output:
    todos = _todos(ctx.context)
    text = json.dumps(todos, ensure_ascii=False) if todos else "The todo list is empty"
    return Output(text, {"todos": todos})


def _todos(context: Context) -> list[Todo]:
    known = context.values.get(_KEY)
    return [dict(item) for item in known] if isinstance(known, tuple) else []


def _changed(todos: list[Todo], context: Context) -> Context:
    return replace(context, values={**context.values, _KEY: tuple(todos)})


def _store(todos: list[Todo], ctx: ToolContext) -> None:
    """Keep a copy where the client does; a copy that cannot be written stops nobody."""
    config, session = ctx.workspace.config, ctx.session_id
    if session is None or not config.is_absolute():
        return
    path = config / "todos" / f"{session}-agent-{ctx.agent_id or session}.json"
    data = json.dumps(todos, indent=2, ensure_ascii=False).encode("utf-8", "replace")
    try:
        found = look(path)
        swap(path, data, None if found is None else Stamp.of(found))
    except ToolError:
        return
