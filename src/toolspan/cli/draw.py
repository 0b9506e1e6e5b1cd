"""What every command draws with: signs, plain text, labelled facts, coloured lines.

In: texts and rich `Text`. Out: lines that a terminal can be given. Nothing that a transcript holds
is taken for markup, and no control character of it reaches the terminal: texts pass `plain_line` or
`plain_lines` first. Knows neither spans nor files.
"""

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from toolspan.cli.output import clean, short

CLOCK = 10
LEAST = 24
"""Columns that what happened keeps before what stands at the right."""
_COLOURS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_SINGLE = re.compile(r"[ -~✓✗⊘■◷▸❯∴≡◆…·─│┌└┬┴╷╎╵┊┄]+")
"""Signs that take one column each."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def plain_line(text: str | None, width: int) -> str:
    """A text as one line of at most `width` characters, colour codes gone, controls shown."""
    return short(_ESCAPES.sub("", (text or "")[: width * 8]), max(width, 1))


def plain_lines(text: str) -> list[str]:
    """A text as lines, colour codes gone, controls shown."""
    bare = _ESCAPES.sub("", text).replace("\r\n", "\n").expandtabs(4)
    return [clean(line) for line in bare.split("\n")]


def joined(*parts: str | None) -> str:
    """The parts that are known, side by side."""
    return " · ".join(part for part in parts if part)


def draw(lines: Iterable[Text], out: Console) -> None:
    """Print lines that are cut to the width already, which is what takes a console most time."""
    system = _COLOURS.get(out.color_system or "")
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


def cells(text: str) -> int:
    """How many columns a text takes; quicker where it is letters and our own signs."""
    odd = _SINGLE.sub("", text)
    return len(text) - len(odd) + cell_len(odd) if odd else len(text)


def facts(label: str, value: str | None, width: int, style: str = "") -> Iterator[Text]:
    """A labelled fact in one line; none when nobody knows it."""
    margin = max(CLOCK, len(label[:LEAST])) + 1
    if value:
        name = plain_line(label[:LEAST], LEAST)
        value = plain_line(value, width - margin)
        line = Text().append(f"{name:{margin}}", style="dim").append(value, style=style)
        line.truncate(width, overflow="ellipsis")
        yield line


def diff_line(line: str) -> Text:
    """A line of a diff in its colour."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    head = line.startswith(("+++", "---"))
    return Text(line, style="bold" if head else styles.get(line[:1], ""))
