"""`toolspan errors`: what went wrong, grouped, with causes and solutions."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import click

from toolspan.cli.gather import gather
from toolspan.cli.output import clock, console, count, escape, print_json, short
from toolspan.cli.select import (
    Filter,
    Selection,
    call_hint,
    filters,
    limited,
    named,
    narrow,
    wanted_filter,
)
from toolspan.model.span import moment
from toolspan.read.facts import CallFacts
from toolspan.read.groups import ErrorGroup, error_groups
from toolspan.read.history import Ledger
from toolspan.read.spread import Job
from toolspan.report.flow.chains import Ending
from toolspan.report.flow.recovery import FileRecovery, fates, file_recovery, file_recovery_all


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
    found, endings = _read(names, last=last, everything=everything)
    rows = _failures(found) if everything else narrow(found, keep)
    groups = error_groups(rows, fates(endings))
    if as_json:
        for group in groups[: limit or None]:
            print_json(group)
    else:
        _print(groups, limit, _count(found, rows), call_hint(names))


def _read(names: Sequence[str], *, last: bool, everything: bool) -> tuple[Selection, list[Ending]]:
    """What was named, and what was done about its failures."""
    job = Job(file_recovery if everything else file_recovery_all, FileRecovery)
    found, joined = gather(names, job, last=last)
    ledger = Ledger([one.facts for one in found])
    return Selection(ledger, joined), [ending for one in found for ending in one.endings]


def _failures(found: Selection) -> Sequence[CallFacts]:
    """Every call that went wrong."""
    return found.ledger.failures if found.joined else found.calls()


def _count(found: Selection, rows: Sequence[CallFacts]) -> int:
    """Of how many calls these are the rows; a survey of failures only names the others."""
    good = sum(len(file.successes) for file in found.ledger.files)
    if good and found.joined:
        return found.ledger.count
    return good + sum(row.state != "orphan_result" for row in rows)


def _print(groups: Sequence[ErrorGroup], limit: int, calls: int, hint: str) -> None:
    out = console()
    shown = groups[:limit] if limit else groups
    lines = [_headline(groups, calls), ""]
    for group in shown:
        lines += [*_lines(group, out.width), ""]
    if hidden := len(groups) - len(shown):
        lines.append(f"{count(hidden, 'more group')} (--limit 0: all)")
    out.print("\n".join(lines))  # all at once, which is much quicker
    if groups:
        out.print(f"[dim]{escape(hint)}[/]", soft_wrap=True)  # to be typed: not broken


def _headline(groups: Sequence[ErrorGroup], calls: int) -> str:
    orphans = sum(group.count for group in groups if group.kind == "orphan_result")
    total = sum(group.count for group in groups) - orphans
    share = f" ({total / calls:.0%})" if calls else ""
    more = f"; {count(orphans, 'orphan result')}" if orphans else ""
    good = sum(group.recovered or 0 for group in groups)
    made_good = f", {good:,} of them made good by later calls" if good else ""
    return f"[bold]{total:,}[/] of {count(calls, 'call')} did not succeed{share}{made_good}{more}"


def _lines(group: ErrorGroup, width: int) -> Iterator[str]:
    """What is told of one group."""
    example = group.example
    line = example.request_line or example.result_line
    yield (
        f"[bold red]{group.count:>5}×[/] [bold]{group.kind}[/]  {escape(group.tool)}"
        f"  [dim]{count(group.sessions, 'session')}, last {clock(moment(group.last))}[/]"
    )
    if example.message:
        yield f"       {escape(short(example.message, width - 8))}"
    yield f"       [dim]{group.cause}.[/] [green]{group.solution}.[/]"
    yield f"       {_recovered(group)}"
    place = f"{short(PurePath(example.file).name, 14)}:{line}"
    yield f"       [dim]e.g. {escape(example.id)} in {escape(place)}[/]"


def _recovered(group: ErrorGroup) -> str:
    """How many were made good, and how."""
    if not group.recovered:
        return "[dim]never recovered[/]"
    ways = [f"{name} {n}" for name, n in group.recovered_by.items()]
    how = f" by {next(iter(group.recovered_by))}" if len(ways) == 1 else f": {', '.join(ways[:3])}"
    return f"recovered [bold]{group.recovered:,}[/] of {group.count:,}{how if ways else ''}"
