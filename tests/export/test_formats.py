"""Each format keeps its own rules, whatever a transcript holds."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.export.made import BOTH, HALF, claude, codex, exported, transcript
from toolspan.export.csv import format_cell
from toolspan.export.html import TextBudget
from toolspan.export.json import escape_control_chars
from toolspan.export.markdown import escape_markdown, fence_code
from toolspan.export.session_export import SessionExport
from toolspan.reading.rows import CallRow
from toolspan.testing import TranscriptBuilder, claude_results

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{7*7}} {% raw %} ${7*7}",
    "\x1b]0;owned\x07\x1b[2J\x00\x9b31m",
    "\u202egnp.exe \u2066 \u2028 \u2029 \ufeff",
    "```\n````\n~~~\n# not a heading\n- no item\n1. nor this\n<b>",
    "=HYPERLINK(1)",
    f"{HALF} a letter",
)
ANYTHING = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=60))
FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])

# The Trace Event Format, as its public description has it: docs.google.com/document/d/
# 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("JSON Object Format", "Complete", "Instant",
# "Metadata" events). Times are microseconds.
TRACE_EVENTS = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {"type": "array", "items": {"$ref": "#/$defs/event"}},
    },
    "$defs": {
        "event": {
            "type": "object",
            "required": ["ph", "pid", "tid", "name"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "pid": {"type": "integer"},
                "tid": {"type": "integer"},
                "args": {"type": "object"},
            },
            "oneOf": [
                {
                    "required": ["ts", "dur", "cat"],
                    "properties": {
                        "ph": {"const": "X"},
                        "ts": {"type": "number"},
                        "dur": {"type": "number", "minimum": 0},
                        "cat": {"type": "string"},
                    },
                },
                {
                    "required": ["ts", "s"],
                    "properties": {
                        "ph": {"const": "i"},
                        "ts": {"type": "number"},
                        "s": {"enum": ["g", "p", "t"]},
                    },
                },
                {
                    "required": ["args"],
                    "properties": {
                        "ph": {"const": "M"},
                        "name": {
                            "enum": [
                                "process_name", "process_labels", "process_sort_index",
                                "thread_name", "thread_sort_index",
                            ]
                        },
                        "args": {"minProperties": 1},
                    },
                },
            ],
        }
    },
}  # fmt: skip


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


# json


@pytest.mark.parametrize("text", HOSTILE)
def test_json_has_every_call_on_its_line_with_exact_texts(text: str) -> None:
    ran, *others = rows(exported(claude(text))["json"])
    text = text.replace(HALF, "\ud800")

    assert (ran["tool"], ran["state"]) == ("Bash", "succeeded")
    assert ran["input"] == {"command": text, "description": text}
    assert ran["result"] == text
    assert [row["state"] for row in others] == [
        "succeeded", "failed", "denied", "succeeded", "succeeded", "never_answered",
    ]  # fmt: skip
    assert all(f"+{line}" in others[0]["diffs"][0]["text"] for line in text.splitlines())


def test_json_handles_huge_numbers_and_deep_lists() -> None:
    builder = TranscriptBuilder()
    for given_ in ({"limit": 10**40}, {"deep": json.loads("[" * 300 + "]" * 300)}):
        builder.result(builder.call("Read", given_), claude_results.ran("x"), after_ms=5)
    outputs = exported([transcript(builder.data())])

    assert len(rows(outputs["json"])) == 2
    assert all(outputs.values())


# csv


@FEW
@given(ANYTHING)
def test_csv_has_one_row_per_call_and_no_formula(text: str) -> None:
    for make in BOTH:
        table = list(csv.reader(io.StringIO(exported(make(text))["csv"], newline="")))

        assert len({len(row) for row in table}) == 1
        assert len(table) == 1 + len(list(SessionExport(make(text)).calls()))
        for row in table:
            assert not [item for item in row if item.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_json_and_csv_have_every_field_of_a_row() -> None:
    outputs = exported(claude("some words"))
    records = list(map(json.loads, outputs["json"].splitlines()))
    table = list(csv.DictReader(io.StringIO(outputs["csv"], newline="")))

    for record, cells in zip(records, table, strict=True):
        assert {*CallRow.__struct_fields__} <= record.keys() & cells.keys()
        assert json.loads(cells["evidence"]) == record["evidence"]
        assert json.loads(cells["hooks"]) == record["hooks"]
        assert (cells["parent_call"] or None, cells["tool"]) == (record["parent_call"], record["tool"])
    assert any(record["hooks"] for record in records)
    assert any(record["parent_call"] for record in records)


def test_long_cell_says_how_much_is_left_out() -> None:
    assert format_cell("x" * 33_000) == "x" * 32_000 + "… 1,000 more characters"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_that_would_be_evaluated_gets_an_apostrophe(sign: str) -> None:
    assert format_cell(f"{sign}1+1").startswith("'")
    assert format_cell(-5) == "-5"
    assert format_cell("ls -la") == "ls -la"


# markdown


@FEW
@given(ANYTHING)
def test_a_fence_is_longer_than_any_run_of_backticks_inside(text: str) -> None:
    first, *inside, last, end = fence_code(text, "json").split("\n")

    assert (first, end) == (f"{last}json", "")
    assert set(last) == {"`"}
    assert max((len(run) for line in inside for run in re.findall("`+", line)), default=0) < len(last)


def test_messages_do_not_become_markup() -> None:
    message = escape_markdown("# a\n- b\n1. c\n[x](http://y) <b> `d` *e*\n    f")

    assert message.split("\n") == [
        "\\# a", "\\- b", "1\\. c", "\\[x\\](http\\://y) \\<b\\> \\`d\\` \\*e\\*",
        "\u00a0\u00a0\u00a0\u00a0f",
    ]  # fmt: skip


def test_markdown_lists_a_session_in_order() -> None:
    message = exported(claude("some words"))["markdown"]
    marks = ["# some words", "## some words", "**Model** ", "#### Bash: some words", "#### Edit",
             "```diff", "user\\_denied", "**↳ subagent", "#### ↳ Grep", "#### Read"]  # fmt: skip

    places = [message.index(mark) for mark in marks]

    assert places == sorted(places)


# perfetto


@FEW
@given(ANYTHING)
def test_a_trace_is_valid_and_its_slices_nest(text: str) -> None:
    for make in BOTH:
        trace = json.loads(exported(make(text))["perfetto"])

        Draft202012Validator(TRACE_EVENTS).validate(trace)
        assert_nested(trace["traceEvents"])


def assert_nested(events: list[dict[str, Any]]) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            period = (event["ts"], event["ts"] + event["dur"])
            threads.setdefault((event["pid"], event["tid"]), []).append(period)
    for slices in threads.values():
        open_: list[float] = []
        for start, end in sorted(slices, key=lambda item: (item[0], -item[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


def test_parallel_calls_are_in_different_threads() -> None:
    builder = TranscriptBuilder().prompt("both")
    first, second = (builder.call("Bash", {"command": name}) for name in ("one", "two"))
    builder.result(first, claude_results.ran("1"), after_ms=500).result(second, claude_results.ran("2"), after_ms=9)
    trace = json.loads(exported([transcript(builder.data())])["perfetto"])
    calls = [event for event in trace["traceEvents"] if event["ph"] == "X"]

    assert len({event["tid"] for event in calls}) == 2
    assert [event["dur"] for event in calls] == [500_000, 509_000]


def test_the_same_session_gives_the_same_trace() -> None:
    assert exported(codex("x"))["otlp"] == exported(codex("x"))["otlp"]


# every format


@FEW
@given(ANYTHING)
def test_no_control_character_is_left_in_texts_for_people(text: str) -> None:
    output = escape_control_chars(text)

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", output)
    assert escape_control_chars(output) == output


@given(st.lists(st.integers(0, 200)), st.integers(1, 500))
def test_texts_share_a_limit_and_short_ones_stay_whole(lengths: list[int], total: int) -> None:
    room = TextBudget(total, longest=100)
    for length in lengths:
        room.add_text("x" * length, length)

    retained = [text.count("x") for text in room.truncated_texts()]

    assert sum(retained) <= total
    assert all(have <= length for have, length in zip(retained, lengths, strict=True))
    cut = [have for have, length in zip(retained, lengths, strict=True) if have < length]
    assert not cut or max(cut) == min(cut) >= max(
        (have for have, length in zip(retained, lengths, strict=True) if have == length), default=0
    )
