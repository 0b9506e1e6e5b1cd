"""Decoding and encoding text, and replacing ranges of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requirement import requirement
from toolspan.errors import ToolError
from toolspan.tools.files.paths import format_size, number_lines, replace_surrogates
from toolspan.tools.files.text import (
    TextRange,
    decode_text,
    encode_text,
    find_occurrences,
    match_quote_style,
    replace_ranges,
)

MARKS = st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
MIXED = st.lists(st.sampled_from(["a", "é", "\r\n", "\n", "\r", "\udc80", "\U0001f600"]))


@given(mark=MARKS, data=st.binary())
def test_decoding_and_encoding_give_the_same_bytes(mark: bytes, data: bytes) -> None:
    try:
        text = decode_text(mark + data)
    except ToolError:
        assert mark in (b"\xff\xfe", b"\xfe\xff") or data[:2] in (b"\xff\xfe", b"\xfe\xff")
        return

    assert encode_text(text.raw, text.codec) == mark + data
    text.printable.encode()


@given(parts=MIXED, draw=st.data())
def test_a_replacement_changes_its_range_and_nothing_else(parts: list[str], draw: st.DataObject) -> None:
    text = decode_text("".join(parts).encode("utf-8", "surrogateescape"))
    start = draw.draw(st.integers(0, len(text.normalized)))
    end = draw.draw(st.integers(start, len(text.normalized)))

    result = replace_ranges(text, [TextRange(start, end)], "NEW")

    before, _, after = result.raw.partition("NEW")
    assert text.raw.startswith(before)
    assert text.raw.endswith(after)
    replaced = text.raw[len(before) : len(text.raw) - len(after)]
    assert replaced.replace("\r\n", "\n") == text.normalized[start:end]


def test_several_spans_are_replaced_at_once() -> None:
    text = decode_text(b"x\r\ny\r\nx\n")

    result = replace_ranges(text, find_occurrences(text.normalized, "x\n"), "A\nB\n")

    assert result.raw == "A\r\nB\r\ny\r\nA\nB\n"


@requirement("files.quotes")
@pytest.mark.parametrize(
    ("new", "replaced", "expected"),
    [
        ('"a" b', "“x”", "“a” b"),
        ("it's ('so')", "‘x’", "it’s (‘so’)"),
        ('"a"', "x", '"a"'),
        ("'a' \"b\"", "“x”", "'a' “b”"),
    ],
)
def test_quotes_are_curled_as_in_the_replaced_text(new: str, replaced: str, expected: str) -> None:
    assert match_quote_style(new, replaced) == expected


@requirement("files.quotes")
def test_an_exact_match_is_preferred_to_one_with_other_quotes() -> None:
    assert find_occurrences('“a” "a"', '"a"') == [TextRange(4, 7)]
    assert find_occurrences("“a” ”a“", '"a"') == [TextRange(0, 3), TextRange(4, 7)]


@requirement("files.number-formats")
@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1KB"), (598_890, "584.9KB"),
        (256 << 10, "256KB"), (5 << 20, "5MB"), (3 << 29, "1.5GB"), (1 << 40, "1TB"),
        (1 << 60, "1048576TB"),
    ],
)  # fmt: skip
def test_sizes_are_short(count: int, text: str) -> None:
    assert format_size(count) == text


@requirement("files.number-formats")
def test_lines_are_numbered_in_both_styles() -> None:
    assert number_lines(["a", ""], 9, "tab") == "9\ta\n10\t"
    assert number_lines(["a", ""], 9, "arrow") == "     9→a\n    10→"
    assert replace_surrogates("a\ud800\udcffb") == "a\ufffd\ufffdb"
