"""`toolspan errors`: what went wrong, grouped, with causes and solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import click

from toolspan.analysis.errors import (
    ErrorGroup,
    FileRecovery,
    file_recovery,
    file_recovery_all,
    group_errors,
    recovery_by_call,
)
from toolspan.analysis.recovery import ChainEnding
from toolspan.cli.output import escape_markup, format_count, format_time, make_console, print_json, shorten_line
from toolspan.cli.read_selected import read_selected_files
from toolspan.cli.select import (
    CallFilter,
    CallSelection,
    call_hint,
    filter_calls,
    filter_options,
    limit_option,
    make_filter,
    names_argument,
)
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import FileJob
from toolspan.reading.rows import CallRow
from toolspan.types.span import parse_timestamp


@click.command("errors")
@names_argument
@click.option("--last", is_flag=True, help="The session written to last.")
@limit_option(15, "Groups")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per group.")
@filter_options
def command(names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, **filter_values: Any) -> None:
    """What went wrong, grouped by kind and wording, with cause, solution and an example."""
    call_filter = make_filter(filter_values)
    everything = call_filter == CallFilter()  # then those that went well need no rows
    selection, endings = _read_failures(names, last=last, everything=everything)
    rows = _failed_calls(selection) if everything else filter_calls(selection, call_filter)
    groups = group_errors(rows, recovery_by_call(endings))
    if as_json:
        for group in groups[: limit or None]:
            print_json(group)
    else:
        _print_groups(groups, limit, _count_calls(selection, rows), call_hint(names))


def _read_failures(names: Sequence[str], *, last: bool, everything: bool) -> tuple[CallSelection, list[ChainEnding]]:
    """What was named, and what was done about its failures."""
    job = FileJob(file_recovery if everything else file_recovery_all, FileRecovery)
    files, joined = read_selected_files(names, job, last=last)
    ledger = CallTable([file.facts for file in files])
    return CallSelection(ledger, joined), [ending for file in files for ending in file.endings]


def _failed_calls(selection: CallSelection) -> Sequence[CallRow]:
    """Every call that went wrong."""
    return selection.call_table.failures if selection.is_joined else selection.list_calls()


def _count_calls(selection: CallSelection, rows: Sequence[CallRow]) -> int:
    """Of how many calls these are the rows; a survey of failures only names the others."""
    succeeded = sum(len(file.successes) for file in selection.call_table.files)
    if succeeded and selection.is_joined:
        return selection.call_table.call_count
    return succeeded + sum(row.state != "orphan_result" for row in rows)


def _print_groups(groups: Sequence[ErrorGroup], limit: int, calls: int, hint: str) -> None:
    out = make_console()
    visible_groups = groups[:limit] if limit else groups
    lines = [_format_headline(groups, calls), ""]
    for group in visible_groups:
        lines += [*_group_lines(group, out.width), ""]
    if hidden := len(groups) - len(visible_groups):
        lines.append(f"{format_count(hidden, 'more group')} (--limit 0: all)")
    out.print("\n".join(lines))  # all at once, which is much quicker
    if groups:
        out.print(f"[dim]{escape_markup(hint)}[/]", soft_wrap=True)  # to be typed: not broken


def _format_headline(groups: Sequence[ErrorGroup], calls: int) -> str:
    orphans = sum(group.count for group in groups if group.kind == "orphan_result")
    total = sum(group.count for group in groups) - orphans
    share = f" ({total / calls:.0%})" if calls else ""
    more = f"; {format_count(orphans, 'orphan result')}" if orphans else ""
    recovered = sum(group.recovered or 0 for group in groups)
    recovery_note = f", {recovered:,} of them made good by later calls" if recovered else ""
    return f"[bold]{total:,}[/] of {format_count(calls, 'call')} did not succeed{share}{recovery_note}{more}"


def _group_lines(group: ErrorGroup, width: int) -> Iterator[str]:
    """What is told of one group."""
    example = group.example
    line = example.request_line or example.result_line
    yield (
        f"[bold red]{group.count:>5}×[/] [bold]{group.kind}[/]  {escape_markup(group.tool)}"
        f"  [dim]{format_count(group.sessions, 'session')}, last {format_time(parse_timestamp(group.last))}[/]"
    )
    if example.message:
        yield f"       {escape_markup(shorten_line(example.message, width - 8))}"
    yield f"       [dim]{group.cause}.[/] [green]{group.solution}.[/]"
    yield f"       {_format_recovery(group)}"
    place = f"{shorten_line(PurePath(example.file).name, 14)}:{line}"
    yield f"       [dim]e.g. {escape_markup(example.id)} in {escape_markup(place)}[/]"


def _format_recovery(group: ErrorGroup) -> str:
    """How many were made good, and how."""
    if not group.recovered:
        return "[dim]never recovered[/]"
    ways = [f"{name} {n}" for name, n in group.recovered_by.items()]
    how = f" by {next(iter(group.recovered_by))}" if len(ways) == 1 else f": {', '.join(ways[:3])}"
    return f"recovered [bold]{group.recovered:,}[/] of {group.count:,}{how if ways else ''}"
