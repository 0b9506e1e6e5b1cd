"""`toolspan mcp`: serve the tools to an MCP client over standard input and output; log in at other servers."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import click
import msgspec

from toolspan.archive.words import replace_unprintable
from toolspan.cli.host import HostOptions, host_options, make_session, new_source, open_terminal
from toolspan.cli.output import combine_options, print_json, warn
from toolspan.cli.process import FaultReporter, cancel_on_signal
from toolspan.errors import ToolspanError
from toolspan.integrations.history import history_tools
from toolspan.integrations.history.quotes import DEFAULT_TOKENS, MAX_TOKENS, MIN_TOKENS
from toolspan.integrations.host_settings import SETTING_SOURCES, load_host_settings
from toolspan.integrations.mcp_client import LoginPrompt, McpServers
from toolspan.integrations.mcp_server import StdioTransport, private_stdio, serve, serve_history
from toolspan.runtime.process import become_subreaper
from toolspan.runtime.tool import Tool

DEFAULT_TOOLS = "Bash,Read,Edit,Write,Glob,Grep,NotebookEdit,WebFetch,TaskOutput,TaskStop"


@click.group("mcp", invoke_without_command=True)
@click.option("--structured", is_flag=True, help="Also send structured results; many clients"
              " then show those to the model instead of the text.")  # fmt: skip
@click.option(
    "--history",
    is_flag=True,
    help="Serve recorded sessions, read-only: search, errors and fixes,"
    " file history. With --tools, beside those tools.",
)
@click.option(
    "--archive",
    "sources",
    multiple=True,
    metavar="PATH",
    help="With --history: read these files, folders or sessions (repeatable).  [default: all recorded by your clients]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(MIN_TOKENS, MAX_TOKENS),
    default=DEFAULT_TOKENS,
    show_default=True,
    help="With --history: the largest size of an answer.",
)
@host_options
@click.option("--json", is_flag=True, expose_value=False, help="No effect: the output is always JSON-RPC.")
@click.pass_context
def command(
    ctx: click.Context, /, *, structured: bool, history: bool, sources: tuple[str, ...], max_tokens: int, **_: object
) -> None:
    """Serve the tools to an MCP client over standard input and output.

    Calls run with the same permissions, hooks and settings as in `toolspan exec`, and are recorded
    as one session. If a call needs permission, the user of the client is asked if the client
    supports it; otherwise the call is denied. The end of the input stops all running calls and the
    server.

    With --history, the server answers questions about recorded sessions instead: nothing is run,
    changed or recorded. Answers are small, secrets are replaced, and ids lead from one answer to
    the next. `toolspan plugin install` connects it to a client.

    Claude Code: claude mcp add toolspan -- toolspan mcp

    `login` and `logout` are about the servers that toolspan itself uses.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not history and sources:
        raise click.UsageError("--archive needs --history")
    if sys.stdin is None or sys.stdout is None:
        raise ToolspanError("an MCP server needs standard input and output")
    if sys.stdin.isatty():
        click.echo("toolspan mcp: waiting for an MCP client on standard input; press Ctrl-C to stop", err=True)
    tools = history_tools(*sources, max_tokens=max_tokens) if history else ()
    if history and ctx.params["tools"] is None:
        with private_stdio() as transport:
            anyio.run(_serve_history, tools, transport)
        return
    become_subreaper()
    session_options = msgspec.convert(ctx.params, HostOptions)
    session_options = msgspec.structs.replace(session_options, tools=session_options.tools or DEFAULT_TOOLS)
    with private_stdio() as transport:
        code = anyio.run(_run_server, session_options, transport, structured, tools)
    ctx.exit(code)


async def _serve_history(tools: Sequence[Tool], transport: StdioTransport) -> None:
    with cancel_on_signal():
        await serve_history(tools, transport)


async def _run_server(
    session_options: HostOptions,
    transport: StdioTransport,
    structured: bool,  # noqa: FBT001
    tools: Sequence[Tool],
) -> int:
    faults = FaultReporter("toolspan mcp")
    source = new_source(session_options)
    with open_terminal(enabled=session_options.ask) as terminal, closing(faults):
        async with make_session(session_options, source, terminal=terminal, direct=[faults.on_event]) as session:
            with cancel_on_signal() as ended:
                await serve(session, transport, structured=structured, history=tools)
    return ended.code or 0


_server_options = combine_options(
    click.argument("server"),
    click.option("--mcp-config", type=click.Path(path_type=Path), help="A file with MCP servers."),
    click.option("--cwd", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path(),
                 help="The project folder."),
    click.option("--json", "as_json", is_flag=True, help="Print one object."),
)  # fmt: skip


@command.command("login")
@_server_options
@click.option("--scopes", help="The permissions to request, separated by spaces.  [default: what the server asks for]")
@click.option("--no-browser", is_flag=True, help="Only print the address of the login.")
def login(
    *, server: str, mcp_config: Path | None, cwd: Path, as_json: bool, scopes: str | None, no_browser: bool
) -> None:
    """Log in at the MCP server SERVER with OAuth, for later sessions.

    Your browser opens the server's login and returns its result to this command. If the browser
    runs on another machine, paste the address that it shows at the end. Tokens are stored in a file
    that only you can read, and are renewed when they expire.
    """
    servers = _find_servers(cwd, mcp_config)

    def show_url(url: str) -> None:
        click.echo(
            f"Log in to {replace_unprintable(server)} at this address:\n\n  {replace_unprintable(url)}\n", err=True
        )
        if not no_browser:
            webbrowser.open(url)

    with open_terminal(enabled=True) as terminal:
        read_redirect = None
        if terminal is not None:
            hint = "Waiting for the browser; if it is on another machine, paste the address of its last page here: "
            read_redirect = partial(terminal.read_line, hint)
        prompt = LoginPrompt(show_url=show_url, read_redirect=read_redirect, scopes=scopes)
        stored = anyio.run(servers.login, server, prompt)
    granted = None if stored is None else stored.tokens.get("scope")
    if as_json:
        print_json({"server": server, "logged_in": stored is not None, "scopes": granted})
    elif stored is None:
        click.echo(f"{replace_unprintable(server)} does not ask for a login.")
    else:
        suffix = f" with {replace_unprintable(str(granted))}" if granted else ""
        click.echo(f"Logged in to {replace_unprintable(server)}{suffix}.")


@command.command("logout")
@_server_options
def logout(*, server: str, mcp_config: Path | None, cwd: Path, as_json: bool) -> None:
    """Remove the login at the MCP server SERVER, and ask the server to revoke it."""
    revoked = anyio.run(_find_servers(cwd, mcp_config).logout, server)
    if as_json:
        print_json({"server": server, "removed": revoked is not None, "revoked": revoked is True})
        return
    outcome = {
        None: "There was no login",
        True: "Removed and revoked the login",
        False: "Removed the login; the server was not told, or does not revoke logins",
    }
    click.echo(f"{outcome[revoked]}: {replace_unprintable(server)}")


def _find_servers(cwd: Path, mcp_config: Path | None) -> McpServers:
    settings = load_host_settings(cwd.absolute(), None, SETTING_SOURCES, warn)
    return McpServers(settings.mcp_server_config(mcp_config), cwd=cwd)
