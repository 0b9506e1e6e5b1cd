"""A span's times and advice for any recorded values."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from toolspan import read
from toolspan.formats.source import BytesSource
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.claude_results import Body
from toolspan.testing.codex_builder import RolloutBuilder
from toolspan.types.error_kinds import ADVICE
from toolspan.types.inputs import decode_json_object, decode_json_or_text
from toolspan.types.span import Span, is_within, parse_timestamp


def span_with(called: str, finished: str, body: Body | None = None) -> Span:
    """Return a span whose call and result lines have these timestamps."""
    builder = TranscriptBuilder().prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}), body or claude_results.ran("ok"))
    times = iter(["2026-11-02T09:00:00Z", called, finished])
    data = re.sub(rb'"timestamp":"[^"]*"', lambda _: f'"timestamp":"{next(times)}"'.encode(), builder.data())
    (span,) = read(BytesSource(data)).spans
    return span


@pytest.mark.parametrize(
    ("called", "finished", "seconds"),
    [
        ("2026-11-02T09:00:00Z", "2026-11-02T09:00:02.500Z", 2.5),
        ("2026-11-02T09:00:00+01:00", "2026-11-02T09:00:00Z", 3600),
        ("2026-11-02T09:00:00", "2026-11-02T09:00:02Z", 2),  # no zone means UTC
        ("2026-11-02T09:00:02Z", "2026-11-02T09:00:00Z", None),  # the clock was set back
        ("some day", "2026-11-02T09:00:00Z", None),
        ("2026-11-02T09:00:00Z", "", None),
    ],
)
def test_a_duration_is_the_time_between_two_lines_if_both_can_be_read(
    called: str, finished: str, seconds: float | None
) -> None:
    result = span_with(called, finished).duration

    assert (result.total_seconds() if result is not None else None) == seconds


def test_a_call_without_result_has_no_duration() -> None:
    builder = TranscriptBuilder().prompt("go")
    builder.call("Bash", {"command": "ls"})
    (span,) = read(BytesSource(builder.data())).spans

    assert (span.duration, span.finished) == (None, None)


@pytest.mark.parametrize(("reported", "seconds"), [("2.5", 2.5), ("0.1", 1), ("9" * 20, 1), ("9" * 400, 1)])
def test_longer_of_recorded_and_reported_duration_counts(reported: str, seconds: float) -> None:
    builder = RolloutBuilder()
    call = builder.call("exec_command", {"cmd": "make"})
    text = codex_builder.command_output("x").replace("Wall time: 0.1000", f"Wall time: {reported}")
    builder.output(call, text, after_ms=1000)
    (span,) = read(BytesSource(builder.data(), "rollout-x.jsonl")).spans

    assert span.duration is not None
    assert span.duration.total_seconds() == seconds


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_impossible_timestamp_is_none(text: str) -> None:
    span = span_with(text, text)

    assert (parse_timestamp(text), span.requested, span.finished) == (None, None, None)
    assert span.duration is None or not span.duration
    assert parse_timestamp("9999-12-31T00:00:00+01:00") == datetime(9999, 12, 30, 23, tzinfo=UTC)


def test_only_failed_calls_have_advice() -> None:
    times = ("2026-11-02T09:00:00Z", "2026-11-02T09:00:01Z")

    assert span_with(*times).advice is None
    failed = span_with(*times, claude_results.exited(2, "no rule"))
    assert failed.advice == ADVICE["command_failed"]


def test_timestamp_without_a_zone_is_utc() -> None:
    assert parse_timestamp("2026-11-02T09:00:00") == datetime(2026, 11, 2, 9, tzinfo=UTC)
    assert parse_timestamp("2026-11-02T09:00:00+01:00") == datetime(2026, 11, 2, 8, tzinfo=UTC)
    assert [parse_timestamp(text) for text in (None, "", "soon")] == [None, None, None]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":1.5}', {"a": 1.5}),
        (b'"\\ud83d"', "\ud83d"),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b"no json", "no json"),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_any_input_is_decoded_or_kept_as_text(data: bytes, value: object) -> None:
    assert decode_json_or_text(data) == value


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("2026-11-02T09:00:00Z", datetime(2026, 11, 2, 9, tzinfo=UTC)),
        ("2026-11-02T09:00:00", datetime(2026, 11, 2, 9, tzinfo=UTC)),
        ("2026-11-02T09:00:00+02:00", datetime(2026, 11, 2, 7, tzinfo=UTC)),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("some day", None),
        (None, None),
    ],
)
def test_parsed_timestamp_is_always_representable(text: str | None, result: datetime | None) -> None:
    assert parse_timestamp(text) == result


@pytest.mark.parametrize(
    ("at", "since", "until", "inside"),
    [
        (None, None, None, True),
        (None, 2025, None, False),
        ("some day", None, 2027, False),
        ("2026-11-02T09:00:00Z", 2026, 2027, True),
        ("2026-11-02T09:00:00Z", 2027, None, False),
        ("2026-11-02T09:00:00Z", None, 2026, False),
        ("2026-01-01T00:00:00Z", 2026, None, True),
        ("2026-01-01T00:00:00Z", None, 2026, False),
    ],
)
def test_unknown_time_is_only_inside_an_unlimited_period(
    at: str | None, since: int | None, until: int | None, inside: bool
) -> None:
    first, last = (year and datetime(year, 1, 1, tzinfo=UTC) for year in (since, until))

    assert is_within(at, first or None, last or None) is inside


def test_a_duration_in_milliseconds_is_the_duration() -> None:
    assert span_with("2026-11-02T09:00:00Z", "2026-11-02T09:00:02.5Z").duration_ms == 2500
    assert span_with("some day", "2026-11-02T09:00:00Z").duration_ms is None


@pytest.mark.parametrize(("data", "result"), [(b'{"a":1}', {"a": 1}), (b"[1]", {}), (b"{", {})])
def test_input_that_is_not_an_object_is_empty(data: bytes, result: dict[str, object]) -> None:
    assert decode_json_object(data) == result
