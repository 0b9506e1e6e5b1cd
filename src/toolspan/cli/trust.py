"""`toolspan trust`: accept what a project folder would have us run, after looking at it."""

from __future__ import annotations

from pathlib import Path

import click

from toolspan.cli.output import print_json
from toolspan.runtime.settings import (
    SettingsPaths,
    TrustRequest,
    TrustStore,
    build_trust_request,
    default_trust_path,
    load_layers,
)

_FOLDER_TYPE = click.Path(path_type=Path, file_okay=False, exists=True)
_EXIT_NOT_TRUSTED = 1


@click.command("trust")
@click.argument("folder", type=_FOLDER_TYPE, default=Path())
@click.option("--yes", is_flag=True, help="Accept without being asked.")
@click.option("--check", is_flag=True, help="Only say whether it is trusted; exit code 1 if not.")
@click.option("--revoke", is_flag=True, help="Trust the folder no more.")
@click.option("--list", "listed", is_flag=True, help="Which folders were accepted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; nobody is asked.")
@click.pass_context
def command(ctx: click.Context, /, folder: Path, **flags: bool) -> None:
    """Show what the settings of a project FOLDER would run, and accept it.

    Hooks, variables, allow rules and MCP servers that a folder brings along are not used before
    they were accepted here. Any change to them has to be accepted again; scripts they name are not
    watched. Rules that deny or ask always count.
    """
    store = TrustStore(default_trust_path())
    if flags["listed"]:
        _print_folders(store, as_json=flags["as_json"])
        return
    if flags["revoke"]:
        was_trusted = store.revoke(folder)
        click.echo(f"{folder.resolve()} {'is not trusted any more' if was_trusted else 'was not trusted'}")
        return
    places = SettingsPaths.for_project(folder.resolve())
    claim = build_trust_request(places, load_layers(places, scopes=("project", "local")))
    if flags["as_json"]:
        if flags["yes"] and claim:
            store.accept(claim)
        trusted = not claim or store.is_trusted(claim)
        lines = [_escape_unprintable(line) for line in claim.format_lines()]
        print_json({"folder": str(folder.resolve()), "trusted": trusted, "brings": lines})
        ctx.exit(0 if trusted else _EXIT_NOT_TRUSTED)
    if flags["check"]:
        trusted = store.is_trusted(claim)
        click.echo(f"{folder.resolve()} {'is trusted' if trusted else 'is not trusted'}")
        ctx.exit(0 if trusted else _EXIT_NOT_TRUSTED)
    _confirm_trust(claim, store, sure=flags["yes"])


def _print_folders(store: TrustStore, *, as_json: bool) -> None:
    folders = [str(folder) for folder in store.list_folders()]
    if as_json:
        print_json({"folders": folders})
        return
    for folder in folders:
        click.echo(folder)


def _confirm_trust(claim: TrustRequest, store: TrustStore, *, sure: bool) -> None:
    if not claim:
        click.echo(f"{claim.project} brings nothing along that would need trust")
        return
    for line in claim.format_lines():
        click.echo(_escape_unprintable(line))
    if store.is_trusted(claim):
        click.echo("This is trusted already.")
        return
    if sure or click.confirm(f"Trust {claim.project} with this?", default=False):
        store.accept(claim)
        click.echo("Trusted, until one of these files changes.")
    else:
        click.echo("Not trusted.")


def _escape_unprintable(line: str) -> str:
    """Without what a terminal would obey: the file is not ours."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
