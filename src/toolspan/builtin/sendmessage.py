"""SendMessage: words for an agent that this conversation has started.

In: the agent's id and the words. Out: whether it reads them while it works, or goes on because of
them. Who knows the agents comes with the workspace (`run/children.py`).
"""

import json
from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.profile import Profile
from toolspan.run.children import NO_MODEL
from toolspan.run.context import ToolContext
from toolspan.run.tool import Output, Refusal, Tool
from toolspan.schema.check import checker

_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "The agent's id"},
        "summary": {
            "type": "string",
            "maxLength": 200,
            "description": "The message in a few words, for people",
        },
        "message": {"type": "string", "description": "What the agent is to read"},
    },
    "required": ["to", "message"],
    "additionalProperties": False,
}


def send_message_tool(profile: Profile) -> Tool:
    """SendMessage as a client version has it."""
    return Tool(
        name="SendMessage",
        description=(
            "Say something to an agent you started. One that works reads it with its next results;"
            " one that is done goes on from where it ended, in the background."
        ),
        input_schema=_SCHEMA,
        parse=checker(_SCHEMA, coerce=profile.offer.coerces),
        run=_run,
        validate=_check,
        read_only=True,  # what the agent then does is judged call by call
    )


async def _check(value: Mapping[str, object], _ctx: ToolContext) -> Refusal | None:
    if not str(value["message"]).strip():
        return Refusal("The message is empty", "invalid_input")
    return None


async def _run(value: Mapping[str, object], ctx: ToolContext) -> Output:
    children = ctx.workspace.children
    if children is None:
        raise ToolError(NO_MODEL, kind="internal")
    to = str(value["to"]).removeprefix("agent-")
    done = await children.say(to, str(value["message"]), ctx.call.id)
    words = f"Agent {to} works, and reads the message with its next results."
    if done.how == "resumed":
        words = (
            f"Agent {to} was done, and goes on with the message in the background. You are told"
            f" when it is done again. Output: {done.path}"
        )
    record = {"success": True, "message": words}
    return Output(json.dumps(record, ensure_ascii=False, separators=(",", ":")), record)
