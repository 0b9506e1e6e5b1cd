"""`toolspan denials`: the calls that you refused, and what you said."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.text import Text

from toolspan.archive.archive import Archive
from toolspan.archive.denials import SORT_ALIASES, SORT_COLUMNS, Denial, Denials, Refuser
from toolspan.archive.filters import Filter
from toolspan.archive.words import format_count, join_parts, plain_line, plain_lines
from toolspan.cli import lists, select
from toolspan.cli.filters import filter_options
from toolspan.cli.output import format_time, make_console, print_json, print_lines, shorten_target
from toolspan.reading.history import short_id

_INDENT = " " * 4
_MAX_REASON_LINES = 6
_REFUSERS: dict[Refuser, str] = {
    "user": "by you",
    "rule": "by a rule or mode",
    "nobody": "with no one to ask",
    "classifier": "by a classifier",
    "hook": "by a hook",
    "limit": "by a limit",
}


@click.command("denials")
@select.archive_options(tables=True)
@lists.limit_option(30, "calls")
@lists.sort_option(*SORT_COLUMNS, **SORT_ALIASES)
@click.option(
    "--all", "every", is_flag=True, help="Also show what rules, modes, classifiers, hooks and limits refused."
)
@click.option("--full", is_flag=True, help="Do not shorten what you said.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per call.")
@filter_options
def command(
    *, archive: Archive, limit: int, sort: str | None, every: bool, full: bool, as_json: bool, call_filter: Filter
) -> None:
    """Show the calls that you refused, latest last, and what you said.

    If you gave no reason, your next prompt in the session is shown instead.
    """
    denials = archive.denials(call_filter, every=every, sort=sort, limit=limit)
    if as_json:
        print_json(*denials)
        return
    out = make_console()
    print_lines(_headline(denials, every=every), out)
    for denial in denials:
        print_lines(_denial_lines(denial, out.width, every=every, full=full), out)
    out.print()
    if hidden := denials.total - len(denials):
        out.print(f"{format_count(hidden, 'more call')} (--limit 0: all)")
    if denials:
        lists.print_hints(archive.names, lists.CALL_HINT, ("why CALL PATHS", "explains who refused one"))


def _headline(denials: Denials, *, every: bool) -> Iterator[Text]:
    own = denials.refusers.get("user", 0)
    share = f" ({own / denials.calls:.1%})" if denials.calls else ""
    yield Text(f"You refused {own:,} of {format_count(denials.calls, 'call')}{share}", style="bold")
    others = {by: n for by, n in denials.refusers.items() if by != "user"}
    if others:
        counts = ", ".join(f"{n:,} {_REFUSERS[by]}" for by, n in others.items())
        yield Text(f"others were refused: {counts}" + ("" if every else " (--all)"), style="dim")


def _denial_lines(denial: Denial, width: int, *, every: bool, full: bool) -> Iterator[Text]:
    yield Text()
    call = short_id(denial.call)[:8] if denial.call else ""
    place = join_parts(shorten_target(denial.project, 40), f"{(denial.session or '')[:13]}:{denial.line}", call)
    line = Text().append(f"{format_time(denial.at)}  ", style="dim")
    line.append(plain_line(denial.tool or "request not recorded", 40), style="bold")
    if every and denial.by != "user":
        line.append(f"  refused {_REFUSERS[denial.by]}", style="yellow")
    room = max(width - line.cell_len - len(place) - 4, 12)
    line.append("  " + plain_line(shorten_target(denial.target, room), room))
    line.append(" " * max(width - line.cell_len - len(place), 2)).append(place, style="dim")
    line.truncate(width, overflow="ellipsis")
    yield line
    if denial.reason:
        yield from _quote("you said: " if denial.by == "user" else "message: ", denial.reason, width, full=full)
    elif denial.next_prompt:
        label = "you gave no reason; your next prompt: "
        yield from _quote(label, denial.next_prompt, width, full=full)
    elif denial.by == "user":
        yield Text(f"{_INDENT}you gave no reason", style="dim")


def _quote(label: str, text: str, width: int, *, full: bool) -> Iterator[Text]:
    """Yield a text with a label before its first line."""
    lines = [line for line in plain_lines(text) if full or line.strip()]
    visible = lines if full else lines[:_MAX_REASON_LINES]
    for n, line in enumerate(visible):
        prefix = Text(_INDENT + label if n == 0 else _INDENT + "  ", style="dim")
        yield prefix.append(line if full else plain_line(line, max(width - prefix.cell_len, 20)), style="not dim")
    if hidden := len(lines) - len(visible):
        yield Text(f"{_INDENT}  … {format_count(hidden, 'more line')} (--full)", style="dim")
