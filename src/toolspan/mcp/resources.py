"""The two tools for what servers keep: list resources, read one.

In: the servers. Out: `ListMcpResourcesTool` and `ReadMcpResourceTool`, when a server has any.
"""

from collections.abc import Mapping

from toolspan.errors import ToolError
from toolspan.mcp.fault import Fault
from toolspan.mcp.results import Desk, binary_words, compact
from toolspan.mcp.server import Server
from toolspan.mcp.tools import failure
from toolspan.profile import Profile
from toolspan.run.context import ToolContext
from toolspan.run.tool import Failure, Output, Tool
from toolspan.schema.check import checker

LIST = "ListMcpResourcesTool"
READ = "ReadMcpResourceTool"
_Input = Mapping[str, object]
_Servers = Mapping[str, Server]

_SERVER = {"type": "string", "description": "The name of the server"}
_LIST_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"server": {**_SERVER, "description": "Only the resources of this server"}},
    "additionalProperties": False,
}
_READ_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "server": _SERVER,
        "uri": {"type": "string", "description": "The address of the resource"},
    },
    "required": ["server", "uri"],
    "additionalProperties": False,
}
_FIRST = ("name", "title", "uri", "description", "mimeType")
"""The order in which clients tell what they know of a resource."""


def resource_tools(servers: _Servers, profile: Profile) -> list[Tool]:
    """The tools for resources; none when no server has any."""
    if not any(server.has_resources for server in servers.values()):
        return []
    return [_list_tool(servers, profile), _read_tool(servers, profile)]


def _list_tool(servers: _Servers, profile: Profile) -> Tool:
    async def run(value: _Input, ctx: ToolContext) -> Output:  # noqa: ARG001
        name = value.get("server")
        wanted = [_find(servers, str(name))] if name is not None else list(servers.values())
        found: list[dict[str, object]] = []
        for server in wanted:
            try:
                found += await _listed(server)
            except Fault as fault:
                if name is not None:
                    raise ToolError(failure(fault, server, LIST, profile.mcp).text) from fault
        return Output(content=compact(found), structured=found)

    return Tool(
        name=LIST,
        description="List the resources of the connected MCP servers, or of one of them.",
        input_schema=_LIST_SCHEMA,
        parse=checker(_LIST_SCHEMA, coerce=profile.offer.coerces),
        run=run,
        concurrent=True,
        read_only=True,
    )


def _read_tool(servers: _Servers, profile: Profile) -> Tool:
    async def run(value: _Input, ctx: ToolContext) -> Output | Failure:
        server = _find(servers, str(value["server"]))
        try:
            answer = await server.read(str(value["uri"]))
        except Fault as fault:
            return failure(fault, server, READ, profile.mcp)
        desk = Desk(
            server=server.name,
            call_id=ctx.call.id,
            folder=ctx.workspace.results_folder,
            values=profile.mcp,
            inline_limit=None,
        )
        contents = answer.get("contents")
        pieces = contents if isinstance(contents, list) else []
        shown = {"contents": [_shown(one, desk) for one in pieces if isinstance(one, Mapping)]}
        return Output(content=compact(shown), structured=shown)

    return Tool(
        name=READ,
        description="Read one resource of an MCP server by its address.",
        input_schema=_READ_SCHEMA,
        parse=checker(_READ_SCHEMA, coerce=profile.offer.coerces),
        run=run,
        concurrent=True,
        read_only=True,
    )


def _find(servers: _Servers, name: str) -> Server:
    server = servers.get(name)
    if server is None:
        known = ", ".join(servers)
        raise ToolError(f'Server "{name}" not found. Available servers: {known}')
    if not server.has_resources and server.health.state == "connected":
        raise ToolError(f'Server "{name}" does not support resources')
    return server


async def _listed(server: Server) -> list[dict[str, object]]:
    if not server.has_resources:
        return []
    return [_ordered(one) | {"server": server.name} for one in await server.resources()]


def _ordered(resource: Mapping[str, object]) -> dict[str, object]:
    first = {key: resource[key] for key in _FIRST if key in resource}
    return first | {key: value for key, value in resource.items() if key not in first}


def _shown(content: Mapping[str, object], desk: Desk) -> dict[str, object]:
    """A piece of a resource; bytes are kept in a file, and told of."""
    if "blob" not in content:
        return dict(content)
    kind = str(content.get("mimeType") or "application/octet-stream")
    words = binary_words(content["blob"], kind, desk)
    head = f"[Resource from {desk.server} at {content.get('uri')}] "
    kept = {key: value for key, value in content.items() if key != "blob"}
    return kept | {"text": head + words}
