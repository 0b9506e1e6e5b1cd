"""`toolspan errors`: failed calls in groups, with causes, solutions and recoveries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from toolspan.analysis.errors import ErrorGroup
from toolspan.analysis.recovery import CHAIN_WORDS
from toolspan.archive.archive import Archive
from toolspan.archive.errors import SORT_COLUMNS
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_count, shorten_line
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import (
    cell_width,
    escape_markup,
    format_time,
    make_console,
    markup_line,
    print_json,
    time_zone,
)
from toolspan.types.error_kinds import KIND_WORDS
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from rich.console import Console

_NARROW_WIDTH = 90
_INDENT = " " * 7
_MIN_WIDTH = 20
_SHELL_WORDS = re.compile(r"(?:[^\s'\"\\]|\\.|'[^']*'|\"[^\"]*\")+")


@click.command("errors")
@select.archive_options(tables=True)
@lists.limit_option(15, "groups")
@lists.sort_option(*SORT_COLUMNS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@filter_options
def command(*, archive: Archive, limit: int, sort: str | None, as_json: bool, call_filter: Filter) -> None:
    """Group failed calls by cause: the program that failed and its error message.

    Each group shows when it occurred, advice, how later calls recovered from it, and the command
    that lists all its calls. Searches that found nothing are not errors and are counted last.
    """
    groups = archive.errors(call_filter, sort=sort, limit=limit if as_json else None, zone=time_zone())
    if as_json:
        print_json(*groups)
    else:
        _print_groups(groups, limit, groups.calls, archive.names)


def _print_groups(groups: Sequence[ErrorGroup], limit: int, calls: int, names: Sequence[str]) -> None:
    out = make_console()
    causes = [group for group in groups if group.kind != "nothing_found"]
    for line in _headline(causes, calls):
        out.print(line)
    lines: list[str] = []
    visible_groups = causes[: limit or None]
    for group in visible_groups:
        lines += ["", *_group_lines(group, out)]
    lines.append("")
    if hidden := len(causes) - len(visible_groups):
        lines.append(f"{format_count(hidden, 'more group')} (--limit 0: all)")
    for group in groups[len(causes) :]:
        what = "search or check" if group.count == 1 else "searches or checks"
        note = f"{group.count:,} {what} found nothing, which is not an error:"
        if len(note) + len(group.command) < out.width:
            lines.append(f"{note} {escape_markup(group.command)}")
        else:
            lines += [*_wrap([note], out), *_command_lines(group.command, out.width)]
    # perf: one print is much faster. The lines are already wrapped.
    out.print("\n".join(lines), soft_wrap=True)
    if groups:
        lists.print_hints(names, lists.CALL_HINT, wrap=False)


def _headline(groups: Sequence[ErrorGroup], calls: int) -> Iterator[str]:
    counts: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for group in groups:
        counts["orphans" if group.kind == "orphan_result" else "failed"] += group.count - group.background
        counts["background"] += group.background
        counts["recovered"] += group.recovered or 0
        ways.update(group.recovered_by)
    headline = f"[bold]{counts['failed']:,}[/] of {format_count(calls, 'call')} failed"
    if calls:
        headline += f" ({counts['failed'] / calls:.0%})"
    if recovered := counts["recovered"]:
        headline += f"; {recovered:,} {'was' if recovered == 1 else 'were'} recovered by later calls"
    if counts["background"]:
        headline += f"; {format_count(counts['background'], 'background command')} failed later"
    if counts["orphans"]:
        headline += f"; {format_count(counts['orphans'], 'orphan result')}"
    yield headline
    if len(groups) > 1:
        yield f"[dim]{len(groups):,} causes, most frequent first[/]"
    if ways:
        how = ", ".join(f"{CHAIN_WORDS[name]} {n:,}" for name, n in ways.most_common())
        yield f"[dim]recovered by: {how}[/]"


def _group_lines(group: ErrorGroup, out: Console) -> Iterator[str]:
    for parts in _group_parts(group, out.width):
        yield from _wrap(parts, out)
    yield from _command_lines(group.command, out.width)


def _group_parts(group: ErrorGroup, width: int) -> Iterator[list[str]]:
    """Yield the lines about a group, each in parts that share a line only if there is room."""
    example = group.example
    who = group.program or group.tool
    first, last = (format_time(parse_timestamp(at)) for at in (group.first, group.last))
    when = f"last {last}" if first == last else f"{first} to {last}, {group.trend}"
    what = f"[bold red]{group.count:>5}×[/] [bold]{escape_markup(who)}[/]  {KIND_WORDS.get(group.kind, group.kind)}"
    yield [what, f"[dim]{format_count(group.sessions, 'session')}, {when}[/]"]
    if text := group.text or example.message:
        yield [f"{_INDENT}{markup_line(text, width - 8)}"]
    yield [f"{_INDENT}[dim]{group.cause}.[/]", f"[green]{group.solution}.[/]"]
    if group.background:
        yield [f"{_INDENT}{group.background:,} of these failed later, in the background"]
    place = f"{shorten_line(PurePath(example.file).name, 14)}:{example.request_line or example.result_line}"
    where = f"[dim]· e.g. {escape_markup(example.id)} in {escape_markup(place)}[/]"
    if not group.recovered:
        yield [f"{_INDENT}not recovered {where}"]
        return
    ways = [f"{CHAIN_WORDS[name]} {n}" for name, n in group.recovered_by.items()]
    how = CHAIN_WORDS[next(iter(group.recovered_by))] if len(ways) == 1 else ", ".join(ways)
    yield [f"{_INDENT}recovered [bold]{group.recovered:,}[/] of {group.count:,}{f': {how}' if ways else ''}", where]


def _wrap(parts: Sequence[str], out: Console) -> Iterator[str]:
    """Yield lines that fit on the screen: all parts on one line if possible, otherwise one part per line."""
    from rich.text import Text

    separator = "  " if "×" in parts[0] else " "
    line = separator.join(parts)
    may_share = len(parts) == 1 or out.width >= _NARROW_WIDTH
    if may_share and cell_width(Text.from_markup(line).plain) <= out.width:
        yield line
        return
    for part in (parts[0], *(f"{_INDENT}{part}" for part in parts[1:])):
        text = Text.from_markup(part)
        indent = len(text.plain) - len(text.plain.lstrip())
        for n, piece in enumerate(text[indent:].wrap(out, max(out.width - len(_INDENT), _MIN_WIDTH))):
            piece.rstrip()
            yield f"{_INDENT if n else ' ' * indent}{piece.markup}"


def _command_lines(command: str, width: int) -> Iterator[str]:
    """Yield a command that can be copied; a long one continues after a backslash."""
    lines = [_INDENT]
    for word in _SHELL_WORDS.findall(command):
        if len(lines[-1]) + len(word) + 3 > width and lines[-1].strip():
            lines.append(f"{_INDENT}  ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    for line in lines[:-1]:
        yield f"[dim]{escape_markup(line)} \\\\[/]"
    yield f"[dim]{escape_markup(lines[-1])}[/]"
