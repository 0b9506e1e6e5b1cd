"""`toolspan trust`: accept what a project folder would have us run, after looking at it."""

from pathlib import Path

import click

from toolspan.cli.output import print_json
from toolspan.settings import Claim, Places, TrustStore, claim_of, default_store, gather

_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
_NOT_TRUSTED = 1


@click.command("trust")
@click.argument("folder", type=_FOLDER, default=Path())
@click.option("--yes", is_flag=True, help="Accept without being asked.")
@click.option("--check", is_flag=True, help="Only say whether it is trusted; exit code 1 if not.")
@click.option("--revoke", is_flag=True, help="Trust the folder no more.")
@click.option("--list", "listed", is_flag=True, help="Which folders were accepted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; nobody is asked.")
@click.pass_context
def command(ctx: click.Context, /, folder: Path, **chosen: bool) -> None:
    """Show what the settings of a project FOLDER would run, and accept it.

    Hooks, variables, allow rules and MCP servers that a folder brings along are not used before
    they were accepted here. Any change to them has to be accepted again; scripts they name are not
    watched. Rules that deny or ask always count.
    """
    store = TrustStore(default_store())
    if chosen["listed"]:
        _list(store, as_json=chosen["as_json"])
        return
    if chosen["revoke"]:
        known = store.forget(folder)
        click.echo(
            f"{folder.resolve()} {'is not trusted any more' if known else 'was not trusted'}"
        )
        return
    places = Places.of(folder.resolve())
    claim = claim_of(places, gather(places, scopes=("project", "local")))
    if chosen["as_json"]:
        if chosen["yes"] and claim:
            store.accept(claim)
        trusted = not claim or store.trusts(claim)
        lines = [_plain(line) for line in claim.lines()]
        print_json({"folder": str(folder.resolve()), "trusted": trusted, "brings": lines})
        ctx.exit(0 if trusted else _NOT_TRUSTED)
    if chosen["check"]:
        trusted = store.trusts(claim)
        click.echo(f"{folder.resolve()} {'is trusted' if trusted else 'is not trusted'}")
        ctx.exit(0 if trusted else _NOT_TRUSTED)
    _accept(claim, store, sure=chosen["yes"])


def _list(store: TrustStore, *, as_json: bool) -> None:
    folders = [str(one) for one in store.folders()]
    if as_json:
        print_json({"folders": folders})
        return
    for one in folders:
        click.echo(one)


def _accept(claim: Claim, store: TrustStore, *, sure: bool) -> None:
    if not claim:
        click.echo(f"{claim.project} brings nothing along that would need trust")
        return
    for line in claim.lines():
        click.echo(_plain(line))
    if store.trusts(claim):
        click.echo("This is trusted already.")
        return
    if sure or click.confirm(f"Trust {claim.project} with this?", default=False):
        store.accept(claim)
        click.echo("Trusted, until one of these files changes.")
    else:
        click.echo("Not trusted.")


def _plain(line: str) -> str:
    """Without what a terminal would obey: the file is not ours."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
