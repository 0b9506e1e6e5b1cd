"""Command output: JSON lines, tables, styled lines, warnings and a progress bar."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from click.decorators import FC
from msgspec import Struct

from toolspan.archive.words import format_count, plain_line, plain_lines, replace_unprintable, shorten_line
from toolspan.cli.pager import pager_width
from toolspan.reading.rows import encode_json_line
from toolspan.types.span import parse_timestamp
from toolspan.types.state import State

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from toolspan.reading.rows import CallRow


_PROGRESS_THRESHOLD = 40 << 20
"""The number of bytes below which a progress bar is not useful."""

_MIN_CUT_WIDTH = 8
_DEFAULT_WIDTH = 160
_UTC_KEY = "toolspan.utc"
_TIMES_KEY = "toolspan.times"

_TERMINAL_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""Characters that JSON does not escape although they control terminals or reverse the text direction."""

TIME_COLUMN_WIDTH = 10
MIN_BODY_WIDTH = 24
"""Minimum width of the main text. If it would be narrower, the right column is dropped."""
_COLOUR_SYSTEMS = {"standard": "STANDARD", "256": "EIGHT_BIT", "truecolor": "TRUECOLOR"}
"""Names of rich's colour systems. perf: rich is imported only for human-readable output."""
_SINGLE_WIDTH = re.compile(r"[ -~✓✗⊘■◷▸❯∴≡◆…·─│┌└┬┴╷╎╵┊┄]+")
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


def print_json(*rows: Struct | dict[str, object]) -> None:
    """Print each row as one line of JSON, with all terminal control characters escaped."""
    for row in rows:
        line = encode_json_line(row)
        if not line.isascii() or b"\x7f" in line:
            line = _TERMINAL_CONTROLS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), line)
        sys.stdout.buffer.write(line + b"\n")


def program_name() -> str:
    """Return the command that starts toolspan: its name if it is on the PATH, or else its path."""
    started = Path(sys.argv[0])
    from shutil import which

    found = which("toolspan")
    if started.name != "toolspan" or (found is not None and Path(found).resolve() == started.resolve()):
        return "toolspan"
    with contextlib.suppress(ValueError, OSError):
        return str(started.absolute().relative_to(Path.cwd()))
    return str(started)


_ASCII_SYMBOLS = {
    "✓": "v", "✗": "x", "⊘": "-", "○": "o", "■": "#", "◷": "t", "▸": ">", "❯": ">", "↳": ">", "⟳": "~", "→": ">",
    "…": ".", "·": "-", "−": "-", "–": "-", "×": "x", "─": "-", "━": "-", "┄": "-", "│": "|", "╎": "|", "┊": ":",
    "┌": "+", "└": "+", "┬": "+", "┴": "+", "╷": ",", "╵": "'", "█": "#", "▏": "|", "∴": ":", "≡": "=", "◆": "*",
}  # fmt: skip
"""Symbols for terminals that cannot show others, each as wide as the one that it replaces."""
_REPLACE_SYMBOLS = "toolspan.symbols"


def _replace_symbols(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII_SYMBOLS.get(c, "?") for c in error.object[error.start : error.end]), error.end


codecs.register_error(_REPLACE_SYMBOLS, _replace_symbols)


def replace_unencodable(stream: TextIO) -> None:
    """Make a stream replace symbols that its encoding lacks, instead of raising."""
    with contextlib.suppress(AttributeError, OSError):
        stream.reconfigure(errors=_REPLACE_SYMBOLS)  # type: ignore[attr-defined]


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for human-readable output. If it is not a terminal, it is plain.

    A pipe is as wide as the terminal of the command. A file, or a pipe without a terminal, has 160 columns.
    """
    stream = sys.stderr if stderr else sys.stdout
    replace_unencodable(stream)
    from rich.console import Console

    paged_width = None if stderr else pager_width()
    width = paged_width or (None if stream.isatty() or "COLUMNS" in os.environ else _width_without_terminal(stream))

    def raise_broken_pipe() -> None:
        raise BrokenPipeError

    is_terminal = True if paged_width and "NO_COLOR" not in os.environ else None
    console = Console(
        file=stream, stderr=stderr, highlight=False, width=width, soft_wrap=False, force_terminal=is_terminal
    )
    console.on_broken_pipe = raise_broken_pipe  # type: ignore[method-assign]
    return console


def _width_without_terminal(stream: TextIO) -> int:
    """Return the width of the terminal that this command was typed in, or the default width."""
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return _DEFAULT_WIDTH
        for other in (sys.stderr, sys.stdin):
            if other.isatty():
                return os.get_terminal_size(other.fileno()).columns or _DEFAULT_WIDTH
        with Path("/dev/tty").open("rb") as terminal:
            return os.get_terminal_size(terminal.fileno()).columns or _DEFAULT_WIDTH
    return _DEFAULT_WIDTH


def make_table(*columns: str, right: Sequence[str] = (), cut: Sequence[str] = ()) -> Table:
    """Return an empty table. Columns in `right` are right-aligned; those in `cut` shrink on a narrow terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=bool(cut))
    for column in columns:
        ratio, width = (1, _MIN_CUT_WIDTH) if column in cut else (None, None)  # with a ratio, this is the minimum
        justify: JustifyMethod = "right" if column in right else "left"
        overflow: OverflowMethod = "ellipsis" if cut else "fold"
        table.add_column(column, justify=justify, overflow=overflow, no_wrap=bool(cut), ratio=ratio, width=width)
    return table


def print_table(table: Table) -> None:
    """Print an empty line and a table."""
    out = make_console()
    out.print()
    out.print(table)


@contextlib.contextmanager
def progress_bar(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and yield the function that advances it by a number of bytes."""
    if total < _PROGRESS_THRESHOLD or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


_PATH_PATTERN = re.compile(r"(?:/|~/|[A-Za-z]:[\\/])[^\"'|;&<>]*|[^\s\"'|;&<>]*[/\\][^\s\"'|;&<>]*")


def shorten_target(text: str | None, width: int) -> str:
    """Shorten text like `shorten_line`, but cut a path at the front, so that its end remains."""
    line = replace_unprintable(" ".join((text or "").split()))
    is_path = len(line) > width > 1 and " -" not in line and "://" not in line and _PATH_PATTERN.fullmatch(line)
    return "…" + line[1 - width :] if is_path else shorten_line(line, width)


class TargetCell:
    """A table cell that `shorten_target` fits into its column."""

    def __init__(self, text: str | None, note: str = "", shorten: Callable[[str, int], str] = shorten_target) -> None:
        self._text, self._note, self._shorten = replace_unprintable(" ".join((text or "").split())), note, shorten

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the text for a column of this width."""
        from rich.text import Text

        text = self._shorten(self._text, max(options.max_width - len(self._note), 1))
        yield Text(text, no_wrap=True, overflow="ellipsis").append(self._note, style="dim")

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        """Return the minimum and maximum width."""
        from rich.measure import Measurement

        length = len(self._text) + len(self._note)
        return Measurement(min(length, _MIN_CUT_WIDTH), length).with_maximum(options.max_width)


def escape_unprintable(line: str, keep: str = "") -> str:
    """Escape the control characters in a line from an untrusted file, except those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in line)


def warn(message: object, file: TextIO | None = None) -> None:
    """Print a warning or error to standard error, without control characters."""
    text = "\n".join(map(replace_unprintable, str(message).split("\n")))
    click.echo(f"toolspan: {text}", file=file, err=file is None)


def escape_markup(text: str) -> str:
    """Escape text so that rich prints it literally, and replace control characters."""
    from rich.markup import escape as rich_escape

    return rich_escape(replace_unprintable(text))


def markup_line(text: str | None, width: int) -> str:
    """Shorten text to one line that rich prints literally."""
    return escape_markup(shorten_line(text, width))


def time_zone() -> tzinfo | None:
    """Return the time zone for output: None for the local zone, or UTC with `--utc`."""
    ctx = click.get_current_context(silent=True)
    return UTC if ctx is not None and ctx.meta.get(_UTC_KEY) else None


def _set_utc(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - called by click
    ctx.meta[_UTC_KEY] = value


utc_option = click.option(
    "--utc", is_flag=True, expose_value=False, callback=_set_utc, help="Show times in UTC instead of the local zone."
)


def print_zone_note(ctx: click.Context) -> None:
    """Print the time zone if the command printed any times and hints are enabled."""
    from toolspan.cli.hints import hints_enabled

    if ctx.meta.get(_TIMES_KEY) and hints_enabled():
        make_console().print(f"[dim]Times in {datetime.now().astimezone(time_zone()).tzname()}.[/]")


def format_time(moment: datetime | str | None, *, date: bool = True) -> str:
    """Format a time, or a recorded one, in the local zone, or in UTC with `--utc`, to the second; empty if unknown."""
    if isinstance(moment, str):
        moment = parse_timestamp(moment)
    if moment is None:
        return ""
    ctx = click.get_current_context(silent=True)
    if ctx is not None:
        ctx.meta[_TIMES_KEY] = True
    return moment.astimezone(time_zone()).strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def format_call_count(rows: Sequence[CallRow]) -> str:
    """Return the number of calls, with orphan results counted separately."""
    orphans = sum(row.state == "orphan_result" for row in rows)
    text = format_count(len(rows) - orphans, "call")
    return f"{text} and {format_count(orphans, 'orphan result')}" if orphans else text


def print_lines(lines: Iterable[Text], out: Console) -> None:
    """Print lines that are already short enough for the terminal.

    perf: bypasses `Console.print`, which spends most of its time on layout.
    """
    from rich.color import ColorSystem
    from rich.text import Text

    name = _COLOUR_SYSTEMS.get(out.color_system or "")
    system = ColorSystem[name] if name else None
    for line in lines:
        if out.no_color or out.legacy_windows:
            out.print(line, soft_wrap=True)
        elif system is None:
            out.file.write(f"{line.plain}\n")
        else:
            styled = Text().append_text(line) if line.style else line
            for text, style, _ in styled.render(out, end="\n"):
                out.file.write(style.render(text, color_system=system) if style else text)


def cell_width(text: str) -> int:
    """Return the number of columns that `text` occupies.

    perf: ASCII and the timeline symbols need no table lookup.
    """
    rest = _SINGLE_WIDTH.sub("", text)
    if not rest:
        return len(text)
    from rich.cells import cell_len

    return len(text) - len(rest) + cell_len(rest)


def fact_lines(label: str, value: str | None, width: int, style: str = "") -> Iterator[Text]:
    """Yield a labelled value as one line; nothing if there is no value."""
    from rich.text import Text

    margin = max(TIME_COLUMN_WIDTH, len(label[:MIN_BODY_WIDTH])) + 1
    if value:
        name = plain_line(label[:MIN_BODY_WIDTH], MIN_BODY_WIDTH)
        value = plain_line(value, width - margin)
        line = Text().append(f"{name:{margin}}", style="dim").append(value, style=style)
        line.truncate(width, overflow="ellipsis")
        yield line


def diff_line(line: str) -> Text:
    """Return a diff line in its colour."""
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    head = line.startswith(("+++", "---"))
    return Text(line, style="bold" if head else styles.get(line[:1], ""))


def diff_lines(diff: str, max_lines: int) -> Iterator[Text]:
    """Yield the coloured lines of a diff, at most `max_lines` unless it is 0."""
    from rich.text import Text

    lines = plain_lines(diff.rstrip("\n")) if diff else []
    for line in lines[: max_lines or None]:
        yield diff_line(line[:2_000])
    if max_lines and len(lines) > max_lines:
        yield Text(f"… {format_count(len(lines) - max_lines, 'more line')} (--diff: all)", style="dim")


def combine_options(*decorators: Callable[[FC], FC]) -> Callable[[FC], FC]:
    """Return a decorator that adds several options to a command, in this order."""

    def add_options(command: FC) -> FC:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add_options
