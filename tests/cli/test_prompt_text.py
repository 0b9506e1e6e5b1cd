"""Untrusted text at a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolspan.cli.prompt.terminal import cut_middle
from toolspan.types.visible_text import escape_invisible, text_width, wrap_text

TEXTS = st.text(st.characters() | st.sampled_from("\x1b\x07\u202e\u200b\u3164字é\n\t"))


@given(TEXTS, st.integers(2, 30))
def test_every_line_is_printable_and_fits_without_losing_text(text: str, width: int) -> None:
    lines = ["".join(row.pieces) for row in wrap_text(text, width)]

    assert all(line.isprintable() and text_width(line) <= width for line in lines)
    assert "".join(lines) == "".join(map(escape_invisible, text.split("\n")))


@given(st.lists(st.text(max_size=3)), st.integers(3, 12))
def test_long_text_is_cut_in_the_middle(lines: list[str], most: int) -> None:
    output = cut_middle(lines, most)

    assert len(output) == min(len(lines), most)
    assert output[:1] == lines[:1]
    assert output[-1:] == lines[-1:]
