"""`toolspan time`: where the time went."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.cli.command import one_row, rows, run
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

PARTS = ("model", "tools", "permission", "hooks", "idle")


def time(*arguments: str | Path, code: int = 0) -> Result:
    return run("time", *arguments, code=code)


def time_report(*arguments: str | Path) -> dict[str, Any]:
    return one_row(time(*arguments, "--json"))


def timed_session(session_id: str = "day") -> TranscriptBuilder:
    """Build 2 s of the model, 10 s of a command, 30 s of a question and a minute idle."""
    builder = TranscriptBuilder(session_id=session_id).prompt("go")
    call = builder.call("Bash", {"command": "make"}, after_ms=2_000)
    builder.result(call, claude_results.ran("ok"), after_ms=10_000)
    builder.result(builder.call("Bash", {"command": "rm"}), claude_results.rejected("no"), after_ms=30_000)
    return builder.text("well").prompt("go on", after_ms=60_000)


def test_summary_comes_first_then_parts_tools_and_slowest_calls(tmp_path: Path) -> None:
    output = time(timed_session().write(tmp_path / "s.jsonl")).stdout

    assert output.startswith("1m 42s in 1 session, 42.0 s of it busy: most of it went to waiting for permission (71%)")
    assert "30.0 s known" in output
    assert output.index("model") < output.index("tool  ") < output.index("slowest")


def test_json_parts_sum_up_in_total_and_per_session(tmp_path: Path) -> None:
    timed_session("one").write(tmp_path / "one.jsonl")
    timed_session("two").write(tmp_path / "two.jsonl")

    result = time_report(tmp_path)

    for row in (result, *result["by_session"]):
        assert sum(row["split"][f"{part}_ms"] for part in PARTS) == row["split"]["wall_ms"]
    assert result["split"]["wall_ms"] == 204_000
    assert [row["id"] for row in result["by_session"]] == ["one", "two"]
    assert result["slowest"][0]["certainty"] == "known"


def test_filters_select_sessions_windows_and_table_rows(tmp_path: Path) -> None:
    timed_session("one").write(tmp_path / "one.jsonl")
    timed_session("two").write(tmp_path / "two.jsonl")

    assert time_report(tmp_path, "--session", "on")["sessions"] == 1
    assert time_report(tmp_path, "--state", "denied")["calls"] == 2
    assert time_report(tmp_path, "--until", "2026-11-02T09:00:02Z")["split"]["wall_ms"] == 4_000


def test_window_counts_only_sessions_subagents_and_calls_inside_it(tmp_path: Path) -> None:
    timed_session("one").write(tmp_path / "one.jsonl")
    later = TranscriptBuilder(session_id="two", start=datetime(2026, 11, 3, 9, tzinfo=UTC))
    call = later.prompt("go").call("Task", {"prompt": "look"})
    helper = later.agent(call).prompt("look")
    helper.result(helper.call("Bash", {"command": "ls"}), claude_results.ran("a"), after_ms=1_000)
    report = claude_results.reported(helper.agent_id, "seen", prompt="look", calls=1, took_ms=1_000)
    later.until(helper).result(call, report).write(tmp_path / "two.jsonl")

    first = time_report(tmp_path, "--until", "2026-11-02T09:00:05Z")
    second = time_report(tmp_path, "--since", "2026-11-03")

    assert (first["sessions"], first["agents"], first["calls"]) == (1, 0, 1)
    assert [(row["id"], row["calls"]) for row in first["by_session"]] == [("one", 1)]
    assert (second["sessions"], second["agents"], second["calls"]) == (1, 1, 2)
    assert "in 1 session" in time(tmp_path, "--since", "2026-11-03").stdout
    note = "Calls count in full here and in the tables; 1 of them ended after the period."
    assert note in time(tmp_path, "--until", "2026-11-02T09:00:05Z").stdout
    assert note not in time(tmp_path, "--until", "2026-11-02T12:00Z").stdout


def test_session_with_only_a_subagent_left_has_its_time(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="13b6354b-6f8f").prompt("go")
    helper = builder.agent(builder.call("Task", {"prompt": "look"})).prompt("look")
    call = helper.call("Bash", {"command": "ls"}, after_ms=2_000)
    helper.result(call, claude_results.ran("a"), after_ms=1_000)
    (tmp_path / "agent-a1b2c3d.jsonl").write_bytes(helper.data())

    result = time_report(tmp_path)

    assert (result["split"]["model_ms"], result["split"]["tools_ms"]) == (2_000, 1_000)
    assert (result["sessions"], result["agents"], result["calls"]) == (1, 1, 1)
    assert time(tmp_path).stdout.startswith("3.0 s in 1 session, 3.0 s of it busy")


def test_calls_stats_and_time_agree_on_durations(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="crashed").prompt("go")
    builder.result(builder.call("Bash", {"command": "ls"}), claude_results.ran("a"), after_ms=1_000)
    builder.call("Bash", {"command": "make"}, after_ms=1_000)
    builder.resume(after_ms=3_600_000).prompt("go on").write(tmp_path / "crashed.jsonl")
    rollout = RolloutBuilder()
    rollout.output(rollout.call("exec_command", {"cmd": "ls"}), codex_builder.command_output("a"))  # in one instant
    rollout.write(tmp_path)

    calls = rows(run("calls", tmp_path, "--json"))
    stats = one_row(run("stats", tmp_path, "--json"))["tools"]
    times = time_report(tmp_path)

    expected: dict[str, list[int | None]] = {"Bash": [1_000, None], "exec_command": [100]}
    for tool, durations in expected.items():
        measured = [ms for ms in durations if ms is not None]
        assert [item["duration_ms"] for item in calls if item["tool"] == tool] == durations
        assert [item["max_ms"] for item in stats if item["tool"] == tool] == [max(measured)]
        (row,) = [item for item in times["tools"] if item["tool"] == tool]
        assert (row["total_ms"], row["max_ms"]) == (sum(measured), max(measured))
    assert times["calls_ms"] == 1_100


def test_client_restricts_time_to_one_client(tmp_path: Path) -> None:
    timed_session().write(tmp_path / "s.jsonl")

    assert time_report(tmp_path, "--client", "claude") == time_report(tmp_path)
    assert "No times recorded" in time(tmp_path, "--client", "codex").stdout


def test_folder_without_times_shows_none(tmp_path: Path) -> None:
    assert time(tmp_path).stdout == "No times recorded.\n"


def test_slow_edit_is_a_likely_wait_and_still_counts_as_tool_time(tmp_path: Path) -> None:
    builder = TranscriptBuilder(version="2.0.65").prompt("go")
    call = builder.call("Edit", {"file_path": "/w/a"})
    builder.result(call, claude_results.edited("/w/a", "a", "a", "b"), after_ms=600_000)
    file = builder.write(tmp_path / "s.jsonl")

    assert "Of those, 1 reads, searches or edits took more than 10.0 s (10m 00s in total)" in time(file).stdout
    assert time_report(file)["split"]["tools_ms"] == 600_000
