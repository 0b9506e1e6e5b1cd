"""`toolspan tools`: which tools a session has, and how their calls are run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import Struct

from toolspan.runtime.profiles import DEFAULT, VERSIONS

if TYPE_CHECKING:
    from toolspan.runtime.profiles import Profile
    from toolspan.runtime.tool import Tool


class ToolRow(Struct, frozen=True, kw_only=True):
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
    "--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT, help="The client version to behave like."
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
    from toolspan.cli.output import print_json
    from toolspan.runtime.profiles import profile
    from toolspan.tools import coding_tools

    client = profile(name, model=model)
    rows = [_tool_row(tool, client) for tool in coding_tools(client, person=person)]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        _print_tools(rows)


def _tool_row(tool: Tool, client: Profile) -> ToolRow:
    return ToolRow(
        name=tool.name,
        concurrent=tool.concurrent if isinstance(tool.concurrent, bool) else None,
        read_only=tool.read_only,
        deferred=client.availability.is_deferred(tool.name),
        asks=tool.approval_prompt is not None,
        aliases=tool.aliases,
        input=_input_names(tool),
        description=" ".join(tool.description.split()),
    )


def _input_names(tool: Tool) -> tuple[str, ...]:
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list | tuple) else ()
    return tuple(name if name in needed else f"{name}?" for name in names)


_CONCURRENCY_LABELS = {True: "yes", False: "no", None: "some"}


def _print_tools(rows: list[ToolRow]) -> None:
    from rich.table import Table

    from toolspan.cli.output import make_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "together", "read only", "deferred", "asks", "also called", "input"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            _CONCURRENCY_LABELS[row.concurrent],
            "yes" if row.read_only else "no",
            "yes" if row.deferred else "",
            "yes" if row.asks else "",
            ", ".join(row.aliases),
            " ".join(row.input),
        )
    make_console().print(table)
