"""`toolspan tools`: list a session's tools and how their calls run."""

from __future__ import annotations

import click
from msgspec import Struct
from rich.table import Table

from toolspan.cli.output import make_console, print_json
from toolspan.cli.profile_type import ProfileType
from toolspan.runtime.profiles import DEFAULT, Profile, profile
from toolspan.runtime.tool import Tool
from toolspan.tools import coding_tools

_CONCURRENCY_LABELS = {True: "yes", False: "no", None: "some"}


class ToolRow(Struct, frozen=True, kw_only=True):
    """One row of `toolspan tools --json`."""

    name: str
    concurrent: bool | None
    read_only: bool
    deferred: bool
    asks: bool
    aliases: tuple[str, ...]
    input: tuple[str, ...]
    description: str


@click.command("tools")
@click.option("--profile", "name", type=ProfileType(), default=DEFAULT, help="The client version to imitate.")
@click.option("--model", help="The name of the model, on which some tools depend.")
@click.option("--person", is_flag=True, help="Include the tools that ask the user.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per tool.")
def command(name: str, model: str | None, *, person: bool, as_json: bool) -> None:
    """List the tools of a session and how their calls run.

    parallel: whether calls of the tool may run at the same time. read only: they change nothing.
    deferred: the model must search for the tool before it can call it. asks: the user is asked before
    each call.
    """
    client = profile(name, model=model)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("tool", "parallel", "read only", "deferred", "asks", "also called", "input"):
        table.add_column(title, overflow="fold")
    for tool in coding_tools(client, person=person):
        row = _tool_row(tool, client)
        if as_json:
            print_json(row)
        table.add_row(
            row.name,
            _CONCURRENCY_LABELS[row.concurrent],
            "yes" if row.read_only else "no",
            "yes" if row.deferred else "",
            "yes" if row.asks else "",
            ", ".join(row.aliases),
            " ".join(row.input),
        )
    if not as_json:
        make_console().print(table)


def _tool_row(tool: Tool, client: Profile) -> ToolRow:
    properties = tool.input_schema.get("properties")
    required = tool.input_schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list | tuple) else ()
    return ToolRow(
        name=tool.name,
        concurrent=tool.concurrent if isinstance(tool.concurrent, bool) else None,
        read_only=tool.read_only,
        deferred=client.availability.is_deferred(tool.name),
        asks=tool.approval_prompt is not None,
        aliases=tool.aliases,
        input=tuple(name if name in needed else f"{name}?" for name in names),
        description=" ".join(tool.description.split()),
    )
