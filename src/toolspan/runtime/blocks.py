"""Calls as blocks of an assistant message, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolspan.errors import BadCall
from toolspan.runtime.schema.issues import unparsed_input
from toolspan.runtime.tool import Input
from toolspan.types.ids import CallId
from toolspan.types.span import Call


def call_block(call: Call) -> dict[str, object]:
    """A call as a block of an assistant message."""
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": dict(call.arguments)}


class CallRequest(NamedTuple):
    """What a `tool_use` block asks for."""

    id: CallId
    tool: str
    input: Input


def parse_tool_use(block: Mapping[str, object]) -> CallRequest:
    """The id, the tool and the input of a `tool_use` block.

    Raises:
        BadCall: it is none, or has no id or name by which it could be answered.
    """
    if block.get("type", "tool_use") != "tool_use":
        raise BadCall("a call is a block of type tool_use")
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not call_id:
        raise BadCall("a tool_use block needs an id, a text that is not empty")
    if not isinstance(name, str) or not name:
        raise BadCall(f"the tool_use block {call_id} needs a name, a text that is not empty")
    arguments = block.get("input", {})
    if not isinstance(arguments, (dict, Mapping)):  # an abstract class alone is slow to ask
        arguments = unparsed_input(str(arguments))
    return CallRequest(CallId(call_id), name, arguments)


_TARGET_ORDER = (
    "file_path", "command", "pattern", "notebook_path", "url", "query", "skill", "description",
    "subject", "path", "task_id", "bash_id", "shell_id", "taskId", "prompt",
)  # fmt: skip
_TARGET_KEYS = frozenset(_TARGET_ORDER)


def call_target(arguments: Input) -> str | None:
    """What a call is about, shortened: path, command, pattern, address."""
    if _TARGET_KEYS.isdisjoint(arguments):
        return None
    for key in _TARGET_ORDER:
        value = arguments.get(key)
        if value and isinstance(value, str):
            return value[:160]
    return None


def message_id(message: Mapping[str, object] | None) -> str | None:
    """The id of the message, if it has one."""
    value = message.get("id") if message else None
    return value if isinstance(value, str) else None
