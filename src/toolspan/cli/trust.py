"""`toolspan trust`: show and accept the settings, MCP servers, agents and skills in a project folder."""

from __future__ import annotations

from pathlib import Path

import click

from toolspan.cli.output import escape_unprintable, print_json
from toolspan.runtime.settings import SettingsPaths, TrustStore, build_trust_request, default_trust_path, load_layers

_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)
_EXIT_NOT_TRUSTED = 1
_MAX_TEXT_LINES = 60
"""The number of lines that are shown of an agent or a skill."""


@click.command("trust")
@click.argument("folder", type=_FOLDER_TYPE, default=Path())
@click.option("--yes", is_flag=True, help="Accept without asking for confirmation.")
@click.option("--check", is_flag=True, help="Only print whether the folder is trusted; exits with code 1 if not.")
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--list", "listed", is_flag=True, help="List the trusted folders.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes to accept.")
@click.pass_context
def command(ctx: click.Context, /, folder: Path, **flags: bool) -> None:
    """Show what the settings in a project FOLDER would run, and accept it.

    Hooks, variables, allow rules, MCP servers, agents, skills and all other settings in a project
    that do more than restrict are ignored until you accept them here. Accept them again after any
    change; changes to the scripts they run are not detected. Rules that deny or ask always apply.
    """
    store = TrustStore(default_trust_path())
    if flags["listed"]:
        folders = [str(folder) for folder in store.list_folders()]
        if flags["as_json"]:
            print_json({"folders": folders})
        else:
            click.echo("".join(f"{folder}\n" for folder in folders), nl=False)
        return
    if flags["revoke"]:
        was_trusted = store.revoke(folder)
        click.echo(f"{folder.resolve()} {'is no longer trusted' if was_trusted else 'was not trusted'}")
        return
    places = SettingsPaths.for_project(folder.resolve())
    request = build_trust_request(places, load_layers(places, scopes=("project", "local")))
    if flags["as_json"]:
        if flags["yes"] and request:
            store.accept(request)
        trusted = not request or store.is_trusted(request)
        lines = [escape_unprintable(line) for line in request.format_lines()]
        print_json({"folder": str(folder.resolve()), "trusted": trusted, "brings": lines})
        ctx.exit(0 if trusted else _EXIT_NOT_TRUSTED)
    if flags["check"]:
        trusted = store.is_trusted(request)
        click.echo(f"{folder.resolve()} {'is trusted' if trusted else 'is not trusted'}")
        ctx.exit(0 if trusted else _EXIT_NOT_TRUSTED)
    if not request:
        click.echo(f"{request.project} has nothing that needs trust")
        return
    for line in request.format_lines(_MAX_TEXT_LINES):
        click.echo(escape_unprintable(line))
    if store.is_trusted(request):
        click.echo("This is already trusted.")
    elif flags["yes"] or click.confirm(f"Trust {request.project} with this?", default=False):
        store.accept(request)
        click.echo("Trusted until one of these files changes.")
    else:
        click.echo("Not trusted.")
