"""Lines printed without Rich's layout have the same bytes."""

from __future__ import annotations

import io
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from toolspan.cli.output import print_lines

LINES = [
    Text(),
    Text("plain, ✓ signs · and 日本 wide"),
    Text("dim all over", style="dim"),
    Text().append("09:00:00  ", style="dim").append("│ ", style="blue").append("x" * 200),
    Text().append("✗ Bash", style="bold red").append(" ls ").append("  2.0 s", style="#123456"),
]


def printed(system: Literal["standard", "256", "truecolor"] | None, **how: bool) -> tuple[str, str]:
    """Return the lines as a console prints them, and as they are drawn."""
    outs = [
        Console(file=io.StringIO(), width=80, color_system=system, highlight=False, **how)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    for line in LINES:
        outs[0].print(line, soft_wrap=True)
    print_lines(LINES, outs[1])
    first, second = (out.file.getvalue() for out in outs)  # type: ignore[attr-defined]
    return first, second


@pytest.mark.parametrize("system", [None, "standard", "256", "truecolor"])
def test_drawing_equals_the_output_of_a_console(system: Literal["standard", "256", "truecolor"] | None) -> None:
    expected, drawn = printed(system, force_terminal=system is not None)

    assert drawn == expected
    assert ("\x1b[" in drawn) == (system is not None)


def test_disabling_colours_removes_nothing_else() -> None:
    expected, drawn = printed("truecolor", force_terminal=True, no_color=True)

    assert drawn == expected
