"""`toolspan stats`: numbers per tool, tokens counted once."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.command import one_row, run
from tests.cli.command import rows as rows_of
from toolspan.cli.app import app
from toolspan.reading import sample
from toolspan.testing import TranscriptBuilder, claude_results


def printed(*arguments: str | Path) -> str:
    return run("stats", *arguments).stdout


def stats(*arguments: str | Path) -> dict[str, Any]:
    return one_row(run("stats", *arguments, "--json"))


def session_with_durations(*durations: int) -> TranscriptBuilder:
    """Build a session of commands with these durations in milliseconds."""
    builder = TranscriptBuilder(session_id="timed").prompt("go")
    for ms in durations:
        builder.result(builder.call("Bash", {"command": "x"}), claude_results.ran("x"), after_ms=ms)
    return builder


@pytest.mark.parametrize(
    ("durations", "p50", "p95", "longest"),
    [
        ([700], 700, 700, 700),
        ([30, 10, 20], 20, 30, 30),
        ([40, 10, 30, 20], 20, 40, 40),
        ([n * 100 for n in range(20, 0, -1)], 1_000, 1_900, 2_000),
        (list(range(1, 102)), 51, 96, 101),
    ],
)
def test_percentiles_are_observed_values(
    durations: list[int], p50: int, p95: int, longest: int, tmp_path: Path
) -> None:
    (tool,) = stats(session_with_durations(*durations).write(tmp_path / "s.jsonl"))["tools"]

    assert (tool["p50_ms"], tool["p95_ms"], tool["max_ms"]) == (p50, p95, longest)
    assert (tool["total_ms"], tool["timed"]) == (sum(durations), len(durations))


def test_lines_damage_calls_and_orphans_are_counted(tmp_path: Path) -> None:
    builder = session_with_durations(10).result("toolu_gone", "late").raw(b"{torn").text("end")
    builder.call("Bash", {"command": "sleep"})

    row = stats(builder.write(tmp_path / "s.jsonl"))

    assert [row[key] for key in ("files", "sessions", "lines", "malformed")] == [1, 1, 7, 1]
    assert (row["calls"], row["orphan_results"]) == (2, 1)
    bash = row["tools"][0]
    assert (bash["calls"], bash["timed"], bash["max_ms"], bash["unsuccessful"]) == (2, 1, 10, 1)


def test_timeouts_are_a_share_of_the_calls_of_a_tool(tmp_path: Path) -> None:
    builder = session_with_durations(10, 10, 10)
    call = builder.call("Bash", {"command": "sleep 999"})
    builder.result(call, claude_results.timed_out("2m 0s"), after_ms=120_000)
    builder.result(builder.call("Read", {"file_path": "/a"}), claude_results.read("/a", "a"))
    path = builder.write(tmp_path / "s.jsonl")

    result = stats(path)

    assert [(tool["tool"], tool["timeouts"], tool["timeout_share"]) for tool in result["tools"]] == [
        ("Bash", 1, 0.25),
        ("Read", 0, 0.0),
    ]
    assert result["states"] == {"succeeded": 4, "timed_out": 1}
    assert result["error_kinds"] == {"command_timeout": 1}
    assert "25.0%" in printed(path)


def test_lines_of_one_message_count_its_tokens_once(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").text("I look at both")
    builder.call("Read", {"file_path": "/a"})
    builder.call("Read", {"file_path": "/b"})
    builder.usage(input_tokens=3, output_tokens=50, cache_creation_input_tokens=200, cache_read_input_tokens=1_000)
    path = builder.write(tmp_path / "s.jsonl")

    result = stats(path)

    assert result["tokens"] == {
        "input_tokens": 3,
        "output_tokens": 50,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 1_000,
    }
    assert re.search(r"output +50\n", printed(path))


def test_tokens_of_growing_counts_forks_and_subagents_count_once(tmp_path: Path) -> None:
    growing = TranscriptBuilder(session_id="growing", version="2.1.80").prompt("go").text("first").text("second")
    growing.usage(output_tokens=50)
    builder = TranscriptBuilder(session_id="one").prompt("go").text("a").usage(output_tokens=7)
    fork = builder.fork("two").prompt("more").text("b").usage(output_tokens=100)
    parent = TranscriptBuilder(session_id="parent").prompt("go")
    starter = parent.call("Agent", {"prompt": "p"})
    parent.usage(output_tokens=5)
    parent.agent(starter).prompt("p").text("seen").usage(output_tokens=30)
    for folder, builders, tokens in (
        ("growing", [growing], 50),
        ("fork", [builder, fork], 107),
        ("agent", [parent], 35),
    ):
        for each in builders:
            each.write(tmp_path / folder / f"{each.session_id}.jsonl")
        row = stats(tmp_path / folder)
        assert row["tokens"]["output_tokens"] == tokens
        assert row["sessions"] == len(builders)


def test_synthetic_messages_have_no_tokens(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go").text("a").usage(output_tokens=7)
    line = builder.lines()[-1].replace(b"claude-opus-5-5", b"<synthetic>")
    path = builder.raw(line.replace(b'"id":"msg_01', b'"id":"msg_02')).write(tmp_path / "s.jsonl")

    assert b"<synthetic>" in path.read_bytes()
    assert stats(path)["tokens"]["output_tokens"] == 7


def test_filters_on_calls_drop_the_tokens(tmp_path: Path) -> None:
    builder = session_with_durations(10)
    builder.result(builder.call("Read", {"file_path": "/a"}), claude_results.read("/a", "a"))
    path = builder.write(tmp_path / "s.jsonl")

    result = stats(path, "--tool", "Read")

    assert [tool["tool"] for tool in result["tools"]] == ["Read"]
    assert result["calls"] == 1
    assert result["tokens"] is None
    assert stats(path, "--session", "timed")["tokens"] == stats(path)["tokens"]


def test_period_keeps_the_tokens_of_its_messages(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("go").text("a").usage(output_tokens=7)
    first = builder.lines()[-1]
    builder.wait(86_400_000).prompt("more").text("b").usage(output_tokens=20)
    path = builder.write(tmp_path / "s.jsonl")
    began = datetime.fromisoformat(json.loads(first)["timestamp"])
    middle = (began + timedelta(hours=1)).isoformat()

    assert stats(path, "--since", middle)["tokens"]["output_tokens"] == 20
    assert stats(path, "--until", middle)["tokens"]["output_tokens"] == 7
    assert "naive sum" not in printed(path, "--since", middle)


def test_empty_folder_has_no_numbers(tmp_path: Path) -> None:
    result = stats(tmp_path)

    assert (result["files"], result["calls"], result["tools"]) == (0, 0, [])
    assert "0 calls in 0 sessions" in printed(tmp_path)


def test_mcp_health_is_listed_by_server(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="servers").prompt("go")
    for tool, body, ms in (
        ("mcp__db__query", claude_results.ran("x"), 100),
        ("mcp__db__query", claude_results.failed("MCP error -32000: Connection closed"), 300),
        ("mcp__db__list", claude_results.ran("x"), 200),
        ("mcp__web__get", claude_results.ran("x"), 50),
        ("Bash", claude_results.ran("x"), 50),
    ):
        builder.result(builder.call(tool, {}), body, after_ms=ms)
    path = builder.write(tmp_path / "s.jsonl")

    db, web = stats(path, "--mcp")["servers"]
    assert (db["server"], db["tools"], db["calls"], db["lost"], db["p95_ms"]) == ("db", 2, 3, 1, 300)
    assert (web["server"], web["calls"], web["unsuccessful"]) == ("web", 1, 0)
    assert "MCP server did not answer" in printed(path, "--mcp")
    assert "No calls to MCP servers" in printed(session_with_durations(5).write(tmp_path / "other.jsonl"), "--mcp")


def test_narrow_terminal_keeps_names_readable(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="aaaaaaaa").prompt("Count the boats in the harbour")
    for tool in ("Bash", "mcp__warehouse__query", "Read"):
        call = builder.call(tool, {"command": "ls"}, id=f"toolu_01{tool[:4]:x<40}")
        builder.result(call, claude_results.ran("boats"), after_ms=100)
    path = builder.write(tmp_path / "aaaaaaaa.jsonl")

    for arguments, output in (
        (["stats"], "mcp__warehouse__query"),
        (["sessions"], "Count the boats in"),
        (["search", "boats", "--tool", "Bash"], "Bash result  Bash"),
    ):
        result = CliRunner().invoke(app, [*arguments, str(path)], env={"COLUMNS": "80"})
        assert output in result.stdout
        lines = (line for line in result.stdout.splitlines() if not line.startswith("toolspan "))
        assert max(map(len, lines)) <= 80  # commands to type are not wrapped


def test_most_used_tools_are_shown_and_json_has_all(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(40):
        builder.result(builder.call(f"tool_{n:02}", {}), claude_results.ran("x"))
    path = builder.write(tmp_path / "s.jsonl")

    assert "10 more tools (--limit 0: all)" in printed(path)
    assert printed(path, "--limit", "0").count("tool_") == 40
    assert len(stats(path)["tools"]) == 40


@pytest.mark.parametrize("columns", [30, 40, 50, 60])
@pytest.mark.parametrize("command", ["stats", "time"])
def test_narrow_terminal_still_distinguishes_tools(command: str, columns: int, tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for n in range(3):
        call = builder.call("Bash", {"command": f"echo {n}"})
        builder.result(call, claude_results.ran("a"), after_ms=200_000 * n)

    output = run(command, builder.write(tmp_path / "s.jsonl"), env={"COLUMNS": str(columns)}).stdout

    assert [line for line in output.splitlines() if line.startswith(("Bash", "Ba…"))]
    assert all(len(line) <= columns for line in output.splitlines())


def test_calls_are_counted_by_local_day_and_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = sample.archive()
    everything = stats(archive, "--utc")
    rows = [row for row in rows_of(run("calls", archive, "--json")) if row["state"] != "orphan_result"]
    for by, length in (("day", 10), ("hour", 13)):
        periods = stats(archive, "--by", by, "--utc")[f"{by}s"]
        counted = Counter(row["requested"][:length] for row in rows)
        assert {period[by][:length]: period["calls"] for period in periods} == counted
        assert sum(period["unsuccessful"] for period in periods) == everything["unsuccessful"]
        assert [period[by] for period in periods] == sorted(period[by] for period in periods)
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        hours = stats(archive, "--by", "hour")["hours"]
        first, second = hours[0]["hour"], hours[1]["hour"]
        assert first.endswith("+05:30")
        assert len(rows_of(run("calls", archive, "--since", first, "--until", second, "--json"))) == hours[0]["calls"]
        (late,) = (group for group in rows_of(run("errors", archive, "--json")) if group["kind"] == "never_answered")
        assert late["per_day"] == {"2026-11-09": 2}  # 19:45 UTC on the day before
    finally:
        monkeypatch.undo()
        time.tzset()


def test_days_for_people_add_up_and_a_limit_keeps_the_newest(tmp_path: Path) -> None:
    builder = TranscriptBuilder(start=datetime(2026, 1, 1, 12, tzinfo=UTC)).prompt("go")
    for _ in range(3):
        builder.result(builder.call("Bash", {"command": "ls"}, after_ms=86_400_000), claude_results.ran("x"))
    path = builder.write(tmp_path / "s.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    untimed = [re.sub(r'"timestamp":"[^"]*",?', "", line) for line in lines[1:3]]
    path.write_text("\n".join([lines[0], *untimed, *lines[3:]]) + "\n", encoding="utf-8")

    def days(*options: str) -> list[str]:
        output = run("stats", path, "--by", "day", "--utc", *options).stdout
        return re.findall(r"^(\S+) +1 ", output, re.MULTILINE)

    assert days() == ["unknown", "2026-01-03", "2026-01-04"]
    assert days("--limit", "1") == ["2026-01-04"]
    assert "counted once" not in run("stats", path, "--by", "day").stdout
    assert [day["day"] for day in stats(path, "--by", "day", "--utc")["days"]] == [
        "unknown",
        "2026-01-03",
        "2026-01-04",
    ]


def test_columns_are_sorted_by_what_they_show(tmp_path: Path) -> None:
    builder = TranscriptBuilder().prompt("go")
    for tool, failures, calls in (("Bash", 2, 8), ("Read", 1, 2)):
        for number in range(calls):
            answer = claude_results.refused("no") if number < failures else claude_results.ran("x")
            builder.result(builder.call(tool, {"command": "ls"}), answer)
    path = builder.write(tmp_path / "s.jsonl")

    for column in ("unsuccessful", "failed", "wrong"):
        assert [row["tool"] for row in stats(path, "--sort", column)["tools"]] == ["Read", "Bash"]
    assert [row["tool"] for row in stats(path, "--sort", "errors")["tools"]] == ["Bash", "Read"]
    refused = run("stats", path, "--sort", "p51", code=2)
    assert "the columns are tool, calls, unsuccessful, p50, p95, max, total, timed_out" in refused.output


def test_hidden_rows_of_a_comparison_are_summed() -> None:
    archive = sample.archive()
    output = run("compare", "--at", "2026-11-06", archive, "--limit", "2").stdout
    data = one_row(run("compare", "--at", "2026-11-06", archive, "--json"))
    for name, noun in (("error_kinds", "kinds"), ("tools", "tools")):
        totals = Counter(data["a"][name]) + Counter(data["b"][name])
        rest = len(totals) - 2
        (row,) = re.findall(rf"^ *{rest} more {noun} \(--limit 0\) +(\d+) +(\d+) ", output, re.MULTILINE)
        assert sum(map(int, row)) == totals.total() - sum(sorted(totals.values())[-2:])


def test_comparison_has_the_sum_of_all_tokens() -> None:
    output = run("compare", "5f0c1d7e", "3c5a7e91", sample.archive()).stdout
    data = one_row(run("compare", "5f0c1d7e", "3c5a7e91", sample.archive(), "--json"))
    totals = [f"{sum(data[side]['tokens'].values()):,}" for side in ("a", "b")]
    assert re.findall(r"^ *all tokens +([\d,]+) +([\d,]+) ", output, re.MULTILINE) == [tuple(totals)]


def test_comparison_of_sessions_includes_their_subagents() -> None:
    calls = {row["id"]: row["calls"] for row in rows_of(run("sessions", sample.archive(), "--json"))}
    data = one_row(run("compare", "5f0c1d7e", "3c5a7e91", sample.archive(), "--json"))
    expected = [count for prefix in ("5f0c1d7e", "3c5a7e91") for id_, count in calls.items() if id_.startswith(prefix)]
    assert [data["a"]["calls"], data["b"]["calls"]] == expected
