"""`toolspan acp`: serve an agent to an editor over the Agent Client Protocol."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial

import anyio
import click
import msgspec

from toolspan.cli.host import HostOptions, host_options, model_options, open_model, settings_options
from toolspan.cli.process import FaultReporter, cancel_on_signal
from toolspan.errors import ToolspanError
from toolspan.extras import missing_extra
from toolspan.integrations.mcp_server import StdioTransport, private_stdio
from toolspan.runtime.process import become_subreaper
from toolspan.session import AgentLimits
from toolspan.session.models import make_subagent_model


@click.command("acp")
@model_options
@click.option("--max-turns", type=click.IntRange(min=1), help="The maximum number of replies per prompt.")
@host_options
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON-RPC.")
@click.pass_context
def command(
    ctx: click.Context, /, *, model_spec: str | None, base_url: str | None, max_turns: int | None, **_: object
) -> None:
    """Serve an agent to an editor over the Agent Client Protocol, on standard input and output.

    The editor starts this command; docs/editors.md says how Zed and others are configured. Each
    conversation is a session in the folder that the editor names, with the settings, permissions,
    hooks and MCP servers of `toolspan run`, and with the servers that the editor names. Questions
    are asked in the editor. The end of the input stops all running calls and the command.
    """
    options = msgspec.convert(ctx.params, HostOptions)
    if options.ask or options.approve or options.permission_prompt_tool:
        raise ToolspanError("the editor asks for permission; leave out --ask, --approve and --permission-prompt-tool")
    if options.transcript not in ("home", "none"):
        raise ToolspanError("--transcript: an editor may open several sessions; use `home` or `none`")
    if sys.stdin is None or sys.stdout is None:
        raise ToolspanError("an editor needs standard input and output")
    if sys.stdin.isatty():
        click.echo("toolspan acp: waiting for an editor on standard input; press Ctrl-C to stop", err=True)
    become_subreaper()
    with private_stdio() as transport:
        ctx.exit(anyio.run(_serve, options, transport, model_spec, base_url, max_turns))


async def _serve(
    options: HostOptions, transport: StdioTransport, model_spec: str | None, base_url: str | None, max_turns: int | None
) -> int:
    try:
        from toolspan.integrations.acp.server import serve_editor
    except ImportError as error:
        raise missing_extra(error, "`toolspan acp`") or error from error
    model = open_model(model_spec, base_url)
    find_model = partial(make_subagent_model, main=model_spec or "", base_url=base_url)
    with closing(FaultReporter("toolspan acp")) as faults:
        try:
            with cancel_on_signal() as ended:
                await serve_editor(
                    transport,
                    {
                        **settings_options(options),
                        "model": model,
                        "transcript": options.transcript_target,
                        "store": options.store,
                        "direct": [faults.on_event],
                    },
                    {"limits": AgentLimits(turns=max_turns), "find_model": find_model},
                )
        finally:
            await model.close()
    return ended.code or 0
