"""`toolspan mcp`: the tools for any MCP client, over standard input and output."""

from __future__ import annotations

import signal
import sys

import anyio
import click
import msgspec

from toolspan.cli.host import HostOptions, SessionSource, host_options, open_host, open_terminal
from toolspan.cli.host.host import FaultReporter
from toolspan.errors import ToolspanError
from toolspan.integrations.mcp_server import StdioTransport, private_stdio, serve
from toolspan.runtime.process import become_subreaper
from toolspan.session import Session

DEFAULT_TOOLS = "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit,WebFetch,TaskOutput,TaskStop"
"""What is offered unless tools are named: what another agent has use for."""


@click.command("mcp")
@click.option("--structured", is_flag=True, help="Also give results as values for programs; many"
              " clients then show those to the model instead of the text.")  # fmt: skip
@host_options
@click.option("--json", is_flag=True, expose_value=False, help="As always here: the output is JSON-RPC.")
@click.pass_context
def command(ctx: click.Context, /, structured: bool, **_: object) -> None:  # noqa: FBT001
    """Offer the tools to an MCP client, over standard input and output.

    Calls run under the permissions, hooks and settings that `toolspan exec` has, and are recorded
    as one session. What needs consent is put to the person behind the client, if the client can ask
    them; else it is refused. The end of the input ends everything that still runs, and the server.

    Claude Code: claude mcp add toolspan -- toolspan mcp
    """
    if sys.stdin is None or sys.stdout is None:
        raise ToolspanError("an MCP server needs an input and an output")
    if sys.stdin.isatty():
        click.echo("toolspan mcp: waiting for an MCP client on the input; Ctrl-C ends it", err=True)
    become_subreaper()
    keys = HostOptions.__struct_fields__
    session_options = msgspec.convert({key: ctx.params[key] for key in keys}, HostOptions)
    session_options = msgspec.structs.replace(session_options, tools=session_options.tools or DEFAULT_TOOLS)
    with private_stdio() as wire:
        code = anyio.run(_run_server, session_options, wire, structured)
    ctx.exit(code)


async def _run_server(session_options: HostOptions, wire: StdioTransport, structured: bool) -> int:  # noqa: FBT001
    with open_terminal(enabled=session_options.ask) as terminal:
        async with open_host(session_options, model=None, terminal=terminal) as host:
            faults = FaultReporter("toolspan mcp")
            session = host.make_session(
                SessionSource(transcript=session_options.transcript_target), direct=[faults.on_event]
            )
            try:
                async with session:
                    return await _serve_session(session, wire, structured=structured)
            finally:
                faults.close()


async def _serve_session(session: Session, wire: StdioTransport, *, structured: bool) -> int:
    code = 0
    async with anyio.create_task_group() as group:

        async def watch_signals() -> None:
            nonlocal code
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    code = 128 + number
                    group.cancel_scope.cancel()

        group.start_soon(watch_signals)
        await serve(session, wire, structured=structured)
        group.cancel_scope.cancel()
    return code
