"""`toolspan calls`: every tool call, one row each."""

import sys

import click

from toolspan.read.facts import facts_of, json_line
from toolspan.read.transcript import read


@click.command("calls")
@click.argument("files", nargs=-1)
@click.option("--json", "as_json", is_flag=True)
def command(files: tuple[str, ...], *, as_json: bool) -> None:
    """Every tool call, one row each."""
    for file in files:
        for span in read(file).spans:
            sys.stdout.buffer.write(json_line(facts_of(span, file)) + b"\n")
