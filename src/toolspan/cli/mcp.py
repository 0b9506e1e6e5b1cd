"""`toolspan mcp`: serve the tools to an MCP client over standard input and output."""

from __future__ import annotations

import sys
from contextlib import closing

import anyio
import click
import msgspec

from toolspan.cli.host import HostOptions, SessionSource, host_options, open_host, open_terminal
from toolspan.cli.host.host import FaultReporter, handle_signals
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_server import StdioTransport, private_stdio, serve
from toolspan.runtime.process import become_subreaper

DEFAULT_TOOLS = "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit,WebFetch,TaskOutput,TaskStop"


@click.command("mcp")
@click.option("--structured", is_flag=True, help="Also send structured results; many clients"
              " then show those to the model instead of the text.")  # fmt: skip
@host_options
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON-RPC.")
@click.pass_context
def command(ctx: click.Context, /, structured: bool, **_: object) -> None:  # noqa: FBT001
    """Serve the tools to an MCP client over standard input and output.

    Calls run with the same permissions, hooks and settings as in `toolspan exec`, and are recorded
    as one session. If a call needs permission, the user of the client is asked if the client
    supports it; otherwise the call is denied. The end of the input stops all running calls and the
    server.

    Claude Code: claude mcp add toolspan -- toolspan mcp
    """
    if sys.stdin is None or sys.stdout is None:
        raise ToolspanError("an MCP server needs standard input and output")
    if sys.stdin.isatty():
        click.echo("toolspan mcp: waiting for an MCP client on standard input; press Ctrl-C to stop", err=True)
    become_subreaper()
    session_options = msgspec.convert(ctx.params, HostOptions)
    session_options = msgspec.structs.replace(session_options, tools=session_options.tools or DEFAULT_TOOLS)
    with private_stdio() as transport:
        code = anyio.run(_run_server, session_options, transport, structured)
    ctx.exit(code)


async def _run_server(session_options: HostOptions, transport: StdioTransport, structured: bool) -> int:  # noqa: FBT001
    code = 0

    def on_signal(number: int) -> bool:
        nonlocal code
        code = 128 + number
        return True

    faults = FaultReporter("toolspan mcp")
    source = SessionSource(transcript=session_options.transcript_target)
    with open_terminal(enabled=session_options.ask) as terminal, closing(faults):
        async with (
            open_host(session_options, model=None, terminal=terminal) as host,
            host.make_session(source, direct=[faults.on_event]) as session,
            anyio.create_task_group() as group,
        ):
            handle_signals(on_signal, group.cancel_scope)
            await serve(session, transport, structured=structured)
            group.cancel_scope.cancel()
    return code
