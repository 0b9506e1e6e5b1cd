"""`toolspan errors`: failed calls in groups, with causes, solutions and recoveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import click

from toolspan.analysis.errors import (
    ErrorGroup,
    FileRecovery,
    file_recovery,
    file_recovery_all,
    group_errors,
    recovery_by_call,
)
from toolspan.cli import select
from toolspan.cli.output import (
    escape_markup,
    format_count,
    format_time,
    make_console,
    markup_line,
    print_json,
    shorten_line,
)
from toolspan.reading.history import CallTable
from toolspan.reading.parallel import FileJob
from toolspan.types.span import parse_timestamp


@click.command("errors")
@select.names_argument
@select.last_option
@select.limit_option(15, "groups")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@select.filter_options
def command(names: tuple[str, ...], *, last: bool, limit: int, as_json: bool, call_filter: select.CallFilter) -> None:
    """Group failed calls by error kind and message.

    Each group shows its cause, a solution, how many of its failures later calls recovered and
    how, and an example.
    """
    everything = call_filter == select.CallFilter()  # successful calls then need no rows
    job = FileJob(file_recovery if everything else file_recovery_all, FileRecovery)
    files, joined = select.read_selected_files(names, job, last=last)
    call_table = CallTable([file.facts for file in files])
    selection = select.CallSelection(call_table, joined)
    if everything:
        rows = call_table.failures if joined else selection.list_calls()
    else:
        rows = select.filter_calls(selection, call_filter)
    groups = group_errors(rows, recovery_by_call([ending for file in files for ending in file.endings]))
    if as_json:
        print_json(*groups[: limit or None])
        return
    succeeded = sum(len(file.successes) for file in call_table.files)
    if succeeded and joined:
        call_count = call_table.call_count
    else:
        call_count = succeeded + sum(row.state != "orphan_result" for row in rows)
    _print_groups(groups, limit, call_count, select.call_hint(names))


def _print_groups(groups: Sequence[ErrorGroup], limit: int, calls: int, hint: str) -> None:
    out = make_console()
    counts: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for group in groups:
        counts["orphans" if group.kind == "orphan_result" else "failed"] += group.count
        counts["recovered"] += group.recovered or 0
        ways.update(group.recovered_by)
    headline = f"[bold]{counts['failed']:,}[/] of {format_count(calls, 'call')} failed"
    if calls:
        headline += f" ({counts['failed'] / calls:.0%})"
    if recovered := counts["recovered"]:
        headline += f"; {recovered:,} {'was' if recovered == 1 else 'were'} recovered by later calls"
    if counts["orphans"]:
        headline += f"; {format_count(counts['orphans'], 'orphan result')}"
    lines = [headline]
    if ways:
        lines.append(f"[dim]recovered by {', '.join(f'{name} {n:,}' for name, n in ways.most_common())}[/]")
    visible_groups = groups[: limit or None]
    for group in visible_groups:
        lines += ["", *_group_lines(group, out.width)]
    lines.append("")
    if hidden := len(groups) - len(visible_groups):
        lines.append(f"{format_count(hidden, 'more group')} (--limit 0: all)")
    out.print("\n".join(lines))  # perf: one print is much faster
    if groups:
        out.print(f"[dim]{escape_markup(hint)}[/]", soft_wrap=True)  # not wrapped, so that it can be copied


def _group_lines(group: ErrorGroup, width: int) -> Iterator[str]:
    example = group.example
    yield (
        f"[bold red]{group.count:>5}×[/] [bold]{group.kind}[/]  {escape_markup(group.tool)}"
        f"  [dim]{format_count(group.sessions, 'session')}, last {format_time(parse_timestamp(group.last))}[/]"
    )
    if example.message:
        yield f"       {markup_line(example.message, width - 8)}"
    yield f"       [dim]{group.cause}.[/] [green]{group.solution}.[/]"
    if group.recovered:
        ways = [f"{name} {n}" for name, n in group.recovered_by.items()]
        how = f" by {next(iter(group.recovered_by))}" if len(ways) == 1 else f": {', '.join(ways[:3])}"
        yield f"       recovered [bold]{group.recovered:,}[/] of {group.count:,}{how if ways else ''}"
    else:
        yield "       [dim]not recovered[/]"
    place = f"{shorten_line(PurePath(example.file).name, 14)}:{example.request_line or example.result_line}"
    yield f"       [dim]e.g. {escape_markup(example.id)} in {escape_markup(place)}[/]"
