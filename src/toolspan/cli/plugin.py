"""`toolspan plugin`: give a client its history, as an MCP server and a skill."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from toolspan.cli.output import combine_options, escape_unprintable, print_json
from toolspan.errors import NotFound, ToolspanError
from toolspan.integrations.plugin import (
    NAME,
    client_files,
    installed_clients,
    is_installed,
    plan_plugin,
    plan_plugin_removal,
    plugin_clients,
    write_plugin_folder,
)
from toolspan.integrations.settings_change import SettingsChange, program_command


@click.group("plugin")
def command() -> None:
    """Let a client's agent ask about recorded sessions.

    The plug-in is an MCP server, `toolspan mcp --history`, and a skill that tells the agent when to
    ask. Every change is shown as a diff first, and `uninstall` undoes it byte for byte.
    All commands but `write` print JSON with --json.
    """


_options = combine_options(
    click.option("--client", "clients", multiple=True, type=click.Choice(plugin_clients()),
                 help="The client (repeatable).  [default: all that you use]"),
    click.option("--project", is_flag=True, help="Change the files of this folder, not those of your user."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--json", "as_json", is_flag=True, help="Print one object per file; needs --yes to change anything."),
)  # fmt: skip


@command.command("install")
@_options
@click.pass_context
def install(ctx: click.Context, /, *, clients: tuple[str, ...], project: bool, yes: bool, as_json: bool) -> None:
    """Add the MCP server and the skill to clients, after showing the changes."""
    folder = Path.cwd() if project else None
    program = [*program_command(), "mcp", "--history"]
    plans = {client: plan_plugin(client, program, folder) for client in _named_clients(clients)}
    _apply(ctx, plans, "Add the plug-in?", yes=yes, as_json=as_json, installs=True)


@command.command("uninstall")
@_options
@click.pass_context
def uninstall(ctx: click.Context, /, *, clients: tuple[str, ...], project: bool, yes: bool, as_json: bool) -> None:
    """Remove the MCP server and the skill, and restore the files."""
    folder = Path.cwd() if project else None
    plans = {client: plan_plugin_removal(client, folder) for client in clients or plugin_clients()}
    _apply(ctx, plans, "Remove the plug-in?", yes=yes, as_json=as_json, installs=False)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per client.")
def status(*, as_json: bool) -> None:
    """Show which clients have the plug-in."""
    for client in plugin_clients():
        file = client_files(client).servers
        row = {"client": client, "installed": is_installed(client), "path": str(file)}
        if as_json:
            print_json(row)
        else:
            click.echo(f"{client:9} {'installed' if row['installed'] else 'not installed':14} {file}")


@command.command("write")
@click.argument("folder", type=click.Path(path_type=Path))
def write(folder: Path) -> None:
    """Write the plug-in as a folder for Claude Code.

    Use it with `claude --plugin-dir FOLDER`, or publish it as a marketplace.
    """
    for path in write_plugin_folder(folder, ["toolspan", "mcp", "--history"]):
        click.echo(path)


def _named_clients(clients: Sequence[str]) -> Sequence[str]:
    found = clients or installed_clients()
    if not found:
        raise NotFound(f"no client found in your home folder; name one of {', '.join(plugin_clients())} with --client")
    return found


def _apply(
    ctx: click.Context,
    plans: dict[str, list[SettingsChange]],
    question: str,
    *,
    yes: bool,
    as_json: bool,
    installs: bool,
) -> None:
    """Show the changes, and make them if they are confirmed. If one fails, those before it are undone."""
    changes = [(client, change) for client, planned in plans.items() for change in planned if change]
    if not changes:
        if not as_json:
            click.echo(f"{NAME} is already installed." if installs else f"{NAME} is not installed.")
        return
    if not as_json:
        for _, change in changes:
            for line in change.diff_lines():
                click.echo(escape_unprintable(line, keep="\t"))
    confirmed = yes or (not as_json and click.confirm(question, default=False))
    if confirmed:
        _make_changes([change for _, change in changes], installs=installs)
    for client, change in changes:
        if as_json:
            row = {"client": client, "path": str(change.path), "changed": confirmed, "exact": change.is_exact}
            print_json({**row, "diff": list(change.diff_lines())})
        elif confirmed and not installs:
            kept = "restored" if change.is_exact else "other changes since the installation were kept"
            click.echo(f"{change.path}: {kept}")
    if not confirmed:
        ctx.exit(1)
    if not as_json and installs:
        click.echo(f"{NAME} installed for {', '.join(dict.fromkeys(client for client, _ in changes))}.")
        click.echo("New sessions can ask about earlier ones. `toolspan plugin uninstall` undoes this.")


def _make_changes(changes: Sequence[SettingsChange], *, installs: bool) -> None:
    done: list[SettingsChange] = []
    try:
        for change in changes:
            change.apply(installs=installs)
            done.append(change)
            if change.after is None:  # the folder of the skill is empty now
                with suppress(OSError):
                    change.path.parent.rmdir()
    except ToolspanError:
        for change in reversed(done):
            SettingsChange(change.path, change.after, change.before).apply(installs=not installs)
        raise
