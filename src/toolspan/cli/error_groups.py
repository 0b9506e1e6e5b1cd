"""The lines that `toolspan errors` prints about a group of unsuccessful calls. Start at `group_lines`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from toolspan.analysis.errors import ErrorGroup
from toolspan.analysis.recovery import CHAIN_WORDS
from toolspan.archive.words import format_count, format_duration, shorten_line
from toolspan.cli.output import cell_width, escape_markup, format_time, markup_line
from toolspan.cli.sample import demo_command
from toolspan.cli.select import name_as_typed
from toolspan.types.error_kinds import KIND_WORDS

if TYPE_CHECKING:
    from rich.console import Console

NARROW_WIDTH = 90
_MAX_REASONS = 3
_MIN_LOST_MS = 1_000
_INDENT = " " * 7
_MIN_WIDTH = 20
_SHELL_WORDS = re.compile(r"(?:[^\s'\"\\]|\\.|'[^']*'|\"[^\"]*\")+")


def group_lines(group: ErrorGroup, out: Console) -> Iterator[str]:
    """Yield the lines about a group, which fit on the screen."""
    for parts in _group_parts(group, out.width):
        yield from wrap_parts(parts, out)
    yield from command_lines(demo_command(group.command), out.width)


def _group_parts(group: ErrorGroup, width: int) -> Iterator[list[str]]:
    """Yield the lines about a group, each in parts that share a line only if there is room."""
    example = group.example
    who = group.program or group.tool
    first, last = (format_time(at) for at in (group.first, group.last))
    when = f"last {last}" if first == last else f"{first} to {last}, {group.trend}"
    what = f"[bold red]{group.count:>5}×[/] [bold]{escape_markup(who)}[/]  {KIND_WORDS.get(group.kind, group.kind)}"
    yield [what, f"[dim]{format_count(group.sessions, 'session')}, {when}[/]"]
    for reason in group.reasons[:_MAX_REASONS]:
        yield [f"{_INDENT}you said: {markup_line(reason, width - 18)}"]
    if (text := group.message or example.message) and not group.reasons:
        yield [f"{_INDENT}{markup_line(text, width - 8)}"]
    if group.solution:
        yield [f"{_INDENT}[dim]{group.cause}.[/]", f"[green]{group.solution}.[/]"]
    if group.background:
        yield [f"{_INDENT}{group.background:,} of these failed later, in the background"]
    place = f"{shorten_line(PurePath(example.file).name, 14)}:{example.request_line or example.result_line}"
    where = f"[dim]· e.g. {escape_markup(example.id)} in {escape_markup(place)}[/]"
    tokens = format_count(group.lost_tokens, "token") if group.lost_tokens else ""
    lost = " and ".join(filter(None, (format_duration(group.lost_ms) if group.lost_ms >= _MIN_LOST_MS else "", tokens)))
    where = f"[dim]{f'· lost {lost} ' if lost else ''}[/]{where}"
    if not group.recovered:
        yield [f"{_INDENT}not recovered {where}"]
        return
    ways = [f"{CHAIN_WORDS[name]} {n}" for name, n in group.recovered_by.items()]
    how = CHAIN_WORDS[next(iter(group.recovered_by))] if len(ways) == 1 else ", ".join(ways)
    yield [f"{_INDENT}recovered [bold]{group.recovered:,}[/] of {group.count:,}{f': {how}' if ways else ''}", where]


def wrap_parts(parts: Sequence[str], out: Console) -> Iterator[str]:
    """Yield lines that fit on the screen: all parts on one line if possible, otherwise one part per line."""
    from rich.text import Text

    separator = "  " if "×" in parts[0] else " "
    line = separator.join(parts)
    may_share = len(parts) == 1 or out.width >= NARROW_WIDTH
    if may_share and cell_width(Text.from_markup(line).plain) <= out.width:
        yield line
        return
    for part in (parts[0], *(f"{_INDENT}{part}" for part in parts[1:])):
        text = Text.from_markup(part)
        indent = len(text.plain) - len(text.plain.lstrip())
        for n, piece in enumerate(text[indent:].wrap(out, max(out.width - len(_INDENT), _MIN_WIDTH))):
            piece.rstrip()
            yield f"{_INDENT if n else ' ' * indent}{piece.markup}"


def command_lines(command: str, width: int) -> Iterator[str]:
    """Yield a command that can be copied; a long one continues after a backslash."""
    lines = [_INDENT]
    for word in _SHELL_WORDS.findall(command):
        if (url := name_as_typed(word)) != word:
            word = shlex.quote(url)  # noqa: PLW2901 - not the local copy of a store
        if len(lines[-1]) + len(word) + 3 > width and lines[-1].strip():
            lines.append(f"{_INDENT}  ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    for line in lines[:-1]:
        yield f"[dim]{escape_markup(line)} \\\\[/]"
    yield f"[dim]{escape_markup(lines[-1])}[/]"
