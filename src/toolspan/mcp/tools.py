"""A server's tools as tools of ours.

In: a server and what it lists. Out: `Tool` values. Inputs go to the server as they are, unless
they are to be checked against its schema first; the answer is put into a client version's words.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec.structs import replace

from toolspan.mcp.fault import Fault
from toolspan.mcp.listing import Listed
from toolspan.mcp.naming import tool_name
from toolspan.mcp.results import Desk, told
from toolspan.mcp.server import Asked, Server
from toolspan.profile import McpValues, Profile
from toolspan.run.context import ToolContext
from toolspan.run.outbound import fit_json
from toolspan.run.tool import Failure, Invalid, Output, Parse, Tool, Valid
from toolspan.schema.explain import raw_of
from toolspan.schema.issue import Issue

Check = Literal["none", "strict"]
"""Whether inputs are held against the server's schema before they are sent."""


def server_tools(server: Server, profile: Profile, check: Check) -> list[Tool]:
    """The tools of a server; what cannot be offered is told in its health."""
    tools: dict[str, Tool] = {}
    left_out: list[str] = []
    for listed in server.listed:
        name = tool_name(server.name, listed.name)
        if name in tools:
            left_out.append(f"{listed.name}: another tool has the name {name}")
            continue
        tools[name] = _tool(name, server, listed, profile, check)
    server.health.left_out[:] = left_out
    return list(tools.values())


def _tool(name: str, server: Server, listed: Listed, profile: Profile, check: Check) -> Tool:
    values = profile.mcp

    async def run(value: Mapping[str, object], ctx: ToolContext) -> Output | Failure:
        return await _run(server, listed, value, ctx)

    tells = profile.issues.tells_unparsed
    return Tool(
        name=name,
        description=listed.description[: values.description_limit],
        input_schema=listed.input_schema,
        parse=_checked(listed.input_schema, tells) if check == "strict" else _as_given(tells),
        run=run,
        concurrent=listed.read_only is True,
        output_limit=None,  # the results are limited in the client's own way
        extra={"mcp_server": {"name": server.name, "source": "dynamic"}},
    )


async def _run(
    server: Server, listed: Listed, value: Mapping[str, object], ctx: ToolContext
) -> Output | Failure:
    values = ctx.profile.mcp

    def progress(done: float, total: float | None, message: str | None) -> None:
        ctx.progress(
            "mcp", server=server.name, tool=listed.name, done=done, total=total, message=message
        )

    sent = as_sent(value)
    asked = Asked(
        tool=listed.name,
        arguments=sent,
        call_id=ctx.call.id,
        progress=progress,
    )
    try:
        answer = await server.call(asked)
    except Fault as fault:
        return failure(fault, server, listed.name, values)
    desk = Desk(
        server=server.name,
        call_id=ctx.call.id,
        folder=ctx.workspace.results_folder,
        values=values,
        inline_limit=listed.inline_limit or values.inline_limit,
    )
    return _marked(told(answer, desk), listed, values)


def as_sent(value: Mapping[str, object]) -> dict[str, object]:
    """An input as it goes to a server: what JSON can hold, whole numbers without a fraction."""
    fitted = _whole(fit_json(value))
    return fitted if isinstance(fitted, dict) else {}


def _whole(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)  # `1.0` is `1` for the clients, and servers see the difference
        case dict():
            return {key: _whole(inner) for key, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case _:
            return value


def _marked(output: Output | Failure, listed: Listed, values: McpValues) -> Output | Failure:
    if isinstance(output, Failure) or listed.read_only is not None or not values.marks_writers:
        return output
    return replace(output, beside={**(output.beside or {}), "mcpCallNotReadOnly": "no_hint"})


def failure(fault: Fault, server: Server, tool: str, values: McpValues) -> Failure:
    """A fault in the words of a client version."""
    match fault.kind:
        case "timeout":
            waited = int(fault.seconds or server.call_timeout)
            text = values.timed_out.format(server=server.name, tool=tool, seconds=waited)
            return Failure(text, kind="mcp_timeout", timed_out=True)
        case "closed" | "protocol":
            text = fault.message
            if fault.code is not None:
                text = values.error.format(code=fault.code, message=fault.message)
            return Failure(text)  # its kind is what whoever reads it takes it for
        case "not_connected" | "connect" | "unreadable" | "tool":
            return Failure(fault.message)


def _as_given(tells_unparsed: bool) -> Parse:  # noqa: FBT001 - a value of the profile
    """Take any input; only one that is no JSON may be refused."""

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        if raw_of(given) is None:
            return Valid(given, given)
        return Invalid(()) if tells_unparsed else Valid({}, {})

    return parse


def _checked(schema: Mapping[str, object], tells_unparsed: bool) -> Parse:  # noqa: FBT001
    """Hold inputs against the server's schema."""
    take = _as_given(tells_unparsed)
    find: Callable[[object], Iterable[Issue]] | None = None

    def parse(given: Mapping[str, object]) -> Valid | Invalid:
        nonlocal find
        if find is None:
            find = _finder(schema)
        taken = take(given)
        if isinstance(taken, Invalid):
            return taken
        issues = tuple(find(dict(taken.recorded)))
        return Invalid(issues) if issues else taken

    return parse


def _finder(schema: Mapping[str, object]) -> Callable[[object], Iterable[Issue]]:
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    made = validator_for(schema)(schema)

    def find(given: object) -> Iterable[Issue]:
        try:
            for error in made.iter_errors(given):
                yield Issue("other", tuple(error.absolute_path), str(error.message))
        except Exception as error:  # noqa: BLE001 - the server's schema, which may be anything
            yield Issue("other", (), f"the server's schema cannot be used: {error}")

    return find
