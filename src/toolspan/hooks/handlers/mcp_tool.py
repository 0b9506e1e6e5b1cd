"""A handler that is a tool of an MCP server: its text is the answer.

In: `Told`, and a function that calls tools, which comes from above. Out: the text as output; an
error of the tool, or a server that is not there, is a failure. `${tool_input.command}` in the
configured input is filled in from what the handler is told.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from toolspan.errors import ToolError
from toolspan.hooks.heard import Heard, Told

CallTool = Callable[[str, str, Mapping[str, object]], Awaitable[str]]
"""Calls a tool: server, tool, input. Gives its text.

Raises:
    ToolError: the server is not connected, or the tool failed.
"""

_PLACE = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHandler:
    """One tool of one server."""

    server: str
    tool: str
    input: Mapping[str, object] = field(default_factory=dict)
    call: CallTool | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Server and tool."""
        return f"mcp__{self.server}__{self.tool}"

    @property
    def key(self) -> object:
        """Server, tool and input."""
        return (self.server, self.tool, json.dumps(self.input, sort_keys=True))

    async def run(self, told: Told) -> Heard:
        """Call the tool."""
        if self.call is None:
            return Heard(end="failed", problem=f"no MCP server {self.server!r} is connected here")
        given = {key: _filled(value, told.fields) for key, value in self.input.items()}
        try:
            return Heard(stdout=await self.call(self.server, self.tool, given), exit_code=0)
        except ToolError as error:
            return Heard(end="failed", problem=error.message)


def _filled(value: object, fields: Mapping[str, object]) -> object:
    if isinstance(value, str):
        return _PLACE.sub(lambda found: _at(found[1], fields), value)
    if isinstance(value, list):
        return [_filled(one, fields) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, fields) for key, one in value.items()}
    return value


def _at(path: str, fields: object) -> str:
    """What stands at a path like `tool_input.command`, as text; nothing where there is nothing."""
    for key in path.split("."):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    if fields is None:
        return ""
    return fields if isinstance(fields, str) else json.dumps(fields)
