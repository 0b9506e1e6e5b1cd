"""How commands print: JSON lines for programs, tables for people, a progress bar for patience."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from click.decorators import FC
from msgspec import Struct
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from toolspan.reading.rows import encode_json_line
from toolspan.types.state import State

if TYPE_CHECKING:
    from rich.table import Table

    from toolspan.reading.rows import CallRow


_PROGRESS_THRESHOLD = 40 << 20
"""Fewer bytes than this are read before a bar could be drawn."""

_MIN_CUT_WIDTH = 8
"""Columns of the screen that what gives way in a table keeps."""

_TERMINAL_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""Characters that JSON takes as they are and that steer a terminal, or turn text around."""

STATE_STYLES: dict[State, str] = {
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
    line = encode_json_line(row)
    if not line.isascii() or b"\x7f" in line:
        line = _TERMINAL_CONTROLS.sub(_escape_match, line)
    sys.stdout.buffer.write(line + b"\n")


def _escape_match(match: re.Match[bytes]) -> bytes:
    return f"\\u{ord(match[0].decode()):04x}".encode()


def make_console(*, stderr: bool = False) -> Console:
    """Where people read; plain and as wide as needed when it is no terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    with contextlib.suppress(AttributeError, OSError):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    rich_console = Console(file=stream, stderr=stderr, highlight=False, width=width, soft_wrap=False)
    rich_console.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]
    return rich_console


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def make_table(*columns: str, right: Sequence[str] = (), cut: Sequence[str] = ()) -> Table:
    """An empty table with these columns; the cut ones give way where the screen is narrow."""
    from rich import box
    from rich.table import Table

    listing = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=bool(cut))
    for column in columns:
        gives_way = column in cut
        listing.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=bool(cut),
            ratio=1 if gives_way else None,
            width=_MIN_CUT_WIDTH if gives_way else None,  # with a ratio, that is the least
        )
    return listing


def print_table(listing: Table) -> None:
    """A table, apart from what stands above it."""
    out = make_console()
    out.print()
    out.print(listing)


@contextlib.contextmanager
def progress_bar(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar over bytes on a terminal, nothing in a pipe."""
    if total < _PROGRESS_THRESHOLD or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


def shorten_line(text: str | None, width: int) -> str:
    """One line of a text, cut to a width; control characters shown, never sent."""
    line = replace_unprintable(" ".join((text or "").split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def replace_unprintable(text: str) -> str:
    """A text without anything that would move the cursor or change colours."""
    if text.isprintable():  # nearly always
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def warn(message: object, file: TextIO | None = None) -> None:
    """What is wrong, in one line on the error output; names in it steer no terminal."""
    import click

    text = "\n".join(map(replace_unprintable, str(message).split("\n")))
    click.echo(f"toolspan: {text}", file=file, err=file is None)


def escape_markup(text: str) -> str:
    """A text that rich prints as it is, control characters shown and never sent."""
    from rich.markup import escape as rich_escape

    return rich_escape(replace_unprintable(text))


def format_duration(ms: float | None) -> str:
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


def format_time(moment: datetime | None, *, date: bool = True) -> str:
    """A time in UTC, to the second."""
    if moment is None:
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def format_count(n: int, noun: str) -> str:
    """A number with its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def format_call_count(rows: Sequence[CallRow]) -> str:
    """How many calls there are; results without a call are no calls."""
    orphans = sum(row.state == "orphan_result" for row in rows)
    text = format_count(len(rows) - orphans, "call")
    return f"{text} and {format_count(orphans, 'orphan result')}" if orphans else text


TIME_COLUMN_WIDTH = 10
MIN_BODY_WIDTH = 24
"""Columns that what happened keeps before what stands at the right."""
_COLOUR_SYSTEMS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_SINGLE_WIDTH = re.compile(r"[ -~✓✗⊘■◷▸❯∴≡◆…·─│┌└┬┴╷╎╵┊┄]+")
"""Signs that take one column each."""
_ANSI_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def plain_line(text: str | None, width: int) -> str:
    """A text as one line of at most `width` characters, colour codes gone, controls shown."""
    return shorten_line(_ANSI_ESCAPES.sub("", (text or "")[: width * 8]), max(width, 1))


def plain_lines(text: str) -> list[str]:
    """A text as lines, colour codes gone, controls shown."""
    bare = _ANSI_ESCAPES.sub("", text).replace("\r\n", "\n").expandtabs(4)
    return [replace_unprintable(line) for line in bare.split("\n")]


def join_parts(*parts: str | None) -> str:
    """The parts that are known, side by side."""
    return " · ".join(part for part in parts if part)


def print_lines(lines: Iterable[Text], out: Console) -> None:
    """Print lines that are cut to the width already, which is what takes a console most time."""
    system = _COLOUR_SYSTEMS.get(out.color_system or "")
    for line in lines:
        if out.no_color or out.legacy_windows:
            out.print(line, soft_wrap=True)
        elif system is None:
            out.file.write(f"{line.plain}\n")
        else:
            styled = Text().append_text(line) if line.style else line
            pieces = styled.render(out, end="\n")
            out.file.write("".join(
                style.render(text, color_system=system) if style else text
                for text, style, _ in pieces
            ))  # fmt: skip


def cell_width(text: str) -> int:
    """How many columns a text takes; quicker where it is letters and our own signs."""
    odd = _SINGLE_WIDTH.sub("", text)
    return len(text) - len(odd) + cell_len(odd) if odd else len(text)


def fact_lines(label: str, value: str | None, width: int, style: str = "") -> Iterator[Text]:
    """A labelled fact in one line; none when nobody knows it."""
    margin = max(TIME_COLUMN_WIDTH, len(label[:MIN_BODY_WIDTH])) + 1
    if value:
        name = plain_line(label[:MIN_BODY_WIDTH], MIN_BODY_WIDTH)
        value = plain_line(value, width - margin)
        line = Text().append(f"{name:{margin}}", style="dim").append(value, style=style)
        line.truncate(width, overflow="ellipsis")
        yield line


def diff_line(line: str) -> Text:
    """A line of a diff in its colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    head = line.startswith(("+++", "---"))
    return Text(line, style="bold" if head else styles.get(line[:1], ""))


def combine_options(*decorators: Callable[[FC], FC]) -> Callable[[FC], FC]:
    """A decorator that adds these options to a command, in this order."""

    def add_options(command: FC) -> FC:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add_options
