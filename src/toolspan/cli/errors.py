"""`toolspan errors`: what went wrong, grouped, with causes and solutions."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import click

from toolspan.cli.output import clock, console, count, escape, print_json, short
from toolspan.cli.select import (
    Filter,
    Selection,
    filters,
    limited,
    named,
    narrow,
    select,
    wanted_filter,
)
from toolspan.model.span import moment
from toolspan.read.facts import CallFacts
from toolspan.read.groups import ErrorGroup, error_groups


@click.command("errors")
@named
@click.option("--last", is_flag=True, help="The session written to last.")
@limited(15, "Groups")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per group.")
@filters
def command(
    names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, **wanted: Any
) -> None:
    """What went wrong, grouped by kind and wording, with cause, solution and an example."""
    keep = wanted_filter(wanted)
    everything = keep == Filter()  # then those that went well need no rows
    found = select(names, last=last, wanted="failures" if everything else "all")
    rows = _failures(found) if everything else narrow(found, keep)
    groups = error_groups(rows)
    if as_json:
        for group in groups:
            print_json(group)
    else:
        _print(groups, limit, _count(found, rows))


def _failures(found: Selection) -> Sequence[CallFacts]:
    """Every call that went wrong."""
    return found.ledger.failures if found.joined else found.calls()


def _count(found: Selection, rows: Sequence[CallFacts]) -> int:
    """Of how many calls these are the rows; a survey of failures only names the others."""
    good = sum(len(file.successes) for file in found.ledger.files)
    if good and found.joined:
        return found.ledger.count
    return good + sum(row.state != "orphan_result" for row in rows)


def _print(groups: Sequence[ErrorGroup], limit: int, calls: int) -> None:
    out = console()
    orphans = sum(group.count for group in groups if group.kind == "orphan_result")
    total = sum(group.count for group in groups) - orphans
    share = f" ({total / calls:.0%})" if calls else ""
    more = f"; {count(orphans, 'orphan result')}" if orphans else ""
    out.print(f"[bold]{total:,}[/] of {count(calls, 'call')} did not succeed{share}{more}\n")
    shown = groups[:limit] if limit else groups
    for group in shown:
        example = group.example
        line = example.request_line or example.result_line
        out.print(
            f"[bold red]{group.count:>5}×[/] [bold]{group.kind}[/]  {escape(group.tool)}"
            f"  [dim]{count(group.sessions, 'session')}, last {clock(moment(group.last))}[/]"
        )
        if example.message:
            out.print(f"       {escape(short(example.message, out.width - 8))}")
        out.print(f"       [dim]{group.cause}.[/] [green]{group.solution}.[/]")
        place = f"{PurePath(example.file).name[:13]}…:{line}"
        out.print(f"       [dim]e.g. {escape(example.id)} in {escape(place)}[/]\n")
    hidden = len(groups) - len(shown)
    if hidden:
        out.print(f"{count(hidden, 'more group')} (--limit 0: all)")
    if groups:
        out.print("[dim]toolspan show CALL tells one call in full.[/]")
