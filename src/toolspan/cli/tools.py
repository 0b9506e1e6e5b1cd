"""`toolspan tools`: list a session's tools and how their calls run, or its instructions."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import Struct
from rich.table import Table

from toolspan.cli.output import make_console, print_json, warn
from toolspan.cli.profile_type import ProfileType
from toolspan.runtime.profiles import DEFAULT, Profile, profile
from toolspan.runtime.settings import SettingsPaths, TrustStore, build_trust_request, default_trust_path, load_layers
from toolspan.runtime.tool import Tool
from toolspan.session.instructions import load_instructions
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


class InstructionRow(Struct, frozen=True, kw_only=True):
    """One row of `toolspan tools --instructions --json`."""

    path: str
    scope: str
    size: int
    imported_by: str | None
    used: str
    """`yes`, `beginning` if the file is too long, or `no` if the folder is not trusted."""


@click.command("tools")
@click.option("--profile", "name", type=ProfileType(), default=DEFAULT, help="The client version to imitate.")
@click.option("--model", help="The name of the model, on which some tools depend.")
@click.option("--person", is_flag=True, help="Include the tools that ask the user.")
@click.option("--instructions", is_flag=True, help="List the instructions that `run` gives to the model here instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
def command(name: str, model: str | None, *, person: bool, instructions: bool, as_json: bool) -> None:
    """List the tools of a session and how their calls run.

    parallel: whether calls of the tool may run at the same time. read only: they change nothing.
    deferred: the model must search for the tool before it can call it. asks: the user is asked before
    each call.
    """
    if instructions:
        _print_instructions(as_json=as_json)
        return
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


def _print_instructions(*, as_json: bool) -> None:
    project = Path.cwd()
    request = build_trust_request(
        places := SettingsPaths.for_project(project), load_layers(places, scopes=("project", "local"))
    )
    loaded = load_instructions(project, trusted=TrustStore(default_trust_path()).is_trusted(request))
    rows = [
        InstructionRow(
            path=str(file.path),
            scope=file.scope,
            size=len(file.text.encode()),
            imported_by=None if file.imported_by is None else str(file.imported_by),
            used="beginning" if file.is_cut else "yes",
        )
        for file in loaded.files
    ]
    rows += [
        InstructionRow(path=str(path), scope="project", size=path.stat().st_size, imported_by=None, used="no")
        for path in loaded.ignored
    ]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("file", "of", "bytes", "used", "imported by"):
            table.add_column(title, overflow="fold", justify="right" if title == "bytes" else "left")
        for row in rows:
            used = "no: the folder is not trusted" if row.used == "no" else row.used
            table.add_row(row.path, row.scope, f"{row.size:,}", used, row.imported_by or "")
        if rows:
            make_console().print(table)
        else:
            click.echo("No instructions: there is no CLAUDE.md or AGENTS.md for you or for this folder.")
    for line in loaded.problems:
        warn(line)
    if loaded.ignored:
        warn("run `toolspan trust` to accept the instructions of this folder")


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
