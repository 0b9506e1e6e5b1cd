"""`toolspan errors`: failed calls in groups, with causes, solutions and recoveries."""

from __future__ import annotations

from collections import Counter
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
from toolspan.cli.select import (
    CallFilter,
    CallSelection,
    call_hint,
    filter_calls,
    filter_options,
    last_option,
    limit_option,
    names_argument,
    read_selected_files,
)
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import FileJob
from toolspan.reading.rows import CallRow
from toolspan.types.span import parse_timestamp


@click.command("errors")
@names_argument
@last_option
@limit_option(15, "groups")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@filter_options
def command(names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, **filter_values: Any) -> None:
    """Group failed calls by error kind and message.

    Each group shows its cause, a solution, how many of its failures later calls recovered and
    how, and an example.
    """
    call_filter = CallFilter.from_options(filter_values)
    everything = call_filter == CallFilter()  # successful calls then need no rows
    selection, endings = _read_failures(names, last=last, everything=everything)
    rows = _failed_calls(selection) if everything else filter_calls(selection, call_filter)
    groups = group_errors(rows, recovery_by_call(endings))
    if as_json:
        for group in groups[: limit or None]:
            print_json(group)
    else:
        _print_groups(groups, limit, _count_calls(selection, rows), call_hint(names))


def _read_failures(names: Sequence[str], *, last: bool, everything: bool) -> tuple[CallSelection, list[ChainEnding]]:
    job = FileJob(file_recovery if everything else file_recovery_all, FileRecovery)
    files, joined = read_selected_files(names, job, last=last)
    call_table = CallTable([file.facts for file in files])
    return CallSelection(call_table, joined), [ending for file in files for ending in file.endings]


def _failed_calls(selection: CallSelection) -> Sequence[CallRow]:
    return selection.call_table.failures if selection.is_joined else selection.list_calls()


def _count_calls(selection: CallSelection, rows: Sequence[CallRow]) -> int:
    """Return the number of calls from which `rows` were selected."""
    succeeded = sum(len(file.successes) for file in selection.call_table.files)
    if succeeded and selection.is_joined:
        return selection.call_table.call_count
    return succeeded + sum(row.state != "orphan_result" for row in rows)


def _print_groups(groups: Sequence[ErrorGroup], limit: int, calls: int, hint: str) -> None:
    out = make_console()
    visible_groups = groups[: limit or None]
    lines = [_format_headline(groups, calls), *_recovery_summary(groups), ""]
    for group in visible_groups:
        lines += [*_group_lines(group, out.width), ""]
    if hidden := len(groups) - len(visible_groups):
        lines.append(f"{format_count(hidden, 'more group')} (--limit 0: all)")
    out.print("\n".join(lines))  # perf: one print is much faster
    if groups:
        out.print(f"[dim]{escape_markup(hint)}[/]", soft_wrap=True)  # not wrapped, so that it can be copied


def _format_headline(groups: Sequence[ErrorGroup], calls: int) -> str:
    orphans = sum(group.count for group in groups if group.kind == "orphan_result")
    total = sum(group.count for group in groups) - orphans
    share = f" ({total / calls:.0%})" if calls else ""
    more = f"; {format_count(orphans, 'orphan result')}" if orphans else ""
    recovered = sum(group.recovered or 0 for group in groups)
    was = "was" if recovered == 1 else "were"
    recovery_note = f"; {recovered:,} {was} recovered by later calls" if recovered else ""
    return f"[bold]{total:,}[/] of {format_count(calls, 'call')} failed{share}{recovery_note}{more}"


def _recovery_summary(groups: Sequence[ErrorGroup]) -> Iterator[str]:
    """Yield one line that lists how failures were recovered, most frequent first."""
    ways: Counter[str] = Counter()
    for group in groups:
        ways.update(group.recovered_by)
    if ways:
        yield f"[dim]recovered by {', '.join(f'{name} {n:,}' for name, n in ways.most_common())}[/]"


def _group_lines(group: ErrorGroup, width: int) -> Iterator[str]:
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
    if not group.recovered:
        return "[dim]not recovered[/]"
    ways = [f"{name} {n}" for name, n in group.recovered_by.items()]
    how = f" by {next(iter(group.recovered_by))}" if len(ways) == 1 else f": {', '.join(ways[:3])}"
    return f"recovered [bold]{group.recovered:,}[/] of {group.count:,}{how if ways else ''}"
