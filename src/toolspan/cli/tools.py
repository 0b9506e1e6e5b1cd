"""`toolspan tools`: list a session's tools and how their calls run."""

from __future__ import annotations

import click
from msgspec import Struct
from rich.table import Table

from toolspan.cli.output import make_console, print_json
from toolspan.runtime.profiles import DEFAULT, VERSIONS, Profile, profile
from toolspan.runtime.tool import Tool
from toolspan.tools import coding_tools

_CONCURRENCY_LABELS = {True: "yes", False: "no", None: "some"}


class ToolRow(Struct, frozen=True, kw_only=True):
    """One row of `toolspan tools --json`."""

    name: str
    concurrent: bool | None
    """True if calls may run in parallel; null if that depends on the call."""
    read_only: bool
    deferred: bool
    """True if the model gets the tool only after searching for it."""
    asks: bool
    """True if the user is asked before each call, regardless of the rules."""
    aliases: tuple[str, ...]
    input: tuple[str, ...]
    """The names of the input fields. A `?` marks optional fields."""
    description: str


@click.command("tools")
@click.option("--profile", "name", type=click.Choice(VERSIONS), default=DEFAULT, help="The client version to imitate.")
@click.option("--model", help="The name of the model, which changes some tools.")
@click.option("--person", is_flag=True, help="Include the tools that ask the user.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per tool.")
def command(name: str, model: str | None, *, person: bool, as_json: bool) -> None:
    """List the tools of a session and how their calls run.

    parallel: whether calls of the tool may run at the same time. read only: they change nothing.
    deferred: the model gets the tool only after searching for it. asks: the user is asked before
    each call.
    """
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


def _print_tools(rows: list[ToolRow]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "parallel", "read only", "deferred", "asks", "also called", "input"):
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
