"""`toolspan tools`: which tools a session has, and how their calls are run."""

from typing import TYPE_CHECKING

import click
from msgspec import Struct

from toolspan.profile import DEFAULT, VERSIONS

if TYPE_CHECKING:
    from toolspan.profile import Profile
    from toolspan.run.tool import Tool


class Row(Struct, frozen=True, kw_only=True):
    """What is told of a tool."""

    name: str
    concurrent: bool | None
    """Whether calls may overlap; null: it hangs on the call."""
    read_only: bool
    deferred: bool
    """The model sees it only when it searches for it."""
    asks: bool
    """A person is asked before it runs, whatever the rules say."""
    aliases: tuple[str, ...]
    input: tuple[str, ...]
    """The names of its input; `?` follows those that can be left out."""
    description: str


@click.command("tools")
@click.option(
    "--profile",
    "name",
    type=click.Choice(VERSIONS),
    default=DEFAULT,
    help="The client version to behave like.",
)
@click.option("--model", help="The model's name; some behaviour hangs on it.")
@click.option("--person", is_flag=True, help="As if somebody were there to be asked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, one tool each.")
def command(name: str, model: str | None, *, person: bool, as_json: bool) -> None:
    """Which tools a session has, and how their calls are run.

    "Together" says whether calls of a tool may run beside each other; "read only" that they change
    nothing; a deferred tool is shown to the model only when it searches for it; "asks" that a
    person is asked before each call.
    """
    from toolspan.builtin import coding_tools
    from toolspan.cli.output import print_json
    from toolspan.profile import profile

    client = profile(name, model=model)
    rows = [_row(tool, client) for tool in coding_tools(client, person=person)]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        _print(rows)


def _row(tool: "Tool", client: "Profile") -> Row:
    return Row(
        name=tool.name,
        concurrent=tool.concurrent if isinstance(tool.concurrent, bool) else None,
        read_only=tool.read_only,
        deferred=client.offer.defers(tool.name),
        asks=tool.asks is not None,
        aliases=tool.aliases,
        input=_input(tool),
        description=" ".join(tool.description.split()),
    )


def _input(tool: "Tool") -> tuple[str, ...]:
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list | tuple) else ()
    return tuple(name if name in needed else f"{name}?" for name in names)


_TOGETHER = {True: "yes", False: "no", None: "some"}


def _print(rows: list[Row]) -> None:
    from rich.table import Table

    from toolspan.cli.output import console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "together", "read only", "deferred", "asks", "also called", "input"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            _TOGETHER[row.concurrent],
            "yes" if row.read_only else "no",
            "yes" if row.deferred else "",
            "yes" if row.asks else "",
            ", ".join(row.aliases),
            " ".join(row.input),
        )
    console().print(table)
