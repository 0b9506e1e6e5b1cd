"""How commands print: JSON lines for programs, tables for people, a progress bar for patience."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from toolspan.model.state import State
from toolspan.read.facts import json_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from toolspan.read.facts import CallFacts

_PATIENCE = 40 << 20
"""Fewer bytes than this are read before a bar could be drawn."""

_LEAST = 8
"""Columns of the screen that what gives way in a table keeps."""

_STEERING = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""Characters that JSON takes as they are and that steer a terminal, or turn text around."""

STATE_STYLE: dict[State, str] = {
    "succeeded": "green",
    "failed": "red",
    "denied": "yellow",
    "blocked_by_hook": "yellow",
    "cancelled": "dim",
    "interrupted": "magenta",
    "timed_out": "red",
    "never_answered": "bold red",
    "orphan_result": "dim red",
    "requested": "cyan",
    "awaiting_permission": "cyan",
    "running": "cyan",
}


def print_json(row: Struct | dict[str, object]) -> None:
    """One row as one line of JSON; nothing in it steers a terminal."""
    line = json_line(row)
    if not line.isascii() or b"\x7f" in line:
        line = _STEERING.sub(_escaped, line)
    sys.stdout.buffer.write(line + b"\n")


def _escaped(found: re.Match[bytes]) -> bytes:
    return f"\\u{ord(found[0].decode()):04x}".encode()


def console(*, stderr: bool = False) -> "Console":
    """Where people read; plain and as wide as needed when it is no terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    with contextlib.suppress(AttributeError, OSError):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    wide = None if stream.isatty() or "COLUMNS" in os.environ else 160
    made = Console(file=stream, stderr=stderr, highlight=False, width=wide, soft_wrap=False)
    made.on_broken_pipe = _broken_pipe  # type: ignore[method-assign]
    return made


def _broken_pipe() -> None:
    raise BrokenPipeError


def table(*columns: str, right: Sequence[str] = (), cut: Sequence[str] = ()) -> "Table":
    """An empty table with these columns; the cut ones give way where the screen is narrow."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=bool(cut)
    )
    for column in columns:
        gives_way = column in cut
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=bool(cut),
            ratio=1 if gives_way else None,
            width=_LEAST if gives_way else None,  # with a ratio, that is the least
        )
    return made


def print_table(listing: "Table") -> None:
    """A table, apart from what stands above it."""
    out = console()
    out.print()
    out.print(listing)


@contextlib.contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar over bytes on a terminal, nothing in a pipe."""
    if total < _PATIENCE or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


def short(text: str | None, width: int) -> str:
    """One line of a text, cut to a width; control characters shown, never sent."""
    line = clean(" ".join((text or "").split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def clean(text: str) -> str:
    """A text without anything that would move the cursor or change colours."""
    if text.isprintable():  # nearly always
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def complain(words: object, file: TextIO | None = None) -> None:
    """What is wrong, in one line on the error output; names in it steer no terminal."""
    import click

    told = "\n".join(map(clean, str(words).split("\n")))
    click.echo(f"toolspan: {told}", file=file, err=file is None)


def escape(text: str) -> str:
    """A text that rich prints as it is, control characters shown and never sent."""
    from rich.markup import escape as rich_escape

    return rich_escape(clean(text))


def duration(ms: float | None) -> str:
    """A span of time as people say it."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m"


def clock(moment: datetime | None, *, date: bool = True) -> str:
    """A time in UTC, to the second."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def count(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def counted(rows: "Sequence[CallFacts]") -> str:
    """How many calls there are; results without a call are no calls."""
    orphans = sum(row.state == "orphan_result" for row in rows)
    text = count(len(rows) - orphans, "call")
    return f"{text} and {count(orphans, 'orphan result')}" if orphans else text
