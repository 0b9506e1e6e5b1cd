"""`toolspan usage` and `toolspan.analysis.usage`: tokens and cost."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cli.command import run
from tests.fork_server import run_toolspan
from tests.strategies import claude_entries, mutated, mutations, to_lines
from toolspan.analysis.usage import (
    GROUPINGS,
    USAGE_JOB,
    Grouping,
    UsageSums,
    group_usage,
    join_requests,
    transcript_usage,
)
from toolspan.errors import SourceError
from toolspan.prices import load_prices
from toolspan.reading.transcript import read_known
from toolspan.testing import TranscriptBuilder, claude_results
from toolspan.types.session import Tokens

pytestmark = pytest.mark.usefixtures("fork_server")

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
FIELDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def claude_line(session: str, message: str, at: datetime, model: str, counts: tuple[int, ...]) -> dict[str, object]:
    usage = dict(zip(FIELDS, counts, strict=True))
    return {
        "type": "assistant", "uuid": f"{session}-{message}-{at.timestamp()}", "parentUuid": None, "sessionId": session,
        "version": "2.1.100", "cwd": f"/src/{session}", "timestamp": at.isoformat().replace("+00:00", "Z"),
        "message": {"id": message, "role": "assistant", "model": model, "content": [], "usage": usage},
    }  # fmt: skip


def write_lines(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def usage_rows(*arguments: str, **variables: str) -> list[dict[str, object]]:
    environment = {"TOOLSPAN_NO_CACHE": "1", "PATH": "/usr/bin:/bin", **variables}
    done = run_toolspan("usage", *arguments, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 200),
        st.sampled_from(["claude-opus-4-5-20251101", "claude-haiku-4-5-20251001", "house-model"]),
        st.tuples(*[st.integers(0, 10_000)] * 4),
    ),
    min_size=1,
    max_size=12,
)


@given(files=st.lists(MESSAGES, min_size=1, max_size=3))
def test_sums_per_day_and_model_equal_an_independent_count(
    files: list[list[tuple[int, int, str, tuple[int, ...]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("usage")
    largest: dict[str, list[int]] = defaultdict(lambda: [0] * 4)
    facts: dict[str, tuple[str, str]] = {}
    paths = []
    for number, messages in enumerate(files):
        lines = []
        for index, hours, model, counts in messages:
            at = START + timedelta(hours=hours)
            lines.append(claude_line(f"s{number}", f"m{index}-{hours}-{model}", at, model, counts))
            key = f"m{index}-{hours}-{model}"
            largest[key] = [max(pair) for pair in zip(largest[key], counts, strict=True)]
            facts[key] = (at.date().isoformat(), model)
        paths.append(write_lines(folder / f"s{number}.jsonl", lines))
    requests = join_requests([USAGE_JOB.run(str(path)) for path in paths])

    for by, position in (("day", 0), ("model", 1)):
        expected: dict[str, list[int]] = defaultdict(lambda: [0] * 4)
        for key, largest_counts in largest.items():
            name = facts[key][position]
            expected[name] = [a + b for a, b in zip(expected[name], largest_counts, strict=True)]
        rows = group_usage(requests, by, zone=UTC)  # type: ignore[arg-type]
        assert {row.name: [getattr(row.tokens, field) for field in FIELDS] for row in rows} == dict(expected)


def test_days_are_local_unless_utc_is_asked_for(tmp_path: Path) -> None:
    write_lines(tmp_path / "s.jsonl", [claude_line("s", "m", START, "claude-opus-4-5", (1, 2, 3, 4))])

    assert [row["period"] for row in usage_rows(str(tmp_path), TZ="Asia/Tokyo")] == ["2026-03-02"]
    assert [row["period"] for row in usage_rows(str(tmp_path), "--utc", TZ="Asia/Tokyo")] == ["2026-03-01"]


def test_a_fork_counts_its_copied_requests_once(tmp_path: Path) -> None:
    shared = claude_line("a", "m1", START, "claude-opus-4-5", (10, 1, 0, 0))
    later = claude_line("b", "m2", START + timedelta(hours=1), "claude-opus-4-5", (20, 2, 0, 0))
    write_lines(tmp_path / "a.jsonl", [shared])
    write_lines(tmp_path / "b.jsonl", [{**shared, "sessionId": "b"}, later])

    (row,) = usage_rows(str(tmp_path), "--by", "month")

    assert (row["input_tokens"], row["output_tokens"], row["requests"]) == (30, 3, 2)
    by_session = {row["session"]: row["input_tokens"] for row in usage_rows(str(tmp_path), "--by", "session")}
    assert by_session == {"a": 10, "b": 20}
    assert [row["input_tokens"] for row in usage_rows(str(tmp_path), "--session", "b")] == [20]


def test_two_parts_of_one_file_keep_their_requests(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    parts = []
    for message in ("a", "b"):
        write_lines(path, [claude_line("s", message, datetime(2026, 3, 1, tzinfo=UTC), "claude-opus-5", (1, 2, 3, 4))])
        parts.append(USAGE_JOB.run(path))

    assert {request.id for request in join_requests(parts)} == {"a", "b"}


def test_a_period_keeps_the_tokens_of_its_requests(tmp_path: Path) -> None:
    lines = [
        claude_line("s", f"m{day}", START + timedelta(days=day), "claude-opus-4-5", (1, 0, 0, 0)) for day in range(4)
    ]
    write_lines(tmp_path / "s.jsonl", lines)

    rows = usage_rows(str(tmp_path), "--utc", "--since", "2026-03-02", "--until", "2026-03-03")

    assert [(row["period"], row["input_tokens"]) for row in rows] == [("2026-03-02", 1), ("2026-03-03", 1)]


def test_rows_are_sorted_by_a_heading_or_a_field(tmp_path: Path) -> None:
    counts = (3, 1, 2)
    lines = [
        claude_line("s", f"m{n}", START + timedelta(days=n), "claude-opus-4-5", (count, 0, 0, 0))
        for n, count in enumerate(counts)
    ]
    write_lines(tmp_path / "s.jsonl", lines)

    for column in ("input", "input_tokens", "cost"):
        rising = [row["input_tokens"] for row in usage_rows(str(tmp_path), "--sort", f"-{column}")]
        falling = [row["input_tokens"] for row in usage_rows(str(tmp_path), "--sort", column, "--limit", "2")]
        assert (rising, falling) == ([1, 2, 3], [3, 2])


def test_a_block_lasts_five_hours_from_the_hour_of_its_first_request(tmp_path: Path) -> None:
    minutes = (10, 100, 299, 300, 301, 900)
    lines = [claude_line("s", f"m{m}", START + timedelta(minutes=m), "claude-opus-4-5", (1, 0, 0, 0)) for m in minutes]
    write_lines(tmp_path / "s.jsonl", lines)

    rows = usage_rows(str(tmp_path), "--by", "block", "--utc")

    assert [(row["period"], row["requests"]) for row in rows] == [
        ("2026-03-01T22:00+00:00", 3),
        ("2026-03-02T03:00+00:00", 2),
        ("2026-03-02T13:00+00:00", 1),
    ]


def test_a_subagent_without_a_side_file_has_the_type_that_its_call_names(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="parent", version="2.1.80").prompt("go")
    starter = builder.call("Task", {"prompt": "look", "description": "d", "subagent_type": "Explore"})
    builder.usage(output_tokens=1)
    agent = builder.agent(starter, kind="Explore").prompt("look").text("seen").usage(output_tokens=30)
    builder.result(starter, claude_results.reported(agent.agent_id, "seen", prompt="look", calls=0, took_ms=5))
    builder.text("done").usage(output_tokens=5)
    builder.write(tmp_path / "parent.jsonl")
    for side_file in tmp_path.rglob("*.meta.json"):
        side_file.unlink()

    rows = {row["agent"]: row["output_tokens"] for row in usage_rows(str(tmp_path), "--by", "agent")}

    assert rows == {"main": 6, "Explore": 30}
    assert [row["output_tokens"] for row in usage_rows(str(tmp_path), "--agent", "Expl")] == [30]
    assert [row["output_tokens"] for row in usage_rows(str(tmp_path), "--agent", agent.agent_id)] == [30]


def test_an_inline_subagent_has_the_type_that_its_call_names(tmp_path: Path) -> None:
    main = claude_line("s", "m1", START, "claude-opus-4-5", (0, 1, 0, 0))
    call = {"prompt": "look", "description": "d", "subagent_type": "reviewer"}
    main["message"]["content"] = [{"type": "tool_use", "id": "toolu_1", "name": "Task", "input": call}]  # type: ignore[index]
    prompt = {
        "type": "user", "uuid": "p", "parentUuid": None, "sessionId": "s", "isSidechain": True, "version": "1.0.98",
        "timestamp": main["timestamp"], "message": {"role": "user", "content": "look"},
    }  # fmt: skip
    reply = claude_line("s", "m2", START, "claude-opus-4-5", (0, 20, 0, 0))
    write_lines(tmp_path / "s.jsonl", [main, prompt, {**reply, "isSidechain": True, "parentUuid": "p"}])

    rows = {row["agent"]: row["output_tokens"] for row in usage_rows(str(tmp_path), "--by", "agent")}

    assert rows == {"main": 1, "reviewer": 20}


_AGENT_CALL = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "Task",
    "input": {"prompt": "look", "subagent_type": "Explore"},
}
_AGENT_REPORT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen\n\nagentId: a1b2"}


_NAMELESS_CALL = {key: value for key, value in _AGENT_CALL.items() if key != "name"}


@given(
    st.lists(
        st.one_of(
            claude_entries(),
            st.just({"type": "assistant", "uuid": "b", "message": {"id": "m", "content": [_NAMELESS_CALL]}}),
            st.just({"type": "assistant", "uuid": "c", "message": {"id": "m", "content": [_AGENT_CALL]}}),
            st.just({"type": "user", "uuid": "r", "message": {"content": [_AGENT_REPORT]}}),
            st.just({"type": "user", "uuid": "t", "toolUseResult": {"agentId": "a1b2"}, "message": {"content": []}}),
        ),
        max_size=12,
    ),
    mutations(),
)
def test_reading_only_requests_finds_the_same_usage_as_reading_everything(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, object]], damage: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("usage") / "s.jsonl"
    path.write_bytes(mutated(to_lines(entries), damage))

    try:
        expected = transcript_usage(read_known(path))
    except SourceError:
        assert USAGE_JOB.run(path).problem
    else:
        assert USAGE_JOB.run(path) == expected


def test_codex_input_excludes_cached_tokens(tmp_path: Path) -> None:
    total = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 7, "total_tokens": 107}
    records = [
        ("session_meta", {"id": "t", "cwd": "/src", "cli_version": "0.130.0"}),
        ("turn_context", {"model": "gpt-5-codex", "cwd": "/src"}),
        ("event_msg", {"type": "token_count", "info": {"total_token_usage": total}}),
    ]
    name = "rollout-2026-03-01T00-00-00-00000000-0000-7000-8000-000000000000.jsonl"
    stamped = [{"timestamp": "2026-03-01T00:00:00.000Z", "type": kind, "payload": item} for kind, item in records]
    write_lines(tmp_path / name, stamped)

    (row,) = usage_rows(str(tmp_path), "--by", "model")

    assert (row["model"], row["input_tokens"], row["cache_read_input_tokens"]) == ("gpt-5-codex", 40, 60)
    assert row["cost_usd"] == pytest.approx((40 * 1.25 + 60 * 0.125 + 7 * 10) / 1e6)


def test_a_model_without_a_price_has_no_cost(tmp_path: Path) -> None:
    write_lines(tmp_path / "s.jsonl", [claude_line("s", "m", START, "house-model", (1, 2, 3, 4))])
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": [{"model": "house-model", "rates": [{"input": 1, "output": 2}]}]}', encoding="utf-8")

    (row,) = usage_rows(str(tmp_path / "s.jsonl"))
    (priced,) = usage_rows(str(tmp_path / "s.jsonl"), "--prices", str(prices))

    assert row["cost_usd"] is None
    assert priced["cost_usd"] == pytest.approx((1 + 2 * 2 + 3 + 4) / 1e6)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4-1", "claude-opus-4-1"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("gpt-5-codex", "gpt-5"),
        ("gemini-2.5-pro", "gemini-2.5-pro"),
    ],
)
def test_gateway_names_find_the_price_of_their_model(name: str, model: str) -> None:
    price = load_prices().find(name)

    assert price is not None
    assert price.model == model


def test_a_price_depends_on_the_day_and_the_length_of_the_context() -> None:
    prices = load_prices()

    def cost(model: str, day: str, tokens: int, *, fast: bool = False) -> float | None:
        at = datetime.fromisoformat(f"{day}T12:00:00+00:00")
        return prices.cost(model, at, Tokens(input_tokens=tokens), fast=fast)

    assert cost("o3", "2025-06-01", 1_000_000) == pytest.approx(10)
    assert cost("o3", "2025-07-01", 1_000_000) == pytest.approx(2)
    assert cost("claude-sonnet-4-5", "2026-01-01", 300_000) == pytest.approx(0.3 * 6)


def test_fast_mode_costs_more_and_has_no_price_if_the_factor_is_unknown(tmp_path: Path) -> None:
    lines = []
    for number, model in enumerate(("claude-opus-4-8", "claude-haiku-4-5")):
        line = claude_line("s", f"m{number}", START, model, (1_000_000, 0, 0, 0))
        line["message"]["usage"]["speed"] = "fast"  # type: ignore[index]
        lines.append(line)
    write_lines(tmp_path / "s.jsonl", lines)

    rows = {row["model"]: row["cost_usd"] for row in usage_rows(str(tmp_path), "--by", "model")}

    assert rows == {"claude-opus-4-8": 10.0, "claude-haiku-4-5": None}


@pytest.mark.parametrize("option", [["--tool", "Read"], ["--state", "failed"], ["--kind", "read"]])
def test_filters_on_calls_are_refused(option: list[str], tmp_path: Path) -> None:
    write_lines(tmp_path / "s.jsonl", [claude_line("s", "m", START, "claude-opus-4-5", (1, 2, 3, 4))])

    assert "tokens belong to requests" in run("usage", tmp_path, *option, code=2).stderr


def test_a_broken_price_table_is_an_error(tmp_path: Path) -> None:
    broken = tmp_path / "prices.json"
    broken.write_text('{"models": [{"model": 3}]}', encoding="utf-8")

    with pytest.raises(SourceError, match=r"prices\.json is not a price table"):
        load_prices(broken)


@given(
    messages=MESSAGES,
    minutes=st.lists(st.integers(0, 2_000), min_size=12, max_size=12),
    by=st.sampled_from(GROUPINGS),
    cut=st.integers(0, 12),
)
def test_requests_added_in_two_parts_have_the_sums_of_all(
    messages: list[tuple[int, int, str, tuple[int, int, int, int]]],
    minutes: list[int],
    by: Grouping,
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lines = [
        claude_line("s", f"m{n}", START + timedelta(minutes=later), model, counts)
        for n, ((_, _, model, counts), later) in enumerate(zip(messages, minutes, strict=False))
    ]
    path = write_lines(tmp_path_factory.mktemp("usage") / "s.jsonl", lines)
    requests = join_requests([USAGE_JOB.run(str(path))])
    sums = UsageSums(by, zone=UTC)
    sums.add(requests[cut:])
    sums.add(requests[:cut])

    parts, whole = sums.rows(), group_usage(requests, by, zone=UTC)

    assert [replace(row, cost_usd=None) for row in parts] == [replace(row, cost_usd=None) for row in whole]
    assert [row.cost_usd for row in parts] == pytest.approx([row.cost_usd for row in whole])
