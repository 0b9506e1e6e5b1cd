"""A server's tools as `Tool` values, and the two tools for resources.

Inputs are sent unchanged; checking them against the server's schema is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec.structs import replace

from toolspan.errors import ToolError
from toolspan.integrations.mcp_client.config import mcp_tool_name
from toolspan.integrations.mcp_client.connection import McpToolListing
from toolspan.integrations.mcp_client.protocol import McpError
from toolspan.integrations.mcp_client.results import ResultContext, binary_text, compact_json, convert_result
from toolspan.integrations.mcp_client.server import McpCall, McpServer
from toolspan.runtime.context import ToolContext
from toolspan.runtime.output_limits import sanitize_json
from toolspan.runtime.profiles import McpValues, Profile
from toolspan.runtime.schema.check import compile_checker
from toolspan.runtime.schema.issues import Invalid, Issue, Parse, Valid, unparsed_text
from toolspan.runtime.tool import Output, Tool, ToolFailure

InputCheck = Literal["none", "strict"]
"""How inputs are checked before they are sent: not at all, or against the server's schema."""


def server_tools(server: McpServer, profile: Profile, check: InputCheck) -> list[Tool]:
    """Return a server's tools. Rejected tools are listed in its health."""
    tools: dict[str, Tool] = {}
    rejected: list[str] = []
    for listing in server.listed_tools:
        name = mcp_tool_name(server.name, listing.name)
        if name in tools:
            rejected.append(f"{listing.name}: another tool has the name {name}")
            continue
        tools[name] = _make_tool(name, server, listing, profile, check)
    server.health.rejected_tools[:] = rejected
    return list(tools.values())


def _make_tool(name: str, server: McpServer, listing: McpToolListing, profile: Profile, check: InputCheck) -> Tool:
    values = profile.mcp

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output | ToolFailure:
        return await _run_tool(server, listing, value, ctx)

    reports_unparsed = profile.issues.reports_unparsed
    return Tool(
        name=name,
        description=listing.description[: values.description_limit],
        input_schema=listing.input_schema,
        parse=_check_against_schema(listing.input_schema, reports_unparsed)
        if check == "strict"
        else _accept_any_input(reports_unparsed),
        run=run,
        concurrent=listing.read_only is True,
        output_limit=None,  # results are already limited in the same way as in the client
        extra={"mcp_server": {"name": server.name, "source": "dynamic"}},
    )


async def _run_tool(
    server: McpServer, listing: McpToolListing, value: Mapping[str, object], ctx: ToolContext
) -> Output | ToolFailure:
    values = ctx.profile.mcp

    def report_progress(done: float, total: float | None, message: str | None) -> None:
        ctx.progress("mcp", server=server.name, tool=listing.name, done=done, total=total, message=message)

    arguments = prepare_arguments(value)
    call = McpCall(tool=listing.name, arguments=arguments, call_id=ctx.call.id, progress=report_progress)
    try:
        answer = await server.call_tool(call)
    except McpError as error:
        return to_tool_failure(error, server, listing.name, values)
    result_context = ResultContext(
        server=server.name,
        call_id=ctx.call.id,
        folder=ctx.workspace.results_folder,
        values=values,
        inline_limit=listing.inline_limit or values.inline_limit,
    )
    return _mark_not_read_only(convert_result(answer, result_context), listing, values)


def prepare_arguments(value: Mapping[str, object]) -> dict[str, object]:
    """Convert an input to plain JSON values for the server, with integral floats as integers."""
    prepared = _floats_to_integers(sanitize_json(value))
    return prepared if isinstance(prepared, dict) else {}


def _floats_to_integers(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)  # clients send `1.0` as `1`, and some servers distinguish them
        case dict():
            return {key: _floats_to_integers(inner) for key, inner in value.items()}
        case list():
            return [_floats_to_integers(inner) for inner in value]
        case _:
            return value


def _mark_not_read_only(
    output: Output | ToolFailure, listing: McpToolListing, values: McpValues
) -> Output | ToolFailure:
    if isinstance(output, ToolFailure) or listing.read_only is not None or not values.marks_writers:
        return output
    return replace(output, beside={**(output.beside or {}), "mcpCallNotReadOnly": "no_hint"})


def to_tool_failure(error: McpError, server: McpServer, tool: str, values: McpValues) -> ToolFailure:
    """Convert an `McpError` to a failure with the profile's message."""
    match error.kind:
        case "timeout":
            waited = int(error.seconds or server.call_timeout)
            text = values.timed_out.format(server=server.name, tool=tool, seconds=waited)
            return ToolFailure(text, kind="mcp_timeout", timed_out=True)
        case "closed" | "protocol":
            text = error.message
            if error.code is not None:
                text = values.error.format(code=error.code, message=error.message)
            return ToolFailure(text)  # readers infer the kind from the text
        case "not_connected" | "connect" | "unreadable" | "tool":
            return ToolFailure(error.message)


def _accept_any_input(reports_unparsed: bool) -> Parse:  # noqa: FBT001 - a value of the profile
    """Return a parser that accepts any input or, with `reports_unparsed`, any valid JSON."""

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        if unparsed_text(arguments) is None:
            return Valid(arguments, arguments)
        return Invalid(()) if reports_unparsed else Valid({}, {})

    return parse


def _check_against_schema(schema: Mapping[str, object], reports_unparsed: bool) -> Parse:  # noqa: FBT001
    """Return a parser that checks inputs against the server's schema."""
    parse_any = _accept_any_input(reports_unparsed)
    find_issues: Callable[[object], Iterable[Issue]] | None = None

    def parse(arguments: Mapping[str, object]) -> Valid | Invalid:
        nonlocal find_issues
        if find_issues is None:
            find_issues = _make_issue_finder(schema)
        taken = parse_any(arguments)
        if isinstance(taken, Invalid):
            return taken
        issues = tuple(find_issues(dict(taken.recorded)))
        return Invalid(issues) if issues else taken

    return parse


def _make_issue_finder(schema: Mapping[str, object]) -> Callable[[object], Iterable[Issue]]:
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    validator = validator_for(schema)(schema)

    def find_issues(arguments: object) -> Iterable[Issue]:
        try:
            for error in validator.iter_errors(arguments):
                yield Issue("other", tuple(error.absolute_path), str(error.message))
        except Exception as error:  # noqa: BLE001 - the server's schema, which may be anything
            yield Issue("other", (), f"the server's schema cannot be used: {error}")

    return find_issues


LIST_TOOL = "ListMcpResourcesTool"
READ_TOOL = "ReadMcpResourceTool"
_Input = Mapping[str, object]
_Servers = Mapping[str, McpServer]

_SERVER = {"type": "string", "description": "The name of the server"}
_LIST_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"server": {**_SERVER, "description": "Only the resources of this server"}},
    "additionalProperties": False,
}
_READ_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"server": _SERVER, "uri": {"type": "string", "description": "The address of the resource"}},
    "required": ["server", "uri"],
    "additionalProperties": False,
}
_FIRST_KEYS = ("name", "title", "uri", "description", "mimeType")
"""The order of keys in resource listings."""


def resource_tools(servers: _Servers, profile: Profile) -> list[Tool]:
    """Return the tools for resources; empty if no server has resources."""
    if not any(server.has_resources for server in servers.values()):
        return []
    return [_make_list_tool(servers, profile), _make_read_tool(servers, profile)]


def _make_list_tool(servers: _Servers, profile: Profile) -> Tool:
    async def run(value: _Input, ctx: ToolContext) -> Output:  # noqa: ARG001
        name = value.get("server")
        selected = [_find_server(servers, str(name))] if name is not None else list(servers.values())
        resources: list[dict[str, object]] = []
        for server in selected:
            try:
                resources += await _list_server_resources(server)
            except McpError as error:
                if name is not None:
                    raise ToolError(to_tool_failure(error, server, LIST_TOOL, profile.mcp).text) from error
        return Output(content=compact_json(resources), structured=resources)

    return Tool(
        name=LIST_TOOL,
        description="List the resources of the connected MCP servers, or of one of them.",
        input_schema=_LIST_SCHEMA,
        parse=compile_checker(_LIST_SCHEMA, coerce=profile.availability.coerces),
        run=run,
        concurrent=True,
        read_only=True,
    )


def _make_read_tool(servers: _Servers, profile: Profile) -> Tool:
    async def run(value: _Input, ctx: ToolContext) -> Output | ToolFailure:
        server = _find_server(servers, str(value["server"]))
        try:
            answer = await server.read_resource(str(value["uri"]))
        except McpError as error:
            return to_tool_failure(error, server, READ_TOOL, profile.mcp)
        result_context = ResultContext(
            server=server.name,
            call_id=ctx.call.id,
            folder=ctx.workspace.results_folder,
            values=profile.mcp,
            inline_limit=None,
        )
        contents = answer.get("contents")
        pieces = contents if isinstance(contents, list) else []
        rendered = {
            "contents": [_render_content(piece, result_context) for piece in pieces if isinstance(piece, Mapping)]
        }
        return Output(content=compact_json(rendered), structured=rendered)

    return Tool(
        name=READ_TOOL,
        description="Read one resource of an MCP server by its address.",
        input_schema=_READ_SCHEMA,
        parse=compile_checker(_READ_SCHEMA, coerce=profile.availability.coerces),
        run=run,
        concurrent=True,
        read_only=True,
    )


def _find_server(servers: _Servers, name: str) -> McpServer:
    server = servers.get(name)
    if server is None:
        names = ", ".join(servers)
        raise ToolError(f'Server "{name}" not found. Available servers: {names}')
    if not server.has_resources and server.health.state == "connected":
        raise ToolError(f'Server "{name}" does not support resources')
    return server


async def _list_server_resources(server: McpServer) -> list[dict[str, object]]:
    if not server.has_resources:
        return []
    return [_order_keys(resource) | {"server": server.name} for resource in await server.list_resources()]


def _order_keys(resource: Mapping[str, object]) -> dict[str, object]:
    first = {key: resource[key] for key in _FIRST_KEYS if key in resource}
    return first | {key: value for key, value in resource.items() if key not in first}


def _render_content(content: Mapping[str, object], result_context: ResultContext) -> dict[str, object]:
    """Convert part of a resource for the model. Binary data is saved to a file."""
    if "blob" not in content:
        return dict(content)
    kind = str(content.get("mimeType") or "application/octet-stream")
    text = binary_text(content["blob"], kind, result_context)
    head = f"[Resource from {result_context.server} at {content.get('uri')}] "
    fields = {key: value for key, value in content.items() if key != "blob"}
    return fields | {"text": head + text}
